/* rope.ref.inl — template, see ref_each.inl. Pair (i, i + n/2) turns by the angle of its row (Su et al.
 * 2021, in the half-split order of Llama checkpoints). An odd last element has no partner and stays. */

void NAME(rope)(void *x, int64_t x_ld, const void *cos, const void *sin, int64_t rows, int64_t heads, int64_t n,
                int sign, int threads)
{
    (void)threads;
    const int64_t half = n / 2;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const R *cos_r = (const R *)cos + r * half, *sin_r = (const R *)sin + r * half;
        for (int64_t h = 0; h < heads; h++) {
            C *a = (C *)x + r * x_ld + h * n, *b = a + half;
            for (int64_t i = 0; i < half; i++) {
                const R s = sign < 0 ? -sin_r[i] : sin_r[i];
                const R a_i = FROM_C(a[i]), b_i = FROM_C(b[i]);
                a[i] = TO_C(a_i * cos_r[i] - b_i * s);
                b[i] = TO_C(b_i * cos_r[i] + a_i * s);
            }
        }
    }
}
