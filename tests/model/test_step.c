/* labels: small */
/* What a step promises besides its numbers: no allocation after the first, gradients that add up over
 * micro-batches, ranges announced once and in order, inputs checked, bf16 near fp32. */
#include "toy.h"

typedef struct alone { /* one rank on the test's own thread */
    weft_ctx ctx;
    weft_world *world;
    toy t;
    toy_rank r;
    int32_t token[33], target[33];
} alone;

static void open_alone(alone *a, weft_model_config config, weft_prec prec)
{
    toy_tokens(a->token, a->target, 33, config.V);
    a->t = (toy){.config = config, .prec = prec, .P = 1, .strategy = "none", .B = 1, .T = 33, .token = a->token,
                 .target = a->target, .grad_scale = 1.0 / 26};
    weft_ctx_init(&a->ctx);
    assert_ok(weft_world_self(&a->world, &a->ctx));
    assert_ok(toy_open(&a->r, &a->ctx, a->world, &a->t));
}

static void close_alone(alone *a)
{
    toy_close(&a->r);
    weft_world_close(a->world);
}

static void the_step_after_the_first_allocates_nothing(void **state)
{
    (void)state;
    static const weft_prec precs[] = {WEFT_PREC_F64, WEFT_PREC_F32, WEFT_PREC_BF16};
    for (int i = 0; i < 3; i++) {
        alone a;
        double sum, nll[33];
        open_alone(&a, toy_config(WEFT_QWEN3, 2), precs[i]);
        assert_ok(toy_step(&a.r, &a.t, true, &sum, nll));
        int64_t calls = a.ctx.mem.allocations;
        size_t bytes = a.ctx.mem.bytes;
        assert_true(calls > 0);
        for (int k = 0; k < 3; k++) assert_ok(toy_step(&a.r, &a.t, true, &sum, nll));
        assert_int_equal(a.ctx.mem.allocations, calls);
        assert_int_equal(a.ctx.mem.bytes, bytes);
        close_alone(&a);
    }
}

static void gradients_add_up_until_they_are_zeroed(void **state)
{
    (void)state;
    alone a;
    double sum;
    open_alone(&a, toy_config(WEFT_GPT2, 2), WEFT_PREC_F64);
    int64_t n = weft_model_weight_count(a.r.model);
    double *g = weft_model_gradients(a.r.model), *once = malloc((size_t)n * sizeof *once);
    assert_ok(toy_step(&a.r, &a.t, true, &sum, NULL));
    memcpy(once, g, (size_t)n * sizeof *once);
    assert_ok(toy_step(&a.r, &a.t, true, &sum, NULL));
    for (int64_t i = 0; i < n; i++) once[i] *= 2;
    assert_at_most(weft_rel_l2(g, WEFT_F64, once, WEFT_F64, n, 0), 1e-14);
    weft_model_zero_gradients(a.r.model);
    assert_true(weft_norm2(g, WEFT_F64, n) == 0);
    assert_ok(toy_step(&a.r, &a.t, false, &sum, NULL)); /* forward alone leaves them */
    assert_true(weft_norm2(g, WEFT_F64, n) == 0);
    free(once);
    close_alone(&a);
}

/* G33: the same model with a head of its own, equal to the embedding: its two gradients add up to the tied one. */
static void g33_a_tied_gradient_is_both_parts_once(void **state)
{
    (void)state;
    alone tied, apart;
    double sum_tied, sum_apart;
    weft_model_config c = toy_config(WEFT_LLAMA, 2);
    open_alone(&apart, c, WEFT_PREC_F64);
    c.tied = true;
    open_alone(&tied, c, WEFT_PREC_F64);
    int n = 0;
    const weft_spec *spec = weft_model_spec(apart.r.model, &n);
    const weft_spec *embedding = weft_spec_find(spec, n, "model.embed_tokens.weight");
    const weft_spec *head = weft_spec_find(spec, n, "lm_head.weight");
    const int64_t count = weft_model_weight_count(tied.r.model);
    double *w = weft_model_weights(apart.r.model), *g = weft_model_gradients(apart.r.model);
    assert_int_equal(head->offset, count); /* the last: all before it lies as in the tied model */
    memcpy(w + head->offset, w + embedding->offset, (size_t)head->count * sizeof *w);
    weft_model_weights_changed(apart.r.model);
    assert_ok(toy_step(&apart.r, &apart.t, true, &sum_apart, NULL));
    assert_ok(toy_step(&tied.r, &tied.t, true, &sum_tied, NULL));
    assert_true(sum_tied == sum_apart);
    for (int64_t i = 0; i < head->count; i++) g[embedding->offset + i] += g[head->offset + i];
    assert_at_most(weft_rel_l2(weft_model_gradients(tied.r.model), WEFT_F64, g, WEFT_F64, count, 0), 1e-14);
    close_alone(&tied);
    close_alone(&apart);
}

