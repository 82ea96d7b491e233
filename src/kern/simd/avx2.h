/* avx2.h — the SIMD vocabulary on 256-bit registers: 8 floats, full-width masks. The names and their
 * meaning are those of avx512.h, where they are explained. */
#ifndef WEFT_KERN_SIMD_AVX2_H
#define WEFT_KERN_SIMD_AVX2_H

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "avx2.h needs -mavx2 -mfma -mf16c"
#endif
#ifdef VLEN
#error "one SIMD vocabulary per source file"
#endif

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VLEN 8
#define SIMD_ISA "avx2"
#define SIMD_NAME(x) x##_avx2

typedef __m256 V;
typedef __m256i VI;
typedef __m256 VM; /* all bits of a lane set or clear */

static inline VM vmask_n(int64_t n)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n > VLEN ? VLEN : n)), lane));
}
static inline VM vmask_and(VM a, VM b) { return _mm256_and_ps(a, b); }
static inline int vmask_any(VM m) { return _mm256_movemask_ps(m) != 0; }
static inline uint16_t vmask_bits(VM m) { return (uint16_t)_mm256_movemask_ps(m); }
static inline VM vmask_of(uint16_t bits)
{
    __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits), lane), lane));
}

static inline V vzero(void) { return _mm256_setzero_ps(); }
static inline V vset(float x) { return _mm256_set1_ps(x); }
static inline V vload(const float *p) { return _mm256_loadu_ps(p); }
static inline V vloadn(const float *p, int64_t n) { return _mm256_maskload_ps(p, _mm256_castps_si256(vmask_n(n))); }
static inline void vstore(float *p, V a) { _mm256_storeu_ps(p, a); }
/* The first 8 lanes, here all. */
static inline void vstore8(float *p, V a) { vstore(p, a); }
static inline void vstoren(float *p, V a, int64_t n) { _mm256_maskstore_ps(p, _mm256_castps_si256(vmask_n(n)), a); }

static inline V vadd(V a, V b) { return _mm256_add_ps(a, b); }
static inline V vsub(V a, V b) { return _mm256_sub_ps(a, b); }
static inline V vmul(V a, V b) { return _mm256_mul_ps(a, b); }
static inline V vdiv(V a, V b) { return _mm256_div_ps(a, b); }
static inline V vsqrt(V a) { return _mm256_sqrt_ps(a); }
static inline V vfma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
static inline V vfms(V a, V b, V c) { return _mm256_fmsub_ps(a, b, c); }
static inline V vfnma(V a, V b, V c) { return _mm256_fnmadd_ps(a, b, c); }
static inline V vmax(V a, V b) { return _mm256_max_ps(a, b); }
static inline V vmin(V a, V b) { return _mm256_min_ps(a, b); }
static inline V vabs(V a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline V vcopysign(V magnitude, V sign)
{
    __m256 bit = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude), _mm256_and_ps(bit, sign));
}

static inline VM vlt(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
static inline VM vle(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
static inline VM veq(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
static inline V vsel(VM m, V yes, V no) { return _mm256_blendv_ps(no, yes, m); }

static inline VI vi_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline VI vi_set(uint32_t x) { return _mm256_set1_epi32((int)x); }
static inline VI vi_and(VI a, VI b) { return _mm256_and_si256(a, b); }
static inline VI vi_xor(VI a, VI b) { return _mm256_xor_si256(a, b); }
static inline VI vi_xor3(VI a, VI b, VI c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
static inline VI vi_max16(VI a, VI b) { return _mm256_max_epi16(a, b); }
static inline VI vi_max32(VI a, VI b) { return _mm256_max_epi32(a, b); }
static inline VI vi_mul_wide(VI a, VI b) { return _mm256_mul_epu32(a, b); }
static inline VI vi_high(VI a) { return _mm256_srli_epi64(a, 32); }
static inline VI vi_join(VI even, VI odd) { return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa); }
static inline VM vi_above(VI a, VI b)
{
    __m256i flip = _mm256_set1_epi32(INT32_MIN); /* only signed comparisons exist */
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_xor_si256(a, flip), _mm256_xor_si256(b, flip)));
}
static inline VM vi_within(VI lo, VI hi, int32_t j)
{
    __m256i x = _mm256_set1_epi32(j);
    return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(lo, x), _mm256_cmpgt_epi32(hi, x)));
}

