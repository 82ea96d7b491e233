/* cp.h — the door of the room `cp`: attention over a sequence that is cut over ranks, exact.
 *
 * plan (COLLECTIVE over the comm; one per attention shape and mask) fixes strategy, tags, kernels, buffers
 * for the largest case, and slots. bind (LOCAL, deterministic, no allocation) turns the segments of one
 * micro-batch into pairs and message sizes in a slot. forward and backward (COLLECTIVE) are given a slot and
 * allocate nothing, read no environment, log nothing and branch on no strategy.
 *
 * The P ranks form a grid of U head ranks x R context ranks, P = U R, rank = u + U r. The head stage is an
 * all-to-all inside a head group (same r): afterwards a rank holds the rows of all U ranks, for its own heads only.
 * The context stage exchanges keys and values among the ranks of same u.
 *
 * Blocks are taken in the order of the plan, never of arrival: own rows first, then those of rank r-1, r-2,
 * ... (mod R), in every strategy of one context group; so pcp, ring and pairwise give the same bits. */
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
    int H, Hkv, D, Dv;        /* heads of this rank: all of the model's, or with tensor parallelism its part */
    int group, head0;         /* of the model: query heads per key/value head (0: H / Hkv, and all heads are here);
                                 number of the first query head here. Any heads [head0, head0 + H), at least one, and
                                 the Hkv key/value heads that they read; another part may have one of these, too, and
                                 dk, dv are then this part's share of the sum */
    double scale, softcap;
    weft_mask mask;
    const void *alibi;        /* [H] (R) of the heads here, or NULL */
    bool sinks;
    double dropout;           /* of probabilities, in [0, 1) */
    uint64_t seed;            /* of dropout; step and layer come with each call */
    weft_layout layout;
    bool need_backward;
    int slots;                /* micro-batches alive at once, >= 1 */
} weft_cp_problem;

/* Element type of keys and values while they travel, or of travelling gradient sums. SAME: C, or R. */
typedef enum { WEFT_CP_WIRE_SAME, WEFT_CP_WIRE_FP32, WEFT_CP_WIRE_BF16, WEFT_CP_WIRE_FP16,
              WEFT_CP_WIRE_FP8 } weft_cp_wire;

enum { WEFT_CP_PIECE_MIN = 64 }; /* bytes: a piece costs a request of about that size at both ends */

typedef struct weft_cp_options { /* zeros are defaults, but for the first two */
    const char *strategy;     /* a name of weft_cp_names, or "auto" */
    bool overlap;             /* false: wait for each exchange first; no bit changes */
    int head_size;            /* U of dcp and its kin; 0: the largest that is useful */
    bool keep_heads;          /* keep q, k, v in head layout from forward to backward (weft_cp_kept_bytes per layer)
                                 instead of repeating the exchange */
    weft_cp_wire comm_dtype;  /* of K,V */
    weft_cp_wire grad_dtype;  /* of dK,dV sums: SAME, FP32 or BF16 */
    bool fp8;                 /* K,V travel and are kept as e4m3, dO travels as e5m2, one scale per block of rows and
                                 head */
    size_t buffer_bytes;      /* messages are cut into pieces of so many bytes, and what is complete of a block is
                                 computed while the next pieces travel; at least WEFT_CP_PIECE_MIN, 0: whole messages */
    const weft_profile *profile; /* for "auto"; NULL: weft_profile_default */
} weft_cp_options;

typedef struct weft_cp_plan weft_cp_plan;

typedef struct weft_cp_io {   /* this rank's rows; `ld` in elements between rows; heads lie D (Dv) apart */
    int layer;                /* for messages about a stuck rank, and addresses */
    uint32_t step;            /* optimizer step: the address of dropout */
    bool no_dropout;          /* evaluation: this call drops nothing, whatever the plan's dropout is */
    const void *q, *k, *v;    /* (C) [Sq,H,D] [S,Hkv,D] [S,Hkv,Dv] */
    int64_t q_ld, k_ld, v_ld;
    const void *sinks;        /* (R) [H] or NULL */
    void *o; int64_t o_ld;    /* (C) [Sq,H,Dv]; forward writes, backward reads */
    void *m, *l;              /* (R) [Sq,H]; forward writes, backward reads */
    void *lse;                /* (R) [Sq,H] or NULL; forward writes */
    void *kept;               /* weft_cp_kept_bytes, 8-byte aligned; forward writes, backward reads; NULL when 0 */
    const void *dout; int64_t dout_ld; /* (C) backward only, as all below */
    void *dq, *dk, *dv;       /* (C) written, not added */
    int64_t dq_ld, dk_ld, dv_ld;
    void *dsinks;             /* (R) [H] +=, this rank's part; or NULL */
} weft_cp_io;

