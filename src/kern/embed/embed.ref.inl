/* embed.ref.inl — template, see ref_each.inl. Look-up of rows of a table, its transpose (a scatter-add),
 * and adding a vector to every row with its transpose (column sums). */

void NAME(bias_fwd)(void *y, int64_t y_ld, const void *b, int64_t rows, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        C *y_r = (C *)y + r * y_ld;
        for (int64_t i = 0; i < n; i++) y_r[i] = TO_C(FROM_C(y_r[i]) + ((const R *)b)[i]);
    }
}

void NAME(bias_fwd_r)(void *y, int64_t y_ld, const void *b, int64_t rows, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        R *y_r = (R *)y + r * y_ld;
        for (int64_t i = 0; i < n; i++) y_r[i] += ((const R *)b)[i];
    }
}

void NAME(bias_bwd)(void *db, const void *dy, int64_t dy_ld, int64_t rows, int64_t n, void *work, int threads)
{
    (void)threads;
    const int64_t blocks = weft_norm_blocks(rows);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        R *part = (R *)work + b * n;
        for (int64_t i = 0; i < n; i++) part[i] = 0;
        for (int64_t r = weft_norm_block_row(b, blocks, rows); r < weft_norm_block_row(b + 1, blocks, rows); r++)
            for (int64_t i = 0; i < n; i++) part[i] += FROM_C(((const C *)dy)[r * dy_ld + i]);
    }
    for (int64_t i = 0; i < n; i++) {
        double s = 0;
        for (int64_t b = 0; b < blocks; b++) s += (double)((const R *)work)[b * n + i];
        ((R *)db)[i] += (R)s;
    }
}

void NAME(embed_fwd)(void *x, const int32_t *id, const int64_t *pos, const void *table, const void *pos_table,
                     int64_t rows, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        R *x_r = (R *)x + r * n;
        const R *t = id[r] >= 0 ? (const R *)table + id[r] * n : NULL;
        const R *p = pos_table ? (const R *)pos_table + pos[r] * n : NULL;
        /* a loop each: one with conditions inside has no vectors */
        if (t && p)
            for (int64_t i = 0; i < n; i++) x_r[i] = t[i] + p[i];
        else if (t || p)
            for (int64_t i = 0; i < n; i++) x_r[i] = (t ? t : p)[i];
        else
            for (int64_t i = 0; i < n; i++) x_r[i] = 0;
    }
}

/* Threads share the columns, never the rows: each column is summed in row order whatever their number. */
void NAME(embed_bwd)(void *dtable, void *dpos_table, const int32_t *id, const int64_t *pos, const void *dx,
                     int64_t rows, int64_t n, int threads)
{
    enum { COLUMNS = 64 }; /* a few cache lines, so that threads do not write to the same one */
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < n; c += COLUMNS) {
        const int64_t end = weft_min_i64(c + COLUMNS, n);
        for (int64_t r = 0; r < rows; r++) {
            const R *dx_r = (const R *)dx + r * n;
            R *t = id[r] >= 0 ? (R *)dtable + id[r] * n : NULL, *p = dpos_table ? (R *)dpos_table + pos[r] * n : NULL;
            for (int64_t i = c; t && i < end; i++) t[i] += dx_r[i];
            for (int64_t i = c; p && i < end; i++) p[i] += dx_r[i];
        }
    }
}
