/* mpi.c — the transport over MPI: worlds over a private copy of a communicator.
 *
 * mpi_move.c moves the messages; here is what surrounds them. Ranks of one node share a small window, laid out as the
 * header and areas of local ranks (local_map.h): what a rank is doing and the first failure are read there without
 * its help, which is when it matters. Ranks of other nodes tell their place with every control message and when they
 * are asked; a failure is sent to each of them.
 *
 * After a failure the job is to end (the program calls MPI_Abort): the private communicator is left as it is, since
 * freeing it takes all ranks. */
#include "comm/mpi_impl.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MPI_LIMIT ((size_t)1 << 30) /* bytes of one MPI message; a count is an int, and some libraries fail near 2 GiB */
#define WITHDRAW_SECONDS 0.25
#define ANSWER_SECONDS 0.2
#define MESSAGE_SECONDS 0.03

/* ---- what passes through the lock ------------------------------------------------------------------------- */

/* Reports to the callers' requests what has ended since; only the rank's own thread does this, so their counters and
 * flights need no lock. */
static bool report(weft_mpi_ep *e)
{
    mpi_transfer *list = e->finished.first, **end = e->finished.end;
    if (!list) return false;
    e->finished.first = NULL;
    e->finished.end = &e->finished.first;
    for (mpi_transfer *t = list; t; t = t->next) {
        weft_req *r = t->req;
        if (t->state == WEFT_REQ_MISMATCH) r->priv[WEFT_REQ_OTHER_BYTES] = t->moved;
        else r->done_bytes = t->moved;
        weft_req_finish_at(r, t->state, t->at);
        t->req = NULL;
    }
    *end = e->free_transfer;
    e->free_transfer = list;
    return true;
}

static weft_status mpi_send(void *ep, weft_req *req, weft_queue *queue)
{
    (void)queue; /* host memory: nothing to be ordered with */
    weft_mpi_ep *e = ep;
    weft__mpi_lock(e);
    report(e); /* before the new flight begins, so that the time in flight is right */
    weft_status st = weft__mpi_send(e, req);
    weft__mpi_unlock(e);
    return st;
}

static weft_status mpi_recv(void *ep, weft_req *req, weft_queue *queue)
{
    (void)queue;
    weft_mpi_ep *e = ep;
    weft__mpi_lock(e);
    report(e);
    weft_status st = weft__mpi_recv(e, req);
    weft__mpi_unlock(e);
    return st;
}

/* A helper that is moving bytes holds the lock for long; the caller computes meanwhile. */
static bool mpi_progress(void *ep)
{
    weft_mpi_ep *e = ep;
    if (e->threaded && pthread_mutex_trylock(&e->lock) != 0) return false;
    bool moved = weft__mpi_pass(e);
    moved |= report(e);
    weft__mpi_unlock(e);
    return moved;
}

/* Yielding costs little when nobody else wants the processor, and lets the peer run when it has to share it; only a
 * rank that has waited for long sleeps. */
static void mpi_idle(void *ep, int round)
{
    enum { SPINS = 100, YIELDS = 50, MANY_YIELDS = 2000, SHORT_NAPS = 200 };
    static const struct timespec nap = {.tv_nsec = 20000}, long_nap = {.tv_nsec = 500000};
    const weft_mpi_ep *e = ep;
    bool own = e->sharers <= e->cpus;
    int spins = own ? SPINS : 0, yields = own ? MANY_YIELDS : YIELDS;
    if (round <= spins) return;
    if (round <= spins + yields) sched_yield();
    else nanosleep(round <= spins + yields + SHORT_NAPS ? &nap : &long_nap, NULL);
}

/* ---- failures and places ------------------------------------------------------------------------------------ */

/* The record in shared memory is faster than a message. A peer that found a wrong size has told so by message before it
 * failed: that is waited for, so that both ends report the sizes. */
