/* verify_attention.c — one attention problem from a file, forward and backward on P ranks, against the
 * expected values that the file holds. Every rank maps the file and takes its own rows. */
#include "train/verify_impl.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { Q, K, V, DO, O, DQ, DK, DV, TENSORS };
static const char *const names[TENSORS] = {"q", "k", "v", "do", "o", "dq", "dk", "dv"};

typedef struct attention_case {
    const weft_st *file;
    weft_cp_problem problem;
    const weft_view *in[4]; /* q k v do */
    const weft_view *sinks, *alibi;
    int64_t *cu, *first; /* documents of the keys */
    weft_docs docs, q_docs;
    const weft_run *run;
    weft_ctx *ctx;
    weft_comm *comm;
    weft_arena *arena;
    weft_shard shard_q, shard_kv;
    weft_dtype C, R;
    void *mine[TENSORS]; /* this rank's rows, dense */
    void *m, *l, *lse, *sink_values, *alibi_values, *dsinks;
} attention_case;

/* ---- reading the case ----------------------------------------------------------------------------- */

static weft_status meta_number(const weft_st *f, const char *key, double absent, double *out)
{
    const char *text = weft_st_meta(f, key);
    *out = absent;
    if (!text) return WEFT_OK;
    weft_status st = weft_parse_f64(text, out);
    return st < 0 ? weft_fail_at(st, "%s: metadata %s: ", weft_st_path(f), key) : WEFT_OK;
}

static weft_status meta_integer(const weft_st *f, const char *key, int64_t absent, int64_t *out)
{
    const char *text = weft_st_meta(f, key);
    *out = absent;
    if (!text) return WEFT_OK;
    weft_status st = weft_parse_i64(text, out);
    return st < 0 ? weft_fail_at(st, "%s: metadata %s: ", weft_st_path(f), key) : WEFT_OK;
}

/* Outside of fp64 the kernels hold these in fp32: one that becomes 0 or infinite there is another problem. */
static weft_status check_real(const attention_case *c, const char *key, double x)
{
    if (c->R == WEFT_F64 || x == 0 || (fabs(x) >= FLT_MIN && fabs(x) <= FLT_MAX)) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s: metadata %s is %g, outside of fp32; use --precision fp64",
                     weft_st_path(c->file), key, x);
}

/* A misspelt key would be ignored in silence, and the mask it asks for with it. Keys that resemble none of ours
 * belong to the file's maker. */
static weft_status check_meta_key(const char *path, const char *key)
{
    static const char *const known[] = {"causal", "window_left", "window_right", "prefix", "scale", "softcap", "dropout"};
    enum { KNOWN = sizeof known / sizeof *known };
    for (int i = 0; i < KNOWN; i++)
        if (!strcmp(key, known[i])) return WEFT_OK;
    const char *near = !strncmp(key, "window", 6) ? "window_left" : weft_suggest(key, known, KNOWN);
    if (!near || !strncmp(key, "tol_", 4)) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s: metadata key \"%s\" is not known; did you mean \"%s\"?", path, key, near);
}

static weft_status read_meta(attention_case *c)
{
    weft_cp_problem *p = &c->problem;
    int64_t causal = 0;
    double dropout = 0;
    const char *key = NULL;
    for (int i = 0; (key = weft_st_meta_key(c->file, i)); i++) WEFT_TRY(check_meta_key(weft_st_path(c->file), key));
    WEFT_TRY(meta_integer(c->file, "causal", 0, &causal));
    WEFT_TRY(meta_integer(c->file, "window_left", -1, &p->mask.left));
    WEFT_TRY(meta_integer(c->file, "window_right", -1, &p->mask.right));
    WEFT_TRY(meta_integer(c->file, "prefix", 0, &p->mask.prefix));
    WEFT_TRY(meta_number(c->file, "scale", 1.0 / sqrt((double)p->D), &p->scale));
    WEFT_TRY(meta_number(c->file, "softcap", 0, &p->softcap));
    WEFT_TRY(meta_number(c->file, "dropout", 0, &dropout));
    if (dropout != 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s: dropout %g is not built yet; use a case without", weft_st_path(c->file),
                         dropout);
    if (causal != 0 && causal != 1)
        return weft_fail(WEFT_ERR_REFUSED, "%s: metadata causal is %lld; 0 and 1 are possible", weft_st_path(c->file),
                         (long long)causal);
    p->mask.causal = causal != 0;
    WEFT_TRY(check_real(c, "scale", p->scale));
    return check_real(c, "softcap", p->softcap);
}

