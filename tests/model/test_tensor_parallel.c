/* labels: small tsan */
/* A model cut over tp ranks, with and without sequence parallelism, and over cp, gives the result of one rank: loss,
 * each token's nll, gradients by what the tables say of them; nll the same bits on all ranks. */
#include "tp_case.h"

/* Heads, columns, vocabulary and rows that 2, 3 and 4 do not divide; 4 ranks for 3 heads: one has none. */
static void check_family(weft_model_config c, double dropout)
{
    int32_t token[34], target[34];
    static const int64_t cu[] = {0, 5, 5, 17, 0, 1, 17}, first[] = {0, 4, 7};
    toy_tokens(token, target, 34, c.V);
    toy t = {.config = c, .prec = WEFT_PREC_F64, .B = 2, .T = 17, .cu = cu, .first = first, .token = token,
             .target = target, .dropout = dropout, .embedding_dropout = dropout / 2, .residual_dropout = dropout};
    toy one = run_one(t);
    for (int tp = 2; tp <= 4; tp++)
        for (int sp = 0; sp < 2; sp++) check_cut(t, &one, tp, tp == 2 ? 2 : 1, sp, limit, limit);
    toy_free(&one);
}

static void llama_with_all_biases(void **state)
{
    (void)state;
    weft_model_config c = toy_config(WEFT_LLAMA, 2);
    c.qkv_bias = c.o_bias = c.mlp_bias = true;
    check_family(c, 0);
}

static void qwen2_with_full_and_windowed_layers(void **state)
{
    (void)state;
    weft_model_config c = toy_config(WEFT_QWEN2, 2);
    c.window = 4;
    c.window_from_layer = 1;
    check_family(c, 0);
}

/* 6 query heads, groups of 2: with 4 ranks the first and the last pair of neighbours share a head. */
static void qwen3_with_shared_heads(void **state)
{
    (void)state;
    weft_model_config c = toy_config(WEFT_QWEN3, 1);
    c.H = 6;
    c.Hkv = 3;
    check_family(c, 0);
}

static void mistral(void **state)
{
    (void)state;
    check_family(toy_config(WEFT_MISTRAL, 1), 0);
}

static void gpt2(void **state)
{
    (void)state;
    check_family(toy_config(WEFT_GPT2, 2), 0);
}

/* Dropout's addresses count the whole model's heads. */
static void dropout_is_that_of_one_rank(void **state)
{
    (void)state;
    check_family(toy_config(WEFT_LLAMA, 1), 0.3);
}

/* More ranks than columns, heads and rows: empty shares of everything but the vocabulary. */
static void more_ranks_than_anything(void **state)
{
    (void)state;
    int32_t token[3] = {1, 2, 3}, target[3] = {2, -100, 4};
    weft_model_config c = toy_config(WEFT_GPT2, 1);
    c.V = 5;
    c.F = 3;
    toy t = {.config = c, .prec = WEFT_PREC_F64, .B = 1, .T = 3, .token = token, .target = target};
    toy one = run_one(t);
    for (int sp = 0; sp < 2; sp++) {
        check_cut(t, &one, 7, 1, sp, limit, limit);
        check_cut(t, &one, 4, 2, sp, limit, limit);
    }
    toy_free(&one);
}

/* No label anywhere: everything is exactly 0. */
static void no_label_at_all(void **state)
{
    (void)state;
    int32_t token[6] = {1, 2, 3, 4, 5, 6}, target[6] = {-1, -1, -1, -100, -100, -1};
    for (int sp = 0; sp < 2; sp++) {
        toy t = {.config = toy_config(WEFT_QWEN3, 1), .prec = WEFT_PREC_F64, .P = 1, .tp = 3, .sequence_parallel = sp,
                 .B = 1, .T = 6, .token = token, .target = target};
        assert_ok(toy_run(&t));
        assert_true(t.nll_sum == 0);
        for (int64_t i = 0; i < t.count; i++) assert_true(t.grads[i] == 0);
        toy_free(&t);
    }
}

