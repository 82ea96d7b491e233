/* labels: small tsan */
/* Where a rank says it is within a step: every layer of every pass once, in the order of the schedule, with the share
 * of the work that is over. */
#include "harness/text_case.h"
#include "harness/run.h"
#include "train/trainer_impl.h"

enum { STEPS = 2, RANKS_MAX = 4, TOLD_MAX = 400 };

/* Of the model below. An operation is a multiplication or an addition; T = 17 tokens see 9 keys on average. */
enum { T = 17, C = 12, H = 3, HKV = 1, D = 4, F = 20, V = 259 };
enum { QKV = 2 * C * (H + 2 * HKV) * D, O = 2 * H * D * C, UP = 2 * C * 2 * F, DOWN = 2 * F * C };
enum { ATTENTION = 4 * 9 * H * D, FORWARD = QKV + O + UP + DOWN + ATTENTION, HEAD = 3 * 2 * C * V };
static const double backward = 2 * (FORWARD - ATTENTION) + 2.5 * ATTENTION;

typedef struct told {
    int n, after_steps;      /* when the last step was over */
    weft_step_at at[TOLD_MAX];
    int64_t weights, rows;
    weft_span layers;        /* of the stage */
    int stage, stages;
} told;

typedef struct watching { const weft_run *run; told rank[RANKS_MAX]; } watching;

static void listen(void *ud, const weft_step_at *at)
{
    told *x = ud;
    if (x->n < TOLD_MAX) x->at[x->n] = *at;
    x->n++;
}

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    watching *w = ud;
    told *x = &w->rank[ctx->rank];
    weft_trainer *t = NULL;
    weft_status st = WEFT_OK;
    double loss;
    weft_world_set_timeout(world, 60);
    WEFT_TRY(weft_trainer_create(&t, world, w->run));
    const weft_engine *e = weft_trainer_engine(t);
    x->weights = weft_model_weight_count(e->model), x->rows = e->rows;
    x->stage = e->mesh.at.pp, x->stages = e->mesh.size.pp;
    x->layers = weft_model_cut(e->config.L, x->stages, x->stage);
    weft_trainer_watch(t, listen, x);
    for (int s = 0; s < STEPS && st >= 0; s++) {
        weft_record record;
        st = weft_trainer_step(t, &record);
    }
    x->after_steps = x->n;
    if (st >= 0 && weft_trainer_windows(t, true)) st = weft_trainer_eval(t, 3, &loss);
    weft_trainer_destroy(t);
    return st;
}

#define W(...) ((const char *const[]){__VA_ARGS__, NULL})

static watching *run(int ranks, const char *const *extra)
{
    const char *common[] = {"--data", data_path, "--hidden-size", "12", "--num-attention-heads", "3",
                            "--num-query-groups", "1", "--ffn-hidden-size", "20", "--seq-length", "17", "--steps", "2",
                            "--lr", "1e-3", "--warmup-steps", "0", "--valid-fraction", "0.2"};
    test_run t;
    watching *w = calloc(1, sizeof *w);
    assert_non_null(w);
    test_run_open_more(&t, WEFT_CMD_TRAIN, common, sizeof common / sizeof *common, extra);
    w->run = &t.run;
    if (weft_run_threads(ranks, body, w) < 0) fail_msg("%s %s: %s", extra[0], extra[1], weft_last_error());
    test_run_close(&t);
    return w;
}

/* ---- the order ---------------------------------------------------------------------------------------- */

typedef struct cursor { const told *x; int i; int64_t step; } cursor;

static const weft_step_at *next(cursor *c, weft_step_phase phase, int64_t micro, int64_t layer)
{
    assert_true(c->i < c->x->n);
    const weft_step_at *at = &c->x->at[c->i++];
    if (at->phase != phase || at->micro != micro || at->layer != layer || at->step != c->step || at->steps != STEPS)
        fail_msg("stage %d, word %d: phase %d, step %lld, micro-batch %lld, layer %lld; not %d, %lld, %lld, %lld",
                 c->x->stage, c->i - 1, (int)at->phase, (long long)at->step, (long long)at->micro,
                 (long long)at->layer, (int)phase, (long long)c->step, (long long)micro, (long long)layer);
    return at;
}

