/* cp_heads.h — what the files of the head stage share; seen by src/cp/cp_heads*.c only.
 *
 * Rank u + U r is member u of head group r. An exchange among the members of a group takes tensors from sequence layout
 * (own rows, all heads) to head layout (the rows of the whole group, own heads) or back. The group's rows lie in token
 * order in head layout, whatever the layout of the sequence (weft_shard_group). */
#ifndef WEFT_CP_HEADS_H
#define WEFT_CP_HEADS_H

#include "cp/cp_impl.h"

/* Where the rows of each member lie among the rows of the group. */
typedef struct weft__heads_rows {
    int64_t *rows;      /* [U] how many a member has */
    int64_t *first;     /* [U + 1] ranges of member j: range[first[j]] .. range[first[j + 1] - 1], in order of its
                           rows */
    weft_range *range;
    int64_t capacity;
} weft__heads_rows;

typedef struct weft__heads_slot { weft__heads_rows q, kv; } weft__heads_slot;

/* One tensor of an exchange, rows of `heads` x `dim` elements. */
typedef struct weft__heads_part {
    bool keys;                     /* rows and heads of keys and values; else of queries */
    bool sum;                      /* homeward: parts of a head that several members used are added, by member */
    int dim;
    weft_dtype wire, from_type, to_type;
    const void *from;              /* outward: own rows, all heads; homeward: rows of the group, own heads */
    void *to;                      /* the other way round */
    int64_t from_ld, to_ld;        /* elements between rows */
} weft__heads_part;

typedef struct weft__heads_parts { /* one message to each member: all parts, those with larger elements first */
    bool homeward;
    int n;
    weft__heads_part part[7];
} weft__heads_parts;

typedef struct weft__heads {
    int U, u;                      /* ranks per head group, this rank's place in it */
    weft__cp_heads *of;            /* [U] heads of each member */
    bool shared;                   /* some K,V head is used by more than one member */
    bool keep;                     /* q, k, v, m, l stay in head layout from forward to backward */
    weft_cp_plan *inner;
    weft_shard q_groups, kv_groups; /* of the micro-batch being bound */
    /* head layout: rows of the group, own heads */
    void *q, *kv;                  /* (C) [., H, D]; [., K heads | V heads] */
    void *m, *l, *delta;           /* (R) [., H] */
    void *o;                       /* (C) o in forward, dq in backward */
    void *dout, *dkv;              /* (C) as o, as kv */
    void *rounded;                 /* (C) dO of own rows, all heads, as members get it: rounded; or NULL */
    size_t kept_q, kept_kv, kept_m, kept_l; /* where they lie in io->kept instead, with `keep` */
    char *out, *in;                /* messages to and from all members */
    size_t out_bytes, in_bytes;
    weft__cp_message *send, *recv; /* [U] */
} weft__heads;

/* U of a strategy with a head stage. */
int weft__heads_size(const weft_cp_strategy *strategy, const weft_cp_options *options, const weft_cp_problem *problem,
                     int P);

/* ---- cp_heads_rows.c ---------------------------------------------------------------------------------- */

weft_status weft__heads_rows_alloc(const weft_cp_plan *plan, weft_arena *arena, int64_t group_rows,
                                   weft__heads_rows *out);
/* in: the shard of all ranks; groups: that of the groups. LOCAL, no allocation */
weft_status weft__heads_rows_bind(const weft_cp_plan *plan, const weft_shard *in, const weft_shard *groups,
                                  weft__heads_rows *out);

/* ---- cp_heads_move.c ---------------------------------------------------------------------------------- */

void weft__heads_add(weft__heads_parts *parts, weft__heads_part part);
/* Bytes to and from member j; 0 for this rank itself. */
size_t weft__heads_bytes_to(const weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_parts *parts,
                            int j);
size_t weft__heads_bytes_from(const weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_parts *parts,
                              int j);
weft_status weft__heads_exchange(weft_cp_plan *plan, const weft__heads_slot *rows, const weft_cp_io *io, const char *op,
                                 int step, const weft__heads_parts *parts);

/* What the members get of a part that goes out in 8 bits: own rows, all heads, in `to`. Each head as its member has
 * it, so rounded, but for the own heads. */
void weft__heads_as_received(weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_part *p, void *to,
                             int64_t to_ld);

/* ---- cp_heads_run.c ----------------------------------------------------------------------------------- */

/* The parts of the four exchanges. Pointers of `io` may be NULL when only sizes matter. */
weft__heads_parts weft__heads_forward_out(const weft_cp_plan *plan, const weft_cp_io *io);
weft__heads_parts weft__heads_forward_home(const weft_cp_plan *plan, const weft_cp_io *io);
weft__heads_parts weft__heads_backward_out(const weft_cp_plan *plan, const weft_cp_io *io);
weft__heads_parts weft__heads_backward_home(const weft_cp_plan *plan, const weft_cp_io *io, const weft__cp_slot *inner);
weft_status weft__heads_forward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io);
weft_status weft__heads_backward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io);

static inline void *weft__heads_at(const void *base, size_t bytes)
{
    return base ? (char *)(uintptr_t)base + bytes : NULL;
}

#endif
