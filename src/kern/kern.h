/* kern.h — the door of the room `kern`: arithmetic on one rank's memory.
 *
 * Kernels know nothing of ranks, layouts, files or models. One folder per operation; `X.ref.c` is the
 * specification (built for float and double), `X.avx2.c` and `X.avx512.c` the fast ones, built from one
 * source where that fits. `kern_list.inc` is the manifest: a kernel that is absent from it cannot exist.
 *
 * A kernel table holds one function per operation and precision. The reference fills every entry; each
 * instruction set overrides what it has. Precision P has two element types (tensor.h): R for sums and
 * residuals, C for operands of products. Pointers are untyped here; comments give the type.
 * All functions are LOCAL, allocate nothing, and complete before they return when `queue` is NULL.
 * Leading dimensions (`ld`) count elements between rows. rows == 0 is always allowed. */
#ifndef WEFT_KERN_H
#define WEFT_KERN_H

#include "tensor/tensor.h"

#include "kern/attention/attention.h"
#include "kern/check/check.h"
#include "kern/gemm/gemm.h"
#include "kern/move/move.h"
#include "kern/roof/roof.h"

typedef enum { WEFT_ISA_REF, WEFT_ISA_AVX2, WEFT_ISA_AVX512, WEFT_ISA_AMX, WEFT_ISA_COUNT } weft_isa;

const char *weft_isa_name(weft_isa isa);
bool weft_isa_parse(const char *s, weft_isa *out);
/* What this machine can run: CPUID, the operating system's XCR0 and, for AMX, the permission call. */
bool weft_isa_available(weft_isa isa);
/* Whether it has vdpbf16ps, which no level of weft_isa asks for. */
bool weft_cpu_has_avx512_bf16(void);
/* The processor and what the system lets it do, for reports. LOCAL */
typedef struct weft_cpu {
    char name[64];                /* as it calls itself; empty where it does not */
    uint64_t xcr0;                /* registers that the system saves, as XCR0 has them; 0: not an x86-64 */
    bool has[WEFT_ISA_COUNT];     /* its instructions, by CPUID */
    bool saved[WEFT_ISA_COUNT];   /* their registers are among those of xcr0 */
    bool allowed[WEFT_ISA_COUNT]; /* and this process may use them: AMX needs a permission */
} weft_cpu;
void weft_cpu_describe(weft_cpu *out);
/* The strongest available one; the environment's WEFT_ISA=ref|avx2|avx512|amx lowers it (a bad value is
 * refused by weft_kern_init). */
weft_isa weft_isa_best(void);
/* The unit on which products and attention of a precision run with kernels of `isa` (16 bits without tiles are widened
 * to fp32); false where there is none whose roof could be measured: fp64, reference kernels. LOCAL, pure */
bool weft_isa_roof(weft_isa isa, weft_prec prec, weft_roof_unit *out);

typedef struct weft_adamw_args {
    double lr, beta1, beta2, eps, weight_decay, c1, c2, gscale;
} weft_adamw_args;

/* Dropout of rows of the residual stream, by address: the step, layer and site in word3 (weft_philox_word3), the
 * sample, the token of the row, and the channel. */
typedef struct weft_drop {
    double p;                /* probability, in (0, 1) */
    uint64_t seed;
    uint32_t word3;
    int64_t T, sample0;      /* index i of a micro-batch is token i mod T of sample sample0 + i / T */
} weft_drop;
/* What dropout multiplies an element by: 1 / (1 - p) or 0. Sixteen numbers of four words serve 64 channels: word
 * channel / 16 mod 4 of number channel mod 16. The specification of the mask. LOCAL, pure */
double weft_drop_factor(const weft_drop *d, int64_t index, int64_t channel);

