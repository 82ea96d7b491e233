/* mpi_watch.c — a rank whose process ends is named by its neighbour on the node, before the launcher hears of it.
 *
 * A launcher that finds a process of its dead kills the others within a millisecond or so: nobody would say in what the
 * dead rank was. So each rank has a thread that holds a word of the shared window by the kernel's list of robust futexes.
 * However the process ends, the kernel marks the word and wakes who sleeps on it, and only then closes the process'
 * sockets and lets its parent know. Each rank sleeps on the word of the next rank of its node.
 *
 * A thread of our own holds the word, since the caller's threads come and go. Rejected: waiting for the process itself
 * (pidfd), which wakes after the launcher; a heartbeat, which is late by its period. */
#include "comm/mpi_impl.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ORDER_SIT, ORDER_WATCH, ORDER_LEAVE };

/* Words of other processes: not the private kind. */
static void sleep_on(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word) { syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }

/* ---- what a process left ----------------------------------------------------------------------------------- */

/* The kernel's record of how a process or thread ends: what wait() tells a parent. 0: not known, or it exited with code 0. */
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
    weft__mpi_record(e, rank, WEFT_ERR_PEER, text);
    if (e->lost) e->lost(e->lost_ud, text);
}

/* ---- the thread ------------------------------------------------------------------------------------------------ */

/* Until the neighbour has ended or left its seat in good order, or this rank is to leave. */
static void watch_neighbour(weft_mpi_ep *e)
{
    _Atomic uint32_t *word = &e->seats[e->watch.next].held;
    while (atomic_load(&e->watch.order) == ORDER_WATCH) {
        uint32_t seen = atomic_load(word);
        if (seen == 0) return;
        if (seen & FUTEX_OWNER_DIED) return;
        /* The kernel wakes only if it is told that somebody sleeps; it clears the thread's number. */
        if (!(seen & FUTEX_WAITERS) && !atomic_compare_exchange_strong(word, &seen, seen | FUTEX_WAITERS)) continue;
        sleep_on(word, seen | FUTEX_WAITERS);
        if (atomic_load(word) & FUTEX_OWNER_DIED) name_lost(e, e->watch.next, (int)(seen & FUTEX_TID_MASK));
    }
}

static void *watch_main(void *ud)
{
    weft_mpi_ep *e = ud;
    mpi_watch *w = &e->watch;
    _Atomic uint32_t *mine = &e->seats[e->info.rank].held;
    w->entry.next = &w->head.list;
    w->head = (struct robust_list_head){.list = {&w->entry}, .futex_offset = (char *)mine - (char *)&w->entry};
    /* Instead of the C library's list of this thread, which locks no mutex that is in it. */
    bool good = syscall(SYS_set_robust_list, &w->head, sizeof w->head) == 0;
    if (good) atomic_store(mine, (uint32_t)syscall(SYS_gettid));
    atomic_store(&w->seated, 1);
    wake(&w->seated);
    while (atomic_load(&w->order) == ORDER_SIT) sleep_on(&w->order, ORDER_SIT);
    watch_neighbour(e);
    while (atomic_load(&w->order) == ORDER_WATCH) sleep_on(&w->order, ORDER_WATCH);
    atomic_store(mine, 0); /* in good order */
    wake(mine);
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
    int ranks = e->info.size, next = (e->info.rank + 1) % ranks;
    if (!w->running) return;
    while (atomic_load(&e->map.areas[next].pid) == 0) next = (next + 1) % ranks; /* of another node */
    w->next = next;
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
        wake(&e->seats[w->next].held);
        nanosleep(&nap, NULL);
    }
    pthread_join(w->thread, NULL);
    w->running = false;
}
