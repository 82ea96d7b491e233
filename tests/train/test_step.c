/* labels: small tsan */ /* timeout: 200 */
/* The trainer's step on thread ranks: the same numbers on every layout, the same weights on every rank, nothing
 * allocated after the first step, labels that are missing. */
#include "harness/text_case.h"
#include "harness/run.h"
#include "train/trainer_impl.h"

enum { STEPS = 3, RANKS_MAX = 8 };

typedef struct result {
    const weft_run *run;
    int64_t n;
    double loss[STEPS], norm[STEPS];
    int64_t tokens;
    double flops, flops_expected; /* of one document per sequence */
    double *weights; /* [n] after the last step, rank 0 */
    uint64_t hash[RANKS_MAX][STEPS];
    int64_t allocations[RANKS_MAX][STEPS];
    bool skipped[STEPS];
} result;

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    result *r = ud;
    weft_trainer *t = NULL;
    weft_world_set_timeout(world, 30); /* steps take milliseconds: who waits longer is stuck */
    WEFT_TRY(weft_trainer_create(&t, world, r->run));
    const weft_engine *e = weft_trainer_engine(t);
    weft_dtype R = weft_prec_real(r->run->prec);
    int64_t n = weft_model_weight_count(e->model);
    weft_status st = WEFT_OK;
    for (int s = 0; s < STEPS && st >= 0; s++) {
        weft_record record;
        st = weft_trainer_step(t, &record);
        r->hash[ctx->rank][s] = test_hash(weft_model_weights(e->model), (size_t)n * weft_dtype_size(R));
        r->allocations[ctx->rank][s] = ctx->mem.allocations;
        if (ctx->rank == 0)
            r->loss[s] = record.loss, r->norm[s] = record.grad_norm, r->skipped[s] = record.skip == WEFT_SKIP_LABELS,
            r->tokens = record.tokens, r->flops = record.flops;
    }
    if (ctx->rank == 0 && st >= 0) {
        r->n = n;
        r->flops_expected = weft_model_step_flops(&t->config, 4 * 33, 4 * 33 * 34 / 2.0);
        r->weights = malloc((size_t)n * sizeof(double));
        weft_convert(r->weights, WEFT_F64, weft_model_weights(e->model), R, n);
    }
    weft_trainer_destroy(t);
    return st;
}

/* A run of the words that all tests share, and `extra`, NULL-terminated. */
static void open_run(test_run *t, const char *const *extra)
{
    static const char *const common[] = {
        "--data", data_path, "--hidden-size", "12", "--num-layers", "2", "--num-attention-heads", "3",
        "--num-query-groups", "1", "--ffn-hidden-size", "20", "--seq-length", "33", "--steps", "3", "--lr", "1e-2",
        "--warmup-steps", "0", "--global-batch-size", "4", "--valid-fraction", "0", "--precision", "fp64"};
    test_run_open_more(t, WEFT_CMD_TRAIN, common, sizeof common / sizeof *common, extra);
}

static result run(int ranks, const char *const *extra)
{
    test_run t;
    result r = {0};
    open_run(&t, extra);
    r.run = &t.run;
    weft_status st = weft_run_threads(ranks, body, &r);
    if (st < 0) fail_msg("%d ranks, %s %s: %s", ranks, extra[0], extra[1], weft_last_error());
    test_run_close(&t);
    return r;
}

static void check_same(const result *a, const result *b, double limit, const char *what)
{
    for (int s = 0; s < STEPS; s++) {
        if (!(fabs(a->loss[s] - b->loss[s]) <= limit * 10))
            fail_msg("%s: loss %d differs by %.2e", what, s, fabs(a->loss[s] - b->loss[s]));
        if (!(fabs(a->norm[s] - b->norm[s]) <= limit * 10 * b->norm[s])) fail_msg("%s: norm %d differs", what, s);
    }
    assert_int_equal(a->n, b->n);
    double d = weft_rel_l2(a->weights, WEFT_F64, b->weights, WEFT_F64, a->n, 0);
    if (!(d <= limit)) fail_msg("%s: weights differ by %.2e", what, d);
}

