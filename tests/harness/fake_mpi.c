#include "harness/fake_mpi.h"
#include "comm/mpi_impl.h"
#include "harness/test.h"

enum { RANKS = 8, CODE = 77, TAG_MAX = 32767, EAGER = 4096 };

typedef struct fake_request {
    struct fake_request *next;
    char *buf, *copy; /* copy: of a short message, which is complete for its sender at once, as in real libraries */
    int bytes, source, peer, tag, error; /* peer -1: any */
    uint64_t token;
    bool is_recv, done, cancelled, told; /* told: by poll */
} fake_request;

typedef struct fake_job fake_job;

struct weft_mpi_end {
    fake_job *job;
    int rank, hits;
    fake_request *first, **last; /* in order of posting */
    weft_mpi_done *done;
    int capacity, meetings;
};

typedef struct meeting { int came; int64_t least[WEFT_MPI_LEAST]; char text[2048]; } meeting;

struct fake_job { /* `lock` guards everything */
    const fake_plan *plan;
    int ranks, closed;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    weft_mpi_end *end[RANKS];
    meeting meetings[64]; /* by number: each rank goes through all of them */
    void *node[RANKS];
};

typedef struct fake_handle { fake_job *job; int rank; } fake_handle; /* the MPI_Comm of this library */

static bool fails(weft_mpi_end *end, fake_call call)
{
    const fake_plan *p = end->job->plan;
    return p->fails == call && p->rank == end->rank && ++end->hits == p->hit;
}

/* ---- the process ---------------------------------------------------------------------------------------- */

static int start(bool *own)
{
    *own = false;
    return 0;
}
static int stop(void) { return 0; }
static bool running(void) { return true; }
static void abort_job(int code) { (void)code; }
static void library(char *text, size_t n) { snprintf(text, n, "fake MPI"); }
static void error_text(int code, char *text, size_t n) { snprintf(text, n, "fake error %d", code); }

/* ---- ends --------------------------------------------------------------------------------------------------- */

static int open_end(weft_mpi_end **out, const void *comm, int ranks, double seconds, weft_mpi_info *info)
{
    (void)ranks, (void)seconds;
    const fake_handle *h = comm;
    weft_mpi_end *end = calloc(1, sizeof *end);
    if (!end) return WEFT_MPI_NO_MEMORY;
    *end = (weft_mpi_end){.job = h->job, .rank = h->rank};
    end->last = &end->first;
    pthread_mutex_lock(&h->job->lock);
    h->job->end[h->rank] = end;
    pthread_mutex_unlock(&h->job->lock);
    int tag_max = h->job->plan->tag_max;
    *info = (weft_mpi_info){.rank = h->rank,
                            .size = h->job->ranks,
                            .tag_max = tag_max ? tag_max : TAG_MAX,
                            .threads = true};
    *out = end;
    return 0;
}

/* Ends stay until the job is over: a rank that failed leaves without the others. */
static int close_end(weft_mpi_end *end)
{
    pthread_mutex_lock(&end->job->lock);
    end->job->closed++;
    pthread_mutex_unlock(&end->job->lock);
    return 0;
}

static int meet(weft_mpi_end *end, int64_t *v, int n, char *text, size_t bytes, int root, double seconds)
{
    fake_job *job = end->job;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    double at = (double)until.tv_sec + 1e-9 * (double)until.tv_nsec + seconds;
    until = (struct timespec){(time_t)at, (long)((at - (double)(time_t)at) * 1e9)};
    pthread_mutex_lock(&job->lock);
    meeting *m = &job->meetings[end->meetings++];
    for (int i = 0; i < n; i++)
        if (m->came == 0 || v[i] < m->least[i]) m->least[i] = v[i];
    if (end->rank == root) memcpy(m->text, text, bytes);
    m->came++;
    pthread_cond_broadcast(&job->changed);
    int e = 0;
    while (m->came < job->ranks && e == 0) e = pthread_cond_timedwait(&job->changed, &job->lock, &until);
    if (e == 0 && n > 0) memcpy(v, m->least, (size_t)n * sizeof *v);
    if (e == 0 && bytes > 0) memcpy(text, m->text, bytes);
    pthread_mutex_unlock(&job->lock);
    return e ? WEFT_MPI_LATE : 0;
}

static int least(weft_mpi_end *end, int64_t *v, int n, double seconds)
{
    return fails(end, FAKE_LEAST) ? CODE : meet(end, v, n, NULL, 0, -1, seconds);
}

static int tell(weft_mpi_end *end, char *text, size_t bytes, int root, double seconds)
{
    return meet(end, NULL, 0, text, bytes, root, seconds);
}

