/* cp_impl.h — what a strategy is and what strategies share, for the files of this room only.
 *
 * A strategy decides which bytes move and when. Everything that decides the result is common code: which
 * rows see which (cp_pairs.c), the order of blocks (weft__cp_owner), how a block is computed and how
 * gradients are finished (cp_block.c). That is why strategies agree bit for bit.
 *
 * A plan is for a team of P ranks. Plans nest: the head stage (cp_heads.c) is a strategy whose plan holds the plan
 * of a context strategy for the team of the ranks with the same heads; to that inner plan, P is R.
 *
 * Block of step i on rank r: the keys and values of rank r - i (mod P). On the wire a row of a block is its K
 * [Hkv, D] and then its V [Hkv, Dv] in the wire type (8-bit types: in groups of rows with scales, kern/move/move.h), so
 * that any prefix of the bytes is a prefix of the rows and a message may be cut anywhere. The gradient of a block of n
 * rows is dK [n, Hkv, D] and then dV [n, Hkv, Dv]: in R in memory, in the gradient type on the wire.
 *
 * Buffers may be memory of another rank, or, in a simulated world, addresses without memory: only kernels touch them
 * (plan->ops->attn, plan->ops->move), never memcpy, memset or a loop here. */
#ifndef WEFT_CP_IMPL_H
#define WEFT_CP_IMPL_H

#include "cp/cp.h"

enum {
    /* A message's tag is one of these plus the rank whose block it is about: a message out of order cannot be
     * taken for another. */
    WEFT__CP_TAG_KV = 0x10000,
    WEFT__CP_TAG_DKV = 0x20000,
    WEFT__CP_TAG_HEADS = 0x30000,      /* to head layout */
    WEFT__CP_TAG_HEADS_BACK = 0x40000, /* and back to sequence layout */
    WEFT__CP_MAX_RANKS = 0x10000,
    WEFT__CP_MAX_STRATEGIES = 32
};

typedef struct weft__cp_team { /* the ranks of a plan: member i is rank first + i * step of comm */
    weft_comm *comm;
    int first, step, size, rank; /* rank: this rank's number in the team */
} weft__cp_team;

typedef struct weft__cp_ask { /* what is asked for, as applicable, cost and choice see it */
    const weft_cp_problem *problem;
    const weft_cp_options *options;
    const weft_profile *profile;
    int P;
    int U; /* for the cost of a context strategy inside a head stage: ranks per head group; 0 or 1: none */
} weft__cp_ask;

typedef struct weft__cp_cost { /* of one layer, forward and backward; only compared among strategies */
    double seconds;                       /* that a rank stands still, and what uneven shares add to its computing */
    weft_cp_cost parts;                   /* what `seconds` is the sum of, and the bytes */
    double forward_bytes, backward_bytes; /* that a rank sends, on average */
} weft__cp_cost;

/* ---- what lies on the wire (cp_wire.c) ------------------------------------------------------------------- */

enum { WEFT__CP_TENSORS = 4 };

typedef struct weft__cp_wire { /* rows of a few tensors side by side, all of one type */
    weft_dtype type;
    int tensors;
    int64_t row_bytes, scale_bytes; /* of a row; of the scales of a group of rows (8-bit types only) */
    weft_f8 place[WEFT__CP_TENSORS]; /* for every type: heads, width and row_at hold */
} weft__cp_wire;

weft__cp_wire weft__cp_wire_make(weft_dtype type, int tensors, const int *heads, const int *widths);
size_t weft__cp_wire_bytes(const weft__cp_wire *w, int64_t rows);
/* Whole rows in the first `bytes` of a message of such rows. */
int64_t weft__cp_wire_rows(const weft__cp_wire *w, size_t bytes);
/* `rows` rows of tensor `t` of a message to and from arrays of any floating type. Decoding starts at row `row0` of the
 * message and fills rows 0 .. rows - 1 that `to` selects. */
void weft__cp_encode(const weft_cp_plan *plan, const weft__cp_wire *w, int t, void *wire, const void *src,
                     const weft_rows *from, int64_t rows);
void weft__cp_decode(const weft_cp_plan *plan, const weft__cp_wire *w, int t, const void *wire, int64_t row0, void *dst,
                     const weft_rows *to, int64_t rows);
/* The types that K,V, gradient sums and dO of the head stage have on the wire; refusals of what makes no sense. */
weft_status weft__cp_wire_check(weft_prec prec, const weft_cp_options *options);
weft_dtype weft__cp_kv_type(weft_prec prec, const weft_cp_options *options);
weft_dtype weft__cp_grad_type(weft_prec prec, const weft_cp_options *options);
weft_dtype weft__cp_dout_type(weft_prec prec, const weft_cp_options *options);

