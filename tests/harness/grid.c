/* grid.c — see grid.h. */
#include "harness/grid.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/test.h"

const char *const *grid_strategies(int *n)
{
    const char *const *names = weft_cp_names(n);
    assert_string_equal(names[0], "none");
    --*n;
    return names + 1;
}

const char *const *grid_layouts(int *n)
{
    static const char *const names[] = {"contiguous", "zigzag", "striped", "striped:16", "balanced"};
    *n = (int)(sizeof names / sizeof *names);
    return names;
}

static void *shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) fail_msg("no shared memory of %zu bytes", bytes);
    return p;
}

void grid_open(grid_list *g, int capacity)
{
    *g = (grid_list){shared((size_t)capacity * sizeof(grid_job)), 0, capacity};
}

void grid_close(grid_list *g)
{
    for (int i = 0; i < g->n; i++) test_run_close(&g->job[i].run);
    munmap(g->job, (size_t)g->capacity * sizeof(grid_job));
}

grid_job *grid_add(grid_list *g, const char *path, const char *strategy, const char *layout, int P, const char *precision,
                   const char *const *more)
{
    enum { WORDS = 32 };
    char ranks[16];
    const char *words[WORDS] = {"--cp", ranks, "--cp-strategy", strategy, "--cp-layout", layout, "--precision", precision};
    int n = 8;
    snprintf(ranks, sizeof ranks, "%d", P);
    for (; more && *more; more++) words[n++] = *more;
    words[n] = NULL;
    if (g->n == g->capacity) fail_msg("a grid of more than %d jobs", g->capacity);
    grid_job *j = &g->job[g->n++];
    j->path = path;
    j->strategy = strategy;
    snprintf(j->what, sizeof j->what, "%s %s P=%d %s", strategy, layout, P, precision);
    test_run_open(&j->run, WEFT_CMD_ATTENTION, words);
    return j;
}

static weft_status run_jobs(weft_ctx *ctx, weft_world *world, void *ud)
{
    grid_list *g = ud;
    for (int i = 0; i < g->n; i++) {
        grid_job *j = &g->job[i];
        test_verdict v;
        weft_status st = test_verify_rank(ctx, world, &j->run, NULL, j->path, &v);
        if (st < 0 && st != WEFT_ERR_REFUSED) return weft_fail_at(st, "%s, %s: ", j->path, j->what);
        if (ctx->rank != 0) continue;
        j->ran = true;
        j->refused = st == WEFT_ERR_REFUSED;
        if (j->refused) snprintf(j->refusal, sizeof j->refusal, "%s", weft_last_error());
        else j->verdict = v;
    }
    return WEFT_OK;
}

void grid_run(grid_list *g, int P, bool processes)
{
    if (processes) test_processes(P, run_jobs, g);
    else if (weft_run_threads(P, run_jobs, g) < 0) fail_msg("%d threads: %s", P, weft_last_error());
}

void grid_judge(const grid_list *g, int at_least)
{
    for (int i = 0; i < g->n; i++) {
        const grid_job *j = &g->job[i];
        if (j->refused && !strcmp(j->strategy, "ulysses") && strstr(j->refusal, "head")) continue;
        if (j->refused) fail_msg("%s, %s was refused: %s", j->path, j->what, j->refusal);
        if (!j->ran || j->verdict.failed || j->verdict.n < at_least)
            fail_msg("%s, %s: %d of %d fail, %s", j->path, j->what, j->verdict.failed, j->verdict.n, j->verdict.worst);
    }
}

/* ---- ranks as processes ------------------------------------------------------------------------------- */

typedef struct outcome { weft_status st; char message[600]; } outcome;

static void child(weft_local *local, int rank, int ranks, weft_rank_fn fn, void *ud, outcome *out)
{
    weft_ctx ctx;
    weft_world *world = NULL;
    weft_ctx_init(&ctx);
    ctx.rank = rank;
    ctx.world = ranks;
    out->st = weft_world_local(&world, &ctx, local, rank);
    if (out->st >= 0) out->st = fn(&ctx, world, ud);
    if (out->st < 0) snprintf(out->message, sizeof out->message, "%s", weft_last_error());
    if (world && out->st < 0) weft_world_abort(world, out->st, out->message);
    weft_world_close(world);
    _exit(out->st < 0);
}

void test_processes(int ranks, weft_rank_fn fn, void *ud)
{
    enum { MOST = 128 };
    pid_t pid[MOST];
    weft_local *local;
    outcome *out = shared((size_t)ranks * sizeof *out);
    char first[700] = "";
    assert_true(ranks <= MOST);
    assert_ok(weft_local_create(&local, ranks));
    fflush(NULL);
    for (int r = 0; r < ranks; r++) {
        pid[r] = fork();
        assert_true(pid[r] >= 0);
        if (pid[r] == 0) child(local, r, ranks, fn, ud, &out[r]);
    }
    for (int r = 0; r < ranks; r++) {
        int status;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        if (status && !first[0])
            snprintf(first, sizeof first, "rank %d of %d processes ended with status %d: %s", r, ranks, status, out[r].message);
    }
    weft_local_destroy(local);
    munmap(out, (size_t)ranks * sizeof *out);
    if (first[0]) fail_msg("%s", first);
}
