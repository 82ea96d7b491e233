/* gemm.c — checks a product, handles the empty ones, and sends it to oneDNN or to our own loops. */
#include "kern/gemm/gemm_impl.h"

#include <string.h>

weft_status weft_gemm_reserve(weft_gemm *gemm, weft_gemm_scratch *scratch, const char *label, size_t bytes)
{
    if (bytes <= scratch->bytes) return WEFT_OK;
    weft_arena_destroy(scratch->arena);
    memset(scratch, 0, sizeof *scratch);
    WEFT_TRY(weft_arena_create(&scratch->arena, &gemm->ctx->mem, "gemm", NULL));
    WEFT_TRY(weft_arena_alloc(scratch->arena, (int64_t)bytes, 1, label, &scratch->data));
    scratch->bytes = bytes;
    return WEFT_OK;
}

weft_status weft_gemm_create(weft_gemm **out, weft_ctx *ctx, int isa)
{
    weft_arena *arena;
    weft_gemm *gemm;
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "gemm", NULL));
    weft_status st = WEFT_NEW0(arena, 1, "object", &gemm);
    if (st < 0) {
        weft_arena_destroy(arena);
        return st;
    }
    gemm->ctx = ctx;
    gemm->arena = arena;
    WEFT_TRY_OR(st, weft_kern_init(&gemm->kern, (weft_isa)isa), destroy);
    if (isa > WEFT_ISA_REF) WEFT_TRY_OR(st, weft_gemm_dnn_create(gemm, isa), destroy);
    *out = gemm;
    return WEFT_OK;
destroy:
    weft_gemm_destroy(gemm);
    return st;
}

void weft_gemm_destroy(weft_gemm *gemm)
{
    if (!gemm) return;
    weft_gemm_dnn_destroy(gemm->dnn);
    weft_arena_destroy(gemm->pad.arena);
    weft_arena_destroy(gemm->wide.arena);
    weft_arena_destroy(gemm->arena); /* holds the object: last */
}

void weft_gemm_record(weft_gemm *gemm, weft_gemm_args *log, int64_t capacity)
{
    gemm->log = log;
    gemm->log_capacity = log ? capacity : 0;
    gemm->log_count = 0;
}

int64_t weft_gemm_recorded(const weft_gemm *gemm) { return gemm->log_count; }

size_t weft_gemm_bytes(const weft_gemm *gemm) { return gemm->pad.bytes + gemm->wide.bytes; }

static weft_status check_types(const weft_gemm_args *a)
{
    const bool wide = (a->ab == WEFT_F64 || a->ab == WEFT_F32) && a->c == a->ab;
    const bool narrow = (a->ab == WEFT_BF16 || a->ab == WEFT_F16) && (a->c == WEFT_F32 || a->c == a->ab);
    if (wide || narrow) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED,
                     "gemm of %s into %s: the result has the operands' type, or fp32 for 16-bit operands",
                     weft_dtype_name(a->ab), weft_dtype_name(a->c));
}

static weft_status check_operand(const char *name, const void *data, int64_t ld, int64_t rows, int64_t cols)
{
    if (rows == 0 || cols == 0) return WEFT_OK;
    if (!data)
        return weft_fail(WEFT_ERR_REFUSED, "gemm: %s is NULL but has %lld x %lld elements", name, (long long)rows,
                         (long long)cols);
    if (ld < cols)
        return weft_fail(WEFT_ERR_REFUSED, "gemm: leading dimension of %s is %lld; its rows have %lld elements", name,
                         (long long)ld, (long long)cols);
    return WEFT_OK;
}

static weft_status check(const weft_gemm_args *a, const weft_queue *queue)
{
    if (a->M < 0 || a->N < 0 || a->K < 0)
        return weft_fail(WEFT_ERR_REFUSED, "gemm: sizes M %lld, N %lld, K %lld must not be negative", (long long)a->M,
                         (long long)a->N, (long long)a->K);
    if (a->beta != 0 && a->beta != 1) return weft_fail(WEFT_ERR_REFUSED, "gemm: beta is %d; 0 and 1 exist", a->beta);
    if (queue) return weft_fail(WEFT_ERR_REFUSED, "gemm: a device queue was given; this build has host products only");
    WEFT_TRY(check_types(a));
    WEFT_TRY(check_operand("A", a->A, a->lda, a->trans_a ? a->K : a->M, a->trans_a ? a->M : a->K));
    WEFT_TRY(check_operand("B", a->B, a->ldb, a->trans_b ? a->N : a->K, a->trans_b ? a->K : a->N));
    return check_operand("C", a->C, a->ldc, a->M, a->N);
}