static void pass(cursor *c, bool forward, int64_t micro, int64_t L)
{
    const told *x = c->x;
    const int64_t first = x->layers.begin + 1, last = x->layers.end;
    const bool at_end = x->stage == x->stages - 1;
    if (forward ? x->stage > 0 : !at_end) next(c, WEFT_STEP_WAIT, micro, 0);
    for (int64_t l = first; l <= last; l++)
        next(c, forward ? WEFT_STEP_FORWARD : WEFT_STEP_BACKWARD, micro, forward ? l : first + last - l);
    if (forward && at_end) next(c, WEFT_STEP_FORWARD, micro, L + 1);
}

/* 1F1B: so many forward passes ahead as there are stages after this one. */
static void one_step(cursor *c, int64_t L, int64_t micros)
{
    const int64_t ahead = weft_min_i64(micros, c->x->stages - c->x->stage);
    next(c, WEFT_STEP_DATA, 0, 0);
    for (int64_t f = 0, b = 0; b < micros;) {
        if (f < micros && f < b + ahead) pass(c, true, ++f, L);
        else pass(c, false, ++b, L);
    }
    next(c, WEFT_STEP_GRADIENTS, 0, 0);
    next(c, WEFT_STEP_OPTIMIZER, 0, 0);
    next(c, WEFT_STEP_OPTIMIZER, 0, 0);
}

static void check_order(const told *x, int64_t L, int64_t micros)
{
    cursor c = {.x = x};
    for (c.step = 1; c.step <= STEPS; c.step++) one_step(&c, L, micros);
    assert_int_equal(c.i, x->n);
    assert_int_equal(x->after_steps, x->n); /* evaluation tells nothing */
}

/* ---- the shares --------------------------------------------------------------------------------------- */

/* From 0 to 1 and never back; what is ahead is over when the next is told. Sums of some hundred terms. */
static void check_shares(const told *x)
{
    for (int i = 0; i < x->n; i++) {
        const weft_step_at *at = &x->at[i];
        if (at->phase == WEFT_STEP_DATA) assert_true(at->done == 0 && at->next == 0);
        else assert_true(at->done >= at[-1].done);
        assert_true(at->next >= at->done && at->next <= 1);
        if (at->phase != WEFT_STEP_DATA) assert_at_most(fabs(at->done - at[-1].next), 1e-13);
    }
    assert_true(x->at[x->n - 1].done == 1);
}

/* The part of a step, the first of that phase and layer, in units of FORWARD. */
static double part(const told *x, weft_step_phase phase, int64_t layer)
{
    for (int i = 0; i < x->n; i++)
        if (x->at[i].phase == phase && (!layer || x->at[i].layer == layer)) return x->at[i].next - x->at[i].done;
    fail_msg("nothing is told of phase %d, layer %lld", (int)phase, (long long)layer);
    return 0;
}

static void check_parts(const told *x, int64_t micros, double again)
{
    const double optimizer = 224.0 * (double)x->weights / (double)x->rows;
    const bool at_end = x->stage == x->stages - 1;
    const double layers = (double)(x->layers.end - x->layers.begin);
    const double all = (double)micros * (layers * (FORWARD + backward + again) + at_end * HEAD) + optimizer;
    for (int64_t l = x->layers.begin + 1; l <= x->layers.end; l++) {
        assert_at_most(fabs(part(x, WEFT_STEP_FORWARD, l) * all / FORWARD - 1), 1e-12);
        assert_at_most(fabs(part(x, WEFT_STEP_BACKWARD, l) * all / (backward + again) - 1), 1e-12);
    }
    if (at_end) assert_at_most(fabs(part(x, WEFT_STEP_FORWARD, x->layers.end + 1) * all / HEAD - 1), 1e-12);
    assert_at_most(fabs(part(x, WEFT_STEP_OPTIMIZER, 0) * all / optimizer - 1), 1e-12);
}

