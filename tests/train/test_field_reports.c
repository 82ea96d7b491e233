/* labels: small */ /* timeout: 200 */
/* Faults that users of other trainers met, each as the small case of its report (the name is its row): scale and group
 * of gradients, means of means, accumulation, evaluation, data order, throughput. What is asked of attention alone is
 * in tests/cp. */
#include "harness/run.h"
#include "harness/tempdir.h"
#include "harness/test.h"

enum { STEPS = 3, RANKS_MAX = 8, T = 16, V = 11, WINDOWS = 12 };

static test_dir dir;

typedef struct result { /* of STEPS steps */
    const weft_run *run;
    bool zero;                       /* all weights are 0, and nothing but evaluation happens */
    weft_record record[STEPS];       /* of rank 0 */
    double evaluation;
    int64_t n;
    double *gradient;                /* [STEPS, n] reduced, of rank 0: the first stage's part in a pipeline */
    uint64_t hash[RANKS_MAX][STEPS]; /* of the weights after the step */
    /* the sample of the rank's last micro-batch, at the places that the rank holds; others -1 */
    int32_t token[RANKS_MAX][STEPS][T];
} result;

static void note_sample(const weft_engine *e, int32_t token[T])
{
    for (int i = 0; i < T; i++) token[i] = -1;
    const weft_engine_slot *slot = &e->slot[0];
    for (int64_t i = 0; i < slot->shard.rows[e->mesh.at.cp]; i++) token[slot->index[i]] = slot->token[i];
}

static weft_status train(weft_ctx *ctx, weft_trainer *t, result *r)
{
    const weft_engine *e = weft_trainer_engine(t);
    size_t bytes = (size_t)weft_model_weight_count(e->model) * sizeof(double);
    for (int s = 0; s < STEPS; s++) {
        weft_record record;
        WEFT_TRY(weft_trainer_step(t, &record));
        r->hash[ctx->rank][s] = test_hash(weft_model_weights(e->model), bytes);
        note_sample(e, r->token[ctx->rank][s]);
        if (ctx->rank != 0) continue;
        r->record[s] = record;
        memcpy(r->gradient + s * r->n, weft_model_gradients(e->model), bytes);
    }
    return WEFT_OK;
}

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    result *r = ud;
    weft_trainer *t = NULL;
    double evaluation = 0;
    WEFT_TRY(weft_trainer_create(&t, world, r->run));
    const weft_engine *e = weft_trainer_engine(t);
    int64_t n = weft_model_weight_count(e->model);
    weft_status st = WEFT_OK;
    if (ctx->rank == 0) r->n = n, r->gradient = calloc((size_t)n * STEPS, sizeof(double));
    if (!r->zero) st = weft_barrier(e->mesh.dp_cp); /* r->n is there */
    if (st >= 0 && !r->zero) st = train(ctx, t, r);
    if (r->zero) {
        memset(weft_model_weights(e->model), 0, (size_t)n * sizeof(double));
        weft_model_weights_changed(e->model);
        st = weft_trainer_eval(t, 3, &evaluation);
        if (ctx->rank == 0) r->evaluation = evaluation;
    }
    weft_trainer_destroy(t);
    return st;
}

/* extra: more option words, NULL-terminated. The caller frees the gradients. */
static result run(int ranks, const char *data, bool zero, const char *const *extra)
{
    const char *common[] = {"--data", test_dir_file(&dir, data), "--vocab-size", "11", "--hidden-size", "8",
                            "--num-layers", "2", "--num-attention-heads", "4", "--num-query-groups", "2",
                            "--ffn-hidden-size", "12", "--seq-length", "16", "--steps", "3", "--warmup-steps", "0",
                            "--valid-fraction", zero ? "0.3" : "0", "--precision", "fp64", "--timeout", "20",
                            "--zero-stage", "0"}; /* all sums on every rank, to look at */
    test_run t;
    result r = {.zero = zero};
    test_run_open_more(&t, WEFT_CMD_TRAIN, common, sizeof common / sizeof *common, extra);
    r.run = &t.run;
    weft_status st = weft_run_threads(ranks, body, &r);
    if (st < 0) fail_msg("%d ranks, %s %s: %s", ranks, extra[0], extra[1], weft_last_error());
    test_run_close(&t);
    return r;
}

#define W(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Relative to the largest of its gradients: a bias whose gradient is 0 has none of its own. What the first stage of a
 * pipeline has, the array of the whole model begins with. */
