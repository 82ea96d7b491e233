/* hf_load.c — filling an array of weights from a model directory. Everything is checked before the first
 * weight is written: a model with some tensors loaded and some random would train, and be wrong. */
#include "ckpt/ckpt_impl.h"

#include <stdlib.h>
#include <string.h>

static bool is_float(weft_dtype t)
{
    return t == WEFT_F64 || t == WEFT_F32 || t == WEFT_BF16 || t == WEFT_F16 || t == WEFT_F8_E4M3 || t == WEFT_F8_E5M2;
}

/* ---- the table's side --------------------------------------------------------------------------------- */

static weft_status missing(const weft__hf *hf, const weft_spec *spec)
{
    const char **names = calloc((size_t)hf->n + 1, sizeof *names);
    if (!names) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", hf->dir);
    for (int i = 0; i < hf->n; i++) names[i] = hf->tensor[i].name;
    const char *near = weft_suggest(spec->name, names, hf->n);
    free(names);
    if (strcmp(spec->name, "lm_head.weight") == 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s is missing; without it the model must be tied "
                                           "(tie_word_embeddings: true)", hf->dir, spec->name);
    if (near)
        return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s is missing; did you mean %s?", hf->dir, spec->name, near);
    return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s is missing among %d tensors", hf->dir, spec->name, hf->n);
}

static weft_status check_one(const weft__hf *hf, const weft_spec *spec)
{
    weft__hf_tensor *t = weft__hf_find(hf, spec->name);
    if (!t) return missing(hf, spec);
    t->used = true;
    bool same = t->view->nd == spec->nd;
    for (int d = 0; same && d < spec->nd; d++) same = t->view->shape[d] == spec->shape[d];
    if (!same) {
        char have[128], need[128];
        return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s has shape %s, the model needs %s", weft_st_path(t->file),
                         t->name, weft_shape_text(t->view->shape, t->view->nd, have, sizeof have),
                         weft_shape_text(spec->shape, spec->nd, need, sizeof need));
    }
    if (!is_float(t->view->dtype))
        return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s is %s; weights are floating-point numbers",
                         weft_st_path(t->file), t->name, weft_dtype_safetensors(t->view->dtype));
    return WEFT_OK;
}

/* ---- the file's side ---------------------------------------------------------------------------------- */

static bool ends_with(const char *s, const char *end)
{
    size_t a = strlen(s), b = strlen(end);
    return a >= b && strcmp(s + a - b, end) == 0;
}

/* Buffers that old exports hold and that the model computes itself: masks and rotary frequencies. */
static bool is_known_buffer(const char *name)
{
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i])) return true;
    return false;
}

/* The four combinations of flag and content: a tied model may repeat its embedding as lm_head.weight; a
 * head of its own under a tied configuration is two models in one folder. */
static weft_status check_tied_head(const weft__hf *hf, const weft__hf_tensor *head)
{
    const weft__hf_tensor *embedding = weft__hf_find(hf, "wte.weight");
    if (!embedding) embedding = weft__hf_find(hf, "embed_tokens.weight");
    if (embedding && embedding->view->dtype == head->view->dtype && weft_same_shape(embedding->view, head->view) &&
        memcmp(embedding->view->data, head->view->data,
               (size_t)weft_view_count(head->view) * weft_dtype_size(head->view->dtype)) == 0)
        return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED,
                     "%s: tensor %s differs from the embedding %s, but the configuration ties them; set "
                     "tie_word_embeddings to false, or remove it", weft_st_path(head->file), head->name,
                     embedding ? embedding->name : "(which is missing)");
}

static weft_status check_leftovers(const weft__hf *hf, bool tied)
{
    for (int i = 0; i < hf->n; i++) {
        const weft__hf_tensor *t = &hf->tensor[i];
        if (t->used || is_known_buffer(t->name)) continue;
        if (tied && strcmp(t->key, "lm_head.weight") == 0) {
            WEFT_TRY(check_tied_head(hf, t));
            continue;
        }
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s: tensor %s is not part of this model (another architecture or configuration?)",
                         weft_st_path(t->file), t->name);
    }
    return WEFT_OK;
}

void weft__read_piece(const weft_view *v, const weft_spec *s, const weft_piece *p, weft_dtype dtype)
{
    weft_spec_walk w = weft_spec_walk_of(s, p->first, p->count);
    weft_stretch x;
    while (weft_spec_walk_next(&w, &x))
        weft_convert((char *)p->data + (size_t)(x.at - p->first) * weft_dtype_size(dtype), dtype,
                     (const char *)v->data + (size_t)x.whole * weft_dtype_size(v->dtype), v->dtype, x.n);
}

weft_status weft_ckpt_load_parts(const char *dir, const weft_spec *whole, int n_whole, bool tied,
                                 const weft_held *into)
{
    if (!is_float(into->dtype))
        return weft_fail(WEFT_ERR_REFUSED, "%s: weights cannot be held as %s", dir, weft_dtype_name(into->dtype));
    weft__hf hf;
    weft_status st = weft__hf_open(&hf, dir);
    for (int i = 0; i < n_whole && st == WEFT_OK; i++) st = check_one(&hf, &whole[i]);
    if (st == WEFT_OK) st = check_leftovers(&hf, tied);
    for (int i = 0; i < into->pieces && st == WEFT_OK; i++) {
        const weft_spec *s = &into->spec[into->piece[i].spec];
        weft__read_piece(weft__hf_find(&hf, s->name)->view, s, &into->piece[i], into->dtype);
    }
    weft__hf_close(&hf);
    return st;
}

weft_status weft_ckpt_glance_weights(const char *dir, weft_glance *out)
{
    weft__hf hf;
    weft_status st = weft__hf_open(&hf, dir);
    *out = (weft_glance){0};
    for (int i = 0; i < hf.files && st == WEFT_OK; i++) weft_glance_add(out, weft_st_glance(hf.file[i]));
    weft__hf_close(&hf);
    return st;
}

weft_status weft_ckpt_load_weights(const char *dir, const weft_spec *spec, int n, bool tied, void *weights,
                                   weft_dtype dtype)
{
    weft_spec *whole = calloc((size_t)n + 1, sizeof *whole);
    weft_piece *piece = calloc((size_t)n + 1, sizeof *piece);
    weft_status st = whole && piece ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for %d tensors", dir, n);
    if (st == WEFT_OK) {
        if (n) memcpy(whole, spec, (size_t)n * sizeof *whole);
        for (int i = 0; i < n; i++) weft_spec_uncut(&whole[i]);
        weft_pieces_of(whole, n, weights, dtype, piece);
        const weft_held into = {.spec = whole, .n = n, .piece = piece, .pieces = n, .dtype = dtype};
        st = weft_ckpt_load_parts(dir, whole, n, tied, &into);
    }
    free(whole);
    free(piece);
    return st;
}
