/* options_impl.h — between the option table and the parts of its resolution. */
#ifndef WEFT_OPTIONS_IMPL_H
#define WEFT_OPTIONS_IMPL_H

#include "train/train.h"

/* Fills run->cp and *cp, the size of the context-parallel group. LOCAL */
weft_status weft_run_resolve_cp(weft_run *run, const weft_opts *opts, const weft_run_options *o, int64_t *cp);

/* Fills in loss scale, guard and spikes, after run->prec. LOCAL */
weft_status weft_run_resolve_numerics(weft_run *run, const weft_opts *opts, const weft_run_options *o);

/* Fills in recomputation and offloading. LOCAL */
weft_status weft_run_resolve_memory(weft_run *run, const weft_run_options *o);

#endif
