/* sums.c — gradients summed over the ranks that have the same parameters.
 *
 * Three sums, in this order. Over tp, of what every rank there holds and only has a part of the gradient for: small,
 * and its ranks walk through the layers together anyway, so it is waited for. Over the two ends of a pipeline, of a
 * tied embedding: only when backward is over, because the first stage ends last and the last stage must not stand
 * still for it. Over dp x cp, of everything: begun bucket by bucket while backward goes on.
 *
 * Sums over dp x cp begin with rank 0 for every element. Beginning with the owner of the slice, as a ring does, would
 * give the copies of a parameter on two ranks of tp, whose slices are cut elsewhere, different last bits. */
#include "optim/optim_impl.h"

#include <string.h>

/* ---- over tp ------------------------------------------------------------------------------------------ */

static int64_t product(const int64_t *shape, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= shape[i];
    return n;
}

typedef enum { TO_PACK, FROM_PACK } way;

static void move(const weft_optim *o, int64_t element, int64_t packed, int64_t n, way w)
{
    void *g = weft__r_at(o, o->parts.gradients, element), *p = weft__r_at(o, o->pack, packed);
    memcpy(w == TO_PACK ? p : g, w == TO_PACK ? g : p, (size_t)n * o->size);
}

/* Elements [first, first + n) of one row of the shared part, which is a row of the tensor at `row` in the array. What
 * this rank does not hold stays as it is. */
static void move_shared_row(const weft_optim *o, const weft_spec *s, int64_t row, int64_t first, int64_t n,
                            int64_t packed, way w)
{
    const int64_t inner = product(s->whole, s->cut_dim + 1, s->nd), from = s->shared.begin * inner;
    int64_t here = row; /* of the cut's first element */
    for (int i = 0; i < s->cuts; i++) {
        int64_t begin = s->cut[i].begin * inner - from, end = s->cut[i].end * inner - from;
        int64_t low = weft_max_i64(begin, first), high = weft_min_i64(end, first + n);
        if (low < high) move(o, here + low - begin, packed + low - first, high - low, w);
        here += end - begin;
    }
}

/* Elements [first, first + n) of the tensor's dense array (weft_spec_summed) between the gradients and the pack. */
static void move_dense(const weft_optim *o, const weft_spec *s, int64_t first, int64_t n, int64_t packed, way w)
{
    if (n == 0) return; /* a tensor of which nothing travels may be cut nowhere */
    if (s->sum == WEFT_SUM_TP) {
        move(o, s->offset + first, packed, n, w);
        return;
    }
    const int64_t inner = product(s->whole, s->cut_dim + 1, s->nd);
    const int64_t width = (s->shared.end - s->shared.begin) * inner, here = s->shape[s->cut_dim] * inner;
    while (n > 0) {
        int64_t row = first / width, in = first % width, part = weft_min_i64(n, width - in);
        move_shared_row(o, s, s->offset + row * here, in, part, packed, w);
        first += part, packed += part, n -= part;
    }
}

/* A place in the dense arrays of a bucket's tensors, one behind the other. */
typedef struct cursor {
    int spec;
    int64_t first;
} cursor;

/* Moves as much as the pack holds, from `at` on; returns how much. */
static int64_t fill_pack(const weft_optim *o, const weft__bucket *b, cursor *at, way w)
{
    int64_t packed = 0;
    while (at->spec < b->first_spec + b->specs && packed < o->pack_count) {
        const weft_spec *s = &o->parts.spec[at->spec];
        int64_t n = weft_min_i64(weft_spec_summed(s) - at->first, o->pack_count - packed);
        if (n > 0) move_dense(o, s, at->first, n, packed, w);
        packed += n;
        at->first += n;
        if (at->first == weft_spec_summed(s)) at->spec++, at->first = 0;
    }
    return packed;
}

weft_status weft__sum_over_tp(weft_optim *o, const weft__bucket *b)
{
    if (!o->tp) return WEFT_OK;
    cursor at = {b->first_spec, 0}, back = at;
    for (;;) {
        memset(o->pack, 0, (size_t)o->pack_count * o->size); /* what this rank does not hold counts nothing */
        int64_t n = fill_pack(o, b, &at, TO_PACK);
        if (n == 0) return WEFT_OK;
        WEFT_TRY(weft_all_reduce(o->tp, o->pack, n, o->real, WEFT_SUM));
        fill_pack(o, b, &back, FROM_PACK);
    }
}

