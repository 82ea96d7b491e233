/* figures.h — repeated runs beside the roof of the arithmetic units, for the benches of kernels.
 *
 * Machines drift: the clock rate of shared ones moves by tens of per cent within minutes. So the units are measured
 * just before and just after every run, the share is taken run by run, and the median of the shares counts. A run that
 * is too short for the clock is repeated inside one measurement. */
#ifndef WEFT_TRAIN_FIGURES_H
#define WEFT_TRAIN_FIGURES_H

#include "train/train.h"

enum { WEFT__REPEATS_MIN = 5, WEFT__REPEATS_MAX = WEFT_BENCH_REPEATS_MAX };
static const double weft__run_seconds = 0.03;   /* what one measurement takes at least */
static const double weft__enough_seconds = 4;   /* no more repeats than the minimum past these */

typedef struct weft__sample { double seconds, roof; } weft__sample;

typedef struct weft__roof { /* which units the kernels of an instruction set and precision use */
    bool has;               /* the reference kernels have none */
    weft_roof_unit unit;
} weft__roof;

weft__roof weft__roof_of(weft_isa isa, weft_prec prec);
const char *weft__roof_name(const weft__roof *r); /* NULL: none */
/* Operations per second of all threads; 0 where there is no roof. Takes some 10 ms. */
double weft__roof_now(const weft__roof *r, const weft_ctx *ctx);
/* Medians over x[n], at most WEFT__REPEATS_MAX, of runs of so many operations. */
weft_kernel_figures weft__figures(const weft__sample *x, int n, double operations);

#endif
