/* local_map.h — the memory that the ranks of one machine share, and what is simple about it: the record of
 * the first failure, each rank's place and doorbell (private to this room).
 *
 * Layout: header | one area per rank | one pair per ordered pair (src, dst) | one ring of bytes per pair |
 * one slice of memory per rank that others read in place (local_heap.h), in a mapping of its own.
 * Everything starts as zeros; pages that no message touches are never backed by memory. Ranks may be
 * threads that share one mapping or processes that have their own: nothing in it is a pointer that is
 * followed by anybody but its writer. */
#ifndef WEFT_COMM_LOCAL_MAP_H
#define WEFT_COMM_LOCAL_MAP_H

#include "comm/comm.h"

#include <stdalign.h>
#include <stdatomic.h>

enum {
    WEFT_LOCAL_RANKS_MAX = WEFT_LOCAL_MOST,
    WEFT_LOCAL_POSTS = 64,      /* published receives per pair that the sender has not taken yet */
    WEFT_LOCAL_OP_WORDS = 6,
    WEFT_LOCAL_MESSAGE = 1024
};

enum { WEFT_LOCAL_ABSENT, WEFT_LOCAL_JOINED, WEFT_LOCAL_LEFT };
/* State of the record of the first failure; FAILING + r: rank r writes it. */
enum { WEFT_LOCAL_FINE, WEFT_LOCAL_FAILED, WEFT_LOCAL_FAILING };

typedef struct local_area { /* of one rank; written by it, except bell and gone */
    alignas(64) _Atomic uint32_t bell;   /* peers add 1 when they changed something for this rank */
    _Atomic uint32_t asleep;             /* this rank waits on its bell in the kernel */
    alignas(64) _Atomic int state;       /* absent, joined, left */
    _Atomic int gone;                    /* set by the supervisor: the process has ended */
    _Atomic int pid, thread;             /* the kernel's numbers of the process and of the thread that joined */
    _Atomic int start_error;             /* errno of an exec that failed, set by the child that should have become this
                                            rank */
    _Atomic int waits_for;               /* 1 + the rank it is blocked on; 0: none */
    /* Its place. Odd `version`: being written. */
    _Atomic uint32_t version;
    _Atomic int layer, step;
    _Atomic int64_t since;               /* milliseconds of the machine's clock */
    _Atomic uint64_t op[WEFT_LOCAL_OP_WORDS];
} local_area;

enum { WEFT_POST_COPY, WEFT_POST_VIEW /* may be answered in place */, WEFT_POST_RELEASE /* of what was lent */ };

typedef struct local_post { /* what `dst` has published to `src`: a receive, or that it has read what was lent */
    uint64_t token;         /* the receiver's request, which the sender only sends back; of a release the sender's */
    uint64_t bytes;
    uint32_t comm;
    int32_t tag;
    uint32_t kind;
} local_post;

typedef struct local_pair { /* messages from src to dst; positions count bytes or posts since the start */
    alignas(64) _Atomic uint64_t head;    /* src: bytes put into the ring */
    _Atomic uint32_t posts_taken;         /* src */
    _Atomic uint32_t src_waits;           /* src: it has sends under way; ring its bell */
    alignas(64) _Atomic uint64_t tail;    /* dst: bytes taken from the ring */
    _Atomic uint32_t posts_made;          /* dst */
    _Atomic uint32_t dst_waits;           /* dst: it has receives under way */
    alignas(64) local_post posts[WEFT_LOCAL_POSTS];
} local_pair;

typedef struct local_header {
    uint64_t magic;
    int32_t ranks, cores, threads; /* cores: that the creator may use; threads: per rank, 0 unknown */
    int32_t pinned;                /* each rank has processors of its own */
    double timeout;                    /* of joining, and of a new world's waits; seconds */
    uint64_t ring_bytes, total_bytes;  /* total: without the slices */
    uint64_t slice_bytes;              /* of one rank; 0: no memory is read in place */
    alignas(64) _Atomic int failed;
    int32_t failed_rank, failed_status;
    char failed_message[WEFT_LOCAL_MESSAGE];
} local_header;

struct weft_local {
    int fd;
    size_t bytes;    /* of the mapping of everything but the slices */
    local_header *header;
    local_area *areas;
    local_pair *pairs;
    char *rings;
    char *heap;      /* the slices */
    size_t heap_at;  /* in the file */
};

static inline local_pair *weft_local_pair(const weft_local *m, int src, int dst)
{
    return &m->pairs[(size_t)src * (size_t)m->header->ranks + (size_t)dst];
}
static inline char *weft_local_ring(const weft_local *m, int src, int dst)
{
    return m->rings + ((size_t)src * (size_t)m->header->ranks + (size_t)dst) * m->header->ring_bytes;
}

/* Processors that this thread may run on. */
int weft_local_cores(void);

/* Of a rank that has died: a record that it was writing is open to others again. */
void weft_local_reopen_record(weft_local *m, int rank);
/* Whether a record is complete. */
bool weft_local_failed(const weft_local *m);
/* Fails with `st` and "rank N: cause" from the record. */
weft_status weft_local_fail_with(const weft_local *m, weft_status st);

/* Notes who the calling thread is, so that others can ask the system what it does. */
void weft_local_present(local_area *a);
void weft_local_place(local_area *a, const char *op, int layer, int step);
/* "cp.ring.forward, layer 1, step 2", or with the collective that it waits in: "cp.ring.forward: barrier of cp, layer
 * 1, ..." */
void weft_local_place_text(const local_area *a, char *text, size_t n);
/* What a rank is doing, through to the one that everybody waits for: "rank 1 is in PLACE for 2.0 s; it waits, through
 * rank 2, rank 3: rank 4 is asleep in PLACE for 2.1 s", or the circle of ranks that wait for each other. */
void weft_local_peer_text(const weft_local *m, int rank, char *text, size_t n);

/* Tells a rank that something changed for it. */
void weft_local_ring_bell(local_area *a);
/* Sleeps until the bell differs from `seen`, for at most 20 ms. */
void weft_local_sleep(local_area *a, uint32_t seen);

#endif
