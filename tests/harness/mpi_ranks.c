#include "harness/mpi_ranks.h"
#include "harness/test.h"

enum { CONTROL_TIMEOUT = 100 }; /* seconds; below the limit of a test, so that its message is seen */

/* Of the process: opened at the first use, since a test has no place of its own for it. */
static struct control {
    weft_mpi_launch launch;
    weft_mpi *mpi;
    weft_ctx ctx;
    weft_world *world; /* of all processes; lives as long as the test */
    bool looked;
} control;

static void close_control(void)
{
    weft_world_close(control.world);
    weft_mpi_stop(control.mpi);
    weft_mpi_unload(control.mpi);
}

/* Before cmocka prints its first line: one process of many speaks. Failures go to the standard error of all. */
__attribute__((constructor)) static void mute(void)
{
    weft_mpi_launch l;
    if (weft_mpi_launched(&l) >= 0 && l.rank > 0 && !freopen("/dev/null", "w", stdout)) exit(3);
}

static void give_up(const char *what)
{
    fprintf(stderr, "test: %s: %s\n", what, weft_last_error());
    exit(3);
}

static struct control *get(void)
{
    if (control.looked) return &control;
    control.looked = true;
    if (weft_mpi_launched(&control.launch) < 0) give_up("launcher");
    if (control.launch.size == 0) return &control;
    weft_ctx_init(&control.ctx);
    if (weft_mpi_load(&control.mpi, control.launch.mpi) < 0) give_up("plugin");
    if (weft_mpi_start(control.mpi) < 0) give_up("MPI");
    if (weft_world_mpi(&control.world, &control.ctx, control.mpi, &(weft_mpi_options){0}) < 0) give_up("world");
    weft_world_set_timeout(control.world, CONTROL_TIMEOUT);
    atexit(close_control);
    return &control;
}

bool test_under_mpi(void) { return get()->launch.size > 0; }
int test_run_most(void) { return test_under_mpi() ? get()->launch.size : 128; }

/* ---- one run ------------------------------------------------------------------------------------------------ */

typedef struct verdict { int status, cause; char message[512]; } verdict;

static weft_status set_progress(weft_world *w)
{
    const char *way = getenv("WEFT_TEST_PROGRESS");
    return way ? weft_world_set_progress(w, !strcmp(way, "thread") ? WEFT_MPI_THREAD : WEFT_MPI_CALLBACK) : WEFT_OK;
}

static size_t message_limit(void)
{
    const char *limit = getenv("WEFT_MPI_MAX_MESSAGE");
    return limit ? (size_t)strtoull(limit, NULL, 10) : 0;
}

/* This process' part; the same rules as for threads: a failure that nobody was told ends the others' waits. */
static verdict run_here(int P, weft_rank_fn fn, void *ud)
{
    weft_ctx ctx;
    weft_world *w = NULL;
    verdict v = {.cause = -1};
    weft_ctx_init(&ctx);
    ctx.rank = control.launch.rank;
    ctx.world = P;
    weft_status st = weft_world_mpi(&w, &ctx, control.mpi, &(weft_mpi_options){.ranks = P, .max_message = message_limit()});
    if (st < 0) give_up("opening a world");
    if (!w) return v;
    st = set_progress(w);
    if (st >= 0) st = fn(&ctx, w, ud);
    v.status = st < 0 ? st : WEFT_OK;
    snprintf(v.message, sizeof v.message, "%s", st < 0 ? weft_last_error() : "");
    if (st < 0) weft_world_abort(w, st, v.message);
    weft_barrier(weft_world_all(w)); /* so that a failure elsewhere is known here; fails where it is */
    v.cause = weft_world_failed_rank(w);
    weft_world_close(w);
    return v;
}

static weft_status judge(int P, const verdict *v)
{
    for (int r = 0; r < P; r++) {
        if (v[r].cause < 0) continue;
        const verdict *first = &v[v[r].cause];
        char name[24] = "";
        if (strncmp(first->message, "rank ", 5)) snprintf(name, sizeof name, "rank %d: ", v[r].cause);
        return weft_fail((weft_status)first->status, "%s%s", name, first->message);
    }
    return WEFT_OK;
}

static void share(void *all, const void *mine, size_t bytes)
{
    int n = control.launch.size;
    size_t *counts = malloc((size_t)n * sizeof *counts);
    if (!counts) give_up("memory");
    for (int i = 0; i < n; i++) counts[i] = bytes;
    if (weft_all_gather(weft_world_all(control.world), mine, all, counts) < 0) give_up("processes fell out of step");
    free(counts);
}

void test_run_merge(int P, void *data, const void *before, size_t bytes)
{
    if (!test_under_mpi() || bytes == 0) return;
    unsigned char *all = malloc((size_t)control.launch.size * bytes), *to = data;
    const unsigned char *old = before;
    if (!all) give_up("memory");
    share(all, data, bytes);
    memcpy(to, old, bytes);
    for (int r = 0; r < P; r++)
        for (size_t i = 0; i < bytes; i++)
            if (all[(size_t)r * bytes + i] != old[i]) to[i] = all[(size_t)r * bytes + i];
    free(all);
}

weft_status test_run(int P, weft_rank_fn fn, void *ud, size_t bytes)
{
    if (!test_under_mpi()) return weft_run_threads(P, fn, ud);
    int n = get()->launch.size;
    if (P > n) fail_msg("%d ranks are needed, mpirun started %d", P, n);
    void *before = malloc(bytes + 1);
    verdict *all = calloc((size_t)n, sizeof *all), mine;
    if (!before || !all) give_up("memory");
    memcpy(before, ud ? ud : "", ud ? bytes : 0);
    mine = run_here(P, fn, ud);
    share(all, &mine, sizeof mine);
    if (ud) test_run_merge(P, ud, before, bytes);
    weft_status st = judge(P, all);
    free(before);
    free(all);
    return st;
}
