/* mpi.c — the transport over MPI: what surrounds the messages (mpi_move.c) in a world that is open (mpi_open.c).
 *
 * Ranks of one node share a small window, laid out as the
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

#define WITHDRAW_SECONDS 0.25
#define ANSWER_SECONDS 0.2

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
    weft_status st = weft__mpi_send(e, req);
    weft__mpi_unlock(e);
    return st;
}

static weft_status mpi_recv(void *ep, weft_req *req, weft_queue *queue)
{
    (void)queue;
    weft_mpi_ep *e = ep;
    weft__mpi_lock(e);
    weft_status st = weft__mpi_recv(e, req);
    weft__mpi_unlock(e);
    return st;
}

static void mpi_settle(void *ep)
{
    weft_mpi_ep *e = ep;
    weft__mpi_lock(e);
    report(e);
    weft__mpi_unlock(e);
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

void weft__mpi_record(weft_mpi_ep *e, int rank, weft_status st, const char *message)
{
    int64_t never = 0;
    atomic_compare_exchange_strong(&e->node->failed_ms, &never, (int64_t)(1e3 * weft_now(&weft_clock_real)));
    weft_local_abort(&e->map, rank, st, message);
}

bool weft__mpi_failed_for(const weft_mpi_ep *e, double seconds)
{
    if (!weft_local_failed(&e->map)) return false;
    return weft_now(&weft_clock_real) - 1e-3 * (double)atomic_load(&e->node->failed_ms) >= seconds;
}

/* The record in shared memory is faster than a message. A peer that found a wrong size has told so by message before it
 * failed: that is waited for, so that both ends report the sizes. */
static weft_status mpi_failed(void *ep)
{
    weft_mpi_ep *e = ep;
    if (weft__mpi_failed_for(e, WEFT_MPI_MESSAGE_SECONDS)) return weft_local_fail_with(&e->map, WEFT_ERR_PEER);
    /* without the lock: a helper may hold it for long */
    bool broken = atomic_load_explicit(&e->broken, memory_order_acquire);
    return broken ? weft_fail(WEFT_ERR_LIBRARY, "%s", e->trouble) : WEFT_OK;
}

static void mpi_abort(void *ep, weft_status st, const char *message)
{
    weft_mpi_ep *e = ep;
    weft__mpi_record(e, e->info.rank, st, message);
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
    e->placed_at = weft_now(&weft_clock_real);
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

void weft__mpi_close(void *ep, bool orderly)
{
    weft_mpi_ep *e = ep;
    weft__mpi_stop_helper(e);
    if (orderly && e->map.areas) atomic_store(&e->map.areas[e->info.rank].state, WEFT_LOCAL_LEFT);
    weft__mpi_stand_up(e);
    bool quiet = weft__mpi_end_control(e);
    if (quiet && orderly) {
        if (e->mpi->abi->running()) e->mpi->abi->close(e->end);
    } else if (!quiet) {
        return; /* MPI may still write here: leaking is the safe end of a job that is ending */
    }
    weft__mpi_free(e);
    free(e->private_map);
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

const weft_transport weft__mpi_transport = {
    .name = "mpi",
    .desc = "ranks started by an MPI launcher, or of a caller's communicator",
    .mem_kinds = 1u << WEFT_MEM_HOST | 1u << WEFT_MEM_SHARED | 1u << WEFT_MEM_PINNED,
    .post_send = mpi_send,
    .post_recv = mpi_recv,
    .settle = mpi_settle,
    .progress = mpi_progress,
    .idle = mpi_idle,
    .failure = mpi_failed,
    .abort = mpi_abort,
    .place = mpi_place,
    .waiting = mpi_waiting,
    .peer_state = mpi_peer_state,
    .close = weft__mpi_close,
    .describe = mpi_describe,
    .cpus = mpi_cpus,
    .failed_rank = mpi_failed_rank,
};
