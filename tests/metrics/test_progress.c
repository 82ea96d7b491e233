/* The live line: what a terminal shows after each step, and which steps a log file holds. */
/* labels: small */
#include "harness/test.h"
#include "metrics/metrics.h"

static weft_text sink;
static void collect(void *ud, const char *text, size_t n) { weft_text_add(ud, "%.*s", (int)n, text); }
static int setup(void **state) { (void)state; sink = (weft_text){0}; return 0; }
static int teardown(void **state) { (void)state; weft_text_free(&sink); return 0; }

static weft_record step(int64_t i, int64_t n) { return (weft_record){.step = i, .steps = n, .loss = 1, .seconds = 1}; }

static int count(const char *what)
{
    int n = 0;
    for (const char *at = sink.data ? sink.data : ""; (at = strstr(at, what)); at++) n++;
    return n;
}

/* What a terminal of `width` columns shows: the lines above the cursor's, and the longest line ever seen.
 * Knows \r, \n, clear-to-end and ignores colours. */
typedef struct screen { char line[300]; size_t at, longest; int lines; } screen;

static screen play(void)
{
    screen s = {.line = ""};
    for (const char *c = sink.data; *c; c++) {
        if (*c == '\r') s.at = 0;
        else if (*c == '\n') s.lines++, s.at = 0, s.line[0] = '\0';
        else if (*c == '\x1b') {
            const char *end = c + strcspn(c, "Km");
            if (*end == 'K') s.line[s.at] = '\0';
            c = end;
        } else {
            if (s.at == strlen(s.line)) s.line[s.at + 1] = '\0';
            s.line[s.at++] = *c;
            s.longest = s.at > s.longest ? s.at : s.longest;
        }
    }
    return s;
}

static void test_plain(void **state)
{
    (void)state;
    weft_progress_line p;
    weft_progress_init(&p, collect, &sink, 80, false, true);
    for (int i = 1; i <= 100; i++) { /* ten steps a second for ten seconds */
        const weft_record r = step(i, 100);
        weft_progress_step(&p, 50 + 0.1 * i, &r);
    }
    const int lines = count("\n");
    assert_true(lines >= 9 && lines <= 12);
    assert_int_equal(count("step     1/100 "), 1);
    assert_int_equal(count("step   100/100 "), 1);
    assert_int_equal(count("\r") + count("\x1b"), 0); /* log files hold no control characters */
    assert_int_equal(lines, count("step "));
    weft_progress_done(&p);
    assert_int_equal(count("\n"), lines);
}

static void test_slow_steps(void **state)
{
    (void)state;
    weft_progress_line p;
    weft_progress_init(&p, collect, &sink, 80, false, false);
    for (int i = 1; i <= 7; i++) {
        const weft_record r = step(i, 7);
        weft_progress_step(&p, 3.0 * i, &r);
    }
    assert_int_equal(count("\n"), 7);
}

/* Skipped steps and losses that are not finite are shown however fast the steps are. */
static void test_kept_steps(void **state)
{
    (void)state;
    weft_progress_line p;
    weft_progress_init(&p, collect, &sink, 200, true, false);
    for (int i = 1; i <= 50; i++) {
        weft_record r = step(i, 100);
        r.skip = i == 20 ? WEFT_SKIP_LABELS : WEFT_SKIP_NOT;
        if (i == 30) r.loss = NAN;
        weft_progress_step(&p, 1e-4 * i, &r);
    }
    assert_int_equal(count("| skipped: no labels | "), 1);
    assert_int_equal(count("loss nan"), 1);
    assert_int_equal(count("step "), 3); /* with the first */
}

static void test_terminal(void **state)
{
    (void)state;
    for (int colour = 0; colour < 2; colour++)
        for (int width = 20; width <= 200; width += 45) {
            setup(NULL);
            weft_progress_line p;
            weft_progress_init(&p, collect, &sink, width, true, colour);
            for (int i = 1; i < 10; i++) {
                const weft_record r = step(i, 10);
                weft_progress_step(&p, i, &r);
            }
            screen s = play();
            assert_int_equal(s.lines, 0); /* one line, written over */
            assert_true(s.longest < (size_t)width);
            assert_memory_equal(s.line, "step     9/10", 13);
            const size_t seen = strlen(s.line); /* whole fields only: the full line goes on with a bar, or ends */
            const weft_record shown = step(9, 10);
            weft_text full = {0};
            weft_record_line(&shown, &full);
            assert_memory_equal(full.data, s.line, seen);
            assert_true(full.data[seen] == '\0' || !strncmp(full.data + seen, " | ", 3));
            weft_text_free(&full);
            assert_int_equal(count("\x1b[2m") > 0, colour && strchr(s.line, '|'));
            weft_progress_note(&p, "saved step 9");
            const weft_record last = step(10, 10);
            weft_progress_step(&p, 10.0001, &last);
            weft_progress_done(&p);
            s = play();
            assert_int_equal(s.lines, 2); /* the note and the last step, nothing torn */
            assert_int_equal(count("\x1b[Ksaved step 9\n"), 1);
            weft_text_free(&sink);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plain, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slow_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept_steps, setup, teardown),
        cmocka_unit_test(test_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