static weft_status mpi_failed(void *ep)
{
    weft_mpi_ep *e = ep;
    if (weft_local_failed(&e->map)) {
        double now = weft_now(&weft_clock_real);
        if (e->failed_at == 0) e->failed_at = now;
        if (now - e->failed_at >= MESSAGE_SECONDS) return weft_local_fail_with(&e->map, WEFT_ERR_PEER);
    }
    return e->broken ? weft_fail(WEFT_ERR_LIBRARY, "%s", e->trouble) : WEFT_OK;
}

static void mpi_abort(void *ep, weft_status st, const char *message)
{
    weft_mpi_ep *e = ep;
    weft_local_abort(&e->map, e->info.rank, st, message);
    weft__mpi_stop_helper(e);
    weft__mpi_withdraw(e, WITHDRAW_SECONDS);
}

static void mpi_place(void *ep, const char *op, int layer, int step)
{
    weft_mpi_ep *e = ep;
    weft_local_place(&e->map.areas[e->info.rank], op, layer, step);
    if (e->node_ranks == e->info.size) return;
    weft__mpi_lock(e);
    snprintf(e->op, sizeof e->op, "%s", op);
    e->layer = layer;
    e->step = step;
    weft__mpi_unlock(e);
}

static void mpi_waiting(void *ep, int peer)
{
    weft_mpi_ep *e = ep;
    atomic_store_explicit(&e->map.areas[e->info.rank].waits_for, peer + 1, memory_order_relaxed);
    if (e->node_ranks == e->info.size) return;
    weft__mpi_lock(e);
    e->waits_for = peer + 1;
    weft__mpi_unlock(e);
}

static bool ask_peer(weft_mpi_ep *e, int peer)
{
    static const struct timespec nap = {.tv_nsec = 1000000};
    weft_deadline deadline = weft_deadline_in(&weft_clock_real, ANSWER_SECONDS);
    weft__mpi_lock(e);
    weft__mpi_ask(e, peer);
    bool answered = false;
    while (!answered && !weft_deadline_passed(&weft_clock_real, deadline)) {
        weft__mpi_pass(e);
        answered = e->box[peer].answered;
        weft__mpi_unlock(e);
        nanosleep(&nap, NULL);
        weft__mpi_lock(e);
    }
    weft__mpi_unlock(e);
    return answered;
}

/* Ranks of this node are read in the window, others are asked, along the chain of waits. */
static void mpi_peer_state(void *ep, int peer, char *text, size_t n)
{
    enum { HOPS = 4 };
    weft_mpi_ep *e = ep;
    bool silent = false;
    for (int p = peer, hop = 0; p >= 0 && p < e->info.size && hop < HOPS && !silent; hop++) {
        local_area *a = &e->map.areas[p];
        if (atomic_load(&a->pid) == 0) silent = !ask_peer(e, p);
        p = atomic_load(&a->waits_for) - 1;
    }
    weft__mpi_lock(e);
    weft__mpi_show_moved(e);
    weft__mpi_unlock(e);
    weft_local_peer_text(&e->map, peer, text, n);
    size_t k = strlen(text);
    if (silent && k < n) snprintf(text + k, n - k, " (its last word; it computes, or cannot be reached)");
}

/* ---- the end -------------------------------------------------------------------------------------------------- */

static void mpi_close(void *ep, bool orderly)
{
    weft_mpi_ep *e = ep;
    weft__mpi_stop_helper(e);
    if (orderly) atomic_store(&e->map.areas[e->info.rank].state, WEFT_LOCAL_LEFT);
    bool quiet = weft__mpi_end_control(e);
    free(e->private_map);
    if (quiet && orderly) {
        if (e->mpi->abi->running()) e->mpi->abi->close(e->end);
    } else if (!quiet) {
        return; /* MPI may still write here: leaking is the safe end of a job that is ending */
    }
    weft__mpi_free(e);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->work);
    weft_arena_destroy(e->arena); /* holds e itself */
}

static void mpi_describe(void *ep, char *text, size_t n)
{
    const weft_mpi_ep *e = ep;
    snprintf(text, n, "%s, progress by %s", e->mpi->library, e->progress_text);
}

