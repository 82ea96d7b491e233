/* check_products.c — matrix products as this machine runs them (oneDNN, packed, plain) against plain sums in double. */
#include "kern/check/check_impl.h"

#include <math.h>
#include <string.h>

static const int64_t sizes[][3] = {{1, 7, 33}, {5, 33, 1}, {33, 129, 7}, {65, 65, 65}, {3, 40, 300}};
enum { SIZES = sizeof sizes / sizeof *sizes, VARIANTS = 8 /* two transpositions and beta */ };

static void *numbers(weft_check_memory *m, weft_dtype t, int64_t n, uint64_t seed, double **values)
{
    void *x = weft__check_take(m, (size_t)n * weft_dtype_size(t), 64);
    *values = weft__check_take(m, (size_t)n * sizeof **values, 64);
    for (int64_t i = 0; i < n; i++) {
        weft_store(x, t, i, weft__check_number(seed, i) / 3);
        (*values)[i] = weft_load(x, t, i);
    }
    return x;
}

/* K products of values below 1, summed in fp32: at most K eps times the sum of moduli (<= K), in practice its square
 * root; and the result's own rounding, in fp16 of subnormals, too. */
static double limit_of(weft_dtype ab, weft_dtype c, int64_t K, double want)
{
    const double unit = c == WEFT_F64 ? 0x1p-53 : c == WEFT_F32 ? 0x1p-24 : c == WEFT_F16 ? 0x1p-11 : 0x1p-8;
    const double sum = ab == WEFT_F64 ? 0x1p-53 : 0x1p-24;
    return 2 * sum * (double)(K + 8) + unit * 1.01 * fabs(want) + (c == WEFT_F16 ? 1e-7 : 0);
}

static double sum_of(const weft_gemm_args *g, const double *a, const double *b, int64_t i, int64_t j)
{
    double s = 0;
    for (int64_t k = 0; k < g->K; k++)
        s += a[g->trans_a ? k * g->lda + i : i * g->lda + k] * b[g->trans_b ? j * g->ldb + k : k * g->ldb + j];
    return s;
}

static weft_status check_one(weft_gemm *gemm, weft_dtype ab, weft_dtype c, const int64_t size[3], int variant,
                             weft_check_memory *m, weft_line *line)
{
    const int64_t M = size[0], N = size[1], K = size[2];
    double *a, *b, *before;
    m->used = 0;
    weft_gemm_args g = {.ab = ab, .c = c, .trans_a = variant & 1, .trans_b = (variant & 2) != 0, .M = M, .N = N, .K = K,
                        .beta = variant >> 2};
    g.lda = g.trans_a ? M : K, g.ldb = g.trans_b ? K : N, g.ldc = N;
    g.A = numbers(m, ab, M * K, 1, &a), g.B = numbers(m, ab, K * N, 2, &b), g.C = numbers(m, c, M * N, 3, &before);
    WEFT_TRY(weft_gemm_run(gemm, &g, NULL));
    for (int64_t i = 0; i < M * N; i++) {
        const double want = sum_of(&g, a, b, i / N, i % N) + (g.beta ? before[i] : 0), got = weft_load(g.C, c, i);
        if (fabs(got - want) <= limit_of(ab, c, K, want)) continue;
        weft_line_add(line, "%lld x %lld, sums of %lld, into %s: %.7g instead of %.7g", (long long)M, (long long)N,
                      (long long)K, weft_dtype_name(c), got, want);
        return WEFT_ERR_COMPARE;
    }
    return WEFT_OK;
}

weft_status weft__check_products(weft_gemm *gemm, weft_prec prec, weft_check_memory *memory, char *text, size_t n)
{
    const weft_dtype ab = weft_prec_compute(prec), results[2] = {weft_prec_real(prec), ab};
    weft_line line = {text, n, 0};
    for (int r = 0; r < (results[0] == ab ? 1 : 2); r++)
        for (int s = 0; s < SIZES; s++)
            for (int variant = 0; variant < VARIANTS; variant++)
                WEFT_TRY(check_one(gemm, ab, results[r], sizes[s], variant, memory, &line));
    return WEFT_OK;
}
