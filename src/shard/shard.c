/* shard.c — from a layout and documents to every rank's segments. */
#include "shard/shard_impl.h"

weft_status weft_docs_check(const weft_docs *docs)
{
    int64_t tokens;
    if (docs->B < 1 || docs->T < 1 || !weft_mul_i64(docs->B, docs->T, &tokens))
        return weft_fail(WEFT_ERR_REFUSED,
                         "documents: %lld rows of %lld tokens; both must be at least 1 and their product fit 63 bits",
                         (long long)docs->B, (long long)docs->T);
    if (docs->first[0] != 0)
        return weft_fail(WEFT_ERR_REFUSED, "documents: first[0] = %lld, must be 0", (long long)docs->first[0]);
    for (int64_t b = 0; b < docs->B; b++) {
        int64_t begin = docs->first[b], end = docs->first[b + 1];
        if (end - begin < 2)
            return weft_fail(WEFT_ERR_REFUSED, "documents: row %lld has %lld offsets, needs at least 0 and T = %lld",
                             (long long)b, (long long)(end - begin), (long long)docs->T);
        if (docs->cu[begin] != 0 || docs->cu[end - 1] != docs->T)
            return weft_fail(WEFT_ERR_REFUSED,
                             "documents: offsets of row %lld run from %lld to %lld, must run from 0 to T = %lld",
                             (long long)b, (long long)docs->cu[begin], (long long)docs->cu[end - 1],
                             (long long)docs->T);
        for (int64_t i = begin; i + 1 < end; i++)
            if (docs->cu[i + 1] < docs->cu[i])
                return weft_fail(
                    WEFT_ERR_REFUSED, "documents: row %lld: offset %lld (%lld) is below the one before it (%lld)",
                    (long long)b, (long long)(i + 1 - begin), (long long)docs->cu[i + 1], (long long)docs->cu[i]);
    }
    return WEFT_OK;
}

weft_status weft_docs_whole(weft_docs *out, weft_arena *arena, int64_t B, int64_t T)
{
    int64_t *cu, *first;
    WEFT_TRY(WEFT_NEW(arena, 2 * B, "documents", &cu));
    WEFT_TRY(WEFT_NEW(arena, B + 1, "documents", &first));
    for (int64_t b = 0; b <= B; b++) first[b] = 2 * b;
    for (int64_t b = 0; b < B; b++) cu[2 * b] = 0, cu[2 * b + 1] = T;
    *out = (weft_docs){B, T, cu, first, NULL};
    return WEFT_OK;
}

/* A row of T tokens is cut by at most 2P-1 chunk bounds, and each cut adds at most one segment to the
 * row's documents; over B rows that stays below docs + 2PB. */
int64_t weft__chunk_capacity(weft_layout l, int64_t B, int64_t T, int64_t docs, int P)
{
    (void)l, (void)T;
    return docs + 2 * (int64_t)P * B;
}

int64_t weft_shard_capacity(weft_layout layout, int64_t B, int64_t T, int64_t docs, int P)
{
    return weft__layout_get(layout)->capacity(layout, B, T, docs, P);
}

weft_status weft_shard_alloc(weft_shard *s, weft_arena *arena, int P, int64_t capacity)
{
    if (P < 1 || capacity < 0)
        return weft_fail(WEFT_ERR_REFUSED, "shard: %d ranks with room for %lld segments", P, (long long)capacity);
    *s = (weft_shard){.P = P, .capacity = capacity};
    WEFT_TRY(WEFT_NEW(arena, capacity, "shard segments", &s->seg));
    WEFT_TRY(WEFT_NEW0(arena, (int64_t)P + 1, "shard segments", &s->first));
    WEFT_TRY(WEFT_NEW0(arena, P, "shard segments", &s->rows));
    struct weft_shard_work *w;
    WEFT_TRY(WEFT_NEW(arena, 1, "shard work", &w));
    s->work = w;
    WEFT_TRY(WEFT_NEW(arena, capacity + 1, "shard work", &w->tokens));
    WEFT_TRY(WEFT_NEW(arena, capacity + 1, "shard work", &w->area));
    WEFT_TRY(WEFT_NEW(arena, P, "shard work", &w->room));
    WEFT_TRY(WEFT_NEW(arena, P, "shard work", &w->load));
    WEFT_TRY(WEFT_NEW(arena, P, "shard work", &w->ranks));
    WEFT_TRY(WEFT_NEW(arena, P, "shard work", &w->full));
    return WEFT_NEW(arena, 2 * (int64_t)P, "shard work", &w->cut);
}

