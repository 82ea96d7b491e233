/* cp_message.c — messages of any size in pieces of at most options.buffer_bytes.
 *
 * Pieces of one message carry one tag: messages of a pair, comm and tag arrive in order. Both sides compute the same
 * pieces, because they know each other's row counts. Cutting changes when bytes move, never which.
 *
 * A receive may be answered in place (plan->in_place): its bytes stay in the sender's memory, and the sender's request
 * stays open until the release. So a plan must not wait for a send before it has released what the other side may be
 * waiting for; each strategy says why it does not. */
#include "cp/cp_impl.h"

#include <string.h>

static size_t piece_bytes(const weft_cp_plan *plan, size_t bytes)
{
    size_t limit = plan->options.buffer_bytes;
    return limit && limit < bytes ? limit : bytes;
}

int64_t weft__cp_pieces(const weft_cp_plan *plan, size_t bytes)
{
    return bytes ? weft_ceil_div((int64_t)bytes, (int64_t)piece_bytes(plan, bytes)) : 0;
}

weft_status weft__cp_message_alloc(const weft_cp_plan *plan, weft_arena *arena, size_t bytes_max, weft__cp_message *out)
{
    int64_t pieces = weft__cp_pieces(plan, bytes_max);
    if (pieces > INT32_MAX)
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention: messages of %zu bytes in pieces of %zu are %lld pieces; give larger "
                         "pieces",
                         bytes_max, plan->options.buffer_bytes, (long long)pieces);
    *out = (weft__cp_message){.capacity = (int)pieces};
    return WEFT_NEW0(arena, pieces, "cp messages", &out->req);
}

static void reset(weft__cp_message *m, const void *buf, size_t bytes)
{
    m->pieces = m->here = 0;
    m->bytes = bytes;
    m->data = buf;
    m->view = false;
    m->on = NULL;
}

static weft_status send_piece(weft_cp_plan *plan, weft__cp_message *m, const char *data, size_t at, int member, int tag)
{
    size_t n = weft_min_size(piece_bytes(plan, m->bytes), m->bytes - at);
    WEFT_TRY(weft_isend(plan->team.comm, data + at, n, weft__cp_peer(plan, member), tag, WEFT_MEM_HOST, plan->run.queue,
                        &m->req[m->pieces++]));
    if (WEFT_PLANTED(buffer_reused)) memset((char *)(uintptr_t)(data + at), 0x7f, weft_min_size(n, 64));
    return WEFT_OK;
}

weft_status weft__cp_send(weft_cp_plan *plan, weft__cp_message *m, const void *buf, size_t bytes, int member, int tag)
{
    reset(m, buf, bytes);
    for (size_t at = 0; at < bytes; at += piece_bytes(plan, bytes))
        WEFT_TRY(send_piece(plan, m, buf, at, member, tag));
    return WEFT_OK;
}

weft_status weft__cp_recv(weft_cp_plan *plan, weft__cp_message *m, void *buf, size_t bytes, int member, int tag)
{
    size_t piece = piece_bytes(plan, bytes);
    reset(m, buf, bytes);
    for (size_t at = 0; at < bytes; at += piece)
        WEFT_TRY(weft_irecv(plan->team.comm, (char *)buf + at, weft_min_size(piece, bytes - at),
                            weft__cp_peer(plan, member), tag, WEFT_MEM_HOST, plan->run.queue, &m->req[m->pieces++]));
    return WEFT_OK;
}

weft_status weft__cp_recv_view(weft_cp_plan *plan, weft__cp_message *m, void *buf, size_t bytes, int member, int tag)
{
    if (!plan->in_place) return weft__cp_recv(plan, m, buf, bytes, member, tag);
    if (!weft_world_peer_memory(plan->world))
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention: the plan was made for reading in place, which is off now; switch to "
                         "copies before plans are made");
    size_t piece = piece_bytes(plan, bytes);
    reset(m, NULL, bytes);
    m->view = true;
    for (size_t at = 0; at < bytes; at += piece)
        WEFT_TRY(weft_irecv_view(plan->team.comm, NULL, weft_min_size(piece, bytes - at),
                                 weft__cp_peer(plan, member), tag, WEFT_MEM_HOST, plan->run.queue,
                                 &m->req[m->pieces++]));
    return WEFT_OK;
}

weft_status weft__cp_pass_on(weft_cp_plan *plan, weft__cp_message *m, weft__cp_message *on, int member, int tag)
{
    reset(on, NULL, m->bytes);
    m->on = on;
    m->on_member = member;
    m->on_tag = tag;
    for (int i = 0; i < m->here; i++)
        WEFT_TRY(send_piece(plan, on, m->data, (size_t)i * piece_bytes(plan, m->bytes), member, tag));
    return WEFT_OK;
}

/* Pieces are consecutive in one buffer of the sender, so they are where they lie now. */
static weft_status take_piece(weft_cp_plan *plan, weft__cp_message *m)
{
    size_t at = (size_t)m->here * piece_bytes(plan, m->bytes);
    if (m->view) {
        const char *place = weft_received(&m->req[m->here]);
        if (m->here == 0) m->data = place;
        if (!place || place != m->data + at)
            return weft_fail(WEFT_ERR_INTERNAL, "attention: a message lies in place, but not in one piece");
    }
    m->here++;
    return m->on ? send_piece(plan, m->on, m->data, at, m->on_member, m->on_tag) : WEFT_OK;
}

/* Takes what has come; waits for no more. */
static weft_status take_ready(weft_cp_plan *plan, weft__cp_message *m)
{
    for (bool done = true; m->here < m->pieces;) {
        WEFT_TRY(weft_test(&m->req[m->here], &done));
        if (!done) break;
        WEFT_TRY(take_piece(plan, m));
    }
    return WEFT_OK;
}

static int pieces_for(const weft_cp_plan *plan, const weft__cp_message *m, size_t bytes)
{
    return bytes ? (int)weft_ceil_div((int64_t)bytes, (int64_t)piece_bytes(plan, m->bytes)) : 0;
}

weft_status weft__cp_arrive(weft_cp_plan *plan, const weft_cp_io *io, const char *op, int step, weft__cp_message *m,
                            size_t bytes)
{
    int need = pieces_for(plan, m, bytes);
    WEFT_TRY(take_ready(plan, m));
    if (m->here >= need) return WEFT_OK;
    weft_place(plan->world, op, io->layer, step);
    while (m->here < need) {
        WEFT_TRY(weft_wait(&m->req[m->here]));
        WEFT_TRY(take_piece(plan, m));
    }
    return WEFT_OK;
}

weft_status weft__cp_wait(weft_cp_plan *plan, const weft_cp_io *io, const char *op, int step, weft__cp_message *m,
                          int n)
{
    weft_place(plan->world, op, io->layer, step);
    for (int i = 0; i < n; i++)
        while (m[i].here < m[i].pieces) {
            WEFT_TRY(weft_wait(&m[i].req[m[i].here]));
            WEFT_TRY(take_piece(plan, &m[i]));
        }
    return WEFT_OK;
}

void weft__cp_release(weft__cp_message *m)
{
    for (int i = 0; m->view && i < m->pieces; i++) weft_release(&m->req[i]);
    m->view = false;
}
