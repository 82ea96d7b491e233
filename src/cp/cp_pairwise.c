/* cp_pairwise.c — every rank gets, directly from each owner, only the rows that its queries can see.
 *
 * At step i rank r computes the block of owner r - i and the message of step i + 1 travels: it comes from r - i - 1,
 * and another goes to r + i + 1. Both ends work out the same rows (weft_shard_need), so nothing is asked for; ranks
 * that share nothing exchange nothing. A message holds the needed rows in ascending order. They are computed at the
 * places that they have in the owner's block, so that the pairs of the kernel, its tiles and portions, and therefore
 * all bits of the results are those of pcp. (Kernels on packed rows would cut their tiles elsewhere and round
 * differently.) One range of rows is sent from the packed block as it lies and read where it arrives, or in the
 * owner's memory; several are packed, and moved to their places.
 *
 * Backward: K,V rows travel again; the part of step i, for the needed rows only, goes back to its owner, who adds
 *   dKV_j = ((part_{j+1} + part_{j+2}) + ... + part_{j+P-1}) + part_j
 * row by row with the parts that there are: a part that is not sent would have been 0. (Only the sign of a zero can
 * differ from pcp's, where tiny sums were flushed to -0.)
 *
 * No dead-lock: what a rank waits for in step i was posted, or with reading in place released, by its peer in an
 * earlier step, or was posted in step i before any wait. So a rank in the lowest step of all is never held up for
 * good.
 *
 * K,V as fp8 travel in groups of rows with a scale: ranges are then rounded out to whole groups of the owner's
 * block, and every rank computes with the same numbers whatever it needs of them. Their gradients travel by the row.
 *
 * Rows that nobody sees are not there. A kernel may still touch them, hidden by the mask, where queries and keys lie
 * in stripes and a window is narrower than the gaps: then they are made 0, for a stale NaN times 0 would be NaN. */
#include "cp/cp_impl.h"

typedef struct rows { /* some rows of a block: `n` ranges with `count` rows in all */
    weft_range *range;
    int64_t n, count;
} rows;

typedef struct needs { /* of one slot: entry i of take concerns owner(i), of give reader(i); entry 0 is empty */
    weft_range *range, *wide;     /* of all entries; rounded out to groups, where they travel in groups */
    rows *take, *give;            /* [P] rows whose gradients travel, the exact ones */
    rows *take_kv, *give_kv;      /* [P] rows whose K,V travel: the same ones, or rounded out */
} needs;

typedef struct pairwise {
    void *own;               /* this rank's block, in wire form */
    void *block[2];          /* messages from other owners, step i in block[i % 2]; NULL where they are read in place */
    void *pack[2];           /* messages of several ranges */
    void *placed;            /* (C) a block whose rows came in several ranges */
    void *part, *total;      /* (R) gradient of a block; sum of the parts from others */
    void *out[2], *in[2];    /* parts as they travel; in: NULL where they are read in place */
    weft__cp_message kv_in[2], kv_out[2], part_in[2], part_out[2];
    bool sparse;             /* rows between needed ones may be touched by kernels */
    bool groups;             /* K,V travel in groups of rows */
    needs *need;             /* [slots] */
    int64_t range_capacity;  /* of a slot */
} pairwise;

/* ---- plan ---------------------------------------------------------------------------------------------------- */

/* Tokens of a stripe of one rank of the team; 0 without stripes. */
static int64_t stripe(const weft_cp_plan *plan)
{
    weft_layout l = plan->problem.layout;
    return l.kind == WEFT_LAYOUT_STRIPED ? weft_max_i64(l.block, 1) * plan->group : 0;
}

/* Stripes with a window on both sides, narrower than what lies between two stripes of a rank. A causal mask is such a
 * side by itself: beyond the prefix a window to the right adds nothing to it. */
