/* mpi_impl.h — the endpoint behind MPI worlds (private to this room; mpi.c says how it works). */
#ifndef WEFT_COMM_MPI_IMPL_H
#define WEFT_COMM_MPI_IMPL_H

#include "comm/local_map.h"
#include "comm/mpi_abi.h"
#include "comm/world.h"

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

enum { WEFT_MPI_OP = 48, WEFT_MPI_CHUNK = 256, WEFT_MPI_CHUNKS = 1024, WEFT_MPI_CONTROLS = 16 };

typedef struct mpi_control { /* a short message between endpoints; each also tells where its sender is */
    uint32_t kind, comm;
    int32_t tag;
    int32_t number;   /* of the receiver's transfer */
    uint64_t bytes;
    int32_t layer, step, waits_for, unused;
    char op[WEFT_MPI_OP];
} mpi_control;

typedef struct mpi_failure { int32_t rank, status; char message[WEFT_LOCAL_MESSAGE]; } mpi_failure;

typedef struct mpi_transfer { /* a send or a receive from its post to its end */
    weft_req *req;            /* NULL: free */
    struct mpi_transfer *next;
    size_t moved, piece;      /* bytes done; bytes of the piece that is under way */
    double at;                /* when it ended */
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

typedef struct weft_mpi_ep {
    const weft_mpi *mpi;
    weft_mpi_end *end;
    weft_mpi_info info;
    weft_ctx *ctx;
    weft_arena *arena;
    weft_local map;       /* header and areas only: failure, places, of all ranks; shared by the ranks of a node */
    void *private_map;    /* when the node cannot share memory */
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
    double failed_at;     /* when this rank saw that the world had failed; 0: not yet */
    bool dead;            /* after a failure: requests are not touched any more */
    bool broken;          /* an MPI call failed: `trouble` */
    char trouble[256];
    /* The helper thread. `lock` guards everything above while it runs. */
    bool threaded;
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
/* After a failure: tells the ranks of other nodes if this rank is the first, withdraws receives, and gives what is
 * under way `seconds` to end. */
void weft__mpi_withdraw(weft_mpi_ep *e, double seconds);
bool weft__mpi_end_control(weft_mpi_ep *e); /* true when no request is left */
void weft__mpi_free(weft_mpi_ep *e);

/* mpi_progress.c */
void weft__mpi_lock(weft_mpi_ep *e);
void weft__mpi_unlock(weft_mpi_ep *e);
weft_status weft__mpi_start_helper(weft_mpi_ep *e);
void weft__mpi_stop_helper(weft_mpi_ep *e);
/* Measures both ways of progress over w and keeps the faster one. COLLECTIVE */
weft_status weft__mpi_choose(weft_mpi_ep *e, weft_world *w);

#endif
