/* Files that appear whole (report G09): a writer that is killed, or whose disk fills up, at any byte
 * leaves the old file as it was. */
/* labels: small */
#include "harness/test.h"
#include "harness/tempdir.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

static void g09_killed_at_any_byte(void **state)
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
    assert_refused(save(dir.path, 'x'), "is a directory");
    assert_refused(save("", 'x'), "empty name");
    assert_refused(weft_writer_check(dir.path), "is a directory");
    assert_refused(weft_writer_check(test_dir_file(&dir, "no/folder")), "No such file");
    assert_ok(weft_writer_check(test_dir_file(&dir, "new")));
    assert_int_equal(test_dir_count(&dir), 0);
}

/* A rename over a device or a pipe would remove it from the machine. */
static void test_pipes_stay(void **state)
{
    (void)state;
    const char *pipe = test_dir_file(&dir, "pipe");
    struct stat s;
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_refused(save(pipe, 'x'), "a device or a pipe");
    assert_refused(weft_writer_check(pipe), "a device or a pipe");
    assert_int_equal(stat(pipe, &s), 0);
    assert_true(S_ISFIFO(s.st_mode));
    assert_int_equal(test_dir_count(&dir), 1);
}

static void test_links_stay(void **state)
{
    (void)state;
    const char *link = test_dir_file(&dir, "link"), *file = test_dir_file(&dir, "file");
    struct stat s;
    test_write_raw(file, "abc", 3);
    assert_int_equal(symlink(file, link), 0);
    assert_ok(save(link, 'x'));
    assert_int_equal(lstat(link, &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    assert_int_equal(stat(file, &s), 0);
    assert_true(s.st_size > 3);
    assert_int_equal(test_dir_count(&dir), 2);
}

/* Who may not read the old file may not read the new one, while it is written neither. */
static void the_mode_of_the_old_file_stays(void **state)
{
    (void)state;
    const char *path = test_dir_file(&dir, "secret");
    struct stat s;
    static const mode_t modes[] = {0600, 0640, 0666, 0444};
    assert_ok(save(path, 'a'));
    for (int i = 0; i < 4; i++) {
        weft_writer w;
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_ok(weft_writer_open(&w, path));
        assert_int_equal(stat(w.temporary, &s), 0);
        assert_int_equal(s.st_mode & 0777, modes[i]);
        assert_ok(weft_writer_commit(&w));
        assert_int_equal(stat(path, &s), 0);
        assert_int_equal(s.st_mode & 0777, modes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(g09_killed_at_any_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disk_full_at_any_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(test_map, setup, teardown),
        cmocka_unit_test_setup_teardown(test_writer_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pipes_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_links_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(the_mode_of_the_old_file_stays, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