/* Small things come from `arena`, buffers from the world's provider (weft_world_buffers), both until destroy; the
 * plan must be destroyed before arena and world. Refuses on every rank alike. */
weft_status weft_cp_plan_create(weft_cp_plan **out, weft_arena *arena, const weft_kern *kern, weft_comm *comm,
                                const weft_cp_problem *problem, const weft_cp_options *options);
void weft_cp_plan_destroy(weft_cp_plan *plan); /* NULL is fine */
/* q and kv: the same shard for self-attention. Refuses what exceeds the plan's largest case. */
weft_status weft_cp_bind(weft_cp_plan *plan, int slot, const weft_shard *q, const weft_shard *kv);
weft_status weft_cp_forward(weft_cp_plan *plan, int slot, const weft_cp_io *io);
weft_status weft_cp_backward(weft_cp_plan *plan, int slot, const weft_cp_io *io);

/* "(heads U=2 (ring R=4 zigzag (kernel avx512 64x120)))" */
void weft_cp_describe(const weft_cp_plan *plan, weft_text *out);
/* Bytes of K,V buffers that the plan holds for travelling blocks (its peak: fixed at plan time). */
size_t weft_cp_kv_buffer_bytes(const weft_cp_plan *plan);
/* Bytes of all communication buffers: allocated and touched when the plan is made, never again. */
size_t weft_cp_pool_bytes(const weft_cp_plan *plan);
/* Bytes that a layer must keep in io.kept from forward to backward; 0 when nothing. */
size_t weft_cp_kept_bytes(const weft_cp_plan *plan);

typedef struct weft_cp_traffic { /* what one call sends from this rank, by the formulas of the plan */
    int64_t forward_bytes, backward_bytes;
    int64_t forward_messages, backward_messages; /* pieces */
} weft_cp_traffic;
weft_cp_traffic weft_cp_planned(const weft_cp_plan *plan, int slot);

/* ---- what a bound plan does, step by step ------------------------------------------------------------------- */

/* Step i of the context stage on this rank: its queries over the keys and values of one owner. */
typedef struct weft_cp_work {
    int step, owner;             /* owner: a rank of the plan's comm */
    int head0, heads;            /* query heads that this rank computes, as numbers of the model */
    int kv_head0, kv_heads;      /* the key/value heads that they read */
    int64_t queries, keys;       /* rows here and there: with head groups, those of the whole groups */
    const weft_attn_pair *pairs; /* [n] what is computed: rows and positions of queries and of keys that they see */
    int64_t n;                   /* 0: nothing to compute */
} weft_cp_work;

typedef enum { WEFT_CP_MOVE_KV, WEFT_CP_MOVE_DKV, WEFT_CP_MOVE_HEADS, WEFT_CP_MOVE_HEADS_BACK } weft_cp_move_kind;

/* A message of this rank, in one forward or backward call. */
typedef struct weft_cp_move {
    weft_cp_move_kind kind;      /* keys and values; their gradients; to head layout; back to sequence layout */
    bool received;               /* else sent */
    int step;                    /* of the context stage, at which it is posted; of the head stage: 0 */
    int peer;                    /* the other end, a rank of the plan's comm */
    int owner;                   /* whose rows it carries, a rank likewise; of the head stage: the sender */
    int64_t rows;                /* of keys; of the head stage: 0, there are several tensors */
    int64_t bytes, pieces;
} weft_cp_move;

typedef struct weft_cp_view {    /* who is told; either may be NULL */
    void *ud;
    void (*work)(void *ud, const weft_cp_work *work);  /* in the order of steps */
    void (*move)(void *ud, const weft_cp_move *move);  /* messages of no byte are not sent, and not told of */
} weft_cp_view;

