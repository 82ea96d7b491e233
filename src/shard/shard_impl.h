/* shard_impl.h — what a layout is, for the files of this room only.
 *
 * A layout answers one question: which runs of a row of T tokens does a rank hold, and in which order do
 * they lie in its memory? Documents are no business of a chunk layout: shard.c cuts each run at document
 * bounds, so row counts never depend on them. A new layout is one file and one line in layout_list.c. */
#ifndef WEFT_SHARD_IMPL_H
#define WEFT_SHARD_IMPL_H

#include "shard/shard.h"

typedef struct weft__run { /* tokens token, token + stride, ... (len of them) of a row */
    int64_t token, len, stride;
} weft__run;

typedef struct weft__layout_ops {
    const char *name;
    /* How many runs of each row `rank` holds. Empty runs are allowed. */
    int64_t (*runs)(int64_t T, int P, int rank);
    /* Run i of them, in memory order. Over all ranks and runs every token comes exactly once. Runs are in
     * token order, so that a rank's segments are sorted by (row, document, position): weft_join needs it. */
    weft__run (*run)(int64_t T, int P, int rank, int64_t i);
} weft__layout_ops;

extern const weft__layout_ops weft__layout_contiguous, weft__layout_zigzag;
const weft__layout_ops *weft__layout_get(weft_layout l);

/* First token of chunk i of n: floor(i T / n), without the product that could overflow. 0 <= i <= n. */
static inline int64_t weft__chunk_begin(int64_t T, int64_t n, int64_t i) { return i * (T / n) + i * (T % n) / n; }

static inline weft__run weft__chunk(int64_t T, int64_t n, int64_t i)
{
    int64_t begin = weft__chunk_begin(T, n, i);
    return (weft__run){begin, weft__chunk_begin(T, n, i + 1) - begin, 1};
}

#endif
