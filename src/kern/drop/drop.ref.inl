/* drop.ref.inl — template, see ref_each.inl: what is dropped is not read, so NaN there does no harm. */

void NAME(drop_add)(void *to, const void *from, const void *y, const int64_t *index, int64_t rows, int64_t n,
                    const weft_drop *d, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            const R keep = (R)weft_drop_factor(d, index[r], i);
            const R dropped = keep != 0 ? ((const R *)y)[r * n + i] * keep : 0;
            ((R *)to)[r * n + i] = from ? ((const R *)from)[r * n + i] + dropped : dropped;
        }
}

void NAME(drop_to_compute)(void *c, const void *y, const int64_t *index, int64_t rows, int64_t n, const weft_drop *d,
                           int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            const R keep = (R)weft_drop_factor(d, index[r], i);
            ((C *)c)[r * n + i] = TO_C(keep != 0 ? ((const R *)y)[r * n + i] * keep : 0);
        }
}
