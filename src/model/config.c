/* config.c — reads a Hugging Face config.json into a weft_model_config.
 *
 * Every key that changes the mathematics is read or refused: a RoPE base that is ignored gives a model that
 * is fine on short text and nonsense beyond, and no error. Messages name file, key and value, and what
 * works. Defaults are those of the family's own configuration class, so a short file means the same here. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/config_impl.h"

/* ---- typed access: null counts as absent, as it does for the families' own readers ------------------ */

const json_t *weft__cfg_get(const weft__cfg *r, const char *key)
{
    const json_t *v = json_object_get(r->object, key);
    return v && !json_is_null(v) ? v : NULL;
}

static weft_status wrong_type(const weft__cfg *r, const char *key, const json_t *v, const char *wanted)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    weft_status st = weft_fail(WEFT_ERR_REFUSED, "%s: %s%s is %.80s; it must be %s", r->path, r->prefix, key,
                               text ? text : "?", wanted);
    free(text);
    return st;
}

weft_status weft__cfg_i64(const weft__cfg *r, const char *key, int64_t def, int64_t *out)
{
    const json_t *v = weft__cfg_get(r, key);
    *out = def;
    if (!v && def == WEFT__REQUIRED)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s%s is missing; an integer is needed", r->path, r->prefix, key);
    if (!v) return WEFT_OK;
    if (!json_is_integer(v)) return wrong_type(r, key, v, "an integer");
    *out = json_integer_value(v);
    return WEFT_OK;
}

weft_status weft__cfg_f64(const weft__cfg *r, const char *key, double def, double *out)
{
    const json_t *v = weft__cfg_get(r, key);
    *out = def;
    if (!v && def < 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s%s is missing; a number is needed", r->path, r->prefix, key);
    if (!v) return WEFT_OK;
    if (!json_is_number(v)) return wrong_type(r, key, v, "a number");
    *out = json_number_value(v);
    return WEFT_OK;
}

weft_status weft__cfg_bool(const weft__cfg *r, const char *key, bool def, bool *out)
{
    const json_t *v = weft__cfg_get(r, key);
    *out = def;
    if (!v) return WEFT_OK;
    if (!json_is_boolean(v)) return wrong_type(r, key, v, "true or false");
    *out = json_is_true(v);
    return WEFT_OK;
}

weft_status weft__cfg_text(const weft__cfg *r, const char *key, const char *def, const char **out)
{
    const json_t *v = weft__cfg_get(r, key);
    *out = def;
    if (!v) return WEFT_OK;
    if (!json_is_string(v)) return wrong_type(r, key, v, "a string");
    *out = json_string_value(v);
    return WEFT_OK;
}

/* ---- what is refused because it is not built -------------------------------------------------------- */

/* The key may be absent, null, or have the one value that changes nothing. */
static weft_status only_false(const weft__cfg *r, const char *key)
{
    bool on;
    WEFT_TRY(weft__cfg_bool(r, key, false, &on));
    if (on) return weft_fail(WEFT_ERR_REFUSED, "%s: %s is true; only false works for this model_type", r->path, key);
    return WEFT_OK;
}

static weft_status only_absent(const weft__cfg *r, const char *key)
{
    const json_t *v = weft__cfg_get(r, key);
    return v ? wrong_type(r, key, v, "absent or null: it is not built") : WEFT_OK;
}

static weft_status refuse_unbuilt(const weft__cfg *r)
{
    static const char *const absent[] = {
        "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "num_experts",
        "num_local_experts", "quantization_config", "rope_local_base_freq",
    };
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) WEFT_TRY(only_absent(r, absent[i]));
    double partial;
    WEFT_TRY(weft__cfg_f64(r, "partial_rotary_factor", 1, &partial));
    if (partial != 1)
        return weft_fail(WEFT_ERR_REFUSED, "%s: partial_rotary_factor is %g; only 1 works", r->path, partial);
    return WEFT_OK;
}

