/* cp_pairwise.c — every rank gets, directly from each owner, only the rows that its queries can see.
 *
 * At step i rank r computes the block of owner r - i and the message of step i + 1 travels: it comes from r - i - 1, and
 * another goes to r + i + 1. Both ends work out the same rows (weft_shard_need), so nothing is asked for; ranks that
 * share nothing exchange nothing. A message holds the needed rows in ascending order. They are put at the places that
 * they have in the owner's block, so that the pairs of the kernel, its tiles, and therefore all bits of the results are
 * those of pcp and ring. (Kernels on packed rows would cut their tiles elsewhere and round differently.)
 *
 * Backward: K,V rows travel again; the part of step i, for those rows only, goes back to its owner, who adds
 *   dKV_j = ((part_{j+1} + part_{j+2}) + ... + part_{j+P-1}) + part_j
 * row by row with the parts that there are: a part that is not sent would have been 0. (Only the sign of a zero can
 * differ from the ring's, where tiny sums were flushed to -0.)
 *
 * No dead-lock: what a rank waits for in step i was posted by its peer in an earlier step or, before any wait, in
 * step i. A rank in the lowest step of all is therefore never held up for good.
 *
 * Rows that nobody sees are not there. A kernel may still touch them, hidden by the mask, where queries and keys lie in
 * stripes and a window is narrower than the gaps: then they are made 0, for a stale NaN times 0 would be NaN. */
#include "cp/cp_impl.h"

#include <string.h>

typedef struct needs { /* of one slot: entry i of take concerns owner(i), of give reader(i); entry 0 is empty */
    weft_range *range;
    int64_t *take, *give;           /* [P + 1] first ranges */
    int64_t *take_rows, *give_rows; /* [P] */
} needs;

typedef struct pairwise {
    void *own;               /* this rank's block, packed: messages of one range are sent from it as they lie */
    void *block[2];          /* blocks of other owners, step i in block[i % 2] */
    void *pack[2];           /* messages of several ranges */
    void *part, *out[2], *in[2], *total; /* gradients: a whole block; messages; the sum of the parts from others */
    weft__cp_message kv_in[2], kv_out[2], part_in[2], part_out[2];
    bool sparse;             /* rows between needed ones may be touched by kernels */
    needs *need;             /* [slots] */
    int64_t range_capacity;  /* of a slot */
} pairwise;

/* ---- plan ---------------------------------------------------------------------------------------------------- */

/* Stripes with a window on both sides, narrower than what lies between two stripes of a rank. */
static bool has_holes(const weft_cp_plan *plan)
{
    const weft_cp_problem *p = &plan->problem;
    const weft_mask *m = &p->mask;
    if (p->layout.block == 0 || m->left < 0 || !(m->causal || m->right >= 0)) return false;
    int64_t reach = m->left + (m->right < 0 ? 0 : m->right);
    return reach < (int64_t)(plan->P - 1) * p->layout.block * plan->group;
}

/* A pair of segments gives one range: what a run of queries sees is an interval, and intervals of neighbouring queries
 * overlap or touch. With holes each run of keys gives at most two: what is seen from before it and from behind it. */
static int64_t range_capacity(const weft_cp_plan *plan)
{
    const weft_cp_problem *p = &plan->problem;
    int64_t n = 2 * weft__cp_pair_capacity(plan);
    if (has_holes(plan)) n += 4 * (weft_ceil_div(p->B * p->T, p->layout.block * plan->group) + weft__cp_pair_capacity(plan));
    return n;
}

static weft_status alloc_needs(const weft_cp_plan *plan, weft_arena *arena, pairwise *s)
{
    s->range_capacity = range_capacity(plan);
    WEFT_TRY(WEFT_NEW0(arena, plan->problem.slots, "cp needs", &s->need));
    for (int i = 0; i < plan->problem.slots; i++) {
        needs *n = &s->need[i];
        WEFT_TRY(WEFT_NEW0(arena, s->range_capacity, "cp needs", &n->range));
        WEFT_TRY(WEFT_NEW0(arena, plan->P + 1, "cp needs", &n->take));
        WEFT_TRY(WEFT_NEW0(arena, plan->P + 1, "cp needs", &n->give));
        WEFT_TRY(WEFT_NEW0(arena, plan->P, "cp needs", &n->take_rows));
        WEFT_TRY(WEFT_NEW0(arena, plan->P, "cp needs", &n->give_rows));
        plan->slots[i].state = n;
    }
    return WEFT_OK;
}

