/* labels: long */
/* Every family on every tp from 1 to 4 and 8, with and without sequence parallelism, on one and two ranks of cp, in
 * fp64 and fp32: loss, each token's nll and all gradients are those of one rank. */
#include "tp_case.h"

static void check_grid(weft_model_config c, weft_prec prec, double nll, double gradients)
{
    int32_t token[66], target[66];
    static const int64_t cu[] = {0, 5, 5, 33, 0, 1, 33}, first[] = {0, 4, 7};
    static const int tp[] = {1, 2, 3, 4, 8};
    toy_tokens(token, target, 66, c.V);
    toy t = {.config = c, .prec = prec, .B = 2, .T = 33, .cu = cu, .first = first, .token = token, .target = target};
    toy one = run_one(t);
    for (int i = 0; i < 5; i++)
        for (int cp = 1; cp <= 3; cp++)
            for (int sp = 0; sp < (tp[i] > 1 ? 2 : 1); sp++) check_cut(t, &one, tp[i], cp, sp, nll, gradients);
    toy_free(&one);
}

static void check_family(weft_family family)
{
    weft_model_config c = toy_config(family, 2);
    check_grid(c, WEFT_PREC_F64, limit, limit);
    check_grid(c, WEFT_PREC_F32, 1e-5, 2e-5); /* the project's limits */
    if (family != WEFT_GPT2) { /* groups of 5 query heads, which most cuts go through */
        c.H = 15;
        c.Hkv = 3;
        c.V = 13;
        check_grid(c, WEFT_PREC_F64, limit, limit);
    }
}

static void llama(void **state)
{
    (void)state;
    check_family(WEFT_LLAMA);
}

static void qwen2(void **state)
{
    (void)state;
    check_family(WEFT_QWEN2);
}

static void qwen3(void **state)
{
    (void)state;
    check_family(WEFT_QWEN3);
}

static void mistral(void **state)
{
    (void)state;
    check_family(WEFT_MISTRAL);
}

static void gpt2(void **state)
{
    (void)state;
    check_family(WEFT_GPT2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama), cmocka_unit_test(qwen2), cmocka_unit_test(qwen3), cmocka_unit_test(mistral),
        cmocka_unit_test(gpt2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
