/* comm.h — the door of the room `comm`: bytes between ranks.
 *
 * A world is this rank's end of a set of ranks over one transport. A comm is a group of its ranks with
 * its own tags and counters. Messages of one (sender, receiver, comm, tag) arrive in order; a send may
 * complete only when the peer has posted the receive, so a plan that relies on buffering dead-locks in
 * tests and not at a user's site. Sums are taken in a fixed order: the same bits every run.
 * Every wait has a deadline; when it passes, or when another rank has failed, the wait returns an error
 * that names rank, peer, operation, layer, step, and bytes done and expected. */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include "tensor/tensor.h"

#include <sched.h>

typedef struct weft_world weft_world;
typedef struct weft_comm weft_comm;

/* ---- worlds --------------------------------------------------------------------------------------- */

/* One rank alone. LOCAL */
weft_status weft_world_self(weft_world **out, weft_ctx *ctx);

/* N ranks of one machine over a shared mapping. The mapping is made once (weft_local_create), by the
 * supervisor or by the test that starts threads; each rank joins it. */
typedef struct weft_local weft_local;
weft_status weft_local_create(weft_local **out, int ranks);            /* LOCAL; memfd-backed            */
int weft_local_fd(const weft_local *local);                            /* to hand over by inheritance    */
int weft_local_ranks(const weft_local *local);
int weft_local_threads(const weft_local *local); /* per rank, as the supervisor gave them; 0: started otherwise */
weft_status weft_local_attach(weft_local **out, int fd);               /* in a child process             */
void weft_local_destroy(weft_local *local);                            /* unmaps                         */
/* Ends the job, also for a rank that has no world yet: the first call of all ranks writes the record that the
 * supervisor prints, later ones change nothing. Wakes everybody. LOCAL */
void weft_local_abort(weft_local *local, int rank, weft_status st, const char *message);
weft_status weft_world_local(weft_world **out, weft_ctx *ctx, weft_local *local, int rank); /* COLLECTIVE */

/* Runs fn(ctx, world, ud) on `ranks` threads, as ranks 0..ranks-1 of a local world; returns the first
 * failure (its message is the caller's last error). For tests and for programs that want thread ranks. */
typedef weft_status (*weft_rank_fn)(weft_ctx *ctx, weft_world *world, void *ud);
weft_status weft_run_threads(int ranks, weft_rank_fn fn, void *ud);

/* The simulated world: `ranks` ranks in the calling thread, over a virtual clock. Each rank's ctx->clock tells its
 * simulated time, which grows by what kernels charge and by waiting for transfers; nothing else takes time. The same
 * call gives the same times in every run. A send completes only against a posted receive, and a dead-lock is an error
 * that every rank gets, naming the ranks that wait for each other. */
typedef struct weft_sim_slow_link { /* of two ranks, both ways; b -1: all of rank a's */
    int a, b;
    double factor; /* by which its bytes take longer, >= 1 */
} weft_sim_slow_link;
typedef struct weft_sim_model {
    double post_seconds;          /* what posting a send or a receive costs its rank */
    double latency_seconds, link_bytes_per_second; /* of one transfer between nodes, one way */
    double port_bytes_per_second; /* all that a rank sends to other nodes at once; as much again it can receive */
    int node_ranks;               /* ranks 0 .. n-1 share a node, and so on; 0: all of them */
    /* inside a node: of one transfer, and of a rank's ports there */
    double node_latency_seconds, node_bytes_per_second;
    bool needs_poll;              /* a transfer begins only when both ranks look; else as soon as both ends are
                                     posted */
    bool no_memory;               /* weft_world_buffers gives addresses without memory, for kernels that only charge
                                     time */
    const weft_sim_slow_link *slow; /* [slow_links], each once */
    int slow_links;
} weft_sim_model;
/* as weft_run_threads. LOCAL */
weft_status weft_run_sim(int ranks, const weft_sim_model *model, weft_rank_fn fn, void *ud);

/* Starts `ranks` copies of this program (re-exec of /proc/self/exe with argv), watches them, ends all
 * when one fails. The children find their place with weft_local_from_env. *exit_code: what the program
 * should exit with. The status is the first failing rank's; its message names rank, cause and place. */
