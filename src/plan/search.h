/* search.h — which layout of a step over so many ranks is fastest and fits, why, and what it would take to do better.
 * Part of the room's door: plan.h says what one layout takes, this file looks for the best of all. LOCAL, pure. */
#ifndef WEFT_PLAN_SEARCH_H
#define WEFT_PLAN_SEARCH_H

#include "plan/plan.h"

enum { WEFT_PLAN_FREE = -1 }; /* of a field of weft_plan_fixed: the search chooses */
typedef struct weft_plan_fixed { /* what the user has said */
    int tp, cp, dp, pp, sequence_parallel, zero, head_size, order, recompute, keep_attention, offload, fp8;
    int64_t micro_batch;
    const char *strategy;        /* NULL: free */
    bool layout_given;
    weft_layout layout;
} weft_plan_fixed;
weft_plan_fixed weft_plan_all_free(void); /* LOCAL, pure */

typedef struct weft_search_ask {
    weft_plan_ask step;
    const weft_profile *profile;
    const weft_target *target;   /* NULL: Weft */
    int ranks;
    double memory;               /* bytes that a rank may hold; 0: no limit */
    weft_plan_fixed fixed;
    int best;                    /* layouts to be listed, at most WEFT_PLAN_BEST_MAX */
    bool simulate;               /* the exchange of cp of those that are listed, where it has at most 512 ranks */
} weft_search_ask;

enum { WEFT_PLAN_BEST_MAX = 64, WEFT_PLAN_SIMULATED_RANKS = 512 };

typedef struct weft_plan_found {
    weft_layout_choice choice;
    weft_plan_time time;
    weft_memory memory;          /* of the rank with most */
    bool simulated;              /* seconds of cp and of its imbalance are the simulator's */
} weft_plan_found;

typedef struct weft_plan_refusal { /* a rule, and how many layouts broke it */
    const char *rule;
    int64_t count;
    char example[240];
} weft_plan_refusal;

typedef enum weft_plan_gain { WEFT_GAIN_TIME, WEFT_GAIN_TIME_MORE, WEFT_GAIN_MEMORY, WEFT_GAINS } weft_plan_gain;
typedef struct weft_plan_knob { /* one change of the best choice */
    bool there;
    char change[96];             /* "--recompute block" */
    double step, memory;         /* seconds and bytes with it */
    bool rounds;                 /* it changes numbers: a narrower type on the wire */
} weft_plan_knob;

typedef struct weft_plan_verdict { /* of a rule of thumb */
    const char *rule, *source;
    char value[64], own[96], because[240];
    enum { WEFT_RULE_AGREES, WEFT_RULE_DIFFERS, WEFT_RULE_SILENT } verdict; /* silent: says nothing of this case */
} weft_plan_verdict;

enum { WEFT_PLAN_REFUSALS = 32, WEFT_PLAN_VERDICTS = 16 };

typedef struct weft_search_result {
    weft_arena *arena;           /* of what follows */
    weft_mem mem;
    int64_t layouts, choices, asked; /* cuts of the ranks (with micro-batch, sequence parallelism, ZeRO); times
                                        predicted; memories counted */
    weft_plan_found *best;       /* [n] that fit, the best of each tp x cp x dp x pp, fastest first */
    int n;
    weft_plan_found of_cp[2];    /* the fastest without context parallelism, and with it ... */
    bool has_cp[2];              /* ... where one fits */
    weft_plan_found *front;      /* [n_front] no choice that was looked at is both faster and smaller; fastest first */
    int n_front;
    weft_plan_found least;       /* the one that needs least memory, of those that were counted */
    bool has_least;
    weft_plan_refusal refusal[WEFT_PLAN_REFUSALS];
    int refusals;
    int64_t longest;             /* tokens of a sequence; 0: none */
    weft_plan_found longest_choice;
    weft_plan_knob knob[WEFT_GAINS];
    weft_plan_verdict verdict[WEFT_PLAN_VERDICTS];
    int verdicts;
    weft_text reason;            /* lines */
} weft_search_result;

/* Refuses what no layout could do whatever it was: fixed sizes that do not divide the ranks, options that no strategy
 * takes. That nothing fits is a result with n = 0. `any`: any communicator of this process. */
weft_status weft_plan_search(weft_search_result *out, const weft_search_ask *ask, const weft_kern *kern,
                             weft_comm *any);
void weft_search_result_free(weft_search_result *r);
/* The longest sequence, in steps of weft_plan_length_step, for which some layout fits; *found: that one. 0: none */
weft_status weft_plan_longest(int64_t *T, weft_plan_found *found, const weft_search_ask *ask, const weft_kern *kern,
                              weft_comm *any);
int64_t weft_plan_length_step(int64_t T); /* 1 below 1,024 tokens, else 1,024 */
/* Is there memory of a host beside that of its ranks, as with GPUs? Then what is offloaded lies there, and so do copies
 * for checkpoints. LOCAL, pure */
static inline bool weft_plan_has_host(const weft_profile *profile) { return profile->host_bytes > 0; }

#endif
