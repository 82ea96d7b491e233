/* avx512.h — the SIMD vocabulary on 512-bit registers: 16 floats, 16 mask bits.
 *
 * One kernel source (X_simd.inl) is compiled once per instruction set over avx2.h or avx512.h. Both offer
 * the same names. Everything is static inline: an external function here would let the linker keep the
 * AVX-512 copy for a machine without it.
 *
 *   V  VLEN floats      VI  VLEN int32      VM  one truth value per lane
 *   suffix n: the first n lanes (0 <= n <= VLEN); the other lanes load as 0 and are not stored.
 *   Sums over lanes (vsum) have one fixed order. Elementary functions are in math.h. */
#ifndef WEFT_KERN_SIMD_AVX512_H
#define WEFT_KERN_SIMD_AVX512_H

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "avx512.h needs -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif
#ifdef VLEN
#error "one SIMD vocabulary per source file"
#endif

#include <immintrin.h>
#include <stdint.h>

#define VLEN 16
#define SIMD_ISA "avx512"
#define SIMD_NAME(x) x##_avx512

typedef __m512 V;
typedef __m512i VI;
typedef __mmask16 VM;

static inline VM vmask_n(int64_t n) { return (VM)(n >= VLEN ? 0xffffu : (1u << n) - 1u); }
static inline VM vmask_and(VM a, VM b) { return (VM)(a & b); }
static inline int vmask_any(VM m) { return m != 0; }
/* Bit i for lane i, and back. */
static inline uint16_t vmask_bits(VM m) { return m; }
static inline VM vmask_of(uint16_t bits) { return bits; }

static inline V vzero(void) { return _mm512_setzero_ps(); }
static inline V vset(float x) { return _mm512_set1_ps(x); }
static inline V vload(const float *p) { return _mm512_loadu_ps(p); }
static inline V vloadn(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(vmask_n(n), p); }
static inline void vstore(float *p, V a) { _mm512_storeu_ps(p, a); }
/* The first 8 lanes. */
static inline void vstore8(float *p, V a) { _mm256_storeu_ps(p, _mm512_castps512_ps256(a)); }
static inline void vstoren(float *p, V a, int64_t n) { _mm512_mask_storeu_ps(p, vmask_n(n), a); }

static inline V vadd(V a, V b) { return _mm512_add_ps(a, b); }
static inline V vsub(V a, V b) { return _mm512_sub_ps(a, b); }
static inline V vmul(V a, V b) { return _mm512_mul_ps(a, b); }
static inline V vdiv(V a, V b) { return _mm512_div_ps(a, b); }
static inline V vsqrt(V a) { return _mm512_sqrt_ps(a); }
static inline V vfma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }   /* a b + c */
static inline V vfms(V a, V b, V c) { return _mm512_fmsub_ps(a, b, c); }   /* a b - c */
static inline V vfnma(V a, V b, V c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a b */
/* When one operand is NaN the second is returned: vmax(limit, x) keeps a NaN in x. */
static inline V vmax(V a, V b) { return _mm512_max_ps(a, b); }
static inline V vmin(V a, V b) { return _mm512_min_ps(a, b); }
static inline V vabs(V a) { return _mm512_abs_ps(a); }
/* |magnitude| with the sign of `sign` */
static inline V vcopysign(V magnitude, V sign)
{
    __m512i s = _mm512_and_si512(_mm512_castps_si512(sign), _mm512_set1_epi32(INT32_MIN));
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(_mm512_abs_ps(magnitude)), s));
}

