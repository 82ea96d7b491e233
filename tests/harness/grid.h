/* grid.h — the whole grid in one list of jobs: attention cases by strategy, layout, size and precision, all run in one
 * world of ranks that are threads or processes. */
#ifndef WEFT_TEST_GRID_H
#define WEFT_TEST_GRID_H

#include "harness/run.h"

/* Every strategy but "none", in the order of the table; every layout (striped with two blocks). */
const char *const *grid_strategies(int *n);
const char *const *grid_layouts(int *n);
/* Query heads of an attention case. */
int grid_heads(const char *path);
/* Only ulysses may refuse, and must where it has more ranks than heads. */
bool grid_runs(const char *strategy, int P, int heads);

/* Deals (strategy, layout) pairs to cases of which each runs only one: the pair that ran least among those that the
 * case does not refuse, so that no case goes without a run and every pair has its turn. Starts zeroed. */
typedef struct grid_pair { const char *strategy, *layout; } grid_pair;
enum { GRID_PAIRS_MAX = 64 };
typedef struct grid_deal { int at, dealt, taken[GRID_PAIRS_MAX]; } grid_deal;
grid_pair grid_deal_next(grid_deal *d, int P, int heads);
/* Fails the test when a pair had no turn although there were as many as pairs. */
void grid_deal_check(const grid_deal *d);

typedef struct grid_job {
    test_run run;
    char what[160];    /* "ring zigzag P=4 fp32" */
    const char *path;
    const char *strategy;
    int ranks, heads;
    bool ran, refused;
    char refusal[300];
    test_verdict verdict;
} grid_job;

typedef struct grid_list {
    grid_job *job;     /* in memory that processes share */
    int n, capacity;
} grid_list;

void grid_open(grid_list *g, int capacity);
void grid_close(grid_list *g);
/* more: further option words, NULL-terminated, or NULL. */
grid_job *grid_add(grid_list *g, const char *path, const char *strategy, const char *layout, int P,
                   const char *precision, const char *const *more);
/* Runs all jobs on P ranks in one world; fails the test when the world fails. Verdicts are filled, not judged. */
void grid_run(grid_list *g, int P, bool processes);
/* Fails the test unless every job that must run held, with at least so many comparisons, and every other was refused
 * for its heads. Returns how many held. */
int grid_judge(const grid_list *g, int at_least);
/* The largest share of its limit that any comparison of any job took: how much room there is. */
double grid_worst(const grid_list *g);

/* Runs fn(ctx, world, ud) on ranks that are processes forked from this one, over a local world; ud must lie in memory
 * that they share. Fails the test with the first failing rank's message. */
void test_processes(int ranks, weft_rank_fn fn, void *ud);

#endif