static int mpi_failed_rank(void *ep)
{
    const weft_mpi_ep *e = ep;
    return weft_local_failed(&e->map) ? e->map.header->failed_rank : -1;
}

static void mpi_cpus(void *ep, int *cpus, int *sharers)
{
    const weft_mpi_ep *e = ep;
    *cpus = e->cpus;
    *sharers = e->sharers;
}

static const weft_transport transport = {
    .name = "mpi",
    .desc = "ranks started by an MPI launcher, or of a caller's communicator",
    .mem_kinds = 1u << WEFT_MEM_HOST | 1u << WEFT_MEM_SHARED | 1u << WEFT_MEM_PINNED,
    .post_send = mpi_send,
    .post_recv = mpi_recv,
    .progress = mpi_progress,
    .idle = mpi_idle,
    .failure = mpi_failed,
    .abort = mpi_abort,
    .place = mpi_place,
    .waiting = mpi_waiting,
    .peer_state = mpi_peer_state,
    .close = mpi_close,
    .describe = mpi_describe,
    .cpus = mpi_cpus,
    .failed_rank = mpi_failed_rank,
};

/* ---- opening -------------------------------------------------------------------------------------------------- */

static weft_status failed_call(const weft_mpi *mpi, int code, const char *what)
{
    char text[200];
    mpi->abi->error_text(code, text, sizeof text);
    return weft_fail(WEFT_ERR_LIBRARY, "MPI, %s: %s", what, text);
}

/* Header, areas of all ranks, and the processors that each may use. */
static size_t areas_at(void) { return (sizeof(local_header) + 63) / 64 * 64; }
static size_t masks_at(int ranks) { return areas_at() + (size_t)ranks * sizeof(local_area); }

static cpu_set_t *mask_of(const weft_mpi_ep *e, int rank)
{
    return (cpu_set_t *)((char *)e->map.header + masks_at(e->info.size)) + rank;
}

static weft_status join_node(weft_mpi_ep *e)
{
    size_t bytes = masks_at(e->info.size) + (size_t)e->info.size * sizeof(cpu_set_t);
    void *base = NULL;
    int error = e->mpi->abi->share(e->end, bytes, &base, &e->node_ranks);
    if (error) return failed_call(e->mpi, error, "memory shared by the ranks of a node");
    e->map = (weft_local){.fd = -1, .bytes = bytes, .header = base, .areas = (local_area *)((char *)base + areas_at())};
    e->map.header->ranks = e->info.size; /* every rank writes the same */
    local_area *me = &e->map.areas[e->info.rank];
    if (sched_getaffinity(0, sizeof(cpu_set_t), mask_of(e, e->info.rank)) != 0) CPU_SET(0, mask_of(e, e->info.rank));
    weft_local_place(me, "start", -1, -1);
    atomic_store(&me->state, WEFT_LOCAL_JOINED);
    weft_local_present(me);
    return WEFT_OK;
}

/* After all have written their masks: whom this rank shares its processors with. */
static void count_sharers(weft_mpi_ep *e)
{
    const cpu_set_t *mine = mask_of(e, e->info.rank);
    e->cpus = CPU_COUNT(mine);
    for (int p = 0; p < e->info.size; p++) {
        cpu_set_t both;
        CPU_AND(&both, mine, mask_of(e, p));
        e->sharers += CPU_COUNT(&both) > 0; /* masks of other nodes are empty here */
    }
}

