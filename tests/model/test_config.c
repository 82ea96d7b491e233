/* labels: small */
/* Reading config.json: both spellings, defaults, windows; and every refusal names file, key and value. */
#include "harness/test.h"

#include <unistd.h>

#include "model/model.h"

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/weft-config-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

static weft_status read_text(weft_model_config *c, const char *json)
{
    char path[96];
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(json, f);
    fclose(f);
    weft_status st = weft_model_config_read(c, path);
    unlink(path);
    return st;
}

/* A llama-like config with more keys: "..., EXTRA". */
static weft_status read_with(weft_model_config *c, const char *model_type, const char *extra)
{
    char json[2048];
    snprintf(json, sizeof json,
             "{\"model_type\":\"%s\",\"vocab_size\":11,\"hidden_size\":12,\"intermediate_size\":20,"
             "\"num_hidden_layers\":4,\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":4%s%s}",
             model_type, *extra ? "," : "", extra);
    return read_text(c, json);
}

static void reads_llama(void **state)
{
    (void)state;
    weft_model_config c;
    assert_ok(read_with(&c, "llama", "\"eos_token_id\":[7,8],\"bos_token_id\":null,\"rope_theta\":500000.0"));
    assert_int_equal(c.family, WEFT_LLAMA);
    assert_int_equal(c.V, 11);
    assert_int_equal(c.C, 12);
    assert_int_equal(c.F, 20);
    assert_int_equal(c.L, 4);
    assert_int_equal(c.H, 6);
    assert_int_equal(c.Hkv, 2);
    assert_int_equal(c.D, 4);
    assert_int_equal(c.eos, 7);
    assert_int_equal(c.bos, -1);
    assert_int_equal(c.max_position, 2048);
    assert_true(c.norm_eps == 1e-6 && c.rope.theta == 500000.0);
    assert_int_equal(c.rope.type, WEFT_ROPE_PLAIN);
    assert_false(c.tied || c.qkv_bias || c.o_bias || c.mlp_bias);
    assert_int_equal(c.window, 0);
    assert_ok(read_with(&c, "llama", "\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true"));
    assert_true(c.tied && c.qkv_bias && c.o_bias && c.mlp_bias);
}

static void nulls_and_absent_keys_mean_the_familys_defaults(void **state)
{
    (void)state;
    weft_model_config c;
    const char *sizes = "\"vocab_size\":11,\"hidden_size\":64,\"intermediate_size\":20,\"num_hidden_layers\":1,"
                        "\"num_attention_heads\":32";
    char json[1024];
    snprintf(json, sizeof json, "{\"model_type\":\"llama\",%s,\"num_key_value_heads\":null,\"head_dim\":null}", sizes);
    assert_ok(read_text(&c, json));
    assert_int_equal(c.Hkv, 32);
    assert_int_equal(c.D, 2);
    snprintf(json, sizeof json, "{\"model_type\":\"mistral\",%s}", sizes);
    assert_ok(read_text(&c, json));
    assert_int_equal(c.Hkv, 8);
    assert_int_equal(c.window, 4096);
    snprintf(json, sizeof json, "{\"model_type\":\"mistral\",%s,\"sliding_window\":null}", sizes);
    assert_ok(read_text(&c, json));
    assert_int_equal(c.window, 0);
    snprintf(json, sizeof json, "{\"model_type\":\"qwen3\",%s}", sizes);
    assert_ok(read_text(&c, json));
    assert_int_equal(c.D, 128); /* not hidden / heads */
    assert_false(c.qkv_bias);
}