static void clear(const weft_gemm_args *a)
{
    const size_t size = weft_dtype_size(a->c);
    for (int64_t i = 0; i < a->M; i++) memset((char *)a->C + (size_t)(i * a->ldc) * size, 0, (size_t)a->N * size);
}

static size_t packed_bytes(bool wide, const weft_gemm_args *a)
{
    return wide ? weft_gemm_packed_bytes_avx512(a) : weft_gemm_packed_bytes_avx2(a);
}

/* multiply() packs 16 bits that oneDNN does not take (weft_gemm_dnn_has). */
size_t weft_gemm_work_bytes(int isa, const weft_gemm_args *a)
{
    const bool packs = a->ab == WEFT_F16 || (a->ab == WEFT_BF16 && isa != WEFT_ISA_AMX);
    if (isa == WEFT_ISA_REF || !packs || a->M == 0 || a->N == 0 || a->K == 0) return 0;
    return packed_bytes(isa >= WEFT_ISA_AVX512, a);
}

weft_status weft_gemm_packed(weft_gemm *gemm, const weft_gemm_args *a)
{
    const bool wide = gemm->kern.isa >= WEFT_ISA_AVX512;
    WEFT_TRY(weft_gemm_reserve(gemm, &gemm->wide, "packed operands", packed_bytes(wide, a)));
    if (a->ab == WEFT_F32)
        (wide ? weft_gemm_packed_f32_avx512 : weft_gemm_packed_f32_avx2)(a, gemm->wide.data, gemm->ctx->threads);
    else if (a->ab == WEFT_BF16)
        (wide ? weft_gemm_packed_bf16_avx512 : weft_gemm_packed_bf16_avx2)(a, gemm->wide.data, gemm->ctx->threads);
    else (wide ? weft_gemm_packed_f16_avx512 : weft_gemm_packed_f16_avx2)(a, gemm->wide.data, gemm->ctx->threads);
    return WEFT_OK;
}

/* After products that cannot add it themselves, and after none. */
static void add_bias(const weft_gemm *gemm, const weft_gemm_args *a)
{
    const int threads = gemm->ctx->threads;
    if (!a->bias) return;
    weft_part outer = weft_part_begin(&gemm->ctx->parts, WEFT_PART_BIAS);
    if (a->c == WEFT_F64) gemm->kern.op[WEFT_PREC_F64].bias_fwd_r(a->C, a->ldc, a->bias, a->M, a->N, threads);
    else if (a->c == WEFT_F32) gemm->kern.op[WEFT_PREC_F32].bias_fwd_r(a->C, a->ldc, a->bias, a->M, a->N, threads);
    else if (a->c == WEFT_BF16) gemm->kern.op[WEFT_PREC_BF16].bias_fwd(a->C, a->ldc, a->bias, a->M, a->N, threads);
    else gemm->kern.op[WEFT_PREC_F16].bias_fwd(a->C, a->ldc, a->bias, a->M, a->N, threads);
    weft_part_end(&gemm->ctx->parts, outer);
}

static weft_status multiply(weft_gemm *gemm, const weft_gemm_args *args)
{
    if (args->ab == WEFT_F64 || !gemm->dnn) {
        weft_gemm_ref(args, gemm->ctx->threads);
        return WEFT_OK;
    }
    if (!weft_gemm_dnn_has(gemm->dnn, args->ab)) return weft_gemm_packed(gemm, args);
    WEFT_TRY(weft_gemm_dnn_run(gemm, args));
    if (args->ab == WEFT_F32) add_bias(gemm, args); /* oneDNN's sgemm has none */
    return WEFT_OK;
}

weft_status weft_gemm_run(weft_gemm *gemm, const weft_gemm_args *args, weft_queue *queue)
{
    WEFT_TRY(check(args, queue));
    if (args->M == 0 || args->N == 0) return WEFT_OK;
    if (args->K == 0) { /* an empty sum */
        if (args->beta == 0) clear(args);
        add_bias(gemm, args);
        return WEFT_OK;
    }
    if (gemm->log && gemm->log_count < gemm->log_capacity) gemm->log[gemm->log_count] = *args;
    gemm->log_count++;
    weft_part outer = weft_part_begin(&gemm->ctx->parts, WEFT_PART_PRODUCTS);
    weft_status st = multiply(gemm, args);
    weft_part_end(&gemm->ctx->parts, outer);
    return st;
}
