/* gemm_pack.inl — template, see simd_each.inl: products of operands of type C, in fp32. Packing reads and writes every
 * operand in any case; widened on the way, a product of 16-bit operands costs what one of fp32 does.
 *
 * Threads pack a block of A and of B together, then take pieces of the result as they come. An element is the sum
 * over the blocks of K, in order, of a chain of fused multiply-adds over k, in order: its bits depend on its row of
 * A, its column of B and K alone, not on other sizes or on the number of threads. */

/* The group of panels of op(A) at `row` of the block. */
static void NAME(pack_a)(const block *s, const weft_gemm_args *g, int64_t row)
{
    float *dst = s->a + row / MR * PANEL_A;
    const int64_t rows = weft_min_i64(GROUP * MR, s->M - row);
    const C *a = g->A;
    if (g->trans_a) {
        for (int64_t k = 0; k < s->K; k++) {
            const C *line = a + (s->k + k) * g->lda + s->m + row;
            for (int64_t i = 0, p = 0; i < rows; i += MR, p += PANEL_A)
                vstore(dst + p + k * VLEN, LD(line + i, rows - i));
        }
        return;
    }
    for (int64_t i = 0; i < GROUP * MR && i / MR * MR < rows; i++) {
        float *to = dst + i / MR * PANEL_A + i % MR * ROW;
        /* rows past the end: any number will do */
        const C *line = a + (s->m + row + weft_min_i64(i, rows - 1)) * g->lda + s->k;
        for (int64_t k = 0; k < s->K; k += VLEN) vstore(to + k, LD(line + k, s->K - k));
    }
}

/* VLEN columns of op(B) that are stored as rows: `columns` of them exist. */
static void NAME(pack_b_transposed)(float *dst, const C *b, int64_t ldb, int64_t columns, int64_t K)
{
    for (int64_t k = 0; k < K; k += VLEN) {
        V r[VLEN];
        for (int i = 0; i < VLEN; i++) r[i] = i < columns ? LD(b + i * ldb + k, K - k) : vzero();
        vtranspose(r);
        for (int64_t i = 0; i < weft_min_i64(VLEN, K - k); i++) vstore(dst + (k + i) * NW, r[i]);
    }
}

static void NAME(pack_b)(const block *s, const weft_gemm_args *g, int64_t column)
{
    float *dst = s->b + column / NW * PANEL_B;
    const int64_t columns = weft_min_i64(GROUP * NW, s->N - column);
    const C *b = g->B;
    if (g->trans_b) {
        for (int64_t j = 0; j < columns; j += VLEN)
            NAME(pack_b_transposed)(dst + j / NW * PANEL_B + j % NW, b + (s->n + column + j) * g->ldb + s->k, g->ldb,
                                    columns - j, s->K);
        return;
    }
    for (int64_t k = 0; k < s->K; k++) {
        const C *line = b + (s->k + k) * g->ldb + s->n + column;
        for (int64_t j = 0; j < columns; j += VLEN)
            vstore(dst + j / NW * PANEL_B + k * NW + j % NW, LD(line + j, columns - j));
    }
}

/* dst (fp32) = tile + bias, or += that. */
static void NAME(put_row)(float *dst, const float *tile, const float *bias, bool add, int64_t n)
{
    for (int64_t j = 0; j < n; j += VLEN) {
        V v = vload(tile + j);
        if (bias) v = vadd(v, vld(bias + j, n - j));
        vst(dst + j, add ? vadd(vld(dst + j, n - j), v) : v, n - j);
    }
}

/* c (C) = tile + bias + what earlier blocks of K gave, or += that. */
static void NAME(round_row)(C *c, const float *sum, const float *tile, const float *bias, bool add, int64_t n)
{
    for (int64_t j = 0; j < n; j += VLEN) {
        V v = vload(tile + j);
        if (sum) v = vadd(vld(sum + j, n - j), v);
        if (bias) v = vadd(v, vld(bias + j, n - j));
        ST(c + j, add ? vadd(LD(c + j, n - j), v) : v, n - j);
    }
}

