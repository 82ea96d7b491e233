/* simd_pack.inl — rows of fp32, bf16 or fp16 to rows of fp32 and back; transposes; tiles of query lanes. */

static inline int vectors(int n) { return (n + VLEN - 1) / VLEN; }
static inline int padded(int n) { return vectors(n) * VLEN; }

/* The vector at src[at]; lanes from n on (n may exceed VLEN) are 0. */
static inline V vector_in(const void *src, int64_t at, weft_prec c, int n)
{
#define LOAD(T, load) return n >= VLEN ? load((const T *)src + at) : load##n((const T *)src + at, n)
    if (c == WEFT_PREC_F32) LOAD(float, vload);
    if (c == WEFT_PREC_BF16) LOAD(weft_bf16, vload_bf16);
    LOAD(weft_f16, vload_f16);
#undef LOAD
}

/* dst[at .. at + n) = f * src, rounded. */
static inline void row_out(void *dst, int64_t at, weft_prec c, const float *src, int n, V f)
{
    int x = 0;
#define LOOP(T, store) \
    for (T *d = (T *)dst + at; x < n; x += VLEN) { \
        if (x + VLEN <= n) store(d + x, vmul(f, vload(src + x))); \
        else store##n(d + x, vmul(f, vloadn(src + x, n - x)), n - x); \
    }
    if (c == WEFT_PREC_F32) LOOP(float, vstore)
    else if (c == WEFT_PREC_BF16) LOOP(weft_bf16, vstore_bf16)
    else LOOP(weft_f16, vstore_f16)
#undef LOOP
}

/* dst += f * src, one vector, of which the first n elements (n may exceed VLEN) */
static inline void vector_add(float *dst, const float *src, int n, V f)
{
    if (n >= VLEN) vstore(dst, vfma(f, vload(src), vload(dst)));
    else vstoren(dst, vfma(f, vloadn(src, n), vloadn(dst, n)), n);
}

/* dst[c][r] = src[r][c] for c < cols and r < padded(rows); rows past `rows` count as 0. src's rows are readable
 * up to padded(cols). */
static void transpose(float *dst, int64_t ldd, const float *src, int64_t lds, int rows, int cols)
{
    for (int r = 0; r < rows; r += VLEN)
        for (int c = 0; c < cols; c += VLEN) {
            V t[VLEN];
            int nr = rows - r < VLEN ? rows - r : VLEN, nc = cols - c < VLEN ? cols - c : VLEN;
            if (nr == VLEN) {
#pragma GCC unroll 16
                for (int i = 0; i < VLEN; i++) t[i] = vload(src + (r + i) * lds + c);
            } else {
                for (int i = 0; i < VLEN; i++) t[i] = i < nr ? vload(src + (r + i) * lds + c) : vzero();
            }
            vtranspose(t);
            if (nc == VLEN) {
#pragma GCC unroll 16
                for (int i = 0; i < VLEN; i++) vstore(dst + (c + i) * ldd + r, t[i]);
            } else {
                for (int i = 0; i < nc; i++) vstore(dst + (c + i) * ldd + r, t[i]);
            }
        }
}

/* ---- a tile of query rows ------------------------------------------------------------------------- */

/* The query rows of all heads of one key/value head, numbered position by position: lane f of a pair is row
 * f / heads, head f % heads. So a tile is full whatever the group size, its positions ascend with the lane,
 * and one packed tile of K,V serves all heads of its group. */
