/* local_state.c — what ranks see of each other: the record of the first failure, places, chains of waits, doorbells.
 * Ranks over MPI use it too, in a window of shared memory of each node. */
#include "comm/local_map.h"
#include "comm/world.h"

#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- the first failure ------------------------------------------------------------------------------------ */

void weft_local_abort(weft_local *m, int rank, weft_status st, const char *message)
{
    local_header *h = m->header;
    int fine = WEFT_LOCAL_FINE;
    if (!atomic_compare_exchange_strong(&h->failed, &fine, WEFT_LOCAL_FAILING + rank)) return;
    h->failed_rank = rank;
    h->failed_status = st;
    snprintf(h->failed_message, sizeof h->failed_message, "%s", weft__message_of(message, st));
    atomic_store(&h->failed, WEFT_LOCAL_FAILED);
    for (int r = 0; r < h->ranks; r++) weft_local_ring_bell(&m->areas[r]);
}

void weft_local_reopen_record(weft_local *m, int rank)
{
    int writing = WEFT_LOCAL_FAILING + rank;
    atomic_compare_exchange_strong(&m->header->failed, &writing, WEFT_LOCAL_FINE);
}

bool weft_local_failed(const weft_local *m)
{
    return atomic_load_explicit(&m->header->failed, memory_order_acquire) == WEFT_LOCAL_FAILED;
}

weft_status weft_local_fail_with(const weft_local *m, weft_status st)
{
    char text[WEFT_LOCAL_MESSAGE + 16];
    return weft_fail(st, "%s", weft__with_rank(text, sizeof text, m->header->failed_rank, m->header->failed_message));
}

/* ---- places ------------------------------------------------------------------------------------------------- */

static int64_t milliseconds(void) { return (int64_t)(weft_now(&weft_clock_real) * 1e3); }

/* Readers never block the writer: the version is odd while words change, and every word is published with
 * release, so a reader that saw a new word also sees the odd version. */
void weft_local_place(local_area *a, const char *op, int layer, int step)
{
    uint64_t words[WEFT_LOCAL_OP_WORDS] = {0};
    size_t n = strlen(op);
    memcpy(words, op, n < sizeof words ? n : sizeof words - 1);
    uint32_t version = atomic_load_explicit(&a->version, memory_order_relaxed);
    atomic_store_explicit(&a->version, version + 1, memory_order_relaxed);
    for (int i = 0; i < WEFT_LOCAL_OP_WORDS; i++) atomic_store_explicit(&a->op[i], words[i], memory_order_release);
    atomic_store_explicit(&a->layer, layer, memory_order_release);
    atomic_store_explicit(&a->step, step, memory_order_release);
    atomic_store_explicit(&a->since, milliseconds(), memory_order_release);
    atomic_store_explicit(&a->version, version + 2, memory_order_release);
}

void weft_local_place_text(const local_area *a, char *text, size_t n)
{
    uint64_t words[WEFT_LOCAL_OP_WORDS];
    int layer = -1, step = -1;
    /* A rank that was killed while it wrote leaves an odd version for ever: take what is there then. */
    for (int tries = 0; tries < 100; tries++) {
        uint32_t before = atomic_load_explicit(&a->version, memory_order_acquire);
        for (int i = 0; i < WEFT_LOCAL_OP_WORDS; i++) words[i] = atomic_load_explicit(&a->op[i], memory_order_acquire);
        layer = atomic_load_explicit(&a->layer, memory_order_acquire);
        step = atomic_load_explicit(&a->step, memory_order_acquire);
        if (before % 2 == 0 && before == atomic_load_explicit(&a->version, memory_order_relaxed)) break;
    }
    char op[sizeof words + 1] = "";
    memcpy(op, words, sizeof words);
    weft__place_text(text, n, op[0] ? op : "start", op[0] ? layer : -1, op[0] ? step : -1);
}

void weft_local_present(local_area *a)
{
    atomic_store(&a->thread, (int)syscall(SYS_gettid)); /* first: who sees the process looks for the thread */
    atomic_store(&a->pid, (int)getpid());
}

/* Of the thread that is the rank: 'T' for a stopped one, 'Z' for a dead one, 'S' for one that is not running; 0 when it
 * has no entry. */
static char thread_state(const local_area *a)
{
    char path[64], line[256] = "";
    int pid = atomic_load(&a->pid), thread = atomic_load(&a->thread);
    if (pid <= 0) return 'R';
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, thread);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    const char *end = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    fclose(f);
    return end && end[1] == ' ' ? end[2] : 0;
}

static int waits_for(const local_area *a) { return atomic_load(&a->waits_for) - 1; }

