/* local_map.c — making and joining the shared mapping. */
#include "comm/local_map.h"
#include "comm/world.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
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
        return weft_fail(WEFT_ERR_MEMORY, "local ranks: mapping %zu bytes of shared memory: %s", bytes,
                         strerror(errno));
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
    return getrlimit((__rlimit_resource_t)resource, &r) == 0 && r.rlim_cur != RLIM_INFINITY ? (size_t)r.rlim_cur
                                                                                            : SIZE_MAX;
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
    void *p =
        mmap(NULL, slice * (size_t)ranks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, m->fd, (off_t)m->heap_at);
    if (p == MAP_FAILED) return false;
    madvise(p, slice * (size_t)ranks, MADV_DONTDUMP); /* addresses by the terabyte are no use in a core file */
    m->heap = p;
    return true;
}

/* The creator settles for what it can map; the others are copies of its program under the same limits. */
static weft_status create_slices(weft_local *m, int ranks)
{
    size_t slice = slice_bytes_for(ranks);
    while (slice > 0 &&
           (ftruncate(m->fd, (off_t)(heap_at(ranks) + slice * (size_t)ranks)) != 0 || !map_slices(m, ranks, slice)))
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
        return weft_fail(WEFT_ERR_REFUSED, "local ranks: %d asked for; one machine takes 1 to %d", ranks,
                         WEFT_LOCAL_RANKS_MAX);
    size_t bytes = total_for(ranks);
    if (bytes > limit_of(RLIMIT_FSIZE)) /* beyond it ftruncate ends the process by a signal */
        return weft_fail(WEFT_ERR_MEMORY,
                         "local ranks: %d ranks share %zu bytes, files may have %zu here; raise the limit "
                         "(ulimit -f)",
                         ranks, bytes, limit_of(RLIMIT_FSIZE));
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
        return weft_fail(WEFT_ERR_REFUSED, "local ranks: file descriptor %d is a mapping of another version of weft",
                         fd);
    }
    size_t slice = m->header->slice_bytes;
    if (!map_slices(m, m->header->ranks, slice)) {
        weft_status st = weft_fail(WEFT_ERR_MEMORY,
                                   "local ranks: %zu bytes of addresses for the memory of %d ranks: %s; raise "
                                   "the limit on addresses (ulimit -v)",
                                   slice, m->header->ranks, strerror(errno));
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