/* Tells of what forward (or backward) will do in a bound slot. The strategy's own lists, from which weft_cp_planned is
 * summed, too. LOCAL, no allocation */
weft_status weft_cp_steps(const weft_cp_plan *plan, int slot, bool backward, const weft_cp_view *view);

/* The names in the table of strategies, for help and refusals. */
const char *const *weft_cp_names(int *n);
/* Refuses what is neither one of them nor "auto". LOCAL */
weft_status weft_cp_known(const char *name);

/* What "auto" compares, and the buffers that each plan would make: a table with a line per strategy under a line of
 * headings. First the one that these options choose, marked by a star, then the others by the seconds that a rank
 * stands still per layer, forward and backward, by the profile (docs/maths/cost.md); last those that cannot run, with
 * the reason. `any` is any communicator of this process. LOCAL */
weft_status weft_cp_explain(const weft_kern *kern, weft_comm *any, const weft_cp_problem *problem,
                            const weft_cp_options *options, int P, weft_text *out);

/* What one layer costs, by the model that "auto" compares (docs/maths/cost.md). Of a rank: seconds are those of the
 * busiest, bytes the mean over ranks of what one sends. */
typedef struct weft_cp_cost {
    double attention_forward, attention_backward; /* seconds of a rank's attention where the area is cut evenly, with
                                                   * no more edges of the mask than need be; without ... */
    double calls;                             /* ... calls of kernels and, for each block but the first, the running
                                               * state through memory: in each direction */
    double exposed_forward, exposed_backward; /* seconds that a rank stands still for exchanges */
    double moving_forward, moving_backward;   /* seconds that the same transfers take, hidden or not */
    double uneven_forward, uneven_backward;   /* seconds that the busiest rank computes longer */
    double context_forward, context_backward; /* bytes sent to ranks with the same heads ... */
    double heads_forward, heads_backward;     /* ... and inside head groups */
    int head_ranks;                           /* U; 1: there are no head groups */
    const char *strategy;                     /* the one that the options name, or that "auto" takes */
} weft_cp_cost;
/* Seconds of both directions that a way adds to the mean attention: what ways are compared by. LOCAL, pure */
double weft_cp_cost_added(const weft_cp_cost *cost);
/* Refuses what planning refuses. options->profile NULL: weft_profile_default. LOCAL, pure */
weft_status weft_cp_cost_of(weft_cp_cost *out, const weft_cp_problem *problem, const weft_cp_options *options, int P);

/* The plan that rank 0 of P would make: appends how it prints itself, and what it allocates. Makes no buffer. `any` is
 * any communicator of this process. LOCAL */
typedef struct weft_cp_sizes {
    size_t pool, kv_buffers, kept;
    size_t held;    /* all that a plan allocates: the pool, sums, work of the kernels, slots, requests */
    int head_ranks; /* U; 1: there are no head groups */
    const char *strategy; /* that was named, or chosen */
} weft_cp_sizes;
weft_status weft_cp_preview(const weft_kern *kern, weft_comm *any, const weft_cp_problem *problem,
                            const weft_cp_options *options, int P, weft_text *text, weft_cp_sizes *sizes);
/* What the plan of `rank` of P would allocate. WEFT_CP_FULLEST: of the rank that allocates most, for where heads do not
 * divide evenly, members of a head group hold different numbers of them. LOCAL */
enum { WEFT_CP_FULLEST = -1 };
weft_status weft_cp_preview_sizes(const weft_kern *kern, weft_comm *any, const weft_cp_problem *problem,
                                  const weft_cp_options *options, int P, int rank, weft_cp_sizes *sizes);
/* weft_cp_steps of the plan that `rank` of P would make, bound to a micro-batch. q and kv as for weft_cp_bind. LOCAL */
typedef struct weft_cp_seat { int P, rank; const weft_shard *q, *kv; } weft_cp_seat;
weft_status weft_cp_preview_steps(const weft_kern *kern, weft_comm *any, const weft_cp_problem *problem,
                                  const weft_cp_options *options, const weft_cp_seat *seat, bool backward,
                                  const weft_cp_view *view);

#endif
