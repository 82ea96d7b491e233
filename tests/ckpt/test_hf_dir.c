/* Model directories: single and sharded files by a table of tensors, and every way in which a directory
 * can disagree with the table or with itself. */
/* labels: small */
#include "harness/test.h"
#include "harness/tempdir.h"
#include "ckpt/ckpt.h"

#include <sys/stat.h>
#include <unistd.h>

static test_dir dir;
static int setup(void **state) { (void)state; test_dir_make(&dir); return 0; }
static int teardown(void **state) { (void)state; test_dir_remove(&dir); return 0; }

enum { V = 8, D = 4, COUNT = V * D + D + D * D * 2 + V * D };
static const weft_spec table[] = {
    {.name = "model.embed_tokens.weight", .nd = 2, .shape = {V, D}, .offset = 0, .count = V * D},
    {.name = "model.norm.weight", .nd = 1, .shape = {D}, .offset = V * D, .count = D},
    {.name = "model.layers.0.self_attn.q_proj.weight", .nd = 2, .shape = {2 * D, D}, .offset = V * D + D,
     .count = 2 * D * D},
    {.name = "lm_head.weight", .nd = 2, .shape = {V, D}, .offset = V * D + D + 2 * D * D, .count = V * D},
};
enum { N = 4, TIED = 3 }; /* a tied model has no head in its table */

static void fill(double *w) { for (int i = 0; i < COUNT; i++) w[i] = test_normal(3, i); }

/* ---- round trips -------------------------------------------------------------------------------------- */

/* What a value becomes in a file of type t. */
static double through(double x, weft_dtype t)
{
    double y;
    char cell[8];
    weft_store(cell, t, 0, x);
    y = weft_load(cell, t, 0);
    return y;
}

static void test_types(void **state)
{
    (void)state;
    static const weft_dtype types[] = {WEFT_F64, WEFT_F32, WEFT_BF16, WEFT_F16};
    double w[COUNT], back[COUNT];
    fill(w);
    w[0] = NAN, w[1] = INFINITY, w[2] = -0.0;
    for (int t = 0; t < 4; t++) {
        assert_ok(weft_ckpt_save_weights(dir.path, table, N, w, WEFT_F64, types[t], 0));
        assert_ok(weft_ckpt_load_weights(dir.path, table, N, false, back, WEFT_F64));
        assert_true(back[0] != back[0]);
        for (int i = 1; i < COUNT; i++) assert_true(back[i] == through(w[i], types[t]));
        float f[COUNT];
        assert_ok(weft_ckpt_load_weights(dir.path, table, N, false, f, WEFT_F32));
        for (int i = 1; i < COUNT; i++) assert_true(f[i] == (float)through(w[i], types[t]));
    }
    assert_int_equal(test_dir_count(&dir), 1);
    assert_refused(weft_ckpt_save_weights(dir.path, table, N, w, WEFT_F64, WEFT_I32, 0), "cannot be saved as i32");
    assert_refused(weft_ckpt_load_weights(dir.path, table, N, false, back, WEFT_I64), "cannot be held as i64");
}

static void test_large_tensor(void **state)
{
    (void)state;
    enum { BIG = 100003 }; /* several pieces of the converting writer, the last one short */
    float *w = malloc(BIG * sizeof *w), *back = malloc(BIG * sizeof *back);
    for (int i = 0; i < BIG; i++) w[i] = (float)(i % 251) * 0.5f; /* exact in bf16 up to 8 bits */
    const weft_spec one = {.name = "w", .nd = 1, .shape = {BIG}, .count = BIG};
    assert_ok(weft_ckpt_save_weights(dir.path, &one, 1, w, WEFT_F32, WEFT_BF16, 0));
    assert_ok(weft_ckpt_load_weights(dir.path, &one, 1, false, back, WEFT_F32));
    assert_memory_equal(w, back, BIG * sizeof *w);
    free(w);
    free(back);
}