static weft_status alloc_messages(const weft_cp_plan *plan, weft_arena *arena, size_t bytes, weft__cp_message in[2],
                                  weft__cp_message out[2])
{
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(weft__cp_message_alloc(plan, arena, bytes, &in[i]));
        WEFT_TRY(weft__cp_message_alloc(plan, arena, bytes, &out[i]));
    }
    return WEFT_OK;
}

static weft_status plan_pairwise(weft_cp_plan *plan, weft_arena *arena)
{
    pairwise *s;
    WEFT_TRY(WEFT_NEW0(arena, 1, "cp pairwise", &s));
    plan->state = s;
    s->sparse = has_holes(plan);
    WEFT_TRY(alloc_needs(plan, arena, s));
    if (plan->P == 1) return WEFT_OK;
    size_t kv = (size_t)plan->kv_rows_max * (size_t)plan->wire.row_bytes, dkv = (size_t)plan->kv_rows_max * plan->part_row_bytes;
    WEFT_TRY(weft__cp_buffers(plan, arena, 1, kv, "cp K,V blocks", &s->own, &plan->kv_buffer_bytes));
    WEFT_TRY(weft__cp_buffers(plan, arena, 2, kv, "cp K,V blocks", s->block, &plan->kv_buffer_bytes));
    WEFT_TRY(weft__cp_buffers(plan, arena, 2, kv, "cp K,V blocks", s->pack, &plan->kv_buffer_bytes));
    WEFT_TRY(alloc_messages(plan, arena, kv, s->kv_in, s->kv_out));
    if (!plan->problem.need_backward) return WEFT_OK;
    WEFT_TRY(weft__cp_buffers(plan, arena, 1, dkv, "cp dK,dV blocks", &s->part, NULL));
    WEFT_TRY(weft__cp_buffers(plan, arena, 1, dkv, "cp dK,dV blocks", &s->total, NULL));
    WEFT_TRY(weft__cp_buffers(plan, arena, 2, dkv, "cp dK,dV blocks", s->out, NULL));
    WEFT_TRY(weft__cp_buffers(plan, arena, 2, dkv, "cp dK,dV blocks", s->in, NULL));
    return alloc_messages(plan, arena, dkv, s->part_in, s->part_out);
}

/* ---- bind ---------------------------------------------------------------------------------------------------- */

/* Ranges from range[*n] on: rows of `owner` that the queries of `rank` see. */
static weft_status find_need(const weft_cp_plan *plan, needs *x, int64_t *n, int64_t *rows, const weft_shard *q, int rank,
                             const weft_shard *kv, int owner)
{
    const pairwise *s = plan->state;
    int64_t found = weft_shard_need(&plan->desc.mask, q, rank, kv, owner, x->range + *n, s->range_capacity - *n);
    if (found < 0)
        return weft_fail(WEFT_ERR_REFUSED,
                         "bind: more than %lld ranges of rows; the plan was made for %lld documents per micro-batch",
                         (long long)s->range_capacity, (long long)plan->problem.max_docs);
    *rows = 0;
    for (int64_t i = 0; i < found; i++) *rows += x->range[(*n)++].len;
    return WEFT_OK;
}

