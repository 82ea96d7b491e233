/* reduce.inl — template, see simd_each.inl: conversions between R and C. One thread takes a short way round
 * OpenMP, because products call these row by row. */

static void NAME(to_compute_range)(C *c, const float *r, int64_t n)
{
    for (int64_t i = 0; i < n; i += VLEN) ST(c + i, vld(r + i, n - i), n - i);
}

void NAME(to_compute)(void *c, const void *r, int64_t n, int threads)
{
    if (threads == 1) {
        NAME(to_compute_range)(c, r, n);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i += SUMS_CHUNK)
        NAME(to_compute_range)((C *)c + i, (const float *)r + i, weft_min_i64(SUMS_CHUNK, n - i));
}

static void NAME(to_real_range)(float *r, const C *c, int64_t n)
{
    for (int64_t i = 0; i < n; i += VLEN) vst(r + i, LD(c + i, n - i), n - i);
}

void NAME(to_real)(void *r, const void *c, int64_t n, int threads)
{
    if (threads == 1) {
        NAME(to_real_range)(r, c, n);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i += SUMS_CHUNK)
        NAME(to_real_range)((float *)r + i, (const C *)c + i, weft_min_i64(SUMS_CHUNK, n - i));
}

void NAME(add_real)(void *r, int64_t r_ld, const void *c, int64_t c_ld, int64_t rows, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        float *r_row = (float *)r + row * r_ld;
        const C *c_row = (const C *)c + row * c_ld;
        for (int64_t i = 0; i < n; i += VLEN) vst(r_row + i, vadd(vld(r_row + i, n - i), LD(c_row + i, n - i)), n - i);
    }
}