static weft_status read_act(const weft__cfg *r, const weft__family *f)
{
    const char *act;
    WEFT_TRY(weft__cfg_text(r, f->keys->act, f->act, &act));
    if (strcmp(act, f->act) != 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is \"%s\"; only \"%s\" works for model_type %s", r->path,
                         f->keys->act, act, f->act, f->model_type);
    return WEFT_OK;
}

/* ---- sizes ------------------------------------------------------------------------------------------ */

static weft_status read_int(const weft__cfg *r, const char *key, int64_t def, int *out)
{
    int64_t v;
    WEFT_TRY(weft__cfg_i64(r, key, def, &v));
    if (v < 1 || v > INT32_MAX)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is %lld; it must be at least 1 and below 2^31", r->path, key,
                         (long long)v);
    *out = (int)v;
    return WEFT_OK;
}

static weft_status head_size(const weft__cfg *r, const weft__family *f, weft_model_config *c)
{
    if (c->C % c->H)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s %lld is not a multiple of %s %d; give a multiple%s", r->path,
                         f->keys->C, (long long)c->C, f->keys->H, c->H, f->conv1d ? "" : ", or head_dim");
    c->D = (int)(c->C / c->H);
    return WEFT_OK;
}

static weft_status read_gpt2_sizes(const weft__cfg *r, const weft__family *f, weft_model_config *c)
{
    bool weights_scaled;
    WEFT_TRY(weft__cfg_i64(r, "vocab_size", 50257, &c->V));
    WEFT_TRY(weft__cfg_i64(r, "n_embd", 768, &c->C));
    WEFT_TRY(weft__cfg_i64(r, "n_layer", 12, &c->L));
    WEFT_TRY(weft__cfg_i64(r, "n_positions", f->default_max_position, &c->max_position));
    WEFT_TRY(weft__cfg_f64(r, "layer_norm_epsilon", 1e-5, &c->norm_eps));
    WEFT_TRY(read_int(r, "n_head", 12, &c->H));
    if (c->C < 1 || c->C > INT32_MAX)
        return weft_fail(WEFT_ERR_REFUSED, "%s: n_embd is %lld; it must be at least 1 and below 2^31", r->path,
                         (long long)c->C);
    WEFT_TRY(weft__cfg_i64(r, "n_inner", 4 * c->C, &c->F));
    WEFT_TRY(head_size(r, f, c));
    c->Hkv = c->H;
    c->qkv_bias = c->o_bias = c->mlp_bias = true;
    c->rope = (weft_rope_config){.type = WEFT_ROPE_NONE};
    WEFT_TRY(only_false(r, "scale_attn_by_inverse_layer_idx"));
    WEFT_TRY(only_false(r, "add_cross_attention"));
    WEFT_TRY(weft__cfg_bool(r, "scale_attn_weights", true, &weights_scaled));
    if (!weights_scaled)
        return weft_fail(WEFT_ERR_REFUSED, "%s: scale_attn_weights is false; only true works", r->path);
    return WEFT_OK;
}

static weft_status read_llama_biases(const weft__cfg *r, const weft__family *f, weft_model_config *c)
{
    bool attention = false;
    if (f->reads_attention_bias) WEFT_TRY(weft__cfg_bool(r, "attention_bias", false, &attention));
    else if (!f->always_qkv_bias) WEFT_TRY(only_false(r, "attention_bias"));
    if (f->reads_mlp_bias) WEFT_TRY(weft__cfg_bool(r, "mlp_bias", false, &c->mlp_bias));
    else WEFT_TRY(only_false(r, "mlp_bias"));
    c->qkv_bias = attention || f->always_qkv_bias;
    c->o_bias = attention;
    return WEFT_OK;
}

