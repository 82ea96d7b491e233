/* config_check.c — the rules that sizes obey, whoever made the config. Messages use the keys of the
 * family's config.json, so that they can be acted on. */
#include <math.h>

#include "model/model_impl.h"

static weft_status check_size(const char *where, const char *key, int64_t value)
{
    if (value < 1 || value > INT32_MAX)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is %lld; it must be at least 1 and below 2^31", where, key,
                         (long long)value);
    return WEFT_OK;
}

/* Every use of a config walks its layers; the deepest models have some thousand. */
enum { MAX_LAYERS = 1 << 16 };

static weft_status check_sizes(const weft_model_config *c, const weft__keys *k, const char *where)
{
    WEFT_TRY(check_size(where, k->V, c->V));
    WEFT_TRY(check_size(where, k->C, c->C));
    WEFT_TRY(check_size(where, k->F, c->F));
    WEFT_TRY(check_size(where, k->L, c->L));
    if (c->L > MAX_LAYERS)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is %lld; at most %d works", where, k->L, (long long)c->L,
                         MAX_LAYERS);
    WEFT_TRY(check_size(where, k->H, c->H));
    WEFT_TRY(check_size(where, k->Hkv, c->Hkv));
    WEFT_TRY(check_size(where, k->D, c->D));
    WEFT_TRY(check_size(where, k->max_position, c->max_position));
    if (!(c->norm_eps > 0 && c->norm_eps <= 1)) /* beyond that a norm only shrinks its input */
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is %g; it must be above 0 and at most 1, as 1e-5", where, k->eps,
                         c->norm_eps);
    return WEFT_OK;
}

static weft_status check_heads(const weft_model_config *c, const weft__family *f, const char *where)
{
    const weft__keys *k = f->keys;
    if (c->H % c->Hkv)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is %d and %s is %d; the first must be a multiple of the second",
                         where, k->H, c->H, k->Hkv, c->Hkv);
    if (c->D > WEFT_ATTN_MAX_D)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the head size is %d; at most %d works", where, c->D, WEFT_ATTN_MAX_D);
    if (c->rope.type != WEFT_ROPE_NONE && c->D % 2)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is %d; rotary positions turn pairs and need an even head size",
                         where, k->D, c->D);
    if (f->conv1d && c->Hkv != c->H)
        return weft_fail(WEFT_ERR_REFUSED, "%s: this family has a key/value head for each query head, %d, not %d",
                         where, c->H, c->Hkv);
    if (f->conv1d && (int64_t)c->H * c->D != c->C)
        return weft_fail(WEFT_ERR_REFUSED, "%s: n_embd %lld must be n_head %d times the head size %d", where,
                         (long long)c->C, c->H, c->D);
    /* Every tensor is at most sizes below 2^31 multiplied in pairs; the width of q, k, v is an int64_t. */
    return WEFT_OK;
}

static weft_status check_yarn(const weft_model_config *c, const char *where)
{
    const weft_rope_config *r = &c->rope;
    if (r->theta <= 1)
        return weft_fail(WEFT_ERR_REFUSED, "%s: rope_theta is %g; yarn needs more than 1", where, r->theta);
    if (!(r->beta_slow > 0) || r->beta_fast < r->beta_slow)
        return weft_fail(WEFT_ERR_REFUSED, "%s: beta_fast is %g and beta_slow is %g; 0 < beta_slow <= beta_fast works",
                         where, r->beta_fast, r->beta_slow);
    if (r->attention_factor < 0 || !isfinite(r->attention_factor) || r->original_max_position < 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s: attention_factor is %g and original_max_position_embeddings is %lld; "
                         "neither may be negative", where, r->attention_factor, (long long)r->original_max_position);
    return WEFT_OK;
}

