/* schedule.c — the learning rate of a step, and the check of the options: pure arithmetic, so that a resumed
 * run and every rank get the same double. */
#include "optim/optim.h"

#include <math.h>

static weft_status check_number(const char *name, double x, double low, double high, const char *range)
{
    if (x >= low && x <= high) return WEFT_OK; /* false for NaN */
    return weft_fail(WEFT_ERR_REFUSED, "optimizer: %s %g is outside its range %s", name, x, range);
}

weft_status weft_optim_check(const weft_optim_options *o)
{
    const double below_one = nextafter(1.0, 0.0), tiny = nextafter(0.0, 1.0), huge = 1e30;
    WEFT_TRY(check_number("learning rate", o->lr, 0, huge, ">= 0"));
    WEFT_TRY(check_number("least learning rate", o->min_lr, 0, huge, ">= 0"));
    WEFT_TRY(check_number("beta1", o->beta1, 0, below_one, "[0, 1)"));
    WEFT_TRY(check_number("beta2", o->beta2, 0, below_one, "[0, 1)"));
    WEFT_TRY(check_number("epsilon", o->eps, tiny, huge, "> 0"));
    WEFT_TRY(check_number("weight decay", o->weight_decay, 0, huge, ">= 0"));
    WEFT_TRY(check_number("clipping norm", o->clip, 0, huge, ">= 0 (0: no clipping)"));
    if (o->zero < 0 || o->zero > 1)
        return weft_fail(WEFT_ERR_REFUSED,
                         "optimizer: ZeRO stage %d; 0 (every rank holds all moments) and 1 (its slice) work", o->zero);
    if (o->min_lr > o->lr)
        return weft_fail(WEFT_ERR_REFUSED, "optimizer: the least learning rate %.15g is above the learning rate %.15g",
                         o->min_lr, o->lr);
    if (o->warmup_steps < 0 || o->decay_steps < 0)
        return weft_fail(WEFT_ERR_REFUSED, "optimizer: warm-up %lld and decay %lld are numbers of steps, >= 0",
                         (long long)o->warmup_steps, (long long)o->decay_steps);
    if (o->decay_steps > 0 && o->decay_steps <= o->warmup_steps)
        return weft_fail(WEFT_ERR_REFUSED,
                         "optimizer: the decay ends at step %lld, inside the warm-up of %lld steps; give more than "
                         "%lld, or 0 for a constant rate",
                         (long long)o->decay_steps, (long long)o->warmup_steps, (long long)o->warmup_steps);
    return WEFT_OK;
}

/* The first step already moves: (step + 1) / warm-up, not step / warm-up, whose first step would be lost. */
double weft_lr_at(const weft_optim_options *o, int64_t step)
{
    const double pi = 3.14159265358979323846;
    if (step < o->warmup_steps) return o->lr * (double)(step + 1) / (double)o->warmup_steps;
    if (o->decay_steps == 0) return o->lr;
    if (step >= o->decay_steps) return o->min_lr;
    double part = (double)(step - o->warmup_steps) / (double)(o->decay_steps - o->warmup_steps);
    return o->min_lr + 0.5 * (1.0 + cos(pi * part)) * (o->lr - o->min_lr);
}