static weft_status read_llama_sizes(const weft__cfg *r, const weft__family *f, weft_model_config *c)
{
    WEFT_TRY(weft__cfg_i64(r, "vocab_size", WEFT__REQUIRED, &c->V));
    WEFT_TRY(weft__cfg_i64(r, "hidden_size", WEFT__REQUIRED, &c->C));
    WEFT_TRY(weft__cfg_i64(r, "intermediate_size", WEFT__REQUIRED, &c->F));
    WEFT_TRY(weft__cfg_i64(r, "num_hidden_layers", WEFT__REQUIRED, &c->L));
    WEFT_TRY(weft__cfg_i64(r, "max_position_embeddings", f->default_max_position, &c->max_position));
    WEFT_TRY(weft__cfg_f64(r, "rms_norm_eps", 1e-6, &c->norm_eps));
    WEFT_TRY(read_int(r, "num_attention_heads", WEFT__REQUIRED, &c->H));
    /* null means one K,V head per query head; an absent key means the family's default. */
    bool absent = !json_object_get(r->object, "num_key_value_heads");
    WEFT_TRY(read_int(r, "num_key_value_heads", absent && f->default_Hkv ? f->default_Hkv : c->H, &c->Hkv));
    bool no_head_dim = !weft__cfg_get(r, "head_dim");
    if (no_head_dim && f->default_D) c->D = f->default_D;
    else if (no_head_dim) WEFT_TRY(head_size(r, f, c));
    else WEFT_TRY(read_int(r, "head_dim", WEFT__REQUIRED, &c->D));
    WEFT_TRY(read_llama_biases(r, f, c));
    return weft__cfg_rope(r, c);
}

/* ---- windows ---------------------------------------------------------------------------------------- */

/* layer_types: full_attention up to some layer and sliding_attention from there on can be expressed. */
static weft_status read_layer_types(const weft__cfg *r, const json_t *types, weft_model_config *c)
{
    if (!json_is_array(types) || (int64_t)json_array_size(types) != c->L)
        return wrong_type(r, "layer_types", types, "a list with one entry per layer");
    c->window_from_layer = c->L;
    for (int64_t i = 0; i < c->L; i++) {
        const json_t *v = json_array_get(types, (size_t)i);
        const char *s = json_is_string(v) ? json_string_value(v) : "";
        bool sliding = strcmp(s, "sliding_attention") == 0;
        if (!sliding && strcmp(s, "full_attention") != 0)
            return wrong_type(r, "layer_types", v, "made of \"full_attention\" and \"sliding_attention\"");
        if (sliding && c->window_from_layer == c->L) c->window_from_layer = i;
        if (!sliding && i > c->window_from_layer)
            return weft_fail(WEFT_ERR_REFUSED,
                             "%s: layer_types has full_attention at layer %lld after sliding_attention; full layers "
                             "first, then sliding ones, works", r->path, (long long)i);
    }
    return WEFT_OK;
}

static weft_status read_window(const weft__cfg *r, const weft__family *f, weft_model_config *c)
{
    bool use = !f->window_switch;
    int64_t from = 0;
    bool absent = !json_object_get(r->object, "sliding_window");
    WEFT_TRY(weft__cfg_i64(r, "sliding_window", absent ? f->default_window : 0, &c->window));
    if (c->window < 0 || (weft__cfg_get(r, "sliding_window") && c->window == 0))
        return weft_fail(WEFT_ERR_REFUSED, "%s: sliding_window is %lld; null or at least 1 works", r->path,
                         (long long)c->window);
    if (f->window_switch) {
        WEFT_TRY(weft__cfg_bool(r, "use_sliding_window", false, &use));
        WEFT_TRY(weft__cfg_i64(r, "max_window_layers", 28, &from));
        if (from < 0)
            return weft_fail(WEFT_ERR_REFUSED, "%s: max_window_layers is %lld; it must not be negative", r->path,
                             (long long)from);
    }
    if (!use) c->window = 0;
    c->window_from_layer = weft_min_i64(from, c->L);
    const json_t *types = weft__cfg_get(r, "layer_types");
    if (types) WEFT_TRY(read_layer_types(r, types, c));
    if (types && c->window_from_layer < c->L && !c->window)
        return weft_fail(WEFT_ERR_REFUSED, "%s: layer_types asks for sliding_attention but the window is off; set "
                         "sliding_window%s", r->path, f->window_switch ? " and use_sliding_window" : "");
    if (!c->window || c->window_from_layer == c->L) c->window = c->window_from_layer = 0;
    return WEFT_OK;
}

