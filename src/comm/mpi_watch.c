/* mpi_watch.c — a rank whose process ends is named by its neighbours on the node, before the launcher hears of it.
 *
 * A launcher that finds a process of its dead kills the others within a millisecond or so: nobody would say in what the
 * dead rank was. So each rank has a thread that holds words of the shared window by the kernel's list of robust
 * futexes. However the process ends, the kernel marks the words and wakes who sleeps on them, and only then closes the
 * process' sockets and lets its parent know. Each rank sleeps on a word of the next rank of its node and on one of the
 * rank after that: the kernel wakes one sleeper per word, and the first of the two that runs names the rank.
 *
 * A thread of our own holds the words, since the caller's threads come and go. Rejected: waiting for the process itself
 * (pidfd), which wakes after the launcher; a heartbeat, which is late by its period. */
#include "comm/mpi_impl.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ORDER_SIT, ORDER_WATCH, ORDER_LEAVE };

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define WAITV_32 2u /* FUTEX_32 of newer headers: a word of 32 bits, shared by processes */

struct waitv { uint64_t value, address; uint32_t flags, unused; }; /* the kernel's struct futex_waitv */

/* Words of other processes: not the private kind. */
static void sleep_on(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word) { syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }

/* ---- what a process left ----------------------------------------------------------------------------------- */

/* The kernel's record of how a process or thread ends: what wait() tells a parent. 0: not known, or it exited with code
 * 0. */
static int exit_code_in(const char *path)
{
    enum { AFTER_NAME = 50 }; /* fields from the state, which follows the name, to the code, which is the last */
    char line[1024] = "";
    int code = 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    const char *at = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    fclose(f);
    for (int i = 0; at && i < AFTER_NAME; i++) at = strchr(at + 1, ' ');
    return at && sscanf(at, "%d", &code) == 1 ? code : 0;
}

/* Of the process, which the launcher is about to wait for; older kernels have it only of the thread that held the seat,
 * which vanishes as soon as it has ended. */
static void how_it_ended(int pid, int thread, char *text, size_t n)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int code = exit_code_in(path);
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, thread);
    if (code == 0) code = exit_code_in(path);
    if (code == 0) snprintf(text, n, "has ended (killed, or it exited)");
    else if (code & 0x7f) {
        const char *name = sigdescr_np(code & 0x7f);
        snprintf(text, n, "was killed by signal %d (%s)", code & 0x7f, name ? name : "unknown");
    } else snprintf(text, n, "exited with code %d", code >> 8 & 0xff);
}

/* Whom it waited for, and who waits for it. */
static void peers_text(const weft_mpi_ep *e, int rank, char *text, size_t n)
{
    int peer = atomic_load(&e->map.areas[rank].waits_for) - 1, k = 0;
    char place[80];
    text[0] = 0;
    if (peer >= 0) k = snprintf(text, n, "; it waited for rank %d", peer);
    for (int p = 0; p < e->info.size; p++) {
        if (atomic_load(&e->map.areas[p].waits_for) - 1 != rank) continue;
        weft_local_place_text(&e->map.areas[p], place, sizeof place);
        snprintf(text + k, n - (size_t)k, "; rank %d waits for it in %s", p, place);
        return;
    }
}

static void name_lost(weft_mpi_ep *e, int rank, int thread)
{
    const local_area *a = &e->map.areas[rank];
    char how[96], place[80], peers[160], text[WEFT_LOCAL_MESSAGE];
    if (atomic_load(&a->state) != WEFT_LOCAL_JOINED || weft_local_failed(&e->map)) return;
    how_it_ended(atomic_load(&a->pid), thread, how, sizeof how);
    weft_local_place_text(a, place, sizeof place);
    peers_text(e, rank, peers, sizeof peers);
    snprintf(text, sizeof text, "rank %d %s while in %s%s", rank, how, place, peers);
    /* Printed first: there may be no time for more. */
    if (e->lost && atomic_exchange(&e->node->named, 1) == 0) e->lost(e->lost_ud, text);
    weft__mpi_record(e, rank, WEFT_ERR_PEER, text);
}

/* ---- the thread ------------------------------------------------------------------------------------------------ */

static _Atomic uint32_t *word_of(const weft_mpi_ep *e, int i) { return &e->seats[e->watch.next[i]].held[i].word; }

/* Makes the kernel wake a sleeper on the word when its holder ends. False when nobody holds it any more; *seen: what to
 * expect there while it is held. */
static bool lie_in_wait(_Atomic uint32_t *word, uint32_t *seen)
{
    for (;;) {
        uint32_t now = atomic_load(word);
        *seen = now | FUTEX_WAITERS;
        if (now == 0 || now & FUTEX_OWNER_DIED) return false;
        if (now & FUTEX_WAITERS || atomic_compare_exchange_strong(word, &now, *seen)) return true;
    }
}

/* On all words at once; kernels before 5.16 cannot, and some sandboxes do not let: then on the first. */
static void sleep_on_any(struct waitv *waits, int n)
{
    if (syscall(SYS_futex_waitv, waits, n, 0, NULL, 0) >= 0 || errno == EAGAIN || errno == EINTR) return;
    sleep_on((_Atomic uint32_t *)(uintptr_t)waits[0].address, (uint32_t)waits[0].value);
}