static int share(weft_mpi_end *end, size_t bytes, double seconds, void **base, int *node_ranks)
{
    fake_job *job = end->job;
    int of = job->plan->node_ranks > 0 ? job->plan->node_ranks : job->ranks, node = end->rank / of;
    int64_t good = !fails(end, FAKE_SHARE);
    pthread_mutex_lock(&job->lock);
    if (!job->node[node]) {
        job->node[node] = aligned_alloc(64, (bytes + 8 + 63) / 64 * 64);
        memset(job->node[node], 0, bytes + 8);
    }
    *base = (char *)job->node[node] + (job->plan->askew ? 8 : 0);
    pthread_mutex_unlock(&job->lock);
    *node_ranks = job->ranks - node * of < of ? job->ranks - node * of : of;
    int e = meet(end, &good, 1, NULL, 0, -1, seconds);
    return e || good ? e : WEFT_MPI_NOT_SHARED;
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

static void free_request(fake_request *r)
{
    free(r->copy);
    free(r);
}

/* The first receive of `to` that takes a message of `from`, or the first message of `from` for a receive of `to`. */
static fake_request *find(weft_mpi_end *owner, const fake_request *r, int other)
{
    for (fake_request *q = owner->first; q; q = q->next) {
        if (q->done || q->is_recv == r->is_recv || q->tag != r->tag) continue;
        if (q->peer == other || (q->is_recv && q->peer < 0)) return q;
    }
    return NULL;
}

static void move(weft_mpi_end *to, fake_request *in, fake_request *out, int source)
{
    in->error = out->bytes > in->bytes ? CODE : 0;
    int n = out->bytes < in->bytes ? out->bytes : in->bytes;
    if (n > 4 && in->tag >= WEFT_MPI_TAG_DATA && fails(to, FAKE_SHORT)) n--;
    memcpy(in->buf, out->buf, (size_t)n);
    in->bytes = n;
    in->source = source;
    in->done = out->done = true;
}

static void match(weft_mpi_end *end, fake_request *r)
{
    for (int p = 0; p < end->job->ranks; p++) {
        weft_mpi_end *other = end->job->end[p];
        if (!other || (r->peer >= 0 && r->peer != p)) continue;
        fake_request *q = find(other, r, end->rank);
        if (!q) continue;
        if (r->is_recv) move(end, r, q, p);
        else move(other, q, r, end->rank);
        return;
    }
}

static int post(weft_mpi_end *end, fake_request request)
{
    fake_request *r = malloc(sizeof *r);
    if (!r) return WEFT_MPI_NO_MEMORY;
    *r = request;
    if (!r->is_recv && r->bytes <= EAGER) r->buf = memcpy(r->copy = malloc(EAGER), r->buf, (size_t)r->bytes);
    pthread_mutex_lock(&end->job->lock);
    match(end, r);
    *end->last = r;
    end->last = &r->next;
    pthread_mutex_unlock(&end->job->lock);
    return 0;
}

static int send(weft_mpi_end *end, const void *buf, int bytes, int peer, int tag, uint64_t token)
{
    fake_request r = {.bytes = bytes, .peer = peer, .tag = tag, .token = token};
    memcpy(&r.buf, &buf, sizeof buf);
    return fails(end, FAKE_SEND) ? CODE : post(end, r);
}

static int recv(weft_mpi_end *end, void *buf, int bytes, int peer, int tag, uint64_t token)
{
    if (fails(end, FAKE_RECV)) return CODE;
    return post(end,
                (fake_request){.buf = buf, .bytes = bytes, .peer = peer, .tag = tag, .token = token, .is_recv = true});
}

static int poll(weft_mpi_end *end, const weft_mpi_done **done, int *n)
{
    *n = 0;
    if (fails(end, FAKE_POLL)) return CODE;
    pthread_mutex_lock(&end->job->lock);
    fake_request **link = &end->first;
    while (*link) {
        fake_request *r = *link;
        if (!r->told && (r->done || r->copy)) {
            if (*n == end->capacity) end->done = realloc(end->done, (size_t)(end->capacity += 64) * sizeof *end->done);
            end->done[(*n)++] = (weft_mpi_done){.token = r->token,
                                                .bytes = r->is_recv ? (size_t)r->bytes : 0,
                                                .source = r->source,
                                                .error = r->error,
                                                .cancelled = r->cancelled};
            r->told = true;
        }
        if (r->done) *link = r->next, free_request(r);
        else link = &r->next;
    }
    end->last = link;
    pthread_mutex_unlock(&end->job->lock);
    *done = end->done;
    return 0;
}

static int cancel(weft_mpi_end *end, uint64_t token)
{
    pthread_mutex_lock(&end->job->lock);
    for (fake_request *r = end->first; r; r = r->next)
        if (r->token == token && !r->told && r->is_recv && !r->done) r->done = r->cancelled = true;
    pthread_mutex_unlock(&end->job->lock);
    return 0;
}

static int open_requests(const weft_mpi_end *end)
{
    int n = 0;
    pthread_mutex_lock(&end->job->lock);
    for (const fake_request *r = end->first; r; r = r->next) n += !r->told;
    pthread_mutex_unlock(&end->job->lock);
    return n;
}

static const weft_mpi_abi abi = {
    .version = WEFT_MPI_ABI,
    .bytes = sizeof(weft_mpi_abi),
    .mpi = "fake",
    .handle_bytes = sizeof(fake_handle),
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

/* ---- ranks ------------------------------------------------------------------------------------------------------ */

typedef struct fake_rank {
    fake_handle handle;
    const weft_mpi *mpi;
    weft_rank_fn fn;
    void *ud;
    weft_status st;
    int cause;
    char message[1024];
} fake_rank;

static weft_status in_world(fake_rank *r, weft_ctx *ctx, weft_world *world)
{
    const fake_plan *plan = r->handle.job->plan;
    weft_status st = plan->thread ? weft_world_set_progress(world, WEFT_MPI_THREAD) : WEFT_OK;
    if (st >= 0) st = r->fn(ctx, world, r->ud);
    if (st < 0) weft_world_abort(world, st, weft_last_error());
    r->cause = weft_world_failed_rank(world);
    return st;
}

static void *rank_main(void *ud)
{
    fake_rank *r = ud;
    const fake_plan *plan = r->handle.job->plan;
    weft_ctx ctx;
    weft_world *world = NULL;
    weft_ctx_init(&ctx);
    ctx.rank = r->handle.rank;
    ctx.world = r->handle.job->ranks;
    weft_mpi_options options = {.comm = &r->handle, .comm_bytes = sizeof r->handle,
                                .max_message = plan->limits[ctx.rank],
                                .timeout = plan->timeout > 0 ? plan->timeout : 20};
    r->cause = -1;
    r->st = WEFT_OK;
    if (plan->late == 1 + ctx.rank) return NULL;
    r->st = weft_world_mpi(&world, &ctx, r->mpi, &options);
    if (r->st >= 0) r->st = in_world(r, &ctx, world);
    snprintf(r->message, sizeof r->message, "%s", r->st < 0 ? weft_last_error() : "");
    weft_world_close(world);
    return NULL;
}

static weft_status judge(const fake_rank *r, int ranks)
{
    for (int i = 0; i < ranks; i++)
        if (r[i].st < 0 && (r[i].cause < 0 || r[i].cause == i)) return weft_fail(r[i].st, "%s", r[i].message);
    for (int i = 0; i < ranks; i++)
        if (r[i].st < 0) return weft_fail(r[i].st, "%s", r[i].message);
    return WEFT_OK;
}

static void free_job(fake_job *job)
{
    for (int i = 0; i < job->ranks; i++) {
        weft_mpi_end *end = job->end[i];
        free(job->node[i]);
        if (!end) continue;
        for (fake_request *q = end->first; q;) {
            fake_request *next = q->next;
            free_request(q);
            q = next;
        }
        free(end->done);
        free(end);
    }
    pthread_mutex_destroy(&job->lock);
    pthread_cond_destroy(&job->changed);
    free(job);
}

weft_status fake_mpi_run(int ranks, const fake_plan *plan, weft_rank_fn fn, void *ud)
{
    static const weft_mpi mpi = {.abi = &abi, .library = "fake MPI"};
    pthread_t thread[RANKS];
    fake_rank rank[RANKS];
    fake_job *job = calloc(1, sizeof *job);
    if (!job || ranks > RANKS) fail_msg("%d ranks of %d", ranks, RANKS);
    job->plan = plan;
    job->ranks = ranks;
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->changed, NULL);
    for (int r = 0; r < ranks; r++) {
        rank[r] = (fake_rank){.handle = {job, r}, .mpi = &mpi, .fn = fn, .ud = ud};
        if (pthread_create(&thread[r], NULL, rank_main, &rank[r])) fail_msg("no thread for rank %d", r);
    }
    for (int r = 0; r < ranks; r++) pthread_join(thread[r], NULL);
    weft_status st = judge(rank, ranks);
    free_job(job);
    return st;
}