static bool has_holes(const weft_cp_plan *plan)
{
    const weft_mask *m = &plan->problem.mask;
    if (stripe(plan) == 0 || m->left < 0 || !(m->causal || m->right >= 0)) return false;
    int64_t reach = m->left + (m->causal || m->right < 0 ? 0 : m->right);
    return reach < (int64_t)(plan->P - 1) * stripe(plan);
}

/* A pair of segments gives one range: what a run of queries sees is an interval, and intervals of neighbouring queries
 * overlap or touch. With holes each run of keys gives at most two: what is seen from before it and from behind it. */
static int64_t range_capacity(const weft_cp_plan *plan)
{
    const weft_cp_problem *p = &plan->problem;
    int64_t n = 2 * weft__cp_pair_capacity(plan);
    if (has_holes(plan)) n += 4 * (weft_ceil_div(p->B * p->T, stripe(plan)) + weft__cp_pair_capacity(plan));
    return n;
}

static weft_status alloc_need(const weft_cp_plan *plan, weft_arena *arena, const pairwise *s, needs *x)
{
    WEFT_TRY(WEFT_NEW(arena, s->range_capacity, "cp needs", &x->range));
    WEFT_TRY(WEFT_NEW0(arena, plan->P, "cp needs", &x->take));
    WEFT_TRY(WEFT_NEW0(arena, plan->P, "cp needs", &x->give));
    x->take_kv = x->take;
    x->give_kv = x->give;
    if (!s->groups) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(arena, s->range_capacity, "cp needs", &x->wide));
    WEFT_TRY(WEFT_NEW0(arena, plan->P, "cp needs", &x->take_kv));
    return WEFT_NEW0(arena, plan->P, "cp needs", &x->give_kv);
}

