/* p2p.c — messages between two ranks and waiting for them, the same for every transport: checks, faults,
 * counters, deadlines, and the message that names a stuck rank. */
#include "comm/world.h"

#include <stdio.h>

/* ---- posting ---------------------------------------------------------------------------------------- */

/* A call that is refused with transfers under way: who gets the error leaves, and nobody waits for them. They end with
 * the world, and before their memory goes. */
static weft_status refuse_post(weft_comm *c, weft_status st)
{
    return c->world->flight.open > 0 ? weft_world_fail(c->world, st) : st;
}

static weft_status judge_post(const weft_comm *c, const void *buf, bool needs_buffer, size_t bytes, int peer,
                              weft_mem_kind kind, const char *verb)
{
    static const char *const kinds[] = {"host", "shared", "pinned", "device"};
    const weft_world *w = c->world;
    if (peer < 0 || peer >= c->size)
        return weft_fail(WEFT_ERR_REFUSED, "rank %d: %s: peer %d is not in group %s; give 0 to %d", w->rank, verb, peer,
                         c->name, c->size - 1);
    if (peer == c->rank)
        return weft_fail(WEFT_ERR_REFUSED, "rank %d: %s to or from itself in group %s; copy the bytes instead", w->rank,
                         verb, c->name);
    if (needs_buffer && !buf && bytes > 0)
        return weft_fail(WEFT_ERR_REFUSED, "rank %d: %s of %zu bytes without a buffer", w->rank, verb, bytes);
    if (!(w->tp->mem_kinds >> kind & 1u))
        return weft_fail(WEFT_ERR_REFUSED,
                         "rank %d: %s: transport %s does not move %s memory; copy it to a host buffer first", w->rank,
                         verb, w->tp->name, kinds[kind]);
    return WEFT_OK;
}

static weft_status check_post(weft_comm *c, const void *buf, bool needs_buffer, size_t bytes, int peer,
                              weft_mem_kind kind, const char *verb)
{
    WEFT_TRY(weft_world_good(c->world));
    weft_status st = judge_post(c, buf, needs_buffer, bytes, peer, kind, verb);
    return st == WEFT_OK ? WEFT_OK : refuse_post(c, st);
}

/* A failure between posts leaves transfers behind that nobody will wait for: it ends the world. */
static weft_status pass_fault(weft_world *w, const char *site)
{
    weft_status st = weft_fault_pass(&w->ctx->fault, w->rank, site, NULL);
    return st == WEFT_OK ? WEFT_OK : weft_world_fail(w, st);
}

static void open_request(weft_req *req, weft_comm *c, size_t bytes, int peer, int tag)
{
    *req = (weft_req){.comm = c, .bytes = bytes, .peer = peer, .tag = tag,
                      .state = bytes == 0 ? WEFT_REQ_DONE : WEFT_REQ_POSTED};
    req->priv[WEFT_REQ_PEER] = (uint64_t)weft_comm_member(c, peer);
    req->priv[WEFT_REQ_COMM] = c->id;
    if (bytes > 0) {
        if (c->world->tp->settle) c->world->tp->settle(c->world->ep);
        double now = weft_now(&c->world->ctx->clock);
        req->begun = now;
        weft_flight_begin(&c->flight, now);
        weft_flight_begin(&c->world->flight, now);
    }
}

/* The transport keeps a request that it took; one that it did not take leaves an exchange half-posted. */
static weft_status posted(weft_world *w, weft_status st) { return st == WEFT_OK ? WEFT_OK : weft_world_fail(w, st); }

static weft_status post_send(weft_comm *c, const void *buf, size_t bytes, int peer, int tag, weft_mem_kind kind,
                             weft_queue *queue, weft_req *req)
{
    weft_world *w = c->world;
    *req = (weft_req){0};
    WEFT_TRY(pass_fault(w, "comm.send"));
    WEFT_TRY(check_post(c, buf, true, bytes, peer, kind, "send"));
    open_request(req, c, bytes, peer, tag);
    req->send = buf;
    return bytes == 0 ? WEFT_OK : posted(w, w->tp->post_send(w->ep, req, queue));
}

static weft_status post_recv(weft_comm *c, void *buf, size_t bytes, int peer, int tag, weft_mem_kind kind,
                             weft_queue *queue, int flags, weft_req *req)
{
    weft_world *w = c->world;
    *req = (weft_req){0};
    WEFT_TRY(pass_fault(w, "comm.recv"));
    WEFT_TRY(check_post(c, buf, !(flags & WEFT_REQ_MAY_VIEW), bytes, peer, kind, "receive"));
    open_request(req, c, bytes, peer, tag);
    req->recv = buf;
    req->flags = flags;
    return bytes == 0 ? WEFT_OK : posted(w, w->tp->post_recv(w->ep, req, queue));
}