static weft_status is_float(const attention_case *c, const char *name, const weft_view *v)
{
    if (v->dtype <= WEFT_F16) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s has type %s; F64, F32, BF16 or F16 is needed",
                     weft_st_path(c->file), name, weft_dtype_safetensors(v->dtype));
}

static weft_status expect_shape(const attention_case *c, const char *name, const weft_view *v, int nd,
                                const int64_t *shape)
{
    char a[96], b[96];
    if (v->nd == nd && !memcmp(v->shape, shape, (size_t)nd * sizeof *shape)) return is_float(c, name, v);
    return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s has shape %s; the others ask for %s", weft_st_path(c->file), name,
                     weft_shape_text(v->shape, v->nd, a, sizeof a), weft_shape_text(shape, nd, b, sizeof b));
}

/* NaN spreads over whole tiles and an infinity makes one; no result of such a case would mean anything. A sink
 * of -inf is no sink. */
static weft_status check_finite(const attention_case *c, const char *name, const weft_view *v)
{
    bool sink = !strcmp(name, "sinks");
    for (int64_t i = 0, n = weft_view_count(v); i < n; i++) {
        double x = weft_load(v->data, v->dtype, i);
        if (!isfinite(x) && !(sink && x == -INFINITY))
            return weft_fail(WEFT_ERR_REFUSED, "%s: element %lld of %s is %g; finite values are needed", weft_st_path(c->file),
                             (long long)i, name, x);
    }
    return WEFT_OK;
}

static weft_status read_shapes(attention_case *c)
{
    weft_cp_problem *p = &c->problem;
    for (int i = Q; i <= DO; i++) WEFT_TRY(weft_st_require(c->file, names[i], &c->in[i]));
    const weft_view *q = c->in[Q], *k = c->in[K], *v = c->in[V];
    char text[96];
    for (int i = Q; i <= V; i++)
        if (c->in[i]->nd != 4)
            return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s has shape %s; [batch, tokens, heads, size] is needed",
                             weft_st_path(c->file), names[i],
                             weft_shape_text(c->in[i]->shape, c->in[i]->nd, text, sizeof text));
    for (int i = Q; i <= V; i++)
        for (int d = 0; d < 4; d++)
            if (c->in[i]->shape[d] < 1 || c->in[i]->shape[d] > INT32_MAX)
                return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s: dimension %d is %lld; 1 to 2147483647 is possible",
                                 weft_st_path(c->file), names[i], d, (long long)c->in[i]->shape[d]);
    p->B = q->shape[0];
    p->Tq = q->shape[1];
    p->T = k->shape[1];
    p->H = (int)q->shape[2];
    p->Hkv = (int)k->shape[2];
    p->D = (int)q->shape[3];
    p->Dv = (int)v->shape[3];
    WEFT_TRY(is_float(c, "q", q));
    WEFT_TRY(expect_shape(c, "k", k, 4, (int64_t[]){p->B, p->T, p->Hkv, p->D}));
    WEFT_TRY(expect_shape(c, "v", v, 4, (int64_t[]){p->B, p->T, p->Hkv, p->Dv}));
    WEFT_TRY(expect_shape(c, "do", c->in[DO], 4, (int64_t[]){p->B, p->Tq, p->H, p->Dv}));
    if (p->Tq > p->T)
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s: %lld queries for %lld keys; queries are the last part of the keys, so at most as many",
                         weft_st_path(c->file), (long long)p->Tq, (long long)p->T);
    c->sinks = weft_st_find(c->file, "sinks");
    c->alibi = weft_st_find(c->file, "alibi");
    if (!c->sinks && weft_st_find(c->file, "dsinks"))
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s: tensor dsinks is expected, but there are no sinks; add sinks or leave it out",
                         weft_st_path(c->file));
    if (c->sinks) WEFT_TRY(expect_shape(c, "sinks", c->sinks, 1, (int64_t[]){p->H}));
    if (c->alibi) WEFT_TRY(expect_shape(c, "alibi", c->alibi, 1, (int64_t[]){p->H}));
    for (int i = Q; i <= DO; i++) WEFT_TRY(check_finite(c, names[i], c->in[i]));
    if (c->sinks) WEFT_TRY(check_finite(c, "sinks", c->sinks));
    return c->alibi ? check_finite(c, "alibi", c->alibi) : WEFT_OK;
}

