/* mpi_impl.h — the endpoint behind MPI worlds (private to this room; mpi.c says how it works). */
#ifndef WEFT_COMM_MPI_IMPL_H
#define WEFT_COMM_MPI_IMPL_H

#include "comm/local_map.h"
#include "comm/mpi_abi.h"
#include "comm/world.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>

struct weft_mpi { /* a loaded plugin */
    const weft_mpi_abi *abi;
    bool own; /* this process' MPI was initialised by weft */
    char library[64];
};

/* Tags of the private communicator: all fit below 32767, the least upper bound that MPI promises. Data travels under
 * the number of the receiver's transfer, so (group, tag) never has to fit into an MPI tag. */
enum { WEFT_MPI_TAG_CONTROL = 0, WEFT_MPI_TAG_ABORT = 1, WEFT_MPI_TAG_DATA = 2 };

/* How long after a failure what is under way may still arrive: both ends of a message of two sizes report them. */
#define WEFT_MPI_MESSAGE_SECONDS 0.03

enum { WEFT_MPI_OP = 48, WEFT_MPI_CHUNK = 256, WEFT_MPI_CHUNKS = 1024, WEFT_MPI_CONTROLS = 16 };

typedef struct mpi_control { /* a short message between endpoints; each also tells where its sender is */
    uint32_t kind, comm;
    int32_t tag;
    int32_t number;   /* of the receiver's transfer */
    uint64_t bytes;
    int32_t layer, step, waits_for, age_ms; /* age: of the place */
    char op[WEFT_MPI_OP];
} mpi_control;

typedef struct mpi_failure { int32_t rank, status; char message[WEFT_LOCAL_MESSAGE]; } mpi_failure;

/* A send or a receive from its post to its end. What moving it takes is copied from the request: a rank that fails by
 * itself may have freed its requests before it tells. */
typedef struct mpi_transfer {
    weft_req *req;            /* NULL: free. Followed by the rank's own thread only, in a good world */
    struct mpi_transfer *next;
    char *buf;                /* of a send: only read */
    size_t bytes, moved, piece; /* moved: done; piece: of the one that is under way */
    double at;                /* when it ended */
    uint32_t comm;
    int32_t tag;
    int peer;
    bool is_recv;
    int number;               /* its own, for good */
    int data;                 /* number of the receiver's transfer */
    int state;                /* WEFT_REQ_* at its end */
} mpi_transfer;

typedef struct mpi_posted { /* a receive of a peer that waits for this rank's send */
    struct mpi_posted *next;
    uint64_t bytes;
    uint32_t comm;
    int32_t tag;
    int number;
} mpi_posted;

typedef struct mpi_letter { /* a control message on its way out */
    mpi_control control;
    struct mpi_letter *next;
} mpi_letter;

typedef struct mpi_box { /* of one peer, both in the order of posting; a key is never in both */
    mpi_transfer *sends, **sends_end;   /* without a receive yet */
    mpi_posted *posted, **posted_end;   /* without a send yet */
    bool answered;                      /* told its place since it was asked */
} mpi_box;

typedef struct mpi_ends { mpi_transfer *first, **end; } mpi_ends;

/* What the ranks of a node share beside header and areas. */
typedef struct mpi_node {
    alignas(64) _Atomic int headed;   /* a rank fills the header */
    _Atomic int told;                 /* the ranks of other nodes know of the failure, or are being told */
    _Atomic int named;                /* a rank that died has been named */
    _Atomic int64_t failed_ms;        /* when it was recorded, by the machine's clock; 0: not yet */
} mpi_node;

enum { WEFT_MPI_WATCHERS = 2 }; /* of a rank, on its node: one of them may be killed as well, or have no processor */

/* as far apart as the entries of the kernel's list, which knows one distance from entry to word */
typedef struct mpi_hold {
    alignas(sizeof(struct robust_list)) _Atomic uint32_t word;
} mpi_hold;

typedef struct mpi_seat { /* of one rank */
    alignas(64) mpi_hold held[WEFT_MPI_WATCHERS]; /* word i is watched by the rank i + 1 places before */
    cpu_set_t mask;                               /* processors that it may use */
} mpi_seat;

/* The thread that holds this rank's seat and watches others (mpi_watch.c). */
typedef struct mpi_watch {
    pthread_t thread;
    bool running;
    _Atomic uint32_t order, seated, ended;
    struct robust_list entry[WEFT_MPI_WATCHERS];
    struct robust_list_head head; /* the kernel's: which words to mark when this thread's process ends */
    int n, next[WEFT_MPI_WATCHERS]; /* the ranks that it watches */
    bool over[WEFT_MPI_WATCHERS];   /* they have ended or left */
} mpi_watch;

