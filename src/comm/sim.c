/* sim.c — the simulated transport: when a transfer begins and ends in virtual time.
 *
 * A transfer begins when both its ends are posted: nothing is buffered, so a plan that passes here is free of
 * dead-lock everywhere. Every rank has a port out and a port in, inside its node and between nodes. A transfer of n
 * bytes
 *   leaves     when the sender's port has sent all that began before:  begin = max(matched, out_free),
 *              and keeps it for n / port seconds;
 *   arrives    latency later, and enters when the receiver's port has taken all that arrived before:
 *              enter = max(begin + latency, in_free), which it keeps for n / port seconds;
 *   ends       at enter + n / min(link, port), for both ranks.
 * A slow link of two ranks (model.slow) serves one transfer after the other, too: it is what the sender's port waits
 * for. Where all links of a rank are slow, its ports are.
 * Ports serve one transfer after the other. Rejected: sharing a port's rate among its transfers, which is nearer to
 * some networks, but every begin and end would change the end of all others of both ports: P^3 steps for a
 * gather among P ranks. A port is busy for the same time either way.
 *
 * Data moves without the ranks (as by a network card) once it began; with model.needs_poll it begins only when both
 * ranks have looked at the transport after the match. */
#include "comm/sim_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRANSFER_CHUNK = 1024 };

/* ---- failing ------------------------------------------------------------------------------------------ */

void weft_sim_wake(weft_sim_rank *r, double time)
{
    if (!r->blocked) return;
    r->blocked = false;
    if (time > r->time) r->time = time;
    /* The heap held this rank before: there is room, or the failure to grow was reported then. */
    if (!weft_sim_heap_push(&r->sim->heap, (weft_sim_entry){r->time, WEFT_SIM_RANK | (uint64_t)r->rank, r}))
        r->blocked = true;
}

static bool concerns(const weft_sim_transfer *t, int rank)
{
    return rank < 0 || t->from->rank == rank || t->to->rank == rank;
}

static void free_transfer(weft_sim *s, weft_sim_transfer *t)
{
    t->next = s->free_transfers;
    s->free_transfers = t;
}

static void drop_held(weft_sim *s, weft_sim_transfer **link, int rank)
{
    while (*link) {
        weft_sim_transfer *t = *link;
        if (concerns(t, rank)) *link = t->next, free_transfer(s, t);
        else link = &t->next;
    }
}

/* Forgets every transfer of a rank, of all ranks when it is -1. No request is touched: their memory may be gone. */
static void drop_transfers(weft_sim *s, int rank)
{
    weft_sim_table_drop(&s->waiting, rank);
    for (int i = 0; i < s->ranks; i++) drop_held(s, &s->rank[i].held, rank);
    size_t all = s->heap.n;
    s->heap.n = 0;
    for (size_t i = 0; i < all; i++) {
        weft_sim_entry e = s->heap.entry[i]; /* fewer go in than have been read: no entry is overwritten before */
        if (!(e.order & WEFT_SIM_RANK) && concerns(e.what, rank)) free_transfer(s, e.what);
        else weft_sim_heap_push(&s->heap, e);
    }
}

void weft_sim_fail(weft_sim *s, weft_status st, const char *message)
{
    if (s->failed != WEFT_OK) return;
    s->failed = st;
    snprintf(s->message, sizeof s->message, "%s", weft__message_of(message, st));
    drop_transfers(s, -1);
    for (int i = 0; i < s->ranks; i++) weft_sim_wake(&s->rank[i], s->rank[i].time);
}

static weft_status no_memory(weft_sim *s)
{
    weft_status st = weft_fail(WEFT_ERR_MEMORY, "simulated ranks: no memory for a transfer");
    weft_sim_fail(s, st, weft_last_error());
    return st;
}

/* ---- transfers ---------------------------------------------------------------------------------------- */

static weft_sim_transfer *new_transfer(weft_sim *s)
{
    if (!s->free_transfers) {
        weft_sim_transfer **list = realloc(s->chunk, (s->chunks + 1) * sizeof *list);
        if (!list) return NULL;
        s->chunk = list;
        weft_sim_transfer *more = malloc(TRANSFER_CHUNK * sizeof *more);
        if (!more) return NULL;
        s->chunk[s->chunks++] = more;
        for (int i = 0; i < TRANSFER_CHUNK; i++) {
            more[i].next = s->free_transfers;
            s->free_transfers = &more[i];
        }
    }
    weft_sim_transfer *t = s->free_transfers;
    s->free_transfers = t->next;
    return t;
}

void weft_sim_free_transfers(weft_sim *s)
{
    for (size_t i = 0; i < s->chunks; i++) free(s->chunk[i]);
    free(s->chunk);
}

static weft_sim_rank *rank_of(const weft_req *r) { return r->comm->world->ep; }

