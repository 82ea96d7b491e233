/* rows.h — over avx2.h or avx512.h: loads and stores that take what is left of a row, and sums of rows.
 * Include it after the vocabulary. Only static inline, as there. */
#ifndef WEFT_KERN_SIMD_ROWS_H
#define WEFT_KERN_SIMD_ROWS_H

#include <math.h>

/* The first min(left, VLEN) elements. */
static inline V vld(const float *p, int64_t left) { return left >= VLEN ? vload(p) : vloadn(p, left); }
static inline void vst(float *p, V a, int64_t left)
{
    if (left >= VLEN) vstore(p, a);
    else vstoren(p, a, left);
}

/* Sums of a row: four vectors side by side hide the latency of addition; float sums are short (SUM_CHUNK
 * elements) and add up in double, so the error does not grow with the row. */
enum { SUM_CHUNK = 2048 };

/* The same sums in double, for rows of which they are no floats. An infinite sum of squares made rstd 0, and a row of
 * numbers that explode a row of zeros. */
static inline double row_sum_wide(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    return sum;
}
static inline double row_sumsq_wide(const float *x, float shift, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += ((double)x[i] - (double)shift) * ((double)x[i] - (double)shift);
    return sum;
}

/* sum (x - shift)^2 */
static inline double row_sumsq(const float *x, float shift, int64_t n)
{
    const V s = vset(shift);
    double sum = 0;
    for (int64_t c = 0; c < n; c += SUM_CHUNK) {
        const int64_t end = c + SUM_CHUNK < n ? c + SUM_CHUNK : n;
        V acc[4] = {vzero(), vzero(), vzero(), vzero()};
        int64_t i = c;
        for (; i + 4 * VLEN <= end; i += 4 * VLEN)
            for (int j = 0; j < 4; j++) {
                const V d = vsub(vload(x + i + j * VLEN), s);
                acc[j] = vfma(d, d, acc[j]);
            }
        for (; i < end; i += VLEN) {
            const V d = vsel(vmask_n(end - i), vsub(vld(x + i, end - i), s), vzero());
            acc[0] = vfma(d, d, acc[0]);
        }
        sum += (double)vsum(vadd(vadd(acc[0], acc[1]), vadd(acc[2], acc[3])));
    }
    return isfinite(sum) ? sum : row_sumsq_wide(x, shift, n);
}

static inline double row_sum(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c += SUM_CHUNK) {
        const int64_t end = c + SUM_CHUNK < n ? c + SUM_CHUNK : n;
        V acc = vzero();
        for (int64_t i = c; i < end; i += VLEN) acc = vadd(acc, vld(x + i, end - i));
        sum += (double)vsum(acc);
    }
    return isfinite(sum) ? sum : row_sum_wide(x, n);
}

/* dst[i] += sum_b part[b, i], the blocks in order, in double. */
static inline void add_blocks(float *dst, const float *part, int64_t blocks, int64_t n)
{
    enum { COLUMNS = 64 };
    for (int64_t c = 0; c < n; c += COLUMNS) {
        const int64_t m = n - c < COLUMNS ? n - c : COLUMNS;
        double s[COLUMNS] = {0};
        for (int64_t b = 0; b < blocks; b++)
            for (int64_t i = 0; i < m; i++) s[i] += (double)part[b * n + c + i];
        for (int64_t i = 0; i < m; i++) dst[c + i] += (float)s[i];
    }
}

#endif
