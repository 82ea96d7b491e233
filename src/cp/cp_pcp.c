/* cp_pcp.c — every rank gets all K,V blocks at once, directly from their owners, and takes them in order.
 *
 * Forward: all receives are posted, the own block is sent to every peer, and the own block is computed while
 * the others arrive. Memory: the K,V of the whole sequence. Backward gathers K,V again (keeping them from
 * forward to backward would hold them in every layer) and sends each block's gradient to its owner, who adds
 *   dKV_j = ((part_{j+1} + part_{j+2}) + ... + part_{j+P-1}) + part_j
 *
 * The usual reduce-scatter needs the gradient of the whole sequence in R on every rank. Here all ranks walk
 * in step: at step i rank r computes its part for r - i and receives the part of r + i, the very order in
 * which an owner adds. Two buffers each way are enough, whatever P is. */
#include "cp/cp_impl.h"

#include <string.h>

typedef struct pcp {
    void **kv;              /* [P] block of step i; kv[0] is the own one, packed */
    weft__cp_message *recv, *send; /* [P] of the gather; entry i: with owner(i), reader(i). Entry 0 unused */
    void *out[2], *in[2];   /* parts for other owners, parts from others */
    weft__cp_message out_msg[2], in_msg[2];
    void *total;            /* sum of the parts from others */
} pcp;

static weft_status plan_pcp(weft_cp_plan *plan, weft_arena *arena)
{
    pcp *s;
    weft_pool pool;
    WEFT_TRY(WEFT_NEW0(arena, 1, "cp pcp", &s));
    plan->state = s;
    if (plan->P == 1) return WEFT_OK;
    WEFT_TRY(WEFT_NEW0(arena, plan->P, "cp pcp", &s->kv));
    WEFT_TRY(WEFT_NEW0(arena, plan->P, "cp pcp", &s->recv));
    WEFT_TRY(WEFT_NEW0(arena, plan->P, "cp pcp", &s->send));
    size_t kv = (size_t)plan->kv_rows_max * plan->kv_row_bytes, dkv = (size_t)plan->kv_rows_max * plan->dkv_row_bytes;
    for (int i = 1; i < plan->P; i++) {
        WEFT_TRY(weft__cp_message_alloc(plan, arena, kv, &s->recv[i]));
        WEFT_TRY(weft__cp_message_alloc(plan, arena, kv, &s->send[i]));
    }
    WEFT_TRY(weft_pool_init(&pool, plan->buffers, plan->P, kv, "cp K,V blocks"));
    for (int i = 0; i < plan->P; i++) s->kv[i] = weft_pool_take(&pool);
    plan->kv_buffer_bytes = (size_t)plan->P * pool.bytes;
    plan->pool_bytes += plan->kv_buffer_bytes;
    if (!plan->problem.need_backward) return WEFT_OK;
    WEFT_TRY(weft_pool_init(&pool, plan->buffers, 5, dkv, "cp dK,dV blocks"));
    plan->pool_bytes += 5 * pool.bytes;
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(weft__cp_message_alloc(plan, arena, dkv, &s->out_msg[i]));
        WEFT_TRY(weft__cp_message_alloc(plan, arena, dkv, &s->in_msg[i]));
    }
    for (int i = 0; i < 2; i++) {
        s->out[i] = weft_pool_take(&pool);
        s->in[i] = weft_pool_take(&pool);
    }
    s->total = weft_pool_take(&pool);
    return WEFT_OK;
}

/* The own block to P - 1 peers; of the gradients all blocks but the own one. */
static weft_status bind(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q, const weft_shard *kv)
{
    (void)q, (void)kv;
    int64_t own = slot->kv_rows[plan->rank];
    weft_cp_traffic *t = &slot->traffic;
    t->forward_bytes = (plan->P - 1) * own * (int64_t)plan->kv_row_bytes;
    t->backward_bytes = t->forward_bytes + (slot->kv_total - own) * (int64_t)plan->dkv_row_bytes;
    t->forward_messages = (plan->P - 1) * weft__cp_pieces(plan, weft__cp_kv_bytes(plan, slot, plan->rank));
    t->backward_messages = t->forward_messages;
    for (int i = 1; i < plan->P; i++)
        t->backward_messages += weft__cp_pieces(plan, weft__cp_dkv_bytes(plan, slot, weft__cp_owner(plan, i)));
    return WEFT_OK;
}

static weft_status post_gather(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    pcp *s = plan->state;
    if (plan->P == 1) return WEFT_OK;
    weft__cp_pack(plan, slot, io, s->kv[0]);
    for (int i = 1; i < plan->P; i++) {
        int owner = weft__cp_owner(plan, i);
        WEFT_TRY(weft__cp_recv(plan, &s->recv[i], s->kv[i], weft__cp_kv_bytes(plan, slot, owner), owner,
                               WEFT__CP_TAG_KV + owner));
    }
    for (int i = 1; i < plan->P; i++)
        WEFT_TRY(weft__cp_send(plan, &s->send[i], s->kv[0], weft__cp_kv_bytes(plan, slot, plan->rank),
                               weft__cp_reader(plan, i), WEFT__CP_TAG_KV + plan->rank));
    return WEFT_OK;
}