static weft_status alloc_needs(const weft_cp_plan *plan, weft_arena *arena, pairwise *s)
{
    s->range_capacity = range_capacity(plan);
    WEFT_TRY(WEFT_NEW0(arena, plan->problem.slots, "cp needs", &s->need));
    for (int i = 0; i < plan->problem.slots; i++) {
        WEFT_TRY(alloc_need(plan, arena, s, &s->need[i]));
        plan->slots[i].state = &s->need[i];
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

static weft_status plan_blocks(weft_cp_plan *plan, weft_arena *arena, pairwise *s)
{
    static const char label[] = "cp K,V blocks";
    size_t kv = weft__cp_wire_bytes(&plan->wire, plan->kv_rows_max), *all = &plan->kv_buffer_bytes;
    size_t row = (size_t)plan->wire.row_bytes / weft_dtype_size(plan->wire.type);
    WEFT_TRY(weft__cp_buffers(plan, 1, kv, label, &s->own, all));
    WEFT_TRY(weft__cp_buffers(plan, 2, kv, label, s->pack, all));
    if (!plan->in_place) WEFT_TRY(weft__cp_buffers(plan, 2, kv, label, s->block, all));
    WEFT_TRY(weft_arena_alloc(plan->buffers, plan->kv_rows_max,
                              row * weft__cp_c_size(plan), "cp K,V placed",
                              &s->placed));
    return alloc_messages(plan, arena, kv, s->kv_in, s->kv_out);
}

static weft_status plan_parts(weft_cp_plan *plan, weft_arena *arena, pairwise *s)
{
    static const char label[] = "cp dK,dV blocks";
    size_t wire = (size_t)plan->kv_rows_max * plan->grad_row_bytes,
           part = (size_t)plan->kv_rows_max * plan->part_row_bytes;
    WEFT_TRY(weft__cp_buffers(plan, 1, part, label, &s->part, NULL));
    WEFT_TRY(weft__cp_buffers(plan, 1, part, label, &s->total, NULL));
    WEFT_TRY(weft__cp_buffers(plan, 2, wire, label, s->out, NULL));
    if (!plan->in_place) WEFT_TRY(weft__cp_buffers(plan, 2, wire, label, s->in, NULL));
    return alloc_messages(plan, arena, wire, s->part_in, s->part_out);
}

static weft_status plan_pairwise(weft_cp_plan *plan, weft_arena *arena)
{
    pairwise *s;
    WEFT_TRY(WEFT_NEW0(arena, 1, "cp pairwise", &s));
    plan->state = s;
    s->sparse = has_holes(plan);
    s->groups = plan->wire.scale_bytes > 0;
    WEFT_TRY(alloc_needs(plan, arena, s));
    if (plan->P == 1) return WEFT_OK;
    WEFT_TRY(plan_blocks(plan, arena, s));
    return plan->problem.need_backward ? plan_parts(plan, arena, s) : WEFT_OK;
}

/* ---- bind ---------------------------------------------------------------------------------------------------- */

/* The ranges of x, rounded out to whole groups of a block of so many rows; neighbours that meet become one. */
static rows round_out(rows x, int64_t block_rows, weft_range *out)
{
    rows y = {out, 0, 0};
    for (int64_t i = 0; i < x.n; i++) {
        int64_t begin = x.range[i].begin / WEFT_F8_ROWS * WEFT_F8_ROWS, end = x.range[i].begin + x.range[i].len;
        end = weft_min_i64(block_rows, weft_ceil_div(end, WEFT_F8_ROWS) * WEFT_F8_ROWS);
        weft_range *last = y.n > 0 ? &out[y.n - 1] : NULL;
        if (last && begin <= last->begin + last->len) last->len = end - last->begin;
        else out[y.n++] = (weft_range){begin, end - begin};
    }
    for (int64_t i = 0; i < y.n; i++) y.count += out[i].len;
    return y;
}

/* Rows of `owner` that the queries of `rank` see, from range[*n] on. */
static weft_status find_need(const weft_cp_plan *plan, needs *x, int64_t *n, const weft_shard *q, int rank,
                             const weft_shard *kv, int owner, rows *exact, rows *of_kv)
{
    const pairwise *s = plan->state;
    weft_range *range = x->range + *n;
    int64_t found = weft_shard_need(&plan->desc.mask, q, rank, kv, owner, range, s->range_capacity - *n);
    if (found < 0)
        return weft_fail(WEFT_ERR_REFUSED,
                         "bind: more than %lld ranges of rows; the plan was made for %lld documents per micro-batch",
                         (long long)s->range_capacity, (long long)plan->problem.max_docs);
    *exact = (rows){range, found, 0};
    for (int64_t i = 0; i < found; i++) exact->count += range[i].len;
    if (s->groups) *of_kv = round_out(*exact, kv->rows[owner], x->wide + *n);
    *n += found;
    return WEFT_OK;
}

static weft_status bind(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q, const weft_shard *kv)
{
    needs *x = slot->state;
    int64_t n = 0;
    for (int i = 1; i < plan->P; i++) {
        int owner = weft__cp_owner(plan, i), reader = weft__cp_reader(plan, i);
        WEFT_TRY(find_need(plan, x, &n, q, plan->rank, kv, owner, &x->take[i], &x->take_kv[i]));
        WEFT_TRY(find_need(plan, x, &n, q, reader, kv, plan->rank, &x->give[i], &x->give_kv[i]));
    }
    return WEFT_OK;
}

static const needs *needs_of(const weft__cp_slot *slot) { return slot->state; }

/* Rows for step i + 1 set out at step i; of the gradients those of step i after it. */
static void moves(const weft_cp_plan *plan, const weft__cp_slot *slot, bool backward, const weft_cp_view *view)
{
    const needs *x = needs_of(slot);
    for (int i = 0; i + 1 < plan->P; i++) {
        int owner = weft__cp_owner(plan, i + 1), reader = weft__cp_reader(plan, i + 1);
        weft__cp_tell_kv(plan, view, (weft__cp_hop){i, owner, owner, true}, x->take_kv[i + 1].count);
        weft__cp_tell_kv(plan, view, (weft__cp_hop){i, reader, plan->rank, false}, x->give_kv[i + 1].count);
    }
    for (int i = 1; backward && i < plan->P; i++) {
        int owner = weft__cp_owner(plan, i), reader = weft__cp_reader(plan, i);
        weft__cp_tell_dkv(plan, view, (weft__cp_hop){i, reader, plan->rank, true}, x->give[i].count);
        weft__cp_tell_dkv(plan, view, (weft__cp_hop){i, owner, owner, false}, x->take[i].count);
    }
}

/* ---- K,V ----------------------------------------------------------------------------------------------------- */

/* The selected rows of the own block, in wire form. */
static void pack(const weft_cp_plan *plan, const weft_cp_io *io, rows x, void *to)
{
    weft_dtype c = weft__cp_c(plan);
    weft__cp_rows own = weft__cp_own_rows(plan, io);
    const weft_rows k = {.type = c, .ld = own.k_ld, .range = x.range},
                    v = {.type = c, .ld = own.v_ld, .range = x.range};
    weft__cp_encode(plan, &plan->wire, 0, to, own.k, &k, x.count);
    weft__cp_encode(plan, &plan->wire, 1, to, own.v, &v, x.count);
}

/* The rows of a message to their places in a block. */
static void place(const weft_cp_plan *plan, const weft__cp_slot *slot, int i, const void *message)
{
    const pairwise *s = plan->state;
    rows x = needs_of(slot)->take_kv[i];
    weft_dtype c = weft__cp_c(plan);
    weft__cp_rows at = weft__cp_rows_in(plan, s->placed);
    const weft_rows to = {.type = c, .ld = at.k_ld, .range = x.range};
    size_t ahead = (size_t)((const char *)at.v - (const char *)at.k),
           block = (size_t)(slot->kv_rows[weft__cp_owner(plan, i)] * at.k_ld);
    if (s->sparse) plan->ops->move.zero(s->placed, block * weft_dtype_size(c), &plan->run);
    weft__cp_decode(plan, &plan->wire, 0, message, 0, s->placed, &to, x.count);
    weft__cp_decode(plan, &plan->wire, 1, message, 0, (char *)s->placed + ahead, &to, x.count);
}

/* A message of one range is computed where it arrives: so far behind the block's first row as it lies in the block. */
static bool as_it_lies(const weft_cp_plan *plan, rows x)
{
    const pairwise *s = plan->state;
    return x.n == 1 && !s->sparse;
}

static size_t offset_of(const weft_cp_plan *plan, rows x) { return weft__cp_wire_bytes(&plan->wire, x.range[0].begin); }

/* Receives and sends of step i. What steps before i - 1 received has been released. */
static weft_status post(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    pairwise *s = plan->state;
    int b = i % 2, owner = weft__cp_owner(plan, i);
    rows in = needs_of(slot)->take_kv[i], out = needs_of(slot)->give_kv[i];
    WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->kv_out[b], 1)); /* of step i - 2 */
    if (in.count > 0) {
        char *to = s->block[b];
        if (to && as_it_lies(plan, in)) to += offset_of(plan, in);
        WEFT_TRY(weft__cp_recv_view(plan, &s->kv_in[b], to, weft__cp_wire_bytes(&plan->wire, in.count), owner,
                                    WEFT__CP_TAG_KV + owner));
    }
    if (out.count == 0) return WEFT_OK;
    const char *from = s->pack[b];
    if (out.n == 1) from = (const char *)s->own + offset_of(plan, out);
    else pack(plan, io, out, s->pack[b]);
    return weft__cp_send(plan, &s->kv_out[b], from, weft__cp_wire_bytes(&plan->wire, out.count),
                         weft__cp_reader(plan, i), WEFT__CP_TAG_KV + plan->rank);
}

