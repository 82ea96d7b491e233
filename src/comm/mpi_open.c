/* mpi_open.c — opening a world over MPI. Every step that can fail on one rank is followed by a meeting of all, with a
 * deadline: they go on together, or all refuse with the message of the first rank that could not. */
#include "comm/mpi_impl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MPI_LIMIT ((size_t)1 << 30) /* bytes of one MPI message; a count is an int, and some libraries fail near 2
                                       GiB */

typedef struct opening { /* what outlives an endpoint that could not be made */
    const weft_mpi *mpi;
    const weft_mpi_options *options;
    weft_mpi_end *end;
    weft_mpi_info info;
    double seconds;
    int64_t limit;
    bool late; /* the ranks have lost each other: the end cannot be closed any more */
} opening;

/* ---- meetings --------------------------------------------------------------------------------------------- */

static weft_status call_failed(opening *o, int code, const char *what)
{
    char text[200];
    o->mpi->abi->error_text(code, text, sizeof text);
    o->late = true;
    if (code == WEFT_MPI_LATE)
        return weft_fail(WEFT_ERR_TIMEOUT,
                         "opening a world over MPI: not every rank of the communicator came within %.3g s (%s)",
                         o->seconds, what);
    if (code == WEFT_MPI_NO_COMM || code == WEFT_MPI_INTERCOMM)
        return weft_fail(WEFT_ERR_REFUSED,
                         "a world over MPI: %s; give a communicator of one group of ranks, like MPI_COMM_WORLD", text);
    return weft_fail(code == WEFT_MPI_NO_MEMORY ? WEFT_ERR_MEMORY : WEFT_ERR_LIBRARY, "MPI, %s: %s", what, text);
}

/* Status and rank in one number: the least is of the worst status, and of the first rank that has it. */
#define RANKS_LIMIT ((int64_t)1 << 32)

static weft_status meet(opening *o, weft_status mine, const char *what)
{
    const weft_mpi_abi *abi = o->mpi->abi;
    char text[WEFT_MESSAGE] = "";
    if (o->late) return mine;
    int64_t v[2] = {(int64_t)(mine < 0 ? mine : WEFT_OK) * RANKS_LIMIT + o->info.rank, o->limit};
    if (mine < 0) snprintf(text, sizeof text, "%s", weft_last_error());
    int error = abi->least(o->end, v, 2, o->seconds);
    if (error) return call_failed(o, error, what);
    o->limit = v[1];
    if (v[0] >= 0) return WEFT_OK;
    int first = (int)((v[0] % RANKS_LIMIT + RANKS_LIMIT) % RANKS_LIMIT);
    weft_status st = (weft_status)((v[0] - first) / RANKS_LIMIT);
    error = abi->tell(o->end, text, sizeof text, first, o->seconds);
    if (error) return call_failed(o, error, what);
    return weft_fail(st, "rank %d: %s", first, text);
}

/* ---- the endpoint ------------------------------------------------------------------------------------------- */

static weft_status endpoint_create(weft_mpi_ep **out, weft_ctx *ctx, opening *o)
{
    weft_arena *arena;
    weft_mpi_ep *e;
    weft_status st;
    if (o->options->max_message > MPI_LIMIT)
        return weft_fail(WEFT_ERR_REFUSED, "MPI messages of %zu bytes; at most %zu", o->options->max_message,
                         MPI_LIMIT);
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "MPI ranks", NULL));
    WEFT_TRY_OR(st, WEFT_NEW0(arena, 1, "endpoint", &e), free_arena);
    *e = (weft_mpi_ep){.mpi = o->mpi, .end = o->end, .info = o->info, .ctx = ctx, .arena = arena, .layer = -1,
                       .step = -1,
                       .node_ranks = 1, .placed_at = weft_now(&weft_clock_real), .progress_text = "callback",
                       .lost = o->options->lost, .lost_ud = o->options->lost_ud};
    WEFT_TRY_OR(st, WEFT_NEW0(arena, o->info.size, "mailboxes", &e->box), free_arena);
    for (int p = 0; p < o->info.size; p++) {
        e->box[p].sends_end = &e->box[p].sends;
        e->box[p].posted_end = &e->box[p].posted;
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* a clock that is set must not stop the helper */
    pthread_cond_init(&e->work, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&e->lock, NULL);
    *out = e;
    return WEFT_OK;
free_arena:
    weft_arena_destroy(arena);
    return st;
}