typedef struct weft_mpi_ep {
    const weft_mpi *mpi;
    weft_mpi_end *end;
    weft_mpi_info info;
    weft_ctx *ctx;
    weft_arena *arena;
    weft_local map;       /* header and areas only: failure, places, of all ranks; shared by the ranks of a node */
    mpi_node *node;
    mpi_seat *seats;      /* [ranks]; zeros for ranks of other nodes */
    void *private_map;    /* when the ranks of a node cannot share memory: each is a node of its own */
    int node_ranks;
    int cpus, sharers;    /* processors of this rank, and ranks of the node that may run on them */
    size_t limit;         /* bytes of one MPI message, at most */
    mpi_box *box;         /* [ranks] */
    /* Pools; they grow by malloc, because the helper thread may be the one that needs more, and the rank's account
     * belongs to its own thread. */
    void **blocks;
    int block_count;
    mpi_transfer *chunk[WEFT_MPI_CHUNKS], *free_transfer;
    int chunks;
    mpi_posted *free_posted;
    mpi_letter *free_letter;
    mpi_ends finished;    /* for the rank's own thread to report */
    mpi_control in[WEFT_MPI_CONTROLS]; /* receives for control messages, handled in turn */
    int in_source[WEFT_MPI_CONTROLS];  /* -1: not here yet */
    int in_next;
    mpi_failure abort_in, abort_out;
    int open;             /* transfers that have not ended */
    int layer, step, waits_for;
    char op[WEFT_MPI_OP];
    double placed_at;
    mpi_watch watch;
    weft_mpi_lost_fn lost;
    void *lost_ud;
    bool dead;            /* after a failure: requests are not touched any more */
    _Atomic bool broken;  /* an MPI call failed; set after `trouble` is written, which is then left as it is */
    char trouble[256];
    /* The helper thread. `lock` guards everything above while it runs. */
    bool threaded;
    bool moves;           /* it moves messages as they come; else it only looks now and then, to answer for its rank */
    pthread_t helper;
    pthread_mutex_t lock;
    pthread_cond_t work;
    bool stop;
    char progress_text[96]; /* how the way of progress was chosen */
} weft_mpi_ep;

/* mpi_move.c; the caller holds the lock */
weft_status weft__mpi_begin(weft_mpi_ep *e); /* the receives for control messages */
weft_status weft__mpi_send(weft_mpi_ep *e, weft_req *req);
weft_status weft__mpi_recv(weft_mpi_ep *e, weft_req *req);
bool weft__mpi_pass(weft_mpi_ep *e);  /* moves what can move */
void weft__mpi_ask(weft_mpi_ep *e, int peer); /* for its place */
void weft__mpi_show_moved(weft_mpi_ep *e);    /* into the requests, for a message */
/* After a failure: tells the ranks of other nodes unless somebody of this node has, withdraws receives, and gives what
 * is under way `seconds` to end. Follows no request. */
void weft__mpi_withdraw(weft_mpi_ep *e, double seconds);
bool weft__mpi_end_control(weft_mpi_ep *e); /* true when no request is left */
void weft__mpi_free(weft_mpi_ep *e);

/* mpi_progress.c */
void weft__mpi_lock(weft_mpi_ep *e);
void weft__mpi_unlock(weft_mpi_ep *e);
weft_status weft__mpi_start_helper(weft_mpi_ep *e, bool moves);
void weft__mpi_stop_helper(weft_mpi_ep *e);
/* Where ranks are on other nodes and MPI takes calls of any thread: a helper that answers where this rank is while it
 * computes or sleeps. */
weft_status weft__mpi_start_answering(weft_mpi_ep *e);
/* Measures both ways of progress over w and keeps the faster one. COLLECTIVE */
weft_status weft__mpi_choose(weft_mpi_ep *e, weft_world *w);

/* mpi_watch.c */
weft_status weft__mpi_sit(weft_mpi_ep *e);   /* takes this rank's seat */
void weft__mpi_watch_next(weft_mpi_ep *e);   /* after all ranks of the node have sat down */
void weft__mpi_stand_up(weft_mpi_ep *e);

/* mpi.c */
/* The first failure of this node wins; from then on its age is known to all of them. */
void weft__mpi_record(weft_mpi_ep *e, int rank, weft_status st, const char *message);
/* Whether a failure was recorded so many seconds ago. Ranks that failed free what the others would read. */
bool weft__mpi_failed_for(const weft_mpi_ep *e, double seconds);
extern const weft_transport weft__mpi_transport;
void weft__mpi_close(void *ep, bool orderly);

#endif