/* Until all that it watches have ended or left their seats in good order, or this rank is to leave. */
static void watch_neighbours(weft_mpi_ep *e)
{
    mpi_watch *w = &e->watch;
    uint32_t held[WEFT_MPI_WATCHERS] = {0};
    while (atomic_load(&w->order) == ORDER_WATCH) {
        struct waitv waits[WEFT_MPI_WATCHERS];
        int n = 0;
        for (int i = 0; i < w->n; i++) {
            uint32_t seen;
            if (w->over[i]) continue;
            w->over[i] = !lie_in_wait(word_of(e, i), &seen);
            if (w->over[i] && seen & FUTEX_OWNER_DIED) name_lost(e, w->next[i], (int)(held[i] & FUTEX_TID_MASK));
            if (w->over[i]) continue;
            held[i] = seen;
            waits[n++] = (struct waitv){.value = seen, .address = (uintptr_t)word_of(e, i), .flags = WAITV_32};
        }
        if (n == 0) return;
        sleep_on_any(waits, n);
    }
}

/* The list of this thread instead of the C library's: it locks no mutex that is in that. */
static void take_seat(mpi_watch *w, mpi_seat *seat)
{
    static_assert(sizeof(mpi_hold) == sizeof(struct robust_list), "words lie as far apart as entries");
    for (int i = 0; i < WEFT_MPI_WATCHERS; i++)
        w->entry[i].next = i + 1 < WEFT_MPI_WATCHERS ? &w->entry[i + 1] : &w->head.list;
    w->head = (struct robust_list_head){.list = {&w->entry[0]},
                                        .futex_offset = (char *)&seat->held[0].word - (char *)&w->entry[0]};
    /* its end will be the launcher's to report */
    if (syscall(SYS_set_robust_list, &w->head, sizeof w->head) != 0) return;
    for (int i = 0; i < WEFT_MPI_WATCHERS; i++) atomic_store(&seat->held[i].word, (uint32_t)syscall(SYS_gettid));
}

static void leave_seat(mpi_seat *seat)
{
    for (int i = 0; i < WEFT_MPI_WATCHERS; i++) {
        atomic_store(&seat->held[i].word, 0); /* in good order */
        wake(&seat->held[i].word);
    }
}

/* Asleep but for a moment that counts. Refused to most users; then it gets its turn like others. */
static void go_first(void)
{
    struct sched_param first = {.sched_priority = 1};
    (void)pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);
}

static void *watch_main(void *ud)
{
    weft_mpi_ep *e = ud;
    mpi_watch *w = &e->watch;
    mpi_seat *seat = &e->seats[e->info.rank];
    go_first();
    take_seat(w, seat);
    atomic_store(&w->seated, 1);
    wake(&w->seated);
    while (atomic_load(&w->order) == ORDER_SIT) sleep_on(&w->order, ORDER_SIT);
    watch_neighbours(e);
    while (atomic_load(&w->order) == ORDER_WATCH) sleep_on(&w->order, ORDER_WATCH);
    leave_seat(seat);
    atomic_store(&w->ended, 1);
    return NULL;
}

/* ---- the door ---------------------------------------------------------------------------------------------------- */

weft_status weft__mpi_sit(weft_mpi_ep *e)
{
    mpi_watch *w = &e->watch;
    sigset_t all, old;
    if (e->node_ranks == 1) return WEFT_OK; /* nobody to see it */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old); /* signals are the rank's own thread's */
    int error = pthread_create(&w->thread, NULL, watch_main, e);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) return weft_fail(WEFT_ERR_LIBRARY, "starting the thread that watches other ranks: %s", strerror(error));
    w->running = true;
    while (!atomic_load(&w->seated)) sleep_on(&w->seated, 0);
    return WEFT_OK;
}

void weft__mpi_watch_next(weft_mpi_ep *e)
{
    mpi_watch *w = &e->watch;
    int ranks = e->info.size;
    if (!w->running) return;
    for (int p = (e->info.rank + 1) % ranks; p != e->info.rank && w->n < WEFT_MPI_WATCHERS; p = (p + 1) % ranks)
        if (atomic_load(&e->map.areas[p].pid) != 0) w->next[w->n++] = p; /* of this node */
    atomic_store(&w->order, ORDER_WATCH);
    wake(&w->order);
}

void weft__mpi_stand_up(weft_mpi_ep *e)
{
    static const struct timespec nap = {.tv_nsec = 50000};
    mpi_watch *w = &e->watch;
    if (!w->running) return;
    atomic_store(&w->order, ORDER_LEAVE);
    /* It may be about to sleep on a word that nobody wakes again. */
    while (!atomic_load(&w->ended)) {
        wake(&w->order);
        for (int i = 0; i < w->n; i++) wake(word_of(e, i));
        nanosleep(&nap, NULL);
    }
    pthread_join(w->thread, NULL);
    w->running = false;
}
