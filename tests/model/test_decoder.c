/* labels: small */
/* Cached generation gives the logits of the training pass, whatever the pieces in which tokens are fed. */
#include "toy.h"

enum { T = 9 };

static void log_softmax(double *x, int64_t n)
{
    double max = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++) max = fmax(max, x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - max);
    for (int64_t i = 0; i < n; i++) x[i] -= max + log(sum);
}

/* want[i][v] = -nll of label v at row i: all log probabilities, from the training pass. */
static weft_status training_logits(toy_rank *r, toy *t, double *want)
{
    double sum, nll[T];
    for (int64_t v = 0; v < t->config.V; v++) {
        for (int i = 0; i < T; i++) r->target[i] = (int32_t)v;
        WEFT_TRY(toy_step(r, t, false, &sum, nll));
        for (int i = 0; i < T; i++) want[i * t->config.V + v] = -nll[i];
    }
    return WEFT_OK;
}

static weft_status compare_row(const toy *t, double *logits, const double *want, int64_t row)
{
    log_softmax(logits, t->config.V);
    for (int64_t v = 0; v < t->config.V; v++)
        if (!(fabs(logits[v] - want[row * t->config.V + v]) <= 1e-12))
            return weft_fail(WEFT_ERR_COMPARE, "row %lld, token %lld: %.15g, training pass %.15g", (long long)row,
                             (long long)v, logits[v], want[row * t->config.V + v]);
    return WEFT_OK;
}

/* Feeds pieces of `step` tokens and compares after each. */
static weft_status compare_pieces(toy_rank *r, const toy *t, const double *want, int64_t step)
{
    weft_decoder *d;
    double logits[16];
    WEFT_TRY(weft_decoder_create(&d, r->model, T));
    for (int64_t first = 0; first < T; first += step) {
        int64_t n = weft_min_i64(step, T - first);
        WEFT_TRY(weft_decoder_feed(d, t->token + first, n, logits));
        WEFT_TRY(compare_row(t, logits, want, first + n - 1));
    }
    weft_decoder_destroy(d);
    return WEFT_OK;
}

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    toy *t = ud;
    toy_rank r;
    double want[T * 16];
    WEFT_TRY(toy_open(&r, ctx, world, t));
    WEFT_TRY(training_logits(&r, t, want));
    for (int64_t step = 1; step <= T; step++) WEFT_TRY(compare_pieces(&r, t, want, step));
    toy_close(&r);
    return WEFT_OK;
}

static void check(weft_model_config config)
{
    int32_t token[T], target[T];
    toy_tokens(token, target, T, config.V);
    toy t = {.config = config, .prec = WEFT_PREC_F64, .P = 1, .strategy = "none", .B = 1, .T = T, .token = token,
             .target = target, .grad_scale = 1};
    assert_ok(weft_run_threads(1, body, &t));
}

static void every_family(void **state)
{
    (void)state;
    for (int f = WEFT_LLAMA; f <= WEFT_GPT2; f++) check(toy_config((weft_family)f, 2));
}

static void full_and_windowed_layers(void **state)
{
    (void)state;
    weft_model_config c = toy_config(WEFT_QWEN2, 2);
    c.window = 2;
    c.window_from_layer = 1;
    check(c);
}

/* A prompt longer than the decoder's chunk gives what one token at a time gives. */
static weft_status long_prompt(weft_ctx *ctx, weft_world *world, void *ud)
{
    enum { N = 300 };
    toy *t = ud;
    toy_rank r;
    weft_decoder *whole, *single;
    int32_t token[N];
    double a[16], b[16];
    for (int i = 0; i < N; i++) token[i] = (i * 7 + i / 5) % 11;
    WEFT_TRY(toy_open(&r, ctx, world, t));
    WEFT_TRY(weft_decoder_create(&whole, r.model, N));
    WEFT_TRY(weft_decoder_create(&single, r.model, N));
    WEFT_TRY(weft_decoder_feed(whole, token, N, a));
    for (int i = 0; i < N; i++) WEFT_TRY(weft_decoder_feed(single, token + i, 1, b));
    double error = weft_rel_l2(a, WEFT_F64, b, WEFT_F64, t->config.V, 0);
    if (!(error <= 1e-12)) return weft_fail(WEFT_ERR_COMPARE, "error %.3e", error);
    weft_decoder_destroy(whole);
    weft_decoder_destroy(single);
    toy_close(&r);
    return WEFT_OK;
}

static void a_prompt_of_several_chunks(void **state)
{
    (void)state;
    int32_t token[T], target[T];
    toy_tokens(token, target, T, 11);
    toy t = {.config = toy_config(WEFT_MISTRAL, 2), .prec = WEFT_PREC_F64, .P = 1, .strategy = "none", .B = 1, .T = T,
             .token = token, .target = target, .grad_scale = 1};
    t.config.window = 150;
    assert_ok(weft_run_threads(1, long_prompt, &t));
}

static weft_status refusals(weft_ctx *ctx, weft_world *world, void *ud)
{
    toy *t = ud;
    toy_rank r;
    weft_decoder *d;
    int32_t bad = 11, good = 3;
    double logits[16];
    assert_ok(toy_open(&r, ctx, world, t));
    assert_refused(weft_decoder_create(&d, r.model, 65), "n_positions = 64");
    assert_refused(weft_decoder_create(&d, r.model, 0), "at least 1");
    assert_ok(weft_decoder_create(&d, r.model, 2));
    assert_refused(weft_decoder_feed(d, &bad, 1, logits), "token 0 is 11");
    assert_refused(weft_decoder_feed(d, &good, 0, logits), "at least 1");
    assert_ok(weft_decoder_feed(d, &good, 1, logits));
    assert_ok(weft_decoder_feed(d, &good, 1, logits));
    assert_refused(weft_decoder_feed(d, &good, 1, logits), "2 in all");
    weft_decoder_destroy(d);
    toy_close(&r);
    return WEFT_OK;
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    int32_t token[T], target[T];
    toy_tokens(token, target, T, 11);
    toy t = {.config = toy_config(WEFT_GPT2, 1), .prec = WEFT_PREC_F64, .P = 1, .strategy = "none", .B = 1, .T = T,
             .token = token, .target = target, .grad_scale = 1};
    weft_ctx ctx;
    weft_world *world;
    weft_ctx_init(&ctx);
    assert_ok(weft_world_self(&world, &ctx)); /* cmocka's assertions need this thread */
    assert_ok(refusals(&ctx, world, &t));
    weft_world_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family),
        cmocka_unit_test(full_and_windowed_layers),
        cmocka_unit_test(a_prompt_of_several_chunks),
        cmocka_unit_test(refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