static void same_gradients(const result *a, const result *b, int step, const char *what)
{
    double most = 0;
    assert_in_range(a->n, 1, b->n);
    const double *x = a->gradient + step * a->n, *y = b->gradient + step * b->n;
    for (int64_t i = 0; i < a->n; i++) most = fmax(most, fabs(y[i]));
    assert_true(most > 1e-3);
    for (int64_t i = 0; i < a->n; i++)
        if (!(fabs(x[i] - y[i]) <= 1e-12 * most))
            fail_msg("%s: gradient %lld is %.17g, on one rank %.17g", what, (long long)i, x[i], y[i]);
}

static void same_loss(const result *a, const result *b, int step, const char *what)
{
    double x = a->record[step].loss, y = b->record[step].loss;
    if (!(fabs(x - y) <= 1e-12 * fabs(y))) fail_msg("%s: loss %.17g, on one rank %.17g", what, x, y);
}

/* ---- scale and group ------------------------------------------------------------------------------------------ */

typedef struct split { int ranks; const char *words[11]; } split;

/* World 4 and a batch of 4 x 16 as dp 4, dp 2 x cp 2, cp 4: two conventions mixed would give 4 times the gradient on
 * cp 4. */
static void g01_gradients_know_no_parallel_size(void **state)
{
    (void)state;
    static const split splits[] = {
        {4, {"--dp", "4"}}, {4, {"--dp", "2", "--cp", "2", "--cp-strategy", "ring"}},
        {4, {"--cp", "4", "--cp-strategy", "pcp"}}, {4, {"--cp", "4", "--cp-strategy", "ulysses"}},
        {4, {"--cp", "4", "--cp-strategy", "dcp", "--cp-layout", "balanced"}},
        {4, {"--cp", "4", "--cp-strategy", "pairwise", "--cp-layout", "striped"}},
        {4, {"--pp", "2", "--cp", "2", "--cp-strategy", "ring"}}, {4, {"--pp", "2", "--dp", "2"}}};
    result one = run(1, "text", false, W("--global-batch-size", "4"));
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        const char *const *w = splits[i].words;
        result many = run(splits[i].ranks, "text", false,
                          W("--global-batch-size", "4", w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]));
        same_loss(&many, &one, 0, w[3] ? w[3] : w[1]);
        same_gradients(&many, &one, 0, w[3] ? w[3] : w[1]);
        assert_true(fabs(many.record[0].grad_norm - one.record[0].grad_norm) <= 1e-12 * one.record[0].grad_norm);
        free(many.gradient);
    }
    free(one.gradient);
}

typedef struct toy { double mean[4]; int dp; } toy;

/* Eight tokens with gradients 1 .. 8, two on each rank, scaled by the global count: 4.5 everywhere. */
static weft_status toy_rank(weft_ctx *ctx, weft_world *world, void *ud)
{
    toy *x = ud;
    static const weft_spec one = {.name = "w", .nd = 1, .shape = {1}, .count = 1, .cut_dim = -1, .own_count = 1};
    static const weft_optim_options options = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1};
    static const int64_t bounds[] = {0, 1};
    weft_mesh mesh;
    weft_kern kern;
    weft_optim *optim;
    double g = (2 * ctx->rank + 1 + 2 * ctx->rank + 2) / 8.0, w = 0;
    WEFT_TRY(weft_kern_init(&kern, weft_isa_best()));
    WEFT_TRY(weft_mesh_create(&mesh, world, (weft_mesh_shape){.tp = 1, .pp = 1, .dp = x->dp, .cp = 4 / x->dp}));
    weft_optim_parts parts = {.prec = WEFT_PREC_F64, .spec = &one, .n = 1, .count = 1, .weights = &w, .gradients = &g,
                              .bucket = bounds, .buckets = 1, .mesh = &mesh};
    WEFT_TRY(weft_optim_create(&optim, ctx, &kern, &parts, &options));
    weft_status st = weft_optim_reduce(optim);
    x->mean[ctx->rank] = g;
    weft_optim_destroy(optim);
    weft_mesh_destroy(&mesh);
    return st;
}

static void g01_the_mean_of_eight_tokens(void **state)
{
    (void)state;
    for (int dp = 1; dp <= 4; dp *= 2) {
        toy x = {.dp = dp};
        assert_ok(weft_run_threads(4, toy_rank, &x));
        for (int r = 0; r < 4; r++) assert_true(x.mean[r] == 4.5); /* sums of eighths are exact */
    }
}

