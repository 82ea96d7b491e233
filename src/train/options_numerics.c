/* options_numerics.c — loss scale, numerics guard, loss spikes: what was asked for, as the trainer takes it. */
#include "train/options_impl.h"

#include <math.h>
#include <string.h>

static weft_status resolve_loss_scale(weft_run *run, const weft_run_options *o)
{
    const char *text = o->loss_scale;
    double scale = 0;
    int exponent = 0;
    run->loss_scale = 1;
    run->loss_scale_dynamic = !strcmp(text, "dynamic") || (!strcmp(text, "auto") && run->prec == WEFT_PREC_F16);
    if (run->loss_scale_dynamic) run->loss_scale = weft_scaler_start(0, 1).scale;
    if (run->loss_scale_dynamic || !strcmp(text, "auto")) return WEFT_OK;
    if (weft_parse_f64(text, &scale) < 0 || !(scale > 0) || !isfinite(scale))
        return weft_fail(WEFT_ERR_REFUSED, "--loss-scale %s: give auto, dynamic, or a power of two such as 1024", text);
    if (frexp(scale, &exponent) != 0.5) /* another factor would round every gradient */
        return weft_fail(WEFT_ERR_REFUSED, "--loss-scale %s is no power of two; %g is the next below it", text,
                         ldexp(0.5, exponent));
    run->loss_scale = scale;
    return WEFT_OK;
}

static weft_status refuse_idle(const weft_opts *opts, const char *key, const char *needs)
{
    if (!weft_opts_given(opts, key)) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s could not act: it needs %s", key, needs);
}

weft_status weft_run_resolve_numerics(weft_run *run, const weft_opts *opts, const weft_run_options *o)
{
    static const char *const of_spikes[] = {"spike.window", "spike.warmup", "spike.policy"};
    WEFT_TRY(resolve_loss_scale(run, o));
    run->guard.limit = o->guard_limit;
    run->guard.policy = WEFT_GUARD_OFF;
    while (strcmp(o->guard, weft_guard_policy_name(run->guard.policy)) != 0) run->guard.policy++;
    run->spike = (weft_spike){.zscore = o->spike_zscore, .window = o->spike_window, .warmup = o->spike_warmup};
    run->spike_policy = WEFT_GUARD_OFF;
    while (strcmp(o->spike_policy, weft_guard_policy_name(run->spike_policy)) != 0) run->spike_policy++;
    if (!run->loss_scale_dynamic)
        WEFT_TRY(refuse_idle(opts, "optim.loss_scale_interval", "--loss-scale dynamic (the default with fp16)"));
    if (run->guard.policy == WEFT_GUARD_OFF) WEFT_TRY(refuse_idle(opts, "guard.limit", "--guard warn, skip or stop"));
    for (int i = 0; i < 3 && o->spike_zscore == 0; i++)
        WEFT_TRY(refuse_idle(opts, of_spikes[i], "--spike-zscore above 0"));
    return WEFT_OK;
}