static void one_peer_text(const weft_local *m, int rank, char *text, size_t n)
{
    const local_area *a = &m->areas[rank];
    int state = atomic_load(&a->state);
    char place[80], thread = thread_state(a);
    weft_local_place_text(a, place, sizeof place);
    if (state == WEFT_LOCAL_LEFT) snprintf(text, n, "rank %d has left", rank);
    else if (atomic_load(&a->gone) || thread == 0 || thread == 'Z') {
        if (state == WEFT_LOCAL_ABSENT) snprintf(text, n, "rank %d is gone: it never joined", rank);
        else snprintf(text, n, "rank %d is gone, last seen in %s", rank, place);
    } else if (state == WEFT_LOCAL_ABSENT) snprintf(text, n, "rank %d has not joined", rank);
    else {
        const char *how = thread == 'T' ? "stopped in" : thread == 'S' && waits_for(a) < 0 ? "asleep in" : "in";
        double seconds = (double)(milliseconds() - atomic_load(&a->since)) * 1e-3;
        weft_format(text, n, "rank %d is %s %s for %.1f s", rank, how, place, seconds > 0 ? seconds : 0.0);
    }
}

/* A rank that cannot go on by itself, whatever it noted to wait for before it was stopped or died. */
static bool stands_still(const local_area *a)
{
    char thread = thread_state(a);
    return atomic_load(&a->gone) || thread == 0 || thread == 'Z' || thread == 'T';
}

/* The rank that this one waits for, or -1: it waits for none, or does not stand there because of that. */
static int next_in_chain(const weft_local *m, int rank)
{
    return stands_still(&m->areas[rank]) ? -1 : waits_for(&m->areas[rank]);
}

static bool same_op(const local_area *a, const local_area *b)
{
    for (int i = 0; i < WEFT_LOCAL_OP_WORDS; i++)
        if (atomic_load(&a->op[i]) != atomic_load(&b->op[i])) return false;
    return true;
}

/* "rank 3", with its place when it does something else than the rank that was named first: it may have strayed. */
static void add_rank(const weft_local *m, int rank, int named, weft_line *l)
{
    char place[80];
    weft_local_place_text(&m->areas[rank], place, sizeof place);
    if (same_op(&m->areas[rank], &m->areas[named])) weft_line_add(l, "rank %d", rank);
    else weft_line_add(l, "rank %d (in %s)", rank, place);
}

/* chain[n]: more steps than there are ranks, so one came twice. What is told are the steps that were taken: to take
 * them again could lead elsewhere, and never back, because waits change meanwhile. */
static void add_circle(const weft_local *m, const int *chain, int n, weft_line *l)
{
    int first = 0, again = n;
    for (int j = n - 1; j > 0; j--)
        for (int i = 0; i < j; i++)
            if (chain[i] == chain[j]) first = i, again = j;
    weft_line_add(l, "; it waits in a circle of ranks (a dead-lock): ");
    for (int i = first; i < again; i++) {
        add_rank(m, chain[i], chain[0], l);
        weft_line_add(l, " -> ");
    }
    weft_line_add(l, "rank %d", chain[first]);
}

static void add_chain(const weft_local *m, const int *through, int n, int end, weft_line *l)
{
    char last[160];
    one_peer_text(m, end, last, sizeof last);
    weft_line_add(l, n ? "; it waits, through " : "; it waits: ");
    for (int i = 1; i <= n; i++) {
        add_rank(m, through[i], through[0], l);
        weft_line_add(l, i < n ? ", " : ": ");
    }
    weft_line_add(l, "%s", last);
}

/* Names the peer, and where the chain of waits that starts at it ends: the rank that holds up all others. */
void weft_local_peer_text(const weft_local *m, int rank, char *text, size_t n)
{
    int chain[WEFT_LOCAL_RANKS_MAX + 1] = {rank}, hops = 0, ranks = m->header->ranks;
    weft_line l = {text, n, 0};
    one_peer_text(m, rank, text, n);
    l.used = strlen(text);
    for (int next; hops < ranks && (next = next_in_chain(m, chain[hops])) >= 0;) chain[++hops] = next;
    if (hops == ranks) add_circle(m, chain, hops + 1, &l);
    else if (hops > 0) add_chain(m, chain, hops - 1, chain[hops], &l);
}

/* ---- doorbells ------------------------------------------------------------------------------------------------ */

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, (uint32_t *)word, op, value, timeout, NULL, 0);
}

/* Either the sleeper sees the new bell when it falls asleep, or this sees that it is asleep: both sides
 * write before they read, in sequentially consistent order. */
void weft_local_ring_bell(local_area *a)
{
    atomic_fetch_add(&a->bell, 1);
    if (atomic_load(&a->asleep)) futex(&a->bell, FUTEX_WAKE, INT32_MAX, NULL);
}

void weft_local_sleep(local_area *a, uint32_t seen)
{
    /* The limit bounds how late a deadline or a failure is seen if a rank died before it rang. */
    static const struct timespec limit = {.tv_nsec = 20000000};
    atomic_store(&a->asleep, 1);
    futex(&a->bell, FUTEX_WAIT, seen, &limit);
    atomic_store(&a->asleep, 0);
}