/* Begins step i: the message of the next one sets out. */
static weft_status begin_step(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op,
                              int i)
{
    pairwise *s = plan->state;
    int next = i + 1;
    WEFT_TRY(weft__cp_step(plan, io, "cp.pairwise", op, i));
    if (next == plan->P) return WEFT_OK;
    WEFT_TRY(post(plan, slot, io, op, next));
    return plan->options.overlap ? WEFT_OK : weft__cp_wait(plan, io, op, i, &s->kv_in[next % 2], 1);
}

/* What there is to compute in step i > 0. */
static weft_status block_at(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i,
                            weft__cp_block *block)
{
    pairwise *s = plan->state;
    rows x = needs_of(slot)->take_kv[i];
    weft__cp_message *m = &s->kv_in[i % 2];
    *block = weft__cp_block_of(plan, slot, io, op, i, m);
    if (as_it_lies(plan, x)) {
        block->row0 = x.range[0].begin;
        block->count = x.count;
        return WEFT_OK;
    }
    WEFT_TRY(weft__cp_wait(plan, io, op, i, m, 1));
    place(plan, slot, i, m->data);
    block->message = NULL;
    block->at = weft__cp_rows_in(plan, s->placed);
    return WEFT_OK;
}

/* The own block may be overwritten by the next call: its sends must be complete before this one returns. */
static weft_status end_kv(weft_cp_plan *plan, const weft_cp_io *io, const char *op)
{
    pairwise *s = plan->state;
    return plan->P > 1 ? weft__cp_wait(plan, io, op, plan->P - 1, s->kv_out, 2) : WEFT_OK;
}

