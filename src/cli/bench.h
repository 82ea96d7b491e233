/* bench.h — what one bench of `weft bench NAME` is. */
#ifndef WEFT_CLI_BENCH_H
#define WEFT_CLI_BENCH_H

#include "cli/cli.h"

typedef struct weft_bench {
    const char *name;
    int ranks;                                             /* without --cp */
    bool words;                                            /* takes words after its name */
    const char *const *uses; /* keys of its options, or whole groups ("model."); ends with NULL */
    weft_status (*check)(weft_cli *cli);                   /* refusals before any rank is started; or NULL */
    weft_status (*body)(weft_cli *cli, weft_world *world); /* on every rank; COLLECTIVE */
} weft_bench;

extern const weft_bench weft_bench_profile, weft_bench_cp, weft_bench_attention_kernels, weft_bench_step,
    weft_bench_gemm, weft_bench_comm;

#endif