/* ---- the ranks of a node -------------------------------------------------------------------------------------- */

/* Header, areas of all ranks, what is MPI's own. Every part is aligned to a cache line, as their types ask for. */
static_assert(sizeof(local_area) % WEFT_MPI_ALIGN == 0 && sizeof(mpi_node) % WEFT_MPI_ALIGN == 0 &&
              sizeof(mpi_seat) % WEFT_MPI_ALIGN == 0, "one part after the other");
static size_t areas_at(void) { return (sizeof(local_header) + 63) / 64 * 64; }
static size_t node_at(int ranks) { return areas_at() + (size_t)ranks * sizeof(local_area); }
static size_t seats_at(int ranks) { return node_at(ranks) + sizeof(mpi_node); }
static size_t map_bytes(int ranks) { return seats_at(ranks) + (size_t)ranks * sizeof(mpi_seat); }

/* Where memory cannot be shared each rank is like a node of its own: the others are asked, and a failure is sent. */
static weft_status private_map(weft_mpi_ep *e, void **base)
{
    size_t bytes = map_bytes(e->info.size);
    e->node_ranks = 1;
    *base = e->private_map = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!*base) return weft_fail(WEFT_ERR_MEMORY, "no memory for the places of %d ranks", e->info.size);
    memset(*base, 0, bytes);
    return WEFT_OK;
}

static void use_map(weft_mpi_ep *e, void *base)
{
    int ranks = e->info.size;
    char *at = base;
    e->map =
        (weft_local){.fd = -1, .bytes = map_bytes(ranks), .header = base, .areas = (local_area *)(at + areas_at())};
    e->node = (mpi_node *)(at + node_at(ranks));
    if (!atomic_exchange(&e->node->headed, 1)) e->map.header->ranks = ranks; /* read after the ranks have met */
    e->seats = (mpi_seat *)(at + seats_at(ranks));
    cpu_set_t *mask = &e->seats[e->info.rank].mask;
    if (sched_getaffinity(0, sizeof *mask, mask) != 0) CPU_SET(0, mask);
    local_area *me = &e->map.areas[e->info.rank];
    weft_local_place(me, "start", -1, -1);
    atomic_store(&me->state, WEFT_LOCAL_JOINED);
    weft_local_present(me);
}

static weft_status join_node(opening *o, weft_mpi_ep *e)
{
    void *base = NULL;
    int error = WEFT_MPI_NOT_SHARED;
    if (!o->options->alone)
        error = o->mpi->abi->share(o->end, map_bytes(o->info.size), o->seconds, &base, &e->node_ranks);
    if (error && error != WEFT_MPI_NOT_SHARED) return call_failed(o, error, "memory shared by the ranks of a node");
    if (error) WEFT_TRY(private_map(e, &base));
    if ((uintptr_t)base % WEFT_MPI_ALIGN) /* the compiler may use instructions that trap */
        return weft_fail(WEFT_ERR_INTERNAL, "MPI, memory shared by the ranks of a node: it is not aligned to %d bytes",
                         WEFT_MPI_ALIGN);
    use_map(e, base);
    return weft__mpi_sit(e);
}

/* After all have written their masks: whom this rank shares its processors with. */
static void count_sharers(weft_mpi_ep *e)
{
    const cpu_set_t *mine = &e->seats[e->info.rank].mask;
    e->cpus = CPU_COUNT(mine);
    for (int p = 0; p < e->info.size; p++) {
        cpu_set_t both;
        CPU_AND(&both, mine, &e->seats[p].mask);
        e->sharers += CPU_COUNT(&both) > 0; /* masks of other nodes are empty here */
    }
}

/* ---- the world -------------------------------------------------------------------------------------------------- */