static void reads_gpt2(void **state)
{
    (void)state;
    weft_model_config c;
    assert_ok(read_text(&c, "{\"model_type\":\"gpt2\",\"n_inner\":null,\"attn_pdrop\":0.1}"));
    assert_int_equal(c.V, 50257);
    assert_int_equal(c.C, 768);
    assert_int_equal(c.F, 3072);
    assert_int_equal(c.L, 12);
    assert_int_equal(c.H, 12);
    assert_int_equal(c.Hkv, 12);
    assert_int_equal(c.D, 64);
    assert_int_equal(c.max_position, 1024);
    assert_true(c.tied && c.qkv_bias && c.o_bias && c.mlp_bias && c.norm_eps == 1e-5 && c.dropout_asked == 0.1);
    assert_int_equal(c.rope.type, WEFT_ROPE_NONE);
    assert_int_equal(weft_model_params(&c), 124439808); /* the published count of GPT-2 small */
    assert_refused(read_text(&c, "{\"model_type\":\"gpt2\",\"scale_attn_by_inverse_layer_idx\":true}"),
                   "scale_attn_by_inverse_layer_idx");
    assert_refused(read_text(&c, "{\"model_type\":\"gpt2\",\"scale_attn_weights\":false}"), "scale_attn_weights");
    assert_refused(read_text(&c, "{\"model_type\":\"gpt2\",\"n_embd\":100}"), "n_head");
    assert_refused(read_text(&c, "{\"model_type\":\"gpt2\",\"activation_function\":\"relu\"}"), "gelu_new");
}

/* G34: a RoPE base or scaling that is lost gives a model that is right on short text only. */
static void reads_both_spellings_of_rope(void **state)
{
    (void)state;
    weft_model_config a, b;
    const char *scaling = "\"factor\":8.0,\"low_freq_factor\":1,\"high_freq_factor\":4.0,"
                          "\"original_max_position_embeddings\":64";
    char extra[512];
    snprintf(extra, sizeof extra, "\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"llama3\",%s}", scaling);
    assert_ok(read_with(&a, "llama", extra));
    snprintf(extra, sizeof extra, "\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":500000,%s}", scaling);
    assert_ok(read_with(&b, "llama", extra));
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(a.rope.type, WEFT_ROPE_LLAMA3);
    assert_true(a.rope.theta == 5e5 && a.rope.factor == 8 && a.rope.low_freq_factor == 1 &&
                a.rope.high_freq_factor == 4);
    assert_int_equal(a.rope.original_max_position, 64);
    assert_ok(read_with(&a, "llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}"));
    assert_int_equal(a.rope.type, WEFT_ROPE_LINEAR);
    assert_ok(read_with(&a, "llama", "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}"));
    assert_int_equal(a.rope.type, WEFT_ROPE_YARN);
    assert_true(a.rope.beta_fast == 32 && a.rope.beta_slow == 1);
    assert_refused(read_with(&a, "llama",
                             "\"rope_theta\":1e4,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5}"),
                   "contradicts");
}

static void g34_refuses_rope_that_is_not_built(void **state)
{
    (void)state;
    weft_model_config c;
    assert_refused(read_with(&c, "llama", "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}"), "dynamic");
    assert_refused(read_with(&c, "llama", "\"rope_parameters\":{\"rope_type\":\"longrope\"}"), "longrope");
    assert_refused(read_with(&c, "llama", "\"rope_scaling\":{\"type\":\"linear\"}"), "rope_scaling.factor");
    assert_refused(read_with(&c, "llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}"), "factor");
    assert_refused(read_with(&c, "llama", "\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8}"), "low_freq_factor");
    assert_refused(read_with(&c, "llama", "\"rope_theta\":0"), "rope_theta");
    assert_refused(read_with(&c, "llama", "\"rope_theta\":\"big\""), "rope_theta");
    assert_refused(read_with(&c, "llama", "\"partial_rotary_factor\":0.5"), "partial_rotary_factor is 0.5");
    assert_refused(read_with(&c, "llama", "\"rope_parameters\":{\"partial_rotary_factor\":0.5}"),
                   "partial_rotary_factor");
    assert_refused(read_with(&c, "llama", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":0}"),
                   "rope_scaling.attention_factor is 0; it must be above 0, or left out");
    assert_refused(read_with(&c, "llama", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale\":1.0}"),
                   "mscale");
    assert_refused(read_with(&c, "llama", "\"rope_parameters\":{\"full_attention\":{}}"), "layer type");
}

