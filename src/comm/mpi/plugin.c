/* plugin.c — the functions of comm/mpi_abi.h over one MPI library: the only file that includes mpi.h.
 * Built once per library as libweft_mpi_<name>.so; it uses no symbol of the core. */
#include "comm/mpi_abi.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(OPEN_MPI)
#define MPI_NAME "openmpi"
#elif defined(MPICH_VERSION)
#define MPI_NAME "mpich"
#else
#error "an MPI that is neither Open MPI nor MPICH: name it here and in include/weft/mpi.h"
#endif

struct weft_mpi_end {
    MPI_Comm comm, node;
    MPI_Win shared;
    /* Active requests lie densely: MPI_Testsome looks at each of them. */
    int active, capacity;
    MPI_Request *request;
    uint64_t *token;
    bool *is_recv;
    int *index;          /* scratch of poll */
    MPI_Status *status;
    weft_mpi_done *done; /* what poll found; grows in poll only, so that its reader may post */
    int done_capacity;
    /* What ranks exchange while they open: here, because MPI may write to it after this rank stopped waiting. */
    int64_t mine[WEFT_MPI_LEAST], least[WEFT_MPI_LEAST];
    char text[2048];
};

/* ---- the process ---------------------------------------------------------------------------------------- */

static bool running(void)
{
    int begun = 0, ended = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    return begun && !ended;
}

static int start(bool *own)
{
    int begun = 0, provided;
    int e = MPI_Initialized(&begun);
    *own = false;
    if (e || begun) return e;
    e = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    *own = e == MPI_SUCCESS;
    return e;
}