static weft_status check_rope(const weft_model_config *c, const weft__family *f, const char *where)
{
    const weft_rope_config *r = &c->rope;
    if (f->learned_positions != (r->type == WEFT_ROPE_NONE))
        return weft_fail(WEFT_ERR_REFUSED, "%s: model_type %s %s rotary positions", where, f->model_type,
                         f->learned_positions ? "has no" : "needs");
    if (r->type == WEFT_ROPE_NONE) return WEFT_OK;
    if (!(r->theta > 0) || !isfinite(r->theta))
        return weft_fail(WEFT_ERR_REFUSED, "%s: rope_theta is %g; it must be a positive number", where, r->theta);
    if (r->type == WEFT_ROPE_PLAIN) return WEFT_OK;
    if (!(r->factor >= 1) || !isfinite(r->factor))
        return weft_fail(WEFT_ERR_REFUSED, "%s: the RoPE factor is %g; it must be at least 1", where, r->factor);
    if (r->type == WEFT_ROPE_YARN) WEFT_TRY(check_yarn(c, where));
    if (r->type == WEFT_ROPE_LLAMA3 &&
        (!(r->low_freq_factor > 0) || !(r->high_freq_factor > r->low_freq_factor) || r->original_max_position < 1))
        return weft_fail(WEFT_ERR_REFUSED, "%s: low_freq_factor %g, high_freq_factor %g, "
                         "original_max_position_embeddings %lld; 0 < low < high and a positive length work", where,
                         r->low_freq_factor, r->high_freq_factor, (long long)r->original_max_position);
    return WEFT_OK;
}

static weft_status check_id(const weft_model_config *c, const char *where, const char *key, int64_t id)
{
    if (id < -1 || id >= c->V)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is %lld; it must be below vocab_size %lld", where, key,
                         (long long)id, (long long)c->V);
    return WEFT_OK;
}

/* A window that the family's config.json has no key for would be lost when the model is saved, in silence. */
static weft_status check_window_keys(const weft_model_config *c, const weft__family *f, const char *where)
{
    if (c->window && !f->default_window)
        return weft_fail(WEFT_ERR_REFUSED, "%s: sliding_window is %lld, and model_type %s has none; mistral, qwen2 and "
                         "qwen3 have", where, (long long)c->window, f->model_type);
    if (c->window && c->window_from_layer && !f->window_switch)
        return weft_fail(WEFT_ERR_REFUSED, "%s: windows from layer %lld on; model_type %s has them in all layers or in "
                         "none, qwen2 and qwen3 from one on", where, (long long)c->window_from_layer, f->model_type);
    return WEFT_OK;
}

weft_status weft_model_config_check_file(const weft_model_config *c, const char *where)
{
    WEFT_TRY(weft_model_config_check(c, where));
    return check_window_keys(c, weft__family_of(c->family), where);
}

weft_status weft_model_config_check(const weft_model_config *c, const char *where)
{
    const weft__family *f = weft__family_of(c->family);
    weft__params par;
    int64_t bytes;
    WEFT_TRY(check_sizes(c, f->keys, where));
    WEFT_TRY(check_heads(c, f, where));
    WEFT_TRY(check_rope(c, f, where));
    WEFT_TRY(check_id(c, where, "bos_token_id", c->bos));
    WEFT_TRY(check_id(c, where, "eos_token_id", c->eos));
    if (c->window < 0 || c->window_from_layer < 0 || c->window_from_layer > c->L)
        return weft_fail(WEFT_ERR_REFUSED, "%s: sliding_window is %lld from layer %lld on; a window of at least 1 (0: "
                         "none) from one of %lld layers works", where, (long long)c->window,
                         (long long)c->window_from_layer, (long long)c->L);
    weft_status st = weft__params_walk(c, &weft_model_all, NULL, NULL, NULL, &par);
    if (st < 0 || !weft_mul_i64(par.count, (int64_t)sizeof(double), &bytes))
        return weft_fail(WEFT_ERR_REFUSED, "%s: the sizes give more parameters than memory sizes count", where);
    return WEFT_OK;
}