typedef struct lanes {
    int n, nv;             /* lanes in use, vectors that hold them */
    int64_t q0, q1;        /* first and last position */
    int64_t lo, hi;        /* keys that any lane sees: [lo, hi) of the pair */
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

static void lanes_set(lanes *t, const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int64_t tile)
{
    int64_t first = tile * LANES, i = first / gr->heads, unused;
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
    weft_attn_key_range(&d->mask, p, t->q0, &t->lo, &unused);
    weft_attn_key_range(&d->mask, p, t->q1, &unused, &t->hi);
}

/* ---- panels: [panels(n)][rows][PANEL] ------------------------------------------------------------- */

/* Floats of `rows` rows of n elements, or of n columns of `rows` elements. */
static inline int64_t panel_floats(int rows, int n) { return (int64_t)panels(n) * PANEL * rows; }

/* Element y of row x in panels of LANES rows. */
static inline int64_t lane_vector(int x, int y)
{
    return (int64_t)(y / PANEL) * (LANES * PANEL) + x * PANEL + y % PANEL;
}


/* Rows of the lanes, n elements per head, to panels of LANES rows; padding up to a vector is 0. */
static void lanes_in(float *dst, const lanes *t, const void *src, int64_t ld, weft_prec c, int n)
{
    for (int x = 0; x < t->n; x++) {
        int64_t at = t->row[x] * ld + (int64_t)t->head[x] * n;
        for (int y = 0; y < n; y += VLEN)
            vstore(dst + lane_vector(x, y), vector_in(src, at + y, c, n - y));
    }
}

/* Panels of `lds` rows (n of them used, `cols` columns) to the panels of the transpose, of `ldd` rows. Lanes that fill
 * the last vector are 0. */
static void turn(float *dst, int ldd, const float *src, int lds, int n, int cols)
{
    for (int x = 0; x < n; x += PANEL)
        for (int y = 0; y < cols; y += PANEL)
            transpose(dst + x * (int64_t)ldd + y * PANEL, PANEL, src + y * (int64_t)lds + x * PANEL, PANEL,
                      n - x < PANEL ? n - x : PANEL, cols - y < PANEL ? cols - y : PANEL);
}

/* Where the n elements of lane x lie in dense arrays of all heads: acc, dq, or m and l with n = 1. */
static inline int64_t lane_at(const lanes *t, const weft_attn_desc *d, int x, int n)
{
    return (t->row[x] * d->H + t->head[x]) * n;
}

/* ---- panels of MR rows, for the matrix that is broadcast ------------------------------------------- */

/* A store of a vector that ends past its MR elements is followed by the next MR; the last one needs room. */
enum { SLACK = VLEN };
static inline int64_t packed_floats(int rows, int cols)
{
    return ((int64_t)cols * MR + SLACK) * ((rows + MR - 1) / MR);
}

/* Key rows [row, row + rows) of head g to [panels of MR keys][n][MR]. */
static void pack_keys(float *dst, const void *src, int64_t ld, weft_prec c, int64_t row, int rows, int g, int n)
{
    for (int i = 0; i < rows; i += MR, dst += n * MR + SLACK)
        for (int y = 0; y < n; y += VLEN) {
            V t[VLEN];
            int64_t at = (row + i) * ld + (int64_t)g * n + y;
            for (int x = 0; x < MR; x++) t[x] = i + x < rows ? vector_in(src, at + x * ld, c, n - y) : vzero();
            for (int x = MR; x < VLEN; x++) t[x] = vzero();
            vtranspose(t);
            for (int x = 0; x < VLEN && y + x < n; x++) vstore(dst + (y + x) * MR, t[x]);
        }
}

/* The same rows turned: [panels of MR elements][`ldk` keys][MR]. */
static void pack_turned(float *dst, int ldk, const void *src, int64_t ld, weft_prec c, int64_t row, int rows, int g,
                        int n)
{
    for (int y = 0; y < n; y += MR, dst += ldk * MR + SLACK)
        for (int x = 0; x < rows; x++)
            vstore(dst + x * MR, vector_in(src, (row + x) * ld + (int64_t)g * n + y, c, n - y));
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

/* The keys [*lo, *hi), counted from j0 and *lo a multiple of MR, outside of which lanes [x, x + count) see none of the
 * block's n keys: both ends of what a lane sees grow with the lane. */
static void rules_span(const rules *r, const lanes *t, int x, int count, int n, int *lo, int *hi)
{
    int last = x + count < t->n ? x + count : t->n;
    *lo = r->masked ? r->lo[x] / MR * MR : 0;
    *hi = r->masked ? r->hi[last - 1] : n;
}

/* ---- powers of two ---------------------------------------------------------------------------------- */

/* The kernels take powers of two; (m, l) in the arrays are those of e. A sum relative to one is `by` times the sum
 * relative to the other, 1 for m = -inf:  to: e^m = by 2^m2    from: 2^m2 = by e^m.
 * m times log2(e) rounds, and for scores of some hundreds 2^m2 and e^m then differ by far more than a rounding of l:
 * without `by` that would go into every sum of which the parts come from different calls. */
#define LOG2E 0x1.715476p0f
#define LN2_HIGH 0x1.62e43p-1f
#define LN2_LOW (-0x1.05c61p-29f) /* ln 2 = LN2_HIGH + LN2_LOW */

static inline V to_base2(V m, V *by)
{
    V m2 = vmul(m, vset(LOG2E));
    V rest = vfnma(m2, vset(LN2_LOW), vfnma(m2, vset(LN2_HIGH), m));
    *by = vsel(veq(m, vset(-INFINITY)), vset(1), vexp(rest));
    return m2;
}

static inline V from_base2(V m2, V *by)
{
    V m = vmul(m2, vset(LN2_HIGH));
    V rest = vfma(m2, vset(LN2_LOW), vfms(m2, vset(LN2_HIGH), m));
    *by = vsel(veq(m2, vset(-INFINITY)), vset(1), vexp(rest));
    return m;
}
