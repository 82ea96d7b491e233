/* The step's line, the JSON line, and the throughput that both report (report G40). */
/* labels: small */
#include "harness/test.h"
#include "harness/tempdir.h"
#include "metrics/metrics.h"

#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static test_dir dir;
static int setup(void **state) { (void)state; test_dir_make(&dir); return 0; }
static int teardown(void **state) { (void)state; test_dir_remove(&dir); return 0; }

static weft_record example(void)
{
    return (weft_record){.step = 120, .steps = 2000, .loss = 3.44124, .grad_norm = 0.912, .lr = 2.9e-4, .seconds = 0.5,
                         .tokens = 9102, .valid_tokens = 9000, .comm_share = 0.071, .exposed_share = 0.019,
                         .bytes_logical = 123456789012, .messages = 42, .memory_bytes = 1.2 * 1024 * 1024 * 1024,
                         .resident_bytes = 2e9, .imbalance = 1.02, .eta_seconds = 2467};
}

static void line_is(const weft_record *r, const char *expected)
{
    weft_text t = {0};
    weft_record_line(r, &t);
    assert_string_equal(t.data, expected);
    weft_text_free(&t);
}

static void test_line(void **state)
{
    (void)state;
    weft_record r = example();
    line_is(&r, "step   120/2000 | loss 3.4412 | gnorm 0.91 | 18,204 tok/s | eta 0:41:07 | lr 2.90e-04 | comm 7% (2% "
                "exposed) | mem 1.2 GiB");
    r = (weft_record){.step = 1,
                      .steps = 5,
                      .loss = -NAN,
                      .grad_norm = INFINITY,
                      .lr = 0,
                      .tokens = 7,
                      .skip = WEFT_SKIP_OVERFLOW,
                      .memory_bytes = 1023,
                      .eta_seconds = NAN,
                      .loss_scale = 32768,
                      .spike = true,
                      .loss_zscore = 7.25};
    line_is(&r, "step     1/5 | loss nan | skipped: overflow | gnorm inf | 0 tok/s | eta - | lr 0.00e+00 | comm 0% (0% "
                "exposed) | mem 1023 B | scale 32768 | spike, z 7.2");
}

static void test_thousands(void **state)
{
    (void)state;
    static const struct { int64_t tokens; const char *text; } c[] = {
        {0, "| 0 tok"}, {7, "| 7 tok"}, {999, "| 999 tok"}, {1000, "| 1,000 tok"}, {12345, "| 12,345 tok"},
        {123456, "| 123,456 tok"}, {1234567, "| 1,234,567 tok"}, {1000000000000, "| 1,000,000,000,000 tok"}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        const weft_record r = {.seconds = 1, .tokens = c[i].tokens};
        weft_text t = {0};
        weft_record_line(&r, &t);
        assert_non_null(strstr(t.data, c[i].text));
        weft_text_free(&t);
    }
}

/* ---- JSON lines ------------------------------------------------------------------------------------------- */