typedef struct weft_spawn {
    int ranks, threads_per_rank; /* threads 0: an even share of the cores */
    char *const *argv;
    double grace_seconds;        /* that ranks have to leave after a failure, before they are killed; 0: 3 */
    double timeout_seconds;      /* until when all must have joined; also their worlds' first timeout; 0: 120 */
    /* told at most once, of a failure while ranks are still there; or NULL */
    void (*told)(void *ud, const char *message);
    void *ud;
} weft_spawn;
weft_status weft_local_supervise(const weft_spawn *spawn, int *exit_code);
/* What it gives to each of so many ranks (threads 0: an even share): threads, and a share of the processors that this
 * process may use when there is one for every thread; else no rank is pinned. LOCAL, but for OMP_NUM_THREADS pure */
typedef struct weft_local_share {
    int ranks, cores, threads; /* cores: that this process may use; threads: of each rank */
    bool pinned;
    cpu_set_t allowed;
} weft_local_share;
weft_local_share weft_local_share_of(int ranks, int threads_per_rank);
cpu_set_t weft_local_share_cpus(const weft_local_share *s, int rank); /* of a pinned rank */
enum { WEFT_LOCAL_MOST = 128 }; /* ranks of one machine */
/* In a child: *local and *rank from the environment; *local NULL when this process was not started so. */
weft_status weft_local_from_env(weft_local **local, int *rank);

#define WEFT_DEFAULT_TIMEOUT 120.0 /* seconds of every wait, joining included, unless somebody says otherwise */

/* MPI, through a plugin for each library (mpi_abi.h). A launcher is found by the environment alone. */
typedef struct weft_mpi weft_mpi; /* a loaded plugin */
typedef struct weft_mpi_launch {
    int rank, size;  /* size 0: no launcher started this process */
    const char *mpi; /* "openmpi", "mpich": whose plugin to load */
    const char *by;  /* the launcher, for messages */
} weft_mpi_launch;
weft_status weft_mpi_launched(weft_mpi_launch *out);            /* LOCAL; refuses what is half an MPI       */
/* The plugin for mpi: in WEFT_PLUGIN_PATH, beside the program or the library, where an installation keeps it. LOCAL */
weft_status weft_mpi_load(weft_mpi **out, const char *mpi);
/* Whether there is one; its path, or where it was looked for. LOCAL */
bool weft_mpi_find(const char *mpi, weft_text *path);
void weft_mpi_unload(weft_mpi *mpi);                            /* after all its worlds                     */
const char *weft_mpi_library(const weft_mpi *mpi);              /* "Open MPI v4.1.4"                        */
/* MPI_Init_thread, unless the caller has; stop finalises what start initialised. COLLECTIVE over the job */
weft_status weft_mpi_start(weft_mpi *mpi);
void weft_mpi_stop(weft_mpi *mpi);
void weft_mpi_abort_job(const weft_mpi *mpi, int code);         /* MPI_Abort of the whole job               */
/* For a rank that has no MPI to abort the job with, before it leaves with `code`: makes launchers end the others that
 * only count ranks which were in MPI. LOCAL */
void weft_mpi_leave_job(int code);

/* From another thread, as soon as the process of a rank of this node has ended: the launcher may end this one next. */
typedef void (*weft_mpi_lost_fn)(void *ud, const char *message);
typedef struct weft_mpi_options { /* zeros are defaults; equal on all ranks */
    const void *comm;   /* address of an MPI_Comm; NULL: MPI_COMM_WORLD */
    size_t comm_bytes;  /* sizeof(MPI_Comm) */
    int ranks;          /* only the first so many of comm; 0: all */
    size_t max_message; /* longer ones travel in pieces; 0: 1 GiB; the least of all ranks holds */
    double timeout;     /* seconds, of opening and of the world (weft_world_set_timeout); 0: 120 */
    bool alone;         /* no memory is shared with ranks of this node: each is like a node of its own */
    weft_mpi_lost_fn lost; /* NULL: the waits tell */
    void *lost_ud;
} weft_mpi_options;
/* A world over a private copy of comm; *out NULL on ranks that have no part in it. What one rank refuses all refuse,
 * with its message; a rank that does not come makes it fail with WEFT_ERR_TIMEOUT. COLLECTIVE over comm */