/* ---- messages in pieces (cp_message.c) ---------------------------------------------------------------- */

/* A message of any size, cut into ceil(bytes / buffer_bytes) pieces. Unused (zeroed), or of 0 bytes, it is complete. */
typedef struct weft__cp_message {
    weft_req *req; /* [capacity] */
    int capacity, pieces;
    int here;              /* pieces that were waited for */
    size_t bytes;
    const char *data;      /* of a receive: where its bytes lie, known when the first piece is here */
    bool view;             /* may lie in place: to be released */
    struct weft__cp_message *on; /* of a receive: pieces go on as soon as they are here, by this message, or NULL */
    int on_member, on_tag;
} weft__cp_message;

weft_status weft__cp_message_alloc(const weft_cp_plan *plan, weft_arena *arena, size_t bytes_max,
                                   weft__cp_message *out);
/* member: of the plan's team. Nothing is sent for 0 bytes. */
weft_status weft__cp_send(weft_cp_plan *plan, weft__cp_message *m, const void *buf, size_t bytes, int member, int tag);
weft_status weft__cp_recv(weft_cp_plan *plan, weft__cp_message *m, void *buf, size_t bytes, int member, int tag);
/* Where plan->in_place, m->data will be the sender's memory and buf is not used (it may be NULL), and the send stays
 * open until weft__cp_release; else buf. What was sent from must come from plan->buffers. */
weft_status weft__cp_recv_view(weft_cp_plan *plan, weft__cp_message *m, void *buf, size_t bytes, int member, int tag);
/* Pieces of a receive that was posted shall be sent on to `member` by `on`: now what is here, the rest as it comes. */
weft_status weft__cp_pass_on(weft_cp_plan *plan, weft__cp_message *m, weft__cp_message *on, int member, int tag);
/* Until the first `bytes` of a receive are here. Sends on every piece that is. */
weft_status weft__cp_arrive(weft_cp_plan *plan, const weft_cp_io *io, const char *op, int step, weft__cp_message *m,
                            size_t bytes);
/* Until all pieces of all messages are here. */
weft_status weft__cp_wait(weft_cp_plan *plan, const weft_cp_io *io, const char *op, int step, weft__cp_message *m,
                          int n);
/* The bytes of a complete receive are no longer needed here, nor being sent on. Nothing to do for others. */
void weft__cp_release(weft__cp_message *m);
/* Pieces of a message of so many bytes. */
int64_t weft__cp_pieces(const weft_cp_plan *plan, size_t bytes);

/* ---- plans, slots, strategies ------------------------------------------------------------------------- */

typedef struct weft__cp_slot { /* one bound micro-batch */
    bool bound;
    int64_t q_rows;         /* of this rank */
    int64_t *kv_rows;       /* [P] of every rank */
    int64_t kv_total;
    weft_attn_pair *pairs;  /* of step i: pairs[first[i]] .., those of the same queries one after the other */
    int *wave;              /* which call of the backward each belongs to */
    int64_t *first;         /* [P + 1] */
    void *state;            /* the strategy's own */
    weft_cp_traffic traffic; /* the sum of what the strategy's `moves` tells */
} weft__cp_slot;

typedef struct weft_cp_strategy {
    const char *name, *desc;
    /* May this strategy do it? When not, *why says rule, value and what works. Pure. */
    bool (*applicable)(const weft__cp_ask *ask, weft_text *why);
    /* By the profile. Pure. */
    weft__cp_cost (*cost)(const weft__cp_ask *ask);
    /* Sets plan->state, each slot's state, plan->kv_buffer_bytes; buffers for the largest case. */
    weft_status (*plan)(weft_cp_plan *plan, weft_arena *arena);
    /* The slot's rows and pairs are already there. q and kv are the team's shards. */
    weft_status (*bind)(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q, const weft_shard *kv);
    /* Tells of all messages of forward, or of backward, in the order of steps (weft__cp_tell_kv, ..). */
    void (*moves)(const weft_cp_plan *plan, const weft__cp_slot *slot, bool backward, const weft_cp_view *view);
    weft_status (*forward)(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io);
    weft_status (*backward)(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io);
    void (*describe)(const weft_cp_plan *plan, weft_text *out);
    const struct weft_cp_strategy *context; /* of the head stage: what runs inside; else NULL */
} weft_cp_strategy;

