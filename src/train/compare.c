/* compare.c — the proof a run carries along: its first steps again on one rank, in this process alone. */
#include "train/train.h"

#include <math.h>

double weft_compare_limit(weft_prec prec)
{
    /* Sums are taken in another order, and training amplifies each rounding a little with every step. Over the
     * first tens of steps fp32 stays within 1e-5 of a loss of a few nats; 16-bit operands round at 2^-9. */
    return prec == WEFT_PREC_F64 ? 1e-9 : prec == WEFT_PREC_F32 ? 1e-3 : 5e-2;
}

static weft_status run_steps(weft_trainer *t, const double *losses, int64_t steps, double *worst,
                             void (*progress)(void *ud, int64_t step), void *ud)
{
    *worst = 0;
    for (int64_t s = 0; s < steps; s++) {
        weft_record r;
        WEFT_TRY(weft_trainer_step(t, &r));
        double d = fabs(r.loss - losses[s]);
        if (!(d <= *worst)) *worst = isnan(d) ? INFINITY : d;
        progress(ud, s + 1);
    }
    return WEFT_OK;
}

weft_status weft_compare_one_rank(const weft_run *run, int threads, const weft_log *log, const double *losses,
                                  int64_t steps, double *worst, void (*progress)(void *ud, int64_t step), void *ud)
{
    weft_run_options o = *run->o;
    weft_run one = *run;
    weft_ctx ctx;
    weft_world *self = NULL;
    weft_trainer *t = NULL;
    if (!o.global_batch) o.global_batch = o.micro_batch * run->mesh.dp; /* the same sequences per step */
    one.o = &o;
    weft_run_one_rank(&one);
    weft_ctx_init(&ctx);
    ctx.threads = threads;
    ctx.log = *log;
    WEFT_TRY(weft_world_self(&self, &ctx));
    weft_status st = weft_trainer_create(&t, self, &one);
    if (st >= 0) st = run_steps(t, losses, steps, worst, progress, ud);
    weft_trainer_destroy(t);
    weft_world_close(self);
    return st;
}
