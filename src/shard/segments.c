/* segments.c — writing a list of segments: cutting runs at document bounds, merging what continues.
 *
 * A piece that continues the one before it is merged with it: zigzag's last rank, and any layout on one rank, get
 * whole documents and not halves. */
#include "shard/shard_impl.h"

static bool continues(const weft_segment *a, const weft_segment *b)
{
    return a->row == b->row && a->doc == b->doc && a->stride == 1 && b->stride == 1 && a->token + a->len == b->token;
}

weft_status weft__append(weft__writer *w, weft_segment seg)
{
    if (w->n > w->rank_begin && continues(&w->s->seg[w->n - 1], &seg)) {
        w->s->seg[w->n - 1].len += seg.len;
        return WEFT_OK;
    }
    if (w->n == w->s->capacity)
        return weft_fail(WEFT_ERR_REFUSED, "shard: more than %lld segments; plan for more documents per micro-batch",
                         (long long)w->s->capacity);
    w->s->seg[w->n++] = seg;
    return WEFT_OK;
}

/* Tokens i .. end - 1 of a run: they begin a run, or lie within one. */
static weft_status append_part(weft__writer *w, const weft_segment *like, const weft__run *run, int64_t i, int64_t end)
{
    int64_t token = run->token + i / run->run * run->stride + i % run->run;
    bool one_piece = run->run == run->stride || end - i <= run->run;
    return weft__append(w, (weft_segment){.row = like->row, .doc = like->doc,
                                          .start = token + like->start - like->token, .len = end - i,
                                          .run = one_piece ? 1 : run->run,
                                          .stride = one_piece ? 1 : run->stride, .token = token});
}

weft_status weft__append_cut(weft__writer *w, const weft_segment *like, const weft__run *run, int64_t begin,
                             int64_t end)
{
    int64_t i = weft__count_below(run->token, run->len, run->run, run->stride, begin);
    int64_t n = weft__count_below(run->token, run->len, run->run, run->stride, end);
    if (i < n && i % run->run != 0 && run->run != run->stride) {
        int64_t head = weft_min_i64(n, i - i % run->run + run->run);
        WEFT_TRY(append_part(w, like, run, i, head));
        i = head;
    }
    return i < n ? append_part(w, like, run, i, n) : WEFT_OK;
}
