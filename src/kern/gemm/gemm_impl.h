/* gemm_impl.h — what the files of this folder share. */
#ifndef WEFT_KERN_GEMM_IMPL_H
#define WEFT_KERN_GEMM_IMPL_H

#include "kern/kern.h"

typedef struct weft_gemm_dnn weft_gemm_dnn; /* gemm_onednn.c */

/* One growing buffer. An arena cannot give back a block in the middle, so growth replaces the arena. */
typedef struct weft_gemm_scratch {
    weft_arena *arena;
    void *data;
    size_t bytes;
} weft_gemm_scratch;

struct weft_gemm {
    weft_ctx *ctx;
    weft_arena *arena;         /* this object and the cache */
    weft_kern kern;            /* for conversions */
    weft_gemm_dnn *dnn;        /* NULL with isa ref */
    weft_gemm_scratch pad;     /* oneDNN's scratchpad: calls do not overlap, so one serves all primitives */
    weft_gemm_scratch wide;    /* operands packed in fp32 */
    weft_gemm_args *log;       /* NULL: calls are not written down */
    int64_t log_capacity, log_count;
};

weft_status weft_gemm_reserve(weft_gemm *gemm, weft_gemm_scratch *scratch, const char *label, size_t bytes);

/* Own loops; all types; sums in double, each element's products added in the order of K, so a result does not
 * depend on threads or on which rows are computed together. */
void weft_gemm_ref(const weft_gemm_args *args, int threads);

/* Own products in fp32 of operands of any type with R = float (gemm_pack.inl). work: weft_gemm_packed_bytes. An
 * element's bits depend on its row of A, its column of B, and K. */
enum { GEMM_KC = 768, GEMM_MC = 2016, GEMM_NC = 1024 };
#define GEMM_PACKED(isa) \
    size_t weft_gemm_packed_bytes_##isa(const weft_gemm_args *args); \
    void weft_gemm_packed_f32_##isa(const weft_gemm_args *args, float *work, int threads); \
    void weft_gemm_packed_bf16_##isa(const weft_gemm_args *args, float *work, int threads); \
    void weft_gemm_packed_f16_##isa(const weft_gemm_args *args, float *work, int threads);
GEMM_PACKED(avx2)
GEMM_PACKED(avx512)
#undef GEMM_PACKED
weft_status weft_gemm_packed(weft_gemm *gemm, const weft_gemm_args *args);

weft_status weft_gemm_dnn_create(weft_gemm *gemm, int isa);
void weft_gemm_dnn_destroy(weft_gemm_dnn *dnn);
bool weft_gemm_dnn_has(const weft_gemm_dnn *dnn, weft_dtype ab); /* products of this type run natively */
weft_status weft_gemm_dnn_run(weft_gemm *gemm, const weft_gemm_args *args);

#endif
