/* dtype.c — element types and conversions between them. */
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

static const struct { size_t bits; const char *text, *st; } info[WEFT_DTYPE_COUNT] = {
#define X(name, text, bits, st) {bits, text, st},
    WEFT_DTYPE_MAP(X)
#undef X
};

size_t weft_dtype_size(weft_dtype t) { return info[t].bits / 8; }
const char *weft_dtype_name(weft_dtype t) { return info[t].text; }
const char *weft_dtype_safetensors(weft_dtype t) { return info[t].st; }

bool weft_dtype_from_safetensors(const char *s, weft_dtype *out)
{
    for (int i = 0; i < WEFT_DTYPE_COUNT; i++)
        if (!strcmp(s, info[i].st)) {
            *out = (weft_dtype)i;
            return true;
        }
    return false;
}

float weft_f16_to_f32(weft_f16 h)
{
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = (h >> 10) & 31, fraction = h & 1023;
    union { float f; uint32_t u; } x = {0};
    if (exponent == 31) x.u = 0x7f800000u | fraction << 13;
    else if (exponent) x.u = (exponent + 112) << 23 | fraction << 13; /* the biases differ by 127 - 15 */
    else x.f = (float)fraction * 0x1p-24f;
    x.u |= sign;
    return x.f;
}

/* Rounds |f| to a small float with `mantissa` bits and smallest normal exponent `emin`, ties to even; the
 * result is the bit pattern without sign. Works for every exponent because a carry runs into it. */
static uint32_t round_small(float a, int mantissa, int emin)
{
    if (a == 0) return 0; /* has no exponent: frexpf would give it that of 0.5 */
    int e = 0;
    frexpf(a, &e);                      /* a = x * 2^e, x in [0.5, 1) */
    int exponent = e - 1 < emin ? emin : e - 1;
    float scaled = ldexpf(a, mantissa - exponent); /* exact: a power of two */
    float whole = nearbyintf(scaled);              /* ties to even in the default mode */
    if (e - 1 < emin) return (uint32_t)whole;      /* subnormal, or the carry into the first normal */
    return (uint32_t)whole + ((uint32_t)(exponent - emin) << mantissa);
}

weft_f16 weft_f32_to_f16(float f)
{
    uint16_t sign = signbit(f) ? 0x8000u : 0;
    float a = fabsf(f);
    if (isnan(a)) return (weft_f16)(sign | 0x7e00u);
    if (a >= 65520.0f) return (weft_f16)(sign | 0x7c00u); /* half above the largest rounds to infinity */
    return (weft_f16)(sign | round_small(a, 10, -14));
}

float weft_f8_to_f32(uint8_t b, weft_dtype t)
{
    int mantissa = t == WEFT_F8_E4M3 ? 3 : 2, bias = t == WEFT_F8_E4M3 ? 7 : 15;
    int exponent = (b & 0x7f) >> mantissa, fraction = b & ((1 << mantissa) - 1);
    float v;
    if (t == WEFT_F8_E4M3 && (b & 0x7f) == 0x7f) v = NAN;
    else if (t == WEFT_F8_E5M2 && exponent == 31) v = fraction ? NAN : INFINITY;
    else if (!exponent) v = ldexpf((float)fraction, 1 - bias - mantissa);
    else v = ldexpf((float)(fraction + (1 << mantissa)), exponent - bias - mantissa);
    return b & 0x80 ? -v : v;
}

uint8_t weft_f32_to_f8(float f, weft_dtype t)
{
    uint8_t sign = signbit(f) ? 0x80u : 0;
    float a = fabsf(f), largest = t == WEFT_F8_E4M3 ? 448.0f : 57344.0f;
    if (isnan(a)) return (uint8_t)(sign | 0x7fu);
    if (a > largest) a = largest;
    return (uint8_t)(sign | (t == WEFT_F8_E4M3 ? round_small(a, 3, -6) : round_small(a, 2, -14)));
}

double weft_load(const void *src, weft_dtype t, int64_t i)
{
    switch (t) {
    case WEFT_F64: return ((const double *)src)[i];
    case WEFT_F32: return (double)((const float *)src)[i];
    case WEFT_BF16: return (double)weft_bf16_to_f32(((const weft_bf16 *)src)[i]);
    case WEFT_F16: return (double)weft_f16_to_f32(((const weft_f16 *)src)[i]);
    case WEFT_F8_E4M3:
    case WEFT_F8_E5M2: return (double)weft_f8_to_f32(((const uint8_t *)src)[i], t);
    case WEFT_I64: return (double)((const int64_t *)src)[i];
    case WEFT_I32: return (double)((const int32_t *)src)[i];
    case WEFT_U16: return (double)((const uint16_t *)src)[i];
    case WEFT_U8: return (double)((const uint8_t *)src)[i];
    case WEFT_DTYPE_COUNT: break;
    }
    return NAN;
}

