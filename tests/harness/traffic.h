/* traffic.h — what a rank sends, by the formulas of docs/maths/context_parallel.md, worked out from lengths, heads and
 * the numbers of ranks alone. Nothing here asks a plan, a shard or a strategy: what they get wrong shows. */
#ifndef WEFT_TEST_TRAFFIC_H
#define WEFT_TEST_TRAFFIC_H

#include "shard/shard.h"

typedef struct traffic_case { /* of a full mask */
    const char *strategy;
    weft_layout layout;
    int P;
    int U;                    /* of dcp and its kin; 0: the largest divisor of P that is at most Hkv */
    int64_t B, Tq, T;
    int H, Hkv, D, Dv;
    int group, head0;         /* of a part of a model's heads; group 0: all */
    weft_prec prec;
    bool keep_heads;
    size_t piece;             /* bytes of a piece at most; 0: whole messages */
} traffic_case;

typedef struct traffic { int64_t forward_bytes, backward_bytes, forward_messages, backward_messages; } traffic;

traffic traffic_of(const traffic_case *c, int rank);
/* Of pairwise and dcp-pairwise with a causal mask, one document per row, Tq = T, contiguous, or zigzag where 2P divides
 * T; window: keys that a query sees before it, at most a chunk; -1: all. */
traffic traffic_causal_pairwise(const traffic_case *c, int rank, int64_t window);

/* Rows of B sequences of T tokens on one of P ranks. */
int64_t traffic_rows(weft_layout layout, int64_t B, int64_t T, int P, int rank);
/* A message of so many bytes in pieces. */
int64_t traffic_pieces(int64_t bytes, size_t piece);

#endif
