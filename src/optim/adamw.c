/* adamw.c — one norm, clipping, and AdamW on this rank's slices; the new weights go to the others.
 *
 * Every rank adds the squares of elements whose sum it has and which its table counts as its own: so each parameter
 * of the model is counted once, be it in slices over dp x cp, in parts over tp and pp, or in copies. Adding squares
 * of what several ranks hold would give a norm sqrt(ranks) too large, and clip gradients that need none. Clipping is
 * folded into the update as a factor, which saves a pass over the gradients and leaves them as they were. */
#include "optim/optim_impl.h"

#include <float.h>
#include <math.h>

static double sum_of_squares(const weft_optim *o, const weft_piece *piece, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += o->ops->sumsq(weft__r_at(o, o->parts.gradients, weft__piece_at(o, &piece[i])), piece[i].count,
                             o->ctx->threads);
    return sum;
}

/* Copies are not counted, but each is updated by what it holds: one that is not finite (a flipped bit) would spoil its
 * rank's weights and no other's, under a norm that shows nothing. */
weft_status weft_optim_norm(weft_optim *o, double scale, double *norm)
{
    weft_part outer = weft_part_begin(&o->ctx->parts, WEFT_PART_OPTIMIZER);
    double sum = sum_of_squares(o, o->counted, o->n_counted);
    if (!isfinite(sum_of_squares(o, o->copies, o->n_copies))) sum = NAN;
    weft_part_end(&o->ctx->parts, outer);
    if (WEFT_PLANTED(norm_counted_twice)) sum *= 2;
    if (o->parts.mesh) WEFT_TRY(weft_all_reduce(o->parts.mesh->all, &sum, 1, WEFT_F64, WEFT_SUM));
    *norm = sqrt(sum) / scale;
    return WEFT_OK;
}

/* ---- a norm that is not finite ------------------------------------------------------------------------- */

typedef struct spoiler {     /* the first bad gradient in the order of the whole model */
    int64_t number, element; /* tensor of the model, element of the whole tensor; INT64_MAX: none */
    const weft_spec *spec;
    double value;
} spoiler;

static spoiler find_spoiler(const weft_optim *o)
{
    spoiler first = {.number = INT64_MAX, .element = INT64_MAX};
    for (int i = 0; i < o->n_counted + o->n_copies; i++) {
        const weft_piece *p = i < o->n_counted ? &o->counted[i] : &o->copies[i - o->n_counted];
        const weft_spec *s = &o->parts.spec[p->spec];
        const void *g = weft__r_at(o, o->parts.gradients, weft__piece_at(o, p));
        int64_t bad = o->real == WEFT_F64 ? weft_guard_f64(g, p->count, DBL_MAX) : weft_guard_f32(g, p->count, FLT_MAX);
        if (bad < 0) continue;
        weft_spec_walk walk = weft_spec_walk_of(s, p->first + bad, 1);
        weft_stretch at;
        weft_spec_walk_next(&walk, &at);
        spoiler x = {s->number, at.whole, s, weft_load(g, o->real, bad)};
        if (x.number < first.number || (x.number == first.number && x.element < first.element)) first = x;
    }
    return first;
}

/* Keeps what is first of all ranks: another rank's is only a place, without spec. */
static weft_status first_of_all(const weft_optim *o, spoiler *x)
{
    int64_t number = x->number, element = x->element;
    if (!o->parts.mesh) return WEFT_OK;
    WEFT_TRY(weft_all_reduce(o->parts.mesh->all, &number, 1, WEFT_I64, WEFT_MIN));
    if (number != x->number) element = INT64_MAX;
    WEFT_TRY(weft_all_reduce(o->parts.mesh->all, &element, 1, WEFT_I64, WEFT_MIN));
    if (number != x->number || element != x->element) x->spec = NULL;
    x->number = number;
    x->element = element;
    return WEFT_OK;
}

/* Names the first value that spoils the norm: "the norm is NaN" alone sends people searching for days. */
static weft_status refuse_norm(const weft_optim *o, double norm, int64_t step)
{
    spoiler x = find_spoiler(o);
    weft_status st = WEFT_OK;
    WEFT_TRY(first_of_all(o, &x));
    if (x.number == INT64_MAX)
        return weft_fail(WEFT_ERR_NUMERIC,
                         "step %lld: the gradient norm is %g though every gradient is finite; the weights "
                         "were not changed",
                         (long long)step, weft_unsigned_nan(norm));
    if (x.spec)
        st = weft_fail(WEFT_ERR_NUMERIC,
                       "step %lld: the gradient norm is %g: grad.%s holds %g at element %lld; the weights were not "
                       "changed",
                       (long long)step, weft_unsigned_nan(norm), x.spec->name, weft_unsigned_nan(x.value),
                       (long long)x.element);
    return o->parts.mesh ? weft_agree(o->parts.mesh->all, st) : st;
}

/* ---- update --------------------------------------------------------------------------------------------- */

static void update_bucket(weft_optim *o, const weft__bucket *b, weft_adamw_args *args)
{
    weft_part outer = weft_part_begin(&o->ctx->parts, WEFT_PART_OPTIMIZER);
    for (int i = b->first_piece; i < b->first_piece + b->pieces; i++) {
        const weft_piece *p = &o->piece[i];
        int64_t at = weft__piece_at(o, p);
        args->weight_decay = o->parts.spec[p->spec].decay ? o->options.weight_decay : 0.0;
        o->ops->adamw(weft__r_at(o, o->parts.weights, at), weft__r_at(o, o->parts.gradients, at), p->data,
                      o->second[i].data, p->count, args, o->ctx->threads);
    }
    weft_part_end(&o->ctx->parts, outer);
}

/* While one bucket's weights travel the next one is updated. */
static weft_status update_all(weft_optim *o, weft_adamw_args *args)
{
    const bool sliced = o->stream && o->options.zero == 1;
    void *w = o->parts.weights;
    int64_t last = -1;
    if (o->parts.mesh) weft_place(o->parts.mesh->world, "gather weights", -1, -1);
    for (int i = 0; i < o->parts.buckets; i++) {
        weft__bucket *b = &o->bucket[i];
        update_bucket(o, b, args);
        if (!sliced || b->count == 0) continue;
        WEFT_TRY(weft_stream_all_gather(o->stream, weft__r_at(o, w, b->slice), weft__r_at(o, w, b->begin), NULL,
                                        b->count, o->real, &b->back));
        last = b->back;
    }
    return last < 0 ? WEFT_OK : weft_stream_finish(o->stream, last);
}

weft_status weft_optim_update(weft_optim *o, double norm, double scale, double lr, int64_t step)
{
    const weft_optim_options *p = &o->options;
    if (step < 1) return weft_fail(WEFT_ERR_REFUSED, "optimizer: step %lld; steps count from 1", (long long)step);
    if (!(lr >= 0) || isinf(lr))
        return weft_fail(WEFT_ERR_REFUSED, "optimizer: learning rate %g at step %lld", lr, (long long)step);
    if (!isfinite(norm)) return refuse_norm(o, norm, step);
    weft_adamw_args args = {.lr = lr,
                            .beta1 = p->beta1,
                            .beta2 = p->beta2,
                            .eps = p->eps,
                            .gscale = 1.0,
                            .c1 = 1.0 - pow(p->beta1, (double)step),
                            .c2 = 1.0 - pow(p->beta2, (double)step)};
    if (p->clip > 0) args.gscale = fmin(1.0, p->clip / (norm + 1e-6));
    args.gscale /= scale;
    return update_all(o, &args);
}