/* One row of a tile, at (row, column) of the block. */
static void NAME(finish_row)(const block *s, const weft_gemm_args *g, const float *tile, int64_t row, int64_t column,
                             int64_t n)
{
    const int64_t at = (s->m + row) * g->ldc + s->n + column;
    float *sum = s->sum ? s->sum + row * s->sum_ld + column : NULL;
    const float *bias = g->bias && s->last ? (const float *)g->bias + s->n + column : NULL;
    if (g->c == WEFT_F32) NAME(put_row)((float *)result_of(g) + at, tile, bias, !s->first || g->beta, n);
    else if (!s->last) NAME(put_row)(sum, tile, NULL, !s->first, n);
    else NAME(round_row)((C *)result_of(g) + at, s->first ? NULL : sum, tile, bias, g->beta, n);
}

static inline target NAME(target_of)(const block *s, const weft_gemm_args *g, int64_t row, int64_t column, int64_t rows)
{
    const bool sum = !s->last && g->c != WEFT_F32;
    const int64_t size = g->c == WEFT_F32 || sum ? (int64_t)sizeof(float) : (int64_t)sizeof(C);
    const int64_t ld = (sum ? s->sum_ld : g->ldc) * size;
    const char *at = sum ? (const char *)s->sum + row * ld + column * size
                         : (const char *)result_of(g) + (s->m + row) * ld + (s->n + column) * size;
    return (target){at, at + (rows - 1) * ld, ld};
}

/* The tile at (row, column) of the block. */
static void NAME(multiply_tile)(const block *s, const weft_gemm_args *g, int64_t row, int64_t column)
{
    float tile[MR * NW];
    const float *a = s->a + row / MR * PANEL_A, *b = s->b + column / NW * PANEL_B;
    const int64_t rows = weft_min_i64(MR, s->M - row), columns = weft_min_i64(NW, s->N - column);
    (g->trans_a ? block_columns : block_rows)(tile, a, b, s->K, NAME(target_of)(s, g, row, column, rows));
    for (int64_t r = 0; r < rows; r++) NAME(finish_row)(s, g, tile + r * NW, row + r, column, columns);
}

/* The piece of the block at (row, column): a panel of B is used by all panels of A of a group. */
static void NAME(multiply_piece)(const block *s, const weft_gemm_args *g, int64_t row, int64_t column)
{
    const int64_t last_row = weft_min_i64(row + GROUP * MR, s->M), last = weft_min_i64(column + GROUP * NW, s->N);
    for (int64_t j = column; j < last; j += NW)
        for (int64_t i = row; i < last_row; i += MR) NAME(multiply_tile)(s, g, i, j);
}

/* By all threads of a team. */
static void NAME(multiply_block)(const block *s, const weft_gemm_args *g)
{
    const int64_t ga = weft_ceil_div(s->M, GROUP * MR), gb = weft_ceil_div(s->N, GROUP * NW);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < ga + gb; i++)
        if (i < ga) NAME(pack_a)(s, g, i * GROUP * MR);
        else NAME(pack_b)(s, g, (i - ga) * GROUP * NW);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < ga * gb; i++) NAME(multiply_piece)(s, g, i % ga * GROUP * MR, i / ga * GROUP * NW);
}

void NAME(gemm_packed)(const weft_gemm_args *g, float *work, int threads)
{
    const cut d = cut_of(g);
    (void)threads;
#pragma omp parallel num_threads(threads)
    {
        const simd_mode mode = simd_enter();
        block s = {.a = work, .b = work + d.a, .sum = d.sum ? work + d.a + d.b : NULL, .sum_ld = d.N};
        for (s.m = 0; s.m < g->M; s.m += d.M)
            for (s.n = 0; s.n < g->N; s.n += d.N)
                for (s.k = 0; s.k < g->K; s.k += d.K) {
                    s.M = weft_min_i64(d.M, g->M - s.m);
                    s.N = weft_min_i64(d.N, g->N - s.n);
                    s.K = weft_min_i64(d.K, g->K - s.k);
                    s.first = s.k == 0;
                    s.last = s.k + s.K == g->K;
                    NAME(multiply_block)(&s, g);
                }
        simd_leave(mode);
    }
}
