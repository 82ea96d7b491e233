/* local_map.c — making and joining the shared mapping, the record of the first failure, places, doorbells. */
#include "comm/local_map.h"
#include "comm/world.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOCAL_MAGIC 0x33306c6f63746677u /* "wftcol03" in memory */

enum { RING_MIN = 4 << 10, RING_MAX = 256 << 10 };
/* All rings together: fits a laptop when every pair talks. */
#define RINGS_TOTAL ((size_t)224 << 20)
/* All slices together, in addresses: memory is only behind what is taken. The thread sanitizer has 1.5 TiB. */
#define SLICES_TOTAL ((size_t)1 << 40)
#define SLICE_MIN ((size_t)16 << 20)
#define SLICE_ALIGN ((size_t)2 << 20)

int weft_local_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* more than 1,024 processors do not fit into a cpu_set_t */
    return n > 0 ? (int)n : 1;
}

/* ---- the mapping ---------------------------------------------------------------------------------------- */

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* A power of two, so that positions wrap by a mask. A ring of 256 KiB stays in the second-level cache. */
static size_t ring_bytes_for(int ranks)
{
    size_t pairs = (size_t)ranks * (size_t)ranks, ring = RING_MAX;
    while (ring > RING_MIN && ring * pairs > RINGS_TOTAL) ring /= 2;
    return ring;
}

static size_t areas_at(void) { return round_up(sizeof(local_header), 4096); }
static size_t pairs_at(int ranks) { return round_up(areas_at() + (size_t)ranks * sizeof(local_area), 4096); }
static size_t rings_at(int ranks)
{
    return round_up(pairs_at(ranks) + (size_t)ranks * (size_t)ranks * sizeof(local_pair), 4096);
}
static size_t total_for(int ranks) { return rings_at(ranks) + (size_t)ranks * (size_t)ranks * ring_bytes_for(ranks); }

static weft_status map_fd(weft_local **out, int fd, size_t bytes)
{
    weft_local *m = calloc(1, sizeof *m);
    if (!m) return weft_fail(WEFT_ERR_MEMORY, "local ranks: no memory for the mapping's handle");
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        free(m);
        return weft_fail(WEFT_ERR_MEMORY, "local ranks: mapping %zu bytes of shared memory: %s", bytes, strerror(errno));
    }
    *m = (weft_local){.fd = fd, .bytes = bytes, .header = base};
    *out = m;
    return WEFT_OK;
}

/* ---- the slices ------------------------------------------------------------------------------------------- */

static size_t heap_at(int ranks) { return round_up(total_for(ranks), SLICE_ALIGN); }

static size_t limit_of(int resource)
{
    struct rlimit r;
    return getrlimit((__rlimit_resource_t)resource, &r) == 0 && r.rlim_cur != RLIM_INFINITY ? (size_t)r.rlim_cur : SIZE_MAX;
}

/* As much as the machine has, for each rank, within what addresses and file sizes this process may use; 0 when
 * that is too little to be of use. Of a limit on addresses a quarter: the rest is for everything else. */
static size_t slice_bytes_for(int ranks)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t memory = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : (size_t)1 << 34;
    size_t file = limit_of(RLIMIT_FSIZE), before = heap_at(ranks);
    size_t all = weft_min_size(SLICES_TOTAL, limit_of(RLIMIT_AS) / 4);
    all = weft_min_size(all, file > before ? file - before : 0);
    size_t slice = weft_min_size(memory, all / (size_t)ranks) / SLICE_ALIGN * SLICE_ALIGN;
    return slice >= SLICE_MIN ? slice : 0;
}

static bool map_slices(weft_local *m, int ranks, size_t slice)
{
    if (slice == 0) return true;
    m->heap_at = heap_at(ranks);
    void *p = mmap(NULL, slice * (size_t)ranks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, m->fd, (off_t)m->heap_at);
    if (p == MAP_FAILED) return false;
    madvise(p, slice * (size_t)ranks, MADV_DONTDUMP); /* addresses by the terabyte are no use in a core file */
    m->heap = p;
    return true;
}

/* The creator settles for what it can map; the others are copies of its program under the same limits. */
static weft_status create_slices(weft_local *m, int ranks)
{
    size_t slice = slice_bytes_for(ranks);
    while (slice > 0 && (ftruncate(m->fd, (off_t)(heap_at(ranks) + slice * (size_t)ranks)) != 0 || !map_slices(m, ranks, slice)))
        slice = slice / 2 >= SLICE_MIN ? slice / 2 / SLICE_ALIGN * SLICE_ALIGN : 0;
    if (slice == 0 && ftruncate(m->fd, (off_t)m->bytes) != 0)
        return weft_fail(WEFT_ERR_MEMORY, "local ranks: %zu bytes of shared memory: %s", m->bytes, strerror(errno));
    m->header->slice_bytes = slice;
    return WEFT_OK;
}

static void unmap(weft_local *m)
{
    if (m->heap) munmap(m->heap, m->header->slice_bytes * (size_t)m->header->ranks);
    munmap(m->header, m->bytes);
    free(m);
}

/* ---- making and joining ----------------------------------------------------------------------------------- */

