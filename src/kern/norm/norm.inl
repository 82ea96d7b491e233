/* norm.inl — template, see simd_each.inl. The formulas are in norm.ref.inl. Two passes over a row that the
 * first one brings into the cache: statistics (or row means), then the result. */

void NAME(rmsnorm_fwd)(void *y, int64_t y_ld, void *rstd, const void *x, int64_t x_ld, const void *w, int64_t rows,
                       int64_t n, double eps, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const float *x_r = (const float *)x + r * x_ld, *w_ = w;
        C *y_r = (C *)y + r * y_ld;
        const float s = (float)(1 / sqrt(row_sumsq(x_r, 0, n) / (double)n + eps));
        ((float *)rstd)[r] = s;
        const V s_v = vset(s);
        for (int64_t i = 0; i < n; i += VLEN) {
            const int64_t left = n - i;
            ST(y_r + i, vmul(vmul(vld(x_r + i, left), s_v), vld(w_ + i, left)), left);
        }
    }
}

static void NAME(rmsnorm_bwd_row)(float *dx, float *part, const C *dy, const float *x, const float *w, float s,
                                  int64_t n)
{
    const V s_v = vset(s);
    V dot = vzero();
    for (int64_t i = 0; i < n; i += VLEN) {
        const int64_t left = n - i;
        const V g_xhat = vmul(LD(dy + i, left), vmul(vld(x + i, left), s_v));
        dot = vfma(g_xhat, vld(w + i, left), dot);
        vst(part + i, vadd(vld(part + i, left), g_xhat), left);
    }
    const V mean = vset((float)((double)vsum(dot) / (double)n));
    for (int64_t i = 0; i < n; i += VLEN) {
        const int64_t left = n - i;
        const V xhat = vmul(vld(x + i, left), s_v), h = vmul(LD(dy + i, left), vld(w + i, left));
        vst(dx + i, vfma(s_v, vfnma(xhat, mean, h), vld(dx + i, left)), left);
    }
}

void NAME(rmsnorm_bwd)(void *dx, int64_t dx_ld, void *dw, const void *dy, int64_t dy_ld, const void *x, int64_t x_ld,
                       const void *w, const void *rstd, int64_t rows, int64_t n, void *work, int threads)
{
    (void)threads;
    const int64_t blocks = weft_norm_blocks(rows);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        float *part = (float *)work + b * n;
        memset(part, 0, (size_t)n * sizeof *part);
        for (int64_t r = weft_norm_block_row(b, blocks, rows); r < weft_norm_block_row(b + 1, blocks, rows); r++)
            NAME(rmsnorm_bwd_row)
            ((float *)dx + r * dx_ld, part, (const C *)dy + r * dy_ld, (const float *)x + r * x_ld, w,
             ((const float *)rstd)[r], n);
    }
    add_blocks(dw, work, blocks, n);
}

static double NAME(head_sumsq)(const C *x, int64_t n)
{
    V acc = vzero();
    for (int64_t i = 0; i < n; i += VLEN) {
        const V v = LD(x + i, n - i);
        acc = vfma(v, v, acc);
    }
    double sum = (double)vsum(acc);
    if (isfinite(sum)) return sum;
    sum = 0; /* rows.h: row_sumsq_wide */
    for (int64_t i = 0; i < n; i += VLEN) {
        float part[VLEN]; /* 0 past the end */
        vstore(part, LD(x + i, n - i));
        sum += row_sumsq_wide(part, 0, VLEN);
    }
    return sum;
}

static float NAME(headnorm_head)(C *x, C *keep, const float *w, int64_t n, double eps)
{
    memcpy(keep, x, (size_t)n * sizeof *x);
    const float s = (float)(1 / sqrt(NAME(head_sumsq)(x, n) / (double)n + eps));
    for (int64_t i = 0; i < n; i += VLEN)
        ST(x + i, vmul(vmul(LD(x + i, n - i), vset(s)), vld(w + i, n - i)), n - i);
    return s;
}

void NAME(headnorm_fwd)(void *x, int64_t x_ld, void *keep, void *rstd, const void *w, int64_t rows, int64_t heads,
                        int64_t n, double eps, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++)
            ((float *)rstd)[r * heads + h] =
                NAME(headnorm_head)((C *)x + r * x_ld + h * n, (C *)keep + (r * heads + h) * n, w, n, eps);
}

static void NAME(headnorm_bwd_head)(C *dy, float *part, const C *x, const float *w, float s, int64_t n)
{
    const V s_v = vset(s);
    V dot = vzero();
    for (int64_t i = 0; i < n; i += VLEN) {
        const int64_t left = n - i;
        const V g_xhat = vmul(LD(dy + i, left), vmul(LD(x + i, left), s_v));
        dot = vfma(g_xhat, vld(w + i, left), dot);
        vst(part + i, vadd(vld(part + i, left), g_xhat), left);
    }
    const V mean = vset((float)((double)vsum(dot) / (double)n));
    for (int64_t i = 0; i < n; i += VLEN) {
        const int64_t left = n - i;
        const V xhat = vmul(LD(x + i, left), s_v), h = vmul(LD(dy + i, left), vld(w + i, left));
        ST(dy + i, vmul(s_v, vfnma(xhat, mean, h)), left);
    }
}

