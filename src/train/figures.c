/* figures.c — repeated runs beside the roof: which roof, and the medians. */
#include "train/figures.h"

#include <stdlib.h>
#include <string.h>

static const double roof_seconds = 0.01;

weft__roof weft__roof_of(weft_isa isa, weft_prec prec)
{
    weft__roof r = {0};
    r.has = weft_isa_roof(isa, prec, &r.unit);
    return r;
}

const char *weft__roof_name(const weft__roof *r) { return r->has ? weft_roof_name(r->unit) : NULL; }

double weft__roof_now(const weft__roof *r, const weft_ctx *ctx)
{
    return r->has ? weft_roof_measure(r->unit, &ctx->clock, ctx->threads, roof_seconds) : 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double weft_sorted(double *x, int64_t n)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return x[n / 2];
}

weft_kernel_figures weft__figures(const weft__sample *x, int n, double operations)
{
    double seconds[WEFT__REPEATS_MAX], roofs[WEFT__REPEATS_MAX], share[WEFT__REPEATS_MAX];
    for (int i = 0; i < n; i++) {
        seconds[i] = x[i].seconds;
        roofs[i] = x[i].roof;
        share[i] = x[i].roof > 0 ? operations / x[i].seconds / x[i].roof : 0;
    }
    const double median = weft_sorted(seconds, n), roof = weft_sorted(roofs, n), highest = roofs[n - 1];
    return (weft_kernel_figures){.seconds = median, .flops = operations / median, .roof = roof,
                                 .share = weft_sorted(share, n),
                                 .best = highest > 0 ? operations / seconds[0] / highest : 0,
                                 .spread = (seconds[3 * n / 4] - seconds[n / 4]) / median};
}

weft_status weft_bench_numbers(weft_arena *arena, weft_dtype t, int64_t n, const char *label, void **out)
{
    enum { PERIOD = 1021 };
    const size_t size = weft_dtype_size(t);
    WEFT_TRY(weft_arena_alloc(arena, n, size, label, out));
    for (int64_t i = 0; i < n && i < PERIOD; i++) weft_store(*out, t, i, (double)(i * 7919 % PERIOD - 510) / 510);
    for (int64_t i = PERIOD; i < n; i += PERIOD)
        memcpy((char *)*out + (size_t)i * size, *out, (size_t)weft_min_i64(PERIOD, n - i) * size);
    return WEFT_OK;
}
