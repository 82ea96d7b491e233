/* labels: small */
/* Rotary angles: base, scaling, and positions that come with the tokens. */
#include "harness/test.h"

#include "model/model.h"

static weft_model_config config_of(int D, double theta)
{
    return (weft_model_config){.family = WEFT_LLAMA, .V = 11, .C = D, .F = 8, .L = 1, .max_position = 512, .H = 1,
                               .Hkv = 1,
                               .D = D, .norm_eps = 1e-6, .rope = {.type = WEFT_ROPE_PLAIN, .theta = theta, .factor = 1},
                               .bos = -1, .eos = -1};
}

/* G34: base 500000, D 4, position 100, second frequency: 100 * 500000^(-1/2) = 0.14142; base 10000 gives 1. */
static void g34_the_base_of_the_config_counts(void **state)
{
    (void)state;
    weft_model_config c = config_of(4, 500000);
    int64_t pos = 100;
    double cosine[2], sine[2];
    weft_rope_table(&c, WEFT_PREC_F64, &pos, 1, cosine, sine);
    assert_at_most(fabs(atan2(sine[1], cosine[1]) - 0.14142135623730951), 1e-15);
    assert_at_most(fabs(sine[0] - sin(100.0)), 1e-15);
    c.rope.theta = 10000;
    weft_rope_table(&c, WEFT_PREC_F64, &pos, 1, cosine, sine);
    assert_at_most(fabs(atan2(sine[1], cosine[1]) - 1), 1e-15);
}

/* G20: D 2 turns 1 rad per position. q = k = (1,0): score(7, 0) = cos 7 with positions from the shard; a
 * rank that numbers its own rows would give cos 3. */
static void g20_positions_go_through_the_shard(void **state)
{
    (void)state;
    weft_ctx ctx;
    weft_arena *arena;
    weft_shard shard;
    weft_ctx_init(&ctx);
    assert_ok(weft_arena_create(&arena, &ctx.mem, "test", NULL));
    assert_ok(weft_shard_alloc(&shard, arena, 2, weft_shard_capacity((weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, 1, 8, 1,
                                                                     2)));
    int64_t cu[] = {0, 8}, first[] = {0, 2}, index[8], pos[8];
    weft_docs docs = {.B = 1, .T = 8, .cu = cu, .first = first, NULL};
    assert_ok(weft_shard_make(&shard, (weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, &docs, 0));
    weft_shard_tokens(&shard, 0, index, pos);
    weft_model_config c = config_of(2, 10000);
    double cosine[4], sine[4];
    weft_rope_table(&c, WEFT_PREC_F64, pos, 4, cosine, sine);
    /* rows 0 and 3 of rank 0 are tokens 0 and 7; R(a)^T R(b) (1,0) . (1,0) = cos a cos b + sin a sin b */
    assert_int_equal(pos[3], 7);
    double score = cosine[3] * cosine[0] + sine[3] * sine[0];
    assert_at_most(fabs(score - 0.7539022543433046), 1e-15);
    weft_arena_destroy(arena);
}

static void linear_divides_the_frequencies(void **state)
{
    (void)state;
    weft_model_config c = config_of(8, 10000), s = c;
    s.rope.type = WEFT_ROPE_LINEAR;
    s.rope.factor = 4;
    int64_t pos = 12, quarter = 3;
    double a[4], b[4], u[4], v[4];
    weft_rope_table(&s, WEFT_PREC_F64, &pos, 1, a, b);
    weft_rope_table(&c, WEFT_PREC_F64, &quarter, 1, u, v);
    for (int i = 0; i < 4; i++) assert_at_most(fabs(a[i] - u[i]) + fabs(b[i] - v[i]), 1e-14);
}

/* Short waves keep their frequency, long ones are divided by the factor, and between them it is monotone. */
static void llama3_keeps_short_and_slows_long_waves(void **state)
{
    (void)state;
    weft_model_config c = config_of(64, 500000), s = c;
    s.rope = (weft_rope_config){.type = WEFT_ROPE_LLAMA3, .theta = 500000, .factor = 8, .low_freq_factor = 1,
                                .high_freq_factor = 4, .original_max_position = 64};
    int64_t one = 1;
    double a[32], b[32], u[32], v[32];
    weft_rope_table(&s, WEFT_PREC_F64, &one, 1, a, b);
    weft_rope_table(&c, WEFT_PREC_F64, &one, 1, u, v);
    for (int i = 0; i < 32; i++) {
        double plain = atan2(v[i], u[i]), scaled = atan2(b[i], a[i]), wave = 2 * M_PI / plain;
        if (wave < 16) assert_at_most(fabs(scaled - plain), 1e-15);
        else if (wave > 64) assert_at_most(fabs(scaled - plain / 8), 1e-15);
        else assert_true(scaled < plain && scaled > plain / 8);
    }
}

/* cos^2 + sin^2 is the square of the attention factor: 0.1 ln 4 + 1 by default. */
static void yarn_scales_cos_and_sin(void **state)
{
    (void)state;
    weft_model_config c = config_of(16, 10000);
    c.rope = (weft_rope_config){.type = WEFT_ROPE_YARN, .theta = 10000, .factor = 4, .beta_fast = 32, .beta_slow = 1,
                                .original_max_position = 32};
    int64_t pos = 77;
    double a[8], b[8];
    weft_rope_table(&c, WEFT_PREC_F64, &pos, 1, a, b);
    for (int i = 0; i < 8; i++) assert_at_most(fabs(hypot(a[i], b[i]) - (0.1 * log(4) + 1)), 1e-15);
    c.rope.attention_factor = 1.5;
    weft_rope_table(&c, WEFT_PREC_F64, &pos, 1, a, b);
    for (int i = 0; i < 8; i++) assert_at_most(fabs(hypot(a[i], b[i]) - 1.5), 1e-14);
    /* the last pair turns by the stretched frequency: 77 theta^(-14/16) / 4 */
    assert_at_most(fabs(atan2(b[7], a[7]) - 77 * pow(10000, -14.0 / 16) / 4), 1e-15);
}

/* fp32 tables are double values rounded once, even at positions where fp32 angles are off by radians. */
static void tables_are_rounded_once(void **state)
{
    (void)state;
    weft_model_config c = config_of(4, 10000);
    int64_t pos = 1048575;
    double a[2], b[2];
    float x[2], y[2];
    weft_rope_table(&c, WEFT_PREC_F64, &pos, 1, a, b);
    weft_rope_table(&c, WEFT_PREC_F32, &pos, 1, x, y);
    for (int i = 0; i < 2; i++) assert_true(x[i] == (float)a[i] && y[i] == (float)b[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(g34_the_base_of_the_config_counts),
        cmocka_unit_test(g20_positions_go_through_the_shard),
        cmocka_unit_test(linear_divides_the_frequencies),
        cmocka_unit_test(llama3_keeps_short_and_slows_long_waves),
        cmocka_unit_test(yarn_scales_cos_and_sin),
        cmocka_unit_test(tables_are_rounded_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
