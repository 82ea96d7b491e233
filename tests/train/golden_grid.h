/* golden_grid.h — golden attention cases against numbers of the same program on one rank: shared by the small and the
 * long test. With a deal each case runs one (strategy, layout) pair of it; with NULL all pairs. */
#ifndef WEFT_TEST_GOLDEN_GRID_H
#define WEFT_TEST_GOLDEN_GRID_H

#include "harness/grid.h"
#include "harness/test.h"

#include <unistd.h>

enum { GOLDEN_JOBS = 4096 };

/* Pair x of all for a case, or the next of the deal. */
static inline grid_pair golden_pair(grid_deal *deal, int x, const char *path, int P)
{
    int ns, nl;
    const char *const *strategy = grid_strategies(&ns), *const *layout = grid_layouts(&nl);
    return deal ? grid_deal_next(deal, P, grid_heads(path)) : (grid_pair){strategy[x / nl], layout[x % nl]};
}

/* How many pairs a case runs. */
static inline int golden_pairs(const grid_deal *deal)
{
    int ns, nl;
    grid_strategies(&ns), grid_layouts(&nl);
    return deal ? 1 : ns * nl;
}

/* Adds what a case runs; file_of says of every job which case it is of. */
static inline void golden_add(grid_list *g, char path[TEST_FILES_MAX][512], int files, int P, const char *precision,
                              grid_deal *deal, int *file_of)
{
    for (int f = 0; f < files; f++)
        for (int x = 0; x < golden_pairs(deal); x++) {
            grid_pair p = golden_pair(deal, x, path[f], P);
            file_of[g->n] = f;
            grid_add(g, path[f], p.strategy, p.layout, P, precision, NULL);
        }
}

/* Of all pairs of all cases, how many are not refused. */
static inline int golden_runs(char path[TEST_FILES_MAX][512], int files, int P)
{
    int ns, nl, n = 0;
    const char *const *strategy = grid_strategies(&ns);
    grid_layouts(&nl);
    for (int f = 0; f < files; f++)
        for (int s = 0; s < ns; s++) n += grid_runs(strategy[s], P, grid_heads(path[f])) ? nl : 0;
    return n;
}

/* Design 6: 16-bit inputs lose no more on many ranks than on one, because partial results stay fp32: at most 1.25
 * times the error at P = 1, or below a quarter of the limit. */
static inline void golden_narrow(const char *precision, int P, grid_deal *deal)
{
    char path[TEST_FILES_MAX][512];
    int files = test_golden_attention(path);
    static int file_of[GOLDEN_JOBS];
    grid_list one, many;
    grid_open(&one, files);
    grid_open(&many, GOLDEN_JOBS);
    for (int f = 0; f < files; f++) grid_add(&one, path[f], "none", "contiguous", 1, precision, NULL);
    golden_add(&many, path, files, P, precision, deal, file_of);
    grid_run(&one, 1, false);
    grid_run(&many, P, false);
    assert_int_equal(grid_judge(&one, 5), files);
    int held = grid_judge(&many, 5);
    assert_int_equal(held, deal ? files : golden_runs(path, files, P));
    for (int i = 0; i < many.n; i++) {
        const test_verdict *v = &many.job[i].verdict, *w = &one.job[file_of[i]].verdict;
        for (int t = 0; t < v->n && t < TEST_FINDINGS; t++)
            if (!(v->error[t] <= fmax(1.25 * w->error[t], v->limit[t] / 4)))
                fail_msg("%s, %s: finding %d: %.2e on ranks, %.2e on one", many.job[i].path, many.job[i].what, t,
                         v->error[t], w->error[t]);
    }
    print_message("P=%d, %s: %d runs hold, at most %.2f of a limit\n", P, precision, held, grid_worst(&many));
    grid_close(&one);
    grid_close(&many);
}

static inline double golden_difference(const char *a, const char *b)
{
    weft_st *x = NULL, *y = NULL;
    double worst = 0;
    assert_ok(weft_st_open(&x, a));
    assert_ok(weft_st_open(&y, b));
    const weft_view *o = weft_st_find(y, "o");
    assert_int_equal(weft_st_count(x), weft_st_count(y));
    for (int i = 0; i < weft_st_count(x); i++) {
        const weft_st_entry *e = weft_st_at(x, i);
        const weft_view *want = weft_st_find(y, e->name);
        assert_non_null(want);
        assert_int_equal(e->view.dtype, WEFT_F64);
        int64_t count = weft_view_count(want);
        double floor = weft_norm2(o->data, o->dtype, weft_view_count(o)) / 100;
        double d = !strcmp(e->name, "lse") ? weft_max_scaled(e->view.data, WEFT_F64, want->data, WEFT_F64, count)
                                           : weft_rel_l2(e->view.data, WEFT_F64, want->data, WEFT_F64, count, floor);
        if (!(d <= worst)) worst = d;
    }
    weft_st_close(x);
    weft_st_close(y);
    return worst;
}

static inline double golden_exact_case(const char *path, int P, const grid_pair *p, const char *one, const char *many)
{
    grid_list g;
    double d = 0;
    grid_open(&g, 1);
    grid_add(&g, path, p->strategy, p->layout, P, "fp64", (const char *[]){"--out", many, NULL});
    grid_run(&g, P, false);
    if (grid_judge(&g, 5)) {
        d = golden_difference(many, one);
        if (!(d <= 1e-12)) fail_msg("%s, %s differs from one rank by %.2e", path, g.job[0].what, d);
        assert_int_equal(unlink(many), 0); /* the next run must write its own */
    }
    grid_close(&g);
    return d;
}

/* fp64 on P ranks within 1e-12 of one rank, tensor by tensor through the written files. */
static inline void golden_exact(int P, grid_deal *deal)
{
    char path[TEST_FILES_MAX][512], one[64], many[64];
    int files = test_golden_attention(path);
    double worst = 0;
    snprintf(one, sizeof one, "/tmp/weft-test-one-%ld.safetensors", (long)getpid());
    snprintf(many, sizeof many, "/tmp/weft-test-many-%ld.safetensors", (long)getpid());
    for (int f = 0; f < files; f++) {
        grid_list g;
        grid_open(&g, 1);
        grid_add(&g, path[f], "none", "contiguous", 1, "fp64", (const char *[]){"--out", one, NULL});
        grid_run(&g, 1, false);
        assert_int_equal(grid_judge(&g, 5), 1);
        grid_close(&g);
        for (int x = 0; x < golden_pairs(deal); x++) {
            grid_pair p = golden_pair(deal, x, path[f], P);
            worst = fmax(worst, golden_exact_case(path[f], P, &p, one, many));
        }
    }
    unlink(one);
    print_message("P=%d, fp64: within %.1e of one rank\n", P, worst);
}

#endif