weft_status weft__isend(weft_comm *c, const void *buf, size_t bytes, int peer, int tag, weft_req *req)
{
    return post_send(c, buf, bytes, peer, tag, WEFT_MEM_HOST, NULL, req);
}

weft_status weft__irecv(weft_comm *c, void *buf, size_t bytes, int peer, int tag, weft_req *req)
{
    return post_recv(c, buf, bytes, peer, tag, WEFT_MEM_HOST, NULL, 0, req);
}

/* Tags above the caller's are those of collectives: a message there would be taken for one of theirs. */
static weft_status check_tag(weft_comm *c, int tag, const char *verb)
{
    if (tag >= 0 && tag < WEFT_TAG_USER_MAX) return WEFT_OK;
    return refuse_post(c, weft_fail(WEFT_ERR_REFUSED, "rank %d: %s: tag %d; give 0 to %d", c->world->rank, verb, tag,
                                    WEFT_TAG_USER_MAX - 1));
}

weft_status weft_isend(weft_comm *c, const void *buf, size_t bytes, int peer, int tag, weft_mem_kind kind,
                       weft_queue *queue, weft_req *req)
{
    *req = (weft_req){0};
    WEFT_TRY(check_tag(c, tag, "send"));
    return post_send(c, buf, bytes, peer, tag, kind, queue, req);
}

weft_status weft_irecv(weft_comm *c, void *buf, size_t bytes, int peer, int tag, weft_mem_kind kind,
                       weft_queue *queue, weft_req *req)
{
    *req = (weft_req){0};
    WEFT_TRY(check_tag(c, tag, "receive"));
    return post_recv(c, buf, bytes, peer, tag, kind, queue, 0, req);
}

/* ---- reading in place ---------------------------------------------------------------------------------- */

static const weft_mem_provider *travelling(const weft_world *w)
{
    return w->tp->buffers ? w->tp->buffers(w->ep) : &weft_mem_host;
}

bool weft_world_peer_memory(const weft_world *w)
{
    return w->tp->caps & WEFT_CAP_PEER_MEMORY && !w->copy_only && travelling(w)->kind == WEFT_MEM_SHARED;
}

/* Without reading in place the limits of shared memory are not this job's concern. What a transport wants for other
 * reasons it keeps. */
const weft_mem_provider *weft_world_buffers(weft_world *w)
{
    const weft_mem_provider *provider = travelling(w);
    return w->copy_only && provider->kind == WEFT_MEM_SHARED ? &weft_mem_host : provider;
}

void weft_world_copy_only(weft_world *w) { w->copy_only = true; }

weft_status weft_irecv_view(weft_comm *c, void *buf, size_t bytes, int peer, int tag, weft_mem_kind kind,
                            weft_queue *queue, weft_req *req)
{
    int flags = weft_world_peer_memory(c->world) ? WEFT_REQ_MAY_VIEW : 0;
    *req = (weft_req){0};
    WEFT_TRY(check_tag(c, tag, "receive"));
    return post_recv(c, buf, bytes, peer, tag, kind, queue, flags, req);
}

const void *weft_received(const weft_req *req) { return req->view ? req->view : req->recv; }

void weft_release(weft_req *req)
{
    if (req->send || !(req->flags & WEFT_REQ_IN_PLACE)) return;
    weft_world *w = req->comm->world;
    req->flags = 0;
    req->view = NULL;
    if (w->failed == WEFT_OK) w->tp->release(w->ep, req);
}

/* ---- called by transports ----------------------------------------------------------------------------- */

void weft_req_copied(weft_req *req, size_t bytes) { req->comm->counters.bytes_copied += (int64_t)bytes; }

/* Which collective a message is part of; NULL: none. */
static const char *collective_of(int tag) { return tag >= WEFT_TAG_GATHER ? weft_tag_name(tag, NULL, 0) : NULL; }

static void trace_message(const weft_req *req, double end)
{
    const weft_comm *c = req->comm;
    weft_trace_add(&c->world->ctx->trace, req->send ? WEFT_TRACK_OUT : WEFT_TRACK_IN, c->name, collective_of(req->tag),
                   (weft_event){.begin = req->begun, .end = end, .bytes = (int64_t)req->bytes, .layer = -1, .step = -1,
                                .peer = (int32_t)req->priv[WEFT_REQ_PEER], .tag = req->tag, .group = c->id});
}

static void end_flight(const weft_req *req, double at)
{
    weft_comm *c = req->comm;
    weft_flight_end(&c->flight, at);
    weft_flight_end(&c->world->flight, at);
    if (weft_trace_on(&c->world->ctx->trace)) trace_message(req, at);
}