/* ---- over dp x cp -------------------------------------------------------------------------------------- */

static weft_status begin_bucket(weft_optim *o, weft__bucket *b)
{
    void *g = o->parts.gradients;
    WEFT_TRY(weft__sum_over_tp(o, b));
    if (!o->stream || b->count == 0 || (WEFT_PLANTED(bucket_not_summed) && b == o->bucket)) return WEFT_OK;
    return weft_stream_reduce_scatter(o->stream, weft__r_at(o, g, b->begin), weft__r_at(o, g, b->slice), NULL, b->count,
                                      o->real, 0, &b->sum);
}

void weft_optim_ready(void *optim, int64_t offset, int64_t count)
{
    weft_optim *o = optim;
    if (!o->options.overlap || o->st < 0 || count == 0) return;
    while (o->next > 0 && o->bucket[o->next - 1].count == 0) o->next--;
    weft__bucket *b = o->next > 0 ? &o->bucket[o->next - 1] : NULL;
    if (!b || b->begin != offset || b->count != count) {
        o->st = WEFT_ERR_INTERNAL;
        o->bad_offset = offset;
        o->bad_count = count;
        return;
    }
    o->next--;
    if (!b->ends) o->st = begin_bucket(o, b);
}

static weft_status announced_wrongly(const weft_optim *o)
{
    if (o->bad_count == 0) return o->st; /* the exchange's own failure, which is the world's: its message is the last */
    return weft_fail(
        WEFT_ERR_INTERNAL,
        "optimizer: gradients [%lld, %lld) were announced, which is no bucket of the model, or out of turn",
        (long long)o->bad_offset, (long long)(o->bad_offset + o->bad_count));
}

/* A tensor may reach over several buckets, so all are added before any of them goes on. */
static weft_status sum_over_ends(weft_optim *o)
{
    if (!o->parts.mesh || !o->parts.mesh->ends || WEFT_PLANTED(tied_end_forgotten)) return WEFT_OK;
    for (int i = 0; i < o->parts.n; i++) {
        const weft_spec *s = &o->parts.spec[i];
        if (s->ends)
            WEFT_TRY(weft_all_reduce(o->parts.mesh->ends, weft__r_at(o, o->parts.gradients, s->offset), s->count,
                                     o->real, WEFT_SUM));
    }
    return WEFT_OK;
}

static weft_status begin_rest(weft_optim *o)
{
    if (o->st < 0) return announced_wrongly(o);
    while (o->next > 0) {
        weft__bucket *b = &o->bucket[--o->next];
        if (!b->ends) WEFT_TRY(begin_bucket(o, b));
    }
    WEFT_TRY(sum_over_ends(o));
    for (int i = o->parts.buckets - 1; i >= 0; i--)
        if (o->bucket[i].ends) WEFT_TRY(begin_bucket(o, &o->bucket[i]));
    return WEFT_OK;
}

/* The last bucket first, as they began: what a bucket's ranks give must be whole before it goes to the others. */
static weft_status finish_sums(weft_optim *o, bool gather)
{
    void *g = o->parts.gradients;
    int64_t last = -1;
    for (int i = o->parts.buckets - 1; o->stream && i >= 0; i--) {
        weft__bucket *b = &o->bucket[i];
        WEFT_TRY(weft_stream_finish(o->stream, b->sum));
        if (!gather || b->count == 0) continue;
        WEFT_TRY(weft_stream_all_gather(o->stream, weft__r_at(o, g, b->slice), weft__r_at(o, g, b->begin), NULL,
                                        b->count, o->real, &b->back));
        last = weft_max_i64(last, b->back);
    }
    return last < 0 ? WEFT_OK : weft_stream_finish(o->stream, last);
}

weft_status weft_optim_reduce(weft_optim *o)
{
    if (o->parts.mesh) weft_place(o->parts.mesh->world, "reduce gradients", -1, -1);
    WEFT_TRY(begin_rest(o));
    WEFT_TRY(finish_sums(o, o->options.zero == 0));
    o->next = o->parts.buckets;
    return WEFT_OK;
}

weft_status weft_optim_gather_gradients(weft_optim *o)
{
    if (o->options.zero == 0 || !o->stream) return WEFT_OK;
    weft_place(o->parts.mesh->world, "gather gradients", -1, -1);
    return finish_sums(o, true);
}
