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

#endif
