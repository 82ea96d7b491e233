/* attention_read.c — an attention case from a file: shapes, metadata, documents; what means nothing is refused. */
#include "train/attention_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const weft__case_names[WEFT_CASE_TENSORS] = {"q", "k", "v", "do", "o", "dq", "dk", "dv"};

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

/* "tol_fp32_dq": a limit that cannot be read, or under which nothing fails, is no limit. */
static weft_status check_limit(const weft_st *f, const char *key)
{
    double v;
    weft_status st = weft_parse_f64(weft_st_meta(f, key), &v);
    if (st < 0) return weft_fail_at(st, "%s: metadata %s: ", weft_st_path(f), key);
    if (isfinite(v) && v > 0) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s: metadata %s is %g; a limit is above 0", weft_st_path(f), key, v);
}

/* A misspelt key would be ignored in silence, and the mask it asks for with it. Keys that resemble none of ours
 * belong to the file's maker. */
static weft_status check_meta_key(const weft_st *f, const char *path, const char *key)
{
    static const char *const known[] = {"causal", "window_left", "window_right", "prefix", "scale",
                                        "softcap", "dropout", "dropout_seed"};
    enum { KNOWN = sizeof known / sizeof *known };
    for (int i = 0; i < KNOWN; i++)
        if (!strcmp(key, known[i])) return WEFT_OK;
    if (!strncmp(key, "tol_fp32_", 9) || !strncmp(key, "tol_bf16_", 9)) return check_limit(f, key);
    const char *near = !strncmp(key, "window", 6) ? "window_left" : weft_suggest(key, known, KNOWN);
    if (!near || !strncmp(key, "tol_", 4)) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s: metadata key \"%s\" is not known; did you mean \"%s\"?", path, key, near);
}

/* What the file says holds where the command line says nothing. */
static weft_status read_dropout(weft_attention_case *c)
{
    WEFT_TRY(meta_number(c->file, "dropout", 0, &c->file_dropout));
    if (!(c->file_dropout >= 0 && c->file_dropout < 1))
        return weft_fail(WEFT_ERR_REFUSED, "%s: metadata dropout is %g; 0 (none) up to below 1 is possible", c->name,
                         c->file_dropout);
    WEFT_TRY(meta_integer(c->file, "dropout_seed", -1, &c->file_seed));
    if (c->file_seed < -1)
        return weft_fail(WEFT_ERR_REFUSED, "%s: metadata dropout_seed is %lld; at least 0", c->name,
                         (long long)c->file_seed);
    c->problem.dropout = c->file_dropout;
    if (c->file_seed >= 0 && !c->run->seed_given) c->problem.seed = (uint64_t)c->file_seed;
    return WEFT_OK;
}

static weft_status read_meta(weft_attention_case *c)
{
    weft_cp_problem *p = &c->problem;
    int64_t causal = 0;
    const char *key = NULL;
    for (int i = 0; (key = weft_st_meta_key(c->file, i)); i++) WEFT_TRY(check_meta_key(c->file, c->name, key));
    WEFT_TRY(meta_integer(c->file, "causal", 0, &causal));
    WEFT_TRY(meta_integer(c->file, "window_left", -1, &p->mask.left));
    WEFT_TRY(meta_integer(c->file, "window_right", -1, &p->mask.right));
    WEFT_TRY(meta_integer(c->file, "prefix", 0, &p->mask.prefix));
    WEFT_TRY(meta_number(c->file, "scale", 1.0 / sqrt((double)p->D), &p->scale));
    WEFT_TRY(meta_number(c->file, "softcap", 0, &p->softcap));
    WEFT_TRY(read_dropout(c));
    if (causal != 0 && causal != 1)
        return weft_fail(WEFT_ERR_REFUSED, "%s: metadata causal is %lld; 0 and 1 are possible", c->name,
                         (long long)causal);
    p->mask.causal = causal != 0;
    return WEFT_OK;
}

static weft_status is_float(const weft_attention_case *c, const char *name, const weft_view *v)
{
    if (v->dtype <= WEFT_F16) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s has type %s; F64, F32, BF16 or F16 is needed",
                     c->name, name, weft_dtype_safetensors(v->dtype));
}

weft_status weft__case_expect_shape(const weft_attention_case *c, const char *name, const weft_view *v, int nd,
                                    const int64_t *shape)
{
    char a[96], b[96];
    if (v->nd == nd && !memcmp(v->shape, shape, (size_t)nd * sizeof *shape)) return is_float(c, name, v);
    return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s has shape %s; the others ask for %s", c->name, name,
                     weft_shape_text(v->shape, v->nd, a, sizeof a), weft_shape_text(shape, nd, b, sizeof b));
}

