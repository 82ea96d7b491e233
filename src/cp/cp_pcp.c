/* cp_pcp.c — every rank gets all K,V blocks at once, directly from their owners, and takes them in order.
 *
 * Forward: all receives are posted, the own block is sent to every peer, and the own block is computed while
 * the others arrive. Memory: the K,V of the whole sequence, or the own block alone where the others are read in place.
 * Backward gathers K,V again (keeping them from forward to backward would hold them in every layer) and sends each
 * block's gradient to its owner, who adds
 *   dKV_j = ((part_{j+1} + part_{j+2}) + ... + part_{j+P-1}) + part_j
 *
 * The usual reduce-scatter needs the gradient of the whole sequence in R on every rank. Here all ranks walk
 * in step: at step i rank r computes its part for r - i and receives the part of r + i, the very order in
 * which an owner adds. Two buffers each way are enough, whatever P is.
 *
 * In place, a send is complete when its reader has released it: K,V when the reader has computed the block, a part when
 * the owner has added it, which is at its step i + 1. What a rank waits for at a step is released by others at an
 * earlier one, so nobody waits for ever; and nobody waits for the sends of K,V before the end. */
#include "cp/cp_impl.h"

typedef struct pcp {
    void *packed, **kv;     /* own block on the wire; [P] block of step i, entry 0 unused */
    weft__cp_message *recv, *send; /* [P] of the gather; entry i: with owner(i), reader(i). Entry 0 unused */
    void *part[2], *out[2]; /* (R) parts for other owners; as they are sent: the same, or encoded */
    void *in[2];            /* parts from others, as sent */
    weft__cp_message out_msg[2], in_msg[2];
    void *total;            /* (R) sum of the parts from others */
} pcp;

static weft_status plan_gather(weft_cp_plan *plan, weft_arena *arena, pcp *s)
{
    size_t kv = weft__cp_wire_bytes(&plan->wire, plan->kv_rows_max);
    WEFT_TRY(WEFT_NEW0(arena, plan->P, "cp pcp", &s->kv));
    WEFT_TRY(WEFT_NEW0(arena, plan->P, "cp pcp", &s->recv));
    WEFT_TRY(WEFT_NEW0(arena, plan->P, "cp pcp", &s->send));
    for (int i = 1; i < plan->P; i++) {
        WEFT_TRY(weft__cp_message_alloc(plan, arena, kv, &s->recv[i]));
        WEFT_TRY(weft__cp_message_alloc(plan, arena, kv, &s->send[i]));
    }
    WEFT_TRY(weft__cp_buffers(plan, 1, kv, "cp K,V blocks", &s->packed, &plan->kv_buffer_bytes));
    return plan->in_place ? WEFT_OK
                          : weft__cp_buffers(plan, plan->P - 1, kv, "cp K,V blocks", s->kv + 1, &plan->kv_buffer_bytes);
}

static weft_status plan_parts(weft_cp_plan *plan, weft_arena *arena, pcp *s)
{
    size_t part = (size_t)plan->kv_rows_max * plan->part_row_bytes,
           sent = (size_t)plan->kv_rows_max * plan->grad_row_bytes;
    bool encoded = plan->grad_row_bytes != plan->part_row_bytes;
    WEFT_TRY(weft__cp_buffers(plan, encoded ? 1 : 2, part, "cp dK,dV blocks", s->part, NULL));
    if (encoded) s->part[1] = s->part[0]; /* free as soon as it is encoded */
    WEFT_TRY(weft__cp_buffers(plan, 1, part, "cp dK,dV blocks", &s->total, NULL));
    if (encoded) WEFT_TRY(weft__cp_buffers(plan, 2, sent, "cp dK,dV blocks", s->out, NULL));
    if (!plan->in_place) WEFT_TRY(weft__cp_buffers(plan, 2, sent, "cp dK,dV blocks", s->in, NULL));
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(weft__cp_message_alloc(plan, arena, sent, &s->out_msg[i]));
        WEFT_TRY(weft__cp_message_alloc(plan, arena, sent, &s->in_msg[i]));
    }
    return WEFT_OK;
}

