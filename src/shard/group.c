/* group.c — what neighbouring ranks hold together, as one rank's share: sorted by token, joined.
 *
 * After a head stage a rank holds the rows of its whole head group. In token order, a group's share is a share of the
 * same kind on fewer ranks: chunks join to chunks, and U neighbouring stripes of k to one of kU. So the context stage
 * has as few segments as it would have without heads. */
#include "shard/shard_impl.h"

#include <string.h>

/* The group's tokens of one document, of which list[0..n) are the pieces. In runs, they are the tokens of the wider
 * stripe from the first one to the last one. */
static weft_status join_stripes(weft__writer *w, const weft_segment *list, int64_t n, const weft__run *stripe)
{
    weft_segment first = list[0];
    int64_t end = 0;
    for (int64_t i = 0; i < n; i++)
        end = weft_max_i64(end, list[i].token + weft_segment_step(&list[i], list[i].len - 1) + 1);
    return weft__append_cut(w, &first, stripe, first.token, end);
}

/* Joins list[0..n), sorted, onto the end of w, which is not behind its beginning. */
static weft_status join(weft__writer *w, const weft_segment *list, int64_t n, const weft__run *stripe)
{
    if (!stripe) {
        for (int64_t i = 0; i < n; i++) WEFT_TRY(weft__append(w, list[i]));
        return WEFT_OK;
    }
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && list[end].row == list[i].row && list[end].doc == list[i].doc;) end++;
        WEFT_TRY(join_stripes(w, list + i, end - i, stripe));
    }
    return WEFT_OK;
}

static weft_status check(const weft_shard *out, const weft_shard *in, int U)
{
    if (U < 1 || in->P % U != 0 || out->P != in->P / U)
        return weft_fail(WEFT_ERR_REFUSED, "shard: %d ranks in groups of %d do not make %d groups", in->P, U, out->P);
    if (out->capacity < in->first[in->P])
        return weft_fail(WEFT_ERR_REFUSED,
                         "shard: room for %lld segments, the ranks have %lld; plan for more documents per micro-batch",
                         (long long)out->capacity, (long long)in->first[in->P]);
    return WEFT_OK;
}

weft_status weft_shard_group(weft_shard *out, const weft_shard *in, int U)
{
    WEFT_TRY(check(out, in, U));
    out->layout = weft__layout_group(in->layout, U);
    out->B = in->B, out->T = in->T, out->pos0 = in->pos0, out->sample0 = in->sample0;
    weft__writer w = {out, 0, 0};
    for (int r = 0; r < out->P; r++) {
        int64_t begin = in->first[r * U], n = in->first[(r + 1) * U] - begin;
        out->first[r] = w.rank_begin = w.n;
        /* Groups before this one have shrunk or kept their size, and so does each document: w.n <= begin, so there is
         * room, and joining never overtakes what it reads. */
        weft_segment *list = out->seg + w.n;
        memcpy(list, in->seg + begin, (size_t)n * sizeof *list);
        weft__sort(list, n, weft__by_token);
        weft__run stripe = {0, 0, 0, 0};
        bool striped = in->layout.kind == WEFT_LAYOUT_STRIPED;
        if (striped) stripe = weft__layout_get(out->layout)->run(out->layout, in->T, out->P, r, 0);
        WEFT_TRY(join(&w, list, n, striped ? &stripe : NULL));
        out->rows[r] = 0;
        for (int u = 0; u < U; u++) out->rows[r] += in->rows[r * U + u];
    }
    out->first[out->P] = w.n;
    return WEFT_OK;
}
