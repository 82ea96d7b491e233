/* step_bench.h — between the steps of `weft bench step` and the figures that are made of them over all ranks. */
#ifndef WEFT_TRAIN_STEP_BENCH_H
#define WEFT_TRAIN_STEP_BENCH_H

#include "train/trainer_impl.h"

enum { WEFT__STEP_SAMPLES = WEFT_BENCH_REPEATS_MAX };

typedef struct weft__step_sample { /* of one rank's step */
    double seconds, part[WEFT_PARTS];
    double flight, exposed;  /* seconds with a transfer under way; that the rank stood still for one */
    double attention;        /* in attention kernels */
} weft__step_sample;

typedef struct weft__step_samples {
    weft__step_sample x[WEFT__STEP_SAMPLES];
    int n;
    weft_bytes sent;             /* in the last step */
    double *area;                /* [micros] visible area by micro-batch of a step */
    int64_t micros;
} weft__step_samples;

/* Fills what `out` says of time, bytes and imbalance. `arena`: for a table over ranks. COLLECTIVE over the world */
weft_status weft__step_figures(const weft_engine *e, weft_arena *arena, const weft__step_samples *s,
                               weft_step_bench *out);

#endif