typedef struct watch { const double *grads; double *seen; int64_t count, below; } watch;

/* Ranges come from the end of the array to its beginning, each once, and are final when announced. */
static void on_ready(void *ud, int64_t offset, int64_t count)
{
    watch *w = ud;
    assert_int_equal(offset + count, w->below);
    w->below = offset;
    memcpy(w->seen + offset, w->grads + offset, (size_t)count * sizeof *w->seen);
}

static void ready_ranges_are_final_and_cover_the_array(void **state)
{
    (void)state;
    static const weft_family families[] = {WEFT_LLAMA, WEFT_QWEN2, WEFT_GPT2};
    for (int i = 0; i < 3; i++) {
        alone a;
        double sum;
        open_alone(&a, toy_config(families[i], 3), WEFT_PREC_F64);
        int64_t n = weft_model_weight_count(a.r.model);
        watch w = {weft_model_gradients(a.r.model), malloc((size_t)n * sizeof(double)), n, n};
        weft_micro u = {.shard = &a.r.shard, .token = a.r.token, .target = a.r.target};
        assert_ok(weft_model_run(a.r.model, &u, true, 1, &sum, NULL, on_ready, &w));
        assert_int_equal(w.below, 0);
        assert_memory_equal(w.seen, w.grads, (size_t)n * sizeof(double));
        free(w.seen);
        close_alone(&a);
    }
}

static void inputs_are_checked(void **state)
{
    (void)state;
    alone a;
    double sum;
    open_alone(&a, toy_config(WEFT_GPT2, 1), WEFT_PREC_F32);
    weft_micro u = {.shard = &a.r.shard, .token = a.r.token, .target = a.r.target};
    a.r.token[32] = 11;
    assert_refused(weft_model_run(a.r.model, &u, false, 1, &sum, NULL, NULL, NULL), "token 32");
    a.r.token[32] = -1;
    assert_refused(weft_model_run(a.r.model, &u, false, 1, &sum, NULL, NULL, NULL), "is -1");
    a.r.token[32] = 0;
    a.r.target[0] = 11;
    assert_refused(weft_model_run(a.r.model, &u, false, 1, &sum, NULL, NULL, NULL), "target 0");
    a.r.target[0] = 1;
    u.slot = 1;
    assert_refused(weft_model_run(a.r.model, &u, false, 1, &sum, NULL, NULL, NULL), "slot 1");
    close_alone(&a);
}

static void learned_positions_end(void **state)
{
    (void)state;
    alone a;
    double sum;
    weft_model_config c = toy_config(WEFT_GPT2, 1);
    c.max_position = 32;
    open_alone(&a, c, WEFT_PREC_F32);
    assert_refused(toy_step(&a.r, &a.t, false, &sum, NULL), "position 32");
    close_alone(&a);
}

static void creation_refuses(void **state)
{
    (void)state;
    alone a;
    weft_model *m;
    open_alone(&a, toy_config(WEFT_LLAMA, 1), WEFT_PREC_F32);
    weft_model_options o =
        {.prec = WEFT_PREC_COUNT, .B = 1, .T = 8, .max_docs = 1, .cp = {.strategy = "none"}, .slots = 1};
#define CREATE(config) weft_model_create(&m, &a.ctx, &a.r.kern, a.r.gemm, &(weft_model_place){.cp = a.r.cp}, config, &o)
    size_t bytes = a.ctx.mem.bytes;
    assert_refused(CREATE(&a.t.config), "precision 4");
    o.prec = WEFT_PREC_F32;
    o.B = 0;
    assert_refused(CREATE(&a.t.config), "0 sequences");
    o.B = INT64_MAX / 2;
    assert_refused(CREATE(&a.t.config), "memory sizes");
    o.B = 1;
    o.cp.strategy = "telepathy";
    assert_refused(CREATE(&a.t.config), "telepathy");
    weft_model_config odd = a.t.config;
    odd.Hkv = 2;
    assert_refused(CREATE(&odd), "num_key_value_heads");
    assert_null(m);
    assert_int_equal(a.ctx.mem.bytes, bytes); /* nothing is left behind */
    o.cp.strategy = "none";
    assert_ok(CREATE(&a.t.config));
    assert_refused(weft_model_run(m, &(weft_micro){.shard = &a.r.shard}, true, 1, &(double){0}, NULL, NULL, NULL),
                   "train");
    weft_model_destroy(m);
    close_alone(&a);
}

/* 48 layers whose activations are above 1 MiB each, as every model has at a long sequence. Only what is touched is
 * memory. */
