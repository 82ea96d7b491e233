/* pipeline_case.h — small models and cases on disk, and their verification on any layout against one rank: loss, nll of
 * every token, every gradient. fp64, so that anything but the order of additions shows. */
#ifndef WEFT_TEST_PIPELINE_CASE_H
#define WEFT_TEST_PIPELINE_CASE_H

#include "harness/test.h"
#include "harness/run.h"
#include "harness/tempdir.h"

enum { CASE_T = 9, CASE_ROWS_MAX = 12 };

/* Odd sizes; gpt2 and qwen2 tie the embedding, qwen2 has full layers before windowed ones. */
static inline weft_model_config case_config(weft_family family, int64_t L)
{
    weft_model_config c = {
        .family = family, .V = 11, .C = 12, .F = 5, .L = L, .max_position = 64, .H = 3, .Hkv = 1, .D = 4,
        .norm_eps = 1e-5, .rope = {.type = WEFT_ROPE_PLAIN, .theta = 100, .factor = 1}, .bos = -1, .eos = -1,
    };
    if (family == WEFT_QWEN2) {
        c.qkv_bias = c.tied = true;
        c.window = 4;
        c.window_from_layer = 1;
    }
    if (family == WEFT_GPT2) {
        c.Hkv = 3;
        c.rope.type = WEFT_ROPE_NONE;
        c.tied = c.qkv_bias = c.o_bias = c.mlp_bias = true;
    }
    return c;
}

/* Large enough that every path carries a gradient well above rounding. */
static inline double case_weight(const weft_spec *s, int64_t i)
{
    double z = test_normal((uint64_t)s->number + 17, i);
    if (s->nd == 2) return 0.4 * z;
    return strstr(s->name, "bias") ? 0.3 * z : 1 + 0.2 * z;
}

static inline void case_write_weights(const char *dir, const weft_model_config *c,
                                      double (*weight)(const weft_spec *s, int64_t i))
{
    weft_ctx ctx;
    weft_arena *arena;
    weft_spec *spec;
    double *w;
    int n;
    char path[700];
    weft_text config = {0};
    weft_ctx_init(&ctx);
    assert_ok(weft_arena_create(&arena, &ctx.mem, "test", NULL));
    assert_ok(weft_make_dir(dir));
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_ok(weft_model_config_text(c, "float64", &config));
    test_write_raw(path, config.data, config.len);
    weft_text_free(&config);
    assert_ok(weft_model_whole_spec(c, arena, &spec, &n));
    assert_ok(WEFT_NEW(arena, weft_model_params(c), "test", &w));
    for (int t = 0; t < n; t++)
        for (int64_t i = 0; i < spec[t].count; i++) w[spec[t].offset + i] = weight(&spec[t], i);
    assert_ok(weft_ckpt_save_weights(dir, spec, n, w, WEFT_F64, WEFT_F64, 0));
    weft_arena_destroy(arena);
}

static inline void case_write_model(const char *dir, const weft_model_config *c)
{
    case_write_weights(dir, c, case_weight);
}

/* B rows, some labels missing; with documents in every row where `docs`. */
static inline void case_write(const char *path, int64_t B, bool docs)
{
    static const int64_t cu[] = {0, 2, 2, 7, CASE_T};
    int32_t token[CASE_ROWS_MAX * CASE_T], target[CASE_ROWS_MAX * CASE_T];
    for (int64_t i = 0; i < B * CASE_T; i++) {
        token[i] = (int32_t)((i * i * 7 + i * 3 + 2) % 11);
        target[i] = i % 5 == 3 ? -100 : (int32_t)((i * 5 + 1) % 11);
    }
    weft_st_entry e[3] = {
        {"tokens", {.data = token, .dtype = WEFT_I32, .nd = 2, .shape = {B, CASE_T}}},
        {"targets", {.data = target, .dtype = WEFT_I32, .nd = 2, .shape = {B, CASE_T}}},
        {"cu_seqlens", {.data = (void *)(uintptr_t)cu, .dtype = WEFT_I64, .nd = 1, .shape = {5}}},
    };
    assert_ok(weft_st_write(path, e, docs ? 3 : 2, NULL));
}

typedef struct layout { int pp, cp, dp; const char *micro; int tp; bool sequence_parallel; } layout;

static inline void case_open(test_run *t, layout x)
{
    char pp[12], cp[12], dp[12], tp[12];
    snprintf(pp, sizeof pp, "%d", x.pp);
    snprintf(cp, sizeof cp, "%d", x.cp);
    snprintf(dp, sizeof dp, "%d", x.dp);
    snprintf(tp, sizeof tp, "%d", x.tp);
    const char *words[] = {"--precision", "fp64", "--pp", pp, "--cp", cp, "--dp", dp, "--tp", tp,
                           "--micro-batch-size", x.micro, x.sequence_parallel ? "--sequence-parallel" : NULL, NULL};
    test_run_open(t, WEFT_CMD_VERIFY, words);
}

/* At least nll and the gradients of a layer's tensors and two more. */
static inline void case_check(const char *dir, const char *path, layout x)
{
    test_run t;
    case_open(&t, x);
    test_verify(&t, x.pp * x.cp * x.dp * x.tp, dir, path, 10);
    test_run_close(&t);
}

#endif
