/* grid.h — the whole grid in one list of jobs: attention cases by strategy, layout, size and precision, all run in one
 * world of ranks that are threads or processes. */
#ifndef WEFT_TEST_GRID_H
#define WEFT_TEST_GRID_H

#include "harness/run.h"

/* Every strategy but "none", in the order of the table; every layout (striped with two blocks). */
const char *const *grid_strategies(int *n);
const char *const *grid_layouts(int *n);

typedef struct grid_job {
    test_run run;
    char what[160];    /* "ring zigzag P=4 fp32" */
    const char *path;
    const char *strategy;
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
grid_job *grid_add(grid_list *g, const char *path, const char *strategy, const char *layout, int P, const char *precision,
                   const char *const *more);
/* Runs all jobs on P ranks in one world; fails the test when the world fails. Verdicts are filled, not judged. */
void grid_run(grid_list *g, int P, bool processes);
/* Fails the test unless every job held; `ulysses` may be refused where it has more ranks than heads. */
void grid_judge(const grid_list *g, int at_least);

/* Runs fn(ctx, world, ud) on ranks that are processes forked from this one, over a local world; ud must lie in memory
 * that they share. Fails the test with the first failing rank's message. */
void test_processes(int ranks, weft_rank_fn fn, void *ud);

#endif