/* Operands are rounded to C at the same places as on one rank, sums are in R: what differs is the order of additions
 * (fp32: 1e-5 and 2e-5 are the project's limits), and in bf16 now and then an operand that lies between two numbers and
 * is rounded to the other one (a token's nll moves by 1e-3 of it, 2e-4 of all), and dK, dV of a head that two ranks
 * have, which each rounds its part of (gradients: 6e-3 to 7e-3). Partial sums in 16 bits would be off by 1e-2 and
 * 1e-1. */
static void narrower_precisions(void **state)
{
    (void)state;
    int32_t token[34], target[34];
    weft_model_config c = toy_config(WEFT_LLAMA, 2);
    c.C = 64, c.F = 48, c.H = 4, c.Hkv = 2, c.D = 16;
    c.o_bias = c.mlp_bias = true;
    toy_tokens(token, target, 34, c.V);
    static const struct { weft_prec prec; double nll, gradients; } each[] = {
        {WEFT_PREC_F32, 1e-5, 2e-5}, {WEFT_PREC_BF16, 1e-3, 2e-2}};
    for (int i = 0; i < 2; i++) {
        toy t = {.config = c, .prec = each[i].prec, .B = 2, .T = 17, .token = token, .target = target};
        toy one = run_one(t);
        for (int sp = 0; sp < 2; sp++) check_cut(t, &one, 3, 1, sp, each[i].nll, each[i].gradients);
        toy_free(&one);
    }
}

/* ---- initial values ---------------------------------------------------------------------------------------- */

static weft_status init_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    toy *t = ud;
    toy_rank r;
    weft_dtype type = weft_prec_real(t->prec);
    WEFT_TRY(toy_open(&r, ctx, world, t));
    weft_model_init_weights(r.model, 5);
    size_t bytes = (size_t)weft_model_weight_count(r.model) * weft_dtype_size(type);
    memcpy(weft_model_gradients(r.model), weft_model_weights(r.model), bytes);
    WEFT_TRY(toy_gradients(&r, t, weft_world_rank(world))); /* the weights, at their places in the whole model */
    toy_close(&r);
    return WEFT_OK;
}

static double *initial_weights(toy *t)
{
    int ranks = toy_tp(t) * t->P;
    t->count = weft_model_params(&t->config);
    t->grads = calloc((size_t)(ranks * t->count), sizeof(double));
    t->grad_is = calloc((size_t)(ranks * t->count), 1);
    assert_ok(weft_run_threads(ranks, init_body, t));
    return t->grads;
}

/* The same numbers on any layout, copies included; a table that left an element out would show, too. */
static void initial_weights_are_the_same_on_any_layout(void **state)
{
    (void)state;
    int32_t token[1] = {0}, target[1] = {0};
    static const weft_family family[] = {WEFT_QWEN3, WEFT_GPT2};
    for (int f = 0; f < 2; f++) {
        toy one = {.config = toy_config(family[f], 2), .prec = WEFT_PREC_F32, .P = 1, .strategy = "none", .B = 1,
                   .T = 1, .token = token, .target = target};
        double *want = initial_weights(&one);
        for (int tp = 2; tp <= 5; tp++) {
            toy t = one;
            t.tp = tp;
            double *got = initial_weights(&t);
            for (int64_t i = 0; i < t.count; i++) {
                int holders = 0;
                for (int k = 0; k < tp; k++)
                    if (t.grad_is[k * t.count + i] != TOY_NOTHING) {
                        holders++;
                        assert_true(got[k * t.count + i] == want[i]);
                    }
                assert_true(holders > 0);
            }
            toy_free(&t);
        }
        toy_free(&one);
    }
}

/* ---- what travels, and what is allocated ------------------------------------------------------------------- */

typedef struct traffic { toy t; int64_t sent[4], rows[4], own[4]; } traffic;

static weft_status traffic_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    traffic *x = ud;
    toy_rank r;
    double sum;
    weft_counters before, after;
    int me = weft_world_rank(world);
    WEFT_TRY(toy_open(&r, ctx, world, &x->t));
    WEFT_TRY(toy_step(&r, &x->t, true, &sum, NULL));
    weft_comm_counters(r.mesh.tp, &before);
    int64_t allocations = ctx->mem.allocations;
    WEFT_TRY(toy_step(&r, &x->t, true, &sum, NULL));
    weft_comm_counters(r.mesh.tp, &after);
    if (ctx->mem.allocations != allocations) return weft_fail(WEFT_ERR_COMPARE, "a step allocates");
    x->sent[me] = after.bytes_logical - before.bytes_logical;
    x->rows[me] = r.rows;
    x->own[me] = weft_model_stream_rows(r.model, x->t.B);
    toy_close(&r);
    return WEFT_OK;
}