static void refuses_what_changes_the_mathematics(void **state)
{
    (void)state;
    weft_model_config c;
    assert_refused(read_with(&c, "gemma2", ""), "gemma2");
    assert_refused(read_with(&c, "gemma2", ""), "config.json");
    assert_refused(read_with(&c, "gemma2", ""), "llama, qwen2, qwen3, mistral, gpt2");
    assert_refused(read_with(&c, "llama", "\"hidden_act\":\"gelu\""), "hidden_act is \"gelu\"; only \"silu\"");
    assert_refused(read_with(&c, "llama", "\"attn_logit_softcapping\":50.0"), "attn_logit_softcapping");
    assert_refused(read_with(&c, "llama", "\"num_experts\":8"), "num_experts");
    assert_refused(read_with(&c, "llama", "\"quantization_config\":{}"), "quantization_config");
    assert_refused(read_with(&c, "mistral", "\"attention_bias\":true"), "attention_bias");
    assert_refused(read_with(&c, "qwen2", "\"mlp_bias\":true"), "mlp_bias");
    assert_ok(read_with(&c, "llama", "\"attn_logit_softcapping\":null,\"partial_rotary_factor\":1.0"));
}

static weft_status read_sizes(weft_model_config *c, const char *C, int H, int Hkv, const char *D)
{
    char json[512];
    snprintf(json, sizeof json,
             "{\"model_type\":\"llama\",\"vocab_size\":11,\"hidden_size\":%s,\"intermediate_size\":8,"
             "\"num_hidden_layers\":1,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"head_dim\":%s}", C, H,
             Hkv, D);
    return read_text(c, json);
}

static void refuses_sizes_that_contradict(void **state)
{
    (void)state;
    weft_model_config c;
    assert_ok(read_sizes(&c, "12", 3, 1, "4"));
    assert_refused(read_sizes(&c, "12", 3, 2, "4"), "num_key_value_heads is 2");
    assert_refused(read_sizes(&c, "13", 3, 1, "null"), "hidden_size 13");
    assert_refused(read_sizes(&c, "12", 3, 1, "5"), "head_dim is 5");
    assert_refused(read_sizes(&c, "12", 3, 1, "258"), "256");
    assert_refused(read_sizes(&c, "0", 3, 1, "4"), "hidden_size is 0");
    assert_refused(read_sizes(&c, "-12", 3, 1, "4"), "hidden_size is -12");
    assert_refused(read_sizes(&c, "12.5", 3, 1, "4"), "hidden_size is 12.5");
    assert_refused(read_sizes(&c, "4294967296", 3, 1, "4"), "hidden_size is 4294967296");
    assert_refused(read_sizes(&c, "12", 0, 1, "4"), "num_attention_heads is 0");
    assert_refused(read_sizes(&c, "null", 3, 1, "4"), "hidden_size is missing");
    assert_refused(read_text(&c, "{\"model_type\":\"llama\",\"vocab_size\":2147483647,\"hidden_size\":2147483647,"
                                 "\"intermediate_size\":2147483647,\"num_hidden_layers\":65536,"
                                 "\"num_attention_heads\":1,\"head_dim\":2}"), "more parameters");
    /* small, but a walk over so many takes hours */
    assert_refused(read_text(&c, "{\"model_type\":\"llama\",\"vocab_size\":2,\"hidden_size\":2,"
                                 "\"intermediate_size\":1,\"num_hidden_layers\":2147483647,"
                                 "\"num_attention_heads\":1,\"head_dim\":2}"), "num_hidden_layers is 2147483647");
    assert_refused(read_with(&c, "llama", "\"eos_token_id\":\"x\""), "eos_token_id");
    assert_refused(read_with(&c, "llama", "\"rms_norm_eps\":0"), "rms_norm_eps");
    assert_refused(read_with(&c, "llama", "\"rms_norm_eps\":1e30"),
                   "rms_norm_eps is 1e+30; it must be above 0 and at most 1");
}

static void refuses_files_that_are_no_config(void **state)
{
    (void)state;
    weft_model_config c;
    assert_refused(read_text(&c, "{\"model_type\":\"llama\","), "config.json:1");
    assert_refused(read_text(&c, "[]"), "object");
    assert_refused(read_text(&c, "{}"), "model_type");
    assert_refused(read_text(&c, "{\"model_type\":\"llama\",\"model_type\":\"llama\"}"), "model_type");
    assert_refused(weft_model_config_read(&c, "/nonexistent/config.json"), "/nonexistent/config.json");
    char path[96];
    snprintf(path, sizeof path, "%s/large.json", dir); /* no memory out of proportion for what is no config */
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{}", f);
    assert_int_equal(ftruncate(fileno(f), 17 << 20), 0);
    fclose(f);
    assert_refused(weft_model_config_read(&c, path), "17825792 bytes, more than any config.json has");
    unlink(path);
}

