/* labels: small */
/* A backward pass that makes a layer again gives the loss and the gradients of one that kept it, bit for bit, and all
 * ranks repeat the same exchanges (G25); it needs less memory, mode by mode. Tiles of the feed-forward give the same
 * within the rounding of longer sums. */
#include "toy.h"

typedef struct layout { int cp, tp; bool sequence_parallel; const char *strategy; bool keep_heads; } layout;

static const layout alone = {1, 1, false, "none", false};

static toy run_on(toy t, layout on)
{
    t.P = on.cp;
    t.tp = on.tp;
    t.sequence_parallel = on.sequence_parallel;
    t.strategy = on.strategy;
    t.keep_heads = on.keep_heads;
    t.layout = (weft_layout){on.cp == 1 ? WEFT_LAYOUT_CONTIGUOUS : WEFT_LAYOUT_ZIGZAG, 0};
    assert_ok(toy_run(&t));
    return t;
}

static void check_bits(const toy *a, const toy *b)
{
    assert_true(a->nll_sum == b->nll_sum);
    assert_memory_equal(a->token_nll, b->token_nll, (size_t)(a->B * a->T) * sizeof(double));
    assert_memory_equal(a->grads, b->grads, (size_t)a->count * sizeof(double));
}

/* `attends`: attention runs again, and sends again. */
static void check_messages(const toy *again, const toy *kept, bool attends)
{
    for (int r = 0; r < again->P * toy_tp(again); r++) {
        if (!kept->cu) assert_int_equal(again->messages[r], again->messages[0]);
        assert_true(again->messages[r] >= kept->messages[r]);
        if (attends && again->P > 1) assert_true(again->messages[r] > kept->messages[r]);
    }
}

static void check_modes(toy t, layout on)
{
    static int turn;
    toy kept = run_on(t, on);
    for (int mode = WEFT_RECOMPUTE_ATTENTION; mode < WEFT_RECOMPUTE_MODES; mode++)
        for (int keep = 0; keep < 2; keep++) {
            if (turn++ % test_every(7)) continue;
            t.recompute = (weft_recompute)mode;
            t.keep_attention = keep;
            toy again = run_on(t, on);
            check_bits(&again, &kept);
            check_messages(&again, &kept, !keep);
            toy_free(&again);
        }
    toy_free(&kept);
}

/* Two documents in one row; 16 rows, which all layouts below cut evenly, so that with one document messages are
 * equal. */
static const int64_t cu[] = {0, 5, 16}, first[] = {0, 3};
static int32_t token[16], target[16];

static toy problem(weft_family family, weft_prec prec, double dropout)
{
    weft_model_config c = toy_config(family, 2);
    c.H = c.Hkv = 2;
    c.C = 12;
    if (family == WEFT_GPT2) c.D = 6;
    toy_tokens(token, target, 16, c.V);
    return (toy){.config = c, .prec = prec, .B = 1, .T = 16, .cu = cu, .first = first, .token = token, .target = target,
                 .dropout = dropout, .embedding_dropout = dropout, .residual_dropout = dropout, .grad_scale = 0.125};
}

static void one_rank_of_every_family_and_precision(void **state)
{
    (void)state;
    static const weft_family families[] = {WEFT_LLAMA, WEFT_QWEN3, WEFT_GPT2};
    for (int f = 0; f < 3; f++)
        for (int p = 0; p < WEFT_PREC_COUNT; p++) {
            check_modes(problem(families[f], (weft_prec)p, 0), alone);
            check_modes(problem(families[f], (weft_prec)p, 0.2), alone);
        }
}

static void context_parallel(void **state)
{
    (void)state;
    static const layout on[] = {{2, 1, false, "ring", false}, {2, 1, false, "pcp", false},
                                {4, 1, false, "pairwise", false},
                                {2, 1, false, "ulysses", false}, {2, 1, false, "ulysses", true},
                                {4, 1, false, "dcp-ring", true}};
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) check_modes(problem(WEFT_QWEN3, WEFT_PREC_F32, 0.2), on[i]);
}

/* The report's own case: two layers, two ranks, 16 tokens. */
static void g25_every_rank_sends_as_many_messages(void **state)
{
    (void)state;
    static const char *const strategies[] = {"ring", "pcp", "ulysses"};
    for (int i = 0; i < 3; i++) {
        toy t = problem(WEFT_LLAMA, WEFT_PREC_F32, 0);
        t.cu = t.first = NULL;
        check_modes(t, (layout){2, 1, false, strategies[i], false});
    }
}

