/* labels: small tsan */ /* timeout: 200 */
/* Time lines of training steps on thread ranks: Perfetto's rules hold for every kind of layout, every message between
 * two recorded ranks has its arrow, and a recorded step allocates nothing and changes no bit. */
#include "harness/chrome.h"
#include "harness/run.h"
#include "harness/text_case.h"

enum { STEPS = 3, RANKS_MAX = 8 };

typedef struct job {
    const weft_run *run;
    const int *traced;
    int n_traced;
    weft_step_traced last;
    double loss[STEPS];
    int64_t allocations[RANKS_MAX];
} job;

static void line_path(int64_t step, char path[700]) { snprintf(path, 700, "%s/line-%d.json", dir.path, (int)step); }

static weft_status steps(weft_trainer *t, weft_step_trace *trace, weft_ctx *ctx, job *j)
{
    char path[700];
    weft_step_traced out;
    for (int64_t step = 1; step <= STEPS; step++) {
        weft_record r;
        WEFT_TRY(weft_step_trace_begin(trace, step));
        WEFT_TRY(weft_trainer_step(t, &r));
        line_path(step, path);
        WEFT_TRY(weft_step_trace_end(trace, path, &out));
        if (step == 1) j->allocations[ctx->rank] = ctx->mem.allocations;
        if (ctx->rank == 0) j->loss[step - 1] = r.loss;
        if (ctx->rank == 0 && out.written) j->last = out;
    }
    j->allocations[ctx->rank] -= ctx->mem.allocations;
    return WEFT_OK;
}

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    static const weft_numbers wanted[] = {{2, 3}};
    job *j = ud;
    weft_trainer *t = NULL;
    weft_step_trace *trace = NULL;
    weft_world_set_timeout(world, 30);
    WEFT_TRY(weft_trainer_create(&t, world, j->run));
    weft_status st = j->n_traced ? weft_step_trace_open(&trace, t, j->traced, j->n_traced, wanted, 1) : WEFT_OK;
    if (st >= 0) st = steps(t, trace, ctx, j);
    weft_step_trace_close(trace);
    weft_trainer_destroy(t);
    return st;
}

static job run(int ranks, const char *const *words, const int *traced, int n)
{
    static const char *const common[] = {
        "--data", data_path, "--hidden-size", "16", "--num-layers", "2", "--num-attention-heads", "4",
        "--num-query-groups", "2", "--ffn-hidden-size", "20", "--seq-length", "33", "--steps", "3", "--lr", "1e-2",
        "--warmup-steps", "0", "--global-batch-size", "4", "--valid-fraction", "0"};
    test_run t;
    test_run_open_more(&t, WEFT_CMD_TRAIN, common, sizeof common / sizeof *common, words);
    job j = {.run = &t.run, .traced = traced, .n_traced = n};
    weft_status st = weft_run_threads(ranks, body, &j);
    if (st < 0) fail_msg("%s %s: %s", words[0], words[1], weft_last_error());
    test_run_close(&t);
    return j;
}

static chrome_counts check_line(int64_t step, const char *what)
{
    char path[700], why[200] = "";
    chrome_counts c;
    size_t n;
    line_path(step, path);
    char *text = test_read_raw(path, &n);
    if (!chrome_holds(text, n, &c, why, sizeof why)) fail_msg("%s, step %d: %s", what, (int)step, why);
    free(text);
    return c;
}

#define W(...) {__VA_ARGS__, NULL}

static void lines_of_every_layout(void **state)
{
    (void)state;
    static const int traced[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const struct { int ranks; const char *words[10]; } layouts[] = {
        {1, W("--cp", "1")},
        {3, W("--cp", "3", "--cp-strategy", "ring")},
        {4, W("--cp", "4", "--cp-strategy", "dcp", "--zero-stage", "0")},
        {4, W("--tp", "2", "--cp", "2", "--sequence-parallel")},
        {4, W("--pp", "2", "--dp", "2", "--no-overlap-grad-reduce")},
        {8, W("--pp", "2", "--tp", "2", "--cp", "2", "--cp-strategy", "pcp")},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i += (size_t)test_every(2)) {
        const int ranks = layouts[i].ranks;
        const job plain = run(ranks, layouts[i].words, traced, 0), line = run(ranks, layouts[i].words, traced, ranks);
        assert_ok(line.last.file);
        assert_int_equal(line.last.told.lost, 0);
        assert_int_equal(line.last.told.unpaired, 0);
        for (int64_t step = 2; step <= STEPS; step++) {
            chrome_counts c = check_line(step, layouts[i].words[1]);
            assert_int_equal(c.processes, ranks);
            assert_true((c.arrows > 0) == (ranks > 1));
        }
        for (int r = 0; r < ranks; r++) assert_int_equal(line.allocations[r], 0);
        for (int s = 0; s < STEPS; s++) assert_true(plain.loss[s] == line.loss[s]);
    }
}

/* Rank 0 writes for ranks that it is not among; a folder that is not there costs the file, not the run. */
static void lines_of_some_ranks(void **state)
{
    (void)state;
    static const int traced[] = {1, 3};
    static const char *const words[] = W("--cp", "2", "--dp", "2");
    run(4, words, traced, 2);
    assert_int_equal(check_line(2, "some ranks").processes, 2);
    char kept[256];
    snprintf(kept, sizeof kept, "%s", dir.path);
    snprintf(dir.path, sizeof dir.path, "%s", "/nowhere");
    job j = run(4, words, traced, 2);
    snprintf(dir.path, sizeof dir.path, "%s", kept);
    assert_true(j.last.written && j.last.file < 0 && j.loss[STEPS - 1] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines_of_every_layout), cmocka_unit_test(lines_of_some_ranks)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
