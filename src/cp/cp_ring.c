/* cp_ring.c — queries stay, K,V blocks travel round the ring; two blocks in memory whatever P is.
 *
 * Invariant: at step i this rank computes the block of rank r - i, from kv[i % 2]. While it does so, message
 * i sends that same block to r + 1 and receives the block of r - i - 1 into kv[(i + 1) % 2], whose own send
 * (message i - 1) was waited for: a buffer is refilled only after it was sent and computed.
 *
 * Backward: K,V travel again; the gradient of a block starts at the first rank that is not its owner and
 * travels one hop behind, each rank adding its part, P - 1 hops; the owner adds its own part last:
 *   dKV_j = ((part_{j+1} + part_{j+2}) + ... + part_{j+P-1}) + part_j
 * A rank's part is computed into a zeroed buffer and added to the partial sum afterwards, so that computing
 * need not wait for the sum to arrive, and so that the additions are those of every other strategy. We
 * rejected the form in which the owner starts the sum (P hops, one message more per layer). */
#include "cp/cp_impl.h"

typedef struct ring {
    void *kv[2];   /* K,V blocks */
    void *sum[2];  /* travelling sums of gradients: one received and added to, one being sent */
    void *part;    /* this rank's part of a block's gradient */
    weft__cp_message kv_msg[2], sum_msg[2]; /* receive, send */
} ring;

static weft_status plan_ring(weft_cp_plan *plan, weft_arena *arena)
{
    ring *s;
    weft_pool pool;
    WEFT_TRY(WEFT_NEW0(arena, 1, "cp ring", &s));
    plan->state = s;
    if (plan->P == 1) return WEFT_OK;
    size_t kv = (size_t)plan->kv_rows_max * plan->kv_row_bytes, dkv = (size_t)plan->kv_rows_max * plan->dkv_row_bytes;
    WEFT_TRY(weft_pool_init(&pool, plan->buffers, 2, kv, "cp K,V blocks"));
    for (int i = 0; i < 2; i++) s->kv[i] = weft_pool_take(&pool);
    for (int i = 0; i < 2; i++) WEFT_TRY(weft__cp_message_alloc(plan, arena, kv, &s->kv_msg[i]));
    plan->kv_buffer_bytes = 2 * pool.bytes;
    plan->pool_bytes += plan->kv_buffer_bytes;
    if (!plan->problem.need_backward) return WEFT_OK;
    WEFT_TRY(weft_pool_init(&pool, plan->buffers, 3, dkv, "cp dK,dV blocks"));
    plan->pool_bytes += 3 * pool.bytes;
    for (int i = 0; i < 2; i++) s->sum[i] = weft_pool_take(&pool);
    for (int i = 0; i < 2; i++) WEFT_TRY(weft__cp_message_alloc(plan, arena, dkv, &s->sum_msg[i]));
    s->part = weft_pool_take(&pool);
    return WEFT_OK;
}

/* Message i = 0 .. P-2 carries the block of rank r - i, so all blocks but that of rank r + 1 leave rank r; of
 * the gradients all but its own. */
static weft_status bind(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q, const weft_shard *kv)
{
    (void)q, (void)kv;
    int64_t next = slot->kv_rows[weft__cp_reader(plan, 1)], own = slot->kv_rows[plan->rank];
    weft_cp_traffic *t = &slot->traffic;
    *t = (weft_cp_traffic){0};
    if (plan->P == 1) return WEFT_OK;
    t->forward_bytes = (slot->kv_total - next) * (int64_t)plan->kv_row_bytes;
    t->backward_bytes = t->forward_bytes + (slot->kv_total - own) * (int64_t)plan->dkv_row_bytes;
    for (int i = 0; i < plan->P - 1; i++)
        t->forward_messages += weft__cp_pieces(plan, weft__cp_kv_bytes(plan, slot, weft__cp_owner(plan, i)));
    t->backward_messages = t->forward_messages;
    for (int i = 1; i < plan->P; i++)
        t->backward_messages += weft__cp_pieces(plan, weft__cp_dkv_bytes(plan, slot, weft__cp_owner(plan, i)));
    return WEFT_OK;
}

/* Receives are posted first: with transports that complete a send only against a posted receive, a ring of
 * sends would stand still. */
static weft_status pass(weft_cp_plan *plan, void *recv, size_t recv_bytes, int recv_tag, const void *send, size_t send_bytes,
                        int send_tag, weft__cp_message msg[2])
{
    WEFT_TRY(weft__cp_recv(plan, &msg[0], recv, recv_bytes, weft__cp_owner(plan, 1), recv_tag));
    return weft__cp_send(plan, &msg[1], send, send_bytes, weft__cp_reader(plan, 1), send_tag);
}

