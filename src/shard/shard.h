/* shard.h — the door of the room `shard`: which tokens a rank holds, and who sees whom. Integers only.
 *
 * A rank's share of a micro-batch is a list of segments, in the order in which its rows lie in memory
 * (rank-major: all of one rank's pieces, row by row, ascending in token). With 2P chunks, chunk i of a row is
 * [floor(iT/2P), floor((i+1)T/2P)); contiguous gives rank r chunks 2r and 2r+1, zigzag chunks r and 2P-1-r,
 * striped:k token t to rank floor(t/k) mod P, balanced as many tokens per rank as contiguous, dealt by
 * documents. No length has to divide anything; shares may be uneven or empty. */
#ifndef WEFT_SHARD_H
#define WEFT_SHARD_H

#include "tensor/tensor.h"
#include "kern/kern.h"

typedef struct weft_segment { /* `len` tokens of one document of one row, in runs of `run` every `stride` */
    int64_t row;
    int64_t doc;    /* number of the document in its row */
    int64_t start;  /* position within the document of the first token */
    int64_t len, run, stride; /* 1 <= run <= stride; one contiguous piece: run = stride = 1 */
    int64_t token;  /* index in the row of the first token */
} weft_segment;

/* How far the i-th token of a segment lies behind its first. */
static inline int64_t weft_segment_step(const weft_segment *s, int64_t i)
{
    return i / s->run * s->stride + i % s->run;
}

typedef enum {
    WEFT_LAYOUT_CONTIGUOUS, WEFT_LAYOUT_ZIGZAG, WEFT_LAYOUT_STRIPED, WEFT_LAYOUT_BALANCED, WEFT_LAYOUT_COUNT
} weft_layout_kind;
typedef struct weft_layout {
    weft_layout_kind kind;
    int64_t block; /* k of striped:k (0 is 1); 0 for the others */
} weft_layout;
/* "zigzag", "striped:128" into buf, which it returns. */
const char *weft_layout_text(weft_layout l, char *buf, size_t n);
const char *weft_layout_name(weft_layout l); /* without the block */
weft_status weft_layout_parse(const char *s, weft_layout *out);

/* The documents of B rows of T tokens. Row b has offsets cu[first[b]] .. cu[first[b+1]-1]: the first is 0,
 * the last is T, never decreasing (empty documents are allowed). Owned by the caller. */
typedef struct weft_docs {
    int64_t B, T;
    const int64_t *cu;
    const int64_t *first; /* [B+1] */
    const int64_t *start; /* position of the first token of document d of row b: start[first[b] + d]; NULL: 0. For
                             queries that are the last part of a row whose documents begin before them */
} weft_docs;
weft_status weft_docs_check(const weft_docs *docs);
/* One document in each of B rows. */
weft_status weft_docs_whole(weft_docs *out, weft_arena *arena, int64_t B, int64_t T);

/* All ranks' segments of one micro-batch. */
typedef struct weft_shard {
    int P;
    weft_layout layout;
    int64_t B, T;
    int64_t pos0;            /* position of token 0 of a row: T_keys - T for queries that are the last part */
    int64_t capacity;        /* segments that fit */
    weft_segment *seg;       /* of rank r: seg[first[r]] .. seg[first[r+1]-1] */
    int64_t *first;          /* [P+1] */
    int64_t *rows;           /* [P] tokens of rank r */
    int64_t sample0;         /* number of row 0 within the step, for dropout's addresses; 0 unless the caller says
                                more */
    struct weft_shard_work *work; /* scratch of weft_shard_make */
} weft_shard;

/* Segments that P ranks can need for B rows of T tokens with at most `docs` documents in all (with empty ones). */
int64_t weft_shard_capacity(weft_layout layout, int64_t B, int64_t T, int64_t docs, int P);
/* The most segments of one document of a row that U neighbouring ranks can hold together (joined, as by
 * weft_shard_group; U = 1: one rank). */
int64_t weft_layout_pieces(weft_layout layout, int U);
weft_status weft_shard_alloc(weft_shard *s, weft_arena *arena, int P, int64_t capacity);
/* Fills s. pos0 != 0 needs one document per row. Refuses more segments than fit. LOCAL, same on every rank. */
weft_status weft_shard_make(weft_shard *s, weft_layout layout, const weft_docs *docs, int64_t pos0);
/* Both in one, with the room that these documents need. Checks them. LOCAL */
weft_status weft_shard_create(weft_shard *s, weft_arena *arena, weft_layout layout, int P, const weft_docs *docs,
                              int64_t pos0);
/* Tokens of rank r: what any shard with this layout gives, without making one. */
int64_t weft_shard_rows(weft_layout layout, int64_t B, int64_t T, int P, int rank);
/* The largest over ranks. */
int64_t weft_shard_max_rows(weft_layout layout, int64_t B, int64_t T, int P);

/* The shard of R = P / U groups of U neighbouring ranks each, in `out`: group r holds what ranks U r .. U r + U - 1 of
 * `in` hold together, sorted by row and token, pieces that continue each other merged. So rows of a group's memory
 * are in token order whatever the layout; a group of a chunk layout is what the same layout gives on R ranks, of
 * striped:k what striped:kU gives. `out` is allocated for R ranks with room for as many segments as `in` has (the
 * capacity for P ranks). U divides P. LOCAL, no allocation */
weft_status weft_shard_group(weft_shard *out, const weft_shard *in, int U);

/* Rows of `owner` (keys) that the queries of `rank` can see, as ranges of its memory rows: ascending, disjoint,
 * not touching. Exact: a row is in them iff some query sees it. Returns how many there are, or -1 when there are more
 * than `capacity`. There are never more than the rank's queries have runs (of consecutive positions) plus the owner's
 * keys have segments. LOCAL, no allocation, the same on every rank */
int64_t weft_shard_need(const weft_mask *mask, const weft_shard *q, int rank, const weft_shard *k, int owner,
                        weft_range *out, int64_t capacity);

/* The token index in [0, B*T) and the position in its document, of every local row of `rank`. */
void weft_shard_tokens(const weft_shard *s, int rank, int64_t *index, int64_t *pos);

/* Visible (query, key) pairs of two segments (weft_attn_area); 0 for different rows or documents. Exact. */
int64_t weft_visible_area(const weft_mask *mask, const weft_segment *q, const weft_segment *k);
/* Visible pairs of the queries of `rank`, over the keys of `owner` (or of all ranks: owner -1). */
int64_t weft_shard_area(const weft_mask *mask, const weft_shard *q, int rank, const weft_shard *k, int owner);
/* The same over all keys, from their documents: a step per segment of the rank, however many ranks and documents there
 * are. */
int64_t weft_shard_area_in_docs(const weft_mask *mask, const weft_shard *q, int rank, const weft_docs *keys);

/* Walks, in one merge of two sorted lists, the groups of segments of `rank` (queries) and of `owner` (keys)
 * that share row and document: nothing else can be visible. After each `true`, the group is q[q0..q1) x
 * k[k0..k1), and q_row, k_row are the rows in memory at which its first segments begin. LOCAL */
typedef struct weft_join {
    const weft_segment *q, *k;
    int64_t nq, nk;
    int64_t q0, q1, k0, k1;
    int64_t q_row, k_row;
    int64_t q_row_next, k_row_next; /* of segments q1, k1 */
} weft_join;
weft_join weft_join_start(const weft_shard *q, int rank, const weft_shard *k, int owner);
bool weft_join_next(weft_join *j);

#endif
