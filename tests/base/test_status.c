/* Messages (one per thread), log levels, clock, deadline, trace ring, guard, injected faults.
 * labels: small tsan */
#include "harness/test.h"

#include <float.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void texts_and_exit_codes(void **state)
{
    (void)state;
    static const struct { weft_status st; int code; } codes[] = {
        {WEFT_OK, 0}, {WEFT_IN_PROGRESS, 0}, {WEFT_ERR_COMPARE, 1}, {WEFT_ERR_REFUSED, 2}, {WEFT_ERR_MEMORY, 3},
        {WEFT_ERR_IO, 3}, {WEFT_ERR_TIMEOUT, 3}, {WEFT_ERR_PEER, 3}, {WEFT_ERR_NUMERIC, 3}, {WEFT_ERR_LIBRARY, 3},
        {WEFT_ERR_INTERNAL, 3},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        assert_int_equal(weft_exit_code(codes[i].st), codes[i].code);
        assert_string_not_equal(weft_status_text(codes[i].st), "unknown status");
    }
    assert_string_equal(weft_status_text((weft_status)-99), "unknown status");
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH);
    assert_string_equal(weft_version(), version);
}

static void messages(void **state)
{
    (void)state;
    weft_clear_error();
    assert_string_equal(weft_last_error(), "");
    assert_int_equal(weft_fail(WEFT_ERR_IO, "%s:%d", "file", 7), WEFT_ERR_IO);
    assert_string_equal(weft_last_error(), "file:7");
    assert_int_equal(weft_fail_at(WEFT_ERR_IO, "layer %d: ", 2), WEFT_ERR_IO);
    assert_string_equal(weft_last_error(), "layer 2: file:7");
    weft_fail(WEFT_ERR_IO, "again: %s", weft_last_error()); /* its own argument */
    assert_string_equal(weft_last_error(), "again: layer 2: file:7");
    char big[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    weft_fail(WEFT_ERR_IO, "%s", big);
    size_t limit = strlen(weft_last_error());
    assert_true(limit > 500 && limit < sizeof big);
    weft_fail_at(WEFT_ERR_IO, "where: ");
    assert_true(strlen(weft_last_error()) <= limit);
    assert_memory_equal(weft_last_error(), "where: xxx", 10);
}

static void *other_thread(void *arg)
{
    (void)arg;
    const char *empty = weft_last_error();
    if (*empty) return "a new thread starts with somebody else's message";
    weft_fail(WEFT_ERR_IO, "from the other thread");
    return NULL;
}

static void messages_belong_to_a_thread(void **state)
{
    (void)state;
    pthread_t t;
    void *complaint = NULL;
    weft_fail(WEFT_ERR_IO, "mine");
    assert_int_equal(pthread_create(&t, NULL, other_thread, NULL), 0);
    assert_int_equal(pthread_join(t, &complaint), 0);
    assert_null(complaint);
    assert_string_equal(weft_last_error(), "mine");
}

static weft_status passes_on(weft_status inner)
{
    WEFT_TRY(inner);
    return WEFT_ERR_INTERNAL;
}

static void try_passes_failures_only(void **state)
{
    (void)state;
    assert_int_equal(passes_on(WEFT_ERR_PEER), WEFT_ERR_PEER);
    assert_int_equal(passes_on(WEFT_OK), WEFT_ERR_INTERNAL);
    assert_int_equal(passes_on(WEFT_IN_PROGRESS), WEFT_ERR_INTERNAL);
}

static void collect(void *ud, weft_log_level level, const char *line)
{
    weft_text_add(ud, "%d:%s;", (int)level, line);
}

static void log_drops_what_is_above_its_level(void **state)
{
    (void)state;
    weft_text t = {0};
    weft_log log = {.write = collect, .ud = &t, .level = WEFT_LOG_WARN};
    weft_logf(&log, WEFT_LOG_ERROR, "e%d", 1);
    weft_logf(&log, WEFT_LOG_WARN, "w");
    weft_logf(&log, WEFT_LOG_INFO, "i");
    assert_string_equal(t.data, "0:e1;1:w;");
    weft_log mute = {0};
    weft_logf(&mute, WEFT_LOG_ERROR, "nobody");
    weft_text_free(&t);
}

static double hand_clock(void *ud) { return *(double *)ud; }

static void deadlines_follow_the_clock_hook(void **state)
{
    (void)state;
    double now = 100;
    weft_clock clock = {.now = hand_clock, .ud = &now};
    weft_deadline d = weft_deadline_in(&clock, 5);
    now = 104.9;
    assert_false(weft_deadline_passed(&clock, d));
    now = 105.1;
    assert_true(weft_deadline_passed(&clock, d));
    /* Looks that are more than a second apart: this process was suspended, and what was left is left. */
    now = 100;
    d = weft_deadline_in(&clock, 5);
    for (now = 100.9; now < 104; now += 0.9) assert_false(weft_deadline_look(&clock, &d));
    now = 5000;
    assert_false(weft_deadline_look(&clock, &d));
    now = 5000.9;
    assert_false(weft_deadline_look(&clock, &d));
    now = 5001.8;
    assert_true(weft_deadline_look(&clock, &d));
    double a = weft_now(&weft_clock_real), b = weft_now(&weft_clock_real);
    assert_true(b >= a && a > 0);
}

static void trace_keeps_the_newest(void **state)
{
    (void)state;
    weft_mem mem = {0};
    weft_arena *a = NULL;
    weft_trace trace;
    assert_ok(weft_arena_create(&a, &mem, "trace", NULL));
    assert_ok(weft_trace_init(&trace, a, 7));
    for (int i = 0; i < 33; i++) weft_trace_emit(&trace, WEFT_TRACK_DATA, "event", i, i + 1, i, 0);
    assert_int_equal(trace.written, 33);
    assert_int_equal(weft_trace_lost(&trace), 26);
    for (int i = 26; i < 33; i++) assert_int_equal(trace.ring[i % 7].layer, i);
    weft_trace off = {0};
    weft_trace_emit(&off, WEFT_TRACK_DATA, "event", 0, 1, 0, 0);
    assert_int_equal(off.written, 0);
    weft_arena_destroy(a);
}

/* Names are told apart by their letters, wherever they lie; those that find no place share one. */
static void trace_keeps_names(void **state)
{
    (void)state;
    weft_mem mem = {0};
    weft_arena *a = NULL;
    weft_trace t;
    char name[32];
    assert_ok(weft_arena_create(&a, &mem, "trace", NULL));
    assert_ok(weft_trace_init(&t, a, 256));
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "name %d", i % 100);
        weft_trace_emit(&t, WEFT_TRACK_DATA, name, 0, 1, 0, 0);
    }
    assert_int_equal(t.names->n, WEFT_TRACE_NAMES);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "name %d", i % 100);
        assert_string_equal(t.names->text[t.ring[i].name], i % 100 < WEFT_TRACE_NAMES - 2 ? name : "other");
    }
    weft_arena_destroy(a);
}