struct weft_cp_plan {
    const weft_cp_strategy *strategy;
    void *state;              /* the strategy's own */
    weft_cp_problem problem;  /* alibi copied; of an inner plan: its layout still is the one over all ranks */
    weft_cp_options options;  /* head_size settled */
    weft__cp_team team;
    weft_world *world;
    weft_ctx *ctx;
    const weft_kern *kern;
    int P, rank;              /* the team's */
    int group;                /* ranks of the caller's comm that make one rank of this team (U), else 1 */
    const weft_kern_ops *ops;
    weft_attn_desc desc;      /* heads of this rank */
    weft_attn_run run;
    weft__cp_wire wire;       /* K,V on the wire: tensor 0 is K, tensor 1 is V */
    weft_dtype grad_type;     /* of travelling gradient sums */
    size_t grad_row_bytes, part_row_bytes; /* of one row of a block's gradient: on the wire, in R */
    bool in_place;            /* what is received lies in the sender's memory */
    int64_t q_rows_max, kv_rows_max; /* of any rank of the team */
    int waves;                /* calls of the kernel's backward per block: pairs of one share no row (cp_pairs.c) */
    int64_t pair_capacity;    /* of all blocks of a slot */
    size_t kv_buffer_bytes, pool_bytes, kept_bytes;
    weft_arena *buffers;      /* everything that travels or is as large as the rows; the root plan's */
    void *rows;               /* (R) [q_rows_max, H, max(D, Dv)]: acc in forward, dq in backward */
    void *delta;              /* (R) [q_rows_max, H] */
    void *own;                /* (R) gradient of the own block: own part, at last the whole */
    void *own_kv;             /* options.fp8: own rows (C) as the others see them, decoded; order as on the wire */
    void *own_wire;           /* options.fp8 without backward: own rows in wire form */
    void *decoded;            /* a received block in C, where the wire has another type; order as on the wire */
    weft_attn_pair *clipped;  /* [pair_capacity] pairs of a portion or of a wave */
    const void *given_delta;  /* set by the head stage: delta that came with dO; NULL: computed from io->o */
    weft__cp_slot *slots;
};

/* cp_list.c */
extern const weft_cp_strategy *const weft__cp_strategies[];
extern const int weft__cp_strategy_count;
extern const weft_cp_strategy weft__cp_none, weft__cp_pcp, weft__cp_ring, weft__cp_pairwise, weft__cp_dcp,
    weft__cp_ulysses, weft__cp_dcp_ring, weft__cp_dcp_pairwise;

/* Query heads per key/value head, and the first key/value head here, as numbers of the whole model. */
static inline int weft__cp_group(const weft_cp_problem *p) { return p->group ? p->group : p->H / p->Hkv; }
static inline int weft__cp_kv_head0(const weft_cp_problem *p) { return p->head0 / weft__cp_group(p); }

/* Heads of member u of a head group of U: without padding, the first H mod U members have one query head more; and the
 * K,V heads that its query heads read. Counted from the problem's first heads; which query heads share a K,V head
 * follows from their numbers in the whole model. */
typedef struct weft__cp_heads { int head0, heads, kv_head0, kv_heads; } weft__cp_heads;
static inline weft__cp_heads weft__cp_heads_of(const weft_cp_problem *p, int U, int u)
{
    int base = p->H / U, more = p->H % U, group = weft__cp_group(p);
    weft__cp_heads h = {.head0 = u * base + (u < more ? u : more), .heads = base + (u < more)};
    int first = p->head0 + h.head0;
    h.kv_head0 = first / group - weft__cp_kv_head0(p);
    h.kv_heads = h.heads ? (first + h.heads - 1) / group - first / group + 1 : 0;
    return h;
}

/* cp_check.c, cp_choose.c: refusals and choice. LOCAL */
weft_status weft__cp_check(const weft_cp_problem *problem, const weft_cp_options *options, weft_attn_desc *desc);
/* Strategy's `applicable`, and whether it takes the options of the head stage. */
bool weft__cp_can(const weft_cp_strategy *strategy, const weft__cp_ask *ask, weft_text *why);
weft_status weft__cp_choose(const weft__cp_ask *ask, const weft_cp_strategy **out);
/* A number that differs when two ranks would plan differently. */
int64_t weft__cp_hash(const weft_cp_problem *problem, const weft_cp_options *options, const char *strategy);

/* cp.c: a plan for a team. The draft holds strategy, problem, options, team, group, desc; LOCAL. */
weft_status weft__cp_build(weft_cp_plan **out, weft_arena *arena, weft_arena *buffers, const weft_kern *kern,
                           const weft_cp_plan *draft);
