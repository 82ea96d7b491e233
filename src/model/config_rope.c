/* config_rope.c — the RoPE keys of a config.json, in both spellings.
 *
 * Older files: rope_theta beside rope_scaling {"type" or "rope_type", ...}. Newer files: rope_parameters
 * {"rope_type", "rope_theta", ...}. Where a file has both they must agree: a reader that prefers one in
 * silence gives a model that is right on short text only. */
#include <string.h>

#include "model/config_impl.h"

static const char *const type_names[] = {
    [WEFT_ROPE_NONE] = "none", [WEFT_ROPE_PLAIN] = "default", [WEFT_ROPE_LINEAR] = "linear",
    [WEFT_ROPE_LLAMA3] = "llama3", [WEFT_ROPE_YARN] = "yarn",
};

const char *weft__rope_type_name(weft_rope_type type) { return type_names[type]; }

static weft_status read_type(const weft__cfg *r, weft_rope_type *out)
{
    const char *name, *legacy;
    WEFT_TRY(weft__cfg_text(r, "type", "default", &legacy));
    WEFT_TRY(weft__cfg_text(r, "rope_type", legacy, &name));
    for (int t = WEFT_ROPE_PLAIN; t <= WEFT_ROPE_YARN; t++) {
        if (strcmp(name, type_names[t]) != 0) continue;
        *out = (weft_rope_type)t;
        return WEFT_OK;
    }
    return weft_fail(WEFT_ERR_REFUSED, "%s: %srope_type is \"%s\"; default, linear, llama3 and yarn work", r->path,
                     r->prefix, name);
}

static weft_status read_llama3(const weft__cfg *r, weft_rope_config *rope)
{
    WEFT_TRY(weft__cfg_f64(r, "low_freq_factor", -1, &rope->low_freq_factor));
    WEFT_TRY(weft__cfg_f64(r, "high_freq_factor", -1, &rope->high_freq_factor));
    return weft__cfg_i64(r, "original_max_position_embeddings", WEFT__REQUIRED, &rope->original_max_position);
}

static weft_status read_yarn(const weft__cfg *r, weft_rope_config *rope)
{
    bool truncate;
    WEFT_TRY(weft__cfg_f64(r, "beta_fast", 32, &rope->beta_fast));
    WEFT_TRY(weft__cfg_f64(r, "beta_slow", 1, &rope->beta_slow));
    WEFT_TRY(weft__cfg_f64(r, "attention_factor", 0, &rope->attention_factor));
    if (weft__cfg_get(r, "attention_factor") && !(rope->attention_factor > 0)) /* 0 would mean the usual one */
        return weft_fail(WEFT_ERR_REFUSED, "%s: %sattention_factor is %g; it must be above 0, or left out", r->path,
                         r->prefix, rope->attention_factor);
    WEFT_TRY(weft__cfg_i64(r, "original_max_position_embeddings", 0, &rope->original_max_position));
    WEFT_TRY(weft__cfg_bool(r, "truncate", true, &truncate));
    if (!truncate) return weft_fail(WEFT_ERR_REFUSED, "%s: %struncate is false; only true works", r->path, r->prefix);
    if (weft__cfg_get(r, "mscale") || weft__cfg_get(r, "mscale_all_dim"))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %smscale is not built; attention_factor works", r->path, r->prefix);
    return WEFT_OK;
}

/* The keys inside rope_scaling or rope_parameters. */
static weft_status read_scaling(const weft__cfg *r, weft_rope_config *rope)
{
    double partial;
    WEFT_TRY(read_type(r, &rope->type));
    WEFT_TRY(weft__cfg_f64(r, "rope_theta", rope->theta, &rope->theta));
    WEFT_TRY(weft__cfg_f64(r, "partial_rotary_factor", 1, &partial));
    if (partial != 1)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %spartial_rotary_factor is %g; only 1 works", r->path, r->prefix,
                         partial);
    if (rope->type == WEFT_ROPE_PLAIN) return WEFT_OK;
    WEFT_TRY(weft__cfg_f64(r, "factor", -1, &rope->factor));
    if (rope->type == WEFT_ROPE_LLAMA3) WEFT_TRY(read_llama3(r, rope));
    if (rope->type == WEFT_ROPE_YARN) WEFT_TRY(read_yarn(r, rope));
    return WEFT_OK;
}

static weft_status read_section(const weft__cfg *r, const char *key, const char *prefix, weft_rope_config *rope)
{
    const json_t *v = weft__cfg_get(r, key);
    if (!v) return WEFT_OK;
    if (!json_is_object(v))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is no object; null or an object works", r->path, key);
    if (json_object_get(v, "full_attention") || json_object_get(v, "sliding_attention"))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s differs by layer type; one set for all layers works", r->path, key);
    weft__cfg inner = {.path = r->path, .prefix = prefix, .object = v};
    return read_scaling(&inner, rope);
}

static bool same_rope(const weft_rope_config *a, const weft_rope_config *b)
{
    return a->type == b->type && a->theta == b->theta && a->factor == b->factor &&
           a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
           a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow && a->attention_factor == b->attention_factor &&
           a->original_max_position == b->original_max_position;
}

weft_status weft__cfg_rope(const weft__cfg *r, weft_model_config *c)
{
    weft_rope_config plain = {.type = WEFT_ROPE_PLAIN, .factor = 1};
    WEFT_TRY(weft__cfg_f64(r, "rope_theta", 10000, &plain.theta));
    weft_rope_config old = plain, new = plain;
    WEFT_TRY(read_section(r, "rope_scaling", "rope_scaling.", &old));
    WEFT_TRY(read_section(r, "rope_parameters", "rope_parameters.", &new));
    bool has_old = weft__cfg_get(r, "rope_scaling") || weft__cfg_get(r, "rope_theta");
    bool has_new = weft__cfg_get(r, "rope_parameters");
    if (has_old && has_new && !same_rope(&old, &new))
        return weft_fail(WEFT_ERR_REFUSED, "%s: rope_parameters contradicts rope_theta and rope_scaling; leave one of "
                         "the two spellings out", r->path);
    c->rope = has_new ? new : old;
    return WEFT_OK;
}