/* The first document from d on that ends behind `token`: cu[i] <= token < cu[i+1]. Doubling steps: often it is near. */
static int64_t find_document(const int64_t *cu, int64_t n, int64_t d, int64_t token)
{
    int64_t lo = d, hi = d, step = 1;
    while (hi < n && cu[hi + 1] <= token) lo = hi + 1, hi += step, step *= 2;
    hi = weft_min_i64(hi, n);
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (cu[mid + 1] > token) hi = mid;
        else lo = mid + 1;
    }
    return lo;
}

/* Cuts one run of row b at document bounds. */
static weft_status append_run(weft__writer *w, const weft_docs *docs, int64_t b, weft__run run)
{
    const bool leak = WEFT_PLANTED(document_leak);
    const int64_t row[] = {0, docs->T}, *cu = leak ? row : docs->cu + docs->first[b];
    int64_t n_docs = leak ? 1 : docs->first[b + 1] - docs->first[b] - 1, d = 0;
    for (int64_t i = 0; i < run.len; i = weft__count_below(run.token, run.len, run.run, run.stride, cu[d + 1])) {
        d = find_document(cu, n_docs, d, run.token + i / run.run * run.stride + i % run.run);
        weft_segment like = {.row = b, .doc = d, .start = weft__doc_start(w->s, docs, b, d), .token = cu[d]};
        WEFT_TRY(weft__append_cut(w, &like, &run, cu[d], cu[d + 1]));
    }
    return WEFT_OK;
}

static weft_status cut_runs(weft_shard *s, const weft__layout_ops *ops, const weft_docs *docs)
{
    weft__writer w = {s, 0, 0};
    for (int r = 0; r < s->P; r++) {
        s->first[r] = w.rank_begin = w.n;
        for (int64_t b = 0; b < docs->B; b++)
            for (int64_t i = 0; i < ops->runs; i++)
                WEFT_TRY(append_run(&w, docs, b, ops->run(s->layout, docs->T, s->P, r, i)));
    }
    s->first[s->P] = w.n;
    return WEFT_OK;
}

weft_status weft_shard_make(weft_shard *s, weft_layout layout, const weft_docs *docs, int64_t pos0)
{
    WEFT_TRY(weft_docs_check(docs));
    if (pos0 != 0)
        for (int64_t b = 0; b < docs->B; b++)
            if (docs->first[b + 1] - docs->first[b] != 2)
                return weft_fail(
                    WEFT_ERR_REFUSED,
                    "shard: queries that start at position %lld need one document per row; row %lld has %lld",
                    (long long)pos0, (long long)b, (long long)(docs->first[b + 1] - docs->first[b] - 1));
    const weft__layout_ops *ops = weft__layout_get(layout);
    s->layout = layout, s->B = docs->B, s->T = docs->T, s->pos0 = pos0, s->sample0 = 0;
    for (int r = 0; r < s->P; r++) s->rows[r] = weft_shard_rows(layout, docs->B, docs->T, s->P, r);
    return ops->make ? ops->make(s, docs) : cut_runs(s, ops, docs);
}

weft_status weft_shard_create(weft_shard *s, weft_arena *arena, weft_layout layout, int P, const weft_docs *docs,
                              int64_t pos0)
{
    WEFT_TRY(weft_docs_check(docs)); /* before its documents are counted */
    int64_t n = docs->first[docs->B] - docs->B;
    WEFT_TRY(weft_shard_alloc(s, arena, P, weft_shard_capacity(layout, docs->B, docs->T, n, P)));
    return weft_shard_make(s, layout, docs, pos0);
}

int64_t weft_shard_rows(weft_layout layout, int64_t B, int64_t T, int P, int rank)
{
    const weft__layout_ops *ops = weft__layout_get(layout);
    int64_t tokens = 0;
    for (int64_t i = 0; i < ops->runs; i++) tokens += ops->run(layout, T, P, rank, i).len;
    return B * tokens;
}

int64_t weft_shard_max_rows(weft_layout layout, int64_t B, int64_t T, int P)
{
    int64_t most = 0;
    for (int r = 0; r < P; r++) most = weft_max_i64(most, weft_shard_rows(layout, B, T, P, r));
    return most;
}

void weft_shard_tokens(const weft_shard *s, int rank, int64_t *index, int64_t *pos)
{
    int64_t at = 0;
    for (int64_t i = s->first[rank]; i < s->first[rank + 1]; i++) {
        const weft_segment *g = &s->seg[i];
        for (int64_t j = 0; j < g->len; j++, at++) {
            int64_t step = weft_segment_step(g, j);
            index[at] = g->row * s->T + g->token + step;
            pos[at] = WEFT_PLANTED(local_positions) ? at : g->start + step;
        }
    }
}
