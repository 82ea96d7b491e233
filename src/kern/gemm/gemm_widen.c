/* gemm_widen.c — products of 16-bit operands through fp32 copies, where the CPU has no fast instruction for
 * them. oneDNN 2.6 refuses fp16 everywhere and bf16 below AVX-512, and vdpbf16ps runs at half the rate of an
 * fp32 FMA: 1024^3 on one core gave 75-84 GFLOP/s in bf16 and 111-139 through fp32, copies included.
 *
 * Copies are made panel by panel, so that a product with a large weight needs no second, larger weight.
 * Products of two 16-bit numbers are exact in fp32: only the order of sums differs from a native product. */
#include "kern/gemm/gemm_impl.h"

/* 8 MiB per panel: enough rows to hide the cost of copying, few enough to stay near the cache. */
enum { PANEL_FLOATS = 2 << 20, PANEL_MIN = 256, PANEL_MAX = 1024 };

typedef struct operand { /* stored rows and columns of a 16-bit matrix */
    weft_dtype type;
    char *data;
    int64_t ld;
} operand;

static int64_t panel_rows(int64_t count, int64_t K)
{
    return weft_min_i64(count, weft_max_i64(PANEL_MIN, weft_min_i64(PANEL_MAX, PANEL_FLOATS / K)));
}

static operand block_of(const void *data, weft_dtype type, int64_t ld, int64_t row, int64_t col)
{
    return (operand){type, (char *)data + (row * ld + col) * 2, ld};
}

/* Dense fp32 from a block of 16-bit rows, or back. */
static void widen(const weft_gemm *gemm, float *dst, operand src, int64_t rows, int64_t cols)
{
    const weft_kern_ops *op = &gemm->kern.op[src.type == WEFT_BF16 ? WEFT_PREC_BF16 : WEFT_PREC_F16];
#pragma omp parallel for num_threads(gemm->ctx->threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) op->to_real(dst + r * cols, src.data + r * src.ld * 2, cols, 1);
}

static void narrow(const weft_gemm *gemm, operand dst, const float *src, int64_t rows, int64_t cols)
{
    const weft_kern_ops *op = &gemm->kern.op[dst.type == WEFT_BF16 ? WEFT_PREC_BF16 : WEFT_PREC_F16];
#pragma omp parallel for num_threads(gemm->ctx->threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) op->to_compute(dst.data + r * dst.ld * 2, src + r * cols, cols, 1);
}

/* A panel of `lines` rows (of op(A)) or columns (of op(B)) from `first` on: stored that way, or as columns. */
static void widen_panel(const weft_gemm *gemm, float *dst, const void *x, weft_dtype type, int64_t ld,
                        bool lines_are_columns, int64_t first, int64_t lines, int64_t K)
{
    if (lines_are_columns) widen(gemm, dst, block_of(x, type, ld, 0, first), K, lines);
    else widen(gemm, dst, block_of(x, type, ld, first, 0), lines, K);
}

static weft_status multiply_panels(weft_gemm *gemm, const weft_gemm_args *args, weft_gemm_args *wide, int64_t m,
                                   int64_t n)
{
    if (args->c == WEFT_F32) {
        wide->C = (float *)args->C + m * args->ldc + n;
        wide->ldc = args->ldc;
        return weft_gemm_dnn_run(gemm, wide);
    }
    const operand c = block_of(args->C, args->c, args->ldc, m, n);
    wide->ldc = wide->N;
    if (args->beta) widen(gemm, wide->C, c, wide->M, wide->N);
    WEFT_TRY(weft_gemm_dnn_run(gemm, wide));
    narrow(gemm, c, wide->C, wide->M, wide->N);
    return WEFT_OK;
}

/* Bytes of the panels a, b and c, one after another. Panels are small against the operands, which exist: only
 * K can be large enough to overflow. */
static weft_status reserve(weft_gemm *gemm, int64_t m_panel, int64_t n_panel, int64_t K)
{
    int64_t ab;
    if (!weft_mul_i64(m_panel + n_panel, K, &ab)) ab = -1;
    size_t bytes = 0;
    WEFT_TRY(weft_size_of(ab, sizeof(float), "gemm: fp32 copies of the operands", &bytes));
    return weft_gemm_reserve(gemm, &gemm->wide, "fp32 copies", bytes + (size_t)(m_panel * n_panel) * sizeof(float));
}

weft_status weft_gemm_widened(weft_gemm *gemm, const weft_gemm_args *args)
{
    const int64_t m_panel = panel_rows(args->M, args->K), n_panel = panel_rows(args->N, args->K);
    WEFT_TRY(reserve(gemm, m_panel, n_panel, args->K));
    float *a = gemm->wide.data, *b = a + m_panel * args->K, *c = b + n_panel * args->K;
    weft_gemm_args wide = *args;
    wide.ab = wide.c = WEFT_F32;
    wide.A = a;
    wide.B = b;
    for (int64_t n = 0; n < args->N; n += n_panel) {
        wide.N = weft_min_i64(n_panel, args->N - n);
        wide.ldb = args->trans_b ? args->K : wide.N;
        widen_panel(gemm, b, args->B, args->ab, args->ldb, !args->trans_b, n, wide.N, args->K);
        for (int64_t m = 0; m < args->M; m += m_panel) {
            wide.M = weft_min_i64(m_panel, args->M - m);
            wide.lda = args->trans_a ? wide.M : args->K;
            wide.C = c;
            if (n == 0 || m_panel < args->M) /* a single panel of A is still there */
                widen_panel(gemm, a, args->A, args->ab, args->lda, args->trans_a, m, wide.M, args->K);
            WEFT_TRY(multiply_panels(gemm, args, &wide, m, n));
        }
    }
    return WEFT_OK;
}