/* The group of all ranks is what gradients are summed over, also where no rank has another's sequence. */
static void g02_all_ranks_have_the_same_weights(void **state)
{
    (void)state;
    static const split splits[] = {{2, {"--cp", "2", "--global-batch-size", "1"}},
                                   {4, {"--dp", "2", "--cp", "2", "--global-batch-size", "2"}}};
    for (int i = 0; i < 2; i++) {
        const char *const *w = splits[i].words;
        result one = run(1, "text", false, W("--global-batch-size", i ? "2" : "1"));
        result many = run(splits[i].ranks, "text", false, W(w[0], w[1], w[2], w[3], w[4], w[5]));
        for (int s = 0; s < STEPS; s++)
            for (int r = 1; r < splits[i].ranks; r++) assert_true(many.hash[r][s] == many.hash[0][s]);
        assert_true(many.hash[0][1] != many.hash[0][0]);
        same_gradients(&many, &one, 0, w[1]);
        free(one.gradient);
        free(many.gradient);
    }
}

/* ---- unequal numbers of labels --------------------------------------------------------------------------- */

/* Weights stay where they are, so that steps of one sequence show the parts of a step of two. */
#define STILL "--document-mask", "--lr", "1e-30", "--weight-decay", "0"

/* Two sequences, one with 1 label and one with 8: the loss is the sum over 9, not the mean of two means. */
static void g03_the_loss_is_no_mean_of_means(void **state)
{
    (void)state;
    static const split splits[] = {
        {1, {"--cp", "1"}}, {2, {"--dp", "2"}}, {4, {"--cp", "2", "--dp", "2"}}, {1, {"--micro-batch-size", "2"}},
        {2, {"--pp", "2"}}, {4, {"--pp", "2", "--dp", "2"}}};
    result part = run(1, "uneven", false, W(STILL, "--global-batch-size", "1"));
    const weft_record *a = &part.record[0], *b = &part.record[1];
    int64_t labels = a->valid_tokens + b->valid_tokens;
    assert_int_equal(weft_min_i64(a->valid_tokens, b->valid_tokens), 1);
    assert_int_equal(labels, 9);
    double want = (a->loss * (double)a->valid_tokens + b->loss * (double)b->valid_tokens) / 9;
    double wrong = (a->loss + b->loss) / 2;
    assert_true(fabs(want - wrong) > 1e-3);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        const char *const *w = splits[i].words;
        result r = run(splits[i].ranks, "uneven", false, W(STILL, "--global-batch-size", "2", w[0], w[1], w[2], w[3]));
        assert_int_equal(r.record[0].valid_tokens, labels);
        assert_at_most(fabs(r.record[0].loss - want), 1e-12 * want);
        free(r.gradient);
    }
    free(part.gradient);
}

/* Accumulated one by one, as two ranks, and as one micro-batch of two: the gradient is that of all 9 labels. */
static void g04_micro_batches_weigh_by_their_labels(void **state)
{
    (void)state;
    static const split splits[] = {
        {1, {"--cp", "1"}}, {2, {"--cp", "2"}}, {2, {"--dp", "2"}}, {1, {"--micro-batch-size", "2"}},
        {2, {"--pp", "2"}}};
    result part = run(1, "uneven", false, W(STILL, "--global-batch-size", "1")), whole = {.n = part.n};
    double a = (double)part.record[0].valid_tokens, b = (double)part.record[1].valid_tokens;
    whole.gradient = calloc((size_t)whole.n, sizeof(double));
    for (int64_t i = 0; i < whole.n; i++)
        whole.gradient[i] = (part.gradient[i] * a + part.gradient[part.n + i] * b) / (a + b);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        const char *const *w = splits[i].words;
        result r = run(splits[i].ranks, "uneven", false, W(STILL, "--global-batch-size", "2", w[0], w[1]));
        same_gradients(&r, &whole, 0, w[0]);
        free(r.gradient);
    }
    free(part.gradient);
    free(whole.gradient);
}

/* ---- evaluation, data, throughput -------------------------------------------------------------------------------- */