/* double -> float towards zero, with the last bit set when anything was lost ("round to odd"): a second
 * rounding to a narrower type then sees on which side of a tie the double lay. */
static float to_odd(double x)
{
    union { float f; uint32_t u; } r = {(float)x};
    if ((double)r.f == x || isnan(x)) return r.f;
    if (fabs((double)r.f) > fabs(x)) r.u--; /* also from infinity to the largest float */
    r.u |= 1;
    return r.f;
}

void weft_store(void *dst, weft_dtype t, int64_t i, double x)
{
    switch (t) {
    case WEFT_F64: ((double *)dst)[i] = x; break;
    case WEFT_F32: ((float *)dst)[i] = (float)x; break;
    case WEFT_BF16: ((weft_bf16 *)dst)[i] = weft_f32_to_bf16(to_odd(x)); break;
    case WEFT_F16: ((weft_f16 *)dst)[i] = weft_f32_to_f16(to_odd(x)); break;
    case WEFT_F8_E4M3:
    case WEFT_F8_E5M2: ((uint8_t *)dst)[i] = weft_f32_to_f8(to_odd(x), t); break;
    case WEFT_I64: ((int64_t *)dst)[i] = (int64_t)x; break;
    case WEFT_I32: ((int32_t *)dst)[i] = (int32_t)x; break;
    case WEFT_U16: ((uint16_t *)dst)[i] = (uint16_t)x; break;
    case WEFT_U8: ((uint8_t *)dst)[i] = (uint8_t)x; break;
    case WEFT_DTYPE_COUNT: break;
    }
}

static bool is_wide_integer(weft_dtype t) { return t == WEFT_I64; }

static void convert_integers(void *dst, weft_dtype ddt, const void *src, weft_dtype sdt, int64_t n)
{
    for (int64_t i = 0; i < n; i++) /* i64 does not fit into a double */
        if (is_wide_integer(sdt) && is_wide_integer(ddt)) ((int64_t *)dst)[i] = ((const int64_t *)src)[i];
        else if (is_wide_integer(sdt) && ddt == WEFT_I32) ((int32_t *)dst)[i] = (int32_t)((const int64_t *)src)[i];
        else weft_store(dst, ddt, i, weft_load(src, sdt, i));
}

void weft_convert(void *dst, weft_dtype ddt, const void *src, weft_dtype sdt, int64_t n)
{
    if (ddt == sdt) {
        if (n > 0 && dst != src) memmove(dst, src, (size_t)n * weft_dtype_size(ddt));
    } else if (ddt >= WEFT_I64) {
        convert_integers(dst, ddt, src, sdt, n);
    } else if (sdt == WEFT_F32 && ddt == WEFT_BF16) {
        for (int64_t i = 0; i < n; i++) ((weft_bf16 *)dst)[i] = weft_f32_to_bf16(((const float *)src)[i]);
    } else if (sdt == WEFT_BF16 && ddt == WEFT_F32) {
        for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = weft_bf16_to_f32(((const weft_bf16 *)src)[i]);
    } else if (sdt == WEFT_F32 && ddt == WEFT_F64) {
        for (int64_t i = 0; i < n; i++) ((double *)dst)[i] = (double)((const float *)src)[i];
    } else if (sdt == WEFT_F64 && ddt == WEFT_F32) {
        for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = (float)((const double *)src)[i];
    } else {
        for (int64_t i = 0; i < n; i++) weft_store(dst, ddt, i, weft_load(src, sdt, i));
    }
}

static const char *const prec_names[WEFT_PREC_COUNT] = {"fp64", "fp32", "bf16", "fp16"};

const char *weft_prec_name(weft_prec p) { return prec_names[p]; }

bool weft_prec_parse(const char *s, weft_prec *out)
{
    for (int i = 0; i < WEFT_PREC_COUNT; i++)
        if (!strcmp(s, prec_names[i])) {
            *out = (weft_prec)i;
            return true;
        }
    return false;
}