#define W(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Gradient scale, reduction group, accumulation, data order, all at once (test_field_reports.c has them apart). AdamW
 * divides by the root of the second moment, which amplifies the last bits of tiny gradients: hence 1e-10 on weights in
 * fp64. */
static void every_layout_gives_the_same_step(void **state)
{
    (void)state;
    result one = run(1, W("--cp", "1"));
    static const struct {
        int ranks;
        const char *words[9];
    } other[] = {
        {4, {"--dp", "4"}},
        {4, {"--dp", "2", "--cp", "2"}},
        {4, {"--cp", "4", "--cp-strategy", "pcp"}},
        {3, {"--cp", "3", "--cp-layout", "contiguous", "--cp-strategy", "ring"}},
        {2, {"--dp", "2", "--micro-batch-size", "2"}},
        {1, {"--cp", "1", "--micro-batch-size", "4"}},
        {6, {"--cp", "3", "--dp", "2", "--cp-strategy", "ring"}},
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        result many = run(other[i].ranks, other[i].words);
        check_same(&many, &one, 1e-10, other[i].words[1]);
        for (int s = 0; s < STEPS; s++)
            for (int r = 1; r < other[i].ranks; r++) assert_true(many.hash[r][s] == many.hash[0][s]);
        assert_int_equal(many.tokens, 4 * 33); /* of the job, never divided by cp */
        assert_true(many.flops == many.flops_expected);
        free(many.weights);
    }
    free(one.weights);
}

/* Documents whose labels end in the middle of a rank, and ranks without a label. */
static void documents(void **state)
{
    (void)state;
    result one = run(1, W("--separator", "7", "--document-mask"));
    result plain = run(1, W("--cp", "1"));
    result many = run(4, W("--separator", "7", "--document-mask", "--cp", "4", "--cp-strategy", "ring"));
    check_same(&many, &one, 1e-10, "documents");
    assert_true(fabs(one.loss[0] - plain.loss[0]) > 1e-6); /* the mask acts */
    free(one.weights);
    free(plain.weights);
    free(many.weights);
}

/* A pair is dropped by its address (seed, step, layer, sequence of the step, head, tokens), so every cut drops the
 * same. */
static void dropout_is_the_same_on_any_layout(void **state)
{
    (void)state;
    result plain = run(1, W("--cp", "1"));
    result one = run(1, W("--attention-dropout", "0.3"));
    static const struct {
        int ranks;
        const char *words[12];
    } other[] = {
        {4, {"--attention-dropout", "0.3", "--dp", "2", "--cp", "2"}},
        {1, {"--attention-dropout", "0.3", "--micro-batch-size", "4"}},
        {3, {"--attention-dropout", "0.3", "--cp", "3", "--cp-strategy", "ulysses", "--cp-layout", "striped"}},
        {6, {"--attention-dropout", "0.3", "--cp", "6", "--cp-strategy", "dcp-ring", "--cp-layout", "balanced"}},
        {2, {"--attention-dropout", "0.3", "--cp", "2", "--cp-strategy", "pairwise"}},
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        result many = run(other[i].ranks, other[i].words);
        check_same(&many, &one, 1e-10, other[i].words[3]);
        free(many.weights);
    }
    for (int s = 0; s < STEPS; s++) assert_true(fabs(one.loss[s] - plain.loss[s]) > 1e-6); /* it acts */
    free(plain.weights);
    free(one.weights);
}