typedef struct weft_kern_ops {
    weft_attn_ops attn; /* attention/attention.h */
    weft_move_ops move; /* move/move.h */

    /* y[rows,n] (C) = x / rms(x) * w.  x (R), w (R), rstd[rows] (R) is kept for backward. */
    void (*rmsnorm_fwd)(void *y, int64_t y_ld, void *rstd, const void *x, int64_t x_ld, const void *w, int64_t rows,
                        int64_t n, double eps, int threads);
    /* dx (R) += ..., dw (R) += sum over rows.  dy (C). work: weft_norm_work_bytes. */
    void (*rmsnorm_bwd)(void *dx, int64_t dx_ld, void *dw, const void *dy, int64_t dy_ld, const void *x, int64_t x_ld,
                        const void *w, const void *rstd, int64_t rows, int64_t n, void *work, int threads);
    /* The same per head, in place on x[rows, heads, n] (C): x is overwritten by the result; the input is
     * copied to `keep` [rows, heads, n] (C, dense) for backward. rstd[rows, heads] (R). */
    void (*headnorm_fwd)(void *x, int64_t x_ld, void *keep, void *rstd, const void *w, int64_t rows, int64_t heads,
                         int64_t n, double eps, int threads);
    /* dx overwrites dy in place [rows, heads, n] (C); dw (R) +=. */
    void (*headnorm_bwd)(void *dy, int64_t dy_ld, void *dw, const void *keep, const void *w, const void *rstd,
                         int64_t rows, int64_t heads, int64_t n, void *work, int threads);
    /* y (C) = (x - mean) * rstd * w + b;  x (R); mean, rstd [rows] (R). Backward adds to dx, dw and db (R). */
    void (*layernorm_fwd)(void *y, int64_t y_ld, void *mean, void *rstd, const void *x, int64_t x_ld, const void *w,
                          const void *b, int64_t rows, int64_t n, double eps, int threads);
    void (*layernorm_bwd)(void *dx, int64_t dx_ld, void *dw, void *db, const void *dy, int64_t dy_ld, const void *x,
                          int64_t x_ld, const void *w, const void *mean, const void *rstd, int64_t rows, int64_t n,
                          void *work, int threads);

    /* Rotates pairs (i, i + n/2) of x[rows, heads, n] (C) in place by angle table cos, sin [rows, n/2] (R).
     * sign +1 forward, -1 backward (the inverse of the rotation is its transpose; a scaled table scales both). */
    void (*rope)(void *x, int64_t x_ld, const void *cos, const void *sin, int64_t rows, int64_t heads, int64_t n,
                 int sign, int threads);

    /* y = silu(gate) * up, all (C) [rows, n]. */
    void (*swiglu_fwd)(void *y, int64_t y_ld, const void *gate, int64_t g_ld, const void *up, int64_t u_ld,
                       int64_t rows, int64_t n, int threads);
    /* dgate, dup (C) may be the same arrays as gate, up. */
    void (*swiglu_bwd)(void *dgate, int64_t dg_ld, void *dup, int64_t du_ld, const void *dy, int64_t dy_ld,
                       const void *gate, int64_t g_ld, const void *up, int64_t u_ld, int64_t rows, int64_t n,
                       int threads);
    /* "gelu_new": 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).  (C) */
    void (*gelu_fwd)(void *y, int64_t y_ld, const void *x, int64_t x_ld, int64_t rows, int64_t n, int threads);
    void (*gelu_bwd)(void *dx, int64_t dx_ld, const void *dy, int64_t dy_ld, const void *x, int64_t x_ld, int64_t rows,
                     int64_t n, int threads); /* dx may be dy */

    /* y[rows,n] (C) += b[n] (R);  db (R) += column sums of dy (C). */
    void (*bias_fwd)(void *y, int64_t y_ld, const void *b, int64_t rows, int64_t n, int threads);
    void (*bias_bwd)(void *db, const void *dy, int64_t dy_ld, int64_t rows, int64_t n, void *work, int threads);
    /* The same on rows of type R (residual stream). */
    void (*bias_fwd_r)(void *y, int64_t y_ld, const void *b, int64_t rows, int64_t n, int threads);

    /* x[rows,n] (R) = table[id] (R) (+ pos_table[pos] (R) when not NULL). Ids and positions were checked. A negative id
     * is one whose row of the table another rank has: 0 here, and no gradient. */
    void (*embed_fwd)(void *x, const int32_t *id, const int64_t *pos, const void *table, const void *pos_table,
                      int64_t rows, int64_t n, int threads);
    /* dtable[id] (R) += dx, in row order (the same bits for any number of threads). */
    void (*embed_bwd)(void *dtable, void *dpos_table, const int32_t *id, const int64_t *pos, const void *dx,
                      int64_t rows, int64_t n, int threads);

    /* Softmax cross-entropy over logits[rows,V] (R). target < 0: ignored, nll 0, gradient row 0.
     * nll[rows] (R). dlogits[rows,V] (C) = (softmax - onehot) * scale when not NULL: logits are used up then, and
     * dlogits may be the same array when R and C are the same type. */
    void (*xent)(void *nll, void *dlogits, int64_t d_ld, void *logits, int64_t l_ld, const int32_t *target,
                 double scale, int64_t rows, int64_t V, int threads);
    /* The same over columns [first, first + V) of rows whose other columns are elsewhere. stats[rows, 3] (double): the
     * largest logit here (-inf when V is 0), the sum of exp(logit - largest), and the target's logit, or 0 when it is
     * not here; all three 0 in ignored rows, which are not read. With `keep` the logits are used up: they become the
     * exponentials, which xent_part_bwd wants. */
    void (*xent_part)(double *stats, bool keep, void *logits, int64_t l_ld, const int32_t *target, int64_t first,
                      int64_t rows, int64_t V, int threads);
    /* dlogits[rows,V] (C) from these exponentials, `part` as xent_part wrote it, and `whole` [rows, 3], the same of all
     * columns together. dlogits may be the array of the exponentials when R and C are the same type. */
    void (*xent_part_bwd)(void *dlogits, int64_t d_ld, const void *exps, int64_t e_ld, const int32_t *target,
                          int64_t first, const double *part, const double *whole, double scale, int64_t rows, int64_t V,
                          int threads);

    /* to[rows,n] (R) = from + factor * y, all (R) and dense; from NULL: 0. `to` may be `from` or y. index[rows].
     * What is dropped is selected away, not multiplied by 0. */
    void (*drop_add)(void *to, const void *from, const void *y, const int64_t *index, int64_t rows, int64_t n,
                     const weft_drop *d, int threads);
    /* c[rows,n] (C) = factor * y (R), dense. */
    void (*drop_to_compute)(void *c, const void *y, const int64_t *index, int64_t rows, int64_t n, const weft_drop *d,
                            int threads);

    /* One AdamW update with decoupled decay, all (R): m = b1 m + (1-b1) g', v likewise, g' = g * gscale,
     * p -= lr * (m/c1 / (sqrt(v/c2) + eps) + wd * p), c1 = 1 - b1^t, c2 = 1 - b2^t. */
    void (*adamw)(void *p, const void *g, void *m, void *v, int64_t n, const weft_adamw_args *args, int threads);

    double (*sumsq)(const void *x, int64_t n, int threads);        /* (R) -> double, blocked order fixed     */
    void (*axpy)(void *y, const void *x, double a, int64_t n, int threads); /* y += a x, (R)                */
    void (*scale)(void *x, double a, int64_t n, int threads);      /* (R)                                   */
    void (*to_compute)(void *c, const void *r, int64_t n, int threads); /* (C) = round(R)                   */
    void (*to_real)(void *r, const void *c, int64_t n, int threads);    /* (R) = (C)                        */
    /* r[rows,n] (R) += c[rows,n] (C), for gradients that return to the residual stream. */
    void (*add_real)(void *r, int64_t r_ld, const void *c, int64_t c_ld, int64_t rows, int64_t n, int threads);

    /* max |x| of x[rows,n] (C), of x[rows,n] (R); NaN when any element is. 0 of nothing. */
    double (*guard)(const void *x, int64_t ld, int64_t rows, int64_t n, int threads);
    double (*guard_r)(const void *x, int64_t ld, int64_t rows, int64_t n, int threads);
} weft_kern_ops;

