/* mpi_progress.c — who moves messages while a rank computes: the kernels' callback, or a helper thread.
 *
 * MPI moves nothing by itself in common builds. The callback costs no processor, and is late by the length of a tile;
 * a helper is never late, and takes time from the kernels when there is no processor to spare. Which is better depends
 * on the machine, the binding and the MPI, so it is measured at the start: an exchange with both neighbours under
 * compute, both ways, on all ranks at once. */
#include "comm/mpi_impl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void weft__mpi_lock(weft_mpi_ep *e)
{
    if (e->threaded) pthread_mutex_lock(&e->lock);
}

void weft__mpi_unlock(weft_mpi_ep *e)
{
    if (!e->threaded) return;
    if (e->moves || e->stop) pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

/* ---- the helper --------------------------------------------------------------------------------------------- */

/* With nothing under way it sleeps until a message is posted, but looks now and then: others may ask it. */
static void rest(weft_mpi_ep *e, int round)
{
    enum { BUSY_ROUNDS = 200, BUSY_NS = 20000, IDLE_NS = 2000000, ANSWER_NS = 50000000 };
    long ns = !e->moves ? ANSWER_NS : e->open > 0 && round < BUSY_ROUNDS ? BUSY_NS : IDLE_NS;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until); /* e->work's clock */
    until.tv_nsec += ns;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&e->work, &e->lock, &until);
}

