/* guard.c — looks at what is about to leave this rank: the first NaN, infinity or too large number is named with
 * tensor, layer, rank, position and sample before a byte of it moves. One vectorised pass for the largest magnitude;
 * only when that is too large does a slow one look for the first.
 *
 * What is done then is this rank's alone, because to ask the others would cost an exchange per tensor. A rank that
 * stops ends the world before its exchange begins. A rank that will skip sends zeros, which the others wait for, and
 * they learn of it at the end of the step, when all agree to leave it out (train/). */
#include "model/model_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool watching(const weft__pass *p) { return p->training && p->m->ctx->guard.policy != WEFT_GUARD_OFF; }

static double limit_of(const weft_guard *guard, bool gradient) { return guard->limit * (gradient ? guard->scale : 1); }

static double largest(const weft_model *m, const weft__watched *w)
{
    bool wide = w->type == m->rt;
    return (wide ? m->op->guard_r : m->op->guard)(w->x, w->ld, w->rows, w->cols, m->ctx->threads);
}

/* Gradients that overflow 16 bits are what a loss scaler looks for, with a remedy. */
static bool passes(const weft_guard *guard, double most, bool gradient)
{
    return most <= limit_of(guard, gradient) || (gradient && guard->scaler_acts && !isfinite(most));
}

static void plant(const weft__pass *p, const weft__watched *w)
{
    weft_fault *f = &p->m->ctx->fault;
    char site[sizeof f->site];
    double value;
    if (f->kind == WEFT_FAULT_NONE || f->row >= w->rows || f->column >= w->cols) return;
    snprintf(site, sizeof site, "guard.%s", w->site ? w->site : w->tensor);
    if (weft_fault_number(f, p->m->ctx->rank, site, &value))
        weft_store(w->x, w->type, f->row * w->ld + f->column, value);
}

/* ---- what is said ------------------------------------------------------------------------------------- */

static void say_value(weft_text *t, double x, double limit)
{
    if (isnan(x)) weft_text_add(t, " is nan"); /* without a sign, which is an accident */
    else if (isinf(x)) weft_text_add(t, " is %s", x < 0 ? "-inf" : "inf");
    else weft_text_add(t, " is %.6g, beyond the limit %g", x, limit);
}

/* The segment of this rank's shard with row `row` of its memory; *inside: how far it lies behind the first token. */
static const weft_segment *segment_of(const weft__pass *p, int64_t row, int64_t *inside)
{
    const weft_shard *s = p->shard;
    int rank = weft_comm_rank(p->m->cp);
    for (int64_t i = s->first[rank]; i < s->first[rank + 1]; i++) {
        if (row < s->seg[i].len) {
            *inside = weft_segment_step(&s->seg[i], row);
            return &s->seg[i];
        }
        row -= s->seg[i].len;
    }
    return NULL;
}

static void say_place(weft_text *t, const weft__pass *p, const weft__watched *w, int64_t row, int64_t col)
{
    int64_t inside = 0;
    const weft_segment *s = segment_of(p, w->row0 + row, &inside);
    if (s)
        weft_text_add(t, " at position %lld of document %lld, sample %lld of the step", (long long)(s->start + inside),
                      (long long)s->doc, (long long)(p->shard->sample0 + s->row));
    if (w->D)
        weft_text_add(t, " (head %lld, element %lld)", (long long)(w->head0 + col / w->D), (long long)(col % w->D));
    else weft_text_add(t, " (element %lld)", (long long)col);
}

static weft_status tell_guard(weft_ctx *ctx, weft_text *t)
{
    weft_status st = t->failed ? weft_fail(WEFT_ERR_MEMORY, "no memory for what the numerics guard found")
                               : weft_guard_found(&ctx->guard, &ctx->log, t->data);
    weft_text_free(t);
    return st;
}

static void begin_text(weft_text *t, const weft_ctx *ctx)
{
    weft_text_add(t, "rank %d, step %lld: ", ctx->rank, (long long)ctx->guard.step);
}

/* ---- rows -------------------------------------------------------------------------------------------- */

