/* gemm.ref.c — the specification of the product, and how fp64 is computed. Blocks of both operands are
 * converted to double on the stack, so one inner loop serves all types; sums are in double and rounded
 * once. The order of an element's sum is that of K and nothing else: any layout of rows over ranks or
 * threads gives the same bits, which is what fp64 runs prove things with. */
#include "kern/gemm/gemm_impl.h"

enum { MB = 32, NB = 64, KB = 64 }; /* 16 + 32 + 16 KiB of stack per thread; the A and acc rows stay in L1 */

typedef struct tile { double a[MB][KB], b[KB][NB], acc[MB][NB]; } tile;

/* dst[r, c] of a block [rows, cols] of op(X), where X is stored with leading dimension ld. */
static void load_block(double *dst, int64_t dst_ld, const void *x, weft_dtype t, int64_t ld, bool trans, int64_t row,
                       int64_t col, int64_t rows, int64_t cols)
{
    const char *base = x;
    const int64_t size = (int64_t)weft_dtype_size(t);
    if (!trans) {
        for (int64_t r = 0; r < rows; r++)
            weft_convert(dst + r * dst_ld, WEFT_F64, base + ((row + r) * ld + col) * size, t, cols);
        return;
    }
    for (int64_t c = 0; c < cols; c++) {
        double line[NB]; /* rows <= MB or KB, both at most NB */
        weft_convert(line, WEFT_F64, base + ((col + c) * ld + row) * size, t, rows);
        for (int64_t r = 0; r < rows; r++) dst[r * dst_ld + c] = line[r];
    }
}

/* acc += a b for k products. Four at a time save loads and stores of acc; the order is that of one. */
static void multiply(tile *t, int64_t rows, int64_t k)
{
    for (int64_t i = 0; i < rows; i++) {
        double *acc = t->acc[i];
        int64_t p = 0;
        for (; p + 4 <= k; p += 4) {
            const double a0 = t->a[i][p], a1 = t->a[i][p + 1], a2 = t->a[i][p + 2], a3 = t->a[i][p + 3];
            const double *b0 = t->b[p], *b1 = t->b[p + 1], *b2 = t->b[p + 2], *b3 = t->b[p + 3];
            for (int j = 0; j < NB; j++) acc[j] = (((acc[j] + a0 * b0[j]) + a1 * b1[j]) + a2 * b2[j]) + a3 * b3[j];
        }
        for (; p < k; p++)
            for (int j = 0; j < NB; j++) acc[j] += t->a[i][p] * t->b[p][j];
    }
}

static void store_block(const tile *t, const weft_gemm_args *args, int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        double line[NB];
        char *c = (char *)args->C + ((row + r) * args->ldc + col) * (int64_t)weft_dtype_size(args->c);
        if (args->beta) weft_convert(line, WEFT_F64, c, args->c, cols);
        for (int64_t j = 0; j < cols; j++) line[j] = args->beta ? line[j] + t->acc[r][j] : t->acc[r][j];
        for (int64_t j = 0; args->bias && j < cols; j++)
            line[j] += weft_load(args->bias, args->ab == WEFT_F64 ? WEFT_F64 : WEFT_F32, col + j);
        weft_convert(c, args->c, line, WEFT_F64, cols);
    }
}

static void compute_block(const weft_gemm_args *args, int64_t row, int64_t col)
{
    tile t;
    const int64_t rows = weft_min_i64(MB, args->M - row), cols = weft_min_i64(NB, args->N - col);
    for (int i = 0; i < MB; i++)
        for (int j = 0; j < NB; j++) t.acc[i][j] = 0;
    for (int p = 0; p < KB; p++)
        for (int j = 0; j < NB; j++) t.b[p][j] = 0; /* columns past the edge are computed and dropped */
    for (int64_t k0 = 0; k0 < args->K; k0 += KB) {
        const int64_t k = weft_min_i64(KB, args->K - k0);
        load_block(&t.a[0][0], KB, args->A, args->ab, args->lda, args->trans_a, row, k0, rows, k);
        load_block(&t.b[0][0], NB, args->B, args->ab, args->ldb, args->trans_b, k0, col, k, cols);
        multiply(&t, rows, k);
    }
    store_block(&t, args, row, col, rows, cols);
}

void weft_gemm_ref(const weft_gemm_args *args, int threads)
{
    (void)threads;
    const int64_t across = weft_ceil_div(args->N, NB), blocks = weft_ceil_div(args->M, MB) * across;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) compute_block(args, b / across * MB, b % across * NB);
}
