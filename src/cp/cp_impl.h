/* cp_impl.h — what a strategy is and what strategies share, for the files of this room only.
 *
 * A strategy decides which bytes move and when. Everything that decides the result is common code: which
 * rows see which (cp_pairs.c), the order of blocks (weft__cp_owner), how a block is computed and how
 * gradients are finished (cp_block.c). That is why strategies agree bit for bit.
 *
 * Block of step i on rank r: the keys and values of rank r - i (mod P). In a buffer, a block of n rows is
 * K [n, Hkv, D] and then V [n, Hkv, Dv] (C); its gradient is dK and then dV in the same shape (R). */
#ifndef WEFT_CP_IMPL_H
#define WEFT_CP_IMPL_H

#include "cp/cp.h"

enum {
    /* Calls of the kernel per block. Within a call, pairs share no query and no key row; a rank holds at most
     * two segments of one document of a row, so 2 x 2 pairs of segments need two calls (cp_pairs.c). */
    WEFT__CP_WAVES = 2,
    /* A message's tag is one of these plus the rank whose block it is about: a message out of order cannot be
     * taken for another. */
    WEFT__CP_TAG_KV = 0x10000,
    WEFT__CP_TAG_DKV = 0x20000,
    WEFT__CP_MAX_RANKS = 0x10000
};

typedef struct weft__cp_slot { /* one bound micro-batch */
    bool bound;
    int64_t q_rows;         /* of this rank */
    int64_t *kv_rows;       /* [P] of every rank */
    int64_t kv_total;
    weft_attn_pair *pairs;  /* wave w of step i: pairs[first[i * WAVES + w]] .. */
    int64_t *first;         /* [P * WAVES + 1] */
    int64_t forward_bytes, backward_bytes; /* what this rank sends; set by the strategy's bind */
} weft__cp_slot;

typedef struct weft__cp_block { /* where the keys and values of one rank lie */
    const void *k, *v;
    int64_t k_ld, v_ld;
} weft__cp_block;

typedef struct weft_cp_strategy {
    const char *name, *desc;
    /* May this strategy do it? When not, *why says rule, value and what works. Pure. */
    bool (*applicable)(const weft_cp_problem *problem, int P, weft_text *why);
    /* Seconds of one forward that are not attention, by a model; only compared among strategies. Pure. */
    double (*cost)(const weft_cp_problem *problem, int P);
    /* Sets plan->state and plan->kv_buffer_bytes; buffers for the largest case. */
    weft_status (*plan)(weft_cp_plan *plan, weft_arena *arena);
    /* Sets the slot's byte counts; its rows and pairs are already there. */
    void (*bind)(const weft_cp_plan *plan, weft__cp_slot *slot);
    weft_status (*forward)(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io);
    weft_status (*backward)(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io);
    void (*describe)(const weft_cp_plan *plan, weft_text *out);
} weft_cp_strategy;

struct weft_cp_plan {
    const weft_cp_strategy *strategy;
    void *state;              /* the strategy's own */
    weft_cp_problem problem;  /* alibi copied */
    bool overlap;
    weft_comm *comm;
    weft_world *world;
    weft_ctx *ctx;
    int P, rank;
    const weft_kern_ops *ops;
    weft_attn_desc desc;
    weft_attn_run run;
    size_t kv_row_bytes, dkv_row_bytes; /* of one row of a block: in C, in R */
    int64_t q_rows_max, kv_rows_max; /* of any rank */
    int64_t pair_capacity;    /* of all blocks of a slot */
    size_t kv_buffer_bytes;
    void *rows;               /* (R) [q_rows_max, H, max(D, Dv)]: acc in forward, dq in backward */
    void *delta;              /* (R) [q_rows_max, H] */
    void *own;                /* (R) gradient of the own block: own part, at last the whole */
    weft__cp_slot *slots;
};

/* cp_list.c */
extern const weft_cp_strategy *const weft__cp_strategies[];
extern const int weft__cp_strategy_count;
extern const weft_cp_strategy weft__cp_none, weft__cp_pcp, weft__cp_ring;

/* cp_check.c: refusals and choice. LOCAL */
weft_status weft__cp_check(const weft_cp_problem *problem, weft_attn_desc *desc);
weft_status weft__cp_choose(const weft_cp_problem *problem, const char *name, int P, const weft_cp_strategy **out);
/* A number that differs when two ranks would plan differently. */
int64_t weft__cp_hash(const weft_cp_problem *problem, const char *strategy);

/* The model behind `cost` (cp_check.c). */
typedef struct weft__cp_exchange { double messages_in_turn, bytes_moved, bytes_held; } weft__cp_exchange;
double weft__cp_seconds(weft__cp_exchange x);
/* Bytes of one rank's K,V block, on average. */
double weft__cp_block_bytes(const weft_cp_problem *problem, int P);

/* cp_pairs.c */
int64_t weft__cp_pair_capacity(const weft_cp_problem *problem, int P);
weft_status weft__cp_bind_pairs(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q, const weft_shard *kv);

/* ---- who ------------------------------------------------------------------------------------------- */

/* The rank whose block is computed at step i, 0 <= i < P. */
static inline int weft__cp_owner(const weft_cp_plan *plan, int i) { return (plan->rank - i + plan->P) % plan->P; }
/* The rank that computes this rank's block at step i. */
static inline int weft__cp_reader(const weft_cp_plan *plan, int i) { return (plan->rank + i) % plan->P; }

static inline size_t weft__cp_kv_bytes(const weft_cp_plan *plan, const weft__cp_slot *slot, int owner)
{
    return (size_t)slot->kv_rows[owner] * plan->kv_row_bytes;
}
static inline size_t weft__cp_dkv_bytes(const weft_cp_plan *plan, const weft__cp_slot *slot, int owner)
{
    return (size_t)slot->kv_rows[owner] * plan->dkv_row_bytes;
}

/* ---- cp_block.c: the same steps for every strategy --------------------------------------------------- */

/* Once per step: tells the others where this rank is, and lets a test's fault act. */
weft_status weft__cp_step(weft_cp_plan *plan, const weft_cp_io *io, const char *site, const char *op, int step);
weft_status weft__cp_wait(weft_cp_plan *plan, const weft_cp_io *io, const char *op, int step, weft_req *reqs, int n);

weft__cp_block weft__cp_own_block(const weft_cp_io *io);
weft__cp_block weft__cp_block_in(const weft_cp_plan *plan, const void *buffer, int64_t rows);
/* Own K,V rows into a buffer. */
void weft__cp_pack(const weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, void *buffer);

void weft__cp_forward_begin(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io);
void weft__cp_forward_block(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, int step,
                            weft__cp_block block);
void weft__cp_forward_end(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io);

void weft__cp_backward_begin(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io);
/* The block's gradient from this rank's queries alone goes to dkv, which is overwritten. */
void weft__cp_backward_block(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, int step,
                             weft__cp_block block, void *dkv);
/* sum += part, for the gradient of the block of `owner`. */
void weft__cp_add(const weft_cp_plan *plan, const weft__cp_slot *slot, int owner, void *sum, const void *part);
/* Writes dq, and dk, dv from plan->own. */
void weft__cp_backward_end(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io);

/* "(ring P=4 zigzag (kernel avx512 64x128))" */
/* `applicable` of strategies that take any number of ranks that their tags can name. */
bool weft__cp_ranks_fit(const weft_cp_problem *problem, int P, weft_text *why);
void weft__cp_describe_exchange(const weft_cp_plan *plan, weft_text *out);

#endif