static void test_shards(void **state)
{
    (void)state;
    double w[COUNT], back[COUNT];
    fill(w);
    static const int64_t limits[] = {1, 4 * V * D, 4 * V * D + 4 * D, 4 * (COUNT - 1)};
    static const int shards[] = {4, 4, 3, 2};
    for (int k = 0; k < 4; k++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", k);
        const char *sub = test_dir_file(&dir, name);
        assert_ok(weft_ckpt_save_weights(sub, table, N, w, WEFT_F64, WEFT_F32, limits[k]));
        test_dir d = {0};
        snprintf(d.path, sizeof d.path, "%s", sub);
        assert_int_equal(test_dir_count(&d), shards[k] + 1);
        assert_ok(weft_ckpt_load_weights(sub, table, N, false, back, WEFT_F64));
        for (int i = 0; i < COUNT; i++) assert_true(back[i] == (double)(float)w[i]);
        assert_refused(weft_ckpt_save_weights(sub, table, N, w, WEFT_F64, WEFT_F32, 0), "fresh folder");
    }
    const char *single = test_dir_file(&dir, "single");
    assert_ok(weft_ckpt_save_weights(single, table, N, w, WEFT_F64, WEFT_F32, 4 * COUNT)); /* fits: no index */
    assert_int_equal(access(test_dir_file(&dir, "single/model.safetensors"), F_OK), 0);
    assert_refused(weft_ckpt_save_weights(single, table, N, w, WEFT_F64, WEFT_F32, 1), "fresh folder");
}

/* ---- directories that do not fit ------------------------------------------------------------------------ */

/* cols 0: one dimension */
typedef struct given { const char *name; weft_dtype dtype; int64_t rows, cols; double base; } given;

static void put_file(const char *file, const given *g, int n)
{
    static double data[8][64];
    weft_st_entry e[8];
    for (int i = 0; i < n; i++) {
        e[i] = (weft_st_entry){g[i].name, {.data = data[i], .dtype = g[i].dtype, .nd = g[i].cols ? 2 : 1,
                                           .shape = {g[i].rows, g[i].cols}}};
        for (int k = 0; k < 64 * 8 / (int)weft_dtype_size(g[i].dtype) && k < 64; k++)
            weft_store(data[i], g[i].dtype, k, g[i].base + k);
    }
    assert_ok(weft_st_write(test_dir_file(&dir, file), e, n, NULL));
}

static weft_status load(int n, bool tied)
{
    float w[COUNT];
    return weft_ckpt_load_weights(dir.path, table, n, tied, w, WEFT_F32);
}

#define EMBED {"model.embed_tokens.weight", WEFT_F32, V, D, 1}
#define NORM {"model.norm.weight", WEFT_F32, D, 0, 2}
#define QPROJ {"model.layers.0.self_attn.q_proj.weight", WEFT_F32, 2 * D, D, 3}
#define SAME_HEAD {"lm_head.weight", WEFT_F32, V, D, 1}
#define OTHER_HEAD {"lm_head.weight", WEFT_F32, V, D, 4}

static void g33_tied(void **state)
{
    (void)state;
    const given none[] = {EMBED, NORM, QPROJ}, same[] = {EMBED, NORM, QPROJ, SAME_HEAD},
                other[] = {EMBED, NORM, QPROJ, OTHER_HEAD};
    put_file("model.safetensors", none, 3);
    assert_ok(load(TIED, true));
    assert_refused(load(N, false), "tensor lm_head.weight is missing");
    put_file("model.safetensors", same, 4);
    assert_ok(load(TIED, true));
    assert_ok(load(N, false));
    put_file("model.safetensors", other, 4);
    assert_ok(load(N, false));
    assert_refused(load(TIED, true), "tensor lm_head.weight differs");
    assert_refused(load(TIED, false), "tensor lm_head.weight is not part of this model");
}