/* Rates of kernels that charge time to a clock instead of computing. */
typedef struct weft_charge {
    const weft_clock *clock;
    double flops_per_second[WEFT_PREC_COUNT]; /* of attention's and other matrix products, all threads together */
    double pair_seconds[WEFT_PREC_COUNT];     /* of attention besides, for each visible pair of a head */
    double edge_keys;                         /* keys that a row of attention computes in vain at an edge of the mask */
    double row_keys;                          /* what a row takes besides in each block of keys, in keys */
    double backward_factor;                   /* time of backward attention / time of forward, same pairs */
    double memory_bytes_per_second;           /* bytes that a copy moves; of all that reads and writes much */
} weft_charge;

typedef struct weft_kern {
    weft_isa isa;
    weft_kern_ops op[WEFT_PREC_COUNT];
    const weft_charge *charge; /* NULL: these kernels compute. Handed on to attention in weft_attn_run */
} weft_kern;

/* The table of an instruction set. Refuses with the list of what this machine has when `isa` is not
 * available. fp64 is always the reference. */
weft_status weft_kern_init(weft_kern *kern, weft_isa isa);

/* A table of kernels that compute nothing, touch no memory, and charge what the work would take: attention, and what
 * moves content (charge/charge.c). `rates`, which must outlive the table, goes into kern->charge. LOCAL */
weft_status weft_kern_init_charge(weft_kern *kern, const weft_charge *rates);

/* Bytes of `work` that *norm_bwd, bias_bwd need for rows of n elements. */
size_t weft_norm_work_bytes(weft_prec p, int64_t n, int threads);

typedef struct weft_kern_entry { const char *op; weft_prec prec; weft_isa isa; const char *symbol; } weft_kern_entry;
/* The manifest, for tests and `weft info`. */
const weft_kern_entry *weft_kern_manifest(int *n);

#endif
