/* local_heap.h — memory that the ranks of one machine read in place (private to this room).
 *
 * One window of addresses behind the mapping, the same part of the same file in every rank: a slice per rank,
 * from which that rank alone takes memory. Hence a place is an offset that every rank can turn into an address,
 * readers map nothing, and no lock is shared that a killed rank could hold. The file has no blocks where nobody
 * has taken memory. */
#ifndef WEFT_COMM_LOCAL_HEAP_H
#define WEFT_COMM_LOCAL_HEAP_H

#include "comm/local_map.h"

typedef struct heap_extent { size_t at, bytes; } heap_extent; /* within the slice */

typedef struct weft_heap { /* one rank's slice; must not move: the provider points to it */
    weft_mem_provider provider;
    const weft_local *map;
    const char *root;         /* of weft_local_room */
    size_t begin;             /* of the slice in the window */
    size_t unlooked;          /* bytes that may be taken before the room is looked at again */
    heap_extent *free;        /* ascending, never adjacent */
    int64_t extents, capacity, live; /* live: allocations; at most live + 1 extents, so releasing needs no memory */
} weft_heap;

/* No memory is taken before the first allocation. LOCAL */
weft_status weft_heap_init(weft_heap *heap, const weft_local *map, int rank);
void weft_heap_close(weft_heap *heap); /* gives back what is left of this rank's memory */

/* Whether all these bytes lie in the window; *offset: where. */
bool weft_heap_find(const weft_local *map, const void *p, size_t bytes, uint64_t *offset);
const void *weft_heap_address(const weft_local *map, uint64_t offset);

/* Bytes that this machine, or a limit on this process's control groups, can still give (local_room.c). `root` is put in
 * front of /proc and /sys: "", or the folder of a test. */
size_t weft_local_room(const char *root);

#endif
