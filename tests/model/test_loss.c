/* labels: small */
/* timeout: 240 */
/* The logits of all tokens never exist at once, and the chunks do not show. */
#include "toy.h"

enum { ROWS = 4096, VOCAB = 50257 };

/* G10: T 4096, V 50257, width 32. Whole logits would be 823 MB; the limit above weights and gradients is
 * 300 MB. Sixteen documents, because attention is not what this test is about. */
static void g10_memory_stays_below_one_copy_of_the_logits(void **state)
{
    (void)state;
    weft_ctx ctx;
    weft_world *world;
    toy_rank r;
    double sum;
    int32_t *token = malloc(ROWS * sizeof *token), *target = malloc(ROWS * sizeof *target);
    int64_t cu[17], first[] = {0, 17};
    for (int i = 0; i <= 16; i++) cu[i] = i * ROWS / 16;
    toy_tokens(token, target, ROWS, VOCAB);
    toy t = {.config = toy_config(WEFT_LLAMA, 1), .prec = WEFT_PREC_F32, .P = 1, .strategy = "none", .B = 1, .T = ROWS,
             .token = token, .target = target, .grad_scale = 1.0 / ROWS, .cu = cu, .first = first};
    t.config.V = VOCAB;
    t.config.C = 32;
    weft_ctx_init(&ctx);
    ctx.threads = 2;
    assert_ok(weft_world_self(&world, &ctx));
    assert_ok(toy_open(&r, &ctx, world, &t));
    assert_ok(toy_step(&r, &t, true, &sum, NULL));
    assert_true(isfinite(sum) && sum > 0);
    double weights = 2.0 * sizeof(float) * (double)weft_model_weight_count(r.model);
    assert_at_most((double)ctx.mem.peak - weights, 300e6);
    toy_close(&r);
    weft_world_close(world);
    free(token);
    free(target);
}

/* V 50257 gives chunks of 166 rows in fp64: 180 rows are two, the last one short. Labels of one
 * chunk at a time leave the other without a label; the parts add up to the whole. */
static void chunks_do_not_show(void **state)
{
    (void)state;
    enum { N = 180, CHUNK = 166 };
    int32_t token[N], target[N], low[N], high[N];
    toy_tokens(token, target, N, VOCAB);
    for (int i = 0; i < N; i++) {
        low[i] = i < CHUNK ? target[i] : -100;
        high[i] = i < CHUNK ? -100 : target[i];
    }
    toy all = {.config = toy_config(WEFT_QWEN2, 1), .prec = WEFT_PREC_F64, .P = 1, .strategy = "none", .B = 1, .T = N,
               .token = token, .target = target, .grad_scale = 1.0 / N};
    all.config.V = VOCAB;
    all.config.C = 4;
    toy a = all, b = all;
    a.target = low;
    b.target = high;
    assert_ok(toy_run(&all));
    assert_ok(toy_run(&a));
    assert_ok(toy_run(&b));
    for (int64_t i = 0; i < a.count; i++) a.grads[i] += b.grads[i];
    for (int i = 0; i < N; i++) assert_true(all.token_nll[i] == (i < CHUNK ? a : b).token_nll[i]);
    for (int i = 0; i < N; i++) assert_true(target[i] >= 0 ? all.token_nll[i] > 0 : all.token_nll[i] == 0);
    assert_at_most(weft_rel_l2(a.grads, WEFT_F64, all.grads, WEFT_F64, all.count, 0), 1e-13);
    toy_free(&all);
    toy_free(&a);
    toy_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(g10_memory_stays_below_one_copy_of_the_logits),
        cmocka_unit_test(chunks_do_not_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
