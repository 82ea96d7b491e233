/* config_keys.c — names the keys of a config.json that this program neither reads nor knows to be harmless, and tokens
 * that the vocabulary does not have.
 * A key of a newer family may change the mathematics; the user hears of it before the first step. */
#include <jansson.h>
#include <string.h>

#include "model/config_impl.h"

static const char *const read_keys[] = {
    "model_type", "vocab_size", "tie_word_embeddings", "bos_token_id", "eos_token_id", "layer_types",
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "max_position_embeddings", "rms_norm_eps", "hidden_act", "attention_bias", "mlp_bias", "sliding_window",
    "use_sliding_window", "max_window_layers", "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor",
    "n_embd", "n_inner", "n_layer", "n_head", "n_positions", "layer_norm_epsilon", "activation_function",
    "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "add_cross_attention",
    "attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop",
    "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "num_experts", "num_local_experts",
    "quantization_config", "rope_local_base_freq",
};

/* Of the program that wrote the file, of generation, of other heads, or of numerics that Weft has its own. */
static const char *const harmless_keys[] = {
    "architectures", "torch_dtype", "dtype", "transformers_version", "_name_or_path", "name_or_path", "use_cache",
    "initializer_range", "pad_token_id", "unk_token_id", "n_ctx", "pretraining_tp", "reorder_and_upcast_attn",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "task_specific_params", "auto_map", "return_dict", "output_attentions", "output_hidden_states", "is_decoder",
    "is_encoder_decoder", "id2label", "label2id", "chunk_size_feed_forward",
};

static bool listed(const char *const *names, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], key) == 0) return true;
    return false;
}

/* An id, or a list of which the first counts, as config.c reads it. */
static bool beyond_vocabulary(const json_t *root, const char *key, const json_t *value)
{
    static const char *const ids[] = {"bos_token_id", "eos_token_id"};
    const json_t *V = json_object_get(root, "vocab_size");
    if (json_is_array(value)) value = json_array_get(value, 0);
    return listed(ids, 2, key) && json_is_integer(value) && json_is_integer(V) &&
           json_integer_value(value) >= json_integer_value(V);
}

weft_status weft_model_config_unknown(const char *path, weft_text *out)
{
    json_t *root, *value;
    const char *key;
    WEFT_TRY(weft__cfg_load(path, &root));
    json_object_foreach(root, key, value) {
        if (beyond_vocabulary(root, key, value))
            weft_text_add(out, "%s%s (beyond the vocabulary)", out->len ? ", " : "", key);
        if (listed(read_keys, sizeof read_keys / sizeof read_keys[0], key)) continue;
        if (listed(harmless_keys, sizeof harmless_keys / sizeof harmless_keys[0], key)) continue;
        weft_text_add(out, "%s%s", out->len ? ", " : "", key);
    }
    json_decref(root);
    return WEFT_OK;
}
