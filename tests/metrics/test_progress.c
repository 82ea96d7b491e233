/* The live line: what a terminal shows after each step and within a long one, and which lines a log file holds. */
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

/* ---- within a step ---- */

static weft_inside layer(double begun, double since, double done, double next)
{
    return (weft_inside){.begun = begun, .since = since,
                         .at = {.step = 3, .steps = 9, .phase = WEFT_STEP_BACKWARD, .micro = 1, .micros = 4, .layer = 3,
                                .layers = 12, .done = done, .next = next}};
}

/* The first line after ten seconds, then one a second; the line of the step before stays, and this step's takes the
 * place of what was told of it, however soon after. */
static void test_inside_on_terminal(void **state)
{
    (void)state;
    weft_progress_line p;
    weft_progress_init(&p, collect, &sink, 80, true, false);
    const weft_record two = step(2, 9), three = step(3, 9);
    weft_progress_step(&p, 100, &two);
    const weft_inside x = layer(100, 100, 0.25, 0.5);
    for (double now = 100; now < 109.9; now++) weft_progress_inside(&p, now, &x);
    assert_int_equal(count("layer"), 0);
    for (double now = 110; now < 119.9; now++) weft_progress_inside(&p, now, &x);
    assert_int_equal(count("step     3/9 | 25 %"), 10);
    screen s = play();
    assert_int_equal(s.lines, 1);
    assert_true(s.longest < 80);
    assert_string_equal(s.line, "step     3/9 | 25 % after 19 s | backward layer 3/12 | micro-batch 1/4");
    weft_progress_step(&p, 119.01, &three);
    s = play();
    assert_int_equal(s.lines, 1);
    assert_memory_equal(s.line, "step     3/9 | loss", 19);
    const weft_inside next = layer(119.01, 119.01, 0, 0);
    weft_progress_inside(&p, 125, &next); /* a step has ten seconds of its own */
    assert_int_equal(count("layer"), 10);
}

/* Short runs' logs do not change; that of a long step has a line every ten minutes, whatever is called how often. */
static void test_inside_in_a_log(void **state)
{
    (void)state;
    weft_progress_line p;
    weft_progress_init(&p, collect, &sink, 80, false, false);
    for (int i = 1; i <= 3; i++) { /* of 599 seconds each */
        const weft_inside x = layer(599.0 * (i - 1), 599.0 * (i - 1), 0, 0.1);
        for (int second = 0; second < 599; second++) weft_progress_inside(&p, 599.0 * (i - 1) + second, &x);
        const weft_record r = step(i, 9);
        weft_progress_step(&p, 599.0 * i, &r);
    }
    assert_int_equal(count("\n"), 3);
    assert_int_equal(count("layer"), 0);
    const weft_inside x = layer(2000, 2100, 0.1, 0.2);
    for (int second = 0; second <= 3600; second++) weft_progress_inside(&p, 2000 + second, &x);
    assert_int_equal(count("step     3/9 | 10 %"), 6);
    assert_int_equal(count("\n"), 9);
    assert_int_equal(count("\r") + count("\x1b"), 0);
    const weft_record r = step(4, 9);
    weft_progress_step(&p, 5600.5, &r); /* half a second after the last line, and not lost for it */
    assert_int_equal(count("step     4/9 | loss"), 1);
}

/* What is left, from this step's work and time; before there is any, from the step before. */
static void test_time_left(void **state)
{
    (void)state;
    static const struct { double since, done, next, before, now; const char *says; } cases[] = {
        {0, 0, 0.1, 0, 45, "| 0 % after 45 s |"},
        {0, 0, 0.1, 0, 9000, "| 0 % after 2.5 h |"},
        {0, 0, 0.2, 100, 15, "| 0 %, ~85 s left |"},
        {0, 0, 0.2, 100, 25, "| 0 %, ~80 s left |"},           /* all but the first layer */
        {100, 0.5, 0.6, 220, 100, "| 50 %, ~110 s left |"},    /* half this step's own pace, which says 100 s */
        {600, 0.2, 0.4, 0, 600, "| 20 %, ~40 min left |"},
        {600, 0.2, 0.4, 0, 1200, "| 20 %, ~30 min left |"},    /* goes down within a layer, */
        {600, 0.2, 0.4, 0, 2400, "| 20 %, ~30 min left |"},    /* as far as that reaches; */
        {600, 0.2, 0.4, 0, 4000, "| 20 %, ~40 min left |"},    /* at last the step is a slower one */
        {600, 0.2, 0.2, 0, 1800, "| 20 %, ~20 min left |"},    /* waits */
        {600, 0.2, 0.2, 0, 4000, "| 20 % after 67 min |"},   /* longer than expected: nothing is known */
        {36000, 0.999, 1, 0, 36000, "| 99 %, ~36 s left |"},   /* not 100 before the end */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup(NULL);
        weft_progress_line p;
        weft_progress_init(&p, collect, &sink, 120, true, false);
        weft_inside x = layer(0, cases[i].since, cases[i].done, cases[i].next);
        x.before = cases[i].before;
        weft_progress_inside(&p, cases[i].now, &x);
        if (!strstr(sink.data, cases[i].says)) fail_msg("%s: %s", cases[i].says, sink.data);
        weft_text_free(&sink);
    }
}

static void test_words(void **state)
{
    (void)state;
    static const struct { weft_step_at at; const char *says; } cases[] = {
        {{.phase = WEFT_STEP_DATA}, "reads its sequences"},
        {{.phase = WEFT_STEP_FORWARD, .micro = 1, .micros = 1, .layer = 1, .layers = 2}, "forward layer 1/2"},
        {{.phase = WEFT_STEP_FORWARD, .micro = 2, .micros = 2, .layer = 3, .layers = 2},
         "forward head and loss | micro-batch 2/2"},
        {{.phase = WEFT_STEP_WAIT, .micro = 1, .micros = 2, .layers = 2}, "waits for another stage | micro-batch 1/2"},
        {{.phase = WEFT_STEP_GRADIENTS}, "sums of gradients"},
        {{.phase = WEFT_STEP_OPTIMIZER}, "optimizer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_text t = {0};
        weft_step_at_text(&cases[i].at, &t);
        assert_string_equal(t.data, cases[i].says);
        weft_text_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_inside_on_terminal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inside_in_a_log, setup, teardown),
        cmocka_unit_test(test_time_left),
        cmocka_unit_test(test_words),
        cmocka_unit_test_setup_teardown(test_plain, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slow_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept_steps, setup, teardown),
        cmocka_unit_test(test_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
