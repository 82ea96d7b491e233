/* state.c — bytes of everything that a rank keeps from step to step. */
#include "plan/plan.h"

static weft_status array_bytes(int64_t count, weft_dtype type, const char *what, int64_t *out)
{
    if (count < 0 || !weft_mul_i64(count, (int64_t)weft_dtype_size(type), out))
        return weft_fail(WEFT_ERR_REFUSED, "the model's %s do not fit into 63 bits of bytes; use smaller sizes", what);
    return WEFT_OK;
}

weft_plan_rank weft_plan_rank_of(const weft_mesh *mesh, bool sequence_parallel, int zero)
{
    return (weft_plan_rank){
        .share = {mesh->at.tp, mesh->size.tp, mesh->at.pp, mesh->size.pp, sequence_parallel},
        .ranks = weft_comm_size(mesh->dp_cp), .rank = weft_comm_rank(mesh->dp_cp), .zero = zero,
    };
}

static int64_t slice(const weft_plan_rank *r, int64_t n)
{
    if (r->zero == 0) return n;
    return weft_share_begin(n, r->ranks, r->rank + 1) - weft_share_begin(n, r->ranks, r->rank);
}

static weft_status moment_bytes(const weft_model_config *config, const weft_plan_rank *rank, weft_dtype R, int64_t *out)
{
    weft_model_ranges n;
    WEFT_TRY(weft_model_share_ranges(config, &rank->share, &n));
    int64_t count = slice(rank, n.embedding) + n.layers * slice(rank, n.layer) + slice(rank, n.tail);
    WEFT_TRY(array_bytes(count, R, "moments", out));
    if (weft_mul_i64(*out, 2, out)) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "the optimizer's moments do not fit into 63 bits of bytes; use smaller sizes");
}

weft_status weft_plan_state_bytes(const weft_model_config *config, weft_prec prec, const weft_plan_rank *rank,
                                  bool train, weft_plan_state *out)
{
    weft_dtype R = weft_prec_real(prec), C = weft_prec_compute(prec);
    int64_t n = weft_model_share_params(config, &rank->share);
    weft_plan_state s = {0};
    WEFT_TRY(array_bytes(n, R, "weights", &s.weights));
    if (C != R)
        WEFT_TRY(
            array_bytes(weft_model_share_operand_params(config, &rank->share), C, "16-bit weights", &s.copies));
    if (train) {
        s.gradients = s.weights;
        WEFT_TRY(moment_bytes(config, rank, R, &s.moments));
    }
    *out = s;
    return WEFT_OK;
}

int64_t weft_plan_state_total(const weft_plan_state *s) { return s->weights + s->copies + s->gradients + s->moments; }
