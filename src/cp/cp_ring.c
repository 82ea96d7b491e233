/* cp_ring.c — queries stay, K,V blocks travel round the ring; two blocks in memory whatever P is.
 *
 * Message i brings the block of rank r - i, from r - 1, which computes it one step earlier; pieces go on to r + 1 as
 * soon as they are here and this rank has reached step i. At step i it computes block i while block i + 1 arrives in
 * the buffer that block i - 1 has left: that one is computed, and its own way on was waited for.
 *
 * Where blocks are read in place, no buffer is received into: a block stays with its owner, and its place goes round.
 * Its messages stay open until the last rank has computed it, so nobody waits for them before the end; there they close
 * from the last hop back to the owner. Memory: the own block.
 *
 * Backward: K,V travel again; the gradient of a block starts at the first rank that is not its owner and
 * travels one hop behind, each rank adding its part, P - 1 hops; the owner adds its own part last:
 *   dKV_j = ((part_{j+1} + part_{j+2}) + ... + part_{j+P-1}) + part_j
 * A rank computes its part into a zeroed buffer and adds the sum that arrives to it afterwards, so that computing
 * need not wait for the sum, and so that the additions are those of every other strategy (x + y = y + x to the bit). We
 * rejected the form in which the owner starts the sum (P hops, one message more per layer). In place, a sum is released
 * at the step after the one that sent it: waiting for its release two steps later cannot stand still. */
#include "cp/cp_impl.h"

typedef struct ring {
    int ways;               /* messages of K,V that may be open: 2, or P in place */
    void *kv[2];            /* own block first; received blocks. In place: the own block in kv[0] */
    weft__cp_message *in, *out; /* [ways] of block i: entry i % ways */
    void *part[2], *sent[2]; /* (R) this rank's part, then the sum with it; as it is sent: the same, or encoded */
    void *came;             /* the sum that arrives, as sent */
    weft__cp_message came_msg, sent_msg[2];
} ring;

static weft_status plan_blocks(weft_cp_plan *plan, weft_arena *arena, ring *s)
{
    size_t kv = weft__cp_wire_bytes(&plan->wire, plan->kv_rows_max);
    s->ways = plan->in_place ? plan->P : 2;
    WEFT_TRY(WEFT_NEW0(arena, s->ways, "cp ring", &s->in));
    WEFT_TRY(WEFT_NEW0(arena, s->ways, "cp ring", &s->out));
    for (int i = 0; i < s->ways; i++) {
        WEFT_TRY(weft__cp_message_alloc(plan, arena, kv, &s->in[i]));
        WEFT_TRY(weft__cp_message_alloc(plan, arena, kv, &s->out[i]));
    }
    return weft__cp_buffers(plan, plan->in_place ? 1 : 2, kv, "cp K,V blocks", s->kv, &plan->kv_buffer_bytes);
}

static weft_status plan_sums(weft_cp_plan *plan, weft_arena *arena, ring *s)
{
    size_t part = (size_t)plan->kv_rows_max * plan->part_row_bytes,
           sent = (size_t)plan->kv_rows_max * plan->grad_row_bytes;
    bool encoded = plan->grad_row_bytes != plan->part_row_bytes;
    WEFT_TRY(weft__cp_buffers(plan, encoded ? 1 : 2, part, "cp dK,dV blocks", s->part, NULL));
    if (encoded) s->part[1] = s->part[0]; /* free as soon as it is encoded */
    if (encoded) WEFT_TRY(weft__cp_buffers(plan, 2, sent, "cp dK,dV blocks", s->sent, NULL));
    if (!plan->in_place) WEFT_TRY(weft__cp_buffers(plan, 1, sent, "cp dK,dV blocks", &s->came, NULL));
    for (int i = 0; i < 2; i++) WEFT_TRY(weft__cp_message_alloc(plan, arena, sent, &s->sent_msg[i]));
    return weft__cp_message_alloc(plan, arena, sent, &s->came_msg);
}

static weft_status plan_ring(weft_cp_plan *plan, weft_arena *arena)
{
    ring *s;
    WEFT_TRY(WEFT_NEW0(arena, 1, "cp ring", &s));
    plan->state = s;
    if (plan->P == 1) return WEFT_OK;
    WEFT_TRY(plan_blocks(plan, arena, s));
    return plan->problem.need_backward ? plan_sums(plan, arena, s) : WEFT_OK;
}