static void *helper_main(void *ud)
{
    weft_mpi_ep *e = ud;
    pthread_mutex_lock(&e->lock);
    for (int round = 0; !e->stop;) {
        round = weft__mpi_pass(e) ? 0 : round + 1;
        if (round > 0 || !e->moves) rest(e, round);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

weft_status weft__mpi_start_helper(weft_mpi_ep *e, bool moves)
{
    sigset_t all, old;
    sigfillset(&all);
    weft__mpi_stop_helper(e);
    e->stop = false;
    e->moves = moves;
    e->threaded = true;
    pthread_sigmask(SIG_BLOCK, &all, &old); /* signals are the rank's own thread's */
    int error = pthread_create(&e->helper, NULL, helper_main, e);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!error) return WEFT_OK;
    e->threaded = false;
    return weft_fail(WEFT_ERR_LIBRARY, "starting the helper thread of MPI: %s", strerror(error));
}

void weft__mpi_stop_helper(weft_mpi_ep *e)
{
    if (!e->threaded) return;
    weft__mpi_lock(e);
    e->stop = true;
    weft__mpi_unlock(e);
    pthread_join(e->helper, NULL);
    e->threaded = false;
}

weft_status weft__mpi_start_answering(weft_mpi_ep *e)
{
    weft__mpi_stop_helper(e);
    return e->node_ranks < e->info.size && e->info.threads ? weft__mpi_start_helper(e, false) : WEFT_OK;
}

/* ---- the choice ----------------------------------------------------------------------------------------------- */

enum { CHOICE_BYTES = 1 << 20, CHOICE_REPEATS = 5, CHOICE_TILES = 20 };
#define TILE_SECONDS 100e-6 /* of a kernel between two callbacks */

typedef struct trial { weft_comm *comm; char *out, *in; double seconds[CHOICE_REPEATS]; } trial;

/* Computes for about as long as the exchange takes, in tiles, as a kernel does. */
static void compute(weft_world *w, volatile double *x)
{
    for (int tile = 0; tile < CHOICE_TILES; tile++) {
        double until = weft_now(&w->ctx->clock) + TILE_SECONDS;
        while (weft_now(&w->ctx->clock) < until)
            for (int i = 0; i < 200; i++) *x = *x * 0.999 + 1;
        weft_progress(w);
    }
}

static weft_status exchange(weft_world *w, trial *t, int repeat)
{
    weft_req r[2];
    volatile double x = 0;
    int next = (w->rank + 1) % w->size, prev = (w->rank + w->size - 1) % w->size;
    WEFT_TRY(weft_barrier(t->comm));
    double begin = weft_now(&w->ctx->clock);
    WEFT_TRY(weft_irecv(t->comm, t->in, CHOICE_BYTES, prev, 0, WEFT_MEM_HOST, NULL, &r[0]));
    WEFT_TRY(weft_isend(t->comm, t->out, CHOICE_BYTES, next, 0, WEFT_MEM_HOST, NULL, &r[1]));
    compute(w, &x);
    WEFT_TRY(weft_wait_all(r, 2));
    t->seconds[repeat] = weft_now(&w->ctx->clock) - begin;
    return WEFT_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median over repeats of the slowest rank: equal on all ranks. */
static weft_status try_one(weft_world *w, trial *t, double *seconds)
{
    for (int i = 0; i < CHOICE_REPEATS; i++) WEFT_TRY(exchange(w, t, i));
    WEFT_TRY(weft_all_reduce(t->comm, t->seconds, CHOICE_REPEATS, WEFT_F64, WEFT_MAX));
    qsort(t->seconds, CHOICE_REPEATS, sizeof *t->seconds, by_value);
    *seconds = t->seconds[CHOICE_REPEATS / 2];
    return WEFT_OK;
}

static weft_status measure(weft_mpi_ep *e, weft_world *w, trial *t, double *callback, double *thread)
{
    WEFT_TRY(try_one(w, t, callback)); /* the first time opens connections */
    WEFT_TRY(try_one(w, t, callback));
    WEFT_TRY(weft_agree(t->comm, weft__mpi_start_helper(e, true)));
    return try_one(w, t, thread);
}

static weft_status try_both(weft_mpi_ep *e, weft_world *w, trial *t, double *callback, double *thread)
{
    t->out = calloc(1, CHOICE_BYTES);
    t->in = malloc(CHOICE_BYTES);
    weft_status st = t->out && t->in ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory to measure the progress of MPI");
    st = weft_agree(t->comm, st);
    if (st >= 0) st = measure(e, w, t, callback, thread);
    free(t->out);
    free(t->in);
    return st;
}

/* A group with counters of its own, which are dropped: the trial is no part of what the caller counts. Time in flight
 * is of the whole world, and is taken back unless the caller has messages under way. */
static weft_status open_trial(weft_world *w, trial *t)
{
    int *ranks = malloc((size_t)w->size * sizeof *ranks);
    weft_status st = ranks ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory to measure the progress of MPI");
    for (int r = 0; ranks && r < w->size; r++) ranks[r] = r;
    st = weft_agree(w->all, st);
    if (st >= 0) st = weft_comm_create(&t->comm, w, ranks, w->size, "MPI progress");
    free(ranks);
    return st;
}

static void close_trial(weft_world *w, trial *t, const weft_flight *before)
{
    t->comm->counters = (weft_counters){0};
    weft_comm_destroy(t->comm);
    if (before->open == 0 && w->flight.open == 0) w->flight.seconds = before->seconds;
}

weft_status weft__mpi_choose(weft_mpi_ep *e, weft_world *w)
{
    trial t = {0};
    double callback = 0, thread = 0;
    WEFT_TRY(open_trial(w, &t));
    weft_flight flight = w->flight;
    WEFT_TRY(try_both(e, w, &t, &callback, &thread));
    close_trial(w, &t, &flight);
    /* The helper takes a processor from somebody sooner or later: it has to win clearly. */
    bool helper = thread < 0.95 * callback;
    if (!helper) WEFT_TRY(weft_agree(w->all, weft__mpi_start_answering(e)));
    weft_format(e->progress_text, sizeof e->progress_text,
                "%s (exchange under compute: callback %.2f ms, helper %.2f ms)", helper ? "helper thread" : "callback",
                1e3 * callback, 1e3 * thread);
    return WEFT_OK;
}
