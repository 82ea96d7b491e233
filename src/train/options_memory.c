/* options_memory.c — what a run keeps between forward and backward passes: what was asked for, as the model takes
 * it. */
#include "train/options_impl.h"

weft_status weft_run_resolve_memory(weft_run *run, const weft_run_options *o)
{
    run->recompute = WEFT_RECOMPUTE_NONE;
    if (o->recompute && !weft_recompute_parse(o->recompute, &run->recompute))
        return weft_fail(WEFT_ERR_REFUSED, "--recompute %s is unknown; use none, attention, block or full",
                         o->recompute);
    if (o->keep_attention && run->recompute == WEFT_RECOMPUTE_NONE)
        return weft_fail(WEFT_ERR_REFUSED, "--recompute-keep-attention could not act: without --recompute attention's "
                         "output is kept anyway; add --recompute attention, block or full");
    return WEFT_OK;
}
