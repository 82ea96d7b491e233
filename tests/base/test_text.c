/* Growing strings, suggestions, numbers with suffixes, how sizes and times are shown. */
#include "harness/test.h"

static void text_grows(void **state)
{
    (void)state;
    weft_text t = {0};
    weft_text_add(&t, "%s", "");
    assert_string_equal(t.data, "");
    for (int i = 0; i < 1001; i++) weft_text_add(&t, "%d,", i % 10);
    assert_int_equal(t.len, 2002);
    assert_int_equal(strlen(t.data), 2002);
    assert_memory_equal(t.data, "0,1,2,", 6);
    assert_memory_equal(t.data + 1996, "8,9,0,", 6);
    weft_text_free(&t);
    assert_null(t.data);
    weft_text_free(&t); /* twice is fine */
}

static void suggestions(void **state)
{
    (void)state;
    static const char *const names[] = {"ring", "pcp", "ulysses", "dcp-ring", "pairwise"};
    enum { N = sizeof names / sizeof *names };
    static const struct { const char *word, *best; } cases[] = {
        {"rnig", "ring"}, {"rin", "ring"}, {"ulyses", "ulysses"}, {"dcpring", "dcp-ring"}, {"pairwse", "pairwise"},
        {"ring", "ring"}, {"RING", "ring"}, {"DCP_Ring", "dcp-ring"}, {"zzzzzzzz", NULL}, {"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *best = weft_suggest(cases[i].word, names, N);
        if (!cases[i].best) assert_null(best);
        else assert_string_equal(best, cases[i].best);
    }
    static const char *const letters[] = {"T", "H"};
    assert_null(weft_suggest("Q", letters, 2));
    assert_null(weft_suggest("int", letters, 2));
    assert_string_equal(weft_suggest("h", letters, 2), "H");
    char longer[300];
    memset(longer, 'r', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_null(weft_suggest(longer, names, N));
    assert_null(weft_suggest("ring", names, 0));
}

static void sizes(void **state)
{
    (void)state;
    int64_t v = 0;
    static const struct { const char *text; int64_t value; } good[] = {
        {"0", 0}, {"100", 100}, {"64K", 65536}, {"64k", 65536}, {"16M", 16 << 20}, {"2G", (int64_t)2 << 30},
        {"1T", (int64_t)1 << 40}, {"9223372036854775807", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_ok(weft_parse_size(good[i].text, &v));
        assert_true(v == good[i].value);
    }
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "K", "1KB", "1.5M", "1X", "0x10",
                                      "9223372036854775808",
                                      "9007199254740993K", "99999999999999999999T"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_refused(weft_parse_size(bad[i], &v), bad[i]);
}

static void numbers(void **state)
{
    (void)state;
    int64_t v = 0;
    double x = 0;
    assert_ok(weft_parse_i64("-9223372036854775808", &v));
    assert_true(v == INT64_MIN);
    static const char *const bad[] = {"", " 1", "1 ", "1.0", "1e3", "one", "-", "9223372036854775808"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_refused(weft_parse_i64(bad[i], &v), bad[i]);
    assert_true(v == INT64_MIN); /* written on success only */
    assert_ok(weft_parse_f64("-2.5e-3", &x));
    assert_true(x == -2.5e-3);
    static const char *const bad_reals[] = {"", "nan", "inf", "-inf", "1e999", "1,5", " 1", "1 ", "x"};
    for (size_t i = 0; i < sizeof bad_reals / sizeof *bad_reals; i++)
        assert_refused(weft_parse_f64(bad_reals[i], &x), bad_reals[i]);
    assert_true(x == -2.5e-3);
}

static void lines_are_folded(void **state)
{
    (void)state;
    static const struct { const char *lines; int left, width; const char *folded; } cases[] = {
        {"", 4, 20, ""},
        {"one two", 0, 7, "one two\n"},
        {"one two three\n", 0, 7, "one two\nthree\n"},
        {"one two three", 2, 7, "one two\n  three\n"},
        {"one  two three four", 0, 8, "one  two\nthree\nfour\n"},            /* gaps inside a line stay */
        {"\n\nab cd\n", 0, 4, "\n\nab\ncd\n"},
        {"  ab cd ef", 2, 8, "  ab cd\n  ef\n"},
        {"plan  aa bb cc\nx\n", WEFT_FOLD_UNDER, 12, "plan  aa bb\n      cc\nx\n"},
        {"* key  /a/very/long/path", WEFT_FOLD_UNDER, 16, "* key\n       /a/very/l\n       ong/path\n"},
        {"abcdefghij", 2, 4, "abcd\n  ef\n  gh\n  ij\n"},                       /* no space to cut at */
        {"ab", 60, 1, "a\nb\n"},                                            /* the indentation leaves room */
        {"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 0, 3, "\xc3\xa9\xc3\xa9\xc3\xa9\n\xc3\xa9\n"}, /* characters stay whole */
        {"one two three", 2, 0, "one two three\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_text t = {0};
        weft_text_fold(&t, cases[i].lines, cases[i].left, cases[i].width);
        assert_string_equal(t.data ? t.data : "", cases[i].folded);
        weft_text_free(&t);
    }
}

static void shown(void **state)
{
    (void)state;
    char buf[64];
    assert_string_equal(weft_format_bytes(0, buf, sizeof buf), "0 B");
    assert_string_equal(weft_format_bytes(1023, buf, sizeof buf), "1023 B");
    assert_string_equal(weft_format_bytes(3.21 * 1024 * 1024 * 1024, buf, sizeof buf), "3.21 GiB");
    assert_string_equal(weft_format_bytes(1e20, buf, sizeof buf), "88817.84 PiB");
    assert_string_equal(weft_format_duration(0, buf, sizeof buf), "0:00:00");
    assert_string_equal(weft_format_duration(2466.6, buf, sizeof buf), "0:41:07");
    assert_string_equal(weft_format_duration(59.7, buf, sizeof buf), "0:01:00");
    assert_string_equal(weft_format_duration(360000, buf, sizeof buf), "100:00:00");
    assert_string_equal(weft_format_duration(NAN, buf, sizeof buf), "-");
    assert_string_equal(weft_format_duration(-1, buf, sizeof buf), "-");
}

static void lines_under_a_label(void **state)
{
    (void)state;
    static const struct { const char *lines, *text; } cases[] = {
        {"", "plan  "}, {"a\n", "plan  a\n"}, {"a", "plan  a"}, {"a\nb c\n", "plan  a\n      b c\n"},
        {"a\n\nb", "plan  a\n      \n      b"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_text t = {0};
        weft_text_add_under(&t, "plan  ", cases[i].lines);
        assert_string_equal(t.data, cases[i].text);
        weft_text_free(&t);
    }
}

/* A NaN with its sign, as 0/0 makes it on some machines, and one without. */
static void numbers_that_are_none(void **state)
{
    (void)state;
    char buf[40], text[40];
    const double x[] = {(double)NAN, -(double)NAN, copysign((double)NAN, -1)};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        weft_format(text, sizeof text, "%.1f", weft_unsigned_nan(x[i]));
        assert_string_equal(text, "nan");
        assert_string_equal(weft_format_json(buf, sizeof buf, x[i], 4), "null");
    }
    assert_string_equal(weft_format_json(buf, sizeof buf, (double)INFINITY, 4), "null");
    assert_string_equal(weft_format_json(buf, sizeof buf, -(double)INFINITY, 4), "null");
    assert_string_equal(weft_format_json(buf, sizeof buf, -0.25, 4), "-0.25");
    assert_string_equal(weft_format_json(buf, sizeof buf, 1.0 / 3, 4), "0.3333");
    assert_true(weft_unsigned_nan(-2.5) == -2.5 && weft_unsigned_nan(-(double)INFINITY) == -(double)INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_grows), cmocka_unit_test(suggestions), cmocka_unit_test(sizes), cmocka_unit_test(numbers),
        cmocka_unit_test(lines_are_folded), cmocka_unit_test(shown), cmocka_unit_test(numbers_that_are_none),
        cmocka_unit_test(lines_under_a_label),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