/* On failure the endpoint is gone, and all ranks know. */
static weft_status prepare(opening *o, weft_ctx *ctx, weft_mpi_ep **out)
{
    weft_mpi_ep *e = NULL;
    weft_status st;
    WEFT_TRY_OR(st, meet(o, endpoint_create(&e, ctx, o), "making endpoints"), close_ep);
    e->limit = (size_t)o->limit;
    WEFT_TRY_OR(st, meet(o, join_node(o, e), "joining the ranks of a node"), close_ep);
    count_sharers(e);
    weft__mpi_watch_next(e);
    st = weft__mpi_begin(e);
    if (st >= 0) st = weft__mpi_start_answering(e);
    WEFT_TRY_OR(st, meet(o, st, "the first receives"), close_ep);
    *out = e;
    return WEFT_OK;
close_ep:
    if (e) weft__mpi_close(e, !o->late); /* closes the end as well */
    else if (!o->late) o->mpi->abi->close(o->end);
    return st;
}

static weft_status open_over(weft_world **out, weft_ctx *ctx, opening *o, weft_mpi_ep *e)
{
    weft_world *w = NULL;
    weft_status st =
        meet(o, weft_world_open(&w, ctx, &weft__mpi_transport, e, o->info.rank, o->info.size), "opening worlds");
    if (st < 0 && w) {
        w->failed = st; /* no barrier: a rank may have none */
        weft_world_close(w);
    }
    if (st < 0) return st;
    *out = w;
    return weft_world_set_timeout(w, o->seconds);
}

/* What a rank refuses here, it refuses without the others: it does not know a communicator to tell them by. */
static weft_status check_mpi(const weft_mpi *mpi, const weft_mpi_options *o)
{
    if (!mpi->abi->running())
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s is not initialised, or it is finalised: call MPI_Init_thread before, and use the MPI "
                         "library that the program was built with",
                         mpi->library);
    if (o->comm && o->comm_bytes != mpi->abi->handle_bytes)
        return weft_fail(WEFT_ERR_REFUSED,
                         "a communicator of %zu bytes, %s has %zu: the program was built with another MPI",
                         o->comm_bytes, mpi->library, mpi->abi->handle_bytes);
    return WEFT_OK;
}

weft_status weft_world_mpi(weft_world **out, weft_ctx *ctx, const weft_mpi *mpi, const weft_mpi_options *options)
{
    weft_mpi_ep *e;
    *out = NULL;
    WEFT_TRY(check_mpi(mpi, options));
    opening o = {.mpi = mpi, .options = options,
                 .seconds = options->timeout > 0 ? options->timeout : WEFT_DEFAULT_TIMEOUT,
                 .limit = (int64_t)(options->max_message ? options->max_message : MPI_LIMIT)};
    int error = mpi->abi->open(&o.end, options->comm, options->ranks, o.seconds, &o.info);
    if (error) return call_failed(&o, error, "copying the communicator");
    if (!o.end) return WEFT_OK;
    WEFT_TRY(prepare(&o, ctx, &e));
    return open_over(out, ctx, &o, e);
}

/* ---- who moves --------------------------------------------------------------------------------------------------- */

weft_status weft_world_set_progress(weft_world *w, weft_mpi_progress progress)
{
    static const char *const names[] = {"auto", "callback", "helper thread"};
    if (w->tp != &weft__mpi_transport)
        return weft_fail(WEFT_ERR_REFUSED, "who moves the messages can be chosen in an MPI world only; this one is %s",
                         w->tp->name);
    weft_mpi_ep *e = w->ep;
    int64_t asked[3] = {progress, -(int64_t)progress, -(int64_t)e->info.threads};
    WEFT_TRY(weft_all_reduce(w->all, asked, 3, WEFT_I64, WEFT_MAX));
    bool threads = asked[2] < 0; /* on every rank */
    if (asked[0] != -asked[1]) return weft_fail(WEFT_ERR_REFUSED, "the ranks ask for different ways of MPI progress");
    if (progress == WEFT_MPI_THREAD && !threads)
        return weft_fail(WEFT_ERR_REFUSED,
                         "progress by a helper thread needs MPI_THREAD_MULTIPLE, which %s did not grant; "
                         "choose callback",
                         e->mpi->library);
    bool helper = progress == WEFT_MPI_THREAD && w->size > 1;
    WEFT_TRY(weft_agree(w->all, helper ? weft__mpi_start_helper(e, true) : weft__mpi_start_answering(e)));
    snprintf(e->progress_text, sizeof e->progress_text, "%s", names[helper ? 2 : 1]);
    return progress == WEFT_MPI_AUTO && threads && w->size > 1 ? weft__mpi_choose(e, w) : WEFT_OK;
}
