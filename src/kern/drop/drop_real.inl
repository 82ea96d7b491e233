/* drop_real.inl — over avx2.h or avx512.h: which of 64 channels of a row dropout keeps, and the kernel whose rows
 * are all of R. Sixteen Philox numbers of four words each decide; word w of number g belongs to channel 16 w + g, so
 * words come out in the order of channels, whatever the vectors' width. Halves of a product are 64 bits wide, so
 * even and odd lanes take turns. */

enum { PHILOX_ROUNDS = 10, DROP_BLOCK = 64, DROP_NUMBERS = 16 };

typedef struct drop_keys { /* of a call */
    float scale;           /* of what is kept: 1 / (1 - p) */
    uint32_t limit;        /* kept when a word is above */
    uint32_t key0[PHILOX_ROUNDS], key1[PHILOX_ROUNDS];
} drop_keys;

static drop_keys drop_keys_of(const weft_drop *d)
{
    drop_keys k = {.scale = (float)(1 / (1 - d->p))};
    k.limit = (uint32_t)(ceil(d->p * 0x1p32) - 1); /* word >= p 2^32, in integers; p > 0 */
    k.key0[0] = (uint32_t)d->seed, k.key1[0] = (uint32_t)(d->seed >> 32);
    for (int i = 1; i < PHILOX_ROUNDS; i++) {
        k.key0[i] = k.key0[i - 1] + WEFT_PHILOX_W0;
        k.key1[i] = k.key1[i - 1] + WEFT_PHILOX_W1;
    }
    return k;
}

typedef struct drop_words { VI w[4]; } drop_words;

/* All rounds, on the low halves of 64-bit numbers. What lands in the high halves is never read. */
static inline drop_words drop_rounds(const drop_keys *k, VI w0, VI w1, VI w2, VI w3)
{
    const VI m0 = vi_set(WEFT_PHILOX_M0), m1 = vi_set(WEFT_PHILOX_M1);
    for (int i = 0; i < PHILOX_ROUNDS; i++) {
        const VI a = vi_mul_wide(m0, w0), b = vi_mul_wide(m1, w2);
        w0 = vi_xor3(vi_high(b), w1, vi_set(k->key0[i]));
        w2 = vi_xor3(vi_high(a), w3, vi_set(k->key1[i]));
        w1 = b;
        w3 = a;
    }
    return (drop_words){{w0, w1, w2, w3}};
}

/* keep[v]: lanes of channels [first + v VLEN, ...) of the row `index`; first is a multiple of DROP_BLOCK. */
static inline void drop_block(VM *keep, const drop_keys *k, const weft_drop *d, int64_t index, int64_t first)
{
    const int64_t token = index % d->T, sample = d->sample0 + index / d->T;
    const VI w0 = vi_set((uint32_t)token), w1 = vi_set((uint32_t)(token >> 32)), w3 = vi_set(d->word3);
    const VI limit = vi_set(k->limit);
    for (int g = 0; g < DROP_NUMBERS; g += VLEN) {
        uint32_t word2[VLEN];
        for (int i = 0; i < VLEN; i++)
            word2[i] = weft_philox_word2((uint32_t)sample, (uint32_t)(first / 4 + g + i));
        const VI even = vi_load(word2);
        const drop_words a = drop_rounds(k, w0, w1, even, w3), b = drop_rounds(k, w0, w1, vi_high(even), w3);
        for (int w = 0; w < 4; w++) keep[(DROP_NUMBERS * w + g) / VLEN] = vi_above(vi_join(a.w[w], b.w[w]), limit);
    }
}

void SIMD_NAME(weft_drop_add_f32)(void *to, const void *from, const void *y, const int64_t *index, int64_t rows,
                                  int64_t n, const weft_drop *d, int threads)
{
    const drop_keys k = drop_keys_of(d);
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i += DROP_BLOCK) {
            VM keep[DROP_BLOCK / VLEN];
            drop_block(keep, &k, d, index[r], i);
            for (int64_t j = i; j < n && j < i + DROP_BLOCK; j += VLEN) {
                const int64_t at = r * n + j;
                V x = vsel(keep[(j - i) / VLEN], vmul(vld((const float *)y + at, n - j), vset(k.scale)), vzero());
                if (from) x = vadd(vld((const float *)from + at, n - j), x);
                vst((float *)to + at, x, n - j);
            }
        }
}