static inline float vsum(V a)
{
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
static inline float vhmax(V a)
{
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/* Two factors, because 2^n alone leaves the normal range before the product does. |n| <= 250. */
static inline V vscale2(V p, V n)
{
    __m256i i = _mm256_cvtps_epi32(n), h = _mm256_srai_epi32(i, 1), bias = _mm256_set1_epi32(127);
    __m256i a = _mm256_slli_epi32(_mm256_add_epi32(h, bias), 23);
    __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, h), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}

/* 2^x for x <= 100, relative error below 2e-7; 2^0 = 1 exactly, 0 below 2^-126.5, NaN stays NaN.
 *   x = n + r, |r| <= 1/2:  2^x = 2^n p(r),  p of degree 5 (9.4e-8 relative).
 * Adding `magic` rounds x and leaves n + 127 in the low bits: shifted, they are the float 2^n, or 0 at the clamp. */
static inline V vexp2(V x)
{
    const V magic = vset(0x1.8p23f + 127);
    x = vmax(vset(-127.0f), x);
    V t = vadd(x, magic), r = vsub(x, vsub(t, magic));
    V p = vfma(vset(0x1.5bda3cp-10f), r, vset(0x1.3ce8acp-7f));
    p = vfma(p, r, vset(0x1.c6b6d8p-5f));
    p = vfma(p, r, vset(0x1.ebf9c2p-3f));
    p = vfma(p, r, vset(0x1.62e42ap-1f));
    p = vfma(p, r, vset(1.0f));
    return vmul(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}

/* ---- 16-bit elements (tails go through a small buffer: AVX2 has no 16-bit masked access) ---------- */

static inline __m128i v_load16(const uint16_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
static inline __m128i v_load16n(const uint16_t *p, int64_t n)
{
    uint16_t t[VLEN] = {0};
    memcpy(t, p, (size_t)(n > VLEN ? VLEN : n) * sizeof *t);
    return v_load16(t);
}
static inline void v_store16(uint16_t *p, __m128i h) { _mm_storeu_si128((__m128i *)(void *)p, h); }
static inline void v_store16n(uint16_t *p, __m128i h, int64_t n)
{
    uint16_t t[VLEN];
    v_store16(t, h);
    memcpy(p, t, (size_t)(n > VLEN ? VLEN : n) * sizeof *t);
}

static inline V v_bf16_to_f32(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline __m128i v_f32_to_bf16(V a)
{
    __m256i u = _mm256_castps_si256(a);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    r = _mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan);
    r = _mm256_srli_epi32(r, 16);
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0xd8);
    return _mm256_castsi256_si128(r);
}
static inline V vload_bf16(const uint16_t *p) { return v_bf16_to_f32(v_load16(p)); }
static inline V vload_bf16n(const uint16_t *p, int64_t n) { return v_bf16_to_f32(v_load16n(p, n)); }
static inline void vstore_bf16(uint16_t *p, V a) { v_store16(p, v_f32_to_bf16(a)); }
static inline void vstore_bf16n(uint16_t *p, V a, int64_t n) { v_store16n(p, v_f32_to_bf16(a), n); }

static inline __m128i v_f32_to_f16(V a) { return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline V vload_f16(const uint16_t *p) { return _mm256_cvtph_ps(v_load16(p)); }
static inline V vload_f16n(const uint16_t *p, int64_t n) { return _mm256_cvtph_ps(v_load16n(p, n)); }
static inline void vstore_f16(uint16_t *p, V a) { v_store16(p, v_f32_to_f16(a)); }
static inline void vstore_f16n(uint16_t *p, V a, int64_t n) { v_store16n(p, v_f32_to_f16(a), n); }

/* ---- transpose ------------------------------------------------------------------------------------ */

static inline void vtranspose(V r[VLEN])
{
    V t[VLEN];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) r[i] = t[i];
}

#include "kern/simd/math.h"

#endif
