/* amx_pack.inl — rows of bf16 to operands of tile products. A list of pointers names the rows, so that keys of one
 * head and lanes of several heads are packed by the same code; NULL is a row of zeros, and so is what lies past the end
 * of a row. Sizes are rounded up to whole tiles. */

typedef const weft_bf16 *row_list[128];

static inline int chunks(int n) { return (n + PAIRS - 1) / PAIRS; }            /* 32 elements */
static inline int columns(int n) { return (n + TILE_ROWS - 1) / TILE_ROWS; } /* 16 elements */

static inline __m512i words_in(const weft_bf16 *row, int at, int n)
{
    if (!row || at >= n) return _mm512_setzero_si512();
    return _mm512_maskz_loadu_epi16(n - at >= 32 ? 0xffffffffu : (1u << (n - at)) - 1u, row + at);
}

/* Elements at .. at + 15 of rows a and b as pairs. */
static inline __m512i pairs_in(const weft_bf16 *a, const weft_bf16 *b, int at, int n)
{
    const __mmask16 m = (__mmask16)(n - at >= 16 ? 0xffffu : (1u << (n - at)) - 1u);
    __m512i x = _mm512_setzero_si512(), y = x;
    if (a) x = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, a + at));
    if (b) y = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, b + at));
    return _mm512_or_si512(x, _mm512_slli_epi32(y, 16));
}

static inline void tile_turn(V r[TILE_ROWS], char *to)
{
    vtranspose(r);
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++) vstore((float *)(void *)(to + i * 64), r[i]);
}

/* Whether all elements seen are finite and below 2^56, so that no sum of 256 products of two is an infinity or NaN. */
static inline __m512i most(__m512i seen, __m512i x)
{
    return _mm512_max_epu16(seen, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
}
static inline bool all_tame(__m512i seen) { return _mm512_cmpge_epu16_mask(seen, _mm512_set1_epi16(0x5b80)) == 0; }

/* A, rows along A's rows: element chunk c of row i at to + (c * height + i) * 64; a tile may begin at any row.
 * Returns whether all elements are tame. */
static bool pack_rows(char *to, row_list rows, int count, int height, int n)
{
    __m512i seen = _mm512_setzero_si512();
    for (int c = 0; c < chunks(n); c++)
        for (int i = 0; i < count; i++) {
            const __m512i x = words_in(rows[i], c * PAIRS, n);
            seen = most(seen, x);
            _mm512_store_si512(to + ((int64_t)c * height + i) * 64, x);
        }
    return all_tame(seen);
}

/* B, rows along B's columns, elements summed: tile (column group s, chunk c) at s * chunks(n) + c.
 * Returns as pack_rows. */
static bool pack_columns(char *to, row_list rows, int count, int n)
{
    __m512i seen = _mm512_setzero_si512();
    for (int s = 0; s < count; s += TILE_ROWS)
        for (int c = 0; c < chunks(n); c++, to += TILE) {
            V r[TILE_ROWS];
#pragma GCC unroll 16
            for (int i = 0; i < TILE_ROWS; i++) {
                const __m512i x = words_in(rows[s + i], c * PAIRS, n);
                seen = most(seen, x);
                r[i] = _mm512_castsi512_ps(x);
            }
            tile_turn(r, to);
        }
    return all_tame(seen);
}

/* B, rows summed, elements along B's columns: tile (columns x, rows 32 y ..) at x * height / 32 + y. */
static void pack_pairs(char *to, row_list rows, int count, int height, int n)
{
    for (int x = 0; x < columns(n); x++)
        for (int i = 0; i < count; i += 2) {
            char *tile = to + ((int64_t)x * (height / PAIRS) + i / PAIRS) * TILE;
            _mm512_storeu_si512(tile + i % PAIRS / 2 * 64, pairs_in(rows[i], rows[i + 1], x * TILE_ROWS, n));
        }
}

/* A, rows summed, elements along A's rows: the same tiles, each turned. */
static void pack_turned(char *to, row_list rows, int count, int height, int n)
{
    for (int x = 0; x < columns(n); x++)
        for (int y = 0; y < count; y += PAIRS) {
            V r[TILE_ROWS];
#pragma GCC unroll 16
            for (int i = 0; i < TILE_ROWS; i++)
                r[i] = _mm512_castsi512_ps(pairs_in(rows[y + 2 * i], rows[y + 2 * i + 1], x * TILE_ROWS, n));
            tile_turn(r, to + ((int64_t)x * (height / PAIRS) + y / PAIRS) * TILE);
        }
}

/* Products sum over whole tiles. Keys that nobody sees may not be there at all (their rows have not arrived), and
 * P = 0 must not meet what lies there: they are packed as zeros. */
static void mark_seen(bool *seen, int64_t lo, int64_t hi, int64_t from, int n)
{
    for (int64_t j = weft_max_i64(lo, from); j < weft_min_i64(hi, from + n); j++) seen[j - from] = true;
}

/* Lists of `count` rows: the keys from `row` on of which `n` are there, and the lanes of a tile. */
static void rows_of_keys(row_list rows, int count, const void *src, int64_t ld, int64_t row, int n, int g, int size,
                         const bool *seen)
{
    for (int i = 0; i < count; i++)
        rows[i] = i < n && seen[i] ? (const weft_bf16 *)src + (row + i) * ld + (int64_t)g * size : NULL;
}
static void rows_of_lanes(row_list rows, int count, const lanes *t, const void *src, int64_t ld, int size)
{
    for (int i = 0; i < count; i++)
        rows[i] = i < t->n ? (const weft_bf16 *)src + t->row[i] * ld + (int64_t)t->head[i] * size : NULL;
}

/* ---- bf16 from fp32 ------------------------------------------------------------------------------------------- */

static inline __m512i words_of(V high, V low) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

/* Lanes of two keys as pairs: a row of B. */
static inline __m512i pair_words(V even, V odd, __m512i order)
{
    return _mm512_permutexvar_epi16(order, words_of(odd, even));
}
static const uint16_t pair_order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

/* 2^y, relative error 9e-5, a twentieth of what rounding to bf16 costs; 1 exactly at 0. 2^y = 2^floor(y) 2^r with
 * 0 <= r < 1 and a minimax polynomial for the second. y = -inf gives 0 (the reduction of an infinity is 0), NaN stays
 * NaN. */
static inline __attribute__((always_inline)) V exp2_bf16(V y)
{
    const V r = _mm512_reduce_ps(y, _MM_FROUND_TO_NEG_INF);
    V p = vfma(vset(0x1.3baaa6p-4f), r, vset(0x1.d2378ap-3f));
    p = vfma(p, r, vset(0x1.63e658p-1f));
    p = vfma(p, r, vset(1));
    return vscale2(p, y);
}
