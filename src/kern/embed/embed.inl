/* embed.inl — template, see simd_each.inl: the bias. (Look-ups only move memory; the reference does it.) */

void NAME(bias_fwd)(void *y, int64_t y_ld, const void *b, int64_t rows, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        C *y_r = (C *)y + r * y_ld;
        for (int64_t i = 0; i < n; i += VLEN)
            ST(y_r + i, vadd(LD(y_r + i, n - i), vld((const float *)b + i, n - i)), n - i);
    }
}

void NAME(bias_bwd)(void *db, const void *dy, int64_t dy_ld, int64_t rows, int64_t n, void *work, int threads)
{
    (void)threads;
    const int64_t blocks = weft_norm_blocks(rows);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        float *part = (float *)work + b * n;
        for (int64_t i = 0; i < n; i++) part[i] = 0;
        for (int64_t r = weft_norm_block_row(b, blocks, rows); r < weft_norm_block_row(b + 1, blocks, rows); r++) {
            const C *dy_r = (const C *)dy + r * dy_ld;
            for (int64_t i = 0; i < n; i += VLEN)
                vst(part + i, vadd(vld(part + i, n - i), LD(dy_r + i, n - i)), n - i);
        }
    }
    add_blocks(db, work, blocks, n);
}
