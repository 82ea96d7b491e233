/* balanced_impl.h — the state of dealing documents, for balanced.c and balanced_cut.c. */
#ifndef WEFT_SHARD_BALANCED_IMPL_H
#define WEFT_SHARD_BALANCED_IMPL_H

#include "shard/shard_impl.h"

enum {
    WEFT__POOL = -1,                  /* in the place of a rank: not yet dealt */
    WEFT__WHOLE = 1, WEFT__PART = 2,  /* in the place of a stride: all of a document or not */
    WEFT__BALANCED_PIECES = 4         /* of a document that a rank may hold */
};

typedef struct weft__deal {
    weft_shard *s;
    weft_segment *seg;    /* documents, heaviest first, then pieces cut off them; contiguous, so `run` holds the rank */
    int64_t docs, n;      /* n: with the pieces */
    int64_t total, mean;  /* area of all; of a rank */
    int64_t *room, *load; /* of each rank: tokens that it lacks, area that it has */
    int reserve;          /* sixteenths of a rank's tokens that whole documents leave free */
    bool heads;           /* a rank may take all from the two ends of one document, even if something is lighter */
    int64_t hi, lo;       /* pool documents that were never cut lie in seg[hi .. lo] */
    weft__heap cut;       /* pool documents that were, by -(end); those dealt since are skipped */
} weft__deal;

/* Area of n queries from position p on. */
static inline int64_t weft__weight(int64_t p, int64_t n) { return n * p + n * (n + 1) / 2; }

static inline int64_t weft__room_for_whole(const weft__deal *x, int64_t r)
{
    int64_t rows = x->s->rows[r];
    return x->room[r] - (rows / 16 * x->reserve + rows % 16 * x->reserve / 16);
}

/* Deals what no rank has yet, so that every rank gets all its tokens. Returns how many tokens that were. */
int64_t weft__deal_pool(weft__deal *x);

/* Exchanges tokens between ranks until no area is above limit * mean, or nothing helps any more. */
void weft__deal_even(weft__deal *x, double limit);

#endif
