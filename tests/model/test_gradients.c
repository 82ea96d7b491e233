/* labels: small */
/* Whole models of each family against central differences in fp64, over every parameter.
 * Sizes are odd and all different, so that a transposed or swapped pair cannot hide. */
#include "toy.h"

static const int64_t cu[] = {0, 2, 5, 0, 5}, first[] = {0, 3, 5};

/* The five-point formula, [8 (f(w+h) - f(w-h)) - (f(w+2h) - f(w-2h))] / 12h, is off by h^4 f^(5)/30. The norm
 * of a short embedding row has a large fifth derivative (some 1e6), so 1e-11; rounding, 1e-16 f / h, gives
 * 1e-11 at a sum f of some 30. The three-point formula would be off by 1e-8. */
static const double h = 1e-4, tolerance = 1e-9;

/* Only a pass that is followed by a backward pass drops anything. */
static bool drops(const toy *t) { return t->dropout + t->embedding_dropout + t->residual_dropout > 0; }

static weft_status value_at(toy_rank *r, const toy *t, double *w, double x, double *out)
{
    double keep = *w;
    *w = x;
    weft_model_weights_changed(r->model);
    weft_status st = toy_step(r, t, drops(t), out, NULL);
    *w = keep;
    return st;
}

static weft_status difference(toy_rank *r, const toy *t, double *w, double *out)
{
    double f[4];
    static const double at[4] = {-2, -1, 1, 2};
    for (int i = 0; i < 4; i++) WEFT_TRY(value_at(r, t, w, *w + at[i] * h, &f[i]));
    *out = (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * h);
    return WEFT_OK;
}

static weft_status check_tensor(toy_rank *r, const toy *t, const weft_spec *s, const double *g)
{
    double *w = weft_model_weights(r->model), largest = 0;
    for (int64_t i = s->offset; i < s->offset + s->count; i += test_every(5)) {
        double numeric;
        WEFT_TRY(difference(r, t, &w[i], &numeric));
        if (fabs(numeric) > largest) largest = fabs(numeric);
        if (!(fabs(g[i] - numeric) <= tolerance * fmax(1, fabs(numeric))))
            return weft_fail(WEFT_ERR_COMPARE, "%s[%lld]: %.12g, central difference %.12g", s->name,
                             (long long)(i - s->offset), g[i], numeric);
    }
    /* A tensor that the loss does not depend on would pass unseen. */
    if (largest == 0) return weft_fail(WEFT_ERR_COMPARE, "%s: no gradient at all", s->name);
    return WEFT_OK;
}

static weft_status check_all(weft_ctx *ctx, weft_world *world, void *ud)
{
    const toy *t = ud;
    toy_rank r;
    double sum;
    int n;
    WEFT_TRY(toy_open(&r, ctx, world, t));
    WEFT_TRY(toy_step(&r, t, true, &sum, NULL));
    const weft_spec *spec = weft_model_spec(r.model, &n);
    int64_t count = weft_model_weight_count(r.model);
    double *g;
    WEFT_TRY(WEFT_NEW(r.arena, count, "test", &g));
    memcpy(g, weft_model_gradients(r.model), (size_t)count * sizeof *g);
    for (int i = 0; i < n; i++) WEFT_TRY(check_tensor(&r, t, &spec[i], g));
    toy_close(&r);
    return WEFT_OK;
}

static void check_dropping(weft_model_config config, double rate)
{
    int32_t token[10], target[10];
    toy_tokens(token, target, 10, config.V);
    toy t = {.config = config, .prec = WEFT_PREC_F64, .P = 1, .strategy = "none", .B = 2, .T = 5, .cu = cu,
             .first = first,
             .token = token, .target = target, .grad_scale = 1, .dropout = rate, .embedding_dropout = rate,
             .residual_dropout = rate};
    assert_ok(weft_run_threads(1, check_all, &t));
}

static void check(weft_model_config config) { check_dropping(config, 0); }

static void llama_untied(void **state)
{
    (void)state;
    check(toy_config(WEFT_LLAMA, 2));
}

static void llama_tied_with_all_biases(void **state)
{
    (void)state;
    weft_model_config c = toy_config(WEFT_LLAMA, 1);
    c.tied = c.qkv_bias = c.o_bias = c.mlp_bias = true;
    check(c);
}

static void llama_with_yarn(void **state)
{
    (void)state;
    weft_model_config c = toy_config(WEFT_LLAMA, 1);
    c.D = 2;
    c.rope = (weft_rope_config){.type = WEFT_ROPE_YARN, .theta = 100, .factor = 4, .beta_fast = 32, .beta_slow = 1};
    check(c);
}

static void qwen2_tied_with_a_window_from_layer_one(void **state)
{
    (void)state;
    weft_model_config c = toy_config(WEFT_QWEN2, 2);
    c.window = 2;
    c.window_from_layer = 1;
    check(c);
}

static void qwen3_untied_and_tied(void **state)
{
    (void)state;
    weft_model_config c = toy_config(WEFT_QWEN3, 2);
    check(c);
    c.L = 1;
    c.tied = c.qkv_bias = c.o_bias = true;
    check(c);
}

static void mistral_with_a_window(void **state)
{
    (void)state;
    check(toy_config(WEFT_MISTRAL, 2));
}

static void gpt2_tied_and_untied(void **state)
{
    (void)state;
    weft_model_config c = toy_config(WEFT_GPT2, 2);
    check(c);
    c.L = 1;
    c.C = 12;
    c.D = 4;
    c.tied = false;
    check(c);
}

static void dropout_everywhere(void **state)
{
    (void)state;
    check_dropping(toy_config(WEFT_LLAMA, 2), 0.3);
    check_dropping(toy_config(WEFT_GPT2, 1), 0.2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_untied),
        cmocka_unit_test(llama_tied_with_all_biases),
        cmocka_unit_test(llama_with_yarn),
        cmocka_unit_test(qwen2_tied_with_a_window_from_layer_one),
        cmocka_unit_test(qwen3_untied_and_tied),
        cmocka_unit_test(mistral_with_a_window),
        cmocka_unit_test(gpt2_tied_and_untied),
        cmocka_unit_test(dropout_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
