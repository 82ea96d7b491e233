/* guard.ref.inl — template, see ref_each.inl: max |x| of rows, NaN when any element is one. */

double NAME(guard)(const void *x, int64_t ld, int64_t rows, int64_t n, int threads)
{
    (void)threads;
    double most = 0;
    int nans = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(max : most) reduction(+ : nans)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            double magnitude = fabs((double)FROM_C(((const C *)x)[r * ld + i]));
            nans += isnan(magnitude);
            most = fmax(most, magnitude);
        }
    return nans ? (double)NAN : most;
}

double NAME(guard_r)(const void *x, int64_t ld, int64_t rows, int64_t n, int threads)
{
    (void)threads;
    double most = 0;
    int nans = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(max : most) reduction(+ : nans)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            double magnitude = fabs((double)((const R *)x)[r * ld + i]);
            nans += isnan(magnitude);
            most = fmax(most, magnitude);
        }
    return nans ? (double)NAN : most;
}
