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

int grid_heads(const char *path)
{
    weft_st *st = NULL;
    assert_ok(weft_st_open(&st, path));
    const weft_view *q = weft_st_find(st, "q");
    assert_non_null(q);
    int heads = (int)q->shape[2];
    weft_st_close(st);
    return heads;
}

bool grid_runs(const char *strategy, int P, int heads) { return strcmp(strategy, "ulysses") || P <= heads; }

static int divisor(int a, int b) { return b ? divisor(b, a % b) : a; }

grid_pair grid_deal_next(grid_deal *d, int P, int heads)
{
    enum { STEP = 8 }; /* the next strategy, and another layout */
    int ns, nl, best = -1;
    const char *const *strategy = grid_strategies(&ns), *const *layout = grid_layouts(&nl);
    int pairs = ns * nl;
    assert_true(pairs <= GRID_PAIRS_MAX);
    if (divisor(STEP, pairs) != 1)
        fail_msg("steps of %d do not meet all of %d pairs: take a step without a common factor", STEP, pairs);
    for (int i = 0, x = d->at; i < pairs; i++, x = (x + STEP) % pairs)
        if (grid_runs(strategy[x / nl], P, heads) && (best < 0 || d->taken[x] < d->taken[best])) best = x;
    d->at = (best + STEP) % pairs;
    d->taken[best]++;
    d->dealt++;
    return (grid_pair){strategy[best / nl], layout[best % nl]};
}

void grid_deal_check(const grid_deal *d)
{
    int ns, nl;
    const char *const *strategy = grid_strategies(&ns), *const *layout = grid_layouts(&nl);
    for (int x = 0; x < ns * nl && d->dealt >= ns * nl; x++)
        if (!d->taken[x]) fail_msg("%s %s never had a turn in %d", strategy[x / nl], layout[x % nl], d->dealt);
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

grid_job *grid_add(grid_list *g, const char *path, const char *strategy, const char *layout, int P,
                   const char *precision, const char *const *more)
{
    enum { WORDS = 32 };
    char ranks[16];
    const char *words[WORDS] = {"--cp",        ranks,  "--cp-strategy", strategy,
                                "--cp-layout", layout, "--precision",   precision};
    int n = 8;
    snprintf(ranks, sizeof ranks, "%d", P);
    for (; more && *more; more++) words[n++] = *more;
    words[n] = NULL;
    if (g->n == g->capacity) fail_msg("a grid of more than %d jobs", g->capacity);
    grid_job *j = &g->job[g->n++];
    j->path = path;
    j->strategy = strategy;
    j->ranks = P;
    j->heads = grid_heads(path);
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

/* The refusal of more ranks than heads, with the number of heads and what would work. */
static void judge_refusal(const grid_job *j)
{
    char heads[64];
    snprintf(heads, sizeof heads, "there are %d; use dcp", j->heads);
    if (!j->refused) fail_msg("%s, %s was not refused: only %d heads", j->path, j->what, j->heads);
    if (!strstr(j->refusal, heads))
        fail_msg("%s, %s: refused, but not for its %d heads: %s", j->path, j->what, j->heads, j->refusal);
}

int grid_judge(const grid_list *g, int at_least)
{
    int held = 0;
    for (int i = 0; i < g->n; i++) {
        const grid_job *j = &g->job[i];
        const test_verdict *v = &j->verdict;
        if (!j->ran) fail_msg("%s, %s did not run", j->path, j->what);
        if (!grid_runs(j->strategy, j->ranks, j->heads)) {
            judge_refusal(j);
            continue;
        }
        if (j->refused) fail_msg("%s, %s was refused: %s", j->path, j->what, j->refusal);
        if (v->failed || v->n < at_least)
            fail_msg("%s, %s: %d of %d fail, %s", j->path, j->what, v->failed, v->n, v->worst);
        held++;
    }
    return held;
}

double grid_worst(const grid_list *g)
{
    double worst = 0;
    for (int i = 0; i < g->n; i++) {
        const test_verdict *v = &g->job[i].verdict;
        for (int t = 0; t < v->n && t < TEST_FINDINGS; t++) worst = fmax(worst, v->error[t] / v->limit[t]);
    }
    return worst;
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
            snprintf(first, sizeof first, "rank %d of %d processes ended with status %d: %s", r, ranks, status,
                     out[r].message);
    }
    weft_local_destroy(local);
    munmap(out, (size_t)ranks * sizeof *out);
    if (first[0]) fail_msg("%s", first);
}
