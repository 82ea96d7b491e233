/* check.h — the kernels of this machine against the specification, at small awkward sizes, in a second or so: whether a
 * processor, a compiler or a library computes what it should. The tests run the same cases at more sizes, between pages
 * that cannot be read (tests/kern/test_manifest.c). */
#ifndef WEFT_KERN_CHECK_H
#define WEFT_KERN_CHECK_H

#include "kern/attention/attention.h"

typedef struct weft_kern_check {
    int threads; /* above 1: every kernel runs with so many as well, and must give the same bits */
    /* Of each kernel that is off, its first fault: "rmsnorm_fwd rmsnorm_bwd, bf16, avx512", "3 rows of 33: y is off by
     * 1e-1 (limit 3e-6)". */
    void (*found)(void *ud, const char *kernel, const char *fault);
    void *ud;
    int kernels, faults; /* out: how many were checked, and are off */
} weft_kern_check;

/* Every operation x precision x instruction set that this machine can run up to `most` (a weft_isa), attention and
 * moves included; products as they run at `most`, which limits oneDNN for the whole process. A fault is no failure of
 * the call. LOCAL; allocates, and gives all of it back. */
weft_status weft_kern_check_run(weft_kern_check *c, weft_ctx *ctx, int most);

#endif
