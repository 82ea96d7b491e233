/* adamw.c — one update of all weights: sum of gradients over ranks, one norm, clipping, AdamW.
 *
 * After the reduction every rank holds the whole gradient, so the norm is LOCAL and must never be summed
 * over ranks: sqrt(ranks) times too large, it would clip gradients that need none. Clipping is folded into
 * the update as a factor, which saves a pass over the gradients and leaves them as they were. */
#include "optim/optim.h"

#include <float.h>
#include <math.h>

struct weft_optim {
    weft_ctx *ctx;
    weft_arena *arena;
    const weft_kern_ops *ops;
    weft_dtype real; /* R */
    const weft_spec *spec;
    int n;
    int64_t count;
    weft_optim_options options;
    void *moment[2]; /* [count] (R) */
};

/* One message of the reduction. Larger ones only hold more memory in the transport; at 4 MiB its
 * per-message cost is lost in the time of the copy. */
enum { REDUCE_PIECE_BYTES = 4 << 20 };

static void *at(const weft_optim *o, void *array, int64_t i)
{
    return (char *)array + (size_t)i * weft_dtype_size(o->real);
}

static const void *at_const(const weft_optim *o, const void *array, int64_t i)
{
    return (const char *)array + (size_t)i * weft_dtype_size(o->real);
}

static weft_status check_table(const weft_spec *spec, int n, int64_t count)
{
    for (int i = 0; i < n; i++)
        if (spec[i].offset < 0 || spec[i].count < 0 || spec[i].count > count - spec[i].offset)
            return weft_fail(WEFT_ERR_INTERNAL, "optimizer: %s lies outside the array of %lld weights", spec[i].name,
                             (long long)count);
    return WEFT_OK;
}

weft_status weft_optim_create(weft_optim **out, weft_ctx *ctx, const weft_kern *kern, weft_prec prec,
                              const weft_spec *spec, int n, int64_t count, const weft_optim_options *options)
{
    weft_status st = WEFT_OK;
    weft_arena *arena = NULL;
    weft_optim *o = NULL;
    WEFT_TRY(weft_optim_check(options));
    WEFT_TRY(check_table(spec, n, count));
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "optimizer", NULL));
    WEFT_TRY_OR(st, WEFT_NEW0(arena, 1, "optimizer", &o), destroy_arena);
    *o = (weft_optim){.ctx = ctx, .arena = arena, .ops = &kern->op[prec], .real = weft_prec_real(prec),
                      .spec = spec, .n = n, .count = count, .options = *options};
    for (int m = 0; m < 2; m++)
        WEFT_TRY_OR(st,
                    weft_arena_zalloc(arena, count, weft_dtype_size(o->real), m == 0 ? "first moment" : "second moment",
                                      &o->moment[m]),
                    destroy_arena);
    *out = o;
    return WEFT_OK;
destroy_arena:
    weft_arena_destroy(arena);
    return st;
}

void weft_optim_destroy(weft_optim *o)
{
    if (o) weft_arena_destroy(o->arena); /* holds o itself */
}

void *weft_optim_state(weft_optim *o, int which) { return which == 0 || which == 1 ? o->moment[which] : NULL; }

weft_status weft_optim_reduce(weft_optim *o, weft_comm *dp_cp, void *gradients)
{
    const int64_t piece = REDUCE_PIECE_BYTES / (int64_t)weft_dtype_size(o->real);
    weft_place(weft_comm_world(dp_cp), "reduce gradients", -1, -1);
    for (int64_t i = 0; i < o->count; i += piece)
        WEFT_TRY(weft_all_reduce(dp_cp, at(o, gradients, i), weft_min_i64(piece, o->count - i), o->real, WEFT_SUM));
    return WEFT_OK;
}

double weft_optim_norm(const weft_optim *o, const void *gradients)
{
    double sum = 0;
    weft_part outer = weft_part_begin(&o->ctx->parts, WEFT_PART_OPTIMIZER);
    for (int i = 0; i < o->n; i++)
        sum += o->ops->sumsq(at_const(o, gradients, o->spec[i].offset), o->spec[i].count, o->ctx->threads);
    weft_part_end(&o->ctx->parts, outer);
    if (WEFT_PLANTED(norm_counted_twice)) sum *= 2;
    return sqrt(sum);
}

/* Names the first value that spoils the norm: "the norm is NaN" alone sends people searching for days. */
static weft_status refuse_norm(const weft_optim *o, const void *gradients, double norm, int64_t step)
{
    for (int i = 0; i < o->n; i++) {
        const weft_spec *s = &o->spec[i];
        const void *g = at_const(o, gradients, s->offset);
        int64_t bad = o->real == WEFT_F64 ? weft_guard_f64(g, s->count, DBL_MAX) : weft_guard_f32(g, s->count, FLT_MAX);
        if (bad >= 0)
            return weft_fail(
                WEFT_ERR_NUMERIC,
                "step %lld: the gradient norm is %g: grad.%s holds %g at element %lld; the weights were not "
                "changed",
                (long long)step, norm, s->name, weft_load(g, o->real, bad), (long long)bad);
    }
    return weft_fail(WEFT_ERR_NUMERIC,
                     "step %lld: the gradient norm is %g though every gradient is finite; the weights "
                     "were not changed",
                     (long long)step, norm);
}

weft_status weft_optim_update(weft_optim *o, void *weights, const void *gradients, double norm, double lr, int64_t step)
{
    const weft_optim_options *p = &o->options;
    if (step < 1) return weft_fail(WEFT_ERR_REFUSED, "optimizer: step %lld; steps count from 1", (long long)step);
    if (!(lr >= 0) || isinf(lr))
        return weft_fail(WEFT_ERR_REFUSED, "optimizer: learning rate %g at step %lld", lr, (long long)step);
    if (!isfinite(norm)) return refuse_norm(o, gradients, norm, step);
    weft_adamw_args args = {.lr = lr, .beta1 = p->beta1, .beta2 = p->beta2, .eps = p->eps, .gscale = 1.0,
                            .c1 = 1.0 - pow(p->beta1, (double)step), .c2 = 1.0 - pow(p->beta2, (double)step)};
    if (p->clip > 0) args.gscale = fmin(1.0, p->clip / (norm + 1e-6));
    weft_part outer = weft_part_begin(&o->ctx->parts, WEFT_PART_OPTIMIZER);
    for (int i = 0; i < o->n; i++) {
        const weft_spec *s = &o->spec[i];
        args.weight_decay = s->decay ? p->weight_decay : 0.0;
        o->ops->adamw(at(o, weights, s->offset), at_const(o, gradients, s->offset), at(o, o->moment[0], s->offset),
                      at(o, o->moment[1], s->offset), s->count, &args, o->ctx->threads);
    }
    weft_part_end(&o->ctx->parts, outer);
    return WEFT_OK;
}
