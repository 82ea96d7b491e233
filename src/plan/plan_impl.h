/* plan_impl.h — what the files of this room share: the work of a step in numbers, groups of ranks and the links
 * between them. Letters as in docs/maths/plan.md. */
#ifndef WEFT_PLAN_IMPL_H
#define WEFT_PLAN_IMPL_H

#include "plan/plan.h"

/* ---- work (work.c) ------------------------------------------------------------------------------------------- */

typedef struct weft__product { /* [M,K] [K,N], `calls` of them together */
    double M, N, K;
    double bytes;              /* read and written */
    double calls;
} weft__product;

enum { WEFT__PRODUCTS_MAX = 8 };

typedef struct weft__amount {  /* of one pass over a micro-batch through one layer, on one rank */
    weft__product product[WEFT__PRODUCTS_MAX];
    int products;
    double attention;          /* so many times a layer's attention, forward or backward as the pass is */
    double elements;           /* bytes read and written element by element */
    double loss;               /* the same of the cross-entropy */
    double tp_rows, tp_sums;   /* elements gathered over tp, and added up: the whole, of all ranks together */
    double tp_calls;           /* exchanges over tp that follow one another */
} weft__amount;

/* `again`: what recomputation repeats of the forward pass. */
typedef enum { WEFT__FORWARD, WEFT__BACKWARD, WEFT__AGAIN, WEFT__PASSES } weft__direction;
typedef struct weft__layer_work { weft__amount pass[WEFT__PASSES]; } weft__layer_work;

typedef struct weft__step_work {
    double rows, stream;       /* of a micro-batch on a rank: tokens, rows of the residual stream */
    double embedding_rows;     /* entries of the vocabulary on a rank */
    weft__layer_work layer, embedding, head;
} weft__step_work;
/* Of the rank with most: rows of the largest share, heads and columns of the last part of tp. LOCAL, pure */
weft__step_work weft__work_of(const weft_plan_ask *ask, const weft_layout_choice *choice);
/* Bytes that the optimizer and the zeroing of gradients read and write on a rank of a stage. LOCAL, pure */
double weft__optimizer_bytes(const weft_plan_ask *ask, const weft_layout_choice *choice, int stage);
/* Parameters on a rank of a stage; -1 where they do not fit. LOCAL, pure */
double weft__stage_params(const weft_plan_ask *ask, const weft_layout_choice *choice, int stage);

/* Refuses ways for which some part of tp has too few heads: time.c. LOCAL, pure */
weft_status weft__check_least_part(const weft_profile *profile, const weft_plan_ask *ask,
                                   const weft_layout_choice *choice);

/* Whether inputs of layers are offloaded on a stage: time.c. LOCAL, pure */
bool weft__offloads(const weft_plan_ask *ask, const weft_layout_choice *choice, int stage, int64_t micros);

/* ---- links (links.c) ----------------------------------------------------------------------------------------- */

typedef struct weft__peers { int size, in_node; } weft__peers; /* ranks of a group; of them in one node, at most */
weft__peers weft__peers_of(const weft_profile *profile, const weft_layout_choice *choice, weft_plan_link link);
/* Bytes that a rank sends to all others of its group alike, `calls` times one after the other. */
typedef struct weft__exchange { double node, link, seconds; } weft__exchange;
weft__exchange weft__exchange_of(const weft_profile *profile, weft__peers peers, double bytes, double calls);
/* The machine as the ranks of cp see it, which lie apart: fewer of them share a node. */
weft_profile weft__profile_of_cp(const weft_profile *profile, const weft_layout_choice *choice);

/* ---- the search ------------------------------------------------------------------------------------------------ */

typedef struct weft__way { /* one way for keys and values to travel */
    const char *strategy;
    int head_size;
    weft_layout layout;
    double seconds;            /* that it adds to all layers, forward and backward */
} weft__way;

enum { WEFT__WAYS_MAX = 48 };
typedef struct weft__ways { /* those of a part of heads on so many ranks, fastest first */
    int tp, cp, near;
    int64_t micro_batch;
    weft__way way[WEFT__WAYS_MAX];
    int n;
} weft__ways;

typedef struct weft__stand { /* of a layer, by the simulator: seconds beyond what a rank computes on average */
    weft_layout_choice choice; /* as far as attention goes */
    int near, layers;          /* kind of layer: its number */
    double forward, backward;
} weft__stand;
enum { WEFT__STANDS_MAX = 4 * WEFT_PLAN_BEST_MAX };

typedef struct weft__frame { /* a cut of the ranks; without recomputation its time is the least it can be */
    weft_layout_choice choice;
    const weft__ways *ways;
    double seconds;
} weft__frame;

typedef struct weft__search {
    const weft_search_ask *ask;
    const weft_target *target;
    weft_plan_ask step;        /* with the target's widths */
    weft_plan_system system;
    const weft_kern *kern;
    weft_comm *any;
    weft_search_result *out;
    weft__ways **cache;        /* [n_cache] */
    int n_cache, cache_room;
    weft__stand *stand;        /* [n_stands] of at most WEFT__STANDS_MAX */
    int n_stands;
    bool left_out, thorough;   /* cuts that are slower than their neighbours; with them: those have nothing to offer */
    weft__frame *frame;        /* [frames] ascending seconds */
    int64_t frames, frame_room;
} weft__search;

/* layouts.c: all frames, each with its best order of ranks and way; refusals are counted. */
weft_status weft__search_frames(weft__search *s);
/* The ways of a cut, fastest first; cached. */
weft_status weft__ways_of(weft__search *s, const weft_layout_choice *c, const weft__ways **out);
void weft__count_refusal(weft_search_result *r, const char *rule, const char *example, int64_t count);
weft_layout_choice weft__with_way(const weft_layout_choice *c, const weft__way *way);
/* search.c: bytes of the rank with most, by the target. */
weft_status weft__memory_of(weft__search *s, const weft_layout_choice *c, weft_memory *out);
weft_status weft__time_of(weft__search *s, const weft_layout_choice *c, weft_plan_time *out);
bool weft__fits(const weft__search *s, const weft_memory *m);
/* What the user left free of recomputation and offloading, in n choices of the same cut. */
enum { WEFT__LADDER_MAX = 16 };
int weft__ladder(const weft__search *s, const weft_layout_choice *c, weft_layout_choice out[WEFT__LADDER_MAX]);
/* knobs.c, reason.c, rules.c, simulated.c: of a search whose best is known. */
weft_status weft__search_knobs(weft__search *s);
weft_status weft__search_reason(weft__search *s);
weft_status weft__search_rules(weft__search *s);
weft_status weft__simulate_cp(weft__search *s, weft_plan_found *x);
/* "a|b|c" holds the word. */
bool weft__listed(const char *list, const char *word);
/* What a rule of the target says of a choice: nothing where it is taken. */
bool weft__taken(const weft__search *s, const weft_layout_choice *c);

#endif