static void find_parts(weft_local *m)
{
    char *base = (char *)m->header;
    m->areas = (local_area *)(base + areas_at());
    m->pairs = (local_pair *)(base + pairs_at(m->header->ranks));
    m->rings = base + rings_at(m->header->ranks);
}

weft_status weft_local_create(weft_local **out, int ranks)
{
    if (ranks < 1 || ranks > WEFT_LOCAL_RANKS_MAX)
        return weft_fail(WEFT_ERR_REFUSED, "local ranks: %d asked for; one machine takes 1 to %d", ranks, WEFT_LOCAL_RANKS_MAX);
    size_t bytes = total_for(ranks);
    if (bytes > limit_of(RLIMIT_FSIZE)) /* beyond it ftruncate ends the process by a signal */
        return weft_fail(WEFT_ERR_MEMORY, "local ranks: %d ranks share %zu bytes, files may have %zu here; raise the limit "
                                          "(ulimit -f)", ranks, bytes, limit_of(RLIMIT_FSIZE));
    int fd = memfd_create("weft-local", MFD_CLOEXEC);
    if (fd < 0) return weft_fail(WEFT_ERR_LIBRARY, "local ranks: memfd_create: %s", strerror(errno));
    weft_status st;
    if (ftruncate(fd, (off_t)bytes) != 0) {
        st = weft_fail(WEFT_ERR_MEMORY, "local ranks: %zu bytes of shared memory: %s", bytes, strerror(errno));
        goto close_fd;
    }
    weft_local *m;
    WEFT_TRY_OR(st, map_fd(&m, fd, bytes), close_fd);
    m->header->ranks = ranks;
    m->header->timeout = WEFT_DEFAULT_TIMEOUT;
    m->header->cores = weft_local_cores();
    m->header->ring_bytes = ring_bytes_for(ranks);
    m->header->total_bytes = bytes;
    m->header->magic = LOCAL_MAGIC;
    find_parts(m);
    WEFT_TRY_OR(st, create_slices(m, ranks), unmap_all);
    *out = m;
    return WEFT_OK;
unmap_all:
    unmap(m);
close_fd:
    close(fd);
    return st;
}

static bool header_fits(const local_header *h, size_t mapped, size_t file)
{
    if (h->magic != LOCAL_MAGIC || h->ranks < 1 || h->ranks > WEFT_LOCAL_RANKS_MAX) return false;
    size_t slices = h->slice_bytes * (size_t)h->ranks;
    return h->total_bytes == total_for(h->ranks) && h->total_bytes <= mapped && h->slice_bytes <= SLICES_TOTAL &&
           file == (slices ? heap_at(h->ranks) + slices : h->total_bytes);
}

/* How much to map before the header is known: it says. */
static size_t bytes_to_map(int fd, size_t file)
{
    local_header h;
    return pread(fd, &h, sizeof h, 0) == (ssize_t)sizeof h && h.total_bytes <= file ? (size_t)h.total_bytes : 0;
}

weft_status weft_local_attach(weft_local **out, int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || info.st_size < (off_t)sizeof(local_header))
        return weft_fail(WEFT_ERR_REFUSED, "local ranks: file descriptor %d is not a mapping of weft ranks", fd);
    size_t bytes = bytes_to_map(fd, (size_t)info.st_size);
    weft_local *m = NULL;
    if (bytes >= sizeof(local_header)) WEFT_TRY(map_fd(&m, fd, bytes));
    if (!m || !header_fits(m->header, bytes, (size_t)info.st_size)) {
        if (m) unmap(m);
        return weft_fail(WEFT_ERR_REFUSED, "local ranks: file descriptor %d is a mapping of another version of weft", fd);
    }
    size_t slice = m->header->slice_bytes;
    if (!map_slices(m, m->header->ranks, slice)) {
        weft_status st = weft_fail(WEFT_ERR_MEMORY, "local ranks: %zu bytes of addresses for the memory of %d ranks: %s; raise "
                                   "the limit on addresses (ulimit -v)", slice, m->header->ranks, strerror(errno));
        unmap(m);
        return st;
    }
    find_parts(m);
    *out = m;
    return WEFT_OK;
}

int weft_local_fd(const weft_local *local) { return local->fd; }
int weft_local_ranks(const weft_local *local) { return local->header->ranks; }
int weft_local_threads(const weft_local *local) { return local->header->threads; }

void weft_local_destroy(weft_local *local)
{
    if (!local) return;
    close(local->fd);
    unmap(local);
}

/* ---- the first failure ------------------------------------------------------------------------------------ */

void weft_local_abort(weft_local *m, int rank, weft_status st, const char *message)
{
    local_header *h = m->header;
    int fine = WEFT_LOCAL_FINE;
    if (!atomic_compare_exchange_strong(&h->failed, &fine, WEFT_LOCAL_FAILING + rank)) return;
    h->failed_rank = rank;
    h->failed_status = st;
    snprintf(h->failed_message, sizeof h->failed_message, "%s", message);
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
static int next_in_chain(const weft_local *m, int rank) { return stands_still(&m->areas[rank]) ? -1 : waits_for(&m->areas[rank]); }

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

/* chain[n]: more steps than there are ranks, so one came twice. What is told are the steps that were taken: to take them
 * again could lead elsewhere, and never back, because waits change meanwhile. */
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
