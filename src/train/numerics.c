/* numerics.c — whether a step is taken: numerics guard, loss scale, spikes of the loss. Every decision follows from
 * numbers that all ranks have, so all take a step or leave it out.
 *
 * A step that is left out changes no weight, no moment, no count of updates (AdamW's correction of its bias). The data
 * and the learning rate's schedule go on: the next step reads the next sequences. */
#include "train/trainer_impl.h"

#include <math.h>

void weft__numerics_open(weft_numerics *n, const weft_run *run)
{
    *n =
        (weft_numerics){.spike = run->spike, .scaler = weft_scaler_start(run->loss_scale, run->o->loss_scale_interval)};
}

void weft__numerics_begin(weft_trainer *t, weft_record *r)
{
    weft_numerics *n = &t->numerics;
    weft_guard *guard = &t->ctx->guard;
    r->loss_scale = n->scaler.scale;
    guard->policy = t->run->guard.policy;
    guard->limit = t->run->guard.limit;
    /* At the least scale an overflow is no matter of scaling any more. */
    weft_guard_begin(guard, t->step + 1, n->scaler.scale,
                     t->run->loss_scale_dynamic && n->scaler.scale > n->scaler.least);
}

int64_t weft_trainer_skips(const weft_trainer *t) { return t->numerics.skips; }

static void leave_out(weft_trainer *t, weft_record *r, weft_skip why)
{
    r->skip = why;
    t->numerics.skips++;
}

/* The loss is the same number on all ranks. */
static weft_status judge_loss(weft_trainer *t, weft_record *r)
{
    const weft_run *run = t->run;
    if (!isfinite(r->loss))
        return weft_fail(WEFT_ERR_NUMERIC,
                         "the loss of step %lld is not finite; lower optim.lr or look at the data%s%s",
                         (long long)t->step + 1,
                         run->guard.policy == WEFT_GUARD_OFF ? "; --guard warn names the first such number" : "",
                         run->prec == WEFT_PREC_F16 ? "; fp16 ends at 65504, --precision bf16 does not" : "");
    r->spike = weft_spike_step(&t->numerics.spike, r->loss, &r->loss_zscore);
    if (!r->spike) return WEFT_OK;
    if (run->spike_policy == WEFT_GUARD_STOP)
        return weft_fail(WEFT_ERR_NUMERIC,
                         "the loss of step %lld, %.4f, lies %.1f standard deviations above its running mean %.4f; "
                         "--spike-policy warn goes on",
                         (long long)t->step + 1, r->loss, r->loss_zscore, t->numerics.spike.mean);
    if (run->spike_policy == WEFT_GUARD_SKIP) leave_out(t, r, WEFT_SKIP_SPIKE);
    else if (t->ctx->rank == 0)
        weft_logf(&t->ctx->log, WEFT_LOG_WARN, "the loss of step %lld, %.4f, is a spike: %.1f standard deviations",
                  (long long)t->step + 1, r->loss, r->loss_zscore);
    return WEFT_OK;
}

weft_status weft__numerics_judge(weft_trainer *t, weft_record *r)
{
    if (t->ctx->guard.policy != WEFT_GUARD_OFF) {
        r->guard_ranks = t->ctx->guard.found;
        WEFT_TRY(weft_all_reduce(t->engine.mesh.all, &r->guard_ranks, 1, WEFT_I64, WEFT_SUM));
    }
    if (r->guard_ranks && t->ctx->guard.policy == WEFT_GUARD_SKIP) leave_out(t, r, WEFT_SKIP_GUARD);
    else WEFT_TRY(judge_loss(t, r));
    return WEFT_OK;
}

weft_status weft__numerics_norm(weft_trainer *t, weft_record *r)
{
    weft_numerics *n = &t->numerics;
    bool finite = isfinite(r->grad_norm);
    if (!t->run->loss_scale_dynamic) return WEFT_OK; /* the update refuses what is not finite, with the tensor */
    if (!finite && n->scaler.scale <= n->scaler.least)
        return weft_fail(WEFT_ERR_NUMERIC,
                         "the gradients of step %lld are not finite at the least loss scale, %g: it is not the scale; "
                         "--guard names the first such number",
                         (long long)t->step + 1, n->scaler.least);
    if (!weft_scaler_update(&n->scaler, finite)) leave_out(t, r, WEFT_SKIP_OVERFLOW);
    return WEFT_OK;
}
