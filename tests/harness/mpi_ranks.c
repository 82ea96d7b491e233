#include "harness/mpi_ranks.h"
#include "harness/test.h"

#include <unistd.h>

enum { CONTROL_TIMEOUT = 100 }; /* seconds; below the limit of a test, so that its message is seen */

/* Of the process: opened at the first use, since a test has no place of its own for it. */
static struct control {
    weft_mpi_launch launch;
    weft_mpi *mpi;
    weft_ctx ctx;
    weft_world *world; /* of all processes; lives as long as the test */
    bool looked;
} control;

/* Worlds of P ranks, kept while they are good: opening one takes many of MPI's own waits, which spin. */
enum { KEPT = 33 };
static struct kept { bool open; weft_world *world; /* NULL beyond the first P */ weft_ctx ctx; } kept[KEPT];

static void close_control(void)
{
    test_run_renew();
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
    _exit(3); /* closing the worlds would wait for the others */
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

static void drop(int P);

void test_run_renew(void)
{
    for (int P = 0; P < KEPT; P++) drop(P);
}

static weft_status set_progress(weft_world *w)
{
    const char *way = getenv("WEFT_TEST_PROGRESS");
    return way ? weft_world_set_progress(w, !strcmp(way, "thread") ? WEFT_MPI_THREAD : WEFT_MPI_CALLBACK) : WEFT_OK;
}

static size_t chosen_limit;

void test_run_limit(size_t bytes)
{
    test_run_renew();
    chosen_limit = bytes;
}

static size_t message_limit(void)
{
    if (chosen_limit) return chosen_limit;
    const char *limit = getenv("WEFT_MPI_MAX_MESSAGE");
    return limit ? (size_t)strtoull(limit, NULL, 10) : 0;
}

/* All processes open it, in step, whether they are among the first P or not: MPI asks for that. */
static void open_world(int P)
{
    struct kept *k = &kept[P];
    weft_mpi_options options = {.ranks = P, .max_message = message_limit(), .alone = getenv("WEFT_TEST_ALONE") != NULL};
    if (k->open) return;
    weft_ctx_init(&k->ctx);
    k->ctx.rank = control.launch.rank;
    k->ctx.world = P;
    if (weft_world_mpi(&k->world, &k->ctx, control.mpi, &options) < 0) give_up("opening a world");
    if (k->world && set_progress(k->world) < 0) give_up("progress");
    k->open = true;
}

/* This process' part; the same rules as for threads: a failure that nobody was told ends the others' waits. */
static verdict run_here(int P, weft_rank_fn fn, void *ud)
{
    verdict v = {.cause = -1};
    struct kept *k = &kept[P];
    if (!k->world) return v;
    k->ctx.fault = (weft_fault){0}; /* as a new world */
    weft_world_set_timeout(k->world, 120);
    weft_place(k->world, "start", -1, -1);
    weft_status st = fn(&k->ctx, k->world, ud);
    v.status = st < 0 ? st : WEFT_OK;
    snprintf(v.message, sizeof v.message, "%s", st < 0 ? weft_last_error() : "");
    if (st < 0) weft_world_abort(k->world, st, v.message);
    weft_barrier(weft_world_all(k->world)); /* so that a failure elsewhere is known here; fails where it is */
    v.cause = weft_world_failed_rank(k->world);
    return v;
}

static void drop(int P)
{
    weft_world_close(kept[P].world);
    kept[P].world = NULL;
    kept[P].open = false;
}

/* A world that failed stays failed. */
static void drop_failed(int P, const verdict *v)
{
    bool failed = false;
    for (int r = 0; r < P; r++) failed |= v[r].cause >= 0;
    if (failed) drop(P);
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
    if (P > n || P >= KEPT) fail_msg("%d ranks are needed, mpirun started %d", P, n);
    void *before = malloc(bytes + 1);
    verdict *all = calloc((size_t)n, sizeof *all), mine;
    if (!before || !all) give_up("memory");
    memcpy(before, ud ? ud : "", ud ? bytes : 0);
    open_world(P);
    mine = run_here(P, fn, ud);
    share(all, &mine, sizeof mine);
    drop_failed(P, all);
    if (ud) test_run_merge(P, ud, before, bytes);
    weft_status st = judge(P, all);
    free(before);
    free(all);
    return st;
}