static void windows_of_qwen(void **state)
{
    (void)state;
    weft_model_config c;
    assert_ok(read_with(&c, "qwen2", ""));
    assert_int_equal(c.window, 0);
    assert_true(c.qkv_bias && !c.o_bias);
    assert_ok(read_with(&c, "qwen2", "\"use_sliding_window\":true,\"sliding_window\":8,\"max_window_layers\":3"));
    assert_int_equal(c.window, 8);
    assert_int_equal(c.window_from_layer, 3);
    assert_ok(read_with(&c, "qwen2", "\"use_sliding_window\":true,\"sliding_window\":8,\"max_window_layers\":28"));
    assert_int_equal(c.window, 0); /* no layer is that deep */
    assert_ok(read_with(&c, "qwen3", "\"use_sliding_window\":false,\"sliding_window\":8,\"max_window_layers\":0"));
    assert_int_equal(c.window, 0);
    assert_refused(read_with(&c, "mistral", "\"sliding_window\":0"), "sliding_window is 0");
}

static void layer_types_that_a_first_windowed_layer_expresses(void **state)
{
    (void)state;
    weft_model_config c;
#define FULL "\"full_attention\""
#define SLIDING "\"sliding_attention\""
    const char *on = "\"use_sliding_window\":true,\"sliding_window\":8,\"layer_types\":";
    char extra[512];
    snprintf(extra, sizeof extra, "%s[%s,%s,%s,%s]", on, FULL, SLIDING, SLIDING, SLIDING);
    assert_ok(read_with(&c, "qwen3", extra));
    assert_int_equal(c.window, 8);
    assert_int_equal(c.window_from_layer, 1);
    snprintf(extra, sizeof extra, "%s[%s,%s,%s,%s]", on, FULL, FULL, FULL, FULL);
    assert_ok(read_with(&c, "qwen3", extra));
    assert_int_equal(c.window, 0);
    snprintf(extra, sizeof extra, "%s[%s,%s,%s,%s]", on, SLIDING, FULL, SLIDING, SLIDING);
    assert_refused(read_with(&c, "qwen3", extra), "layer 1");
    snprintf(extra, sizeof extra, "%s[%s]", on, FULL);
    assert_refused(read_with(&c, "qwen3", extra), "one entry per layer");
    snprintf(extra, sizeof extra, "%s[\"linear_attention\",%s,%s,%s]", on, FULL, FULL, FULL);
    assert_refused(read_with(&c, "qwen3", extra), "linear_attention");
    snprintf(extra, sizeof extra, "\"layer_types\":[%s,%s,%s,%s]", FULL, FULL, FULL, SLIDING);
    assert_refused(read_with(&c, "qwen3", extra), "use_sliding_window");
}

/* What config.json cannot say would be lost when the model is saved. */
static void windows_that_a_family_has_no_key_for(void **state)
{
    (void)state;
    weft_model_config c;
    weft_text text = {0};
    char extra[256];
    assert_refused(read_with(&c, "llama", "\"sliding_window\":5"), "model_type llama has none; mistral, qwen2");
    assert_ok(read_with(&c, "llama", "\"sliding_window\":null"));
    c.window = 5;
    assert_ok(weft_model_config_check(&c, "here")); /* it can be computed */
    assert_refused(weft_model_config_text(&c, "float32", &text), "sliding_window is 5");
    snprintf(extra, sizeof extra, "\"sliding_window\":5,\"layer_types\":[%s,%s,%s,%s]", FULL, SLIDING, SLIDING,
             SLIDING);
    assert_refused(read_with(&c, "mistral", extra), "in all layers or in none");
    snprintf(extra, sizeof extra, "\"sliding_window\":5,\"layer_types\":[%s,%s,%s,%s]", SLIDING, SLIDING, SLIDING,
             SLIDING);
    assert_ok(read_with(&c, "mistral", extra));
    assert_int_equal(c.window, 5);
    assert_null(text.data);
}