weft_status weft_world_mpi(weft_world **out, weft_ctx *ctx, const weft_mpi *mpi, const weft_mpi_options *options);
typedef enum { WEFT_MPI_AUTO, WEFT_MPI_CALLBACK, WEFT_MPI_THREAD } weft_mpi_progress;
/* Who moves messages while a rank computes: the kernels' callback (a new world's way), a helper thread, or which of
 * them is measured to be faster, for all ranks alike. Refused in worlds that are not MPI's. COLLECTIVE */
weft_status weft_world_set_progress(weft_world *w, weft_mpi_progress progress);
/* Bytes of the next MPI message when `left` remain: what goes into MPI's int. Pure */
int weft_mpi_piece(size_t left, size_t limit);

/* Reports this rank's failure to the others and to the supervisor (first one wins) before it leaves. */
void weft_world_abort(weft_world *world, weft_status st, const char *message);
void weft_world_close(weft_world *world); /* COLLECTIVE when the status so far is good */
/* The rank whose failure ended the world; -1 when none did or the transport does not know. LOCAL */
int weft_world_failed_rank(const weft_world *w);

int weft_world_rank(const weft_world *w);
int weft_world_size(const weft_world *w);
const char *weft_world_transport(const weft_world *w);
weft_ctx *weft_world_ctx(const weft_world *w);
weft_comm *weft_world_all(const weft_world *w); /* the group of all ranks in order; the world's */
/* The transport in words, for a start table: "Open MPI v4.1.4, progress by callback". LOCAL */
void weft_world_describe(const weft_world *w, char *text, size_t n);
/* Processors that this rank may use, and how many ranks share them (itself included). LOCAL */
void weft_world_cpus(const weft_world *w, int *cpus, int *sharers);
/* Seconds that a wait lasts at most; default 120, in simulated worlds none: a dead-lock is found without. Refuses what
 * is not above 0. Time in which this process was suspended does not count. LOCAL */
weft_status weft_world_set_timeout(weft_world *w, double seconds);
double weft_world_timeout(const weft_world *w); /* for waits of this rank that are not comm's. LOCAL */

/* What this rank is doing, for error messages of others: op is a string constant. LOCAL, cheap. */
void weft_place(weft_world *w, const char *op, int layer, int step);

/* ---- groups --------------------------------------------------------------------------------------- */

/* COLLECTIVE over the world: every rank calls it for every group in the same order; ranks outside the
 * group get *out = NULL. ranks[] are world ranks, in group order. */
weft_status weft_comm_create(weft_comm **out, weft_world *w, const int *ranks, int n, const char *name);
/* COLLECTIVE over the world: all groups of one kind at once, with one comparison between the ranks. group_of[world
 * size], the same on every rank: rank r goes to group group_of[r], 0 .. world size - 1; inside a group ranks ascend.
 * *out: this rank's group. */
weft_status weft_comm_split(weft_comm **out, weft_world *w, const int *group_of, const char *name);
void weft_comm_destroy(weft_comm *c);
int weft_comm_rank(const weft_comm *c);
int weft_comm_size(const weft_comm *c);
int weft_comm_world_rank(const weft_comm *c, int rank); /* of a rank of the group */
weft_world *weft_comm_world(const weft_comm *c);

typedef struct weft_counters {
    int64_t bytes_logical; /* payload of this rank that peers received, counted here, at the sender */
    int64_t bytes_copied;  /* bytes that this rank moved through buffers of the transport */
    int64_t messages;      /* sent */
    double flight_seconds; /* time with a transfer of this rank in flight */
    double exposed_seconds;/* time this rank was blocked on one */
} weft_counters;
void weft_comm_counters(const weft_comm *c, weft_counters *out);
void weft_world_counters(const weft_world *w, weft_counters *out); /* sum over its comms, dead ones included */

/* ---- point to point ------------------------------------------------------------------------------- */