weft_status weft_read_cu_seqlens(const weft_st *f, weft_arena *arena, int64_t B, int64_t T, weft_docs *docs)
{
    const weft_view *v = weft_st_find(f, "cu_seqlens");
    if (v && (v->nd != 1 || v->shape[0] < 2 || (v->dtype != WEFT_I32 && v->dtype != WEFT_I64)))
        return weft_fail(WEFT_ERR_REFUSED, "%s: cu_seqlens must be a list of at least two i32 or i64 offsets",
                         weft_st_path(f));
    int64_t n = v ? v->shape[0] : 2, *cu = NULL, *first = NULL, total = 0;
    if (!weft_mul_i64(B, n, &total)) return weft_fail(WEFT_ERR_REFUSED, "%s: too many documents", weft_st_path(f));
    WEFT_TRY(WEFT_NEW(arena, total, "documents", &cu));
    WEFT_TRY(WEFT_NEW(arena, B + 1, "documents", &first));
    for (int64_t b = 0; b <= B; b++) first[b] = b * n;
    for (int64_t b = 0; b < B; b++) {
        cu[b * n] = 0;
        cu[b * n + 1] = T;
        if (v) weft_convert(cu + b * n, WEFT_I64, v->data, v->dtype, n);
    }
    *docs = (weft_docs){.B = B, .T = T, .cu = cu, .first = first};
    weft_status st = weft_docs_check(docs);
    return st < 0 ? weft_fail_at(st, "%s: cu_seqlens: ", weft_st_path(f)) : WEFT_OK;
}

static weft_status read_docs(attention_case *c)
{
    weft_cp_problem *p = &c->problem;
    WEFT_TRY(weft_read_cu_seqlens(c->file, c->arena, p->B, p->T, &c->docs));
    p->max_docs = c->docs.first[p->B] - p->B;
    c->q_docs = c->docs;
    if (p->Tq == p->T) return WEFT_OK;
    if (p->max_docs != p->B)
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s: cu_seqlens with %lld queries for %lld keys is not built; give as many queries as keys",
                         weft_st_path(c->file), (long long)p->Tq, (long long)p->T);
    int64_t *cu = NULL;
    WEFT_TRY(WEFT_NEW(c->arena, 2 * p->B, "documents", &cu));
    for (int64_t b = 0; b < p->B; b++) cu[2 * b] = 0, cu[2 * b + 1] = p->Tq;
    c->q_docs = (weft_docs){.B = p->B, .T = p->Tq, .cu = cu, .first = c->docs.first};
    return WEFT_OK;
}

/* ---- this rank's rows ----------------------------------------------------------------------------- */

static int64_t width_of(const attention_case *c, int i)
{
    const weft_cp_problem *p = &c->problem;
    switch (i) {
    case Q:
    case DQ: return (int64_t)p->H * p->D;
    case K:
    case DK: return (int64_t)p->Hkv * p->D;
    case V:
    case DV: return (int64_t)p->Hkv * p->Dv;
    default: return (int64_t)p->H * p->Dv;
    }
}

static const weft_shard *shard_of(const attention_case *c, int i)
{
    return i == K || i == V || i == DK || i == DV ? &c->shard_kv : &c->shard_q;
}

