/* gemm_widen.c — products of 16-bit operands where the CPU has no instruction for them: copies in fp32,
 * multiplied in fp32. oneDNN 2.6 refuses fp16 everywhere and bf16 below AVX-512, and its emulation of bf16
 * is slower than this. */
#include "kern/gemm/gemm_impl.h"

/* dst[rows, cols] dense (fp32 or not) from or to strided rows. */
static void convert_rows(void *dst, weft_dtype dst_type, int64_t dst_ld, const void *src, weft_dtype src_type,
                         int64_t src_ld, int64_t rows, int64_t cols, int threads)
{
    const int64_t dst_step = dst_ld * (int64_t)weft_dtype_size(dst_type);
    const int64_t src_step = src_ld * (int64_t)weft_dtype_size(src_type);
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        weft_convert((char *)dst + r * dst_step, dst_type, (const char *)src + r * src_step, src_type, cols);
}

/* Bytes of a dense fp32 copy, rounded up so that the next copy starts on a cache line. */
static weft_status copy_bytes(int64_t rows, int64_t cols, size_t *out)
{
    int64_t count;
    if (!weft_mul_i64(rows, cols, &count)) count = -1;
    WEFT_TRY(weft_size_of(count, sizeof(float), "gemm: fp32 copy of an operand", out));
    *out = (*out + 63) / 64 * 64;
    return WEFT_OK;
}

weft_status weft_gemm_widened(weft_gemm *gemm, const weft_gemm_args *args)
{
    const int64_t a_rows = args->trans_a ? args->K : args->M, a_cols = args->trans_a ? args->M : args->K;
    const int64_t b_rows = args->trans_b ? args->N : args->K, b_cols = args->trans_b ? args->K : args->N;
    const bool c_copied = args->c != WEFT_F32;
    const int threads = gemm->ctx->threads;
    size_t a_bytes = 0, b_bytes = 0, c_bytes = 0, ab_bytes, all;
    WEFT_TRY(copy_bytes(a_rows, a_cols, &a_bytes));
    WEFT_TRY(copy_bytes(b_rows, b_cols, &b_bytes));
    if (c_copied) WEFT_TRY(copy_bytes(args->M, args->N, &c_bytes));
    if (!weft_add_size(a_bytes, b_bytes, &ab_bytes) || !weft_add_size(ab_bytes, c_bytes, &all))
        return weft_fail(WEFT_ERR_REFUSED, "gemm: fp32 copies of the operands do not fit into memory sizes");
    WEFT_TRY(weft_gemm_reserve(gemm, &gemm->wide, "fp32 copies", all));

    char *a = gemm->wide.data, *b = a + a_bytes, *c = a + ab_bytes;
    convert_rows(a, WEFT_F32, a_cols, args->A, args->ab, args->lda, a_rows, a_cols, threads);
    convert_rows(b, WEFT_F32, b_cols, args->B, args->ab, args->ldb, b_rows, b_cols, threads);
    weft_gemm_args wide = *args;
    wide.ab = wide.c = WEFT_F32;
    wide.A = a;
    wide.lda = a_cols;
    wide.B = b;
    wide.ldb = b_cols;
    if (!c_copied) return weft_gemm_dnn_run(gemm, &wide);

    wide.C = c;
    wide.ldc = args->N;
    if (args->beta) convert_rows(c, WEFT_F32, args->N, args->C, args->c, args->ldc, args->M, args->N, threads);
    WEFT_TRY(weft_gemm_dnn_run(gemm, &wide));
    convert_rows(args->C, args->c, args->ldc, c, WEFT_F32, args->N, args->M, args->N, threads);
    return WEFT_OK;
}
