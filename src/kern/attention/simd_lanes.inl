/* simd_lanes.inl — what all fast kernels share: tiles of query lanes, what masks and biases mean for them, and powers
 * of two. Whoever includes it has LANES, the lanes of a tile, and KEYS, with which they make a block of scores,
 * S^T[KEYS x LANES]. */

static inline int vectors(int n) { return (n + VLEN - 1) / VLEN; }
static inline int padded(int n) { return vectors(n) * VLEN; }

/* ---- a tile of query rows ------------------------------------------------------------------------- */

/* The query rows of all heads of one key/value head, numbered position by position: lane f of a pair is row
 * f / heads, head f % heads. So a tile is full whatever the group size, its positions ascend with the lane,
 * and one packed tile of K,V serves all heads of its group. */
typedef struct lanes {
    int n, nv;             /* lanes in use, vectors that hold them */
    int64_t q0, q1;        /* first and last position */
    int64_t lo, hi;        /* keys that any lane sees: [lo, hi) of the pair that lanes_keys was told last */
    int64_t row[LANES];    /* row in the arrays */
    int64_t pos[LANES];    /* position */
    int head[LANES];
} lanes;

typedef struct group { /* one key/value head and its query heads */
    int g, h0, heads;
} group;

static group group_of(const weft_attn_desc *d, int g)
{
    int h0, h1;
    weft_attn_heads_of(d, g, &h0, &h1);
    return (group){g, h0, h1 - h0};
}

static inline int64_t tiles_of(const weft_attn_pair *p, const group *gr)
{
    return weft_ceil_div(p->nq * gr->heads, LANES);
}

/* What the tile sees of a pair with its queries. */
static void lanes_keys(lanes *t, const weft_attn_desc *d, const weft_attn_pair *p)
{
    int64_t unused;
    weft_attn_key_range(&d->mask, p, t->q0, &t->lo, &unused);
    weft_attn_key_range(&d->mask, p, t->q1, &unused, &t->hi);
}

static void lanes_set(lanes *t, const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int64_t tile)
{
    int64_t first = tile * LANES, i = first / gr->heads;
    int h = (int)(first % gr->heads);
    t->n = (int)weft_min_i64(LANES, p->nq * gr->heads - first);
    t->nv = vectors(t->n);
    weft_attn_walk q = weft_attn_qwalk(p, i);
    for (int x = 0; x < t->n; x++) {
        t->row[x] = p->q_row + i;
        t->pos[x] = q.pos;
        t->head[x] = gr->h0 + h;
        if (++h == gr->heads) {
            h = 0, i++;
            weft_attn_walk_on(&q);
        }
    }
    t->q0 = t->pos[0];
    t->q1 = t->pos[t->n - 1];
    lanes_keys(t, d, p);
}

/* lanes_keys, which also widens the keys [*lo, *hi) that a few tiles see of the pair; [nk, 0): none. */
static void lanes_meet(lanes *t, const weft_attn_desc *d, const weft_attn_pair *p, int64_t *lo, int64_t *hi)
{
    lanes_keys(t, d, p);
    if (t->lo >= t->hi) return;
    *lo = weft_min_i64(*lo, t->lo);
    *hi = weft_max_i64(*hi, t->hi);
}

/* Whether any lane sees a key of any of the n pairs that begin at p. */
static bool lanes_see(lanes *t, const weft_attn_desc *d, const weft_attn_pair *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        lanes_keys(t, d, &p[i]);
        if (t->lo < t->hi) return true;
    }
    return false;
}

/* Where the n elements of lane x lie in dense arrays of all heads: acc, dq, or m and l with n = 1. */
static inline int64_t lane_at(const lanes *t, const weft_attn_desc *d, int x, int n)
{
    return (t->row[x] * d->H + t->head[x]) * n;
}

/* What the lanes of a tile need beyond the product of q and k, for the keys [j0, j1) of a pair. */
typedef struct rules {
    bool masked, alibi;
    float scale, cap, inv_cap;      /* cap 0: none */
    int32_t lo[LANES], hi[LANES];   /* visible keys of a lane, counted from j0 (masked only) */
    float slope[LANES], ahead[LANES]; /* query position - position of key j0 (alibi only) */
    float behind[KEYS];             /* position of a key - position of key j0 (alibi only) */
} rules;