void NAME(headnorm_bwd)(void *dy, int64_t dy_ld, void *dw, const void *keep, const void *w, const void *rstd,
                        int64_t rows, int64_t heads, int64_t n, void *work, int threads)
{
    (void)threads;
    const int64_t blocks = weft_norm_blocks(rows);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        float *part = (float *)work + b * n;
        memset(part, 0, (size_t)n * sizeof *part);
        for (int64_t r = weft_norm_block_row(b, blocks, rows); r < weft_norm_block_row(b + 1, blocks, rows); r++)
            for (int64_t h = 0; h < heads; h++)
                NAME(headnorm_bwd_head)((C *)dy + r * dy_ld + h * n, part, (const C *)keep + (r * heads + h) * n, w,
                                        ((const float *)rstd)[r * heads + h], n);
    }
    add_blocks(dw, work, blocks, n);
}

void NAME(layernorm_fwd)(void *y, int64_t y_ld, void *mean, void *rstd, const void *x, int64_t x_ld, const void *w,
                         const void *b, int64_t rows, int64_t n, double eps, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const float *x_r = (const float *)x + r * x_ld, *w_ = w, *b_ = b;
        C *y_r = (C *)y + r * y_ld;
        const float m = (float)(row_sum(x_r, n) / (double)n);
        const float s = (float)(1 / sqrt(row_sumsq(x_r, m, n) / (double)n + eps));
        ((float *)mean)[r] = m;
        ((float *)rstd)[r] = s;
        const V m_v = vset(m), s_v = vset(s);
        for (int64_t i = 0; i < n; i += VLEN) {
            const int64_t left = n - i;
            const V xhat = vmul(vsub(vld(x_r + i, left), m_v), s_v);
            ST(y_r + i, vfma(xhat, vld(w_ + i, left), vld(b_ + i, left)), left);
        }
    }
}

static void NAME(layernorm_bwd_row)(float *dx, float *part_w, float *part_b, const C *dy, const float *x,
                                    const float *w, float m, float s, int64_t n)
{
    const V m_v = vset(m), s_v = vset(s);
    V sum = vzero(), dot = vzero();
    for (int64_t i = 0; i < n; i += VLEN) {
        /* lanes past the row: g = 0 there, so they add nothing */
        const int64_t left = n - i;
        const V g = LD(dy + i, left), w_i = vld(w + i, left), g_xhat = vmul(g, vmul(vsub(vld(x + i, left), m_v), s_v));
        sum = vfma(g, w_i, sum);
        dot = vfma(g_xhat, w_i, dot);
        vst(part_w + i, vadd(vld(part_w + i, left), g_xhat), left);
        vst(part_b + i, vadd(vld(part_b + i, left), g), left);
    }
    const V mean_h = vset((float)((double)vsum(sum) / (double)n)),
            mean_hx = vset((float)((double)vsum(dot) / (double)n));
    for (int64_t i = 0; i < n; i += VLEN) {
        const int64_t left = n - i;
        const V xhat = vmul(vsub(vld(x + i, left), m_v), s_v), h = vmul(LD(dy + i, left), vld(w + i, left));
        vst(dx + i, vfma(s_v, vsub(vfnma(xhat, mean_hx, h), mean_h), vld(dx + i, left)), left);
    }
}

void NAME(layernorm_bwd)(void *dx, int64_t dx_ld, void *dw, void *db, const void *dy, int64_t dy_ld, const void *x,
                         int64_t x_ld, const void *w, const void *mean, const void *rstd, int64_t rows, int64_t n,
                         void *work, int threads)
{
    (void)threads;
    const int64_t blocks = weft_norm_blocks(rows);
    float *work_b = (float *)work + (int64_t)WEFT_NORM_BLOCKS * n;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        float *part_w = (float *)work + b * n, *part_b = work_b + b * n;
        memset(part_w, 0, (size_t)n * sizeof *part_w);
        memset(part_b, 0, (size_t)n * sizeof *part_b);
        for (int64_t r = weft_norm_block_row(b, blocks, rows); r < weft_norm_block_row(b + 1, blocks, rows); r++)
            NAME(layernorm_bwd_row)
            ((float *)dx + r * dx_ld, part_w, part_b, (const C *)dy + r * dy_ld, (const float *)x + r * x_ld, w,
             ((const float *)mean)[r], ((const float *)rstd)[r], n);
    }
    add_blocks(dw, work, blocks, n);
    add_blocks(db, work_b, blocks, n);
}
