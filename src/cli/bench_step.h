/* bench_step.h — between the files of `weft bench step`: one job, its lights, and several jobs one after the other. */
#ifndef WEFT_CLI_BENCH_STEP_H
#define WEFT_CLI_BENCH_STEP_H

#include "cli/bench.h"

/* Model operations over what the arithmetic units of all ranks do in the same time; 0 where no unit was measured. */
double weft_step_mfu(const weft_step_bench *r);
/* What the rank that holds most has more than the mean, as a share of it. */
double weft_step_spread(const weft_step_bench *r);

/* bench_lights.c: a figure of the step as a light, and what could be done about it ("" where it is fine). */
typedef struct weft_step_light {
    weft_light_kind kind;
    weft_light light;
    double value;
    const char *advice;
} weft_step_light;
void weft_step_lights(const weft_cli *cli, const weft_step_bench *r, weft_step_light out[WEFT_LIGHTS]);
void weft_print_lights(const weft_step_light lights[WEFT_LIGHTS]);

/* bench_sweep.c: refuses what is no sweep, and asks for one rank, which starts the jobs. */
weft_status weft_sweep_check(weft_cli *cli);
weft_status weft_sweep_run(weft_cli *cli);

#endif