/* All logits are 0: ln V, on any ranks. Divided or multiplied by cp it would be 2 or 4 times that. */
static void g12_evaluation_is_scaled_like_training(void **state)
{
    (void)state;
    static const split splits[] = {
        {1, {"--cp", "1"}}, {2, {"--cp", "2", "--cp-strategy", "ring"}}, {4, {"--cp", "4", "--cp-strategy", "pcp"}},
        {4, {"--cp", "4", "--cp-strategy", "dcp"}}, {4, {"--cp", "2", "--cp-strategy", "pairwise", "--dp", "2"}},
        {6, {"--cp", "2", "--cp-strategy", "ulysses", "--dp", "3"}}, {4, {"--pp", "2", "--dp", "2"}}};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        const char *const *w = splits[i].words;
        result r = run(splits[i].ranks, "text", true, W(w[0], w[1], w[2], w[3], w[4], w[5]));
        assert_at_most(fabs(r.evaluation - log(V)), 1e-14); /* a sum of 48 equal terms over 48 */
        free(r.gradient);
    }
}

/* The samples of dp 2 x cp 2, put together from what the ranks hold, are those of dp 2 x cp 1: the same inside a cp
 * group, others on the other dp rank, in an order that knows the dp index only. */
static void g14_ranks_of_a_group_read_one_sample(void **state)
{
    (void)state;
    result cut = run(4, "text", false, W("--dp", "2", "--cp", "2")), whole = run(2, "text", false, W("--dp", "2"));
    for (int s = 0; s < STEPS; s++) {
        for (int dp = 0; dp < 2; dp++)
            for (int i = 0; i < T; i++) {
                int32_t a = cut.token[2 * dp][s][i], b = cut.token[2 * dp + 1][s][i]; /* rank = cp + 2 dp */
                assert_true((a < 0) != (b < 0));
                assert_int_equal(a < 0 ? b : a, whole.token[dp][s][i]);
            }
        assert_memory_not_equal(whole.token[0][s], whole.token[1][s], sizeof whole.token[0][s]);
    }
    assert_memory_not_equal(whole.token[0][0], whole.token[0][1], sizeof whole.token[0][0]);
    free(cut.gradient);
    free(whole.gradient);
}

/* Tokens of the job: cp ranks are no replicas, dp ranks are no copies. */
static void g40_throughput_counts_every_token_once(void **state)
{
    (void)state;
    static const split splits[] = {
        {4, {"--cp", "4"}}, {4, {"--cp", "2", "--dp", "2"}}, {1, {"--micro-batch-size", "4"}},
        {4, {"--pp", "2", "--cp", "2"}}};
    for (int i = 0; i < 4; i++) {
        const char *const *w = splits[i].words;
        result r = run(splits[i].ranks, "text", false, W("--global-batch-size", "4", w[0], w[1], w[2], w[3]));
        for (int s = 0; s < STEPS; s++) {
            assert_int_equal(r.record[s].tokens, 4 * T);
            assert_int_equal(r.record[s].ranks, splits[i].ranks);
            assert_true(weft_record_throughput(&r.record[s]) == 4 * T / r.record[s].seconds);
        }
        free(r.gradient);
    }
}

/* "text": windows of one document. "uneven": two windows; documents of one token are without label, so one has 1 label
 * (14 single tokens and a pair) and one has 8 (7 single tokens, a document of 9). */
static int setup(void **state)
{
    (void)state;
    int32_t id[WINDOWS * T + 1];
    int64_t ends[64] = {0}, n = 0;
    test_dir_make(&dir);
    for (int i = 0; i < WINDOWS * T + 1; i++) id[i] = (i * 7 + i / 3 * 5 + i * i % 13) % V;
    const int64_t whole[] = {0, WINDOWS * T + 1};
    assert_ok(weft_tokens_write(test_dir_file(&dir, "text"), id, whole[1], whole, 1, V));
    for (int k = 0; k < 14; k++, n++) ends[n + 1] = ends[n] + 1;
    ends[n + 1] = ends[n] + 2, n++;
    for (int k = 0; k < 7; k++, n++) ends[n + 1] = ends[n] + 1;
    ends[n + 1] = ends[n] + 9, n++;
    ends[n + 1] = ends[n] + 1, n++; /* what follows the last window */
    assert_ok(weft_tokens_write(test_dir_file(&dir, "uneven"), id, ends[n], ends, n, V));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_dir_remove(&dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(g01_gradients_know_no_parallel_size), cmocka_unit_test(g01_the_mean_of_eight_tokens),
        cmocka_unit_test(g02_all_ranks_have_the_same_weights), cmocka_unit_test(g03_the_loss_is_no_mean_of_means),
        cmocka_unit_test(g04_micro_batches_weigh_by_their_labels),
        cmocka_unit_test(g12_evaluation_is_scaled_like_training),
        cmocka_unit_test(g14_ranks_of_a_group_read_one_sample),
        cmocka_unit_test(g40_throughput_counts_every_token_once)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