/* The same sequence and the same weights in every step: only what is dropped can be another. */
static void every_step_drops_anew(void **state)
{
    (void)state;
    static const char *const kinds[] = {"--attention-dropout", "--residual-dropout", "--embedding-dropout"};
    char text[34], path[600];
    for (int i = 0; i < 34; i++) text[i] = (char)('a' + i * i % 23);
    snprintf(path, sizeof path, "%s", test_dir_file(&dir, "one.txt"));
    test_write_raw(path, text, sizeof text);
    for (int k = 0; k < 3; k++)
        for (int on = 0; on < 2; on++) {
            result r = run(1, W("--data", path, "--global-batch-size", "1", "--lr", "0", kinds[k], on ? "0.2" : "0"));
            for (int s = 1; s < STEPS; s++)
                if ((r.loss[s] == r.loss[0]) == on) fail_msg("%s %d: step %d, loss %.17g", kinds[k], on, s, r.loss[s]);
            free(r.weights);
        }
}

static void nothing_is_allocated_after_the_first_step(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp64", "fp32", "bf16"};
    for (int p = 0; p < 3; p++) {
        result r = run(3, W("--precision", precisions[p], "--cp", "3", "--cp-strategy", p ? "ring" : "pcp"));
        for (int rank = 0; rank < 3; rank++)
            for (int s = 1; s < STEPS; s++) assert_int_equal(r.allocations[rank][s], r.allocations[rank][0]);
        free(r.weights);
    }
}

static void the_same_run_twice_is_the_same_bits(void **state)
{
    (void)state;
    result a = run(4, W("--cp", "2", "--dp", "2", "--precision", "fp32"));
    result b = run(4, W("--cp", "2", "--dp", "2", "--precision", "fp32", "--no-async-cp-comm"));
    for (int s = 0; s < STEPS; s++) {
        assert_true(a.hash[0][s] == b.hash[0][s]);
        assert_memory_equal(&a.loss[s], &b.loss[s], sizeof a.loss[s]);
    }
    free(a.weights);
    free(b.weights);
}

/* ZeRO stage and overlap change no bit of weights and norm, with accumulation, 16-bit products, stages with a tied
 * embedding. */
static void sums_in_any_way_give_the_same_bits(void **state)
{
    (void)state;
    static const char *const way[][3] = {{"--zero-stage", "0"}, {"--no-overlap-grad-reduce"},
                                         {"--no-overlap-grad-reduce", "--zero-stage", "0"}};
    static const char *const layout[][6] = {{"--dp", "2", "--cp", "2", "--precision", "fp32"},
                                            {"--cp", "5", "--dp", "1", "--precision", "bf16"},
                                            {"--dp", "2", "--pp", "2", "--precision", "fp32"}};
    for (size_t k = 0; k < sizeof layout / sizeof *layout; k++) {
        const char *const *l = layout[k];
        int ranks = k == 1 ? 5 : 4;
        result first = run(ranks, W(l[0], l[1], l[2], l[3], l[4], l[5]));
        for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
            const char *const *w = way[i];
            result other = run(ranks, W(l[0], l[1], l[2], l[3], l[4], l[5], w[0], w[1], w[2]));
            assert_memory_equal(other.hash, first.hash, sizeof other.hash);
            assert_memory_equal(other.norm, first.norm, sizeof other.norm);
            free(other.weights);
        }
        free(first.weights);
    }
}

typedef struct entropy_job { const weft_run *run; double nats; } entropy_job;

static weft_status entropy_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    entropy_job *j = ud;
    weft_trainer *t = NULL;
    (void)ctx;
    WEFT_TRY(weft_trainer_create(&t, world, j->run));
    weft_status st = weft_trainer_unigram_entropy(t, &j->nats);
    weft_trainer_destroy(t);
    return st;
}

/* Two tokens in turn, one of them no byte: ln 2, whatever the vocabulary. */
static void entropy_counts_every_token(void **state)
{
    (void)state;
    int32_t id[200];
    test_run t;
    const char *path = test_dir_file(&dir, "two.tokens");
    for (int i = 0; i < 200; i++) id[i] = i % 2 ? 5 : 999;
    assert_ok(weft_tokens_write(path, id, 200, (int64_t[]){0, 200}, 1, 1000));
    test_run_open(&t, WEFT_CMD_TRAIN,
                  W("--data", path, "--vocab-size", "1000", "--hidden-size", "8", "--num-attention-heads", "2",
                    "--num-layers", "1", "--seq-length", "20", "--steps", "1", "--valid-fraction", "0"));
    entropy_job j = {.run = &t.run};
    assert_ok(weft_run_threads(1, entropy_body, &j));
    assert_at_most(fabs(j.nats - log(2)), 1e-12);
    test_run_close(&t);
}