/* docs/maths/tensor_parallel.md, for one rank: r and c bytes of R and C. */
static int64_t planned(const traffic *x, int me, bool sp)
{
    int64_t P = x->t.tp, C = x->t.config.C, L = x->t.config.L, S = x->rows[me], s = x->own[me], n = S * C;
    int64_t r = 4, c = 2, stats = (P - 1) * S * 24, share = n * (me + 1) / P - n * me / P;
    int64_t all_reduce = (n - share + (P - 1) * share) * r;
    int64_t gather = (P - 1) * s * C, scatter = (S - s) * C;
    if (!sp) return (4 * L + 2) * all_reduce + stats;
    return (6 * L + 1) * gather * c + gather * r + (4 * L + 2) * scatter * r + stats;
}

static void bytes_equal_the_formula(void **state)
{
    (void)state;
    int32_t token[34], target[34];
    weft_model_config c = toy_config(WEFT_LLAMA, 3);
    toy_tokens(token, target, 34, c.V);
    for (int sp = 0; sp < 2; sp++) {
        traffic x = {.t = {.config = c, .prec = WEFT_PREC_BF16, .P = 1, .tp = 4, .sequence_parallel = sp, .B = 2,
                           .T = 17, .token = token, .target = target, .grad_scale = 1}};
        assert_ok(weft_run_threads(4, traffic_body, &x));
        for (int i = 0; i < 4; i++) {
            assert_int_equal(x.rows[i], 34);
            assert_int_equal(x.sent[i], planned(&x, i, sp));
        }
    }
}

/* ---- generation ---------------------------------------------------------------------------------------------- */

typedef struct words { toy t; double logits[4][16]; } words;

static weft_status decoder_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    words *x = ud;
    toy_rank r;
    weft_decoder *d;
    WEFT_TRY(toy_open(&r, ctx, world, &x->t));
    WEFT_TRY(weft_decoder_create(&d, r.model, 20));
    WEFT_TRY(weft_decoder_feed(d, x->t.token, 13, x->logits[weft_world_rank(world)]));
    for (int i = 13; i < 17; i++) WEFT_TRY(weft_decoder_feed(d, x->t.token + i, 1, x->logits[weft_world_rank(world)]));
    weft_decoder_destroy(d);
    toy_close(&r);
    return WEFT_OK;
}

static void generation_gives_the_logits_of_one_rank(void **state)
{
    (void)state;
    int32_t token[17], target[17];
    toy_tokens(token, target, 17, 11);
    words one = {.t = {.config = toy_config(WEFT_QWEN3, 2), .prec = WEFT_PREC_F64, .P = 1, .strategy = "none", .B = 1,
                       .T = 17, .token = token, .target = target}};
    assert_ok(weft_run_threads(1, decoder_body, &one));
    for (int tp = 2; tp <= 4; tp++) {
        words x = {.t = one.t};
        x.t.tp = tp;
        x.t.sequence_parallel = tp == 3;
        assert_ok(weft_run_threads(tp, decoder_body, &x));
        assert_at_most(weft_rel_l2(x.logits[0], WEFT_F64, one.logits[0], WEFT_F64, 11, 0), limit);
        for (int k = 1; k < tp; k++) assert_memory_equal(x.logits[0], x.logits[k], 11 * sizeof(double));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_with_all_biases),
        cmocka_unit_test(qwen2_with_full_and_windowed_layers),
        cmocka_unit_test(qwen3_with_shared_heads),
        cmocka_unit_test(mistral),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(dropout_is_that_of_one_rank),
        cmocka_unit_test(more_ranks_than_anything),
        cmocka_unit_test(no_label_at_all),
        cmocka_unit_test(narrower_precisions),
        cmocka_unit_test(initial_weights_are_the_same_on_any_layout),
        cmocka_unit_test(bytes_equal_the_formula),
        cmocka_unit_test(generation_gives_the_logits_of_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