static weft_status endpoint_create(weft_mpi_ep **out, weft_ctx *ctx, const weft_mpi *mpi, const weft_mpi_options *o)
{
    weft_arena *arena;
    weft_mpi_ep *e;
    weft_mpi_end *end;
    weft_mpi_info info = {0};
    weft_status st;
    *out = NULL;
    int error = mpi->abi->open(&end, o->comm, o->ranks, &info);
    if (error) return failed_call(mpi, error, "copying the communicator");
    if (!end) return WEFT_OK;
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "MPI ranks", NULL));
    WEFT_TRY_OR(st, WEFT_NEW0(arena, 1, "endpoint", &e), free_arena);
    *e = (weft_mpi_ep){.mpi = mpi, .end = end, .info = info, .ctx = ctx, .arena = arena, .layer = -1, .step = -1,
                       .limit = o->max_message ? o->max_message : MPI_LIMIT, .progress_text = "callback"};
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    WEFT_TRY_OR(st, WEFT_NEW0(arena, info.size, "mailboxes", &e->box), free_arena);
    for (int p = 0; p < info.size; p++) {
        e->box[p].sends_end = &e->box[p].sends;
        e->box[p].posted_end = &e->box[p].posted;
    }
    WEFT_TRY_OR(st, join_node(e), free_arena);
    WEFT_TRY_OR(st, weft__mpi_begin(e), free_arena);
    *out = e;
    return WEFT_OK;
free_arena:
    weft_arena_destroy(arena); /* the end is left to MPI: closing it takes all ranks */
    return st;
}

static weft_status check_options(const weft_mpi *mpi, const weft_mpi_options *o)
{
    if (!mpi->abi->running())
        return weft_fail(WEFT_ERR_REFUSED, "%s is not initialised, or it is finalised: call MPI_Init_thread before, and use the MPI "
                         "library that the program was built with", mpi->library);
    if (o->comm && o->comm_bytes != mpi->abi->handle_bytes)
        return weft_fail(WEFT_ERR_REFUSED, "a communicator of %zu bytes, %s has %zu: the program was built with another MPI",
                         o->comm_bytes, mpi->library, mpi->abi->handle_bytes);
    if (o->max_message > MPI_LIMIT)
        return weft_fail(WEFT_ERR_REFUSED, "MPI messages of %zu bytes; at most %zu", o->max_message, MPI_LIMIT);
    return WEFT_OK;
}

weft_status weft_world_set_progress(weft_world *w, weft_mpi_progress progress)
{
    static const char *const names[] = {"auto", "callback", "helper thread"};
    if (w->tp != &transport)
        return weft_fail(WEFT_ERR_REFUSED, "who moves the messages can be chosen in an MPI world only; this one is %s", w->tp->name);
    weft_mpi_ep *e = w->ep;
    int64_t asked[3] = {progress, -(int64_t)progress, -(int64_t)e->info.threads};
    WEFT_TRY(weft_all_reduce(w->all, asked, 3, WEFT_I64, WEFT_MAX));
    bool threads = asked[2] < 0; /* on every rank */
    if (asked[0] != -asked[1]) return weft_fail(WEFT_ERR_REFUSED, "the ranks ask for different ways of MPI progress");
    if (progress == WEFT_MPI_THREAD && !threads)
        return weft_fail(WEFT_ERR_REFUSED, "progress by a helper thread needs MPI_THREAD_MULTIPLE, which %s did not grant; "
                         "choose callback", e->mpi->library);
    weft__mpi_stop_helper(e);
    snprintf(e->progress_text, sizeof e->progress_text, "%s", names[progress == WEFT_MPI_THREAD ? 2 : 1]);
    if (w->size == 1) return WEFT_OK;
    if (progress == WEFT_MPI_THREAD) return weft_agree(w->all, weft__mpi_start_helper(e));
    return progress == WEFT_MPI_AUTO && threads ? weft__mpi_choose(e, w) : WEFT_OK;
}

weft_status weft_world_mpi(weft_world **out, weft_ctx *ctx, const weft_mpi *mpi, const weft_mpi_options *o)
{
    weft_mpi_ep *e;
    weft_world *w;
    *out = NULL;
    WEFT_TRY(check_options(mpi, o));
    WEFT_TRY(endpoint_create(&e, ctx, mpi, o));
    if (!e) return WEFT_OK;
    WEFT_TRY(weft_world_open(&w, ctx, &transport, e, e->info.rank, e->info.size));
    weft_status st = weft_barrier(w->all); /* until all have written their masks */
    if (st < 0) {
        weft_world_close(w);
        return st;
    }
    count_sharers(e);
    *out = w;
    return WEFT_OK;
}