static double now_of(const weft_req *req) { return weft_now(&req->comm->world->ctx->clock); }

void weft_req_lent(weft_req *req)
{
    req->flags |= WEFT_REQ_IN_PLACE;
    req->done_bytes = req->bytes;
    end_flight(req, now_of(req));
}

void weft_req_finish(weft_req *req, int state) { weft_req_finish_at(req, state, now_of(req)); }

void weft_req_finish_at(weft_req *req, int state, double at)
{
    weft_comm *c = req->comm;
    if (!(req->send && req->flags & WEFT_REQ_IN_PLACE)) end_flight(req, at);
    req->state = state;
    if (state == WEFT_REQ_MISMATCH && !c->world->mismatched) c->world->mismatched = req;
    if (state != WEFT_REQ_DONE || !req->send) return;
    c->counters.messages++;
    /* A barrier's byte is no payload. */
    if (req->tag != WEFT_TAG_BARRIER) c->counters.bytes_logical += (int64_t)req->bytes;
}

/* ---- what went wrong ---------------------------------------------------------------------------------- */

const char *weft_tag_name(int tag, char *buf, size_t n)
{
    static const char *const names[] = {"all_gather", "reduction", "all_to_all", "broadcast", "barrier"};
    if (tag >= WEFT_TAG_STREAM) return "stream";
    if (tag >= WEFT_TAG_GATHER) return names[tag - WEFT_TAG_GATHER];
    snprintf(buf, n, "tag %d", tag);
    return buf;
}

const char *weft__place_text(char *text, size_t n, const char *op, int layer, int step)
{
    weft_line l = {text, n, 0};
    weft_line_add(&l, "%s", op);
    if (layer >= 0) weft_line_add(&l, ", layer %d", layer);
    if (step >= 0) weft_line_add(&l, ", step %d", step);
    return text;
}

const char *weft__message_of(const char *message, weft_status st)
{
    return message && *message ? message : weft_status_text(st);
}

/* Most messages of this room name their rank already; one that ranks agreed on names the rank that failed. */
const char *weft__with_rank(char *text, size_t n, int rank, const char *message)
{
    int other, length = 0;
    bool named = sscanf(message, "rank %d%n", &other, &length) == 1 &&
                 (message[length] == ':' || (other == rank && message[length] == ' '));
    if (named) snprintf(text, n, "%s", message);
    else snprintf(text, n, "rank %d: %s", rank, message);
    return text;
}

static weft_status mismatch(const weft_req *r)
{
    const weft_world *w = r->comm->world;
    int peer = (int)r->priv[WEFT_REQ_PEER];
    char buf[32];
    size_t other = (size_t)r->priv[WEFT_REQ_OTHER_BYTES];
    return weft_fail(WEFT_ERR_REFUSED,
                     "rank %d sends %zu bytes to rank %d, which posted a receive of %zu bytes (group %s, %s): "
                     "both ends must give the same size",
                     r->send ? w->rank : peer, r->send ? r->bytes : other, r->send ? peer : w->rank,
                     r->send ? other : r->bytes, r->comm->name, weft_tag_name(r->tag, buf, sizeof buf));
}

/* What is not done yet: "0 of 64 bytes done", or what keeps a send open whose bytes the peer has. */
static void open_text(const weft_req *r, char *text, size_t n)
{
    if (r->send && r->flags & WEFT_REQ_IN_PLACE)
        snprintf(text, n, "its %zu bytes, which rank %d reads in place, not released", r->bytes,
                 (int)r->priv[WEFT_REQ_PEER]);
    else snprintf(text, n, "%zu of %zu bytes done", r->done_bytes, r->bytes);
}

static weft_status timed_out(const weft_req *r)
{
    weft_world *w = r->comm->world;
    int peer = (int)r->priv[WEFT_REQ_PEER];
    char place[96], state[WEFT_MESSAGE / 2] = "", tag[32], open[96];
    if (w->tp->peer_state) w->tp->peer_state(w->ep, peer, state, sizeof state);
    open_text(r, open, sizeof open);
    return weft_fail(WEFT_ERR_TIMEOUT,
                     "rank %d in %s: %s rank %d (group %s, %s) passed its deadline of %.3g s with %s; %s", w->rank,
                     weft__place_text(place, sizeof place, w->op, w->layer, w->step),
                     r->send ? "send to" : "receive from", peer, r->comm->name, weft_tag_name(r->tag, tag, sizeof tag),
                     w->timeout, open, state);
}

/* ---- waiting ------------------------------------------------------------------------------------------ */

/* One look at the world. A failure elsewhere is read before progress and judged after it: a peer that
 * reports a wrong size puts the report into the mailbox first, so both ends get that error. */