typedef struct weft_req { /* owned by the caller; must not move between post and completion */
    weft_comm *comm;
    const void *send;      /* what a send reads, or NULL */
    void *recv;            /* where a receive writes, or NULL */
    size_t bytes, done_bytes;
    int peer;              /* group rank */
    int tag;
    int state, flags;      /* transport's */
    double begun;          /* when it was posted; simulated, when its bytes began to move */
    const void *view;      /* where a receive was answered in place, or NULL */
    struct weft_req *next; /* transport's */
    uint64_t priv[4];      /* transport's */
} weft_req;

enum { WEFT_TAG_USER_MAX = 1 << 20 }; /* tags 0 .. WEFT_TAG_USER_MAX-1 are the caller's */

/* Non-blocking; peer is a group rank (not this rank); bytes 0 completes at once and sends nothing. A call that is
 * refused while transfers of this rank are under way ends the world: nobody would wait for them.
 * Sizes of the two ends must agree; when they do not, both get an error. */
weft_status weft_isend(weft_comm *c, const void *buf, size_t bytes, int peer, int tag, weft_mem_kind kind,
                       weft_queue *queue, weft_req *req);
weft_status weft_irecv(weft_comm *c, void *buf, size_t bytes, int peer, int tag, weft_mem_kind kind,
                       weft_queue *queue, weft_req *req);
weft_status weft_test(weft_req *req, bool *done); /* moves what can move, never blocks */
weft_status weft_wait(weft_req *req);
weft_status weft_wait_all(weft_req *reqs, int n);
/* Moves what can move; for kernels' poll. Errors surface at the next wait. */
void weft_progress(weft_world *w);

/* Bytes that this machine, or a limit on this process's control groups, can still give before the system begins to end
 * processes; SIZE_MAX where it does not say. LOCAL */
size_t weft_machine_room(void);

/* ---- reading in place ----------------------------------------------------------------------------- */

/* Memory for buffers that travel: with peer memory (transport `local`) other ranks can read it in place, in a
 * simulated world it is addresses without memory that must never be touched, else, and after weft_world_copy_only, it
 * is host memory. The provider lives as long as the world; release everything before the world closes. LOCAL */
const weft_mem_provider *weft_world_buffers(weft_world *w);
/* Whether receives may be answered in place; false where the transport cannot, or after weft_world_copy_only. */
bool weft_world_peer_memory(const weft_world *w);
/* From now on every message is copied (for comparison; results are the same bits). COLLECTIVE in effect: all ranks
 * alike */
void weft_world_copy_only(weft_world *w);

/* A receive that the transport may answer with the sender's own memory instead of copying it into buf: when the
 * sender's buffer comes from weft_world_buffers of some rank. buf NULL, where weft_world_peer_memory is true: it must
 * be answered in place, and another sender's buffer ends the world. After completion weft_received says where the bytes
 * lie: buf, or the memory of a rank, to be read only. Until weft_release (exactly once per completed receive of this
 * kind; cheap for a copied one) the sender's request stays open, so the bytes do not change: who has to wait for sends
 * to others before it releases should not make them wait for it. What was received in place may be sent on; such a send
 * must be complete before the release. bytes_logical is counted as ever, bytes_copied is not. Time in flight ends when
 * the receiver knows the place: from then on nothing moves. */
weft_status weft_irecv_view(weft_comm *c, void *buf, size_t bytes, int peer, int tag, weft_mem_kind kind,
                            weft_queue *queue, weft_req *req);
const void *weft_received(const weft_req *req);
void weft_release(weft_req *req);

/* ---- collectives (COLLECTIVE over the comm) ------------------------------------------------------- */

/* counts[i]: bytes of rank i. recv has room for their sum, in rank order; send may be its own place in recv. */
weft_status weft_all_gather(weft_comm *c, const void *send, void *recv, const size_t *counts);
/* send: sum(counts) elements, in rank order; recv: counts[me] elements = sum over ranks in the order
 * me+1, me+2, ..., me (own part last), added one after the other in dtype (f32 or f64). */
weft_status weft_reduce_scatter(weft_comm *c, const void *send, void *recv, const int64_t *counts, weft_dtype t);
/* sizes in bytes; displacements are the running sums. */
weft_status weft_all_to_all(weft_comm *c, const void *send, const size_t *send_bytes, void *recv,
                            const size_t *recv_bytes);