static weft_status bind(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q, const weft_shard *kv)
{
    needs *x = slot->state;
    weft_cp_traffic *t = &slot->traffic;
    int64_t n = 0;
    *t = (weft_cp_traffic){0};
    x->take[0] = 0;
    for (int i = 1; i < plan->P; i++) {
        x->take[i] = n;
        WEFT_TRY(find_need(plan, x, &n, &x->take_rows[i], q, plan->rank, kv, weft__cp_owner(plan, i)));
    }
    x->take[plan->P] = x->give[0] = n;
    for (int i = 1; i < plan->P; i++) {
        x->give[i] = n;
        WEFT_TRY(find_need(plan, x, &n, &x->give_rows[i], q, weft__cp_reader(plan, i), kv, plan->rank));
    }
    x->give[plan->P] = n;
    for (int i = 1; i < plan->P; i++) {
        size_t kv_bytes = (size_t)x->give_rows[i] * (size_t)plan->wire.row_bytes, part = (size_t)x->take_rows[i] * plan->part_row_bytes;
        t->forward_bytes += (int64_t)kv_bytes;
        t->forward_messages += weft__cp_pieces(plan, kv_bytes);
        t->backward_bytes += (int64_t)(kv_bytes + part);
        t->backward_messages += weft__cp_pieces(plan, kv_bytes) + weft__cp_pieces(plan, part);
    }
    return WEFT_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

typedef struct rows { /* some rows of a block: `n` ranges with `count` rows in all */
    const weft_range *range;
    int64_t n, count;
} rows;

static rows taken(const weft__cp_slot *slot, int i)
{
    const needs *x = slot->state;
    return (rows){x->range + x->take[i], x->take[i + 1] - x->take[i], x->take_rows[i]};
}

static rows given(const weft__cp_slot *slot, int i)
{
    const needs *x = slot->state;
    return (rows){x->range + x->give[i], x->give[i + 1] - x->give[i], x->give_rows[i]};
}

/* to: dense. */
static void gather(void *to, const void *from, rows x, size_t row_bytes)
{
    char *at = to;
    for (int64_t i = 0; i < x.n; i++) {
        size_t bytes = (size_t)x.range[i].len * row_bytes;
        memcpy(at, (const char *)from + (size_t)x.range[i].begin * row_bytes, bytes);
        at += bytes;
    }
}

/* The inverse. The dense rows may be the last ones of the block itself: a row never moves to a higher place. */
static void scatter(void *to, const void *from, rows x, size_t row_bytes)
{
    const char *at = from;
    for (int64_t i = 0; i < x.n; i++) {
        size_t bytes = (size_t)x.range[i].len * row_bytes;
        memmove((char *)to + (size_t)x.range[i].begin * row_bytes, at, bytes);
        at += bytes;
    }
}

static void clear_others(void *block, rows x, int64_t block_rows, size_t row_bytes)
{
    int64_t row = 0;
    for (int64_t i = 0; i <= x.n; i++) {
        int64_t end = i < x.n ? x.range[i].begin : block_rows;
        memset((char *)block + (size_t)row * row_bytes, 0, (size_t)(end - row) * row_bytes);
        if (i < x.n) row = end + x.range[i].len;
    }
}

/* ---- K,V ----------------------------------------------------------------------------------------------------- */

/* Where the message of step i arrives: at its place when it is one range, else at the end of the block. */
static char *landing(const weft_cp_plan *plan, const weft__cp_slot *slot, int i)
{
    const pairwise *s = plan->state;
    rows x = taken(slot, i);
    int64_t row = x.n == 1 ? x.range[0].begin : slot->kv_rows[weft__cp_owner(plan, i)] - x.count;
    return (char *)s->block[i % 2] + (size_t)row * (size_t)plan->wire.row_bytes;
}

/* Receives and sends of step i. The block and the packed message of step i - 2 are free. */
static weft_status post(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    pairwise *s = plan->state;
    int b = i % 2, owner = weft__cp_owner(plan, i);
    rows in = taken(slot, i), out = given(slot, i);
    const char *from = s->pack[b];
    WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->kv_out[b], 1));
    if (in.count > 0)
        WEFT_TRY(weft__cp_recv(plan, &s->kv_in[b], landing(plan, slot, i), (size_t)in.count * (size_t)plan->wire.row_bytes, owner,
                               WEFT__CP_TAG_KV + owner));
    if (out.count == 0) return WEFT_OK;
    if (out.n == 1) from = (const char *)s->own + (size_t)out.range[0].begin * (size_t)plan->wire.row_bytes;
    else gather(s->pack[b], s->own, out, (size_t)plan->wire.row_bytes);
    return weft__cp_send(plan, &s->kv_out[b], from, (size_t)out.count * (size_t)plan->wire.row_bytes, weft__cp_reader(plan, i),
                         WEFT__CP_TAG_KV + plan->rank);
}