static weft_status take_rows(attention_case *c, int i, int rank)
{
    const weft_shard *s = shard_of(c, i);
    int64_t rows = s->rows[rank], width = width_of(c, i), *index = NULL, *pos = NULL;
    WEFT_TRY(WEFT_NEW(c->arena, rows * width, names[i], (double **)&c->mine[i]));
    if (i > DO) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(c->arena, rows, "index", &index));
    WEFT_TRY(WEFT_NEW(c->arena, rows, "positions", &pos));
    weft_shard_tokens(s, rank, index, pos);
    size_t to = weft_dtype_size(c->C), from = weft_dtype_size(c->in[i]->dtype);
    for (int64_t r = 0; r < rows; r++)
        weft_convert((char *)c->mine[i] + (size_t)(r * width) * to, c->C,
                     (const char *)c->in[i]->data + (size_t)(index[r] * width) * from, c->in[i]->dtype, width);
    return WEFT_OK;
}

static weft_status convert_heads(attention_case *c, const weft_view *v, const char *label, void **out)
{
    if (!v) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(c->arena, c->problem.H, label, (double **)out));
    weft_convert(*out, c->R, v->data, v->dtype, c->problem.H);
    return WEFT_OK;
}

static weft_status prepare(attention_case *c)
{
    weft_cp_problem *p = &c->problem;
    int P = weft_comm_size(c->comm), me = weft_comm_rank(c->comm);
    int64_t capacity = weft_shard_capacity(p->B, p->max_docs, P);
    WEFT_TRY(weft_shard_alloc(&c->shard_kv, c->arena, P, capacity));
    WEFT_TRY(weft_shard_make(&c->shard_kv, c->run->layout, &c->docs, 0));
    WEFT_TRY(weft_shard_alloc(&c->shard_q, c->arena, P, capacity));
    WEFT_TRY(weft_shard_make(&c->shard_q, c->run->layout, &c->q_docs, p->T - p->Tq));
    for (int i = 0; i < TENSORS; i++) WEFT_TRY(take_rows(c, i, me));
    int64_t stats = c->shard_q.rows[me] * p->H;
    WEFT_TRY(WEFT_NEW(c->arena, stats, "max", (double **)&c->m));
    WEFT_TRY(WEFT_NEW(c->arena, stats, "sum", (double **)&c->l));
    WEFT_TRY(WEFT_NEW(c->arena, stats, "lse", (double **)&c->lse));
    WEFT_TRY(WEFT_NEW0(c->arena, p->H, "dsinks", (double **)&c->dsinks));
    WEFT_TRY(convert_heads(c, c->sinks, "sinks", &c->sink_values));
    WEFT_TRY(convert_heads(c, c->alibi, "alibi", &c->alibi_values));
    p->alibi = c->alibi_values;
    p->sinks = c->sinks != NULL;
    return WEFT_OK;
}

/* ---- running and gathering ------------------------------------------------------------------------ */

static weft_status run_plan(attention_case *c, weft_cp_plan *plan)
{
    const weft_cp_problem *p = &c->problem;
    const weft_shard *q = p->Tq == p->T ? &c->shard_kv : &c->shard_q;
    weft_cp_io io = {.q = c->mine[Q],
                     .k = c->mine[K],
                     .v = c->mine[V],
                     .q_ld = width_of(c, Q),
                     .k_ld = width_of(c, K),
                     .v_ld = width_of(c, V),
                     .sinks = c->sink_values,
                     .o = c->mine[O],
                     .o_ld = width_of(c, O),
                     .m = c->m,
                     .l = c->l,
                     .lse = c->lse,
                     .dout = c->mine[DO],
                     .dout_ld = width_of(c, DO),
                     .dq = c->mine[DQ],
                     .dk = c->mine[DK],
                     .dv = c->mine[DV],
                     .dq_ld = width_of(c, DQ),
                     .dk_ld = width_of(c, DK),
                     .dv_ld = width_of(c, DV),
                     .dsinks = c->sinks ? c->dsinks : NULL};
    WEFT_TRY(weft_cp_bind(plan, 0, q, &c->shard_kv));
    WEFT_TRY(weft_cp_forward(plan, 0, &io));
    WEFT_TRY(weft_cp_backward(plan, 0, &io));
    if (c->sinks) WEFT_TRY(weft_all_reduce(c->comm, c->dsinks, p->H, c->R, WEFT_SUM));
    return WEFT_OK;
}