static int times(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

/* What is written reads back to the same config, for each family and RoPE type; a reader of either spelling finds it.
 * */
static void g34_writing_and_reading_back_is_the_identity(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"llama", "\"attention_bias\":true,\"mlp_bias\":true,\"eos_token_id\":[3,4]"},
        {"llama", "\"rope_theta\":500000,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}"},
        {"llama", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":1.25,\"beta_fast\":16}"},
        {"llama", "\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
                  "\"original_max_position_embeddings\":64},\"tie_word_embeddings\":true"},
        {"qwen2", "\"use_sliding_window\":true,\"sliding_window\":8,\"max_window_layers\":2"},
        {"qwen2", ""},
        {"qwen3", "\"attention_bias\":true"},
        {"mistral", "\"sliding_window\":5"},
        {"mistral", "\"sliding_window\":null"},
        {"gpt2", ""},
    };
    char path[96];
    snprintf(path, sizeof path, "%s/written.json", dir);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_model_config a, b;
        assert_ok(read_with(&a, cases[i][0], cases[i][1]));
        weft_text text = {0};
        assert_ok(weft_model_config_text(&a, "float32", &text));
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(text.data, f);
        fclose(f);
        assert_int_equal(times(text.data, "\"rope_theta\""), strcmp(cases[i][0], "gpt2") ? 2 : 0);
        assert_int_equal(times(text.data, "\"factor\""), a.rope.type > WEFT_ROPE_PLAIN ? 2 : 0);
        weft_text_free(&text);
        assert_ok(weft_model_config_read(&b, path));
        assert_memory_equal(&a, &b, sizeof a);
    }
    unlink(path);
}

/* G34: what is not understood is named, so that the caller can warn. */
static void g34_unknown_keys_are_named(void **state)
{
    (void)state;
    char path[96];
    weft_text text = {0};
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"model_type\":\"llama\",\"use_cache\":true,\"residual_multiplier\":2,\"embedding_multiplier\":12,"
          "\"vocab_size\":11,\"bos_token_id\":10,\"eos_token_id\":[11,3]}", f);
    fclose(f);
    assert_ok(weft_model_config_unknown(path, &text));
    assert_string_equal(text.data, "residual_multiplier, embedding_multiplier, eos_token_id (beyond the vocabulary)");
    weft_text_free(&text);
    unlink(path);
    assert_refused(weft_model_config_unknown(path, &text), "config.json");
}

/* transformers gives a small gpt2 the end of text of the large one, and loads it; so is it here. */
static void g34_tokens_beyond_the_vocabulary_are_none(void **state)
{
    (void)state;
    weft_model_config c;
    assert_ok(read_with(&c, "llama", "\"bos_token_id\":11,\"eos_token_id\":50256"));
    assert_int_equal(c.V, 11);
    assert_true(c.bos == -1 && c.eos == -1);
    assert_ok(read_with(&c, "llama", "\"bos_token_id\":10,\"eos_token_id\":0"));
    assert_true(c.bos == 10 && c.eos == 0);
    assert_refused(read_with(&c, "llama", "\"bos_token_id\":-2"), "bos_token_id");
}

static void golden_configs_are_read(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "llama", "llama3_rope", "llama_docs", "llama_yarn",
                                        "mistral", "qwen2", "qwen3", "stories260K"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[512];
        weft_model_config c;
        snprintf(path, sizeof path, "%s/models/%s/config.json", getenv("WEFT_GOLDEN"), names[i]);
        assert_ok(weft_model_config_read(&c, path));
        weft_text text = {0};
        assert_ok(weft_model_config_unknown(path, &text));
        if (text.len) fail_msg("%s: unknown keys %s", path, text.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_llama),
        cmocka_unit_test(nulls_and_absent_keys_mean_the_familys_defaults),
        cmocka_unit_test(reads_gpt2),
        cmocka_unit_test(reads_both_spellings_of_rope),
        cmocka_unit_test(g34_refuses_rope_that_is_not_built),
        cmocka_unit_test(refuses_what_changes_the_mathematics),
        cmocka_unit_test(refuses_sizes_that_contradict),
        cmocka_unit_test(refuses_files_that_are_no_config),
        cmocka_unit_test(windows_of_qwen),
        cmocka_unit_test(layer_types_that_a_first_windowed_layer_expresses),
        cmocka_unit_test(windows_that_a_family_has_no_key_for),
        cmocka_unit_test(g34_writing_and_reading_back_is_the_identity),
        cmocka_unit_test(g34_unknown_keys_are_named), cmocka_unit_test(g34_tokens_beyond_the_vocabulary_are_none),
        cmocka_unit_test(golden_configs_are_read),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
