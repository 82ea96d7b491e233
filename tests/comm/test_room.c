/* labels: small */
/* How much memory can still be taken, read from trees of files as the kernel shows them, and that taking stops in the
 * middle when others were faster. */
#include "harness/test.h"
#include "harness/tempdir.h"
#include "comm/local_heap.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static test_dir dir;
static int setup(void **state) { (void)state; test_dir_make(&dir); return 0; }
static int teardown(void **state) { (void)state; test_dir_remove(&dir); return 0; }

/* The file `name` of the tree, with the folders above it. */
static void put(const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir.path, name);
    for (char *p = path + strlen(dir.path) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        mkdir(path, 0777);
    }
    test_write_raw(path, text, strlen(text));
}

/* A sixteenth is kept back. */
static size_t most_of(size_t bytes) { return bytes - bytes / 16; }

static void the_machine_says(void **state)
{
    (void)state;
    assert_true(weft_local_room(dir.path) == most_of(SIZE_MAX)); /* it says nothing */
    put("proc/meminfo", "MemTotal:  999999 kB\nMemFree:   1 kB\nMemAvailable:   2048 kB\n");
    assert_true(weft_local_room(dir.path) == most_of(2 * MIB));
}

static void groups_of_version_2_limit(void **state)
{
    (void)state;
    put("proc/meminfo", "MemAvailable: 1048576 kB\n");
    put("proc/self/cgroup", "0::/job/step\n");
    put("sys/fs/cgroup/job/step/memory.max", "max\n");
    put("sys/fs/cgroup/job/memory.max", "104857600\n");
    put("sys/fs/cgroup/job/memory.current", "52428800\n");
    put("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 10485760\nactive_file 10485760\n");
    assert_true(weft_local_room(dir.path) == most_of(70 * MIB)); /* 100 - (50 - 20) */
    put("sys/fs/cgroup/job/step/memory.max", "41943040\n");
    put("sys/fs/cgroup/job/step/memory.current", "41943041\n");
    assert_true(weft_local_room(dir.path) == 0);
}

static void groups_of_version_1_limit(void **state)
{
    (void)state;
    put("proc/meminfo", "MemAvailable: 1048576 kB\n");
    put("proc/self/cgroup", "12:cpu,cpuacct:/other\n5:hugetlb,memory:/slurm/job_7\n1:name=systemd:/x\n0::/\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
    assert_true(weft_local_room(dir.path) == most_of(1024 * MIB));
    put("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "104857600\n");
    put("sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", "52428800\n");
    put("sys/fs/cgroup/memory/slurm/job_7/memory.stat",
        "inactive_file 99\ntotal_inactive_file 10485760\ntotal_active_file 0\n");
    assert_true(weft_local_room(dir.path) == most_of(60 * MIB));
}

/* ---- taking, while others do ------------------------------------------------------------------------------ */

typedef struct looks { const int *mib; int n; char path[300], next[300]; } looks;

/* Each look opens a pipe, and reads what the machine has then; the pipe of the next look is there before it is told. */
static void *answer_looks(void *arg)
{
    looks *k = arg;
    for (int i = 0; i < k->n; i++) {
        char text[64];
        int fd = open(k->path, O_WRONLY);
        if (fd < 0 || (i + 1 < k->n && (mkfifo(k->next, 0600) != 0 || rename(k->next, k->path) != 0))) return NULL;
        int n = snprintf(text, sizeof text, "MemAvailable: %d kB\n", k->mib[i] * 1024);
        if (write(fd, text, (size_t)n) != n) return NULL;
        close(fd);
    }
    return arg;
}

static size_t blocks_of(const weft_local *map)
{
    struct stat s;
    assert_int_equal(fstat(weft_local_fd(map), &s), 0);
    return (size_t)s.st_blocks * 512;
}

static weft_status alloc_under(const int *mib, int n, size_t bytes, size_t *taken)
{
    looks k = {.mib = mib, .n = n};
    pthread_t thread;
    weft_local *map;
    weft_heap heap;
    void *p = NULL, *all;
    put("proc/none", "");
    snprintf(k.path, sizeof k.path, "%s/proc/meminfo", dir.path);
    snprintf(k.next, sizeof k.next, "%s/proc/next", dir.path);
    unlink(k.path);
    assert_int_equal(mkfifo(k.path, 0600), 0);
    assert_int_equal(pthread_create(&thread, NULL, answer_looks, &k), 0);
    assert_ok(weft_local_create(&map, 2));
    assert_ok(weft_heap_init(&heap, map, 1));
    heap.root = dir.path;
    size_t before = blocks_of(map);
    weft_status st = heap.provider.alloc(&heap, bytes, &p);
    *taken = blocks_of(map) - before;
    pthread_join(thread, &all);
    assert_non_null(all); /* as many looks as expected */
    if (st == WEFT_OK) heap.provider.release(&heap, p, bytes);
    assert_true(blocks_of(map) == before);
    weft_heap_close(&heap);
    weft_local_destroy(map);
    return st;
}

static void taking_stops_when_others_were_faster(void **state)
{
    (void)state;
    size_t taken;
    assert_ok(alloc_under((int[]){1024, 1024}, 2, 100 * MIB, &taken));
    assert_true(taken == 100 * MIB);
    assert_int_equal(alloc_under((int[]){1024, 10}, 2, 100 * MIB, &taken), WEFT_ERR_MEMORY);
    assert_true(taken == 0);
    assert_non_null(strstr(weft_last_error(), "cannot get 104857600 bytes"));
    assert_int_equal(alloc_under((int[]){10}, 1, 20 * MIB, &taken), WEFT_ERR_MEMORY);
}

/* Two ranks take at most 64 MiB each between two looks. */
static void small_pieces_share_a_look(void **state)
{
    (void)state;
    enum { N = 17 };
    weft_local *map;
    weft_heap heap;
    void *p[N];
    assert_ok(weft_local_create(&map, 2));
    assert_ok(weft_heap_init(&heap, map, 1));
    heap.root = dir.path;
    put("proc/meminfo", "MemAvailable: 1048576 kB\n");
    assert_ok(heap.provider.alloc(&heap, 4096, &p[0]));
    put("proc/meminfo", "MemAvailable: 4 kB\n");
    for (int i = 1; i < N - 1; i++) assert_ok(heap.provider.alloc(&heap, 4 * MIB, &p[i]));
    assert_int_equal(heap.provider.alloc(&heap, 4 * MIB, &p[N - 1]), WEFT_ERR_MEMORY);
    for (int i = 0; i < N - 1; i++) heap.provider.release(&heap, p[i], i ? 4 * MIB : 4096);
    weft_heap_close(&heap);
    weft_local_destroy(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_machine_says, setup, teardown),
        cmocka_unit_test_setup_teardown(groups_of_version_2_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(groups_of_version_1_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(taking_stops_when_others_were_faster, setup, teardown),
        cmocka_unit_test_setup_teardown(small_pieces_share_a_look, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