static void a_deep_model_opens(void **state)
{
    (void)state;
    alone a;
    weft_model *m = NULL;
    open_alone(&a, toy_config(WEFT_LLAMA, 1), WEFT_PREC_F32);
    weft_model_config deep = toy_config(WEFT_LLAMA, 48);
    weft_model_options o = {.prec = WEFT_PREC_F32, .B = 1, .T = 300007, .max_docs = 1, .cp = {.strategy = "none"},
                            .train = true, .slots = 1};
    int64_t before = a.ctx.mem.allocations;
    assert_ok(CREATE(&deep));
    assert_true(a.ctx.mem.allocations - before > 256);
    weft_model_destroy(m);
    close_alone(&a);
}

/* bf16 keeps 8 bits: an operand is off by at most 2^-9, independent from one to the next. A row of the
 * residual stream gathers four products per layer whose errors are relative to their own size, so 2^-9
 * times a small factor; gradients pass twice as many. 16 and 32 roundings are the limits. */
static void bf16_is_near_fp32(void **state)
{
    (void)state;
    for (int f = WEFT_LLAMA; f <= WEFT_GPT2; f++) {
        alone a, b;
        double sum_a, sum_b;
        float nll_a[33], nll_b[33];
        open_alone(&a, toy_config((weft_family)f, 2), WEFT_PREC_F32);
        open_alone(&b, toy_config((weft_family)f, 2), WEFT_PREC_BF16);
        assert_ok(toy_step(&a.r, &a.t, true, &sum_a, nll_a));
        assert_ok(toy_step(&b.r, &b.t, true, &sum_b, nll_b));
        double nll = weft_rel_l2(nll_b, WEFT_F32, nll_a, WEFT_F32, 33, 0);
        double grad = weft_rel_l2(weft_model_gradients(b.r.model), WEFT_F32, weft_model_gradients(a.r.model), WEFT_F32,
                                  weft_model_weight_count(a.r.model), 0);
        if (getenv("WEFT_TEST_VERBOSE")) print_message("family %d: nll %.2e, gradient %.2e\n", f, nll, grad);
        assert_at_most(nll, 16 * 0x1p-9);
        assert_at_most(grad, 32 * 0x1p-9);
        assert_true(nll > 0); /* bf16 really ran */
        close_alone(&a);
        close_alone(&b);
    }
}

static void a_model_without_train_gives_the_same_nll(void **state)
{
    (void)state;
    alone a;
    weft_model *m;
    double sum_a, sum_b;
    double nll_a[33], nll_b[33];
    open_alone(&a, toy_config(WEFT_QWEN3, 3), WEFT_PREC_F64);
    weft_model_options o =
        {.prec = WEFT_PREC_F64, .B = 1, .T = 33, .max_docs = 1, .cp = {.strategy = "none"}, .slots = 1};
    assert_ok(CREATE(&a.t.config));
    assert_ok(toy_weights(m, a.r.arena, &a.t));
    weft_micro u = {.shard = &a.r.shard, .token = a.r.token, .target = a.r.target};
    assert_ok(toy_step(&a.r, &a.t, false, &sum_a, nll_a));
    assert_ok(weft_model_run(m, &u, false, 1, &sum_b, nll_b, NULL, NULL));
    assert_memory_equal(nll_a, nll_b, sizeof nll_a);
    assert_true(sum_a == sum_b);
    assert_null(weft_model_gradients(m));
    weft_model_destroy(m);
    close_alone(&a);
}

static void plans_are_described_by_layer(void **state)
{
    (void)state;
    alone a;
    weft_text text = {0};
    weft_model_config c = toy_config(WEFT_QWEN2, 3);
    c.window = 4;
    c.window_from_layer = 2;
    open_alone(&a, c, WEFT_PREC_F64);
    weft_model_describe(a.r.model, &text);
    assert_non_null(strstr(text.data, "layers 0-1: "));
    assert_non_null(strstr(text.data, "layers 2-2, window 4: "));
    weft_text_free(&text);
    close_alone(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_step_after_the_first_allocates_nothing),
        cmocka_unit_test(gradients_add_up_until_they_are_zeroed),
        cmocka_unit_test(g33_a_tied_gradient_is_both_parts_once),
        cmocka_unit_test(ready_ranges_are_final_and_cover_the_array),
        cmocka_unit_test(inputs_are_checked),
        cmocka_unit_test(learned_positions_end),
        cmocka_unit_test(creation_refuses), cmocka_unit_test(a_deep_model_opens),
        cmocka_unit_test(bf16_is_near_fp32),
        cmocka_unit_test(a_model_without_train_gives_the_same_nll),
        cmocka_unit_test(plans_are_described_by_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