static weft_status forward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.pairwise.forward";
    pairwise *s = plan->state;
    weft__cp_forward_begin(plan, slot, io, s->own);
    for (int i = 0; i < plan->P; i++) {
        weft__cp_block block = weft__cp_block_of(plan, slot, io, op, 0, NULL);
        WEFT_TRY(begin_step(plan, slot, io, op, i));
        if (i > 0 && needs_of(slot)->take_kv[i].count == 0) continue;
        if (i > 0) WEFT_TRY(block_at(plan, slot, io, op, i, &block));
        WEFT_TRY(weft__cp_forward_block(plan, io, &block));
        if (i > 0) weft__cp_release(&s->kv_in[i % 2]);
    }
    WEFT_TRY(end_kv(plan, io, op));
    weft__cp_forward_end(plan, slot, io);
    return WEFT_OK;
}

/* ---- dK,dV --------------------------------------------------------------------------------------------------- */

/* A block's gradient is dK [n, Hkv, D] and then dV [n, Hkv, Dv]; a message holds the needed rows of both. One half: */
typedef struct half { weft_rows in_block, in_message; int64_t width; } half;

static void halves(const weft_cp_plan *plan, rows x, half h[2])
{
    int64_t width[2] = {(int64_t)plan->desc.Hkv * plan->desc.D, (int64_t)plan->desc.Hkv * plan->desc.Dv};
    for (int t = 0; t < 2; t++)
        h[t] = (half){{.type = weft__cp_r(plan), .ld = width[t], .range = x.range},
                      {.type = plan->grad_type, .ld = width[t]},
                      width[t]};
}

/* Where dV begins behind dK of n rows. */
static size_t behind(const weft_rows *k, int64_t n) { return (size_t)(n * k->ld) * weft_dtype_size(k->type); }

/* The needed rows of a part, packed into a message. */
static void pack_part(const weft_cp_plan *plan, rows x, int64_t block_rows, const char *part, char *message)
{
    half h[2];
    halves(plan, x, h);
    plan->ops->move.copy(message, &h[0].in_message, part, &h[0].in_block, x.count, h[0].width, &plan->run);
    plan->ops->move.copy(message + behind(&h[0].in_message, x.count), &h[1].in_message,
                         part + behind(&h[0].in_block, block_rows), &h[1].in_block, x.count, h[1].width, &plan->run);
}

