/* Every golden file must open: they were written by an independent implementation of the format. */
/* labels: small */
#include "harness/test.h"
#include "ckpt/ckpt.h"

#include <glob.h>

static void opens(const char *pattern, size_t at_least)
{
    const char *root = getenv("WEFT_GOLDEN");
    assert_non_null(root);
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", root, pattern);
    glob_t g;
    assert_int_equal(glob(path, 0, NULL, &g), 0);
    assert_true(g.gl_pathc >= at_least);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        weft_st *st = NULL;
        assert_ok(weft_st_open(&st, g.gl_pathv[i]));
        assert_true(weft_st_count(st) > 0);
        for (int k = 0; k < weft_st_count(st); k++) {
            const weft_st_entry *e = weft_st_at(st, k);
            assert_ptr_equal(weft_st_find(st, e->name), &e->view);
            if (e->view.dtype != WEFT_F32) continue;
            /* lse of rows that see nothing is -inf; NaN appears nowhere */
            const float *x = e->view.data;
            for (int64_t j = 0; j < weft_view_count(&e->view); j++) assert_true(x[j] == x[j]);
        }
        weft_st_close(st);
    }
    globfree(&g);
}

static void test_attention_cases(void **state) { (void)state; opens("attention/*.safetensors", 29); }
static void test_models(void **state) { (void)state; opens("models/*/model.safetensors", 9); }
static void test_model_cases(void **state) { (void)state; opens("models/*/case.safetensors", 9); }

static void test_metadata(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s/attention/causal_s128.safetensors", getenv("WEFT_GOLDEN"));
    weft_st *st = NULL;
    assert_ok(weft_st_open(&st, path));
    assert_string_equal(weft_st_meta(st, "causal"), "1");
    assert_null(weft_st_meta(st, "no such key"));
    const weft_view *v = NULL;
    assert_refused(weft_st_require(st, "dqq", &v), "did you mean dq");
    assert_ok(weft_st_require(st, "q", &v));
    assert_int_equal(v->nd, 4);
    weft_st_close(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_cases), cmocka_unit_test(test_models),
        cmocka_unit_test(test_model_cases), cmocka_unit_test(test_metadata),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