static void test_disagreements(void **state)
{
    (void)state;
    const given misspelt[] = {EMBED, {"model.norn.weight", WEFT_F32, D, 0, 2}, QPROJ};
    put_file("model.safetensors", misspelt, 3);
    assert_refused(load(TIED, true), "tensor model.norm.weight is missing; did you mean model.norn.weight?");
    const given extra[] = {EMBED, NORM, QPROJ, {"model.layers.1.mlp.weight", WEFT_F32, D, 0, 0}};
    put_file("model.safetensors", extra, 4);
    assert_refused(load(TIED, true), "tensor model.layers.1.mlp.weight is not part of this model");
    const given shape[] = {EMBED, NORM, {"model.layers.0.self_attn.q_proj.weight", WEFT_F32, D, 2 * D, 3}};
    put_file("model.safetensors", shape, 3);
    assert_refused(load(TIED, true), "has shape [4, 8], the model needs [8, 4]");
    const given rank[] = {EMBED, NORM, {"model.layers.0.self_attn.q_proj.weight", WEFT_F32, 2 * D * D, 0, 3}};
    put_file("model.safetensors", rank, 3);
    assert_refused(load(TIED, true), "has shape [32], the model needs [8, 4]");
    const given integer[] = {EMBED, {"model.norm.weight", WEFT_I32, D, 0, 2}, QPROJ};
    put_file("model.safetensors", integer, 3);
    assert_refused(load(TIED, true), "tensor model.norm.weight is I32");
    const given twice[] = {EMBED, NORM, QPROJ, {"norm.weight", WEFT_F32, D, 0, 2}};
    put_file("model.safetensors", twice, 4);
    assert_refused(load(TIED, true), "a tensor is there twice");
}

static void test_prefixes_and_buffers(void **state)
{
    (void)state;
    const given bare[] = {{"embed_tokens.weight", WEFT_F32, V, D, 1}, {"norm.weight", WEFT_F32, D, 0, 2},
                          {"layers.0.self_attn.q_proj.weight", WEFT_F32, 2 * D, D, 3},
                          {"layers.0.self_attn.rotary_emb.inv_freq", WEFT_F32, 2, 0, 0},
                          {"layers.0.attn.bias", WEFT_U8, D, D, 0},
                          {"layers.0.attn.masked_bias", WEFT_F32, 1, 0, 0}};
    put_file("model.safetensors", bare, 6);
    float w[COUNT];
    assert_ok(weft_ckpt_load_weights(dir.path, table, TIED, true, w, WEFT_F32));
    for (int i = 0; i < V * D; i++) assert_true(w[i] == 1.0f + (float)i);
    for (int i = 0; i < D; i++) assert_true(w[V * D + i] == 2.0f + (float)i);
    /* a bias of attention itself is no buffer */
    const given bias[] = {EMBED, NORM, QPROJ, {"model.layers.0.self_attn.bias", WEFT_F32, D, 0, 0}};
    put_file("model.safetensors", bias, 4);
    assert_refused(load(TIED, true), "not part of this model");
}

/* Nothing is written before everything is checked. */
static void test_refusal_leaves_weights(void **state)
{
    (void)state;
    const given extra[] = {EMBED, NORM, QPROJ, {"more", WEFT_F32, D, 0, 0}};
    put_file("model.safetensors", extra, 4);
    float w[COUNT];
    for (int i = 0; i < COUNT; i++) w[i] = -5;
    assert_refused(weft_ckpt_load_weights(dir.path, table, TIED, true, w, WEFT_F32), "more");
    for (int i = 0; i < COUNT; i++) assert_true(w[i] == -5);
}

/* ---- the index ---------------------------------------------------------------------------------------- */

static void index_with(const char *map)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":1},\"weight_map\":{%s}}", map);
    test_write_raw(test_dir_file(&dir, "model.safetensors.index.json"), text, strlen(text));
}

