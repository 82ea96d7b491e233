/* cp_heads_move.c — the exchange among the members of a head group: one message to each, own part copied in place.
 *
 * A message holds, tensor by tensor, the rows of one member for the heads of another. Outward (to head layout) these
 * are the sender's rows for the receiver's heads; homeward the receiver's rows for the sender's heads. So the message
 * of j to u outward has the shape of that of u to j homeward, and either is a block of sequence layout (rows of one
 * member, some of all heads) on one end and of head layout (some of the group's rows, own heads) on the other.
 *
 * All receives are posted before the first send; members are served in the order u + 1, u + 2, ..., so that no member
 * is asked by all at once; what arrived is taken in the order of members, which fixes the order of sums. */
#include "cp/cp_heads.h"

/* Larger elements first: a part of whole elements leaves the next one aligned. */
void weft__heads_add(weft__heads_parts *parts, weft__heads_part part)
{
    int at = parts->n++;
    for (; at > 0 && weft_dtype_size(parts->part[at - 1].wire) < weft_dtype_size(part.wire); at--)
        parts->part[at] = parts->part[at - 1];
    parts->part[at] = part;
}

/* ---- blocks ------------------------------------------------------------------------------------------- */

typedef struct block { /* rows of member `row_of` for the heads of member `head_of`, of one part */
    int64_t rows;
    int heads, first_head;
} block;

static block block_of(const weft__heads *s, const weft__heads_slot *rows, const weft__heads_part *p, int row_of,
                      int head_of)
{
    const weft__cp_heads *h = &s->of[head_of];
    int64_t n = (p->keys ? &rows->kv : &rows->q)->rows[row_of];
    return p->keys ? (block){n, h->kv_heads, h->kv_head0} : (block){n, h->heads, h->head0};
}

static weft_f8 stream_of(const weft__heads_part *p, block b)
{
    return (weft_f8){.type = p->wire, .heads = b.heads, .width = p->dim, .scale_bytes = b.heads,
                     .row_bytes = (int64_t)b.heads * p->dim};
}

static bool is_f8(weft_dtype t) { return t == WEFT_F8_E4M3 || t == WEFT_F8_E5M2; }

static size_t block_bytes(const weft__heads_part *p, block b)
{
    weft_f8 f = stream_of(p, b);
    return is_f8(p->wire) ? (size_t)weft_f8_bytes(&f, b.rows)
                          : (size_t)b.rows * (size_t)b.heads * (size_t)p->dim * weft_dtype_size(p->wire);
}

static size_t message_bytes(const weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_parts *parts,
                            int row_of, int head_of)
{
    size_t bytes = 0;
    for (int i = 0; i < parts->n && row_of != head_of; i++)
        bytes += block_bytes(&parts->part[i], block_of(plan->state, rows, &parts->part[i], row_of, head_of));
    return bytes;
}

size_t weft__heads_bytes_to(const weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_parts *parts,
                            int j)
{
    int u = ((const weft__heads *)plan->state)->u;
    return parts->homeward ? message_bytes(plan, rows, parts, j, u) : message_bytes(plan, rows, parts, u, j);
}

size_t weft__heads_bytes_from(const weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_parts *parts,
                              int j)
{
    int u = ((const weft__heads *)plan->state)->u;
    return parts->homeward ? message_bytes(plan, rows, parts, u, j) : message_bytes(plan, rows, parts, j, u);
}

/* ---- where a block lies ---------------------------------------------------------------------------------- */

typedef struct place { void *at; weft_rows rows; } place;

/* In sequence layout: own rows, one after the other; heads from the block's first on. */
static place in_sequence(const weft__heads_part *p, block b, const void *base, weft_dtype type, int64_t ld)
{
    size_t ahead = (size_t)b.first_head * (size_t)p->dim * weft_dtype_size(type);
    return (place){weft__heads_at(base, ahead), {.type = type, .ld = ld}};
}

/* In head layout: the rows of member j among those of the group; all heads that there are. */
static place in_heads(const weft__heads_slot *rows, const weft__heads_part *p, int j, const void *base, weft_dtype type,
                      int64_t ld)
{
    const weft__heads_rows *r = p->keys ? &rows->kv : &rows->q;
    return (place){weft__heads_at(base, 0), {.type = type, .ld = ld, .range = r->range + r->first[j]}};
}