static void check(int ranks, int64_t L, int64_t micros, double again, const char *const *words)
{
    watching *w = run(ranks, words);
    for (int r = 0; r < ranks; r++) {
        assert_true(w->rank[r].n <= TOLD_MAX);
        check_order(&w->rank[r], L, micros);
        check_shares(&w->rank[r]);
        check_parts(&w->rank[r], micros, again);
    }
    free(w);
}

static void accumulation(void **state)
{
    (void)state;
    check(1, 2, 1, 0, W("--num-layers", "2"));
    check(1, 3, 5, 0, W("--num-layers", "3", "--global-batch-size", "5"));
    check(1, 1, 2, 0, W("--num-layers", "1", "--global-batch-size", "6", "--micro-batch-size", "3"));
    check(4, 1, 3, 0, W("--num-layers", "1", "--global-batch-size", "6", "--cp", "2", "--dp", "2"));
}

static void stages(void **state)
{
    (void)state;
    check(3, 7, 5, 0, W("--num-layers", "7", "--global-batch-size", "5", "--pp", "3"));
    check(4, 5, 1, 0, W("--num-layers", "5", "--global-batch-size", "1", "--pp", "4"));
    check(4, 2, 3, FORWARD - DOWN, W("--num-layers", "2", "--global-batch-size", "3", "--pp", "2", "--cp", "2",
                                     "--recompute", "full"));
}

static void recomputation(void **state)
{
    (void)state;
    static const struct { double again; const char *words[8]; } cases[] = {
        {QKV + ATTENTION, {"--recompute", "attention"}},
        {QKV, {"--recompute", "attention", "--recompute-keep-attention"}},
        {QKV + ATTENTION + UP, {"--recompute", "block"}},
        {QKV + ATTENTION + O + UP, {"--recompute", "full"}},
        {QKV + O + UP, {"--recompute", "full", "--recompute-keep-attention"}},
        {UP, {"--mlp-rows", "5"}},
        {QKV + ATTENTION + O + UP, {"--recompute", "full", "--mlp-rows", "5"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *words[16] = {"--num-layers", "2", "--global-batch-size", "2"};
        memcpy(words + 4, cases[i].words, sizeof cases[i].words);
        check(1, 2, 2, cases[i].again, words);
    }
}

/* With a window of 3, query t sees min(t + 1, 3) keys: 48 of 17 queries. */
static void a_window_is_less_work(void **state)
{
    (void)state;
    watching *w = run(1, W("--num-layers", "1", "--family", "mistral", "--sliding-window", "3"));
    const double forward = FORWARD - ATTENTION + 4 * 48.0 / T * H * D;
    check_shares(&w->rank[0]);
    assert_at_most(fabs(part(&w->rank[0], WEFT_STEP_FORWARD, 1) / part(&w->rank[0], WEFT_STEP_FORWARD, 2) -
                        forward / HEAD), 1e-12);
    free(w);
}

/* Nothing to do is done at once. */
static void a_step_without_labels(void **state)
{
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s", test_dir_file(&dir, "separators.txt"));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 400; i++) fputc('\n', f);
    assert_int_equal(fclose(f), 0);
    watching *w = run(1, W("--num-layers", "1", "--data", path, "--separator", "\n", "--document-mask",
                          "--valid-fraction", "0"));
    const told *x = &w->rank[0];
    assert_int_equal(x->n, 2 * STEPS);
    for (int i = 0; i < x->n; i++) assert_true(x->at[i].done == i % 2);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(accumulation), cmocka_unit_test(stages),
                                       cmocka_unit_test(recomputation), cmocka_unit_test(a_window_is_less_work),
                                       cmocka_unit_test(a_step_without_labels)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
