/* slices.c — an optimizer's memory: which elements this rank adds up, counts and updates, and the moments of them.
 *
 * Slices follow elements, not tensors: every rank of dp x cp has the same number of each bucket, to one. So a slice may
 * begin and end inside a tensor, or hold nothing of a small bucket; a piece is what a slice has of one tensor. */
#include "optim/optim_impl.h"

#include <string.h>

/* What travels to a sum is kept until it is added: more of it hides more of the ranks' different pace. */
enum { STREAM_BYTES = 4 << 20, PACK_BYTES = 1 << 20 };

/* ---- checks ------------------------------------------------------------------------------------------- */

static weft_status check_table(const weft_optim_parts *p)
{
    int64_t end = 0;
    for (int i = 0; i < p->n; i++) {
        const weft_spec *s = &p->spec[i];
        if (s->offset < end || s->count < 0 || s->count > p->count - s->offset)
            return weft_fail(WEFT_ERR_INTERNAL,
                             "optimizer: %s lies outside the array of %lld weights, or not behind the tensor "
                             "before it",
                             s->name, (long long)p->count);
        if (s->own_first < 0 || s->own_count < 0 || s->own_count > s->count - s->own_first)
            return weft_fail(WEFT_ERR_INTERNAL, "optimizer: %s counts elements that it does not have", s->name);
        end = s->offset + s->count;
    }
    return WEFT_OK;
}

static weft_status check_buckets(const weft_optim_parts *p)
{
    bool good = p->buckets >= 1 && p->bucket[0] == 0 && p->bucket[p->buckets] == p->count;
    for (int b = 0; good && b < p->buckets; b++) good = p->bucket[b] <= p->bucket[b + 1];
    if (good) return WEFT_OK;
    return weft_fail(WEFT_ERR_INTERNAL, "optimizer: the bounds of %d buckets do not ascend from 0 to %lld", p->buckets,
                     (long long)p->count);
}

/* ---- pieces ------------------------------------------------------------------------------------------- */

/* Which elements of a tensor: all, those that count here, those that count elsewhere before and behind them. */
typedef enum { ALL, OWN, BEFORE, BEHIND } part_of_tensor;

/* Elements [begin, end) of the array that this part of tensor i has, as a piece. */
static bool piece_of(const weft_optim *o, int i, int64_t begin, int64_t end, part_of_tensor part, weft_piece *out)
{
    const weft_spec *s = &o->parts.spec[i];
    const int64_t own = s->offset + s->own_first, own_end = own + s->own_count, last = s->offset + s->count;
    begin = weft_max_i64(begin, part == OWN ? own : part == BEHIND ? own_end : s->offset);
    end = weft_min_i64(end, part == OWN ? own_end : part == BEFORE ? own : last);
    if (end <= begin) return false;
    *out = (weft_piece){.spec = i, .first = begin - s->offset, .count = end - begin};
    return true;
}

/* Appends to list[*n], which may be NULL. */
static void cut_range(const weft_optim *o, const weft__bucket *b, int64_t begin, int64_t end, part_of_tensor part,
                      weft_piece *list, int *n)
{
    weft_piece p;
    for (int i = b->first_spec; i < b->first_spec + b->specs; i++)
        if (piece_of(o, i, begin, end, part, &p)) {
            if (list) list[*n] = p;
            (*n)++;
        }
}

static void cut_all(weft_optim *o, weft_piece *updated, weft_piece *counted, weft_piece *copies)
{
    const bool sliced = o->options.zero == 1;
    o->pieces = o->n_counted = o->n_copies = 0;
    for (int i = 0; i < o->parts.buckets; i++) {
        weft__bucket *b = &o->bucket[i];
        int64_t end = b->slice + b->slice_count;
        b->first_piece = o->pieces;
        int64_t from = b->slice + (WEFT_PLANTED(slice_off_by_one) && o->rank > 0);
        cut_range(o, b, sliced ? from : b->begin, sliced ? end : b->begin + b->count, ALL, updated, &o->pieces);
        b->pieces = o->pieces - b->first_piece;
        cut_range(o, b, b->slice, end, OWN, counted, &o->n_counted);
        cut_range(o, b, b->slice, end, BEFORE, copies, &o->n_copies);
        cut_range(o, b, b->slice, end, BEHIND, copies, &o->n_copies);
    }
}

static void fill_bucket(const weft_optim *o, weft__bucket *b, int i)
{
    const weft_optim_parts *p = &o->parts;
    *b = (weft__bucket){.begin = p->bucket[i], .count = p->bucket[i + 1] - p->bucket[i], .sum = -1, .back = -1};
    int64_t share = weft_share_begin(b->count, o->ranks, o->rank);
    b->slice = b->begin + share;
    b->slice_count = weft_share_begin(b->count, o->ranks, o->rank + 1) - share;
    while (b->first_spec < p->n && p->spec[b->first_spec].offset + p->spec[b->first_spec].count <= b->begin)
        b->first_spec++;
    for (int s = b->first_spec; s < p->n && p->spec[s].offset < b->begin + b->count; s++) {
        b->specs++;
        b->ends |= p->mesh && p->mesh->ends && p->spec[s].ends;
    }
}