static int stop(void) { return MPI_Finalize(); }
static void abort_job(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

static void library(char *text, size_t n)
{
    char whole[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(whole, &length);
    whole[strcspn(whole, ",\n")] = 0; /* the first line up to its details */
    char *at = strstr(whole, " Version:"); /* "MPICH Version:\t4.0.2" */
    if (at) memmove(at + 1, at + 10, strlen(at + 10) + 1);
    snprintf(text, n, "%s", whole);
}

static void error_text(int code, char *text, size_t n)
{
    static const char *const own[] = {
        [-WEFT_MPI_LATE] = "not every rank came in time",
        [-WEFT_MPI_NO_COMM] = "the communicator is MPI_COMM_NULL",
        [-WEFT_MPI_INTERCOMM] = "the communicator connects two groups",
        [-WEFT_MPI_NO_MEMORY] = "no memory",
        [-WEFT_MPI_NOT_SHARED] = "the ranks of a node cannot share memory",
    };
    if (code < 0 && (size_t)-code < sizeof own / sizeof *own) {
        snprintf(text, n, "%s", own[-code]);
        return;
    }
    char whole[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, whole, &length)) snprintf(whole, sizeof whole, "error %d", code);
    snprintf(text, n, "%s", whole);
}

/* ---- meeting without waiting for ever ------------------------------------------------------------------- */

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* MPI's own waits have no end, so what may meet a missing rank is started without blocking and looked at. A request
 * that is given up stays MPI's. */
static int finish(MPI_Request *request, double seconds)
{
    enum { SHORT_NAPS = 1000 };
    double deadline = seconds_now() + seconds;
    for (int round = 0;; round++) {
        int done = 0, e = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (e || done) return e;
        if (seconds_now() > deadline) return WEFT_MPI_LATE;
        struct timespec nap = {.tv_nsec = round < SHORT_NAPS ? 20000 : 1000000};
        nanosleep(&nap, NULL);
    }
}

static int least_over(weft_mpi_end *end, MPI_Comm comm, int64_t *v, int n, double seconds)
{
    MPI_Request request;
    memcpy(end->mine, v, (size_t)n * sizeof *v);
    int e = MPI_Iallreduce(end->mine, end->least, n, MPI_INT64_T, MPI_MIN, comm, &request);
    if (!e) e = finish(&request, seconds);
    if (!e) memcpy(v, end->least, (size_t)n * sizeof *v);
    return e;
}

static int least(weft_mpi_end *end, int64_t *v, int n, double seconds)
{
    return least_over(end, end->comm, v, n, seconds);
}

static int tell(weft_mpi_end *end, char *text, size_t bytes, int root, double seconds)
{
    MPI_Request request;
    if (bytes > sizeof end->text) return MPI_ERR_COUNT;
    memcpy(end->text, text, bytes);
    int e = MPI_Ibcast(end->text, (int)bytes, MPI_BYTE, root, end->comm, &request);
    if (!e) e = finish(&request, seconds);
    if (!e) memcpy(text, end->text, bytes);
    return e;
}

/* ---- ends ------------------------------------------------------------------------------------------------- */

static int describe(const weft_mpi_end *end, weft_mpi_info *info)
{
    int provided, found = 0, *upper = NULL;
    int e = MPI_Comm_rank(end->comm, &info->rank);
    if (!e) e = MPI_Comm_size(end->comm, &info->size);
    if (!e) e = MPI_Query_thread(&provided);
    if (!e) e = MPI_Comm_get_attr(end->comm, MPI_TAG_UB, &upper, &found);
    if (e) return e;
    info->threads = provided == MPI_THREAD_MULTIPLE;
    info->tag_max = found ? *upper : 32767; /* what the standard promises */
    return 0;
}

/* Of the first `ranks` ranks of `from`, or of all. MPI has no split that can be given up, so all ranks meet before. */
static int copy_comm(weft_mpi_end *end, MPI_Comm from, int ranks, double seconds)
{
    int rank, size;
    int64_t here = 0;
    MPI_Request request;
    int e = MPI_Comm_rank(from, &rank);
    if (!e) e = MPI_Comm_size(from, &size);
    if (e) return e;
    if (ranks <= 0 || ranks == size) {
        e = MPI_Comm_idup(from, &end->comm, &request);
        return e ? e : finish(&request, seconds);
    }
    e = least_over(end, from, &here, 1, seconds);
    return e ? e : MPI_Comm_split(from, rank < ranks ? 0 : MPI_UNDEFINED, rank, &end->comm);
}

/* Errors are returned meanwhile, whatever the caller's program does about them otherwise. */
static int fill_end(weft_mpi_end *end, MPI_Comm from, int ranks, double seconds, weft_mpi_info *info)
{
    int inter = 0;
    int e = MPI_Comm_test_inter(from, &inter);
    if (!e && inter) return WEFT_MPI_INTERCOMM;
    if (!e) e = copy_comm(end, from, ranks, seconds);
    if (e || end->comm == MPI_COMM_NULL) return e;
    e = MPI_Comm_set_errhandler(end->comm, MPI_ERRORS_RETURN);
    return e ? e : describe(end, info);
}

static int open_end(weft_mpi_end **out, const void *comm, int ranks, double seconds, weft_mpi_info *info)
{
    MPI_Comm from = MPI_COMM_WORLD;
    MPI_Errhandler callers;
    if (comm) memcpy(&from, comm, sizeof from);
    *out = NULL;
    if (from == MPI_COMM_NULL) return WEFT_MPI_NO_COMM;
    weft_mpi_end *end = calloc(1, sizeof *end);
    if (!end) return WEFT_MPI_NO_MEMORY;
    *end = (weft_mpi_end){.comm = MPI_COMM_NULL, .node = MPI_COMM_NULL, .shared = MPI_WIN_NULL};
    MPI_Comm_get_errhandler(from, &callers);
    MPI_Comm_set_errhandler(from, MPI_ERRORS_RETURN);
    int e = fill_end(end, from, ranks, seconds, info);
    MPI_Comm_set_errhandler(from, callers);
    MPI_Errhandler_free(&callers);
    if (!e && end->comm != MPI_COMM_NULL) *out = end;
    else if (e != WEFT_MPI_LATE) free(end);
    return e;
}

static int close_end(weft_mpi_end *end)
{
    int e = 0;
    if (end->shared != MPI_WIN_NULL) e = MPI_Win_free(&end->shared);
    if (!e && end->node != MPI_COMM_NULL) e = MPI_Comm_free(&end->node);
    if (!e) e = MPI_Comm_free(&end->comm);
    free(end->request), free(end->token), free(end->is_recv), free(end->index), free(end->status), free(end->done);
    free(end);
    return e;
}

/* Libraries put something of their own in front, of 8 bytes it may be. All processes map a window at some page, so what
 * is missing to a multiple is the same for all; where it is not, the window is of no use. */
static int align(weft_mpi_end *end, void **base)
{
    int mine = (int)(-(uintptr_t)*base % WEFT_MPI_ALIGN), first = mine;
    int e = MPI_Bcast(&first, 1, MPI_INT, 0, end->node);
    if (!e && first != mine) e = MPI_ERR_OTHER;
    *base = (char *)*base + mine;
    return e;
}

static int make_window(weft_mpi_end *end, size_t bytes, void **base, int *node_ranks)
{
    int rank = 0, unit;
    MPI_Aint size;
    void *mine;
    int e = MPI_Comm_split_type(end->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &end->node);
    if (!e) e = MPI_Comm_set_errhandler(end->node, MPI_ERRORS_RETURN);
    if (!e) e = MPI_Comm_rank(end->node, &rank);
    if (!e) e = MPI_Comm_size(end->node, node_ranks);
    if (!e)
        e = MPI_Win_allocate_shared(rank == 0 ? (MPI_Aint)(bytes + WEFT_MPI_ALIGN) : 0, 1, MPI_INFO_NULL, end->node,
                                    &mine, &end->shared);
    if (!e) e = MPI_Win_shared_query(end->shared, 0, &size, &unit, base);
    if (!e) e = align(end, base);
    if (!e && rank == 0) memset(*base, 0, bytes);
    return e;
}

/* The second meeting tells every rank that the memory is zeroed, or that some rank has none. A window that only some
 * have is left alone: freeing it takes all of them. */
static int share(weft_mpi_end *end, size_t bytes, double seconds, void **base, int *node_ranks)
{
    int64_t good = 0;
    *node_ranks = 1;
    int e = least(end, &good, 1, seconds);
    if (e) return e;
    good = make_window(end, bytes, base, node_ranks) == 0;
    e = least(end, &good, 1, seconds);
    if (e || good) return e;
    end->shared = MPI_WIN_NULL;
    end->node = MPI_COMM_NULL;
    return WEFT_MPI_NOT_SHARED;
}

/* ---- requests ----------------------------------------------------------------------------------------------- */

static bool grow(void **p, int capacity, size_t size)
{
    void *more = realloc(*p, (size_t)capacity * size);
    if (more) *p = more;
    return more != NULL;
}

/* Room for one more request. A part that has grown alone is only larger than it needs to be. */
static int make_room(weft_mpi_end *end)
{
    if (end->active < end->capacity) return 0;
    int more = end->capacity ? 2 * end->capacity : 256;
    void *request = end->request, *token = end->token, *is_recv = end->is_recv, *index = end->index,
         *status = end->status;
    bool good = grow(&request, more, sizeof *end->request) && grow(&token, more, sizeof *end->token) &&
                grow(&is_recv, more, sizeof *end->is_recv) && grow(&index, more, sizeof *end->index) &&
                grow(&status, more, sizeof *end->status);
    end->request = request, end->token = token, end->is_recv = is_recv, end->index = index, end->status = status;
    if (!good) return MPI_ERR_NO_MEM;
    end->capacity = more;
    return 0;
}

static void keep(weft_mpi_end *end, uint64_t token, bool is_recv)
{
    end->token[end->active] = token;
    end->is_recv[end->active] = is_recv;
    end->active++;
}

static int send(weft_mpi_end *end, const void *buf, int bytes, int peer, int tag, uint64_t token)
{
    int e = make_room(end);
    if (!e) e = MPI_Isend(buf, bytes, MPI_BYTE, peer, tag, end->comm, &end->request[end->active]);
    if (!e) keep(end, token, false);
    return e;
}

static int recv(weft_mpi_end *end, void *buf, int bytes, int peer, int tag, uint64_t token)
{
    int e = make_room(end);
    if (!e)
        e = MPI_Irecv(buf, bytes, MPI_BYTE, peer < 0 ? MPI_ANY_SOURCE : peer, tag, end->comm,
                      &end->request[end->active]);
    if (!e) keep(end, token, true);
    return e;
}

static void fill_done(const weft_mpi_end *end, int at, MPI_Status *status, int error, weft_mpi_done *done)
{
    int count = 0, cancelled = 0;
    *done = (weft_mpi_done){.token = end->token[at], .source = -1, .error = error};
    if (!end->is_recv[at] || error) return;
    MPI_Test_cancelled(status, &cancelled);
    done->cancelled = cancelled;
    if (cancelled) return;
    MPI_Get_count(status, MPI_BYTE, &count);
    done->bytes = (size_t)count;
    done->source = status->MPI_SOURCE;
}

/* The hole that a completed request leaves is filled with the last one. */
static void close_holes(weft_mpi_end *end)
{
    for (int i = 0; i < end->active;) {
        if (end->request[i] != MPI_REQUEST_NULL) {
            i++;
            continue;
        }
        int last = --end->active;
        end->request[i] = end->request[last];
        end->token[i] = end->token[last];
        end->is_recv[i] = end->is_recv[last];
    }
}

static int room_for_done(weft_mpi_end *end)
{
    if (end->active <= end->done_capacity) return 0;
    void *done = end->done;
    if (!grow(&done, end->capacity, sizeof *end->done)) return MPI_ERR_NO_MEM;
    end->done = done;
    end->done_capacity = end->capacity;
    return 0;
}

static int poll(weft_mpi_end *end, const weft_mpi_done **done, int *n)
{
    int completed = 0;
    *n = 0;
    if (end->active == 0) return 0;
    int e = room_for_done(end);
    if (e) return e;
    e = MPI_Testsome(end->active, end->request, &completed, end->index, end->status);
    if (e && e != MPI_ERR_IN_STATUS) return e;
    if (completed == MPI_UNDEFINED || completed == 0) return 0;
    for (int i = 0; i < completed; i++)
        fill_done(end, end->index[i], &end->status[i], e ? end->status[i].MPI_ERROR : 0, &end->done[i]);
    *done = end->done;
    *n = completed;
    close_holes(end);
    return 0;
}

static int cancel(weft_mpi_end *end, uint64_t token)
{
    for (int i = 0; i < end->active; i++)
        if (end->token[i] == token && end->is_recv[i]) return MPI_Cancel(&end->request[i]);
    return 0;
}

static int open_requests(const weft_mpi_end *end) { return end->active; }

/* ---- the door ------------------------------------------------------------------------------------------------- */

static const weft_mpi_abi abi = {
    .version = WEFT_MPI_ABI,
    .bytes = sizeof(weft_mpi_abi),
    .mpi = MPI_NAME,
    .handle_bytes = sizeof(MPI_Comm),
    .start = start,
    .stop = stop,
    .running = running,
    .abort_job = abort_job,
    .library = library,
    .error_text = error_text,
    .open = open_end,
    .close = close_end,
    .least = least,
    .tell = tell,
    .share = share,
    .send = send,
    .recv = recv,
    .poll = poll,
    .cancel = cancel,
    .open_requests = open_requests,
};

__attribute__((visibility("default"))) const weft_mpi_abi *weft_mpi_plugin(void);
const weft_mpi_abi *weft_mpi_plugin(void) { return &abi; }