static void tensor_and_sequence_parallel(void **state)
{
    (void)state;
    static const layout on[] = {{1, 2, false, "none", false}, {1, 2, true, "none", false}, {2, 2, true, "ring", false}};
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        check_modes(problem(WEFT_LLAMA, WEFT_PREC_BF16, 0), on[i]);
        check_modes(problem(WEFT_GPT2, WEFT_PREC_F32, 0.2), on[i]);
    }
}

/* Of a longer batch, so that arenas' rounding hides nothing. */
static void every_mode_needs_less_memory(void **state)
{
    (void)state;
    enum { T = 1024 };
    int32_t *tokens = malloc(2 * T * sizeof *tokens);
    toy_tokens(tokens, tokens + T, T, 11);
    size_t bytes[WEFT_RECOMPUTE_MODES];
    for (int mode = 0; mode < WEFT_RECOMPUTE_MODES; mode++) {
        toy t = problem(WEFT_LLAMA, WEFT_PREC_F32, 0);
        t.config.L = 6;
        t.T = T;
        t.cu = t.first = NULL;
        t.token = tokens;
        t.target = tokens + T;
        t.recompute = (weft_recompute)mode;
        t = run_on(t, alone);
        bytes[mode] = t.bytes[0];
        if (mode) assert_true(bytes[mode] < bytes[mode - 1]);
        toy_free(&t);
    }
    free(tokens);
}

static void check_tiles(toy t, layout on)
{
    static const int64_t rows[] = {1, 2, 5, 7, 15};
    static int turn;
    toy whole = run_on(t, on);
    for (int i = 0; i < 5; i++)
        for (int mode = 0; mode < WEFT_RECOMPUTE_MODES; mode += WEFT_RECOMPUTE_FULL) {
            if (turn++ % test_every(3)) continue;
            t.mlp_rows = rows[i];
            t.recompute = (weft_recompute)mode;
            toy tiles = run_on(t, on);
            /* fp64 rounds at 1e-16; sums here have some thousand terms */
            assert_at_most(weft_rel_l2(tiles.token_nll, WEFT_F64, whole.token_nll, WEFT_F64, t.B * t.T, 0), 1e-13);
            assert_at_most(weft_rel_l2(tiles.grads, WEFT_F64, whole.grads, WEFT_F64, tiles.count, 0), 1e-13);
            toy_free(&tiles);
        }
    toy_free(&whole);
}

static void tiles_of_the_feed_forward(void **state)
{
    (void)state;
    check_tiles(problem(WEFT_LLAMA, WEFT_PREC_F64, 0.2), alone);
    check_tiles(problem(WEFT_GPT2, WEFT_PREC_F64, 0.2), alone);
    check_tiles(problem(WEFT_GPT2, WEFT_PREC_F64, 0), (layout){2, 2, false, "ring", false});
    check_tiles(problem(WEFT_LLAMA, WEFT_PREC_F64, 0.2), (layout){1, 3, true, "none", false});
    check_tiles(problem(WEFT_GPT2, WEFT_PREC_F64, 0), (layout){2, 2, true, "ring", false});
}

/* In bf16 every element is rounded once, whole or in tiles; what differs is the order of sums in fp32. */
static void tiles_in_bf16(void **state)
{
    (void)state;
    toy t = problem(WEFT_LLAMA, WEFT_PREC_BF16, 0), whole = run_on(t, alone);
    t.mlp_rows = 5;
    toy tiles = run_on(t, alone);
    assert_at_most(weft_rel_l2(tiles.token_nll, WEFT_F64, whole.token_nll, WEFT_F64, 16, 0), 2e-3);
    assert_at_most(weft_rel_l2(tiles.grads, WEFT_F64, whole.grads, WEFT_F64, tiles.count, 0), 1e-2);
    toy_free(&tiles);
    toy_free(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_of_every_family_and_precision), cmocka_unit_test(context_parallel),
        cmocka_unit_test(g25_every_rank_sends_as_many_messages),
        cmocka_unit_test(tensor_and_sequence_parallel), cmocka_unit_test(every_mode_needs_less_memory),
        cmocka_unit_test(tiles_of_the_feed_forward), cmocka_unit_test(tiles_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