/* What goes to member j (from here), or came from it (to here). */
static place source(const weft__heads_parts *parts, const weft__heads_slot *rows, const weft__heads_part *p, block b,
                    int j)
{
    return parts->homeward ? in_heads(rows, p, j, p->from, p->from_type, p->from_ld)
                           : in_sequence(p, b, p->from, p->from_type, p->from_ld);
}

static place target(const weft__heads_parts *parts, const weft__heads_slot *rows, const weft__heads_part *p, block b,
                    int j)
{
    return parts->homeward ? in_sequence(p, b, p->to, p->to_type, p->to_ld)
                           : in_heads(rows, p, j, p->to, p->to_type, p->to_ld);
}

/* The block of the message to member j; that of the message from it has rows and heads the other way round. */
static block sent(const weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_parts *parts,
                  const weft__heads_part *p, int j)
{
    const weft__heads *s = plan->state;
    return parts->homeward ? block_of(s, rows, p, j, s->u) : block_of(s, rows, p, s->u, j);
}

static block received(const weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_parts *parts,
                      const weft__heads_part *p, int j)
{
    const weft__heads *s = plan->state;
    return parts->homeward ? block_of(s, rows, p, s->u, j) : block_of(s, rows, p, j, s->u);
}

/* ---- moving ------------------------------------------------------------------------------------------------ */

static void pack(weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_parts *parts, int j, char *out)
{
    for (int i = 0; i < parts->n; i++) {
        const weft__heads_part *p = &parts->part[i];
        block b = sent(plan, rows, parts, p, j);
        place from = source(parts, rows, p, b, j);
        int64_t width = (int64_t)b.heads * p->dim;
        weft_f8 f = stream_of(p, b);
        if (is_f8(p->wire)) plan->ops->move.f8_encode(out, &f, from.at, &from.rows, b.rows, &plan->run);
        else
            plan->ops->move.copy(out, &(weft_rows){.type = p->wire, .ld = width}, from.at, &from.rows, b.rows, width,
                                 &plan->run);
        out += block_bytes(p, b);
    }
}

/* Heads of member j's block that members before it have given already: their sum is there, it is added to. */
static int heads_added(const weft__heads *s, int j)
{
    if (j == 0) return 0;
    int seen = s->of[j - 1].kv_head0 + s->of[j - 1].kv_heads - s->of[j].kv_head0;
    return seen < s->of[j].kv_heads ? seen : s->of[j].kv_heads;
}

/* Heads [first, first + n) of a block: copied to the target, or added to it. */
static void put_heads(weft_cp_plan *plan, const weft__heads_part *p, int64_t rows, place to, place from, int first,
                      int n, bool add)
{
    int64_t ahead = (int64_t)first * p->dim;
    to.at = weft__heads_at(to.at, (size_t)ahead * weft_dtype_size(to.rows.type));
    from.at = weft__heads_at(from.at, (size_t)ahead * weft_dtype_size(from.rows.type));
    if (n == 0) return;
    (add ? plan->ops->move.add : plan->ops->move.copy)(to.at, &to.rows, from.at, &from.rows, rows, (int64_t)n * p->dim,
                                                       &plan->run);
}

static void put(weft_cp_plan *plan, const weft__heads_part *p, block b, place to, place from, int j)
{
    int added = p->sum ? heads_added(plan->state, j) : 0;
    put_heads(plan, p, b.rows, to, from, 0, added, true);
    put_heads(plan, p, b.rows, to, from, added, b.heads - added, false);
}

static void unpack(weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_parts *parts, int j,
                   const char *in)
{
    for (int i = 0; i < parts->n; i++) {
        const weft__heads_part *p = &parts->part[i];
        block b = received(plan, rows, parts, p, j);
        place to = target(parts, rows, p, b, j);
        weft_f8 f = stream_of(p, b);
        place from = {weft__heads_at(in, 0), {.type = p->wire, .ld = (int64_t)b.heads * p->dim}};
        if (is_f8(p->wire)) plan->ops->move.f8_decode(to.at, &to.rows, in, &f, 0, b.rows, &plan->run);
        else put(plan, p, b, to, from, j);
        in += block_bytes(p, b);
    }
}

