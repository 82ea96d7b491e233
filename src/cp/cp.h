/* cp.h — the door of the room `cp`: attention over a sequence that is cut over ranks, exact.
 *
 * plan (COLLECTIVE over the comm; one per attention shape and mask) fixes strategy, tags, kernels, buffers
 * for the largest case, and slots. bind (LOCAL, deterministic, no allocation) turns the segments of one
 * micro-batch into pairs and message sizes in a slot. forward and backward (COLLECTIVE) are given a slot and
 * allocate nothing, read no environment, log nothing and branch on no strategy.
 *
 * Blocks are taken in the order of the plan, never of arrival: own rows first, then those of rank r-1, r-2,
 * ... (mod P), in every strategy of one context group; so pcp and ring give the same bits. */
#ifndef WEFT_CP_H
#define WEFT_CP_H

#include "kern/kern.h"
#include "mesh/mesh.h"
#include "shard/shard.h"

typedef struct weft_cp_problem {
    weft_prec prec;
    int64_t B;                /* sequences per micro-batch */
    int64_t Tq, T;            /* queries and keys of a whole sequence; equal for self-attention */
    int64_t max_docs;         /* documents per micro-batch (sum over rows), at most */
    int H, Hkv, D, Dv;
    double scale, softcap;
    weft_mask mask;
    const void *alibi;        /* [H] (R) or NULL */
    bool sinks;
    weft_layout layout;
    bool need_backward;
    int slots;                /* micro-batches alive at once, >= 1 */
} weft_cp_problem;

typedef struct weft_cp_options {
    const char *strategy;     /* "none", "pcp", "ring", or "auto" */
    bool overlap;             /* false: wait for each exchange first; no bit changes */
} weft_cp_options;

typedef struct weft_cp_plan weft_cp_plan;

typedef struct weft_cp_io {   /* this rank's rows; `ld` in elements between rows; heads lie D (Dv) apart */
    int layer;                /* for messages about a stuck rank, and addresses */
    const void *q, *k, *v;    /* (C) [Sq,H,D] [S,Hkv,D] [S,Hkv,Dv] */
    int64_t q_ld, k_ld, v_ld;
    const void *sinks;        /* (R) [H] or NULL */
    void *o; int64_t o_ld;    /* (C) [Sq,H,Dv]; forward writes, backward reads */
    void *m, *l;              /* (R) [Sq,H]; forward writes, backward reads */
    void *lse;                /* (R) [Sq,H] or NULL; forward writes */
    const void *dout; int64_t dout_ld; /* (C) backward only, as all below */
    void *dq, *dk, *dv;       /* (C) written, not added */
    int64_t dq_ld, dk_ld, dv_ld;
    void *dsinks;             /* (R) [H] +=, this rank's part; or NULL */
} weft_cp_io;

/* Buffers come from `arena`; the plan lives as long as it. Refuses on every rank alike. */
weft_status weft_cp_plan_create(weft_cp_plan **out, weft_arena *arena, const weft_kern *kern, weft_comm *comm,
                                const weft_cp_problem *problem, const weft_cp_options *options);
void weft_cp_plan_destroy(weft_cp_plan *plan);
/* q and kv: the same shard for self-attention. Refuses what exceeds the plan's largest case. */
weft_status weft_cp_bind(weft_cp_plan *plan, int slot, const weft_shard *q, const weft_shard *kv);
weft_status weft_cp_forward(weft_cp_plan *plan, int slot, const weft_cp_io *io);
weft_status weft_cp_backward(weft_cp_plan *plan, int slot, const weft_cp_io *io);

/* "(ring P=4 zigzag (kernel avx512 64x128))" */
void weft_cp_describe(const weft_cp_plan *plan, weft_text *out);
/* Bytes of K,V buffers that the plan holds for travelling blocks (its peak: fixed at plan time). */
size_t weft_cp_kv_buffer_bytes(const weft_cp_plan *plan);
/* What one forward / backward of this slot sends from this rank, by the formulas of the plan. */
int64_t weft_cp_forward_bytes(const weft_cp_plan *plan, int slot);
int64_t weft_cp_backward_bytes(const weft_cp_plan *plan, int slot);

/* The names in the table of strategies, for help and refusals. */
const char *const *weft_cp_names(int *n);

#endif
