/* norm.ref.inl — template, see ref_each.inl.
 *
 *   rmsnorm    xhat = x rstd,           rstd = 1 / sqrt(mean(x^2) + eps),        y = xhat w
 *   layernorm  xhat = (x - mean) rstd,  rstd = 1 / sqrt(mean((x-mean)^2) + eps), y = xhat w + b
 * Backward, with h = dy w and the row means <.>:
 *   rmsnorm    dx = rstd (h - xhat <h xhat>)
 *   layernorm  dx = rstd (h - <h> - xhat <h xhat>)
 *   dw = sum_rows dy xhat,  db = sum_rows dy
 * (Zhang & Sennrich 2019; Ba, Kiros & Hinton 2016.) Row sums are taken in double: a mean of n squares in
 * float loses digits that every later use of rstd multiplies. */

static double NAME(norm_sumsq)(const R *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (double)x[i] * (double)x[i];
    return s;
}

void NAME(rmsnorm_fwd)(void *y, int64_t y_ld, void *rstd, const void *x, int64_t x_ld, const void *w, int64_t rows,
                       int64_t n, double eps, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const R *x_r = (const R *)x + r * x_ld, *w_ = w;
        C *y_r = (C *)y + r * y_ld;
        const R s = (R)(1 / sqrt(NAME(norm_sumsq)(x_r, n) / (double)n + eps));
        ((R *)rstd)[r] = s;
        for (int64_t i = 0; i < n; i++) y_r[i] = TO_C(x_r[i] * s * w_[i]);
    }
}

/* Adds partial rows, in order, to the result. */
static void NAME(norm_sum_blocks)(R *dw, const R *part, int64_t blocks, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double s = 0;
        for (int64_t b = 0; b < blocks; b++) s += (double)part[b * n + i];
        dw[i] += (R)s;
    }
}

void NAME(rmsnorm_bwd)(void *dx, int64_t dx_ld, void *dw, const void *dy, int64_t dy_ld, const void *x, int64_t x_ld,
                       const void *w, const void *rstd, int64_t rows, int64_t n, void *work, int threads)
{
    (void)threads;
    const int64_t blocks = weft_norm_blocks(rows);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        R *part = (R *)work + b * n;
        const R *w_ = w;
        for (int64_t i = 0; i < n; i++) part[i] = 0;
        for (int64_t r = weft_norm_block_row(b, blocks, rows); r < weft_norm_block_row(b + 1, blocks, rows); r++) {
            const R *x_r = (const R *)x + r * x_ld;
            const C *dy_r = (const C *)dy + r * dy_ld;
            R *dx_r = (R *)dx + r * dx_ld;
            const R s = ((const R *)rstd)[r];
            double dot = 0;
            for (int64_t i = 0; i < n; i++) {
                const R g = FROM_C(dy_r[i]), xhat = x_r[i] * s;
                dot += (double)(g * w_[i]) * (double)xhat;
                part[i] += g * xhat;
            }
            const R mean = (R)(dot / (double)n);
            for (int64_t i = 0; i < n; i++) dx_r[i] += s * (FROM_C(dy_r[i]) * w_[i] - x_r[i] * s * mean);
        }
    }
    NAME(norm_sum_blocks)(dw, work, blocks, n);
}

void NAME(headnorm_fwd)(void *x, int64_t x_ld, void *keep, void *rstd, const void *w, int64_t rows, int64_t heads,
                        int64_t n, double eps, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++) {
            C *x_h = (C *)x + r * x_ld + h * n, *keep_h = (C *)keep + (r * heads + h) * n;
            const R *w_ = w;
            double ss = 0;
            for (int64_t i = 0; i < n; i++) {
                keep_h[i] = x_h[i];
                ss += (double)FROM_C(x_h[i]) * (double)FROM_C(x_h[i]);
            }
            const R s = (R)(1 / sqrt(ss / (double)n + eps));
            ((R *)rstd)[r * heads + h] = s;
            for (int64_t i = 0; i < n; i++) x_h[i] = TO_C(FROM_C(keep_h[i]) * s * w_[i]);
        }
}