/* Begins step i: the message of the next one sets out, that of this one is there. */
static weft_status step(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    pairwise *s = plan->state;
    int next = i + 1;
    WEFT_TRY(weft__cp_step(plan, io, "cp.pairwise", op, i));
    if (next < plan->P) {
        WEFT_TRY(post(plan, slot, io, op, next));
        if (!plan->options.overlap) {
            WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->kv_in[next % 2], 1));
            WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->kv_out[next % 2], 1));
        }
    }
    rows x = i > 0 ? taken(slot, i) : (rows){0};
    if (x.count == 0) return WEFT_OK;
    WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->kv_in[i % 2], 1));
    if (x.n > 1) scatter(s->block[i % 2], landing(plan, slot, i), x, (size_t)plan->wire.row_bytes);
    if (s->sparse) clear_others(s->block[i % 2], x, slot->kv_rows[weft__cp_owner(plan, i)], (size_t)plan->wire.row_bytes);
    return WEFT_OK;
}

/* The own block may be overwritten by the next call: its sends must be complete before this one returns. */
static weft_status end_kv(weft_cp_plan *plan, const weft_cp_io *io, const char *op)
{
    pairwise *s = plan->state;
    return plan->P > 1 ? weft__cp_wait(plan, io, op, plan->P - 1, s->kv_out, 2) : WEFT_OK;
}

static weft__cp_block block_at(const weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    const pairwise *s = plan->state;
    weft__cp_block b = weft__cp_block_of(plan, slot, io, op, i, NULL);
    if (i > 0) b.at = weft__cp_rows_in(plan, s->block[i % 2]);
    return b;
}

static weft_status forward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.pairwise.forward";
    const pairwise *s = plan->state;
    weft__cp_forward_begin(plan, slot, io, s->own);
    for (int i = 0; i < plan->P; i++) {
        WEFT_TRY(step(plan, slot, io, op, i));
        weft__cp_block block = block_at(plan, slot, io, op, i);
        if (i == 0 || taken(slot, i).count > 0) WEFT_TRY(weft__cp_forward_block(plan, io, &block));
    }
    WEFT_TRY(end_kv(plan, io, op));
    weft__cp_forward_end(plan, slot, io);
    return WEFT_OK;
}

/* ---- dK,dV --------------------------------------------------------------------------------------------------- */

/* A block's gradient is dK [n, Hkv, D] and then dV [n, Hkv, Dv]; a message holds the needed rows of both. */
typedef struct halves { size_t k, v; } halves;

static halves half_bytes(const weft_cp_plan *plan)
{
    size_t r = weft_dtype_size(weft_prec_real(plan->problem.prec)), heads = (size_t)plan->desc.Hkv;
    return (halves){heads * (size_t)plan->desc.D * r, heads * (size_t)plan->desc.Dv * r};
}

/* What this rank's queries add to the rows of owner(i), into out[i % 2]. */
static weft_status compute_part(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    pairwise *s = plan->state;
    rows x = taken(slot, i);
    int64_t n = slot->kv_rows[weft__cp_owner(plan, i)];
    halves h = half_bytes(plan);
    bool whole = x.count == n;
    char *out = s->out[i % 2];
    weft__cp_block block = block_at(plan, slot, io, op, i);
    WEFT_TRY(weft__cp_backward_block(plan, io, &block, whole ? out : s->part));
    if (whole) return WEFT_OK;
    gather(out, s->part, x, h.k);
    gather(out + (size_t)x.count * h.k, (const char *)s->part + (size_t)n * h.k, x, h.v);
    return WEFT_OK;
}