static weft_status bind(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q, const weft_shard *kv)
{
    (void)plan, (void)slot, (void)q, (void)kv;
    return WEFT_OK;
}

/* At step i = 0 .. P-2 the block of rank r - i leaves rank r, so all but that of r + 1 do; of the gradients, at steps
 * 1 .. P-1, all but its own. */
static void moves(const weft_cp_plan *plan, const weft__cp_slot *slot, bool backward, const weft_cp_view *view)
{
    int before = weft__cp_owner(plan, 1 % plan->P), next = weft__cp_reader(plan, 1 % plan->P);
    for (int i = 0; i < plan->P - 1; i++) {
        int here = weft__cp_owner(plan, i), coming = weft__cp_owner(plan, i + 1);
        weft__cp_tell_kv(plan, view, (weft__cp_hop){i, before, coming, true}, slot->kv_rows[coming]);
        weft__cp_tell_kv(plan, view, (weft__cp_hop){i, next, here, false}, slot->kv_rows[here]);
    }
    for (int i = 1; backward && i < plan->P; i++) {
        int here = weft__cp_owner(plan, i), coming = weft__cp_owner(plan, (i + 1) % plan->P);
        weft__cp_tell_dkv(plan, view, (weft__cp_hop){i, before, coming, true}, slot->kv_rows[coming]);
        weft__cp_tell_dkv(plan, view, (weft__cp_hop){i, next, here, false}, slot->kv_rows[here]);
    }
}

/* ---- K,V ------------------------------------------------------------------------------------------------- */

/* The receive of block i, which has yet to leave r - 1. Posted before anything is sent: with transports that complete a
 * send only against a posted receive, a ring of sends would stand still. */
static weft_status expect_block(weft_cp_plan *plan, const weft__cp_slot *slot, int i)
{
    ring *s = plan->state;
    int owner = weft__cp_owner(plan, i);
    return weft__cp_recv_view(plan, &s->in[i % s->ways], s->kv[i % 2], weft__cp_kv_bytes(plan, slot, owner),
                              weft__cp_owner(plan, 1), WEFT__CP_TAG_KV + owner);
}

/* Block i goes on to r + 1: the own one at once, another as it arrives. */
static weft_status send_block(weft_cp_plan *plan, const weft__cp_slot *slot, int i)
{
    ring *s = plan->state;
    int owner = weft__cp_owner(plan, i), next = weft__cp_reader(plan, 1);
    weft__cp_message *out = &s->out[i % s->ways];
    if (i == 0)
        return weft__cp_send(plan, out, s->kv[0], weft__cp_kv_bytes(plan, slot, owner), next, WEFT__CP_TAG_KV + owner);
    return weft__cp_pass_on(plan, &s->in[i % s->ways], out, next, WEFT__CP_TAG_KV + owner);
}

/* Before block i is computed. */
static weft_status begin_step(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op,
                              int i)
{
    ring *s = plan->state;
    WEFT_TRY(weft__cp_step(plan, io, "cp.ring", op, i));
    if (i == plan->P - 1) return WEFT_OK;
    if (i > 0 && !plan->in_place) WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->out[(i - 1) % s->ways], 1));
    WEFT_TRY(expect_block(plan, slot, i + 1));
    WEFT_TRY(send_block(plan, slot, i));
    if (plan->options.overlap) return WEFT_OK;
    if (i > 0) WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->in[i % s->ways], 1));
    return weft__cp_wait(plan, io, op, i, &s->in[(i + 1) % s->ways], 1);
}

static weft__cp_block block_at(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op,
                               int i)
{
    ring *s = plan->state;
    return weft__cp_block_of(plan, slot, io, op, i, i > 0 ? &s->in[i % s->ways] : NULL);
}

/* The last block went no further, so its hop closes first; then, in place, those before it. Copies of them are gone. */
static weft_status end_blocks(weft_cp_plan *plan, const weft_cp_io *io, const char *op)
{
    ring *s = plan->state;
    int last = plan->P - 1;
    if (last == 0) return WEFT_OK;
    weft__cp_release(&s->in[last % s->ways]);
    for (int i = last - 1; i >= (plan->in_place ? 0 : last - 1); i--) {
        WEFT_TRY(weft__cp_wait(plan, io, op, last, &s->out[i % s->ways], 1));
        if (i > 0) weft__cp_release(&s->in[i % s->ways]);
    }
    return WEFT_OK;
}

