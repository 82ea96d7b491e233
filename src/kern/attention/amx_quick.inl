/* amx_quick.inl — 2^y for 32 scores at a time, straight to bf16 in integer arithmetic, which the processor does beside
 * tile products at full speed. Half the operations of exp2_bf16; an error of 0.2 % (rms; rounding to bf16 alone is
 * 0.17 %).
 *
 * T = STEPS (y + 127) as 16 bits: the sum with a large constant leaves it in the low bits of a float, packing saturates
 * it to [0, 65535]. Were the mantissa of 2^y its fraction, T / 2 would be the bf16 wanted; what it is smaller is read
 * from a table of 64 places. y below -127 gives 0. y of 129 and more gives NaN, and so does y between -98000 and
 * -49000, where the large sum turns negative: quick_good refuses both. A NaN could be lost, so products must be tame.
 *
 * l is the sum of these P. A lane may use them only while its largest P is at most 1/32 of l: the errors of 32 and more
 * weights average out, and lse keeps the limit of design.md, 1e-3, at three standard deviations. Equal weights all have
 * the same error, up to 0.6 %, and so do nearly equal ones: hence the largest P must be 1.5 times the mean, which for
 * normal scores leaves 3e-4. */

enum { STEPS = 256, SHARE = 32 };

/* A multiple of 1/STEPS. Were the reference none, rounding it would move all P of the lane the same way. */
static inline V steps(V y)
{
    return _mm512_roundscale_ps(y, 8 << 4 | _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
_Static_assert(STEPS == 1 << 8, "steps() rounds to 8 binary places");

typedef struct sums_of_p { /* per lane */
    V sum, top;
} sums_of_p;

typedef struct quick {
    const float *s;
    char *p;
    V scale, add, sum0, sum1;
    __m512i most, table, order;
} quick;

static const float QUICK_LARGE = 0x1.8p23f; /* in [2^23, 2^24) floats are integers */

/* 256 (f - (2^f - 1)) for f = (i + 1/2) / 64: the integers that leave the smallest error, T being one too large. */
static const uint8_t quick_table[64] = {
    0,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 15, 16, 17, 18, 18, 19, 19,
    20, 20, 21, 21, 21, 22, 22, 22, 22, 22, 22, 23, 23, 22, 22, 22, 22, 22, 22, 21, 21, 21,
    20, 20, 19, 19, 18, 17, 16, 16, 15, 14, 13, 12, 11, 10, 9,  7,  6,  5,  3,  2,
};

/* Packing leaves, in each 128 bits, four words of the even key and four of the odd one. */
static const uint8_t quick_order[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};

static quick quick_of(const float *s, char *p, float scale, V ref)
{
    const V add = vfnma(ref, vset(STEPS), vset(QUICK_LARGE + 127 * STEPS + 1));
    return (quick){.s = s, .p = p, .scale = vset(scale * STEPS), .add = add, .sum0 = vzero(), .sum1 = vzero(),
                   .most = _mm512_setzero_si512(), .table = _mm512_loadu_si512(quick_table),
                   .order = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)quick_order))};
}

static inline __attribute__((always_inline)) __m512i quick_step(const quick *q, int i)
{
    const V t = vfma(vload(q->s + i * VLEN), q->scale, q->add);
    return _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_castps_si512(vset(QUICK_LARGE)));
}

/* P of keys [j, j + n), n a multiple of 4. */
static inline __attribute__((always_inline)) void quick_some(quick *q, int j, const int n)
{
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
#pragma GCC unroll 8
    for (int i = j; i < j + n; i += 2) {
        __m512i w = _mm512_packus_epi32(quick_step(q, i), quick_step(q, i + 1));
        w = _mm512_shuffle_epi8(w, q->order);
        const __m512i less = _mm512_maskz_permutexvar_epi8(0x5555555555555555u, _mm512_srli_epi16(w, 2), q->table);
        w = _mm512_srli_epi16(_mm512_sub_epi16(w, less), 1);
        q->most = _mm512_max_epu16(q->most, w);
        if (i % 4 == 0) q->sum0 = _mm512_dpbf16_ps(q->sum0, (__m512bh)w, ones);
        else q->sum1 = _mm512_dpbf16_ps(q->sum1, (__m512bh)w, ones);
        _mm512_store_si512(q->p + i / 2 * 64, w);
    }
}

static inline sums_of_p quick_sums(const quick *q)
{
    const __m512i odd = _mm512_and_si512(q->most, _mm512_set1_epi32((int)0xffff0000));
    const __m512i even = _mm512_slli_epi32(q->most, 16); /* floats with bf16 as their high halves, in integer order */
    return (sums_of_p){vadd(q->sum0, q->sum1), _mm512_castsi512_ps(_mm512_max_epu32(odd, even))};
}

static sums_of_p quick_all(quick q, int keys)
{
    for (int j = 0; j < keys; j += TILE_ROWS) quick_some(&q, j, TILE_ROWS);
    return quick_sums(&q);
}

static const float OVER_MEAN = 1.5f;

/* `keys`: of which P is not 0. False for NaN. */
static inline bool quick_good(const sums_of_p *got, V l, V keys)
{
    const VM small = vle(vmul(got->top, vset(SHARE)), vadd(l, got->sum));
    const VM uneven = vle(vmul(got->sum, vset(OVER_MEAN)), vmul(got->top, keys));
    return vmask_bits(vmask_and(small, uneven)) == 0xffff;
}

/* Before: lanes with so little sum, or a reference so large that steps are not exact, are not worth trying. */
static inline bool quick_promises(V ref, V l)
{
    return vmask_bits(vmask_and(vle(vset(SHARE), l), vle(vabs(ref), vset(0x1p14f)))) == 0xffff;
}