static weft_status plan_pcp(weft_cp_plan *plan, weft_arena *arena)
{
    pcp *s;
    WEFT_TRY(WEFT_NEW0(arena, 1, "cp pcp", &s));
    plan->state = s;
    if (plan->P == 1) return WEFT_OK;
    WEFT_TRY(plan_gather(plan, arena, s));
    return plan->problem.need_backward ? plan_parts(plan, arena, s) : WEFT_OK;
}

static weft_status bind(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q, const weft_shard *kv)
{
    (void)plan, (void)slot, (void)q, (void)kv;
    return WEFT_OK;
}

/* The own block to P - 1 peers at once; of the gradients all blocks but the own one, each after its step. */
static void moves(const weft_cp_plan *plan, const weft__cp_slot *slot, bool backward, const weft_cp_view *view)
{
    int64_t own = slot->kv_rows[plan->rank];
    for (int i = 1; i < plan->P; i++) {
        int owner = weft__cp_owner(plan, i), reader = weft__cp_reader(plan, i);
        weft__cp_tell_kv(plan, view, (weft__cp_hop){0, owner, owner, true}, slot->kv_rows[owner]);
        weft__cp_tell_kv(plan, view, (weft__cp_hop){0, reader, plan->rank, false}, own);
    }
    for (int i = 1; backward && i < plan->P; i++) {
        int owner = weft__cp_owner(plan, i), reader = weft__cp_reader(plan, i);
        weft__cp_tell_dkv(plan, view, (weft__cp_hop){i, reader, plan->rank, true}, own);
        weft__cp_tell_dkv(plan, view, (weft__cp_hop){i, owner, owner, false}, slot->kv_rows[owner]);
    }
}

static weft_status post_gather(weft_cp_plan *plan, const weft__cp_slot *slot)
{
    pcp *s = plan->state;
    for (int i = 1; i < plan->P; i++) {
        int owner = weft__cp_owner(plan, i);
        WEFT_TRY(weft__cp_recv_view(plan, &s->recv[i], s->kv[i], weft__cp_kv_bytes(plan, slot, owner), owner,
                                    WEFT__CP_TAG_KV + owner));
    }
    for (int i = 1; i < plan->P; i++)
        WEFT_TRY(weft__cp_send(plan, &s->send[i], s->packed, weft__cp_kv_bytes(plan, slot, plan->rank),
                               weft__cp_reader(plan, i), WEFT__CP_TAG_KV + plan->rank));
    return WEFT_OK;
}

/* Posts the gather; without overlap also waits for it. */
static weft_status begin_gather(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op)
{
    pcp *s = plan->state;
    WEFT_TRY(post_gather(plan, slot));
    return plan->options.overlap || plan->P == 1 ? WEFT_OK : weft__cp_wait(plan, io, op, 0, s->recv + 1, plan->P - 1);
}

/* The packed block may be overwritten by the next call: its sends must be complete before this one returns. */
static weft_status end_gather(weft_cp_plan *plan, const weft_cp_io *io, const char *op)
{
    pcp *s = plan->state;
    return plan->P == 1 ? WEFT_OK : weft__cp_wait(plan, io, op, plan->P - 1, s->send + 1, plan->P - 1);
}

static weft__cp_message *brings(weft_cp_plan *plan, int i)
{
    pcp *s = plan->state;
    return i > 0 ? &s->recv[i] : NULL;
}

static weft_status forward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.pcp.forward";
    pcp *s = plan->state;
    weft__cp_forward_begin(plan, slot, io, s->packed);
    for (int i = 0; i < plan->P; i++) {
        WEFT_TRY(weft__cp_step(plan, io, "cp.pcp", op, i));
        if (i == 0) WEFT_TRY(begin_gather(plan, slot, io, op));
        weft__cp_block block = weft__cp_block_of(plan, slot, io, op, i, brings(plan, i));
        WEFT_TRY(weft__cp_forward_block(plan, io, &block));
        if (i > 0) weft__cp_release(&s->recv[i]);
    }
    WEFT_TRY(end_gather(plan, io, op));
    weft__cp_forward_end(plan, slot, io);
    return WEFT_OK;
}