typedef struct areas { /* of a step: what the records say, and the visible areas of the groups */
    const weft_run *run;
    double got[RANKS_MAX], busiest[RANKS_MAX], sum;
} areas;

static weft_status group_areas(weft_ctx *ctx, weft_trainer *t, areas *x)
{
    const weft_run_options *o = x->run->o;
    const weft_mask causal = {true, -1, -1, 0};
    int P = x->run->mesh.cp, group = t->engine.mesh.at.dp;
    for (int64_t a = 0; a < t->accumulation; a++) {
        weft_arena *arena;
        weft_shard s;
        double most = 0;
        int64_t B = o->micro_batch, T = o->seq_length;
        weft_docs docs = {.B = B, .T = T, .cu = t->cu + a * B * (t->max_docs + 1), .first = t->first + a * (B + 1)};
        WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "areas", NULL));
        WEFT_TRY(weft_shard_alloc(&s, arena, P, weft_shard_capacity(x->run->layout, B, T, docs.first[B], P)));
        WEFT_TRY(weft_shard_make(&s, x->run->layout, &docs, 0));
        for (int r = 0; r < P; r++) {
            double area = (double)weft_shard_area(&causal, &s, r, &s, -1);
            most = fmax(most, area);
            x->sum += area;
        }
        x->busiest[group] += most;
        weft_arena_destroy(arena);
    }
    return WEFT_OK;
}

static weft_status areas_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    areas *x = ud;
    weft_trainer *t = NULL;
    weft_record record;
    WEFT_TRY(weft_trainer_create(&t, world, x->run));
    weft_status st = weft_trainer_step(t, &record);
    x->got[ctx->rank] = record.imbalance;
    for (int g = 0; st >= 0 && g < x->run->mesh.dp; g++) { /* one after the other: they add to one sum */
        if (t->engine.mesh.at.cp == 0 && t->engine.mesh.at.dp == g) st = group_areas(ctx, t, x);
        st = weft_agree(t->engine.mesh.all, st);
    }
    weft_trainer_destroy(t);
    return st;
}

/* The record's imbalance is of all micro-batches and all groups, and every rank has the same. */
static void imbalance_is_of_the_whole_step(void **state)
{
    (void)state;
    test_run t;
    areas x = {0};
    open_run(&t, W("--separator", "7", "--document-mask", "--cp", "2", "--dp", "2", "--global-batch-size", "12",
                   "--micro-batch-size", "2", "--steps", "1"));
    x.run = &t.run;
    assert_ok(weft_run_threads(4, areas_body, &x));
    assert_true(x.busiest[0] != x.busiest[1]); /* a group alone does not know */
    double want = fmax(x.busiest[0], x.busiest[1]) * 4 / x.sum;
    assert_true(want > 1.01);
    for (int r = 0; r < 4; r++) assert_at_most(fabs(x.got[r] - want), 1e-12);
    test_run_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_layout_gives_the_same_step), cmocka_unit_test(documents),
        cmocka_unit_test(dropout_is_the_same_on_any_layout),
        cmocka_unit_test(every_step_drops_anew),
                                       cmocka_unit_test(nothing_is_allocated_after_the_first_step),
                                       cmocka_unit_test(the_same_run_twice_is_the_same_bits),
                                       cmocka_unit_test(sums_in_any_way_give_the_same_bits),
                                       cmocka_unit_test(imbalance_is_of_the_whole_step),
                                       cmocka_unit_test(entropy_counts_every_token)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