static void add_rows(const weft_cp_plan *plan, void *to, const void *from, rows x, size_t row_bytes)
{
    size_t size = weft_dtype_size(weft_prec_real(plan->problem.prec));
    const char *at = from;
    for (int64_t i = 0; i < x.n; i++) {
        size_t bytes = (size_t)x.range[i].len * row_bytes;
        plan->ops->axpy((char *)to + (size_t)x.range[i].begin * row_bytes, at, 1.0, (int64_t)(bytes / size), plan->run.threads);
        at += bytes;
    }
}

/* The part that reader(i) computed for this rank's block joins the sum, in the order of i. */
static weft_status take_part(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    pairwise *s = plan->state;
    rows x = given(slot, i);
    halves h = half_bytes(plan);
    const char *in = s->in[i % 2];
    if (x.count == 0) return WEFT_OK;
    WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->part_in[i % 2], 1));
    add_rows(plan, s->total, in, x, h.k);
    add_rows(plan, (char *)s->total + (size_t)slot->kv_rows[plan->rank] * h.k, in + (size_t)x.count * h.k, x, h.v);
    return WEFT_OK;
}

/* Step i > 0. A peer's part of step i is taken one step later, so that it may arrive under a computation. */
static weft_status backward_step(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    pairwise *s = plan->state;
    int owner = weft__cp_owner(plan, i), b = i % 2;
    int64_t in = given(slot, i).count, out = taken(slot, i).count;
    WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->part_out[b], 1)); /* of step i - 2 */
    if (in > 0)
        WEFT_TRY(weft__cp_recv(plan, &s->part_in[b], s->in[b], (size_t)in * plan->part_row_bytes, weft__cp_reader(plan, i),
                               WEFT__CP_TAG_DKV + plan->rank));
    if (out > 0) {
        WEFT_TRY(compute_part(plan, slot, io, op, i));
        WEFT_TRY(weft__cp_send(plan, &s->part_out[b], s->out[b], (size_t)out * plan->part_row_bytes, owner,
                               WEFT__CP_TAG_DKV + owner));
    }
    if (!plan->options.overlap) {
        WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->part_in[b], 1));
        WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->part_out[b], 1));
    }
    return i > 1 ? take_part(plan, slot, io, op, i - 1) : WEFT_OK;
}

static weft_status backward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.pairwise.backward";
    pairwise *s = plan->state;
    int last = plan->P - 1;
    weft__cp_backward_begin(plan, slot, io, s->own);
    weft__cp_block own = block_at(plan, slot, io, op, 0);
    if (last > 0) plan->ops->move.zero(s->total, (size_t)slot->kv_rows[plan->rank] * plan->part_row_bytes, &plan->run);
    for (int i = 0; i <= last; i++) {
        WEFT_TRY(step(plan, slot, io, op, i));
        if (i == 0) WEFT_TRY(weft__cp_backward_block(plan, io, &own, plan->own));
        else WEFT_TRY(backward_step(plan, slot, io, op, i));
    }
    if (last > 0) {
        WEFT_TRY(take_part(plan, slot, io, op, last));
        WEFT_TRY(weft__cp_wait(plan, io, op, last, s->part_out, 2));
        weft__cp_part_add(plan, slot->kv_rows[plan->rank], plan->own, s->total);
    }
    WEFT_TRY(end_kv(plan, io, op));
    weft__cp_backward_end(plan, slot, io);
    return WEFT_OK;
}

static bool applicable(const weft__cp_ask *ask, weft_text *why)
{
    weft_prec p = ask->problem->prec;
    if (!weft__cp_ranks_fit(ask, why)) return false;
    if (weft__cp_kv_type(p, ask->options) == weft_prec_compute(p) && weft__cp_grad_type(p, ask->options) == weft_prec_real(p))
        return true;
    weft_text_add(why, "K,V in another type on the wire; leave the type out, or use ring or pcp");
    return false;
}

const weft_cp_strategy weft__cp_pairwise = {"pairwise", "each rank gets from each owner only the K,V rows that it can see",
                                            applicable, weft__cp_cost_pairwise, plan_pairwise, bind, forward,
                                            backward, weft__cp_describe_exchange, NULL};
