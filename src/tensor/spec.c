/* spec.c — where the elements of a part of a tensor lie in the whole of it.
 *
 * A cut dimension splits a row-major tensor into `outer` rows of (indices along the dimension) x `inner` elements. Of
 * each such row the part here holds the cuts, one after the other; so a stretch ends with its cut, and with the row. */
#include "tensor/tensor.h"

#include <string.h>

void weft_spec_uncut(weft_spec *s)
{
    memcpy(s->whole, s->shape, sizeof s->whole);
    s->cut_dim = -1;
    s->cuts = 0;
    s->own_first = 0;
    s->own_count = s->count;
    s->sum = WEFT_SUM_NOT;
    s->shared = (weft_span){0, 0};
    s->ends = false;
}

int64_t weft_spec_whole_count(const weft_spec *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->nd; i++) n *= s->whole[i];
    return n;
}

weft_spec_walk weft_spec_walk_of(const weft_spec *s, int64_t first, int64_t count)
{
    return (weft_spec_walk){s, first, first + count};
}

/* Elements behind each index of the cut dimension. */
static int64_t inner_of(const weft_spec *s)
{
    int64_t n = 1;
    for (int i = s->cut_dim + 1; i < s->nd; i++) n *= s->whole[i];
    return n;
}

bool weft_spec_walk_next(weft_spec_walk *w, weft_stretch *out)
{
    const weft_spec *s = w->s;
    if (w->at >= w->end) return false;
    *out = (weft_stretch){w->at, w->at, w->end - w->at};
    if (s->cut_dim >= 0) {
        int64_t inner = inner_of(s), here = s->shape[s->cut_dim] * inner, all = s->whole[s->cut_dim] * inner;
        int64_t outer = w->at / here, in = w->at % here, before = 0;
        int i = 0;
        while (in - before >= (s->cut[i].end - s->cut[i].begin) * inner)
            before += (s->cut[i].end - s->cut[i].begin) * inner, i++;
        int64_t left = (s->cut[i].end - s->cut[i].begin) * inner - (in - before);
        out->whole = outer * all + s->cut[i].begin * inner + (in - before);
        out->n = weft_min_i64(out->n, left);
    }
    w->at += out->n;
    return true;
}

static int64_t elements(const int64_t *shape, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= shape[i];
    return n;
}

int64_t weft_spec_summed(const weft_spec *s)
{
    if (s->sum == WEFT_SUM_TP) return s->count;
    if (s->sum == WEFT_SUM_NOT) return 0;
    return elements(s->whole, 0, s->cut_dim) * (s->shared.end - s->shared.begin) *
           elements(s->whole, s->cut_dim + 1, s->nd);
}