static weft_status alloc_pieces(weft_optim *o)
{
    WEFT_TRY(WEFT_NEW0(o->arena, o->parts.buckets, "optimizer", &o->bucket));
    for (int i = 0; i < o->parts.buckets; i++) fill_bucket(o, &o->bucket[i], i);
    cut_all(o, NULL, NULL, NULL);
    WEFT_TRY(WEFT_NEW0(o->arena, o->pieces, "optimizer", &o->piece));
    WEFT_TRY(WEFT_NEW0(o->arena, o->pieces, "optimizer", &o->second));
    WEFT_TRY(WEFT_NEW0(o->arena, o->n_counted, "optimizer", &o->counted));
    WEFT_TRY(WEFT_NEW0(o->arena, o->n_copies, "optimizer", &o->copies));
    cut_all(o, o->piece, o->counted, o->copies);
    memcpy(o->second, o->piece, (size_t)o->pieces * sizeof *o->piece);
    return WEFT_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------- */

static weft_status alloc_moment(weft_optim *o, weft_piece *piece, const char *label)
{
    int64_t count = 0, at = 0;
    void *all;
    for (int i = 0; i < o->pieces; i++) count += piece[i].count;
    WEFT_TRY(weft_arena_zalloc(o->arena, count, o->size, label, &all));
    for (int i = 0; i < o->pieces; at += piece[i++].count) piece[i].data = weft__r_at(o, all, at);
    return WEFT_OK;
}

weft_optim_room weft_optim_room_of(int64_t largest, int64_t summed, size_t size)
{
    return (weft_optim_room){.stream_bytes = weft_min_size(STREAM_BYTES, 4 * (size_t)largest * size),
                             .pack_count = weft_min_i64(summed, PACK_BYTES / (int64_t)size)};
}

static weft_status alloc_exchange(weft_optim *o)
{
    const weft_optim_parts *p = &o->parts;
    int64_t largest = 0, packed = 0;
    if (!p->mesh) return WEFT_OK;
    for (int b = 0; b < p->buckets; b++) largest = weft_max_i64(largest, o->bucket[b].count);
    for (int i = 0; i < p->n; i++) packed += weft_spec_summed(&p->spec[i]);
    weft_optim_room room = weft_optim_room_of(largest, packed, o->size);
    if (o->ranks > 1) /* a sum and, on its way back, what it is for */
        WEFT_TRY(weft_stream_create(&o->stream, o->arena, p->mesh->dp_cp, 2 * p->buckets, room.stream_bytes));
    if (weft_comm_size(p->mesh->tp) == 1 || packed == 0) return WEFT_OK;
    o->tp = p->mesh->tp;
    o->pack_count = room.pack_count;
    return weft_arena_alloc(o->arena, o->pack_count, o->size, "sums over tp", &o->pack);
}

static weft_status fill(weft_optim *o)
{
    WEFT_TRY(alloc_pieces(o));
    WEFT_TRY(alloc_moment(o, o->piece, "first moment"));
    WEFT_TRY(alloc_moment(o, o->second, "second moment"));
    return alloc_exchange(o);
}

static weft_status create(weft_optim **out, weft_ctx *ctx, const weft_kern *kern, const weft_optim_parts *parts,
                          const weft_optim_options *options)
{
    weft_arena *arena = NULL;
    weft_optim *o = NULL;
    WEFT_TRY(weft_optim_check(options));
    WEFT_TRY(check_table(parts));
    WEFT_TRY(check_buckets(parts));
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "optimizer", NULL));
    weft_status st = WEFT_NEW0(arena, 1, "optimizer", &o);
    if (st < 0) {
        weft_arena_destroy(arena);
        return st;
    }
    *o = (weft_optim){.ctx = ctx,
                      .arena = arena,
                      .ops = &kern->op[parts->prec],
                      .options = *options,
                      .parts = *parts,
                      .real = weft_prec_real(parts->prec),
                      .ranks = 1,
                      .next = parts->buckets,
                      .st = WEFT_OK};
    o->size = weft_dtype_size(o->real);
    if (parts->mesh) o->ranks = weft_comm_size(parts->mesh->dp_cp), o->rank = weft_comm_rank(parts->mesh->dp_cp);
    st = fill(o);
    if (st < 0) weft_optim_destroy(o);
    else *out = o;
    return st;
}

weft_status weft_optim_create(weft_optim **out, weft_ctx *ctx, const weft_kern *kern, const weft_optim_parts *parts,
                              const weft_optim_options *options)
{
    weft_optim *o = NULL;
    *out = NULL;
    weft_status st = create(&o, ctx, kern, parts, options);
    if (parts->mesh) st = weft_agree(parts->mesh->all, st);
    if (st < 0) weft_optim_destroy(o);
    else *out = o;
    return st;
}

void weft_optim_destroy(weft_optim *o)
{
    if (!o) return;
    weft_stream_destroy(o->stream);
    weft_arena_destroy(o->arena); /* holds o itself */
}

const weft_piece *weft_optim_state(const weft_optim *o, int which, int *n)
{
    *n = which == 0 || which == 1 ? o->pieces : 0;
    return which == 0 ? o->piece : which == 1 ? o->second : NULL;
}

void weft_optim_seconds(const weft_optim *o, double *under_way, double *waited)
{
    *under_way = *waited = 0;
    if (o->stream) weft_stream_seconds(o->stream, under_way, waited);
}