static weft_status pass_kv(weft_cp_plan *plan, const weft__cp_slot *slot, int i)
{
    ring *s = plan->state;
    int here = weft__cp_owner(plan, i), coming = weft__cp_owner(plan, i + 1);
    return pass(plan, s->kv[(i + 1) % 2], weft__cp_kv_bytes(plan, slot, coming), WEFT__CP_TAG_KV + coming, s->kv[i % 2],
                weft__cp_kv_bytes(plan, slot, here), WEFT__CP_TAG_KV + here, s->kv_msg);
}

/* After step i: the sum of the block of r - i goes on, that of r - i - 1 comes (at i = P - 1: this rank's own). */
static weft_status pass_sum(weft_cp_plan *plan, const weft__cp_slot *slot, int i)
{
    ring *s = plan->state;
    int here = weft__cp_owner(plan, i), coming = weft__cp_owner(plan, (i + 1) % plan->P);
    return pass(plan, s->sum[(i + 1) % 2], weft__cp_dkv_bytes(plan, slot, coming), WEFT__CP_TAG_DKV + coming, s->sum[i % 2],
                weft__cp_dkv_bytes(plan, slot, here), WEFT__CP_TAG_DKV + here, s->sum_msg);
}

static weft__cp_block block_at(const weft_cp_plan *plan, const weft_cp_io *io, int i)
{
    const ring *s = plan->state;
    return i == 0 ? weft__cp_own_block(io) : weft__cp_block_in(plan, s->kv[i % 2]);
}

static weft_status forward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.ring.forward";
    ring *s = plan->state;
    int last = plan->P - 1;
    weft__cp_forward_begin(plan, slot, io);
    if (last > 0) weft__cp_pack(plan, slot, io, s->kv[0]);
    for (int i = 0; i <= last; i++) {
        WEFT_TRY(weft__cp_step(plan, io, "cp.ring", op, i));
        if (i < last) WEFT_TRY(pass_kv(plan, slot, i));
        if (i < last && !plan->options.overlap) WEFT_TRY(weft__cp_wait(plan, io, op, i, s->kv_msg, 2));
        weft__cp_forward_block(plan, slot, io, i, block_at(plan, io, i));
        if (i < last && plan->options.overlap) WEFT_TRY(weft__cp_wait(plan, io, op, i, s->kv_msg, 2));
    }
    weft__cp_forward_end(plan, slot, io);
    return WEFT_OK;
}

/* Step i > 0: this rank's part of the block of r - i, added to the sum that came from r - 1, and sent on. */
static weft_status backward_step(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, const char *op, int i)
{
    ring *s = plan->state;
    void *sum = s->sum[i % 2];
    weft__cp_backward_block(plan, slot, io, i, block_at(plan, io, i), i == 1 ? sum : s->part);
    if (i > 1) {
        if (plan->options.overlap) WEFT_TRY(weft__cp_wait(plan, io, op, i, s->sum_msg, 2));
        weft__cp_add(plan, slot, weft__cp_owner(plan, i), sum, s->part);
    }
    WEFT_TRY(pass_sum(plan, slot, i));
    if (!plan->options.overlap) WEFT_TRY(weft__cp_wait(plan, io, op, i, s->sum_msg, 2));
    return WEFT_OK;
}

static weft_status backward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.ring.backward";
    ring *s = plan->state;
    int last = plan->P - 1;
    weft__cp_backward_begin(plan, slot, io);
    if (last > 0) weft__cp_pack(plan, slot, io, s->kv[0]);
    for (int i = 0; i <= last; i++) {
        WEFT_TRY(weft__cp_step(plan, io, "cp.ring", op, i));
        if (i < last) WEFT_TRY(pass_kv(plan, slot, i));
        if (i < last && !plan->options.overlap) WEFT_TRY(weft__cp_wait(plan, io, op, i, s->kv_msg, 2));
        if (i == 0) weft__cp_backward_block(plan, slot, io, 0, weft__cp_own_block(io), plan->own);
        else WEFT_TRY(backward_step(plan, slot, io, op, i));
        if (i < last && plan->options.overlap) WEFT_TRY(weft__cp_wait(plan, io, op, i, s->kv_msg, 2));
    }
    if (last > 0) {
        if (plan->options.overlap) WEFT_TRY(weft__cp_wait(plan, io, op, last, s->sum_msg, 2));
        weft__cp_add(plan, slot, plan->rank, plan->own, s->sum[plan->P % 2]);
    }
    weft__cp_backward_end(plan, slot, io);
    return WEFT_OK;
}

const weft_cp_strategy weft__cp_ring = {"ring", "K,V blocks travel round the ring, two in memory", weft__cp_ranks_fit,
                                        weft__cp_cost_ring, plan_ring, bind, forward, backward, weft__cp_describe_exchange, NULL};