/* `count` equal buffers that travel: pre-faulted, until the plan's end, counted in plan->pool_bytes. *bytes_all (may be
 * NULL) += what they take. */
weft_status weft__cp_buffers(weft_cp_plan *plan, int count, size_t bytes, const char *label, void **out,
                             size_t *bytes_all);
/* Rows, pairs and the strategy's bind. Shards are the team's. LOCAL, no allocation */
weft_status weft__cp_bind_slot(weft_cp_plan *plan, int slot, const weft_shard *q, const weft_shard *kv);
/* Refuses a slot that does not exist or is not bound. */
weft_status weft__cp_check_bound(const weft_cp_plan *plan, int slot);

/* The model behind `cost` (cp_cost.c). Exchanges of a context stage; ask->U says inside which head groups. */
weft__cp_cost weft__cp_cost_none(const weft__cp_ask *ask);
weft__cp_cost weft__cp_cost_gather(const weft__cp_ask *ask);
weft__cp_cost weft__cp_cost_ring(const weft__cp_ask *ask);
weft__cp_cost weft__cp_cost_pairwise(const weft__cp_ask *ask);
/* Of head groups of U ranks (P for ulysses, whose context is `none`) around a context strategy. */
weft__cp_cost weft__cp_cost_heads(const weft__cp_ask *ask, int U, const weft_cp_strategy *context);
/* Between neighbouring `ranks` ranks: the node's rates when they fit into one. at_once: a rank's port, shared by
 * all. */
typedef struct weft__cp_link { double latency, bytes_per_second; } weft__cp_link;
weft__cp_link weft__cp_link_of(const weft_profile *profile, int ranks, bool at_once);

typedef struct weft__cp_picture { /* of one sequence on R context ranks */
    double area;    /* visible pairs of one head, all ranks together */
    double edges;   /* how often a row ends at an edge of the mask beyond the once that no cut avoids */
    double blocks, most_blocks; /* of keys that a row is computed with, on average and on the rank with most: those of
                                 * an owner are one, forward ... */
    double spans, most_spans;   /* ... and backward each consecutive part of them is */
    double busiest; /* largest share of it / mean share */
    double need;    /* rows of others that a rank needs, on average */
    double owners;  /* from how many others it needs any, at most */
} weft__cp_picture;
/* Edges of the mask at which each row ends: 0, 1 (causal), 2 (a window). Pure. */
int weft__cp_mask_edges(const weft_mask *mask);
/* Stripes of U ranks of a head group are one. Areas take as long for many ranks as for few while Tq == T. Pure. */
weft__cp_picture weft__cp_picture_of(const weft_cp_problem *problem, int R, int U);

/* Segments of all ranks, of queries or of keys, at most. */
static inline int64_t weft__cp_segments(const weft_cp_plan *plan)
{
    const weft_cp_problem *p = &plan->problem;
    return weft_shard_capacity(p->layout, p->B, weft_max_i64(p->T, p->Tq), p->max_docs, plan->P * plan->group);
}

/* cp_steps.c: messages of rows of `owner`, to or from `member` of the team, as parts of `moves`. */
typedef struct weft__cp_hop { int step, member, owner; bool received; } weft__cp_hop;
void weft__cp_tell_kv(const weft_cp_plan *plan, const weft_cp_view *view, weft__cp_hop hop, int64_t rows);
void weft__cp_tell_dkv(const weft_cp_plan *plan, const weft_cp_view *view, weft__cp_hop hop, int64_t rows);
/* Bytes and messages that `moves` says leave this rank. */
weft_cp_traffic weft__cp_count_moves(const weft_cp_plan *plan, const weft__cp_slot *slot);
/* The plan that attends: the inner one of a head stage, or the plan itself. */
const weft_cp_plan *weft__cp_attending(const weft_cp_plan *plan);

/* cp_pairs.c */
int64_t weft__cp_pair_capacity(const weft_cp_plan *plan);
weft_status weft__cp_bind_pairs(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q,
                                const weft_shard *kv);

/* C and R of the plan, and their sizes. */
static inline weft_dtype weft__cp_c(const weft_cp_plan *plan) { return weft_prec_compute(plan->problem.prec); }
static inline weft_dtype weft__cp_r(const weft_cp_plan *plan) { return weft_prec_real(plan->problem.prec); }
static inline size_t weft__cp_c_size(const weft_cp_plan *plan) { return weft_dtype_size(weft__cp_c(plan)); }
static inline size_t weft__cp_r_size(const weft_cp_plan *plan) { return weft_dtype_size(weft__cp_r(plan)); }

