/* sums.inl — sums, scaling and adding of arrays of R on a SIMD vocabulary; the same for every precision
 * whose R is float. */

enum { SUMS_CHUNK = 16384 }; /* elements per piece of work for a thread */

/* In double, or the square of a large but finite gradient would be infinite. The products are exact, and the
 * sixteen sums side by side are those of no register width: every instruction set gives the same bits. */
static double sumsq_range(const float *x, int64_t n)
{
    double s[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) s[j] += (double)x[i + j] * (double)x[i + j];
    for (; i < n; i++) s[i % 16] += (double)x[i] * (double)x[i];
    for (int width = 8; width; width /= 2)
        for (int j = 0; j < width; j++) s[j] += s[j + width];
    return s[0];
}

double SIMD_NAME(weft_sumsq_f32)(const void *x, int64_t n, int threads)
{
    (void)threads;
    const int64_t size = weft_reduce_piece(n), pieces = n > 0 ? weft_ceil_div(n, size) : 0;
    double part[WEFT_REDUCE_PIECES];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < pieces; p++)
        part[p] = sumsq_range((const float *)x + p * size, weft_min_i64(size, n - p * size));
    double sum = 0;
    for (int64_t p = 0; p < pieces; p++) sum += part[p];
    return sum;
}

static void axpy_range(float *y, const float *x, V a, int64_t n)
{
    for (int64_t i = 0; i < n; i += VLEN) vst(y + i, vfma(a, vld(x + i, n - i), vld(y + i, n - i)), n - i);
}

void SIMD_NAME(weft_axpy_f32)(void *y, const void *x, double a, int64_t n, int threads)
{
    (void)threads;
    const V a_v = vset((float)a);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i += SUMS_CHUNK)
        axpy_range((float *)y + i, (const float *)x + i, a_v, weft_min_i64(SUMS_CHUNK, n - i));
}

static void scale_range(float *x, V a, int64_t n)
{
    for (int64_t i = 0; i < n; i += VLEN) vst(x + i, vmul(vld(x + i, n - i), a), n - i);
}

void SIMD_NAME(weft_scale_f32)(void *x, double a, int64_t n, int threads)
{
    (void)threads;
    const V a_v = vset((float)a);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i += SUMS_CHUNK) scale_range((float *)x + i, a_v, weft_min_i64(SUMS_CHUNK, n - i));
}

void SIMD_NAME(weft_bias_fwd_r_f32)(void *y, int64_t y_ld, const void *b, int64_t rows, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        float *y_r = (float *)y + r * y_ld;
        for (int64_t i = 0; i < n; i += VLEN)
            vst(y_r + i, vadd(vld(y_r + i, n - i), vld((const float *)b + i, n - i)), n - i);
    }
}
