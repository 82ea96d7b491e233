/* tp_case.h — a toy cut over tp and cp against the same on one rank. */
#ifndef WEFT_TEST_TP_CASE_H
#define WEFT_TEST_TP_CASE_H

#include "toy.h"

/* fp64 rounds at 1e-16; sums here have some thousand terms. */
static const double limit = 1e-12;

static inline void check_same(const toy *a, const toy *one, double nll, double gradients)
{
    assert_at_most(fabs(a->nll_sum - one->nll_sum) / fmax(1, fabs(one->nll_sum)), nll);
    assert_at_most(weft_rel_l2(a->token_nll, WEFT_F64, one->token_nll, WEFT_F64, one->B * one->T, 0), nll);
    assert_at_most(weft_rel_l2(a->grads, WEFT_F64, one->grads, WEFT_F64, one->count, 0), gradients);
}

static inline toy run_one(toy t)
{
    t.P = t.tp = 1;
    t.sequence_parallel = false;
    t.strategy = "none";
    t.layout = (weft_layout){WEFT_LAYOUT_CONTIGUOUS, 0};
    assert_ok(toy_run(&t));
    return t;
}

static inline void check_cut(toy t, const toy *one, int tp, int cp, bool sequence_parallel, double nll,
                             double gradients)
{
    t.tp = tp;
    t.P = cp;
    t.sequence_parallel = sequence_parallel;
    t.strategy = cp == 1 ? "none" : cp % 2 ? "ring" : "pcp";
    t.layout = (weft_layout){cp == 1 ? WEFT_LAYOUT_CONTIGUOUS : WEFT_LAYOUT_ZIGZAG, 0};
    assert_ok(toy_run(&t));
    check_same(&t, one, nll, gradients);
    toy_free(&t);
}

#endif
