/* fault.h — fault injection for tests: WEFT_FAULT="kill:rank=1:site=cp.ring:hit=3".
 * kinds: kill (SIGKILL to itself), stop (sleeps for ever), sleep:SECONDS, exit (leaves with code 5), fail (returns
 * WEFT_ERR_INTERNAL), nan (the site's caller puts a NaN), stray (the site's caller calls another collective than the
 * other ranks). A site is a string constant in the code. Sites that have rows of numbers also take inf and large
 * (infinity, 1e5), and row=N, column=N: where ("nan:rank=1:site=guard.k:row=3:column=2"). */
#ifndef WEFT_BASE_FAULT_H
#define WEFT_BASE_FAULT_H

#include "base/status.h"

typedef enum {
    WEFT_FAULT_NONE,
    WEFT_FAULT_KILL,
    WEFT_FAULT_STOP,
    WEFT_FAULT_SLEEP,
    WEFT_FAULT_EXIT,
    WEFT_FAULT_FAIL,
    WEFT_FAULT_NAN,
    WEFT_FAULT_STRAY,
    WEFT_FAULT_INF,
    WEFT_FAULT_LARGE,
    WEFT_FAULT_KINDS
} weft_fault_kind;

typedef struct weft_fault {
    weft_fault_kind kind;
    int rank;        /* -1: every rank */
    char site[40];
    int64_t hit;     /* acts at the hit-th pass (1 = first) */
    int64_t passed;
    int64_t seconds; /* of a sleep */
    int64_t row, column; /* of the number that is replaced */
} weft_fault;

/* spec NULL or "": no fault. */
weft_status weft_fault_parse(weft_fault *fault, const char *spec);
/* Called at a site. Acts when it is the turn; `nan` is set when the caller shall put a NaN (may be NULL). */
weft_status weft_fault_pass(weft_fault *fault, int rank, const char *site, bool *nan);
/* For sites that have a group of ranks, before weft_fault_pass: whether the caller shall stray. */
bool weft_fault_strays(weft_fault *fault, int rank, const char *site);

/* For sites with rows of numbers: whether the caller shall put *value at fault->row, fault->column. */
bool weft_fault_number(weft_fault *fault, int rank, const char *site, double *value);

#endif
