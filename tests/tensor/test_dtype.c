/* Element types. Every 8- and 16-bit pattern is decoded by a formula of its own and comes back; rounding is
 * checked against the two neighbours of a value, which needs no knowledge of how it is done. */
#include "harness/test.h"
#include "tensor/tensor.h"

#include <float.h>

typedef struct format { weft_dtype t; int bits, mantissa, bias; bool inf; } format;

static const format formats[] = {
    {WEFT_BF16, 16, 7, 127, true}, {WEFT_F16, 16, 10, 15, true}, {WEFT_F8_E5M2, 8, 2, 15, true},
    {WEFT_F8_E4M3, 8, 3, 7, false},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* The definition: sign, exponent, fraction. */
static double decoded(const format *f, unsigned bits)
{
    unsigned fraction = bits & ((1u << f->mantissa) - 1), top = (1u << (f->bits - 1 - f->mantissa)) - 1;
    unsigned exponent = (bits >> f->mantissa) & top;
    double sign = bits >> (f->bits - 1) ? -1.0 : 1.0;
    if (exponent == top && f->inf) return fraction ? NAN : sign * INFINITY;
    if (exponent == top && fraction == (1u << f->mantissa) - 1) return NAN; /* e4m3 has this NaN only */
    double value = exponent ? 1 + ldexp(fraction, -f->mantissa) : ldexp(fraction, 1 - f->mantissa);
    return sign * ldexp(value, (int)exponent - f->bias);
}

static unsigned load_bits(const format *f, const void *p)
{
    return f->bits == 8 ? *(const uint8_t *)p : *(const uint16_t *)p;
}

static void store_bits(const format *f, void *p, unsigned bits)
{
    if (f->bits == 8) *(uint8_t *)p = (uint8_t)bits;
    else *(uint16_t *)p = (uint16_t)bits;
}

static unsigned encode(const format *f, double x)
{
    uint16_t cell = 0;
    weft_store(&cell, f->t, 0, x);
    return load_bits(f, &cell);
}

static void every_pattern_round_trips(void **state)
{
    (void)state;
    for (int k = 0; k < FORMATS; k++) {
        const format *f = &formats[k];
        for (unsigned b = 0; b < 1u << f->bits; b++) {
            uint16_t cell = 0;
            store_bits(f, &cell, b);
            double want = decoded(f, b), got = weft_load(&cell, f->t, 0);
            if (isnan(want)) {
                assert_true(isnan(got) && isnan(decoded(f, encode(f, NAN))));
                continue;
            }
            assert_true(got == want && signbit(got) == signbit(want));
            if (isinf(want) && f->bits == 8) continue; /* e5m2 saturates: below */
            assert_int_equal(encode(f, want), b);
        }
    }
}

/* Between neighbours a < b the result is the nearer one, and on the tie the one with the even pattern. The
 * points beside the tie are nearer to it than a float can tell, so rounding twice would show. */
static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    for (int k = 0; k < FORMATS; k++) {
        const format *f = &formats[k];
        for (unsigned b = 0; b + 1 < 1u << (f->bits - 1); b++) {
            double low = decoded(f, b), high = decoded(f, b + 1);
            if (!isfinite(low) || !isfinite(high)) continue;
            double tie = low + (high - low) / 2, below = nextafter(tie, low), above = nextafter(tie, high);
            unsigned sign = 1u << (f->bits - 1), even = b & 1 ? b + 1 : b;
            assert_int_equal(encode(f, tie), even);
            assert_int_equal(encode(f, below), b);
            assert_int_equal(encode(f, above), b + 1);
            assert_int_equal(encode(f, -tie), even | sign);
            assert_int_equal(encode(f, -below), b | sign);
            assert_int_equal(encode(f, -above), (b + 1) | sign);
        }
    }
}

static void ends_of_the_range(void **state)
{
    (void)state;
    float back = 0;
    uint16_t h = 0;
    assert_true(weft_f16_to_f32(weft_f32_to_f16(65504.0f)) == 65504.0f);
    assert_true(weft_f16_to_f32(weft_f32_to_f16(nextafterf(65520.0f, 0))) == 65504.0f);
    assert_true(isinf(weft_f16_to_f32(weft_f32_to_f16(65520.0f))));
    assert_true(weft_f16_to_f32(weft_f32_to_f16(-INFINITY)) == -INFINITY);
    assert_true(isinf(weft_bf16_to_f32(weft_f32_to_bf16(FLT_MAX)))); /* past half of the step above the largest */
    assert_true(weft_bf16_to_f32(weft_f32_to_bf16(INFINITY)) == INFINITY);
    /* fp8 saturates: scaled blocks must not turn a rounding into an infinity */
    static const float large[] = {449, 464, 480, 1e6f, FLT_MAX, INFINITY};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        assert_true(weft_f8_to_f32(weft_f32_to_f8(large[i], WEFT_F8_E4M3), WEFT_F8_E4M3) == 448);
        assert_true(weft_f8_to_f32(weft_f32_to_f8(-large[i], WEFT_F8_E4M3), WEFT_F8_E4M3) == -448);
    }
    assert_true(weft_f8_to_f32(weft_f32_to_f8(1e6f, WEFT_F8_E5M2), WEFT_F8_E5M2) == 57344);
    assert_true(weft_f8_to_f32(weft_f32_to_f8(-INFINITY, WEFT_F8_E5M2), WEFT_F8_E5M2) == -57344);
    /* a double beyond float is an infinity, not the largest bf16 */
    weft_store(&h, WEFT_BF16, 0, 1e300);
    weft_convert(&back, WEFT_F32, &h, WEFT_BF16, 1);
    assert_true(isinf(back));
}

