/* profile_rates.h — what `weft bench profile` measures of a rank's own work (profile_rates.c), for bench_profile.c. */
#ifndef WEFT_CLI_PROFILE_RATES_H
#define WEFT_CLI_PROFILE_RATES_H

#include "cli/cli.h"

typedef struct weft_rates { /* one rank's */
    weft_ctx *ctx;
    weft_comm *comm;        /* all ranks work at once: they share the machine in a real run, too */
    weft_arena *arena;
    weft_kern kern;
    weft_gemm *gemm;
    int64_t repeats;
} weft_rates;

static inline double weft_rates_now(const weft_rates *b) { return weft_now(&b->ctx->clock); }
/* The least so far; 0: none yet. */
void weft_rates_best(double *least, double seconds);

/* Rates and times of this rank: attention, products, element-wise kernels, and what a call costs. COLLECTIVE */
weft_status weft_rates_kernels(weft_rates *b, weft_profile *p);

#endif
