/* state.c — bytes of everything that a rank keeps from step to step. */
#include "plan/plan.h"

static weft_status array_bytes(int64_t count, weft_dtype type, const char *what, int64_t *out)
{
    if (count < 0 || !weft_mul_i64(count, (int64_t)weft_dtype_size(type), out))
        return weft_fail(WEFT_ERR_REFUSED, "the model's %s do not fit into 63 bits of bytes; use smaller sizes", what);
    return WEFT_OK;
}

weft_status weft_plan_state_bytes(const weft_model_config *config, const weft_model_share *share, weft_prec prec,
                                  bool train, weft_plan_state *out)
{
    weft_dtype R = weft_prec_real(prec), C = weft_prec_compute(prec);
    int64_t n = weft_model_share_params(config, share);
    weft_plan_state s = {0};
    WEFT_TRY(array_bytes(n, R, "weights", &s.weights));
    if (C != R) WEFT_TRY(array_bytes(weft_model_share_operand_params(config, share), C, "16-bit weights", &s.copies));
    if (train) {
        s.gradients = s.weights;
        if (!weft_mul_i64(2, s.weights, &s.moments))
            return weft_fail(WEFT_ERR_REFUSED,
                             "the optimizer's moments do not fit into 63 bits of bytes; use smaller sizes");
    }
    *out = s;
    return WEFT_OK;
}

int64_t weft_plan_state_total(const weft_plan_state *s) { return s->weights + s->copies + s->gradients + s->moments; }