/* This rank's rows for its own heads: never sent, never rounded to what travels. */
static void copy_own(weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_parts *parts)
{
    const weft__heads *s = plan->state;
    for (int i = 0; i < parts->n; i++) {
        const weft__heads_part *p = &parts->part[i];
        block b = block_of(s, rows, p, s->u, s->u);
        put(plan, p, b, target(parts, rows, p, b, s->u), source(parts, rows, p, b, s->u), s->u);
    }
}

void weft__heads_as_received(weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_part *p, void *to,
                             int64_t to_ld)
{
    const weft__heads *s = plan->state;
    for (int j = 0; j < s->U; j++) {
        block b = block_of(s, rows, p, s->u, j);
        place from = in_sequence(p, b, p->from, p->from_type, p->from_ld);
        place there = in_sequence(p, b, to, p->to_type, to_ld);
        weft_f8 f = stream_of(p, b);
        if (j == s->u) put(plan, p, b, there, from, j);
        else { /* s->out is free between exchanges, and room for a message to j */
            plan->ops->move.f8_encode(s->out, &f, from.at, &from.rows, b.rows, &plan->run);
            plan->ops->move.f8_decode(there.at, &there.rows, s->out, &f, 0, b.rows, &plan->run);
        }
    }
}

/* ---- messages ------------------------------------------------------------------------------------------------ */

static int member_rank(const weft_cp_plan *plan, int j)
{
    const weft__heads *s = plan->state;
    return plan->rank - s->u + j;
}

static weft_status post_receives(weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_parts *parts)
{
    weft__heads *s = plan->state;
    size_t at = 0;
    for (int j = 0; j < s->U; j++) {
        size_t bytes = weft__heads_bytes_from(plan, rows, parts, j);
        int tag = (parts->homeward ? WEFT__CP_TAG_HEADS_BACK : WEFT__CP_TAG_HEADS) + member_rank(plan, j);
        if (bytes) WEFT_TRY(weft__cp_recv_view(plan, &s->recv[j], weft__heads_at(s->in, at), bytes,
                                               member_rank(plan, j), tag));
        at += bytes;
    }
    return WEFT_OK;
}

static weft_status pack_and_send(weft_cp_plan *plan, const weft__heads_slot *rows, const weft__heads_parts *parts)
{
    weft__heads *s = plan->state;
    char *at = s->out;
    for (int i = 1; i < s->U; i++) {
        int j = (s->u + i) % s->U;
        size_t bytes = weft__heads_bytes_to(plan, rows, parts, j);
        int tag = (parts->homeward ? WEFT__CP_TAG_HEADS_BACK : WEFT__CP_TAG_HEADS) + plan->rank;
        if (!bytes) continue;
        pack(plan, rows, parts, j, at);
        WEFT_TRY(weft__cp_send(plan, &s->send[j], at, bytes, member_rank(plan, j), tag));
        at += bytes;
    }
    return WEFT_OK;
}

/* Each message is laid out by rows of the group straight from where it lies, here or at its sender, and released before
 * this rank waits for its own sends: members cannot wait for each other. */
weft_status weft__heads_exchange(weft_cp_plan *plan, const weft__heads_slot *rows, const weft_cp_io *io, const char *op,
                                 int step, const weft__heads_parts *parts)
{
    weft__heads *s = plan->state;
    WEFT_TRY(post_receives(plan, rows, parts));
    WEFT_TRY(pack_and_send(plan, rows, parts));
    for (int j = 0; j < s->U; j++) {
        if (j == s->u) copy_own(plan, rows, parts);
        if (!weft__heads_bytes_from(plan, rows, parts, j)) continue;
        WEFT_TRY(weft__cp_wait(plan, io, op, step, &s->recv[j], 1));
        unpack(plan, rows, parts, j, s->recv[j].data);
        weft__cp_release(&s->recv[j]);
    }
    return weft__cp_wait(plan, io, op, step, s->send, s->U);
}
