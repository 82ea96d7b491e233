/* shard_impl.h — what a layout is, for the files of this room only.
 *
 * A chunk layout answers one question: which runs of a row of T tokens does a rank hold, and in which order do
 * they lie in its memory? Documents are no business of a chunk layout: segments.c cuts each run at document
 * bounds, so row counts never depend on them. A new layout is one file and one line in layout_list.c. */
#ifndef WEFT_SHARD_IMPL_H
#define WEFT_SHARD_IMPL_H

#include "shard/shard.h"

typedef struct weft__run { /* `len` tokens of a row, in runs of `run` every `stride`; contiguous: run = stride = 1 */
    int64_t token, len, run, stride;
} weft__run;

typedef struct weft__layout_ops {
    const char *name;
    bool has_block; /* NAME:k */
    int64_t pieces; /* weft_layout_pieces of one rank */
    bool joins;     /* a group of neighbours holds no more pieces of a document than one rank */
    int64_t runs;   /* of each row that a rank holds, at most */
    /* Run i of them, in memory order; may be empty. Over all ranks and runs every token comes exactly once. Runs
     * are in token order, so that a rank's segments are sorted by (row, document, position): weft_join needs it. */
    weft__run (*run)(weft_layout l, int64_t T, int P, int rank, int64_t i);
    int64_t (*capacity)(weft_layout l, int64_t B, int64_t T, int64_t docs, int P); /* weft_shard_capacity */
    /* Instead of cutting the runs at document bounds; then `run` only says how many tokens a rank holds. Or NULL. */
    weft_status (*make)(weft_shard *s, const weft_docs *docs);
} weft__layout_ops;

extern const weft__layout_ops weft__layout_contiguous, weft__layout_zigzag, weft__layout_striped,
    weft__layout_balanced;
const weft__layout_ops *weft__layout_get(weft_layout l);
/* The layout of R = P / U ranks that gives what groups of U neighbours hold. */
weft_layout weft__layout_group(weft_layout l, int U);
/* Capacity of layouts of at most 2P chunks. */
int64_t weft__chunk_capacity(weft_layout l, int64_t B, int64_t T, int64_t docs, int P);

weft__run weft__contiguous_run(weft_layout l, int64_t T, int P, int rank, int64_t i);

/* First token of chunk i of n: floor(i T / n), without the product that could overflow. 0 <= i <= n. */
static inline int64_t weft__chunk_begin(int64_t T, int64_t n, int64_t i) { return i * (T / n) + i * (T % n) / n; }

static inline weft__run weft__chunk(int64_t T, int64_t n, int64_t i)
{
    int64_t begin = weft__chunk_begin(T, n, i);
    return (weft__run){begin, weft__chunk_begin(T, n, i + 1) - begin, 1, 1};
}

/* Position of the first token of document d of row b. */
static inline int64_t weft__doc_start(const weft_shard *s, const weft_docs *docs, int64_t b, int64_t d)
{
    return s->pos0 + (docs->start ? docs->start[docs->first[b] + d] : 0);
}

static inline int64_t weft__clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

/* How many of the `len` tokens first, ... (runs of `run` every `stride`) lie below t. */
static inline int64_t weft__count_below(int64_t first, int64_t len, int64_t run, int64_t stride, int64_t t)
{
    int64_t d = t - first;
    return d <= 0 ? 0 : weft_min_i64(len, d / stride * run + weft_min_i64(d % stride, run));
}

/* ---- sort.c ---------------------------------------------------------------------------------------------- */

typedef bool weft__before(const weft_segment *a, const weft_segment *b);
bool weft__by_token(const weft_segment *a, const weft_segment *b);
void weft__sort(weft_segment *seg, int64_t n, weft__before *before);

typedef struct weft__item { double key; int64_t id; } weft__item;
typedef struct weft__heap { weft__item *item; int64_t n; } weft__heap; /* item[0]: the least key, then the least id */
void weft__heap_push(weft__heap *h, weft__item x);
void weft__heap_pop(weft__heap *h);
void weft__heap_sink(weft__heap *h); /* after item[0] has changed */

/* What dealing needs besides the segments (balanced.c). */
struct weft_shard_work {
    int64_t *tokens, *area;            /* [capacity + 1] */
    int64_t *room, *load;              /* [P] */
    weft__item *ranks, *full, *cut;    /* [P], [P], [2P] */
};

/* ---- segments.c: writing segments ---------------------------------------------------------------------- */

typedef struct weft__writer { /* appends segments; remembers where the rank's begin, so as not to merge across ranks */
    weft_shard *s;
    int64_t n, rank_begin;
} weft__writer;

/* Appends a segment, or lengthens the last one when it is continued. */
weft_status weft__append(weft__writer *w, weft_segment seg);
/* Appends the tokens of `run` in [begin, end), which are of one document. `like` names its row and document, and
 * gives the distance between position and token. A document that begins inside a run gets a head and a body. */
weft_status weft__append_cut(weft__writer *w, const weft_segment *like, const weft__run *run, int64_t begin,
                             int64_t end);

#endif