typedef struct path { int reach; double latency, link, port; } path;

static path path_of(const weft_sim_model *m, int from, int to)
{
    if (m->node_ranks == 0 || from / m->node_ranks == to / m->node_ranks)
        return (path){WEFT_SIM_NEAR, m->node_latency_seconds, m->node_bytes_per_second, m->node_bytes_per_second};
    return (path){WEFT_SIM_FAR, m->latency_seconds, m->link_bytes_per_second, m->port_bytes_per_second};
}

static double later(double a, double b) { return a > b ? a : b; }
static double lesser(double a, double b) { return a < b ? a : b; }

static weft_sim_lane *lane_of(weft_sim *s, int from, int to)
{
    for (int i = 0; i < s->lanes; i++) {
        weft_sim_lane *l = &s->lane[i];
        if ((l->a == from && l->b == to) || (l->a == to && l->b == from)) return l;
    }
    return NULL;
}

/* When the link is free for a transfer of so many bytes, which keeps it for as long as they take. */
static double pass_lane(weft_sim_lane *l, int from, double now, double seconds)
{
    double *free = &l->free[from == l->b], begin = later(now, *free);
    *free = begin + seconds;
    return begin;
}

static weft_status add_event(weft_sim *s, double time, weft_sim_transfer *t)
{
    return weft_sim_heap_push(&s->heap, (weft_sim_entry){time, s->events++, t}) ? WEFT_OK : no_memory(s);
}

static weft_status begin(weft_sim *s, weft_sim_transfer *t, double now)
{
    weft_sim_rank *from = t->from;
    path p = path_of(&s->model, from->rank, t->to->rank);
    weft_sim_lane *lane = lane_of(s, from->rank, t->to->rank);
    const double bytes = (double)t->send->bytes;
    t->begin = later(now, from->out_free[p.reach]);
    if (lane) t->begin = pass_lane(lane, from->rank, t->begin, bytes * lane->factor / lesser(p.link, p.port));
    from->out_free[p.reach] = t->begin + bytes * from->slow / p.port;
    return add_event(s, t->begin + p.latency, t);
}

static void arrive(weft_sim *s, weft_sim_transfer *t, double now)
{
    weft_sim_rank *to = t->to;
    path p = path_of(&s->model, t->from->rank, to->rank);
    const weft_sim_lane *lane = lane_of(s, t->from->rank, to->rank);
    double enter = later(now, to->in_free[p.reach]), bytes = (double)t->send->bytes;
    const double slowest = later(later(t->from->slow, to->slow), lane ? lane->factor : 1);
    to->in_free[p.reach] = enter + bytes * to->slow / p.port;
    t->arrived = true;
    add_event(s, enter + bytes * slowest / lesser(p.link, p.port), t);
}

/* Small messages that the program's decisions depend on lie in host memory and are copied; buffers without memory
 * have no content. */
static void deliver(weft_sim *s, weft_sim_transfer *t)
{
    weft_req *send = t->send, *recv = t->recv;
    if (!weft_sim_is_address(s, send->send) && !weft_sim_is_address(s, recv->recv))
        memcpy(recv->recv, send->send, send->bytes);
    send->begun = recv->begun = t->begin;
    send->done_bytes = send->bytes;
    recv->done_bytes = recv->bytes;
}

static void finish(weft_req *req, int state, double time)
{
    weft_sim_rank *r = rank_of(req);
    weft_req_finish(req, state);
    r->moved = true;
    weft_sim_wake(r, time);
}

void weft_sim_event(weft_sim *s, weft_sim_entry e)
{
    weft_sim_transfer *t = e.what;
    if (!t->arrived) {
        arrive(s, t, e.time);
        return;
    }
    s->event_time = &e.time;
    deliver(s, t);
    finish(t->send, WEFT_REQ_DONE, e.time);
    finish(t->recv, WEFT_REQ_DONE, e.time);
    s->event_time = NULL;
    free_transfer(s, t);
}

/* ---- taking turns ------------------------------------------------------------------------------------- */

/* Returns when everything that comes before this rank's time has happened. */
static void catch_up(weft_sim_rank *r)
{
    weft_sim *s = r->sim;
    weft_sim_entry me = {r->time, WEFT_SIM_RANK | (uint64_t)r->rank, r};
    while (s->heap.n > 0 && weft_sim_before(&s->heap.entry[0], &me)) {
        if (!(s->heap.entry[0].order & WEFT_SIM_RANK)) {
            weft_sim_event(s, weft_sim_heap_pop(&s->heap));
            continue;
        }
        if (!weft_sim_heap_push(&s->heap, me)) {
            no_memory(s);
            return;
        }
        weft_fiber_leave(&r->fiber);
        return;
    }
}