static weft_status forward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.ring.forward";
    ring *s = plan->state;
    weft__cp_forward_begin(plan, slot, io, s->kv[0]);
    for (int i = 0; i < plan->P; i++) {
        WEFT_TRY(begin_step(plan, slot, io, op, i));
        weft__cp_block block = block_at(plan, slot, io, op, i);
        WEFT_TRY(weft__cp_forward_block(plan, io, &block));
    }
    WEFT_TRY(end_blocks(plan, io, op));
    weft__cp_forward_end(plan, slot, io);
    return WEFT_OK;
}

/* ---- gradients ---------------------------------------------------------------------------------------------- */

/* After step i: the sum of the block of r - i goes on, that of r - i - 1 comes (at i = P - 1: this rank's own). */
static weft_status pass_sum(weft_cp_plan *plan, const weft__cp_slot *slot, int i)
{
    ring *s = plan->state;
    int here = weft__cp_owner(plan, i), coming = weft__cp_owner(plan, (i + 1) % plan->P);
    const void *part = s->part[WEFT_PLANTED(dkv_to_wrong_owner) && i > 1 ? 1 - i % 2 : i % 2];
    const void *sum = weft__cp_grad_encode(plan, slot->kv_rows[here], part, s->sent[i % 2]);
    WEFT_TRY(weft__cp_recv_view(plan, &s->came_msg, s->came, weft__cp_dkv_bytes(plan, slot, coming),
                                weft__cp_owner(plan, 1), WEFT__CP_TAG_DKV + coming));
    return weft__cp_send(plan, &s->sent_msg[i % 2], sum, weft__cp_dkv_bytes(plan, slot, here), weft__cp_reader(plan, 1),
                         WEFT__CP_TAG_DKV + here);
}

/* Adds the sum that came to `part` of a block of so many rows. */
static weft_status take_sum(weft_cp_plan *plan, const weft_cp_io *io, const char *op, int i, int64_t rows, void *part)
{
    ring *s = plan->state;
    WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->came_msg, 1));
    weft__cp_grad_add(plan, rows, part, s->came_msg.data);
    weft__cp_release(&s->came_msg);
    return WEFT_OK;
}

/* Step i > 0: this rank's part of the block of r - i, with the sum that came from r - 1, and on. */
static weft_status backward_step(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op,
                                 int i)
{
    ring *s = plan->state;
    weft__cp_block block = block_at(plan, slot, io, op, i);
    void *part = s->part[i % 2];
    if (i > 2) WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->sent_msg[i % 2], 1));
    WEFT_TRY(weft__cp_backward_block(plan, io, &block, part));
    if (i > 1) WEFT_TRY(take_sum(plan, io, op, i, block.rows, part));
    WEFT_TRY(pass_sum(plan, slot, i));
    return plan->options.overlap ? WEFT_OK : weft__cp_wait(plan, io, op, i, &s->came_msg, 1);
}

static weft_status backward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.ring.backward";
    ring *s = plan->state;
    int last = plan->P - 1;
    weft__cp_backward_begin(plan, slot, io, s->kv[0]);
    WEFT_TRY(begin_step(plan, slot, io, op, 0));
    weft__cp_block block = block_at(plan, slot, io, op, 0);
    WEFT_TRY(weft__cp_backward_block(plan, io, &block, plan->own));
    for (int i = 1; i <= last; i++) {
        WEFT_TRY(begin_step(plan, slot, io, op, i));
        WEFT_TRY(backward_step(plan, slot, io, op, i));
    }
    if (last > 0) {
        WEFT_TRY(take_sum(plan, io, op, last, slot->kv_rows[plan->rank], plan->own));
        WEFT_TRY(weft__cp_wait(plan, io, op, last, s->sent_msg, 2));
    }
    WEFT_TRY(end_blocks(plan, io, op));
    weft__cp_backward_end(plan, slot, io);
    return WEFT_OK;
}

const weft_cp_strategy weft__cp_ring = {"ring", "K,V blocks travel round the ring, two in memory", weft__cp_ranks_fit,
                                        weft__cp_cost_ring, plan_ring, bind, moves, forward, backward,
                                        weft__cp_describe_exchange, NULL};
