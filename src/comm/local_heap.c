/* local_heap.c — taking and giving back pages of a rank's slice of the window.
 *
 * Pages are reserved when they are taken (fallocate): a write to a page that the machine cannot back ends a
 * process by a signal, and no message would say why. fallocate itself does not fail on a full machine but lets the
 * kernel kill processes, so the room is looked at first, piece by piece: all ranks take theirs at the same time, and
 * none sees what the others are going to take. Pages that are given back go back to the machine at once. */
#include "comm/local_heap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096 };
/* What all ranks together may take between a look and the next; the sixteenth that weft_local_room keeps back is more
 * on every machine that has 4 GiB. */
enum { BETWEEN_LOOKS = 256 << 20, PIECE_MIN = 2 << 20, PIECE_MAX = 64 << 20 };

static weft_status no_memory(size_t bytes, const char *why, size_t limit)
{
    return weft_fail(WEFT_ERR_MEMORY, "cannot get %zu bytes of memory that other ranks can read: %s (%zu bytes); use "
                                      "fewer ranks or shorter sequences, or copy instead of reading in place", bytes,
                     why, limit);
}

/* ---- free extents --------------------------------------------------------------------------------------- */

/* Room for as many extents as a release after this allocation can leave. */
static weft_status reserve_extents(weft_heap *h)
{
    if (h->capacity >= h->live + 2) return WEFT_OK;
    int64_t capacity = 2 * (h->live + 8);
    heap_extent *grown = realloc(h->free, (size_t)capacity * sizeof *grown);
    if (!grown) return weft_fail(WEFT_ERR_MEMORY, "no memory for the list of %lld extents", (long long)capacity);
    h->free = grown;
    h->capacity = capacity;
    return WEFT_OK;
}

/* The first extent that fits: low addresses are used again, so the file stays compact. */
static int64_t find_extent(const weft_heap *h, size_t bytes)
{
    for (int64_t i = 0; i < h->extents; i++)
        if (h->free[i].bytes >= bytes) return i;
    return -1;
}

static void remove_extent(weft_heap *h, int64_t i)
{
    h->extents--;
    memmove(&h->free[i], &h->free[i + 1], (size_t)(h->extents - i) * sizeof *h->free);
}

static void cut_extent(weft_heap *h, int64_t i, size_t bytes)
{
    h->free[i].at += bytes;
    h->free[i].bytes -= bytes;
    if (h->free[i].bytes == 0) remove_extent(h, i);
}

static void return_extent(weft_heap *h, size_t at, size_t bytes)
{
    int64_t i = 0;
    while (i < h->extents && h->free[i].at < at) i++;
    bool joins_before = i > 0 && h->free[i - 1].at + h->free[i - 1].bytes == at;
    bool joins_after = i < h->extents && at + bytes == h->free[i].at;
    if (joins_before) {
        h->free[i - 1].bytes += bytes + (joins_after ? h->free[i].bytes : 0);
        if (joins_after) remove_extent(h, i);
    } else if (joins_after) {
        h->free[i] = (heap_extent){at, bytes + h->free[i].bytes};
    } else {
        memmove(&h->free[i + 1], &h->free[i], (size_t)(h->extents - i) * sizeof *h->free);
        h->free[i] = (heap_extent){at, bytes};
        h->extents++;
    }
}

/* ---- pages ------------------------------------------------------------------------------------------------ */

static off_t file_place(const weft_heap *h, size_t at) { return (off_t)(h->map->heap_at + h->begin + at); }

