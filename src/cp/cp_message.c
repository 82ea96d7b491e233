/* cp_message.c — messages of any size in pieces of at most options.buffer_bytes.
 *
 * Pieces of one message carry one tag: messages of a pair, comm and tag arrive in order. Both sides compute the same
 * pieces, because they know each other's row counts. Cutting changes when bytes move, never which: no bit of a result
 * depends on it as long as blocks are computed in the same portions. */
#include "cp/cp_impl.h"

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
        return weft_fail(WEFT_ERR_REFUSED, "attention: messages of %zu bytes in pieces of %zu are %lld pieces; give larger "
                                           "pieces", bytes_max, plan->options.buffer_bytes, (long long)pieces);
    out->capacity = (int)pieces;
    out->pieces = 0;
    return WEFT_NEW0(arena, pieces, "cp messages", &out->req);
}

static int peer_of(const weft_cp_plan *plan, int member) { return plan->team.first + member * plan->team.step; }

weft_status weft__cp_send(weft_cp_plan *plan, weft__cp_message *m, const void *buf, size_t bytes, int member, int tag)
{
    size_t piece = piece_bytes(plan, bytes);
    m->pieces = 0;
    for (size_t at = 0; at < bytes; at += piece)
        WEFT_TRY(weft_isend(plan->team.comm, (const char *)buf + at, weft_min_size(piece, bytes - at), peer_of(plan, member),
                            tag, WEFT_MEM_HOST, plan->run.queue, &m->req[m->pieces++]));
    return WEFT_OK;
}

weft_status weft__cp_recv(weft_cp_plan *plan, weft__cp_message *m, void *buf, size_t bytes, int member, int tag)
{
    size_t piece = piece_bytes(plan, bytes);
    m->pieces = 0;
    for (size_t at = 0; at < bytes; at += piece)
        WEFT_TRY(weft_irecv(plan->team.comm, (char *)buf + at, weft_min_size(piece, bytes - at), peer_of(plan, member), tag,
                            WEFT_MEM_HOST, plan->run.queue, &m->req[m->pieces++]));
    return WEFT_OK;
}

weft_status weft__cp_wait(weft_cp_plan *plan, const weft_cp_io *io, const char *op, int step, weft__cp_message *m, int n)
{
    weft_place(plan->world, op, io->layer, step);
    double begin = weft_now(&plan->ctx->clock);
    for (int i = 0; i < n; i++) {
        WEFT_TRY(weft_wait_all(m[i].req, m[i].pieces));
        m[i].pieces = 0;
    }
    weft_trace_emit(&plan->ctx->trace, "comm", op, begin, weft_now(&plan->ctx->clock), io->layer, step);
    return WEFT_OK;
}