static json_t *line_of(const char *path, int line)
{
    size_t bytes;
    char *text = test_read_raw(path, &bytes), *at = text;
    for (int i = 0; i < line; i++) at = strchr(at, '\n') + 1;
    *strchr(at, '\n') = '\0';
    json_t *o = json_loads(at, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    free(text);
    return o;
}

static double real_of(json_t *o, const char *key) { return json_real_value(json_object_get(o, key)); }

static void g40_throughput(void **state)
{
    (void)state;
    weft_record r = {.step = 1, .steps = 1, .seconds = 2.0, .tokens = 4 * 1024, .ranks = 4};
    assert_true(weft_record_throughput(&r) == 2048);
    const char *path = test_dir_file(&dir, "m.jsonl");
    weft_jsonl *j = NULL;
    assert_ok(weft_jsonl_open(&j, path));
    assert_ok(weft_jsonl_write(j, &r));
    weft_jsonl_close(j);
    json_t *o = line_of(path, 0);
    assert_true(real_of(o, "tokens_per_second") == 2048);
    assert_true(real_of(o, "tokens_per_second_per_rank") == 512);
    json_decref(o);
    r.seconds = 0;
    assert_true(weft_record_throughput(&r) == 0);
}

static void test_json(void **state)
{
    (void)state;
    const char *path = test_dir_file(&dir, "m.jsonl");
    weft_record r = example();
    weft_jsonl *j = NULL;
    assert_ok(weft_jsonl_open(&j, path));
    assert_ok(weft_jsonl_write(j, &r));
    json_t *o = line_of(path, 0); /* before the file is closed: each line is flushed */
    assert_int_equal(json_integer_value(json_object_get(o, "step")), 120);
    assert_int_equal(json_integer_value(json_object_get(o, "bytes_logical")), 123456789012);
    assert_true(real_of(o, "loss") == r.loss); /* all digits */
    assert_true(json_is_false(json_object_get(o, "skipped")));
    assert_null(json_object_get(o, "nonfinite"));
    assert_null(json_object_get(o, "ranks"));
    assert_null(json_object_get(o, "skip_reason"));
    json_decref(o);
    r.loss = NAN, r.eta_seconds = -INFINITY, r.skip = WEFT_SKIP_GUARD, r.skips = 3, r.guard_ranks = 2;
    r.loss_scale = 512;
    assert_ok(weft_jsonl_write(j, &r));
    weft_jsonl_close(j);
    o = line_of(path, 1);
    assert_true(json_is_null(json_object_get(o, "loss")));
    assert_true(json_is_null(json_object_get(o, "eta_seconds")));
    assert_true(json_is_true(json_object_get(o, "skipped")));
    assert_string_equal(json_string_value(json_object_get(o, "skip_reason")), "guard");
    assert_int_equal(json_integer_value(json_object_get(o, "skips")), 3);
    assert_int_equal(json_integer_value(json_object_get(o, "guard_ranks")), 2);
    assert_true(real_of(o, "loss_scale") == 512);
    const json_t *bad = json_object_get(o, "nonfinite");
    assert_int_equal(json_array_size(bad), 2);
    assert_string_equal(json_string_value(json_array_get(bad, 0)), "loss");
    assert_string_equal(json_string_value(json_array_get(bad, 1)), "eta_seconds");
    json_decref(o);
}

/* A run that was killed in the middle of a line, and resumed. */
static void test_continued(void **state)
{
    (void)state;
    const char *path = test_dir_file(&dir, "m.jsonl");
    weft_jsonl *j = NULL;
    static const char *const left[] = {"", "{\"step\":1}\n", "{\"step\":1}\n{\"st", "{\"st"};
    static const int whole[] = {0, 1, 1, 0};
    const weft_record r = example();
    for (int k = 0; k < 4; k++) {
        test_write_raw(path, left[k], strlen(left[k]));
        assert_ok(weft_jsonl_open(&j, path));
        assert_ok(weft_jsonl_write(j, &r));
        weft_jsonl_close(j);
        json_t *o = line_of(path, whole[k]);
        assert_int_equal(json_integer_value(json_object_get(o, "step")), 120);
        json_decref(o);
        if (whole[k]) {
            o = line_of(path, 0);
            assert_int_equal(json_integer_value(json_object_get(o, "step")), 1);
            json_decref(o);
        }
    }
    /* another kind of file is not cut */
    static char other[70000];
    memset(other, '{', sizeof other);
    test_write_raw(path, other, sizeof other);
    assert_refused(weft_jsonl_open(&j, path), "no file of JSON lines");
    test_write_raw(path, "abc\ndef", 7);
    assert_refused(weft_jsonl_open(&j, path), "no file of JSON lines");
    size_t bytes;
    free(test_read_raw(path, &bytes));
    assert_int_equal(bytes, 7);
    assert_int_equal(weft_jsonl_open(&j, test_dir_file(&dir, "no/m.jsonl")), WEFT_ERR_IO);
    assert_int_equal(weft_jsonl_open(&j, dir.path), WEFT_ERR_IO);
}

static void test_full_disk(void **state)
{
    (void)state;
    weft_jsonl *j = NULL;
    const weft_record r = example();
    if (weft_jsonl_open(&j, "/dev/full") != WEFT_OK) skip();
    assert_int_equal(weft_jsonl_write(j, &r), WEFT_ERR_IO);
    weft_jsonl_close(j);
}

/* A part of a line is on the disk when there is no more room: it goes, and the next one that has room is whole. */
static void test_no_room_for_a_line(void **state)
{
    (void)state;
    enum { ROOM = 1000 };
    weft_jsonl *j = NULL;
    struct rlimit before, small;
    struct stat s;
    const weft_record r = example();
    const char *path = test_dir_file(&dir, "room.jsonl");
    assert_ok(weft_jsonl_open(&j, path));
    assert_ok(weft_jsonl_write(j, &r));
    assert_int_equal(stat(path, &s), 0);
    const off_t line = s.st_size;
    assert_true(line < ROOM && ROOM < 2 * line);
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){ROOM, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weft_jsonl_write(j, &r), WEFT_ERR_IO);
        assert_int_equal(stat(path, &s), 0);
        assert_int_equal(s.st_size, line);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_ok(weft_jsonl_write(j, &r));
    weft_jsonl_close(j);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_size, 2 * line);
}

static void test_resident(void **state)
{
    (void)state;
    enum { BYTES = 64 << 20 };
    const double before = weft_resident_bytes();
    assert_true(before > 100e3);
    char *p = malloc(BYTES);
    memset(p, 1, BYTES);
    const double more = weft_resident_bytes() - before;
    assert_int_equal(p[BYTES - 1], 1);
    free(p);
    /* within a quarter: other pages come and go (shadow memory under a sanitizer: an eighth) */
    assert_true(more > 0.75 * BYTES && more < 1.25 * BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_thousands),
        cmocka_unit_test_setup_teardown(g40_throughput, setup, teardown),
        cmocka_unit_test_setup_teardown(test_json, setup, teardown),
        cmocka_unit_test_setup_teardown(test_continued, setup, teardown),
        cmocka_unit_test(test_full_disk), cmocka_unit_test_setup_teardown(test_no_room_for_a_line, setup, teardown),
        cmocka_unit_test(test_resident),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
