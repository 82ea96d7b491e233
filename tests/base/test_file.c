/* Files that appear whole (report G09): a writer that is killed, or whose disk fills up, at any byte
 * leaves the old file as it was. */
/* labels: small */
#include "harness/test.h"
#include "harness/tempdir.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static test_dir dir;
static int setup(void **state) { (void)state; test_dir_make(&dir); return 0; }
static int teardown(void **state) { (void)state; test_dir_remove(&dir); return 0; }

enum { BYTES = 100000 };

static weft_status save(const char *path, char fill)
{
    char piece[1000];
    memset(piece, fill, sizeof piece);
    weft_writer w;
    WEFT_TRY(weft_writer_open(&w, path));
    for (int i = 0; i < BYTES / 1000; i++) {
        weft_status st = weft_writer_put(&w, piece, sizeof piece);
        if (st < 0) {
            weft_writer_abandon(&w);
            return st;
        }
    }
    return weft_writer_commit(&w);
}

/* Saves in a child whose files may not grow beyond `limit`; the signal for that kills it, or, ignored,
 * makes write fail as a full disk does. Returns the child's wait status. */
static int save_limited(const char *path, rlim_t limit, bool killed)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit r = {limit, limit}, no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        setrlimit(RLIMIT_FSIZE, &r);
        signal(SIGXFSZ, killed ? SIG_DFL : SIG_IGN);
        _exit(save(path, 'n') == WEFT_ERR_IO ? 7 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void assert_holds(const char *path, char fill)
{
    size_t bytes;
    char *data = test_read_raw(path, &bytes);
    assert_int_equal(bytes, BYTES);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(data[i], fill);
    free(data);
}

static void test_killed_at_any_byte(void **state)
{
    (void)state;
    const char *path = test_dir_file(&dir, "state");
    assert_ok(save(path, 'o'));
    for (rlim_t i = 0; i < 10; i++) {
        int status = save_limited(path, i * 11111, true);
        assert_true(WIFSIGNALED(status));
        assert_holds(path, 'o');
    }
    assert_ok(save(path, 'n'));
    assert_holds(path, 'n');
}

static void test_disk_full_at_any_byte(void **state)
{
    (void)state;
    const char *path = test_dir_file(&dir, "state");
    assert_ok(save(path, 'o'));
    for (rlim_t i = 0; i < 10; i++) {
        int status = save_limited(path, i * 11111, false);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        assert_holds(path, 'o');
        assert_int_equal(test_dir_count(&dir), 1); /* the half file is gone */
    }
}

static void test_map(void **state)
{
    (void)state;
    weft_map map = {0};
    const char *path = test_dir_file(&dir, "f");
    assert_refused(weft_map_open(&map, path), "cannot read");
    assert_refused(weft_map_open(&map, dir.path), "is a directory");
    test_write_raw(path, "", 0);
    assert_refused(weft_map_open(&map, path), "is empty");
    assert_refused(weft_map_open(&map, "/dev/null"), "not a regular file");
    assert_null(map.data);
    test_write_raw(path, "abc", 3);
    assert_ok(weft_map_open(&map, path));
    assert_int_equal(map.bytes, 3);
    assert_memory_equal(map.data, "abc", 3);
    weft_map_close(&map);
    weft_map_close(&map);
}

static void test_writer_refusals(void **state)
{
    (void)state;
    weft_writer w;
    assert_int_equal(weft_writer_open(&w, test_dir_file(&dir, "no/folder")), WEFT_ERR_IO);
    /* a folder under the name: found at the rename, and nothing is left behind */
    assert_int_equal(save(dir.path, 'x'), WEFT_ERR_IO);
    assert_int_equal(test_dir_count(&dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed_at_any_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disk_full_at_any_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(test_map, setup, teardown),
        cmocka_unit_test_setup_teardown(test_writer_refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
