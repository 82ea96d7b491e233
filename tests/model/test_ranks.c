/* labels: small tsan */
/* A model cut over P ranks gives the result of one rank: loss, each token's nll, gradients summed over
 * ranks. fp64, so that anything but the order of additions shows. */
#include "toy.h"

/* fp64 rounds at 1e-16; sums here have some thousand terms. */
static const double limit = 1e-12;

typedef struct setting { const char *strategy; weft_layout_kind layout; } setting;
static const setting settings[] = {
    {"pcp", WEFT_LAYOUT_CONTIGUOUS}, {"pcp", WEFT_LAYOUT_ZIGZAG}, {"ring", WEFT_LAYOUT_CONTIGUOUS},
    {"ring", WEFT_LAYOUT_ZIGZAG},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

static void check_same(const toy *a, const toy *one)
{
    assert_at_most(fabs(a->nll_sum - one->nll_sum) / fmax(1, fabs(one->nll_sum)), limit);
    assert_at_most(weft_rel_l2(a->token_nll, WEFT_F64, one->token_nll, WEFT_F64, one->B * one->T, 0), limit);
    assert_at_most(weft_rel_l2(a->grads, WEFT_F64, one->grads, WEFT_F64, one->count, 0), limit);
}

/* Runs t on one rank and on every P, strategy and layout. */
static void check_all_cuts(toy t)
{
    toy one = t;
    one.P = 1;
    one.strategy = "none";
    one.layout = (weft_layout){WEFT_LAYOUT_CONTIGUOUS, 0};
    assert_ok(toy_run(&one));
    for (int P = 2; P <= 4; P++)
        for (int s = 0; s < SETTINGS; s++) {
            toy cut = t;
            cut.P = P;
            cut.strategy = settings[s].strategy;
            cut.layout = (weft_layout){settings[s].layout, 0};
            assert_ok(toy_run(&cut));
            check_same(&cut, &one);
            toy_free(&cut);
        }
    toy_free(&one);
}

static void check_family(weft_model_config c)
{
    int32_t token[34], target[34];
    static const int64_t cu[] = {0, 5, 5, 17, 0, 1, 17}, first[] = {0, 4, 7};
    toy_tokens(token, target, 34, c.V);
    check_all_cuts((toy){.config = c, .prec = WEFT_PREC_F64, .B = 2, .T = 17, .cu = cu, .first = first, .token = token,
                         .target = target});
}

static void llama(void **state)
{
    (void)state;
    check_family(toy_config(WEFT_LLAMA, 2));
}

static void qwen2_with_full_and_windowed_layers(void **state)
{
    (void)state;
    weft_model_config c = toy_config(WEFT_QWEN2, 2);
    c.window = 4;
    c.window_from_layer = 1;
    check_family(c);
}

static void qwen3(void **state)
{
    (void)state;
    check_family(toy_config(WEFT_QWEN3, 1));
}

static void mistral(void **state)
{
    (void)state;
    check_family(toy_config(WEFT_MISTRAL, 1));
}

static void gpt2(void **state)
{
    (void)state;
    check_family(toy_config(WEFT_GPT2, 1));
}

/* Three tokens on four ranks: some hold no row and still take part. */
static void ranks_without_tokens(void **state)
{
    (void)state;
    int32_t token[3] = {1, 2, 3}, target[3] = {2, 3, 4};
    check_all_cuts((toy){.config = toy_config(WEFT_LLAMA, 2), .prec = WEFT_PREC_F64, .B = 1, .T = 3, .token = token,
                         .target = target});
}

/* G11: labels at 0..3 of 16 tokens only; with zigzag on four ranks, ranks 2 and 3 hold none and add 0. */
static void g11_ranks_without_a_label(void **state)
{
    (void)state;
    int32_t token[16], target[16];
    toy_tokens(token, target, 16, 11);
    for (int i = 0; i < 16; i++) target[i] = i < 4 ? i : -100;
    toy t = {.config = toy_config(WEFT_LLAMA, 1), .prec = WEFT_PREC_F64, .B = 1, .T = 16, .token = token,
             .target = target,
             .grad_scale = 0.25};
    check_all_cuts(t);
    t.P = 4;
    t.layout = (weft_layout){WEFT_LAYOUT_ZIGZAG, 0};
    t.strategy = "ring";
    assert_ok(toy_run(&t));
    assert_true(t.rank_sum[2] == 0 && t.rank_sum[3] == 0 && t.rank_sum[0] > 0);
    toy_free(&t);
}

/* G11: no label anywhere: everything is finite and exactly 0. */
static void g11_no_label_at_all(void **state)
{
    (void)state;
    int32_t token[6] = {1, 2, 3, 4, 5, 6}, target[6] = {-1, -1, -1, -100, -100, -1};
    toy t = {.config = toy_config(WEFT_QWEN3, 1), .prec = WEFT_PREC_F64, .P = 2, .strategy = "pcp", .B = 1, .T = 6,
             .token = token, .target = target};
    assert_ok(toy_run(&t));
    assert_true(t.nll_sum == 0);
    for (int64_t i = 0; i < t.count; i++) assert_true(t.grads[i] == 0);
    toy_free(&t);
}

/* G03, G04: parts with 1 and with 3 labels. Scaled by the count of the whole step, gradients of the parts
 * add up to that of the whole; a mean of means would not. */
static void g03_g04_gradients_of_parts_add_up(void **state)
{
    (void)state;
    int32_t token[16], target[16];
    toy_tokens(token, target, 16, 11);
    int32_t one_label[16], three_labels[16], both[16];
    for (int i = 0; i < 16; i++) {
        one_label[i] = i == 2 ? 5 : -100;
        three_labels[i] = i == 9 || i == 12 || i == 15 ? i - 8 : -100;
        both[i] = one_label[i] >= 0 ? one_label[i] : three_labels[i];
    }
    toy a = {.config = toy_config(WEFT_LLAMA, 1), .prec = WEFT_PREC_F64, .P = 1, .strategy = "none", .B = 1, .T = 16,
             .token = token, .target = one_label, .grad_scale = 0.25};
    toy b = a, all = a;
    b.target = three_labels;
    all.target = both;
    all.P = 2;
    all.strategy = "ring";
    assert_ok(toy_run(&a));
    assert_ok(toy_run(&b));
    assert_ok(toy_run(&all));
    for (int64_t i = 0; i < a.count; i++) a.grads[i] += b.grads[i];
    assert_at_most(weft_rel_l2(a.grads, WEFT_F64, all.grads, WEFT_F64, a.count, 0), limit);
    assert_at_most(fabs(a.nll_sum + b.nll_sum - all.nll_sum), limit);
    toy_free(&a);
    toy_free(&b);
    toy_free(&all);
}

/* G12: with all weights 0 every logit is 0 and every token costs ln V, whatever the number of ranks. */
static void g12_zero_logits_cost_ln_v(void **state)
{
    (void)state;
    int32_t token[16], target[16];
    toy_tokens(token, target, 16, 8);
    weft_model_config c = toy_config(WEFT_LLAMA, 1);
    c.V = 8;
    double *zero = calloc((size_t)weft_model_params(&c), sizeof *zero);
    for (int P = 1; P <= 4; P++) {
        toy t = {.config = c, .prec = WEFT_PREC_F64, .P = P, .strategy = P == 1 ? "none" : "pcp", .B = 1, .T = 16,
                 .token = token, .target = target, .weights = zero};
        int64_t valid = 0;
        assert_ok(toy_run(&t));
        for (int i = 0; i < 16; i++) valid += target[i] >= 0;
        assert_at_most(fabs(t.nll_sum / (double)valid - log(8)), 1e-15);
        toy_free(&t);
    }
    free(zero);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama),
        cmocka_unit_test(qwen2_with_full_and_windowed_layers),
        cmocka_unit_test(qwen3),
        cmocka_unit_test(mistral),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(ranks_without_tokens),
        cmocka_unit_test(g11_ranks_without_a_label),
        cmocka_unit_test(g11_no_label_at_all),
        cmocka_unit_test(g03_g04_gradients_of_parts_add_up),
        cmocka_unit_test(g12_zero_logits_cost_ln_v),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