static weft_status poll_once(weft_world *w, const weft_req *r, bool *moved)
{
    weft_status failure = w->tp->failure ? w->tp->failure(w->ep) : WEFT_OK;
    *moved = w->tp->progress && w->tp->progress(w->ep);
    *moved |= weft_streams_advance(w);
    if (w->mismatched) return weft_world_fail(w, mismatch(w->mismatched));
    WEFT_TRY(weft_world_good(w)); /* the transport itself may have refused what came */
    if (failure != WEFT_OK && !weft_req_complete(r)) return weft_world_fail(w, failure);
    return WEFT_OK;
}

weft_status weft_test(weft_req *req, bool *done)
{
    *done = weft_req_complete(req);
    if (*done) return WEFT_OK;
    weft_world *w = req->comm->world;
    bool moved;
    WEFT_TRY(weft_world_good(w));
    WEFT_TRY(poll_once(w, req, &moved));
    *done = weft_req_complete(req);
    return WEFT_OK;
}

/* The place alone does not tell the others that this rank is in a collective which they do not call. Told only when a
 * wait lasts: nobody looks before. */
static bool tell_collective(weft_world *w, const weft_req *r)
{
    char op[64];
    if (r->tag < WEFT_TAG_GATHER || !w->tp->place) return false;
    snprintf(op, sizeof op, "%s: %s of %s", w->op, weft_tag_name(r->tag, NULL, 0), r->comm->name);
    w->tp->place(w->ep, op, w->layer, w->step);
    return true;
}

/* Blocks until `r` is complete or the deadline has passed. */
static weft_status wait_one(weft_world *w, const weft_req *r, double begin, weft_deadline *deadline)
{
    enum { LASTS_MS = 20 };
    bool lasts = false, told = false;
    weft_status st = WEFT_OK;
    for (int round = 0; st == WEFT_OK && !weft_req_complete(r);) {
        bool moved;
        st = poll_once(w, r, &moved);
        if (st != WEFT_OK || weft_req_complete(r)) break;
        if (weft_deadline_look(&w->ctx->clock, deadline)) st = weft_world_fail(w, timed_out(r));
        else if (!lasts && deadline->looked > begin + LASTS_MS * 1e-3) lasts = true, told = tell_collective(w, r);
        round = moved ? 0 : round + 1;
        if (st == WEFT_OK && !moved && w->tp->idle) w->tp->idle(w->ep, round);
    }
    if (told) w->tp->place(w->ep, w->op, w->layer, w->step);
    return st;
}

/* A wait is named by this rank's place, and by whom it waited for first. */
static void trace_wait(weft_world *w, const weft_req *r, double begin, double end)
{
    weft_trace_add(&w->ctx->trace, WEFT_TRACK_WAIT, w->op, collective_of(r->tag),
                   (weft_event){.begin = begin, .end = end, .layer = w->layer, .step = w->step,
                                .peer = (int32_t)r->priv[WEFT_REQ_PEER]});
}

weft_status weft_wait_all(weft_req *reqs, int n)
{
    const weft_req *open = NULL;
    int first = 0;
    while (first < n && !reqs[first].comm) first++;
    if (first == n) return WEFT_OK;
    weft_comm *c = reqs[first].comm;
    weft_world *w = c->world;
    WEFT_TRY(pass_fault(w, "comm.wait"));
    weft_deadline deadline = weft_deadline_in(&w->ctx->clock, w->timeout);
    double begin = deadline.looked;
    weft_part outer = weft_part_begin(&w->ctx->parts, WEFT_PART_EXCHANGE);
    weft_status st = WEFT_OK;
    for (int i = first; i < n && st == WEFT_OK; i++) {
        if (weft_req_complete(&reqs[i])) continue;
        st = weft_world_good(w);
        if (st != WEFT_OK) break;
        if (w->tp->waiting) w->tp->waiting(w->ep, (int)reqs[i].priv[WEFT_REQ_PEER]);
        if (!open) open = &reqs[i];
        w->waits_on = &reqs[i];
        st = wait_one(w, &reqs[i], begin, &deadline);
    }
    w->waits_on = NULL;
    if (w->tp->waiting) w->tp->waiting(w->ep, -1);
    const double end = weft_now(&w->ctx->clock);
    c->counters.exposed_seconds += end - begin;
    if (open && end > begin && weft_trace_on(&w->ctx->trace)) trace_wait(w, open, begin, end);
    weft_part_end(&w->ctx->parts, outer);
    return st;
}

weft_status weft_wait(weft_req *req) { return weft_wait_all(req, 1); }

void weft_progress(weft_world *w)
{
    if (w->failed == WEFT_OK && w->tp->progress) w->tp->progress(w->ep);
    weft_streams_advance(w);
}