/* All NaNs of float, by their top 16 bits and a low bit that truncation would lose. */
static void nan_stays_nan(void **state)
{
    (void)state;
    for (uint32_t top = 0x7f80; top < 0x8000; top++)
        for (uint32_t low = 0; low < 2; low++) {
            union { uint32_t u; float f; } x = {top << 16 | low};
            if (!isnan(x.f)) continue;
            assert_true(isnan(weft_bf16_to_f32(weft_f32_to_bf16(x.f))));
            assert_true(isnan(weft_f16_to_f32(weft_f32_to_f16(x.f))));
            assert_true(isnan(weft_f8_to_f32(weft_f32_to_f8(x.f, WEFT_F8_E4M3), WEFT_F8_E4M3)));
            assert_true(isnan(weft_f8_to_f32(weft_f32_to_f8(x.f, WEFT_F8_E5M2), WEFT_F8_E5M2)));
        }
}

/* Any pair of floating types: the same as one element at a time. */
static void convert_equals_load_and_store(void **state)
{
    (void)state;
    enum { N = 257 };
    double src[N], a[N], b[N];
    for (int from = WEFT_F64; from <= WEFT_F8_E5M2; from++)
        for (int to = WEFT_F64; to <= WEFT_F8_E5M2; to++) {
            for (int i = 0; i < N; i++) weft_store(src, (weft_dtype)from, i, test_normal(9, i) * pow(2, i % 40 - 20));
            memset(a, 0, sizeof a), memset(b, 0, sizeof b);
            weft_convert(a, (weft_dtype)to, src, (weft_dtype)from, N);
            for (int i = 0; i < N; i++) weft_store(b, (weft_dtype)to, i, weft_load(src, (weft_dtype)from, i));
            assert_memory_equal(a, b, sizeof a);
        }
    weft_convert(src, WEFT_F64, src, WEFT_F64, N); /* in place */
}

static void integers(void **state)
{
    (void)state;
    static const int64_t big[] = {INT64_MAX, INT64_MIN, (INT64_C(1) << 53) + 1, -7, 65535};
    int64_t out[5];
    int32_t narrow[5];
    uint16_t half[2];
    static const int64_t small[] = {65535, 7};
    weft_convert(out, WEFT_I64, big, WEFT_I64, 5);
    assert_memory_equal(out, big, sizeof big);
    weft_convert(narrow, WEFT_I32, big + 3, WEFT_I64, 2);
    assert_true(narrow[0] == -7 && narrow[1] == 65535);
    weft_convert(half, WEFT_U16, small, WEFT_I64, 2);
    assert_true(half[0] == 65535 && half[1] == 7);
    weft_convert(out, WEFT_I64, narrow, WEFT_I32, 2);
    assert_true(out[0] == -7 && out[1] == 65535);
    weft_convert(out, WEFT_I64, half, WEFT_U16, 2);
    assert_true(out[0] == 65535 && out[1] == 7);
}

static void names_and_sizes(void **state)
{
    (void)state;
    static const size_t sizes[WEFT_DTYPE_COUNT] = {8, 4, 2, 2, 1, 1, 8, 4, 2, 1};
    for (int i = 0; i < WEFT_DTYPE_COUNT; i++) {
        weft_dtype back = WEFT_DTYPE_COUNT;
        assert_int_equal(weft_dtype_size((weft_dtype)i), sizes[i]);
        assert_true(weft_dtype_from_safetensors(weft_dtype_safetensors((weft_dtype)i), &back));
        assert_int_equal(back, i);
        assert_non_null(weft_dtype_name((weft_dtype)i));
    }
    weft_dtype t;
    assert_false(weft_dtype_from_safetensors("F7", &t));
    assert_false(weft_dtype_from_safetensors("f32", &t));
    for (int p = 0; p < WEFT_PREC_COUNT; p++) {
        weft_prec back = WEFT_PREC_COUNT;
        assert_true(weft_prec_parse(weft_prec_name((weft_prec)p), &back));
        assert_int_equal(back, p);
    }
    weft_prec p;
    assert_false(weft_prec_parse("fp8", &p));
    assert_true(weft_prec_real(WEFT_PREC_BF16) == WEFT_F32 && weft_prec_real(WEFT_PREC_F64) == WEFT_F64);
    assert_true(weft_prec_compute(WEFT_PREC_F16) == WEFT_F16 && weft_prec_compute(WEFT_PREC_F32) == WEFT_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_round_trips), cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(ends_of_the_range), cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(convert_equals_load_and_store), cmocka_unit_test(integers), cmocka_unit_test(names_and_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
