/* config_write.c — a config.json that Hugging Face's readers of either generation load: RoPE keys in both
 * spellings, architectures, model_type and torch_dtype. Reading it back gives the same config. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/config_impl.h"

/* jansson's setters return -1 and keep going; one check at the end is enough because a failed set leaves
 * the key out and dumps would then miss it. So collect the results. */
typedef struct writer { json_t *root; int failed; } writer;

static void put(writer *w, json_t *object, const char *key, json_t *value)
{
    w->failed |= json_object_set_new(object, key, value);
}

/* The keys of a scaling, as they stand in rope_scaling and in rope_parameters. */
static void put_scaling(writer *w, json_t *o, const weft_rope_config *r)
{
    put(w, o, "rope_type", json_string(weft__rope_type_name(r->type)));
    if (r->type == WEFT_ROPE_PLAIN) return;
    put(w, o, "factor", json_real(r->factor));
    if (r->type == WEFT_ROPE_LLAMA3) {
        put(w, o, "low_freq_factor", json_real(r->low_freq_factor));
        put(w, o, "high_freq_factor", json_real(r->high_freq_factor));
    }
    if (r->type == WEFT_ROPE_YARN) {
        put(w, o, "beta_fast", json_real(r->beta_fast));
        put(w, o, "beta_slow", json_real(r->beta_slow));
        if (r->attention_factor > 0) put(w, o, "attention_factor", json_real(r->attention_factor));
    }
    if (r->original_max_position)
        put(w, o, "original_max_position_embeddings", json_integer(r->original_max_position));
}

static void put_rope(writer *w, const weft_rope_config *r)
{
    put(w, w->root, "rope_theta", json_real(r->theta));
    json_t *scaling = json_null();
    if (r->type != WEFT_ROPE_PLAIN) {
        scaling = json_object();
        put_scaling(w, scaling, r);
    }
    put(w, w->root, "rope_scaling", scaling);
    json_t *parameters = json_object();
    put(w, parameters, "rope_theta", json_real(r->theta));
    put_scaling(w, parameters, r);
    put(w, w->root, "rope_parameters", parameters);
}

static void put_window(writer *w, const weft_model_config *c, const weft__family *f)
{
    if (!f->window_switch) {
        if (f->default_window) put(w, w->root, "sliding_window", c->window ? json_integer(c->window) : json_null());
        return;
    }
    put(w, w->root, "use_sliding_window", json_boolean(c->window > 0));
    put(w, w->root, "sliding_window", c->window ? json_integer(c->window) : json_null());
    put(w, w->root, "max_window_layers", json_integer(c->window ? c->window_from_layer : c->L));
}

static void put_sizes(writer *w, const weft_model_config *c, const weft__family *f)
{
    const weft__keys *k = f->keys;
    put(w, w->root, k->V, json_integer(c->V));
    put(w, w->root, k->C, json_integer(c->C));
    put(w, w->root, k->F, json_integer(c->F));
    put(w, w->root, k->L, json_integer(c->L));
    put(w, w->root, k->H, json_integer(c->H));
    put(w, w->root, k->max_position, json_integer(c->max_position));
    put(w, w->root, k->eps, json_real(c->norm_eps));
    put(w, w->root, k->act, json_string(f->act));
    if (f->conv1d) return;
    put(w, w->root, k->Hkv, json_integer(c->Hkv));
    put(w, w->root, k->D, json_integer(c->D));
}

static json_t *id_or_null(int64_t id) { return id >= 0 ? json_integer(id) : json_null(); }

static void put_all(writer *w, const weft_model_config *c, const weft__family *f, const char *torch_dtype)
{
    json_t *architectures = json_array();
    w->failed |= json_array_append_new(architectures, json_string(f->architecture));
    put(w, w->root, "architectures", architectures);
    put(w, w->root, "model_type", json_string(f->model_type));
    put(w, w->root, "torch_dtype", json_string(torch_dtype));
    put_sizes(w, c, f);
    if (!f->learned_positions) {
        put_rope(w, &c->rope);
        put_window(w, c, f);
    }
    if (f->reads_attention_bias) put(w, w->root, "attention_bias", json_boolean(c->qkv_bias));
    if (f->reads_mlp_bias) put(w, w->root, "mlp_bias", json_boolean(c->mlp_bias));
    put(w, w->root, "tie_word_embeddings", json_boolean(c->tied));
    put(w, w->root, "bos_token_id", id_or_null(c->bos));
    put(w, w->root, "eos_token_id", id_or_null(c->eos));
}

weft_status weft_model_config_text(const weft_model_config *config, const char *torch_dtype, weft_text *out)
{
    WEFT_TRY(weft_model_config_check_file(config, "config.json"));
    writer w = {.root = json_object()};
    if (w.root) put_all(&w, config, weft__family_of(config->family), torch_dtype);
    char *text = !w.root || w.failed ? NULL : json_dumps(w.root, JSON_INDENT(2));
    if (text) weft_text_add(out, "%s", text);
    bool good = text && !out->failed;
    free(text);
    json_decref(w.root);
    return good ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory for the text of config.json");
}