/* With needs_poll: what was matched while this rank was busy begins now, oldest first. */
static weft_status look(weft_sim_rank *r)
{
    weft_sim_transfer *list = r->held, *oldest = NULL;
    r->held = NULL;
    for (weft_sim_transfer *next; list; list = next) {
        next = list->next;
        list->next = oldest;
        oldest = list;
    }
    for (weft_sim_transfer *next; oldest; oldest = next) {
        next = oldest->next;
        WEFT_TRY(begin(r->sim, oldest, r->time));
    }
    return WEFT_OK;
}

/* ---- the transport ------------------------------------------------------------------------------------ */

static weft_status refuse_sizes(weft_sim_rank *me, weft_req *req, weft_req *other)
{
    req->priv[WEFT_REQ_OTHER_BYTES] = other->bytes;
    other->priv[WEFT_REQ_OTHER_BYTES] = req->bytes;
    finish(req, WEFT_REQ_MISMATCH, me->time);
    finish(other, WEFT_REQ_MISMATCH, me->time);
    return WEFT_OK;
}

static weft_status post(void *ep, weft_req *req, weft_queue *queue)
{
    (void)queue; /* a virtual device would be ordered with by its own clock */
    weft_sim_rank *me = ep;
    weft_sim *s = me->sim;
    me->time += s->model.post_seconds;
    catch_up(me);
    /* After a failure a rank may leave, and its requests with it: none is kept any more. The wait for this one ends at
     * once. */
    if (s->failed != WEFT_OK) return WEFT_OK;
    WEFT_TRY(look(me));
    weft_req *other = weft_sim_take(&s->waiting, req);
    if (!other) return weft_sim_put(&s->waiting, req) ? WEFT_OK : no_memory(s);
    if (other->bytes != req->bytes) return refuse_sizes(me, req, other);
    weft_sim_transfer *t = new_transfer(s);
    if (!t) return no_memory(s);
    weft_sim_rank *peer = rank_of(other);
    *t = req->send ? (weft_sim_transfer){.send = req, .recv = other, .from = me, .to = peer}
                   : (weft_sim_transfer){.send = other, .recv = req, .from = peer, .to = me};
    if (!s->model.needs_poll || peer->blocked) return begin(s, t, me->time);
    t->next = peer->held;
    peer->held = t;
    return WEFT_OK;
}

static bool progress(void *ep)
{
    weft_sim_rank *me = ep;
    catch_up(me);
    if (look(me) != WEFT_OK) return false; /* the job has failed; the wait finds out */
    bool moved = me->moved;
    me->moved = false;
    return moved;
}

/* Until a request of this rank is completed, or the job has failed. Rounds do not matter: nothing that this rank could
 * do would change anything before. */
static void idle(void *ep, int round)
{
    (void)round;
    weft_sim_rank *me = ep;
    if (me->sim->failed != WEFT_OK) return;
    me->blocked = true;
    weft_fiber_leave(&me->fiber);
}

static weft_status failure(void *ep)
{
    const weft_sim *s = ((const weft_sim_rank *)ep)->sim;
    if (s->failed == WEFT_OK) return WEFT_OK;
    return weft_fail(s->failed == WEFT_ERR_TIMEOUT ? WEFT_ERR_TIMEOUT : WEFT_ERR_PEER, "%s", s->message);
}

static void abort_job(void *ep, weft_status st, const char *message)
{
    weft_sim_rank *me = ep;
    char text[WEFT_SIM_ERROR];
    if (me->sim->failed != WEFT_OK) return;
    drop_transfers(me->sim, me->rank); /* its function may have returned, and freed what it had posted */
    catch_up(me); /* a failure too happens at its time: what others did before is done */
    weft_sim_fail(me->sim, st, weft__with_rank(text, sizeof text, me->rank, message));
}

static void peer_state(void *ep, int peer, char *text, size_t n)
{
    const weft_sim_rank *r = &((const weft_sim_rank *)ep)->sim->rank[peer];
    char place[96];
    if (r->left || !r->world) snprintf(text, n, "rank %d has left", peer);
    else snprintf(text, n, "rank %d is in %s", peer,
                  weft__place_text(place, sizeof place, r->world->op, r->world->layer, r->world->step));
}

static const weft_mem_provider *buffers(void *ep)
{
    const weft_sim_rank *me = ep;
    return me->sim->model.no_memory ? &me->buffers : &weft_mem_host;
}

const weft_transport weft_sim_transport = {
    .name = "sim",
    .desc = "ranks of one thread over a virtual clock",
    .mem_kinds = 1u << WEFT_MEM_HOST | 1u << WEFT_MEM_SHARED | 1u << WEFT_MEM_PINNED | 1u << WEFT_MEM_DEVICE,
    .post_send = post,
    .post_recv = post,
    .progress = progress,
    .idle = idle,
    .failure = failure,
    .abort = abort_job,
    .peer_state = peer_state,
    .buffers = buffers,
};
