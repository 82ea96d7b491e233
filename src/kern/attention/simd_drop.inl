/* simd_drop.inl — dropout of probabilities by address, for one block of scores: the same decision, bit for bit, as
 * weft_attn_kept, with a Philox number per four keys and a vector of query lanes.
 *
 * The counter is (key token / 4, query token, sample and head, word 3). Its first half of a round meets the key
 * token only, the second the lane only, and they mix one round later:
 *   round 1   M1 w2 and so words 0, 1 belong to the lane, M0 w0 and so words 2, 3 to the key
 *   round 2   M0 w0 to the lane, M1 w2 to the key;  words 0 and 2 are then a xor of one each, word 1 is the key's,
 *             word 3 the lane's
 * So two of ten rounds are scalar work per lane and per key, and eight are left for each pair. */

enum { PHILOX_ROUNDS = 10 };

typedef struct dropout { /* of a call */
    bool on;
    float scale;         /* of what is kept: 1 / (1 - p) */
    uint32_t limit;      /* a pair is kept when its word is above */
    uint32_t word3;
    uint32_t key0[PHILOX_ROUNDS], key1[PHILOX_ROUNDS];
} dropout;

typedef struct drop_lanes { /* the lanes' part of the counters after two rounds */
    uint32_t w0[LANES], w2[LANES], w3[LANES];
} drop_lanes;

typedef struct drop_keys { /* the same for keys, one for the four keys that share a counter */
    int n;
    uint32_t w0[KEYS], w1[KEYS], w2[KEYS];
    uint8_t key[KEYS][4]; /* the keys that the four words decide, counted from j0; KEYS: not in the block */
} drop_keys;

typedef struct drop_block {
    drop_keys keys;
    uint16_t kept[KEYS + 1]; /* lanes of one vector that keep a key; the last is for keys outside the block */
} drop_block;
_Static_assert(KEYS <= UINT8_MAX && VLEN <= 16, "drop_keys.key, drop_block.kept");

static dropout dropout_of(const weft_attn_desc *d, uint32_t word3)
{
    dropout x = {.on = d->dropout > 0};
    if (!x.on) return x;
    x.scale = (float)(1 / (1 - d->dropout));
    x.limit = (uint32_t)(ceil(d->dropout * 0x1p32) - 1); /* word >= p 2^32, in integers; p > 0 */
    x.word3 = word3;
    x.key0[0] = (uint32_t)d->seed, x.key1[0] = (uint32_t)(d->seed >> 32);
    for (int i = 1; i < PHILOX_ROUNDS; i++) {
        x.key0[i] = x.key0[i - 1] + WEFT_PHILOX_W0;
        x.key1[i] = x.key1[i - 1] + WEFT_PHILOX_W1;
    }
    return x;
}

static void drop_lanes_set(drop_lanes *y, const dropout *x, const weft_attn_desc *d, const weft_attn_pair *p,
                           const lanes *t)
{
    memset(y, 0, sizeof *y);
    for (int i = 0; i < t->n; i++) {
        uint32_t word2 = weft_philox_word2(p->sample, (uint32_t)(d->head0 + t->head[i]));
        uint64_t first = (uint64_t)WEFT_PHILOX_M1 * word2;
        uint32_t w0 = (uint32_t)(first >> 32) ^ (uint32_t)(t->pos[i] + p->base) ^ x->key0[0];
        uint64_t second = (uint64_t)WEFT_PHILOX_M0 * w0;
        y->w0[i] = (uint32_t)first ^ x->key0[1];
        y->w2[i] = (uint32_t)(second >> 32) ^ x->key1[1];
        y->w3[i] = (uint32_t)second;
    }
}

static void drop_keys_add(drop_keys *y, const dropout *x, uint32_t word0)
{
    uint64_t first = (uint64_t)WEFT_PHILOX_M0 * word0;
    uint64_t second = (uint64_t)WEFT_PHILOX_M1 * ((uint32_t)(first >> 32) ^ x->word3 ^ x->key1[0]);
    y->w0[y->n] = (uint32_t)(second >> 32);
    y->w1[y->n] = (uint32_t)second;
    y->w2[y->n] = (uint32_t)first;
    memset(y->key[y->n++], KEYS, 4);
}

/* Keys [j0, j1) of a pair. Positions grow, so keys that share a counter are neighbours. */
static void drop_keys_set(drop_keys *y, const dropout *x, const weft_attn_pair *p, int64_t j0, int64_t j1)
{
    weft_attn_walk k = weft_attn_kwalk(p, j0);
    int64_t last = 0;
    y->n = 0;
    for (int64_t j = j0; j < j1; j++, weft_attn_walk_on(&k)) {
        int64_t token = k.pos + p->base;
        if (y->n == 0 || token >> 2 != last) drop_keys_add(y, x, (uint32_t)(token >> 2));
        last = token >> 2;
        y->key[y->n - 1][token & 3] = (uint8_t)(j - j0);
    }
}

/* Rounds 3 to 10 of half of the lanes: words in the low halves of 64-bit numbers. What lands in the high halves is
 * never read. */
typedef struct words { VI w[4]; } words;

static inline __attribute__((always_inline)) words drop_rounds(const dropout *x, VI w0, VI w1, VI w2, VI w3)
{
    VI m0 = vi_set(WEFT_PHILOX_M0), m1 = vi_set(WEFT_PHILOX_M1);
#pragma GCC unroll 8
    for (int i = 2; i < PHILOX_ROUNDS; i++) {
        VI a = vi_mul_wide(m0, w0), b = vi_mul_wide(m1, w2);
        w0 = vi_xor3(vi_high(b), w1, vi_set(x->key0[i]));
        w2 = vi_xor3(vi_high(a), w3, vi_set(x->key1[i]));
        w1 = b;
        w3 = a;
    }
    return (words){{w0, w1, w2, w3}};
}

/* Which of vector v's lanes keep which key of the block. */
static void drop_decide(drop_block *b, const dropout *x, const drop_lanes *t, int v)
{
    VI limit = vi_set(x->limit);
    VI even0 = vi_load(t->w0 + v * VLEN), even2 = vi_load(t->w2 + v * VLEN), even3 = vi_load(t->w3 + v * VLEN);
    VI odd0 = vi_high(even0), odd2 = vi_high(even2), odd3 = vi_high(even3);
    const drop_keys *k = &b->keys;
    for (int i = 0; i < k->n; i++) {
        VI key0 = vi_set(k->w0[i]), key1 = vi_set(k->w1[i]), key2 = vi_set(k->w2[i]);
        words even = drop_rounds(x, vi_xor(even0, key0), key1, vi_xor(even2, key2), even3);
        words odd = drop_rounds(x, vi_xor(odd0, key0), key1, vi_xor(odd2, key2), odd3);
#pragma GCC unroll 4
        for (int w = 0; w < 4; w++)
            b->kept[k->key[i][w]] = vmask_bits(vi_above(vi_join(even.w[w], odd.w[w]), limit));
    }
}

static inline V drop_apply(const drop_block *b, int j, V x, V scale)
{
    return vsel(vmask_of(b->kept[j]), vmul(x, scale), vzero());
}