/* ---- who ------------------------------------------------------------------------------------------- */

/* The rank whose block is computed at step i, 0 <= i < P. */
static inline int weft__cp_owner(const weft_cp_plan *plan, int i) { return (plan->rank - i + plan->P) % plan->P; }
/* The rank that computes this rank's block at step i. */
static inline int weft__cp_reader(const weft_cp_plan *plan, int i) { return (plan->rank + i) % plan->P; }

/* A member of the team as a rank of comm. */
static inline int weft__cp_peer(const weft_cp_plan *plan, int member)
{
    return plan->team.first + member * plan->team.step;
}

static inline size_t weft__cp_kv_bytes(const weft_cp_plan *plan, const weft__cp_slot *slot, int owner)
{
    return weft__cp_wire_bytes(&plan->wire, slot->kv_rows[owner]);
}
static inline size_t weft__cp_dkv_bytes(const weft_cp_plan *plan, const weft__cp_slot *slot, int owner)
{
    return (size_t)slot->kv_rows[owner] * plan->grad_row_bytes;
}

/* ---- cp_block.c: the same steps for every strategy --------------------------------------------------- */

/* Once per step: tells the others where this rank is, and lets a test's fault act. */
weft_status weft__cp_step(weft_cp_plan *plan, const weft_cp_io *io, const char *site, const char *op, int step);

typedef struct weft__cp_rows { /* (C) where keys and values lie */
    const void *k, *v;
    int64_t k_ld, v_ld;
} weft__cp_rows;
/* The own rows: the caller's, or with options.fp8 what the others get. After forward_begin or backward_begin, and as
 * long as the call lasts. */
weft__cp_rows weft__cp_own_rows(const weft_cp_plan *plan, const weft_cp_io *io);
/* Of a buffer with rows [K | V] in C. */
weft__cp_rows weft__cp_rows_in(const weft_cp_plan *plan, const void *buffer);

typedef struct weft__cp_block { /* keys and values to compute with */
    const char *op;            /* for places and traces, as step */
    int step;
    int64_t rows;
    const weft_attn_pair *pairs; /* [n], as in the slot */
    const int *wave;
    int64_t n;
    size_t bytes;              /* of the whole block on the wire, by which it is computed in portions; 0: at once */
    weft__cp_rows at;          /* where they lie, when there is no message */
    weft__cp_message *message; /* what brings them, in plan->wire form, or NULL */
    int64_t row0, count;       /* rows [row0, row0 + count) are what the message brings; no query sees any other */
} weft__cp_block;
/* The block of step i, as `message` brings it; NULL: the own rows. */
weft__cp_block weft__cp_block_of(const weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io,
                                 const char *op, int step, weft__cp_message *message);

/* packed: gets the own rows in wire form, to be sent; or NULL. */
void weft__cp_forward_begin(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, void *packed);
/* Waits for the message's pieces and computes all rows that are complete, portion by portion, while the next pieces
 * travel. On return the whole message is here (and sent on, if it shall be). Portions depend on the plan, never on
 * time. */
weft_status weft__cp_forward_block(weft_cp_plan *plan, const weft_cp_io *io, const weft__cp_block *block);
void weft__cp_forward_end(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io);

void weft__cp_backward_begin(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, void *packed);
/* The block's gradient from this rank's queries alone goes to dkv (R), which is overwritten. */
weft_status weft__cp_backward_block(weft_cp_plan *plan, const weft_cp_io *io, const weft__cp_block *block, void *dkv);
/* A part or sum (R) of `rows` rows as it is sent: itself when R travels, else encoded into `wire`. */
const void *weft__cp_grad_encode(const weft_cp_plan *plan, int64_t rows, const void *part, void *wire);
/* sum (R) = what came (of the gradient type), or sum += what came, or sum += another sum in R. */
void weft__cp_grad_store(const weft_cp_plan *plan, int64_t rows, void *sum, const void *came);
void weft__cp_grad_add(const weft_cp_plan *plan, int64_t rows, void *sum, const void *came);
void weft__cp_part_add(const weft_cp_plan *plan, int64_t rows, void *sum, const void *part);
/* Writes dq, and dk, dv from plan->own. */
void weft__cp_backward_end(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io);

/* `applicable` of strategies that take any number of ranks that their tags can name. */
bool weft__cp_ranks_fit(const weft__cp_ask *ask, weft_text *why);
/* "(ring P=4 zigzag (kernel avx512 64x120))" */
void weft__cp_describe_exchange(const weft_cp_plan *plan, weft_text *out);

#endif