static void guard_finds_the_first(void **state)
{
    (void)state;
    float x[257] = {0};
    double y[257] = {0};
    assert_int_equal(weft_guard_f32(x, 257, 1e4f), -1);
    assert_int_equal(weft_guard_f32(x, 0, 1e4f), -1);
    x[0] = -1e4f, y[0] = 1e4; /* the limit itself is allowed */
    assert_int_equal(weft_guard_f32(x, 257, 1e4f), -1);
    assert_int_equal(weft_guard_f64(y, 257, 1e4), -1);
    static const double bad[] = {NAN, INFINITY, -INFINITY, 10001, -10001};
    for (int i = 0; i < 5; i++) {
        x[256] = (float)bad[i], y[256] = bad[i];
        assert_int_equal(weft_guard_f32(x, 257, 1e4f), 256);
        assert_int_equal(weft_guard_f64(y, 257, 1e4), 256);
    }
    x[33] = NAN, y[33] = NAN;
    assert_int_equal(weft_guard_f32(x, 257, FLT_MAX), 33);
    assert_int_equal(weft_guard_f64(y, 257, DBL_MAX), 33);
}

static void faults_are_parsed(void **state)
{
    (void)state;
    weft_fault f;
    assert_ok(weft_fault_parse(&f, NULL));
    assert_int_equal(f.kind, WEFT_FAULT_NONE);
    assert_ok(weft_fault_parse(&f, ""));
    assert_ok(weft_fault_parse(&f, "kill:rank=1:site=cp.ring:hit=3"));
    assert_int_equal(f.kind, WEFT_FAULT_KILL);
    assert_int_equal(f.rank, 1);
    assert_int_equal(f.hit, 3);
    assert_string_equal(f.site, "cp.ring");
    assert_ok(weft_fault_parse(&f, "sleep:30:rank=2:site=cp.step"));
    assert_true(f.kind == WEFT_FAULT_SLEEP && f.seconds == 30 && f.rank == 2);
    static const struct { const char *spec, *message; } bad[] = {
        {"sleep", "give whole seconds"}, {"sleep:site=a", "sleep:30"}, {"sleep:0:site=a", "sleep:0"},
        {"boom", "unknown kind \"boom\""}, {"fail:where=x", "unknown part \"where=x\""},
        {"fail:rank=x:site=a", "\"x\""}, {"inf:site=a:row=-1", "count from 0"}, {"large:column=2", "names no site"},
        {"fail:site=a:hit=0", "passes count from 1"}, {"fail", "names no site"}, {"fail:rank=1", "names no site"},
        {"fail:site=a:rank=4294967297", "rank 4294967297"},
        {"fail:site=0123456789012345678901234567890123456789", "longer than 39 letters"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(weft_fault_parse(&f, bad[i].spec), bad[i].message);
}

static void faults_act_at_their_turn(void **state)
{
    (void)state;
    weft_fault f;
    bool nan = true;
    assert_ok(weft_fault_parse(&f, "fail:rank=2:site=step:hit=2"));
    assert_ok(weft_fault_pass(&f, 1, "step", &nan)); /* another rank */
    assert_ok(weft_fault_pass(&f, 2, "data", &nan)); /* another site */
    assert_ok(weft_fault_pass(&f, 2, "step", &nan)); /* the first pass */
    assert_int_equal(weft_fault_pass(&f, 2, "step", NULL), WEFT_ERR_INTERNAL);
    assert_non_null(strstr(weft_last_error(), "injected fault at step, pass 2"));
    weft_fault stray;
    assert_ok(weft_fault_parse(&stray, "stray:rank=2:site=step:hit=2"));
    assert_false(weft_fault_strays(&stray, 1, "step") || weft_fault_strays(&stray, 2, "step"));
    assert_true(weft_fault_strays(&stray, 2, "step"));
    assert_false(weft_fault_strays(&stray, 2, "step"));
    assert_ok(weft_fault_parse(&stray, "stray:site=step"));
    assert_refused(weft_fault_pass(&stray, 0, "step", NULL), "no group of ranks");
    double begin = weft_now(&weft_clock_real);
    assert_ok(weft_fault_parse(&stray, "sleep:1:site=step"));
    assert_ok(weft_fault_pass(&stray, 0, "step", NULL));
    assert_true(weft_now(&weft_clock_real) - begin >= 1);
    assert_ok(weft_fault_pass(&f, 2, "step", &nan)); /* once only */
    assert_false(nan);
    double number = 0;
    assert_ok(weft_fault_parse(&f, "large:rank=1:site=rows:hit=2:row=3:column=4"));
    assert_false(weft_fault_number(&f, 0, "rows", &number) || weft_fault_number(&f, 1, "rows", &number));
    assert_true(weft_fault_number(&f, 1, "rows", &number) && number == 1e5 && f.row == 3 && f.column == 4);
    assert_false(weft_fault_number(&f, 1, "rows", &number));
    assert_ok(weft_fault_parse(&f, "inf:site=step"));
    assert_refused(weft_fault_pass(&f, 0, "step", &nan), "no rows of numbers");
    assert_ok(weft_fault_parse(&f, "nan:site=step"));
    assert_ok(weft_fault_pass(&f, 5, "step", &nan));
    assert_true(nan);
    assert_ok(weft_fault_pass(&f, 5, "step", &nan));
    assert_false(nan);
}

static int status_of_fault(const char *spec)
{
    pid_t child = fork();
    if (child == 0) {
        weft_fault f;
        if (weft_fault_parse(&f, spec) != WEFT_OK) _exit(77);
        weft_fault_pass(&f, 0, "step", NULL);
        _exit(78);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void faults_end_processes(void **state)
{
    (void)state;
    int killed = status_of_fault("kill:site=step"), left = status_of_fault("exit:site=step");
    assert_true(WIFSIGNALED(killed) && WTERMSIG(killed) == 9);
    assert_true(WIFEXITED(left) && WEXITSTATUS(left) == 5);
}

static void ctx_is_mute_and_alone(void **state)
{
    (void)state;
    weft_ctx ctx;
    memset(&ctx, 0xff, sizeof ctx);
    weft_ctx_init(&ctx);
    assert_true(ctx.rank == 0 && ctx.world == 1 && ctx.threads == 1 && !ctx.log.write && !ctx.trace.capacity);
    assert_true(ctx.fault.kind == WEFT_FAULT_NONE && ctx.mem.allocations == 0 && weft_now(&ctx.clock) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_exit_codes), cmocka_unit_test(messages),
        cmocka_unit_test(messages_belong_to_a_thread),
        cmocka_unit_test(try_passes_failures_only), cmocka_unit_test(log_drops_what_is_above_its_level),
        cmocka_unit_test(deadlines_follow_the_clock_hook), cmocka_unit_test(trace_keeps_the_newest),
        cmocka_unit_test(trace_keeps_names),
        cmocka_unit_test(guard_finds_the_first), cmocka_unit_test(faults_are_parsed),
        cmocka_unit_test(faults_act_at_their_turn), cmocka_unit_test(faults_end_processes),
        cmocka_unit_test(ctx_is_mute_and_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
