/* gemm.h — every matrix product of the model: C[M,N] = op(A) op(B) + beta C (+ bias), row-major, beta 0 or 1.
 *
 * fp32 goes to oneDNN's sgemm, bf16 with AMX to its matmul with primitives cached by shape (creating one costs
 * 0.3-2 ms); fp64 and the `ref` instruction set run our own loops. bf16 without AMX, and fp16 always, are multiplied
 * in fp32 by our own packed product (README.md says why). One object per rank: the cache is not shared between
 * threads. LOCAL; allocates only when a shape is new, except what oneDNN's sgemm takes and gives back. */
#ifndef WEFT_KERN_GEMM_H
#define WEFT_KERN_GEMM_H

#include "tensor/tensor.h"

typedef struct weft_gemm weft_gemm;

typedef struct weft_gemm_args {
    weft_dtype ab, c;          /* F64/F64, F32/F32, BF16/F32, BF16/BF16, F16/F32, F16/F16 */
    bool trans_a, trans_b;     /* op(A)[M,K] is A[M,K], or A[K,M] read transposed; op(B)[K,N] likewise */
    int64_t M, N, K;           /* any may be 0 */
    const void *A; int64_t lda;
    const void *B; int64_t ldb;
    void *C; int64_t ldc;
    int beta;                  /* 0 or 1 */
    const void *bias;          /* [N] (fp32, or fp64 with fp64 operands) added to every row; NULL: none */
} weft_gemm_args;

/* isa: 0 ref, 1 avx2, 2 avx512, 3 amx (weft_isa). It also caps oneDNN, which is possible once per process
 * and only before its first use: a later, different cap is logged (warn) and has no effect on oneDNN. */
weft_status weft_gemm_create(weft_gemm **out, weft_ctx *ctx, int isa);
void weft_gemm_destroy(weft_gemm *gemm);
/* Refuses impossible sizes, strides, types, and a queue (there is no device). Products use ctx->threads
 * threads. C is rounded once, from sums in R or wider. */
weft_status weft_gemm_run(weft_gemm *gemm, const weft_gemm_args *args, weft_queue *queue);
/* The library of products, for reports: its version, the variable that limits its instruction set (NULL: none is set)
 * and the value, the set that it uses in this process from the first weft_gemm_create with a set above ref on. LOCAL */
typedef struct weft_gemm_library { int version[3]; const char *variable, *value, *isa; } weft_gemm_library;
weft_gemm_library weft_gemm_library_now(void);
/* From now on every call with work to do is written down in log[capacity], as far as there is room; NULL ends it. For
 * measuring the same products again without what stands between them. */
void weft_gemm_record(weft_gemm *gemm, weft_gemm_args *log, int64_t capacity);
/* Calls since then, written down or not. */
int64_t weft_gemm_recorded(const weft_gemm *gemm);
/* Bytes that a product of these types and sizes packs its operands into, with kernels of `isa`; 0 where a library does
 * that by itself, or nobody. The data is not looked at. LOCAL, pure */
size_t weft_gemm_work_bytes(int isa, const weft_gemm_args *args);
/* Bytes held beside the operands: the primitives' scratchpad and packed operands. */
size_t weft_gemm_bytes(const weft_gemm *gemm);

#endif