static weft_status run_case(attention_case *c, weft_report *report)
{
    weft_kern kern;
    weft_cp_plan *plan = NULL;
    WEFT_TRY(weft_kern_init(&kern, c->run->isa));
    WEFT_TRY(weft_cp_plan_create(&plan, c->arena, &kern, c->comm, &c->problem, &c->run->cp));
    weft_status st = run_plan(c, plan);
    if (st >= 0 && c->ctx->rank == 0) {
        weft_text_add(&report->note, "plan      ");
        weft_cp_describe(plan, &report->note);
        weft_text_add(&report->note, "\n");
    }
    weft_cp_plan_destroy(plan);
    return st;
}

/* All ranks' rows in the order of the file, as `to`. */
static weft_status gather(attention_case *c, const weft_shard *s, const void *mine, weft_dtype from, int64_t width,
                          weft_dtype to, void **out)
{
    int P = s->P;
    size_t unit = (size_t)width * weft_dtype_size(from), *counts = NULL;
    int64_t total = s->B * s->T, *index = NULL, *pos = NULL;
    char *packed = NULL;
    WEFT_TRY(WEFT_NEW(c->arena, P, "counts", &counts));
    WEFT_TRY(weft_arena_alloc(c->arena, total, unit, "gathered rows", (void **)&packed));
    WEFT_TRY(weft_arena_alloc(c->arena, total * width, weft_dtype_size(to), "gathered", out));
    WEFT_TRY(WEFT_NEW(c->arena, total, "index", &index));
    WEFT_TRY(WEFT_NEW(c->arena, total, "positions", &pos));
    for (int r = 0; r < P; r++) counts[r] = (size_t)s->rows[r] * unit;
    WEFT_TRY(weft_all_gather(c->comm, mine, packed, counts));
    for (int r = 0; r < P; r++) {
        weft_shard_tokens(s, r, index, pos);
        for (int64_t i = 0; i < s->rows[r]; i++, packed += unit)
            weft_convert((char *)*out + (size_t)(index[i] * width) * weft_dtype_size(to), to, packed, from, width);
    }
    return WEFT_OK;
}

static double limit_of(const attention_case *c, const char *name)
{
    bool narrow = c->C == WEFT_BF16 || c->C == WEFT_F16;
    char key[32];
    double v;
    /* the gradient of the sinks is judged like dq in 16 bits */
    snprintf(key, sizeof key, "tol_%s_%s", narrow ? "bf16" : "fp32", narrow && !strcmp(name, "dsinks") ? "dq" : name);
    const char *text = weft_st_meta(c->file, key);
    if (text && weft_parse_f64(text, &v) >= 0) return v;
    return narrow ? 6e-3 : 2e-6;
}

/* For information: the same error over the last eighth of the positions, where most keys are visible. */
static double tail_error(const weft_view *want, const void *got, weft_dtype t, double floor)
{
    int64_t B = want->shape[0], T = want->shape[1], width = want->shape[2] * want->shape[3];
    int64_t tail = weft_ceil_div(T, 8);
    double diff = 0, norm = 0;
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = (b * T + T - tail) * width; i < (b + 1) * T * width; i++) {
            double a = weft_load(got, t, i), r = weft_load(want->data, want->dtype, i);
            diff += (a - r) * (a - r);
            norm += r * r;
        }
    return diff == 0 ? 0 : sqrt(diff) / fmax(sqrt(norm), floor);
}

