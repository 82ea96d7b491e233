/* labels: small */
/* Dropout of the embedding and of the residual stream: masks have the probability they should and depend on their whole
 * address; results are those of one rank on any layout; evaluation drops nothing. */
#include "toy.h"

#include "base/philox.h"

static weft_drop drop_at(uint32_t step, uint32_t layer, weft_site site)
{
    return (weft_drop){.p = 0.3, .seed = 11, .word3 = weft_philox_word3(step, layer, site), .T = 1000, .sample0 = 4};
}

enum { ROWS = 200, WIDTH = 517, N = ROWS * WIDTH };

/* Share of the elements that both keep; 0.7 of one with itself, 0.49 of independent ones. */
static double both_kept(const weft_drop *a, int64_t index_a, const weft_drop *b, int64_t index_b)
{
    int64_t both = 0;
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < WIDTH; c++)
            both += weft_drop_factor(a, index_a + r, c) > 0 && weft_drop_factor(b, index_b + r, c) > 0;
    return (double)both / N;
}

/* Of N elements: five standard deviations. */
static void assert_share(double share, double p) { assert_at_most(fabs(share - p), 5 * sqrt(p * (1 - p) / N)); }

static void masks_have_their_probability_and_depend_on_every_part_of_the_address(void **state)
{
    (void)state;
    const weft_drop a = drop_at(3, 2, WEFT_SITE_DROP_RESIDUAL);
    const weft_drop others[] = {drop_at(4, 2, WEFT_SITE_DROP_RESIDUAL), drop_at(3, 1, WEFT_SITE_DROP_RESIDUAL),
                                drop_at(3, 2, WEFT_SITE_DROP_MLP), drop_at(3, 2, WEFT_SITE_DROP_EMBED)};
    weft_drop seed = a, sample = a;
    seed.seed++;
    sample.sample0++;
    assert_share(both_kept(&a, 0, &a, 0), 0.7);
    for (int i = 0; i < 4; i++) assert_share(both_kept(&a, 0, &others[i], 0), 0.49);
    assert_share(both_kept(&a, 0, &seed, 0), 0.49);
    assert_share(both_kept(&a, 0, &sample, 0), 0.49);
    assert_share(both_kept(&a, 0, &a, 1), 0.49); /* the next token */
    assert_true(weft_drop_factor(&a, 1007, 5) == weft_drop_factor(&sample, 7, 5)); /* token 7 of the next sample */
    for (int64_t c = 0; c < WIDTH; c++) {
        double f = weft_drop_factor(&a, 0, c);
        assert_true(f == 0 || f == 1 / 0.7);
    }
}

/* Channels of a row are independent: of pairs at any small distance 0.49 are kept. */
static void channels_are_independent(void **state)
{
    (void)state;
    const weft_drop a = drop_at(0, 0, WEFT_SITE_DROP_EMBED);
    static const int64_t distance[] = {1, 4, 16, 64};
    for (int i = 0; i < 4; i++) {
        int64_t both = 0, n = 0;
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t c = 0; c + distance[i] < WIDTH; c++, n++)
                both += weft_drop_factor(&a, r, c) > 0 && weft_drop_factor(&a, r, c + distance[i]) > 0;
        /* neighbouring pairs share an element, which makes the variance up to four times as large */
        assert_at_most(fabs((double)both / (double)n - 0.49), 10 * sqrt(0.25 / (double)n));
    }
}

static const int64_t cu[] = {0, 5, 5, 17, 0, 1, 17}, first[] = {0, 4, 7};
static int32_t token[34], target[34];

static toy problem(weft_family family)
{
    weft_model_config c = toy_config(family, 2);
    toy_tokens(token, target, 34, c.V);
    return (toy){.config = c, .prec = WEFT_PREC_F64, .P = 1, .strategy = "none", .B = 2, .T = 17, .cu = cu,
                 .first = first, .token = token, .target = target, .embedding_dropout = 0.2, .residual_dropout = 0.3,
                 .dropout = 0.1};
}

static void check_layout(weft_family family, int cp, int tp, bool sequence_parallel, weft_layout_kind kind)
{
    toy one = problem(family), t = one;
    t.P = cp;
    t.tp = tp;
    t.sequence_parallel = sequence_parallel;
    t.strategy = cp > 1 ? "ring" : "none";
    t.layout = (weft_layout){kind, 0};
    assert_ok(toy_run(&one));
    assert_ok(toy_run(&t));
    /* fp64 rounds at 1e-16; sums here have some thousand terms */
    assert_at_most(weft_rel_l2(t.token_nll, WEFT_F64, one.token_nll, WEFT_F64, 34, 0), 1e-12);
    assert_at_most(weft_rel_l2(t.grads, WEFT_F64, one.grads, WEFT_F64, one.count, 0), 1e-12);
    toy_free(&one);
    toy_free(&t);
}

static void any_layout_drops_the_same(void **state)
{
    (void)state;
    check_layout(WEFT_LLAMA, 3, 1, false, WEFT_LAYOUT_ZIGZAG);
    check_layout(WEFT_GPT2, 2, 1, false, WEFT_LAYOUT_CONTIGUOUS);
    check_layout(WEFT_GPT2, 1, 3, true, WEFT_LAYOUT_CONTIGUOUS);
    check_layout(WEFT_LLAMA, 2, 2, true, WEFT_LAYOUT_STRIPED);
    check_layout(WEFT_GPT2, 2, 2, false, WEFT_LAYOUT_ZIGZAG);
}

typedef struct two { toy t; double dropped, plain; } two;

static weft_status evaluate(weft_ctx *ctx, weft_world *world, void *ud)
{
    two *j = ud;
    toy_rank r;
    WEFT_TRY(toy_open(&r, ctx, world, &j->t));
    WEFT_TRY(toy_step(&r, &j->t, true, &j->dropped, NULL));
    WEFT_TRY(toy_step(&r, &j->t, false, &j->plain, NULL));
    toy_close(&r);
    return WEFT_OK;
}

static void evaluation_drops_nothing(void **state)
{
    (void)state;
    two j = {.t = problem(WEFT_GPT2)}, without = j;
    without.t.dropout = without.t.embedding_dropout = without.t.residual_dropout = 0;
    assert_ok(weft_run_threads(1, evaluate, &j));
    assert_ok(weft_run_threads(1, evaluate, &without));
    assert_true(j.plain == without.plain);
    assert_true(without.dropped == without.plain);
    assert_true(fabs(j.dropped - j.plain) > 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_have_their_probability_and_depend_on_every_part_of_the_address),
        cmocka_unit_test(channels_are_independent), cmocka_unit_test(any_layout_drops_the_same),
        cmocka_unit_test(evaluation_drops_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