/* Posts the gather; without overlap also waits for it. */
static weft_status begin_gather(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op)
{
    pcp *s = plan->state;
    WEFT_TRY(post_gather(plan, slot, io));
    if (plan->options.overlap || plan->P == 1) return WEFT_OK;
    WEFT_TRY(weft__cp_wait(plan, io, op, 0, s->recv + 1, plan->P - 1));
    return weft__cp_wait(plan, io, op, 0, s->send + 1, plan->P - 1);
}

static weft_status wait_block(weft_cp_plan *plan, const weft_cp_io *io, const char *op, int i)
{
    pcp *s = plan->state;
    return plan->options.overlap ? weft__cp_wait(plan, io, op, i, &s->recv[i], 1) : WEFT_OK;
}

/* The packed block may be overwritten by the next call: its sends must be complete before this one returns. */
static weft_status end_gather(weft_cp_plan *plan, const weft_cp_io *io, const char *op)
{
    pcp *s = plan->state;
    if (!plan->options.overlap || plan->P == 1) return WEFT_OK;
    return weft__cp_wait(plan, io, op, plan->P - 1, s->send + 1, plan->P - 1);
}

static weft__cp_block block_at(const weft_cp_plan *plan, int i)
{
    const pcp *s = plan->state;
    return weft__cp_block_in(plan, s->kv[i]);
}

static weft_status forward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.pcp.forward";
    weft__cp_forward_begin(plan, slot, io);
    WEFT_TRY(weft__cp_step(plan, io, "cp.pcp", op, 0));
    WEFT_TRY(begin_gather(plan, slot, io, op));
    weft__cp_forward_block(plan, slot, io, 0, weft__cp_own_block(io));
    for (int i = 1; i < plan->P; i++) {
        WEFT_TRY(weft__cp_step(plan, io, "cp.pcp", op, i));
        WEFT_TRY(wait_block(plan, io, op, i));
        weft__cp_forward_block(plan, slot, io, i, block_at(plan, i));
    }
    WEFT_TRY(end_gather(plan, io, op));
    weft__cp_forward_end(plan, slot, io);
    return WEFT_OK;
}

/* The part that reader(i) computed for this rank's block joins the sum, in the order of i. */
static weft_status take_part(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    pcp *s = plan->state;
    if (plan->options.overlap) WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->in_msg[i % 2], 1));
    if (i == 1) memcpy(s->total, s->in[1], weft__cp_dkv_bytes(plan, slot, plan->rank));
    else weft__cp_add(plan, slot, plan->rank, s->total, s->in[i % 2]);
    return WEFT_OK;
}

/* Step i > 0. A peer's part of step i is taken one step later, so that it may arrive under a computation. */
static weft_status backward_step(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    pcp *s = plan->state;
    int owner = weft__cp_owner(plan, i), b = i % 2;
    WEFT_TRY(wait_block(plan, io, op, i));
    if (i > 2 && plan->options.overlap) WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->out_msg[b], 1));
    WEFT_TRY(weft__cp_recv(plan, &s->in_msg[b], s->in[b], weft__cp_dkv_bytes(plan, slot, plan->rank),
                           weft__cp_reader(plan, i), WEFT__CP_TAG_DKV + plan->rank));
    weft__cp_backward_block(plan, slot, io, i, block_at(plan, i), s->out[b]);
    WEFT_TRY(weft__cp_send(plan, &s->out_msg[b], s->out[b], weft__cp_dkv_bytes(plan, slot, owner), owner,
                           WEFT__CP_TAG_DKV + owner));
    if (!plan->options.overlap) {
        WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->in_msg[b], 1));
        WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->out_msg[b], 1));
    }
    return i > 1 ? take_part(plan, slot, io, op, i - 1) : WEFT_OK;
}

/* What is still under way after the last step: its part from outside, and the last two sends. */
static weft_status end_parts(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op)
{
    pcp *s = plan->state;
    int last = plan->P - 1;
    if (last == 0) return WEFT_OK;
    WEFT_TRY(take_part(plan, slot, io, op, last));
    for (int i = last > 1 ? last - 1 : last; i <= last && plan->options.overlap; i++)
        WEFT_TRY(weft__cp_wait(plan, io, op, i, &s->out_msg[i % 2], 1));
    weft__cp_add(plan, slot, plan->rank, plan->own, s->total);
    return WEFT_OK;
}

static weft_status backward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.pcp.backward";
    weft__cp_backward_begin(plan, slot, io);
    WEFT_TRY(weft__cp_step(plan, io, "cp.pcp", op, 0));
    WEFT_TRY(begin_gather(plan, slot, io, op));
    weft__cp_backward_block(plan, slot, io, 0, weft__cp_own_block(io), plan->own);
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
                                       weft__cp_ranks_fit, weft__cp_cost_gather, plan_pcp, bind, forward, backward,
                                       weft__cp_describe_exchange, NULL};
