/* reduce.ref.inl — template, see ref_each.inl. Sums of a whole array in fixed pieces, and element-wise
 * work on whole arrays. */

double NAME(sumsq)(const void *x, int64_t n, int threads)
{
    (void)threads;
    const int64_t size = weft_reduce_piece(n), pieces = n > 0 ? weft_ceil_div(n, size) : 0;
    double part[WEFT_REDUCE_PIECES];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < pieces; p++) {
        double s = 0;
        for (int64_t i = p * size; i < weft_min_i64((p + 1) * size, n); i++)
            s += (double)((const R *)x)[i] * (double)((const R *)x)[i];
        part[p] = s;
    }
    double sum = 0;
    for (int64_t p = 0; p < pieces; p++) sum += part[p];
    return sum;
}

void NAME(axpy)(void *y, const void *x, double a, int64_t n, int threads)
{
    (void)threads;
    const R a_ = (R)a;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) ((R *)y)[i] += a_ * ((const R *)x)[i];
}

void NAME(scale)(void *x, double a, int64_t n, int threads)
{
    (void)threads;
    const R a_ = (R)a;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) ((R *)x)[i] *= a_;
}

void NAME(to_compute)(void *c, const void *r, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) ((C *)c)[i] = TO_C(((const R *)r)[i]);
}

void NAME(to_real)(void *r, const void *c, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) ((R *)r)[i] = FROM_C(((const C *)c)[i]);
}

void NAME(add_real)(void *r, int64_t r_ld, const void *c, int64_t c_ld, int64_t rows, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < n; i++)
            ((R *)r)[row * r_ld + i] += FROM_C(((const C *)c)[row * c_ld + i]);
}
