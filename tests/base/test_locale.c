/* labels: small */
/* A host program that has set a locale with a decimal comma: what Weft writes and reads stays the same. */
#include "harness/test.h"
#include "harness/tempdir.h"
#include "mesh/profile.h"
#include "metrics/metrics.h"

#include <locale.h>

static test_dir dir;

/* The locale is made from the system's sources, where it is not installed. */
static int setup(void **state)
{
    (void)state;
    test_dir_make(&dir);
    char command[700];
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", dir.path);
    if (setlocale(LC_ALL, "de_DE.UTF-8") || system(command) != 0) return 0;
    setenv("LOCPATH", dir.path, 1);
    setlocale(LC_ALL, "de_DE.UTF-8");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    test_dir_remove(&dir);
    return 0;
}

/* Without such a locale there is nothing to see, and the test says so. */
static void need_comma(void)
{
    char comma[8];
    snprintf(comma, sizeof comma, "%.1f", 0.5);
    if (strcmp(comma, "0,5")) skip();
}

static void numbers_have_points(void **state)
{
    (void)state;
    need_comma();
    double x = 0;
    char buf[64], line[64] = "";
    weft_text t = {0};
    weft_line l = {line, sizeof line, 0};
    assert_ok(weft_parse_f64("0.125", &x));
    assert_true(x == 0.125);
    assert_refused(weft_parse_f64("0,125", &x), "not a finite number");
    weft_text_add(&t, "%g %.2e", 0.5, 1.5);
    assert_string_equal(t.data, "0.5 1.50e+00");
    weft_text_free(&t);
    weft_line_add(&l, "%.1f s", 2.5);
    assert_string_equal(line, "2.5 s");
    assert_string_equal(weft_format_bytes(1536, buf, sizeof buf), "1.50 KiB");
    weft_fail(WEFT_ERR_REFUSED, "dropout %g", 0.25);
    assert_string_equal(weft_last_error(), "dropout 0.25");
    weft_fail_at(WEFT_ERR_REFUSED, "%.1f: ", 0.5);
    assert_string_equal(weft_last_error(), "0.5: dropout 0.25");
    snprintf(buf, sizeof buf, "%.1f", 0.5);
    assert_string_equal(buf, "0,5"); /* the program's own numbers are as it wants them */
}

static void take_line(void *ud, weft_log_level level, const char *line)
{
    (void)level;
    snprintf(ud, 64, "%s", line);
}

static void records_are_the_same(void **state)
{
    (void)state;
    need_comma();
    char line[64] = "";
    weft_text t = {0};
    weft_log log = {take_line, line, WEFT_LOG_INFO};
    weft_logf(&log, WEFT_LOG_INFO, "loss %.3f", 1.5);
    assert_string_equal(line, "loss 1.500");
    weft_record r = {.step = 1, .steps = 2, .loss = 1.25, .grad_norm = 0.5, .lr = 1e-3, .seconds = 0.5, .tokens = 9102,
                     .memory_bytes = 1536, .eta_seconds = 3};
    weft_record_line(&r, &t);
    assert_non_null(strstr(t.data, "loss 1.2500 | gnorm 0.50 | 18,204 tok/s"));
    assert_non_null(strstr(t.data, "mem 1.5 KiB"));
    weft_text_free(&t);
    const char *path = test_dir_file(&dir, "steps.jsonl");
    weft_jsonl *j;
    size_t bytes;
    assert_ok(weft_jsonl_open(&j, path));
    assert_ok(weft_jsonl_write(j, &r));
    weft_jsonl_close(j);
    char *text = test_read_raw(path, &bytes);
    assert_non_null(memmem(text, bytes, "1.25", 4));
    assert_null(memmem(text, bytes, "1,25", 4));
    free(text);
}

static void files_are_read_back(void **state)
{
    (void)state;
    need_comma();
    const char *path = test_dir_file(&dir, "profile.json");
    weft_profile p = weft_profile_default(), q;
    p.backward_factor = 2.625;
    assert_ok(weft_profile_write(&p, path));
    assert_ok(weft_profile_read(&q, path));
    assert_true(q.backward_factor == 2.625 && q.latency_seconds == p.latency_seconds);
}

typedef struct options { double rate; } options;

static void options_are_read_and_recorded(void **state)
{
    (void)state;
    need_comma();
    static const weft_opt table[] = {{.key = "train.rate", .flag = "rate", .type = WEFT_OPT_REAL,
                                      .offset = offsetof(options, rate),
                                      .def = "0.5", .min = 1, .doc = "a rate", .commands = 1}};
    weft_mem mem = {0};
    weft_arena *arena;
    weft_opts o;
    options values;
    const char *rest[1];
    int n = 0;
    char *words[] = {"--rate", "0.0625", NULL};
    weft_text t = {0};
    assert_ok(weft_arena_create(&arena, &mem, "options", NULL));
    assert_ok(weft_opts_init(&o, table, 1, 1, &values, arena));
    assert_true(values.rate == 0.5);
    assert_ok(weft_opts_argv(&o, 2, words, rest, 1, &n));
    assert_true(values.rate == 0.0625);
    weft_opts_yaml_text(&o, &t);
    assert_non_null(strstr(t.data, "0.0625"));
    test_write_raw(test_dir_file(&dir, "run.yaml"), t.data, t.len);
    weft_text_free(&t);
    assert_ok(weft_opts_init(&o, table, 1, 1, &values, arena));
    assert_ok(weft_opts_yaml(&o, test_dir_file(&dir, "run.yaml")));
    assert_true(values.rate == 0.0625);
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_points), cmocka_unit_test(records_are_the_same),
        cmocka_unit_test(files_are_read_back), cmocka_unit_test(options_are_read_and_recorded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