typedef enum { WEFT_SUM, WEFT_MAX, WEFT_MIN } weft_op;
/* In place; f32, f64, i64. The same bits on every rank and in every run. */
weft_status weft_all_reduce(weft_comm *c, void *data, int64_t n, weft_dtype t, weft_op op);
/* Bytes that it makes rank `rank` of P send, for elements of `size` bytes. LOCAL, pure */
int64_t weft_all_reduce_bytes(int P, int rank, int64_t n, size_t size);
/* Bytes that a world holds for other ranks' parts once rank `rank` of P has taken part in it, or in a
 * weft_reduce_scatter into shares: little from the start, 1 MiB from the first sum on that does not fit there. LOCAL,
 * pure */
int64_t weft_all_reduce_room(int P, int rank, int64_t n, size_t size);
weft_status weft_broadcast(weft_comm *c, void *data, size_t bytes, int root);
weft_status weft_barrier(weft_comm *c);
/* Every rank gets the worst status of all; a rank that was fine gets the message of the first that was not. */
weft_status weft_agree(weft_comm *c, weft_status mine);

/* n things over P ranks, as even as can be: rank i has [begin(i), begin(i+1)). LOCAL, pure */
int64_t weft_share_begin(int64_t n, int P, int i);

/* ---- collectives that go on while the rank computes -------------------------------------------------- */

/* Operations of one group that are started and then go on by themselves: in weft_progress, which kernels' poll calls,
 * and while the rank waits for anything else. They are carried out in the order of starting, which must be the same on
 * all ranks of the group. Starting never waits, and nothing allocates after the creation.
 *
 * Arrays are cut into a part per rank, in rank order: of counts[i] elements (kept by the caller until the end), or with
 * counts NULL into even shares of `total` (weft_share_begin). Nobody touches the arrays until the operation is done.
 * *op, where not NULL, is what the other calls know the operation by. */
typedef struct weft_stream weft_stream;
/* For `ops` operations at once. work_bytes: room for what is on its way to a sum; sums travel in pieces that fit (a few
 * elements of every rank at least). The same on all ranks. LOCAL; streams of a group are created in one order. */
weft_status weft_stream_create(weft_stream **out, weft_arena *arena, weft_comm *c, int ops, size_t work_bytes);
/* Bytes of its work memory on one of so many ranks. LOCAL, pure */
size_t weft_stream_bytes(int ranks, size_t work_bytes);
/* With operations under way the world ends, with this thread's last error: nobody would wait for them. LOCAL */
void weft_stream_destroy(weft_stream *s);
/* As weft_reduce_scatter, in place when recv is this rank's part of send; the sums are taken in the order first,
 * first + 1, ..., first - 1 of the ranks. A rank that is the same everywhere makes the bits of an element independent
 * of whose part it is in; this rank + 1 gives those of weft_reduce_scatter. */
weft_status weft_stream_reduce_scatter(weft_stream *s, const void *send, void *recv, const int64_t *counts,
                                       int64_t total, weft_dtype t, int first, int64_t *op);
/* As weft_all_gather, by elements. */
weft_status weft_stream_all_gather(weft_stream *s, const void *send, void *recv, const int64_t *counts, int64_t total,
                                   weft_dtype t, int64_t *op);
bool weft_stream_done(const weft_stream *s, int64_t op); /* LOCAL, moves nothing */
/* Waits for the operation and for all that were started before; deadlines as of all waits. */
weft_status weft_stream_finish(weft_stream *s, int64_t op);
/* Time so far with an operation under way, and that in which the rank waited for one. LOCAL */
void weft_stream_seconds(const weft_stream *s, double *under_way, double *waited);

/* For tests: lets a fault act at a site (base/fault.h); one that strays calls another collective of the group than the
 * ranks at this site expect. `nan` as in weft_fault_pass. LOCAL but for a stray. */
weft_status weft_comm_fault(weft_comm *c, const char *site, bool *nan);

/* ---- what stands behind a handle of include/weft/group.h (group.c). LOCAL ----------------------------- */

struct weft_group;
weft_world *weft_group_world(const struct weft_group *group);
weft_comm *weft_group_comm(const struct weft_group *group); /* of all its ranks */
int weft_group_default_threads(const struct weft_group *group); /* a rank's share of the cores, at least 1 */

#endif