/* NaN spreads over whole tiles and an infinity makes one; no result of such a case would mean anything. A value that is
 * infinite in `type`, in which the kernels have it, is as bad. A sink of -inf is no sink. */
static weft_status check_finite(const weft_attention_case *c, const char *name, const weft_view *v, weft_dtype type)
{
    bool sink = !strcmp(name, "sinks");
    for (int64_t i = 0, n = weft_view_count(v); i < n; i++) {
        double x = weft_load(v->data, v->dtype, i), held;
        weft_convert(&held, type, (const char *)v->data + (size_t)i * weft_dtype_size(v->dtype), v->dtype, 1);
        double y = weft_load(&held, type, 0);
        if (isfinite(y) || (sink && y == -INFINITY)) continue;
        if (isfinite(x))
            return weft_fail(WEFT_ERR_REFUSED, "%s: element %lld of %s is %g, too large for %s; use another "
                             "--precision", c->name, (long long)i, name, x, weft_dtype_safetensors(type));
        return weft_fail(WEFT_ERR_REFUSED, "%s: element %lld of %s is %g; finite values are needed", c->name,
                         (long long)i, name, x);
    }
    return WEFT_OK;
}

static weft_status read_shapes(weft_attention_case *c)
{
    weft_cp_problem *p = &c->problem;
    for (int i = WEFT_CASE_Q; i <= WEFT_CASE_DO; i++)
        WEFT_TRY(weft_st_require(c->file, weft__case_names[i], &c->in[i]));
    const weft_view *q = c->in[WEFT_CASE_Q], *k = c->in[WEFT_CASE_K], *v = c->in[WEFT_CASE_V];
    char text[96];
    for (int i = WEFT_CASE_Q; i <= WEFT_CASE_V; i++)
        if (c->in[i]->nd != 4)
            return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s has shape %s; [batch, tokens, heads, size] is needed",
                             c->name, weft__case_names[i],
                             weft_shape_text(c->in[i]->shape, c->in[i]->nd, text, sizeof text));
    for (int i = WEFT_CASE_Q; i <= WEFT_CASE_V; i++)
        for (int d = 0; d < 4; d++)
            if (c->in[i]->shape[d] < 1 || c->in[i]->shape[d] > INT32_MAX)
                return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s: dimension %d is %lld; 1 to 2147483647 is possible",
                                 c->name, weft__case_names[i], d, (long long)c->in[i]->shape[d]);
    p->B = q->shape[0];
    p->Tq = q->shape[1];
    p->T = k->shape[1];
    p->H = (int)q->shape[2];
    p->Hkv = (int)k->shape[2];
    p->D = (int)q->shape[3];
    p->Dv = (int)v->shape[3];
    WEFT_TRY(is_float(c, "q", q));
    WEFT_TRY(weft__case_expect_shape(c, "k", k, 4, (int64_t[]){p->B, p->T, p->Hkv, p->D}));
    WEFT_TRY(weft__case_expect_shape(c, "v", v, 4, (int64_t[]){p->B, p->T, p->Hkv, p->Dv}));
    WEFT_TRY(weft__case_expect_shape(c, "do", c->in[WEFT_CASE_DO], 4, (int64_t[]){p->B, p->Tq, p->H, p->Dv}));
    if (p->Tq > p->T)
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s: %lld queries for %lld keys; queries are the last part of the keys, so at most as many",
                         c->name, (long long)p->Tq, (long long)p->T);
    c->file_sinks = weft_st_find(c->file, "sinks");
    c->file_alibi = weft_st_find(c->file, "alibi");
    if (!c->file_sinks && weft_st_find(c->file, "dsinks"))
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s: tensor dsinks is expected, but there are no sinks; add sinks or leave it out",
                         c->name);
    if (c->file_sinks) WEFT_TRY(weft__case_expect_shape(c, "sinks", c->file_sinks, 1, (int64_t[]){p->H}));
    if (c->file_alibi) WEFT_TRY(weft__case_expect_shape(c, "alibi", c->file_alibi, 1, (int64_t[]){p->H}));
    for (int i = WEFT_CASE_Q; i <= WEFT_CASE_DO; i++) WEFT_TRY(check_finite(c, weft__case_names[i], c->in[i], c->C));
    if (c->file_sinks) WEFT_TRY(check_finite(c, "sinks", c->file_sinks, c->R));
    return c->file_alibi ? check_finite(c, "alibi", c->file_alibi, c->R) : WEFT_OK;
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

weft_status weft__case_read(weft_attention_case *c)
{
    WEFT_TRY(read_shapes(c));
    WEFT_TRY(read_meta(c));
    return weft_read_cu_seqlens(c->file, c->arena, c->problem.B, c->problem.T, &c->docs);
}
