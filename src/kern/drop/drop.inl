/* drop.inl — template, see simd_each.inl; the masks are in drop_real.inl. */

void NAME(drop_to_compute)(void *c, const void *y, const int64_t *index, int64_t rows, int64_t n, const weft_drop *d,
                           int threads)
{
    const drop_keys k = drop_keys_of(d);
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i += DROP_BLOCK) {
            VM keep[DROP_BLOCK / VLEN];
            drop_block(keep, &k, d, index[r], i);
            for (int64_t j = i; j < n && j < i + DROP_BLOCK; j += VLEN) {
                const V x = vld((const float *)y + r * n + j, n - j);
                ST((C *)c + r * n + j, vsel(keep[(j - i) / VLEN], vmul(x, vset(k.scale)), vzero()), n - j);
            }
        }
}
