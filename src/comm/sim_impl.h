/* sim_impl.h — what the files of the simulated transport share (private to this room).
 *
 * All ranks are fibers of one thread. Each has a time of its own, which grows when a kernel charges it. Whatever one
 * rank does to another (posting, looking, waiting) happens in the order of time: a rank that is ahead lets the others
 * catch up first (weft_sim_catch_up). So which rank runs when is no matter of chance, and the same program gives the
 * same times every time. */
#ifndef WEFT_COMM_SIM_IMPL_H
#define WEFT_COMM_SIM_IMPL_H

#include "comm/sim_fiber.h"
#include "comm/world.h"

/* ---- what happens next (sim_heap.c) ------------------------------------------------------------------- */

typedef struct weft_sim_entry { /* a transfer's next event, or a rank that can run */
    double time;
    uint64_t order; /* among equal times: events as they were made, then ranks by number */
    void *what;
} weft_sim_entry;

#define WEFT_SIM_RANK ((uint64_t)1 << 63) /* in `order`: a rank, not an event */

typedef struct weft_sim_heap {
    weft_sim_entry *entry;
    size_t n, capacity;
} weft_sim_heap;

static inline bool weft_sim_before(const weft_sim_entry *a, const weft_sim_entry *b)
{
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}
bool weft_sim_heap_push(weft_sim_heap *h, weft_sim_entry e); /* false: no memory */
weft_sim_entry weft_sim_heap_pop(weft_sim_heap *h);          /* n > 0 */

/* ---- requests that wait for their other end (sim_match.c) --------------------------------------------- */

typedef struct weft_sim_waiter {
    weft_req *req;
    int from, to, tag;
    uint32_t comm;
    bool send;
    uint32_t next;        /* of its bucket, or of the free ones */
} weft_sim_waiter;

typedef struct weft_sim_bucket { uint32_t first, last; } weft_sim_bucket; /* in order of posting */
typedef struct weft_sim_table {
    weft_sim_waiter *waiter;
    weft_sim_bucket *bucket;
    size_t n, capacity, buckets; /* buckets: a power of two */
    uint32_t free;
} weft_sim_table;

bool weft_sim_table_init(weft_sim_table *t);
void weft_sim_table_free(weft_sim_table *t);
/* Takes the oldest request that `r` fits out of the table; NULL: there is none. */
weft_req *weft_sim_take(weft_sim_table *t, weft_req *r);
bool weft_sim_put(weft_sim_table *t, weft_req *r); /* false: no memory */
/* Forgets what a rank has posted, of all ranks when it is -1, without touching the requests. */
void weft_sim_table_drop(weft_sim_table *t, int rank);

/* ---- the job ------------------------------------------------------------------------------------------ */

typedef struct weft_sim_rank weft_sim_rank;

typedef struct weft_sim_transfer { /* a matched pair */
    weft_req *send, *recv;
    weft_sim_rank *from, *to;
    double begin;                   /* its first byte leaves the sender */
    bool arrived;                   /* the next event is its end */
    struct weft_sim_transfer *next; /* free, or held until a rank looks */
} weft_sim_transfer;

enum { WEFT_SIM_NEAR, WEFT_SIM_FAR, WEFT_SIM_REACHES }; /* ports inside a node and between nodes */

struct weft_sim_rank {
    struct weft_sim *sim;
    weft_fiber fiber;
    weft_ctx ctx;
    weft_world *world;
    int rank;
    double time;
    bool blocked, left;   /* blocked: in a wait; left: its function has returned */
    bool moved;           /* a request of this rank was completed since it looked last */
    double slow;          /* factor of the times of its ports */
    double out_free[WEFT_SIM_REACHES], in_free[WEFT_SIM_REACHES]; /* when a port has sent or taken all so far */
    weft_sim_transfer *held; /* matched while this rank did not look; newest first */
    weft_mem_provider buffers;
    int piece;            /* buffers without memory: the piece that is being used, how much of it, and allocations
                             alive */
    size_t piece_used, address_blocks;
    char *error;          /* its last error while others run; [WEFT_SIM_ERROR] or NULL */
};

enum { WEFT_SIM_ERROR = 1024 };

typedef struct weft_sim_piece { char *base; size_t bytes; } weft_sim_piece; /* addresses, never memory */
enum { WEFT_SIM_PIECES = 64 };

typedef struct weft_sim_lane { /* a slow link of two ranks: it serves one transfer after the other, each way */
    int a, b;
    double factor, free[2];
} weft_sim_lane;

typedef struct weft_sim {
    weft_sim_model model;
    int ranks, running;   /* running: whose function, or closing, has not ended */
    weft_rank_fn fn;
    void *ud;
    weft_fiber_state home;
    weft_sim_rank *rank;  /* [ranks] */
    weft_sim_lane *lane;  /* [lanes] */
    int lanes;
    weft_stacks stacks;
    weft_sim_heap heap;
    weft_sim_table waiting;
    uint64_t events;
    const double *event_time; /* of the event that is being handled; NULL: ranks read their own time */
    weft_sim_transfer *free_transfers, **chunk;
    size_t chunks;
    weft_sim_piece piece[WEFT_SIM_PIECES]; /* [pieces] reserved for buffers without memory */
    int pieces;
    weft_status failed;
    char message[WEFT_SIM_ERROR];
} weft_sim;

/* sim.c */
extern const weft_transport weft_sim_transport;
/* Handles the event at the top of the heap, or runs the rank there. */
void weft_sim_event(weft_sim *s, weft_sim_entry e);
/* The first call's failure is the job's: wakes everybody, drops every transfer. */
void weft_sim_fail(weft_sim *s, weft_status st, const char *message);
void weft_sim_wake(weft_sim_rank *r, double time);
void weft_sim_free_transfers(weft_sim *s);

/* sim_addresses.c: buffers without memory. */
weft_mem_provider weft_sim_addresses(weft_sim_rank *r);
bool weft_sim_is_address(const weft_sim *s, const void *p);
void weft_sim_free_addresses(weft_sim *s);

/* sim_deadlock.c: who waits for whom, when nothing can happen any more. */
void weft_sim_deadlock_text(const weft_sim *s, char *text, size_t n);

#endif
