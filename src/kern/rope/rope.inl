/* rope.inl — template, see simd_each.inl. The rotation is defined in rope.ref.inl. */

void NAME(rope)(void *x, int64_t x_ld, const void *cos, const void *sin, int64_t rows, int64_t heads, int64_t n,
                int sign, int threads)
{
    (void)threads;
    const int64_t half = n / 2;
    const V sign_v = vset(sign < 0 ? -1.0f : 1.0f);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const float *cos_r = (const float *)cos + r * half, *sin_r = (const float *)sin + r * half;
        for (int64_t h = 0; h < heads; h++) {
            C *a = (C *)x + r * x_ld + h * n, *b = a + half;
            for (int64_t i = 0; i < half; i += VLEN) {
                const int64_t left = half - i;
                const V c = vld(cos_r + i, left), s = vmul(vld(sin_r + i, left), sign_v);
                const V a_i = LD(a + i, left), b_i = LD(b + i, left);
                ST(a + i, vfnma(b_i, s, vmul(a_i, c)), left);
                ST(b + i, vfma(a_i, s, vmul(b_i, c)), left);
            }
        }
    }
}
