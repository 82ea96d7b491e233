/* The list of a model's products is what its step calls: every product of a recorded step is on the list, as often as
 * the list says. */
/* labels: small */
#include "toy.h"

#include <string.h>

enum { ROOM = 512 };

typedef struct call { const toy *t; double sum; weft_gemm_args log[ROOM]; int64_t calls; } call;

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    call *c = ud;
    toy_rank r;
    WEFT_TRY(toy_open(&r, ctx, world, c->t));
    weft_gemm_record(r.gemm, c->log, ROOM);
    weft_status st = toy_step(&r, c->t, true, &c->sum, NULL);
    c->calls = weft_gemm_recorded(r.gemm);
    toy_close(&r);
    return st;
}

/* Values of operands apart. */
static bool alike(const weft_gemm_args *a, const weft_gemm_args *b)
{
    return a->ab == b->ab && a->c == b->c && a->trans_a == b->trans_a && a->trans_b == b->trans_b && a->M == b->M &&
           a->N == b->N && a->K == b->K && a->lda == b->lda && a->ldb == b->ldb && a->ldc == b->ldc &&
           a->beta == b->beta;
}

static void check(weft_family family, weft_prec prec)
{
    static const int32_t token[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2, 3},
                         target[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2, 3, 4};
    const toy t = {.config = toy_config(family, 3), .prec = prec, .P = 1, .B = 2,
                   .T = 7, .strategy = "none", .token = token, .target = target, .grad_scale = 1};
    static call c;
    weft_model_product list[WEFT_MODEL_PRODUCTS];
    int64_t sum = 0;
    c = (call){.t = &t};
    assert_ok(weft_run_threads(1, body, &c));
    assert_true(c.calls > 0 && c.calls <= ROOM);
    assert_ok(weft_model_products(&t.config, prec, t.B * t.T, list));
    for (int i = 0; i < WEFT_MODEL_PRODUCTS; i++) {
        int64_t found = 0, same = 0; /* products of other names may have the same shape */
        for (int64_t k = 0; k < c.calls; k++) found += alike(&c.log[k], &list[i].args);
        for (int k = 0; k < WEFT_MODEL_PRODUCTS; k++)
            if (alike(&list[k].args, &list[i].args)) same += list[k].calls;
        if (found != same) fail_msg("%s: a step calls it %d times", list[i].name, (int)found);
        sum += list[i].calls;
    }
    assert_int_equal(sum, c.calls);
}

static void the_list_is_what_a_step_calls(void **state)
{
    (void)state;
    check(WEFT_LLAMA, WEFT_PREC_F32);
    check(WEFT_LLAMA, WEFT_PREC_BF16);
    check(WEFT_QWEN2, WEFT_PREC_F64);
    check(WEFT_GPT2, WEFT_PREC_BF16);
}

/* 64 MiB of logits: a head over many rows is called for some of them at a time. */
static void a_large_head_is_called_in_pieces(void **state)
{
    weft_model_product list[WEFT_MODEL_PRODUCTS];
    weft_model_config c = toy_config(WEFT_LLAMA, 1);
    (void)state;
    c.V = 1 << 20;
    assert_ok(weft_model_products(&c, WEFT_PREC_F32, 100, list));
    assert_string_equal(list[12].name, "head forward");
    assert_int_equal(list[12].args.M, 16);
    assert_int_equal(list[12].calls, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_is_what_a_step_calls),
        cmocka_unit_test(a_large_head_is_called_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