static int reserve_pages(const weft_heap *h, size_t at, size_t bytes)
{
    int result;
    do result = fallocate(h->map->fd, 0, file_place(h, at), (off_t)bytes);
    while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

static void drop_pages(const weft_heap *h, size_t at, size_t bytes)
{
    /* A failure only means that the pages stay until the job ends. */
    while (fallocate(h->map->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, file_place(h, at), (off_t)bytes) != 0 &&
           errno == EINTR) {}
}

static size_t piece_bytes(int ranks)
{
    size_t n = BETWEEN_LOOKS / (size_t)ranks / PAGE * PAGE;
    return n < PIECE_MIN ? PIECE_MIN : n > PIECE_MAX ? PIECE_MAX : n;
}

/* The next n bytes of `left`. A look reads several files, so that small pieces share one: no rank takes more than
 * piece_bytes after it. */
static weft_status take_piece(weft_heap *h, size_t at, size_t n, size_t left, size_t asked, size_t done)
{
    if (n > h->unlooked) {
        size_t room = weft_local_room(h->root);
        if (left > room) return no_memory(asked, "the machine or a limit on this process leaves less", room + done);
        h->unlooked = piece_bytes(h->map->header->ranks);
    }
    int error = reserve_pages(h, at, n);
    if (error) return no_memory(asked, strerror(error), weft_local_room(h->root) + done);
    h->unlooked -= n;
    return WEFT_OK;
}

/* All of it or nothing. */
static weft_status take_pages(weft_heap *h, size_t at, size_t bytes, size_t asked)
{
    size_t piece = piece_bytes(h->map->header->ranks);
    for (size_t done = 0, n; done < bytes; done += n) {
        size_t left = bytes - done;
        n = left < piece ? left : piece;
        weft_status st = take_piece(h, at + done, n, left, asked, done);
        if (st == WEFT_OK) continue;
        if (done > 0) drop_pages(h, at, done);
        return st;
    }
    return WEFT_OK;
}

/* ---- the provider ------------------------------------------------------------------------------------------- */

static size_t whole_pages(size_t bytes) { return bytes == 0 ? PAGE : (bytes + PAGE - 1) / PAGE * PAGE; }

static weft_status heap_alloc(void *self, size_t bytes, void **out)
{
    weft_heap *h = self;
    size_t slice = h->map->header->slice_bytes;
    if (bytes > slice) return no_memory(bytes, "a rank's part of the window is smaller", slice);
    size_t n = whole_pages(bytes);
    int64_t i = find_extent(h, n);
    if (i < 0) return no_memory(bytes, "no part of this rank's window is free that is so large", slice);
    WEFT_TRY(reserve_extents(h));
    size_t at = h->free[i].at;
    WEFT_TRY(take_pages(h, at, n, bytes));
    cut_extent(h, i, n);
    h->live++;
    *out = h->map->heap + h->begin + at;
    return WEFT_OK;
}

static void heap_release(void *self, void *ptr, size_t bytes)
{
    weft_heap *h = self;
    size_t at = (size_t)((char *)ptr - (h->map->heap + h->begin)), n = whole_pages(bytes);
    drop_pages(h, at, n);
    return_extent(h, at, n);
    h->live--;
}

static weft_status heap_copy(void *self, void *dst, const void *src, size_t bytes, weft_queue *queue)
{
    (void)self;
    (void)queue;
    if (bytes) memcpy(dst, src, bytes);
    return WEFT_OK;
}

weft_status weft_heap_init(weft_heap *h, const weft_local *map, int rank)
{
    size_t slice = map->header->slice_bytes;
    *h = (weft_heap){.map = map, .root = "", .begin = (size_t)rank * slice};
    h->provider = (weft_mem_provider){"local ranks", WEFT_MEM_SHARED, h, heap_alloc, heap_release, heap_copy};
    if (slice == 0) return WEFT_OK;
    WEFT_TRY(reserve_extents(h));
    h->free[h->extents++] = (heap_extent){0, slice};
    return WEFT_OK;
}

void weft_heap_close(weft_heap *h)
{
    if (h->live > 0) drop_pages(h, 0, h->map->header->slice_bytes);
    free(h->free);
}

/* ---- places --------------------------------------------------------------------------------------------------- */

bool weft_heap_find(const weft_local *map, const void *p, size_t bytes, uint64_t *offset)
{
    uintptr_t at = (uintptr_t)p, begin = (uintptr_t)map->heap;
    size_t window = map->header->slice_bytes * (size_t)map->header->ranks;
    if (window == 0 || at < begin || at - begin > window || bytes > window - (at - begin)) return false;
    *offset = at - begin;
    return true;
}

const void *weft_heap_address(const weft_local *map, uint64_t offset) { return map->heap + offset; }