static void add_part(const weft_cp_plan *plan, rows x, int64_t block_rows, char *total, const char *message)
{
    half h[2];
    halves(plan, x, h);
    plan->ops->move.add(total, &h[0].in_block, message, &h[0].in_message, x.count, h[0].width, &plan->run);
    plan->ops->move.add(total + behind(&h[0].in_block, block_rows), &h[1].in_block,
                        message + behind(&h[0].in_message, x.count), &h[1].in_message, x.count, h[1].width, &plan->run);
}

/* The part that reader(i) computed for this rank's block joins the sum, in the order of i. */
static weft_status take_part(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    pairwise *s = plan->state;
    rows x = needs_of(slot)->give[i];
    weft__cp_message *m = &s->part_in[i % 2];
    if (x.count == 0) return WEFT_OK;
    WEFT_TRY(weft__cp_wait(plan, io, op, i, m, 1));
    add_part(plan, x, slot->kv_rows[plan->rank], s->total, m->data);
    weft__cp_release(m);
    return WEFT_OK;
}

/* What this rank's queries add to the rows of owner(i), and on its way. */
static weft_status give_part(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    pairwise *s = plan->state;
    rows x = needs_of(slot)->take[i];
    int owner = weft__cp_owner(plan, i), b = i % 2;
    weft__cp_block block;
    if (x.count == 0) return WEFT_OK;
    WEFT_TRY(block_at(plan, slot, io, op, i, &block));
    WEFT_TRY(weft__cp_backward_block(plan, io, &block, s->part));
    weft__cp_release(&s->kv_in[b]);
    pack_part(plan, x, block.rows, s->part, s->out[b]);
    const void *out = s->out[WEFT_PLANTED(dkv_to_wrong_owner) && i > 1 ? 1 - b : b];
    return weft__cp_send(plan, &s->part_out[b], out, (size_t)x.count * plan->grad_row_bytes, owner,
                         WEFT__CP_TAG_DKV + owner);
}

/* Step i > 0. A peer's part of step i is taken one step later, so that it may arrive under a computation. */
static weft_status backward_step(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op,
                                 int i)
{
    pairwise *s = plan->state;
    int64_t in = needs_of(slot)->give[i].count;
    WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->part_out[i % 2], 1)); /* of step i - 2 */
    if (in > 0)
        WEFT_TRY(weft__cp_recv_view(plan, &s->part_in[i % 2], s->in[i % 2], (size_t)in * plan->grad_row_bytes,
                                    weft__cp_reader(plan, i), WEFT__CP_TAG_DKV + plan->rank));
    WEFT_TRY(give_part(plan, slot, io, op, i));
    if (!plan->options.overlap) WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->part_in[i % 2], 1));
    return i > 1 ? take_part(plan, slot, io, op, i - 1) : WEFT_OK;
}

static weft_status backward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.pairwise.backward";
    pairwise *s = plan->state;
    int last = plan->P - 1;
    weft__cp_backward_begin(plan, slot, io, s->own);
    if (last > 0) plan->ops->move.zero(s->total, (size_t)slot->kv_rows[plan->rank] * plan->part_row_bytes, &plan->run);
    WEFT_TRY(begin_step(plan, slot, io, op, 0));
    weft__cp_block own = weft__cp_block_of(plan, slot, io, op, 0, NULL);
    WEFT_TRY(weft__cp_backward_block(plan, io, &own, plan->own));
    for (int i = 1; i <= last; i++) {
        WEFT_TRY(begin_step(plan, slot, io, op, i));
        WEFT_TRY(backward_step(plan, slot, io, op, i));
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

const weft_cp_strategy weft__cp_pairwise = {"pairwise",
                                            "each rank gets from each owner only the K,V rows that it can see",
                                            weft__cp_ranks_fit,
                                            weft__cp_cost_pairwise,
                                            plan_pairwise,
                                            bind,
                                            moves,
                                            forward,
                                            backward,
                                            weft__cp_describe_exchange,
                                            NULL};