static void test_index(void **state)
{
    (void)state;
    const given a[] = {EMBED, NORM}, b[] = {QPROJ}, both[] = {QPROJ, NORM};
    put_file("a.safetensors", a, 2);
    put_file("b.safetensors", b, 1);
#define A "\"model.embed_tokens.weight\":\"a.safetensors\",\"model.norm.weight\":\"a.safetensors\","
#define Q "\"model.layers.0.self_attn.q_proj.weight\":"
    index_with(A Q "\"b.safetensors\"");
    assert_ok(load(TIED, true));
    index_with(A Q "\"c.safetensors\"");
    assert_refused(load(TIED, true), "names c.safetensors for tensor model.layers.0.self_attn.q_proj.weight");
    static const char *const escapes[] = {"\"../x\"", "\"/etc/passwd\"",       "\"..\"",
                                          "\"\"",     "\"sub/b.safetensors\"", "7"};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        char map[512];
        snprintf(map, sizeof map, A Q "%s", escapes[i]);
        index_with(map);
        assert_refused(load(TIED, true), "not the name of a file in that folder");
    }
    index_with(A Q "\"a.safetensors\"");
    assert_refused(load(TIED, true), "where the index has it");
    index_with("\"model.embed_tokens.weight\":\"a.safetensors\"," Q "\"b.safetensors\"");
    assert_refused(load(TIED, true), "does not name tensor model.norm.weight of a.safetensors");
    put_file("b.safetensors", both, 2);
    index_with(A Q "\"b.safetensors\"");
    assert_refused(load(TIED, true), "tensor model.norm.weight is in two places");
    index_with("");
    assert_refused(load(TIED, true), "weight_map");
    index_with("\"x\"");
    assert_refused(load(TIED, true), "index.json:1:");
    put_file("model.safetensors", a, 2);
    assert_refused(load(TIED, true), "holds both");
}

static void test_nothing_there(void **state)
{
    (void)state;
    assert_refused(load(TIED, true), "holds neither");
    test_write_raw(test_dir_file(&dir, "model.safetensors"), "", 0);
    assert_refused(load(TIED, true), "is empty");
}

/* ---- folders and small files ------------------------------------------------------------------------------ */

static void test_files(void **state)
{
    (void)state;
    const char *deep = test_dir_file(&dir, "a/b//c/");
    assert_ok(weft_make_dir(deep));
    assert_ok(weft_make_dir(deep));
    assert_refused(weft_make_dir(""), "empty");
    const char *file = test_dir_file(&dir, "a/b/c/f");
    assert_ok(weft_write_file(file, "x\0y", 3));
    assert_refused(weft_make_dir(file), "a file of that name exists");
    assert_refused(weft_make_dir(test_dir_file(&dir, "a/b/c/f/g")), "a file of that name exists");
    char *data = NULL;
    size_t bytes = 0;
    assert_refused(weft_read_file(file, 2, &data, &bytes), "at most 2");
    assert_ok(weft_read_file(file, 3, &data, &bytes));
    assert_int_equal(bytes, 3);
    assert_memory_equal(data, "x\0y", 4); /* with the NUL after it */
    free(data);
}

/* The golden directories, read through a table made from the file itself: names with and without prefix. */
static void test_golden_gpt2(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s/models/gpt2", getenv("WEFT_GOLDEN"));
    char file[4200];
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    weft_st *st = NULL;
    assert_ok(weft_st_open(&st, file));
    const int n = weft_st_count(st);
    weft_spec *spec = calloc((size_t)n, sizeof *spec);
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        const weft_st_entry *e = weft_st_at(st, i);
        const char *bare = strncmp(e->name, "transformer.", 12) == 0 ? e->name + 12 : e->name;
        spec[i] = (weft_spec){.name = i % 2 ? bare : e->name,
                              .nd = e->view.nd,
                              .offset = total,
                              .count = weft_view_count(&e->view)};
        memcpy(spec[i].shape, e->view.shape, sizeof e->view.shape);
        total += spec[i].count;
    }
    double *w = malloc((size_t)total * sizeof *w);
    assert_ok(weft_ckpt_load_weights(path, spec, n, true, w, WEFT_F64));
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < spec[i].count; k++)
            assert_true(w[spec[i].offset + k] == (double)((const float *)weft_st_at(st, i)->view.data)[k]);
    free(w);
    free(spec);
    weft_st_close(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_types, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_tensor, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shards, setup, teardown),
        cmocka_unit_test_setup_teardown(g33_tied, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disagreements, setup, teardown),
        cmocka_unit_test_setup_teardown(test_prefixes_and_buffers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusal_leaves_weights, setup, teardown),
        cmocka_unit_test_setup_teardown(test_index, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
        cmocka_unit_test(test_golden_gpt2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