static void NAME(headnorm_bwd_head)(C *dy, R *part, const C *x, const R *w, R s, int64_t n)
{
    double dot = 0;
    for (int64_t i = 0; i < n; i++) {
        const R g = FROM_C(dy[i]), xhat = FROM_C(x[i]) * s;
        dot += (double)(g * w[i]) * (double)xhat;
        part[i] += g * xhat;
    }
    const R mean = (R)(dot / (double)n);
    for (int64_t i = 0; i < n; i++) dy[i] = TO_C(s * (FROM_C(dy[i]) * w[i] - FROM_C(x[i]) * s * mean));
}

void NAME(headnorm_bwd)(void *dy, int64_t dy_ld, void *dw, const void *keep, const void *w, const void *rstd,
                        int64_t rows, int64_t heads, int64_t n, void *work, int threads)
{
    (void)threads;
    const int64_t blocks = weft_norm_blocks(rows);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        R *part = (R *)work + b * n;
        for (int64_t i = 0; i < n; i++) part[i] = 0;
        for (int64_t r = weft_norm_block_row(b, blocks, rows); r < weft_norm_block_row(b + 1, blocks, rows); r++)
            for (int64_t h = 0; h < heads; h++)
                NAME(headnorm_bwd_head)((C *)dy + r * dy_ld + h * n, part, (const C *)keep + (r * heads + h) * n, w,
                                        ((const R *)rstd)[r * heads + h], n);
    }
    NAME(norm_sum_blocks)(dw, work, blocks, n);
}

void NAME(layernorm_fwd)(void *y, int64_t y_ld, void *mean, void *rstd, const void *x, int64_t x_ld, const void *w,
                         const void *b, int64_t rows, int64_t n, double eps, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const R *x_r = (const R *)x + r * x_ld, *w_ = w, *b_ = b;
        C *y_r = (C *)y + r * y_ld;
        double sum = 0, var = 0;
        for (int64_t i = 0; i < n; i++) sum += (double)x_r[i];
        const R m = (R)(sum / (double)n);
        /* second pass: mean(x^2) - mean^2 cancels */
        for (int64_t i = 0; i < n; i++) var += (double)(x_r[i] - m) * (double)(x_r[i] - m);
        const R s = (R)(1 / sqrt(var / (double)n + eps));
        ((R *)mean)[r] = m;
        ((R *)rstd)[r] = s;
        for (int64_t i = 0; i < n; i++) y_r[i] = TO_C((x_r[i] - m) * s * w_[i] + b_[i]);
    }
}

static void NAME(layernorm_bwd_row)(R *dx, R *part_w, R *part_b, const C *dy, const R *x, const R *w, R m, R s,
                                    int64_t n)
{
    double sum = 0, dot = 0;
    for (int64_t i = 0; i < n; i++) {
        const R g = FROM_C(dy[i]), xhat = (x[i] - m) * s;
        sum += (double)(g * w[i]);
        dot += (double)(g * w[i]) * (double)xhat;
        part_w[i] += g * xhat;
        part_b[i] += g;
    }
    const R mean_h = (R)(sum / (double)n), mean_hx = (R)(dot / (double)n);
    for (int64_t i = 0; i < n; i++) dx[i] += s * (FROM_C(dy[i]) * w[i] - mean_h - (x[i] - m) * s * mean_hx);
}

void NAME(layernorm_bwd)(void *dx, int64_t dx_ld, void *dw, void *db, const void *dy, int64_t dy_ld, const void *x,
                         int64_t x_ld, const void *w, const void *mean, const void *rstd, int64_t rows, int64_t n,
                         void *work, int threads)
{
    (void)threads;
    const int64_t blocks = weft_norm_blocks(rows);
    R *part_b = (R *)work + (int64_t)WEFT_NORM_BLOCKS * n;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        for (int64_t i = 0; i < n; i++) ((R *)work)[b * n + i] = part_b[b * n + i] = 0;
        for (int64_t r = weft_norm_block_row(b, blocks, rows); r < weft_norm_block_row(b + 1, blocks, rows); r++)
            NAME(layernorm_bwd_row)((R *)dx + r * dx_ld, (R *)work + b * n, part_b + b * n, (const C *)dy + r * dy_ld,
                                    (const R *)x + r * x_ld, w, ((const R *)mean)[r], ((const R *)rstd)[r], n);
    }
    NAME(norm_sum_blocks)(dw, work, blocks, n);
    NAME(norm_sum_blocks)(db, part_b, blocks, n);
}