/* ---- the rest --------------------------------------------------------------------------------------- */

/* An id, or a list of which the first counts. One beyond the vocabulary is of no token that could come up: a small
 * model often keeps the default of its large sister (gpt2's 50256), and is told (weft_model_config_unknown). */
static weft_status read_id(const weft__cfg *r, const char *key, int64_t V, int64_t *out)
{
    const json_t *v = weft__cfg_get(r, key);
    *out = -1;
    if (json_is_array(v)) v = json_array_get(v, 0);
    if (!v) return WEFT_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 0) return wrong_type(r, key, v, "a token id or a list of them");
    if (json_integer_value(v) < V) *out = json_integer_value(v);
    return WEFT_OK;
}

static weft_status read_dropout(const weft__cfg *r, weft_model_config *c)
{
    static const char *const keys[] = {"attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop"};
    c->dropout_asked = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        double p;
        WEFT_TRY(weft__cfg_f64(r, keys[i], 0, &p));
        if (p > c->dropout_asked) c->dropout_asked = p;
    }
    return WEFT_OK;
}

static weft_status read_object(const weft__cfg *r, weft_model_config *c)
{
    const char *type;
    char names[128];
    WEFT_TRY(weft__cfg_text(r, "model_type", "", &type));
    if (!weft__family_find(type, &c->family))
        return weft_fail(WEFT_ERR_REFUSED, "%s: model_type is \"%s\"; these work: %s", r->path, type,
                         weft__family_names(names, sizeof names));
    const weft__family *f = weft__family_of(c->family);
    WEFT_TRY(refuse_unbuilt(r));
    WEFT_TRY(read_act(r, f));
    if (f->conv1d) WEFT_TRY(read_gpt2_sizes(r, f, c));
    else WEFT_TRY(read_llama_sizes(r, f, c));
    if (!f->learned_positions) WEFT_TRY(read_window(r, f, c));
    WEFT_TRY(weft__cfg_bool(r, "tie_word_embeddings", f->conv1d, &c->tied));
    WEFT_TRY(read_id(r, "bos_token_id", c->V, &c->bos));
    WEFT_TRY(read_id(r, "eos_token_id", c->V, &c->eos));
    WEFT_TRY(read_dropout(r, c));
    return weft_model_config_check_file(c, r->path);
}

weft_status weft__cfg_load(const char *path, json_t **out)
{
    enum { LIMIT = 16 << 20 }; /* bytes; a config has some thousand, and as JSON takes many times its size */
    json_error_t error;
    weft_map map = {0}; /* not json_load_file: it would wait at a pipe for a writer */
    WEFT_TRY(weft_map_open(&map, path));
    weft_status st = WEFT_OK;
    json_t *root = NULL;
    if (map.bytes > LIMIT)
        st = weft_fail(WEFT_ERR_REFUSED, "%s: %zu bytes, more than any config.json has", path, map.bytes);
    else if (!(root = json_loadb((const char *)map.data, map.bytes, JSON_REJECT_DUPLICATES, &error)))
        st = weft_fail(WEFT_ERR_REFUSED, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    weft_map_close(&map);
    *out = root;
    return st;
}

weft_status weft_model_config_read(weft_model_config *out, const char *path)
{
    json_t *root;
    WEFT_TRY(weft__cfg_load(path, &root));
    weft__cfg reader = {.path = path, .prefix = "", .object = root};
    weft_model_config c = {0};
    weft_status st = json_is_object(root) ? read_object(&reader, &c)
                                          : weft_fail(WEFT_ERR_REFUSED, "%s: a JSON object is needed", path);
    json_decref(root);
    if (st == WEFT_OK) *out = c;
    return st;
}