static void rules_lanes(rules *r, const weft_attn_desc *d, const weft_attn_pair *p, const lanes *t, int64_t j0,
                        int64_t j1)
{
    int64_t lo = 0, hi = 0, last = -1, k0 = weft_attn_kpos(p, j0);
    for (int x = 0; x < t->nv * VLEN; x++) {
        bool real = x < t->n;
        if (r->masked && real && t->row[x] != last) { /* the heads of a row share its interval */
            last = t->row[x];
            weft_attn_key_range(&d->mask, p, t->pos[x], &lo, &hi);
        }
        r->lo[x] = real ? (int32_t)(weft_max_i64(j0, weft_min_i64(j1, lo)) - j0) : 0;
        r->hi[x] = real ? (int32_t)(weft_max_i64(j0, weft_min_i64(j1, hi)) - j0) : 0;
        r->slope[x] = real && r->alibi ? ((const float *)d->alibi)[t->head[x]] : 0;
        r->ahead[x] = real ? (float)(t->pos[x] - k0) : 0;
    }
}

static void rules_keys(rules *r, const weft_attn_pair *p, int64_t j0, int64_t j1)
{
    weft_attn_walk k = weft_attn_kwalk(p, j0);
    int64_t k0 = k.pos;
    for (int64_t j = j0; j < j1; j++, weft_attn_walk_on(&k)) r->behind[j - j0] = (float)(k.pos - k0);
}

/* Keys [j0, j1) (not empty, all inside the tile's range) against tile t. */
static void rules_set(rules *r, const weft_attn_desc *d, const weft_attn_pair *p, const lanes *t, int64_t j0,
                      int64_t j1)
{
    weft_tile kind = weft_classify(&d->mask, t->q0, t->q1, weft_attn_kpos(p, j0), weft_attn_kpos(p, j1 - 1));
    r->masked = kind != WEFT_TILE_FULL;
    r->alibi = d->alibi != NULL;
    r->scale = (float)d->scale;
    r->cap = (float)d->softcap;
    r->inv_cap = d->softcap > 0 ? (float)(1 / d->softcap) : 0;
    if (r->masked || r->alibi) rules_lanes(r, d, p, t, j0, j1);
    if (r->alibi) rules_keys(r, p, j0, j1);
}

static inline bool rules_plain(const rules *r) { return !r->masked && !r->alibi && !(r->cap > 0); }
/* Whether a score is the product times the scale, where it is visible. */
static inline bool rules_linear(const rules *r) { return !r->alibi && !(r->cap > 0) && r->scale != 0; }

/* Score of key j (counted from j0) and vector v of lanes from the product s; *tanh_out for softcap's gradient. */
static inline V rules_score(const rules *r, V s, int j, int v, V *tanh_out)
{
    V y = vmul(s, vset(r->scale));
    *tanh_out = vzero();
    if (r->cap > 0) {
        *tanh_out = vtanh(vmul(y, vset(r->inv_cap)));
        y = vmul(vset(r->cap), *tanh_out);
    }
    if (r->alibi) {
        V distance = vabs(vsub(vload(r->ahead + v * VLEN), vset(r->behind[j])));
        y = vfnma(vload(r->slope + v * VLEN), distance, y);
    }
    return y;
}
static inline VM rules_visible(const rules *r, int j, int v)
{
    return vi_within(vi_load(r->lo + v * VLEN), vi_load(r->hi + v * VLEN), j);
}

/* ---- powers of two ---------------------------------------------------------------------------------- */

/* The kernels take powers of two; (m, l) in the arrays are those of e. A sum relative to one is `by` times the sum
 * relative to the other, 1 for m = -inf:  to: e^m = by 2^m2    from: 2^m2 = by e^m.
 * m times log2(e) rounds, and for scores of some hundreds 2^m2 and e^m then differ by far more than a rounding of l:
 * without `by` that would go into every sum of which the parts come from different calls.
 * Above LARGEST_SCORE neither `by` nor the P of a row's largest score, which a rounding of m moves as far, would be a
 * number that fp32 holds: some became 0, and with it the row. Such a row is NaN instead, where everybody sees it. */
#define LOG2E 0x1.715476p0f
#define LN2_HIGH 0x1.62e43p-1f
#define LN2_LOW (-0x1.05c61p-29f) /* ln 2 = LN2_HIGH + LN2_LOW */
#define LARGEST_SCORE 0x1p30f

/* e^rest for a row whose largest score is m. */
static inline V by_of(V m, V rest)
{
    V by = vsel(vlt(vabs(m), vset(LARGEST_SCORE)), vexp(rest), vset(NAN));
    return vsel(veq(m, vset(-INFINITY)), vset(1), by);
}

static inline V to_base2(V m, V *by)
{
    V m2 = vmul(m, vset(LOG2E));
    *by = by_of(m, vfnma(m2, vset(LN2_LOW), vfnma(m2, vset(LN2_HIGH), m)));
    return m2;
}

static inline V from_base2(V m2, V *by)
{
    V m = vmul(m2, vset(LN2_HIGH));
    *by = by_of(m, vfma(m2, vset(LN2_LOW), vfms(m2, vset(LN2_HIGH), m)));
    return m;
}