/* The part that reader(i) computed for this rank's block joins the sum, in the order of i. */
static weft_status take_part(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    pcp *s = plan->state;
    weft__cp_message *m = &s->in_msg[i % 2];
    int64_t rows = slot->kv_rows[plan->rank];
    WEFT_TRY(weft__cp_wait(plan, io, op, i, m, 1));
    if (i == 1) weft__cp_grad_store(plan, rows, s->total, m->data);
    else weft__cp_grad_add(plan, rows, s->total, m->data);
    weft__cp_release(m);
    return WEFT_OK;
}

/* Step i > 0. A peer's part of step i is taken one step later, so that it may arrive under a computation. */
static weft_status backward_step(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op,
                                 int i)
{
    pcp *s = plan->state;
    int owner = weft__cp_owner(plan, i), b = i % 2;
    weft__cp_block block = weft__cp_block_of(plan, slot, io, op, i, brings(plan, i));
    if (i > 2) WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->out_msg[b], 1));
    WEFT_TRY(weft__cp_recv_view(plan, &s->in_msg[b], s->in[b], weft__cp_dkv_bytes(plan, slot, plan->rank),
                                weft__cp_reader(plan, i), WEFT__CP_TAG_DKV + plan->rank));
    WEFT_TRY(weft__cp_backward_block(plan, io, &block, s->part[b]));
    weft__cp_release(&s->recv[i]);
    const void *part = s->part[WEFT_PLANTED(dkv_to_wrong_owner) && i > 1 ? 1 - b : b];
    const void *out = weft__cp_grad_encode(plan, block.rows, part, s->out[b]);
    WEFT_TRY(weft__cp_send(plan, &s->out_msg[b], out, weft__cp_dkv_bytes(plan, slot, owner), owner,
                           WEFT__CP_TAG_DKV + owner));
    if (!plan->options.overlap) WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->in_msg[b], 1));
    return i > 1 ? take_part(plan, slot, io, op, i - 1) : WEFT_OK;
}

/* What is still under way after the last step: its part from outside, and the last two sends. */
static weft_status end_parts(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op)
{
    pcp *s = plan->state;
    int last = plan->P - 1;
    if (last == 0) return WEFT_OK;
    WEFT_TRY(take_part(plan, slot, io, op, last));
    WEFT_TRY(weft__cp_wait(plan, io, op, last, s->out_msg, 2));
    weft__cp_part_add(plan, slot->kv_rows[plan->rank], plan->own, s->total);
    return WEFT_OK;
}

static weft_status backward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.pcp.backward";
    pcp *s = plan->state;
    weft__cp_backward_begin(plan, slot, io, s->packed);
    WEFT_TRY(weft__cp_step(plan, io, "cp.pcp", op, 0));
    WEFT_TRY(begin_gather(plan, slot, io, op));
    weft__cp_block block = weft__cp_block_of(plan, slot, io, op, 0, NULL);
    WEFT_TRY(weft__cp_backward_block(plan, io, &block, plan->own));
    for (int i = 1; i < plan->P; i++) {
        WEFT_TRY(weft__cp_step(plan, io, "cp.pcp", op, i));
        WEFT_TRY(backward_step(plan, slot, io, op, i));
    }
    WEFT_TRY(end_parts(plan, slot, io, op));
    WEFT_TRY(end_gather(plan, io, op));
    weft__cp_backward_end(plan, slot, io);
    return WEFT_OK;
}

const weft_cp_strategy weft__cp_pcp = {"pcp", "all K,V blocks are gathered, the own one computed meanwhile",
                                       weft__cp_ranks_fit, weft__cp_cost_gather, plan_pcp, bind, moves, forward,
                                       backward, weft__cp_describe_exchange, NULL};
