/* family.c — the table of model families: one row is all that the rest of the room asks about a family. */
#include "model/model_impl.h"

#include <stdio.h>
#include <string.h>

static const weft__keys llama_keys = {
    .V = "vocab_size", .C = "hidden_size", .F = "intermediate_size", .L = "num_hidden_layers",
    .H = "num_attention_heads", .Hkv = "num_key_value_heads", .D = "head_dim",
    .max_position = "max_position_embeddings", .eps = "rms_norm_eps", .act = "hidden_act",
};

/* GPT-2 has no key for the key/value heads and the head size: both follow from n_head. */
static const weft__keys gpt2_keys = {
    .V = "vocab_size", .C = "n_embd", .F = "n_inner", .L = "n_layer", .H = "n_head", .Hkv = "n_head", .D = "n_head",
    .max_position = "n_positions", .eps = "layer_norm_epsilon", .act = "activation_function",
};

static const weft__family families[] = {
    [WEFT_LLAMA] = {
        .model_type = "llama", .architecture = "LlamaForCausalLM", .keys = &llama_keys, .act = "silu", .gated = true,
        .reads_attention_bias = true, .reads_mlp_bias = true, .default_max_position = 2048,
    },
    [WEFT_QWEN2] = {
        .model_type = "qwen2", .architecture = "Qwen2ForCausalLM", .keys = &llama_keys, .act = "silu", .gated = true,
        .always_qkv_bias = true, .window_switch = true, .default_max_position = 32768, .default_window = 4096,
        .default_Hkv = 32,
    },
    [WEFT_QWEN3] = {
        .model_type = "qwen3", .architecture = "Qwen3ForCausalLM", .keys = &llama_keys, .act = "silu", .gated = true,
        .qk_norm = true, .reads_attention_bias = true, .window_switch = true, .default_max_position = 32768,
        .default_window = 4096, .default_Hkv = 32, .default_D = 128,
    },
    [WEFT_MISTRAL] = {
        .model_type = "mistral", .architecture = "MistralForCausalLM", .keys = &llama_keys, .act = "silu",
        .gated = true, .default_max_position = 131072, .default_window = 4096, .default_Hkv = 8,
    },
    [WEFT_GPT2] = {
        .model_type = "gpt2", .architecture = "GPT2LMHeadModel", .keys = &gpt2_keys, .act = "gelu_new",
        .layernorm = true, .learned_positions = true, .conv1d = true, .always_qkv_bias = true,
        .default_max_position = 1024,
    },
};

enum { FAMILIES = sizeof families / sizeof families[0] };

const weft__family *weft__family_of(weft_family family) { return &families[family]; }

bool weft__family_find(const char *model_type, weft_family *out)
{
    for (int i = 0; i < FAMILIES; i++) {
        if (strcmp(families[i].model_type, model_type) != 0) continue;
        *out = (weft_family)i;
        return true;
    }
    return false;
}

const char *weft__family_names(char *buf, size_t n)
{
    size_t used = 0;
    for (int i = 0; i < FAMILIES && used < n; i++)
        used += (size_t)snprintf(buf + used, n - used, "%s%s", i ? ", " : "", families[i].model_type);
    return buf;
}