static void first_bad(const weft__watched *w, double limit, int64_t *row, int64_t *col)
{
    for (*row = 0; *row < w->rows; ++*row)
        for (*col = 0; *col < w->cols; ++*col)
            if (!(fabs(weft_load(w->x, w->type, *row * w->ld + *col)) <= limit)) return;
}

static weft_status found(weft__pass *p, const weft__watched *w)
{
    weft_ctx *ctx = p->m->ctx;
    double limit = limit_of(&ctx->guard, w->gradient);
    int64_t row = 0, col = 0;
    weft_text t = {0};
    first_bad(w, limit, &row, &col);
    begin_text(&t, ctx);
    weft_text_add(&t, "%s", w->tensor);
    if (w->layer >= 0) weft_text_add(&t, " of layer %d", w->layer);
    say_value(&t, weft_load(w->x, w->type, row * w->ld + col), limit);
    say_place(&t, p, w, row, col);
    WEFT_TRY(tell_guard(ctx, &t));
    if (ctx->guard.policy != WEFT_GUARD_SKIP) return WEFT_OK;
    size_t size = weft_dtype_size(w->type);
    for (int64_t r = 0; r < w->rows; r++) memset(weft__at(w->x, r * w->ld, size), 0, (size_t)w->cols * size);
    return WEFT_OK;
}

static weft_status look(weft__pass *p, const weft__watched *w)
{
    if (passes(&p->m->ctx->guard, largest(p->m, w), w->gradient)) return WEFT_OK;
    return found(p, w);
}

weft_status weft__guard(weft__pass *p, const weft__watched *w)
{
    if (!watching(p)) return WEFT_OK;
    plant(p, w);
    weft_part outer = weft__part(p, WEFT_PART_GUARD);
    weft_status st = look(p, w);
    weft__part_end(p, outer);
    return st;
}

/* All three in one pass; one after the other only when there is something to name. */
weft_status weft__guard_qkv(weft__pass *p, int layer, void *qkv)
{
    const weft_model *m = p->m;
    int64_t D = m->config.D, Q = weft__qkv_width(m), k = m->H * D, v = k + m->Hkv * D;
    if (!watching(p)) return WEFT_OK;
    weft__watched all = {.layer = layer, .x = qkv, .type = m->ct, .ld = Q, .rows = p->rows, .cols = Q},
                  t[3] = {all, all, all};
    t[0].tensor = "q", t[1].tensor = "k", t[2].tensor = "v";
    t[1].x = weft__at(qkv, k, m->cs), t[2].x = weft__at(qkv, v, m->cs);
    t[0].cols = k, t[1].cols = t[2].cols = v - k;
    t[0].head0 = (int)m->par.cut.head.begin, t[1].head0 = t[2].head0 = (int)m->par.cut.kv.begin;
    for (int i = 0; i < 3; i++) t[i].D = m->config.D, plant(p, &t[i]);
    weft_part outer = weft__part(p, WEFT_PART_GUARD);
    weft_status st = WEFT_OK;
    if (!passes(&m->ctx->guard, largest(m, &all), false))
        for (int i = 0; i < 3 && st >= 0; i++) st = look(p, &t[i]);
    weft__part_end(p, outer);
    return st;
}

weft_status weft__guard_stream(weft__pass *p, int64_t layer, void *x, bool gradient)
{
    const weft_model *m = p->m;
    int64_t C = m->config.C;
    weft__watched w = {.tensor = gradient ? "the stage's gradient" : "the stage's output",
                       .site = gradient ? "stage_gradient" : "stage_output", .layer = (int)layer, .x = x,
                       .type = m->rt, .ld = C, .row0 = weft__stream_rows(p).begin, .rows = weft__stream_count(p),
                       .cols = C, .gradient = gradient};
    return weft__guard(p, &w);
}

