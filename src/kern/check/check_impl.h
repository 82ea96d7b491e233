/* check_impl.h — what the files of this folder share, and the tests of this room use. */
#ifndef WEFT_KERN_CHECK_IMPL_H
#define WEFT_KERN_CHECK_IMPL_H

#include "kern/check/limits.h"
#include "kern/kern.h"

/* ---- operations of the table (check_ops.c) ------------------------------------------------------------ */

enum { WEFT_CHECK_BLOCKS = 32, WEFT_CHECK_RESULTS = 8 }; /* of one run, at most */

typedef struct weft_check_result { double *x; int64_t count; bool is_c; const char *name; } weft_check_result;

typedef struct weft_check_run { /* one run of one case */
    const weft_kern_ops *op;
    weft_prec prec, from; /* precision of the kernel; precision that inputs were rounded to */
    int64_t rows, n, gap;
    int threads;
    /* `bytes` bytes, all bits 1 (NaN in every type), for as long as the run; never NULL. */
    void *(*take)(void *memory, size_t bytes, size_t align);
    void *memory;
    weft_check_result out[WEFT_CHECK_RESULTS];
    int n_out;
    const char *touched;  /* the result with something written between its rows; NULL: none */
} weft_check_run;

typedef struct weft_check_case { const char *ops; void (*body)(weft_check_run *); } weft_check_case;
const weft_check_case *weft__check_cases(int *n);
/* The case that runs an operation; -1: none. LOCAL, pure */
int weft__check_case_of(const char *op);
/* Whether the results are those of `want`, which has other types or another instruction set; if not, what is off goes
 * into text. The second: bit for bit. LOCAL */
bool weft__check_compare(const weft_check_run *t, const weft_check_run *want, char *text, size_t n);
bool weft__check_same_bits(const weft_check_run *a, const weft_check_run *b, char *text, size_t n);
/* Bytes that a run takes at most. LOCAL, pure */
size_t weft__check_bytes(int64_t rows, int64_t n);

/* Numbers of mean 0 and variance 1 between -3 and 3, by address; exact in fp32. LOCAL, pure */
double weft__check_number(uint64_t seed, int64_t i);

/* ---- the others: false and what is off in text, when something is --------------------------------------- */

typedef struct weft_check_memory { char *data; size_t size, used; } weft_check_memory;
void *weft__check_take(void *memory, size_t bytes, size_t align); /* as weft_check_run.take */

enum { WEFT_CHECK_MOVE_BYTES = 1 << 20, WEFT_CHECK_PRODUCT_BYTES = 2 << 20 }; /* of memory, enough */
size_t weft__check_attention_bytes(const weft_attn_ops *ops, const weft_attn_ops *fp64, int threads);
bool weft__check_attention(const weft_attn_ops *ops, const weft_attn_ops *fp64, weft_prec prec, weft_isa isa,
                           int threads, weft_check_memory *memory, char *text, size_t n);
bool weft__check_move(const weft_move_ops *ops, const weft_move_ops *ref, weft_prec prec, int threads,
                      weft_check_memory *memory, char *text, size_t n);
/* Of products of one type. WEFT_ERR_COMPARE: off. */
weft_status weft__check_products(weft_gemm *gemm, weft_prec prec, weft_check_memory *memory, char *text, size_t n);

#endif