/* Comparisons are false for NaN. */
static inline VM vlt(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline VM vle(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
static inline VM veq(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
static inline V vsel(VM m, V yes, V no) { return _mm512_mask_blend_ps(m, no, yes); }

static inline VI vi_load(const void *p) { return _mm512_loadu_si512(p); }
static inline VI vi_set(uint32_t x) { return _mm512_set1_epi32((int)x); }
static inline VI vi_and(VI a, VI b) { return _mm512_and_si512(a, b); }
static inline VI vi_xor(VI a, VI b) { return _mm512_xor_si512(a, b); }
static inline VI vi_xor3(VI a, VI b, VI c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }
/* Of signed lanes of 16 and 32 bits. */
static inline VI vi_max16(VI a, VI b) { return _mm512_max_epi16(a, b); }
static inline VI vi_max32(VI a, VI b) { return _mm512_max_epi32(a, b); }
/* 64-bit numbers in pairs of lanes: the product of the low halves; the high half moved down; the low halves of
 * `even` and `odd` as one vector of 32-bit lanes. */
static inline VI vi_mul_wide(VI a, VI b) { return _mm512_mul_epu32(a, b); }
static inline VI vi_high(VI a) { return _mm512_srli_epi64(a, 32); }
static inline VI vi_join(VI even, VI odd) { return _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA); }
/* unsigned a > b */
static inline VM vi_above(VI a, VI b) { return _mm512_cmpgt_epu32_mask(a, b); }
/* lanes with lo <= j < hi */
static inline VM vi_within(VI lo, VI hi, int32_t j)
{
    __m512i x = _mm512_set1_epi32(j);
    return _mm512_mask_cmplt_epi32_mask(_mm512_cmple_epi32_mask(lo, x), x, hi);
}

/* Halves, quarters, ... are added: lane i meets lane i + 8, then i + 4, i + 2, i + 1. */
static inline float vsum(V a)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
static inline float vhmax(V a)
{
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/* p 2^n for n an integer held as float; rounds, overflows and underflows as one operation. */
static inline V vscale2(V p, V n) { return _mm512_scalef_ps(p, n); }

/* 2^x for x <= 100, relative error below 2e-7; 2^0 = 1 exactly, 2^-inf = 0, NaN stays NaN.
 *   x = n + r, |r| <= 1/2:  2^x = 2^n p(r),  p of degree 5 (9.4e-8 relative).
 * The fraction of -inf is 0 here, so there is no clamp. Rounding down would save the subtraction (scalef does it by
 * itself), but just below 0 r would be 1 - x with half the digits, and a row's largest p should be 1. */
static inline V vexp2(V x)
{
    V r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    V p = vfma(vset(0x1.5bda3cp-10f), r, vset(0x1.3ce8acp-7f));
    p = vfma(p, r, vset(0x1.c6b6d8p-5f));
    p = vfma(p, r, vset(0x1.ebf9c2p-3f));
    p = vfma(p, r, vset(0x1.62e42ap-1f));
    return vscale2(vfma(p, r, vset(1.0f)), vsub(x, r));
}

/* ---- 16-bit elements ------------------------------------------------------------------------------ */

static inline V v_bf16_to_f32(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
/* Nearest even; a NaN stays a (quiet) NaN, which adding the rounding bias could turn into infinity. */
static inline __m256i v_f32_to_bf16(V a)
{
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
static inline V vload_bf16(const uint16_t *p)
{
    return v_bf16_to_f32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline V vload_bf16n(const uint16_t *p, int64_t n)
{
    return v_bf16_to_f32(_mm256_maskz_loadu_epi16(vmask_n(n), p));
}
static inline void vstore_bf16(uint16_t *p, V a) { _mm256_storeu_si256((__m256i *)(void *)p, v_f32_to_bf16(a)); }
static inline void vstore_bf16n(uint16_t *p, V a, int64_t n)
{
    _mm256_mask_storeu_epi16(p, vmask_n(n), v_f32_to_bf16(a));
}

static inline __m256i v_f32_to_f16(V a) { return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline V vload_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline V vload_f16n(const uint16_t *p, int64_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vmask_n(n), p));
}
static inline void vstore_f16(uint16_t *p, V a) { _mm256_storeu_si256((__m256i *)(void *)p, v_f32_to_f16(a)); }
static inline void vstore_f16n(uint16_t *p, V a, int64_t n)
{
    _mm256_mask_storeu_epi16(p, vmask_n(n), v_f32_to_f16(a));
}

/* ---- transpose ------------------------------------------------------------------------------------ */

/* r[i] lane j <-> r[j] lane i. Pairs, then quads inside 128-bit parts, then the parts themselves. */
static inline void vtranspose(V r[VLEN])
{
    V t[VLEN];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        V a = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88), b = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        V c = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88), d = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
        t[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        t[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        t[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
    for (int i = 0; i < 16; i++) r[i] = t[i];
}

#include "kern/simd/math.h"

#endif