weft_status weft__guard_partial(weft__pass *p, const weft__chunk *c, void *x, bool gradient)
{
    const weft_model *m = p->m;
    int64_t C = m->config.C;
    for (weft__block b = {0}; weft__block_next(c, &b);) {
        weft__watched w = {.tensor = gradient ? "a partial sum of the gradient" : "a partial sum of the stream",
                           .site = gradient ? "partial_gradient" : "partial_sum", .layer = p->layer,
                           .x = weft__at(x, b.at * C, m->rs), .type = m->rt, .ld = C, .row0 = b.row, .rows = b.rows,
                           .cols = C, .gradient = gradient};
        WEFT_TRY(weft__guard(p, &w));
    }
    return WEFT_OK;
}

weft_status weft__guard_share(weft__pass *p, const weft__chunk *c, const void *x, weft_dtype type, bool gradient)
{
    const weft_model *m = p->m;
    int64_t C = m->config.C, first = c->first * C * (int64_t)weft_dtype_size(type);
    if (c->shares == 1 || c->own == 0) return WEFT_OK;
    weft__watched w = {.tensor = gradient ? "the share of the gradient's rows" : "the share of rows",
                       .site = gradient ? "share_gradient" : "share", .layer = p->layer,
                       .x = (char *)(uintptr_t)x + first, /* the pass's own: zeros may take its place */
                       .type = type, .ld = C, .row0 = weft__stream_rows(p).begin + c->first, .rows = c->own, .cols = C,
                       .gradient = gradient};
    return weft__guard(p, &w);
}

/* ---- gradients of weights ------------------------------------------------------------------------------ */

static void say_element(weft_text *t, const weft_spec *s, int64_t local)
{
    weft_spec_walk walk = weft_spec_walk_of(s, local, 1);
    weft_stretch at = {0};
    if (!weft_spec_walk_next(&walk, &at)) return;
    if (s->nd < 2) weft_text_add(t, " at [%lld]", (long long)at.whole);
    else weft_text_add(t, " at [%lld, %lld]", (long long)(at.whole / s->whole[1]), (long long)(at.whole % s->whole[1]));
}

static weft_status found_gradient(weft_model *m, int64_t offset, int64_t count)
{
    weft_ctx *ctx = m->ctx;
    double limit = limit_of(&ctx->guard, true);
    int64_t i = offset;
    weft_text t = {0};
    while (i + 1 < offset + count && fabs(weft_load(m->grads, m->rt, i)) <= limit) i++;
    const weft_spec *s = m->spec;
    while (i >= s->offset + s->count) s++;
    begin_text(&t, ctx);
    weft_text_add(&t, "the gradient of %s", s->name);
    say_value(&t, weft_load(m->grads, m->rt, i), limit);
    say_element(&t, s, i - s->offset);
    WEFT_TRY(tell_guard(ctx, &t));
    if (ctx->guard.policy == WEFT_GUARD_SKIP) memset(weft__grad(m, offset), 0, (size_t)count * m->rs);
    return WEFT_OK;
}

/* row: which tensor of the table; column: which of its elements. */
static void plant_gradient(weft_model *m, int64_t offset, int64_t count)
{
    weft_fault *f = &m->ctx->fault;
    double value;
    if (f->kind == WEFT_FAULT_NONE || f->row >= m->par.n) return;
    int64_t at = m->spec[f->row].offset + f->column;
    if (f->column >= m->spec[f->row].count || at < offset || at >= offset + count) return;
    if (weft_fault_number(f, m->ctx->rank, "guard.gradient", &value)) weft_store(m->grads, m->rt, at, value);
}

weft_status weft_model_guard_gradients(weft_model *m, int64_t offset, int64_t count)
{
    const weft_guard *guard = &m->ctx->guard;
    if (guard->policy == WEFT_GUARD_OFF || !m->grads) return WEFT_OK;
    plant_gradient(m, offset, count);
    weft_part outer = weft_part_begin(&m->ctx->parts, WEFT_PART_GUARD);
    weft_status st = WEFT_OK;
    if (!passes(guard, m->op->guard_r(weft__grad(m, offset), count, 1, count, m->ctx->threads), true))
        st = found_gradient(m, offset, count);
    weft_part_end(&m->ctx->parts, outer);
    return st;
}