static weft_status compare(attention_case *c, const weft_st_entry *got, int n, weft_report *report)
{
    const weft_view *dout = c->in[DO];
    double floor = weft_norm2(dout->data, dout->dtype, weft_view_count(dout)) / 100;
    weft_text_add(&report->note, "last 1/8  ");
    for (int i = 0; i < n; i++) {
        const weft_view *want = weft_st_find(c->file, got[i].name), *x = &got[i].view;
        if (!want) continue;
        WEFT_TRY(expect_shape(c, got[i].name, want, x->nd, x->shape));
        bool lse = !strcmp(got[i].name, "lse"), narrow = c->C != WEFT_F32 && c->C != WEFT_F64;
        double error = lse ? weft_max_scaled(x->data, x->dtype, want->data, want->dtype, weft_view_count(x))
                           : weft_rel_l2(x->data, x->dtype, want->data, want->dtype, weft_view_count(x), floor);
        WEFT_TRY(weft_report_add(report, got[i].name, error, lse ? (narrow ? 1e-3 : 1e-5) : limit_of(c, got[i].name)));
        if (x->nd == 4)
            weft_text_add(&report->note, "%s %.1e  ", got[i].name,
                          tail_error(want, x->data, x->dtype, floor / sqrt(8)));
    }
    weft_text_add(&report->note, "\n");
    return WEFT_OK;
}

static weft_status collect(attention_case *c, weft_st_entry *got, int *n)
{
    const weft_cp_problem *p = &c->problem;
    weft_dtype t = c->R; /* 16-bit results are written as the F32 that they are */
    *n = 0;
    for (int i = O; i < TENSORS; i++) {
        bool keys = i == DK || i == DV;
        weft_view v = {.dtype = t,
                       .nd = 4,
                       .shape = {p->B, keys ? p->T : p->Tq, keys ? p->Hkv : p->H, i == DQ || i == DK ? p->D : p->Dv}};
        WEFT_TRY(gather(c, shard_of(c, i), c->mine[i], c->C, width_of(c, i), t, &v.data));
        got[(*n)++] = (weft_st_entry){names[i], v};
    }
    weft_view lse = {.dtype = t, .nd = 3, .shape = {p->B, p->Tq, p->H}};
    WEFT_TRY(gather(c, &c->shard_q, c->lse, c->R, p->H, t, &lse.data));
    got[(*n)++] = (weft_st_entry){"lse", lse};
    if (c->sinks) got[(*n)++] = (weft_st_entry){"dsinks", {.data = c->dsinks, .dtype = t, .nd = 1, .shape = {p->H}}};
    return WEFT_OK;
}

static weft_status judge_on_root(attention_case *c, const weft_st_entry *got, int n, weft_report *report)
{
    if (c->ctx->rank != 0) return WEFT_OK;
    WEFT_TRY(compare(c, got, n, report));
    return c->run->o->out ? weft_st_write(c->run->o->out, got, n, NULL) : WEFT_OK;
}

static weft_status judge(attention_case *c, weft_report *report)
{
    weft_st_entry got[TENSORS + 2];
    int n = 0;
    WEFT_TRY(collect(c, got, &n));
    WEFT_TRY(weft_agree(c->comm, judge_on_root(c, got, n, report)));
    return weft_report_share(c->comm, report);
}

weft_status weft_verify_attention(weft_world *world, const weft_run *run, const char *path, weft_report *report)
{
    attention_case c = {.run = run,
                        .ctx = weft_world_ctx(world),
                        .C = weft_prec_compute(run->prec),
                        .R = weft_prec_real(run->prec)};
    weft_st *file = NULL;
    weft_mesh mesh = {0};
    weft_status st;
    WEFT_TRY(weft_mesh_create(&mesh, world, run->mesh));
    c.comm = mesh.cp;
    WEFT_TRY_OR(st, weft_arena_create(&c.arena, &c.ctx->mem, "attention case", NULL), close_mesh);
    WEFT_TRY_OR(st, weft_st_open(&file, path), free_arena);
    c.file = file;
    c.problem = (weft_cp_problem){.prec = run->prec, .layout = run->layout, .need_backward = true, .slots = 1};
    WEFT_TRY_OR(st, read_shapes(&c), close_file);
    WEFT_TRY_OR(st, read_meta(&c), close_file);
    WEFT_TRY_OR(st, read_docs(&c), close_file);
    WEFT_TRY_OR(st, prepare(&c), close_file);
    WEFT_TRY_OR(st, run_case(&c, report), close_file);
    WEFT_TRY_OR(st, judge(&c, report), close_file);
close_file:
    weft_st_close(file);
free_arena:
    weft_arena_destroy(c.arena);
close_mesh:
    weft_mesh_destroy(&mesh);
    return st;
}
