/* amx_backward.inl — backward on tiles:
 *   S^T = K Q^T    dP^T = V dO^T    P^T = 2^(S^T - m - log2 l)    dS^T = P^T (dP^T - delta) (1 - tanh^2)
 *   dV += P^T dO   dK += scale dS^T Q   dQ^T += scale K^T dS^T
 * A task owns the dK, dV of up to SUPER tiles of keys, so that a packed tile of queries serves all of them. Units of 16
 * keys x 64 lanes: the first two products of a unit run between the vector work of the unit before. P^T and dS^T become
 * A operands as they are (a row is a key); dS^T is also interleaved to the B operand of dQ^T, in an order of lanes that
 * `dq_lane` undoes. The order of dQ's sums is that of simd_backward.inl (README.md). */

enum { SUPER = 4, HALF = 64 /* lanes of a unit */, UNIT_STRIPS = HALF / TILE_ROWS, KEY_TILES = KEYS / TILE_ROWS };
enum { LANE_CHUNKS = LANES / PAIRS, KEY_CHUNKS = KEYS / PAIRS };

typedef struct bwd_keys { /* one tile of keys */
    char *k, *v;   /* A [chunks][KEYS rows] */
    char *kt;      /* A [columns(D)][KEY_CHUNKS] */
    char *dk, *dv; /* C [KEY_TILES][columns] */
} bwd_keys;

typedef struct bwd_buffers {
    bwd_keys key[SUPER];
    char *q, *dout;               /* B [STRIPS][chunks] */
    char *q_pairs, *dout_pairs;   /* B [columns][LANE_CHUNKS] */
    char *dq;                     /* C [STRIPS][columns(D)] */
    char *s[2], *dp[2];           /* C [UNIT_STRIPS] of a unit; two in turn */
    char *p, *ds;                 /* A [KEY_TILES][LANE_CHUNKS] */
    char *ds_pairs;               /* B [STRIPS][KEY_CHUNKS] */
    lanes t;
    float m[LANES], delta[LANES]; /* m + log l in powers of two */
    float by[LANES];              /* 2 to the power of what rounding takes from m, for lanes that are far */
    bool far;                     /* any lane's m is so large that this counts */
    const dropout *dropout;
    drop_lanes drop_lanes;
    drop_block drop[STRIPS];
} bwd_buffers;

/* Calls take(p, bytes) for every buffer: one list serves the size and the carving. */
#define BWD_BUFFERS(take) \
    do { \
        const int64_t kc = chunks(d->D), vc = chunks(d->Dv), kx = columns(d->D), vx = columns(d->Dv); \
        for (int i = 0; i < SUPER; i++) { \
            take(b->key[i].k, kc * KEYS * 64); \
            take(b->key[i].v, vc * KEYS * 64); \
            take(b->key[i].kt, kx * KEY_CHUNKS * TILE); \
            take(b->key[i].dk, kx * KEY_TILES * TILE); \
            take(b->key[i].dv, vx * KEY_TILES * TILE); \
        } \
        take(b->q, kc * STRIPS * TILE); \
        take(b->dout, vc * STRIPS * TILE); \
        take(b->q_pairs, kx * LANE_CHUNKS * TILE); \
        take(b->dout_pairs, vx * LANE_CHUNKS * TILE); \
        take(b->dq, kx * STRIPS * TILE); \
        for (int i = 0; i < 2; i++) { \
            take(b->s[i], UNIT_STRIPS * TILE); \
            take(b->dp[i], UNIT_STRIPS * TILE); \
        } \
        take(b->p, KEY_TILES * LANE_CHUNKS * TILE); \
        take(b->ds, KEY_TILES * LANE_CHUNKS * TILE); \
        take(b->ds_pairs, STRIPS * KEY_CHUNKS * TILE); \
    } while (0)

static size_t backward_bytes(const weft_attn_desc *d)
{
    int64_t bytes = 0;
#define TAKE(p, n) bytes += (n)
    BWD_BUFFERS(TAKE);
#undef TAKE
    return (size_t)bytes;
}

static void backward_carve(bwd_buffers *b, const weft_attn_desc *d, char *work)
{
#define TAKE(p, n) p = carve(&work, n)
    BWD_BUFFERS(TAKE);
#undef TAKE
}

/* Below, rounding m changes P by 3e-4 at most, a sixth of what rounding P to bf16 does. */
static const double FAR_SCORE = 0x1p13;

/* ---- packing -------------------------------------------------------------------------------------------------- */

static void queries_in(bwd_buffers *b, const weft_attn_desc *d, const weft_attn_pair *p, const weft_attn_bwd_io *io)
{
    row_list rows;
    const lanes *t = &b->t;
    const int count = chunks(t->n) * PAIRS;
    b->far = false;
    rows_of_lanes(rows, count, t, io->q, io->q_ld, d->D);
    pack_columns(b->q, rows, count, d->D);
    pack_pairs(b->q_pairs, rows, count, LANES, d->D);
    rows_of_lanes(rows, count, t, io->dout, io->dout_ld, d->Dv);
    pack_columns(b->dout, rows, count, d->Dv);
    pack_pairs(b->dout_pairs, rows, count, LANES, d->Dv);
    for (int x = 0; x < count; x++) {
        const int64_t at = x < t->n ? lane_at(t, d, x, 1) : 0;
        const float l = x < t->n ? ((const float *)io->l)[at] : 0;
        /* Lanes without a row, and rows without a key: a reference so large that P is 0. Not infinity, whose difference
         * to an infinite score would be NaN. */
        const double m = l != 0 ? (double)((const float *)io->m)[at] * M_LOG2E + log2((double)l) : 0x1p100;
        b->m[x] = (float)m;
        const bool far = l != 0 && !(fabs(m) < FAR_SCORE);
        b->by[x] = far ? (float)exp2((double)b->m[x] - m) : 1;
        b->far |= far;
        b->delta[x] = l != 0 ? ((const float *)io->delta)[at] : 0;
    }
    if (b->dropout->on) drop_lanes_set(&b->drop_lanes, b->dropout, d, p, t);
    memset(b->dq, 0, (size_t)(STRIPS * columns(d->D) * TILE));
}

/* The tile's rows of zeros reach to the next multiple of 32 keys. */
static void keys_in(bwd_keys *k, const weft_attn_desc *d, const weft_attn_bwd_io *io, int64_t row, int n, int g,
                    const bool *seen)
{
    row_list rows;
    const int height = chunks(n) * PAIRS;
    rows_of_keys(rows, height, io->k, io->k_ld, row, n, g, d->D, seen);
    pack_rows(k->k, rows, height, KEYS, d->D);
    pack_turned(k->kt, rows, height, KEYS, d->D);
    rows_of_keys(rows, height, io->v, io->v_ld, row, n, g, d->Dv, seen);
    pack_rows(k->v, rows, height, KEYS, d->Dv);
    memset(k->dk, 0, (size_t)(columns(d->D) * KEY_TILES * TILE));
    memset(k->dv, 0, (size_t)(columns(d->Dv) * KEY_TILES * TILE));
}

/* ---- P and dS of a unit ----------------------------------------------------------------------------------------- */

typedef struct unit {
    int key_tile, half, pairs; /* 16 keys of the key tile; lanes 64 half ..; pairs of strips in use, 1 or 2 */
    const float *s, *dp;       /* C [strips] */
} unit;

typedef struct grads { /* what the vector work of a unit reads and writes */
    const bwd_buffers *b;
    const rules *r;
    int c0;                    /* first chunk of keys that the rules count from */
    V scale;                   /* to powers of two */
} grads;

/* e = P, ds = dS of one key and strip n of the unit; j counts the rules' keys. */
static inline __attribute__((always_inline)) void grad_one(const grads *g, const unit *u, int row, int n, V *e,
                                                           V *ds, const bool plain)
{
    const int v = u->half * UNIT_STRIPS + n, at = (n * TILE_ROWS + row) * VLEN;
    const int j = u->key_tile * TILE_ROWS + row - g->c0 * PAIRS;
    const V m = vload(g->b->m + v * VLEN), delta = vload(g->b->delta + v * VLEN);
    const V s = vload(u->s + at);
    V dp = vload(u->dp + at);
    if (plain) {
        *e = exp2_bf16(vfms(s, g->scale, m));
        *ds = vmul(*e, vsub(dp, delta));
        return;
    }
    const bool drop = g->b->dropout->on, linear = rules_linear(g->r);
    const V keep = vset(g->b->dropout->scale);
    V tanh = vzero();
    if (drop) dp = drop_apply(&g->b->drop[v], j, dp, keep);
    /* scores as forward finds them, masked or not */
    *e = exp2_bf16(linear ? vfms(s, g->scale, m) : vfms(rules_score(g->r, s, j, v, &tanh), vset(LOG2E), m));
    *e = vmul(*e, vload(g->b->by + v * VLEN));
    *ds = vmul(*e, vsub(dp, delta));
    if (g->r->cap > 0) *ds = vmul(*ds, vfnma(tanh, tanh, vset(1)));
    if (g->r->masked) { /* selected, not multiplied: a hidden key may hold NaN */
        const VM seen = rules_visible(g->r, j, v);
        *e = vsel(seen, *e, vzero());
        *ds = vsel(seen, *ds, vzero());
    }
    if (drop) *e = drop_apply(&g->b->drop[v], j, *e, keep);
}

/* Keys row, row + 1 and two strips (32 lanes): a row of A for each key, and two rows of B of dS. */
static inline __attribute__((always_inline)) void grad_square(const grads *g, const unit *u, int row, int pair,
                                                              const bool plain)
{
    V e[2][2], ds[2][2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
#pragma GCC unroll 2
        for (int s = 0; s < 2; s++) grad_one(g, u, row + i, 2 * pair + s, &e[i][s], &ds[i][s], plain);
    const int chunk = u->half * (UNIT_STRIPS / 2) + pair, key = u->key_tile * TILE_ROWS + row;
    const int64_t a = ((int64_t)u->key_tile * LANE_CHUNKS + chunk) * TILE + row * 64;
    const __m512i d0 = words_of(ds[0][1], ds[0][0]), d1 = words_of(ds[1][1], ds[1][0]);
    _mm512_store_si512(g->b->p + a, words_of(e[0][1], e[0][0]));
    _mm512_store_si512(g->b->p + a + 64, words_of(e[1][1], e[1][0]));
    _mm512_store_si512(g->b->ds + a, d0);
    _mm512_store_si512(g->b->ds + a + 64, d1);
    char *b = g->b->ds_pairs + ((int64_t)2 * chunk * KEY_CHUNKS + key / PAIRS) * TILE + key % PAIRS / 2 * 64;
    _mm512_store_si512(b, _mm512_unpacklo_epi16(d0, d1));
    _mm512_store_si512(b + KEY_CHUNKS * TILE, _mm512_unpackhi_epi16(d0, d1));
}

/* Lane of column i of strip v's dQ^T: unpacking interleaves inside 128-bit parts, four lanes low, four high. */
static inline int dq_lane(int v, int i) { return v / 2 * PAIRS + i / 4 * 8 + v % 2 * 4 + i % 4; }

static void grads_all(const grads *g, const unit *u, bool plain)
{
    for (int row = 0; row < TILE_ROWS; row += 2)
        for (int pair = 0; pair < u->pairs; pair++) {
            if (plain) grad_square(g, u, row, pair, true);
            else grad_square(g, u, row, pair, false);
        }
}

/* S and dP of a unit, strip after strip: `s` (+)= products of the held tiles of K (or V), with the vector work of the
 * unit before in between, four squares per strip and pass. */
static inline __attribute__((always_inline)) void unit_products(char *to, stream q, int strips, const bool add,
                                                                const int n, const grads *g, const unit *now,
                                                                int square)
{
    for (int x = 0; x < strips; x += 2, to += 2 * TILE) {
        const char *p = q.at + x * q.job;
        sum0_start(add ? to : NULL);
        sum0_add(p, q.step, true, 0, n);
        if (x > 0) sum1_store(to - TILE);
        for (int i = 0; now && i < 2; i++, square++) grad_square(g, now, square / 2 * 2, square % 2, true);
        sum1_start(add ? to + TILE : NULL);
        sum1_add(p + q.job, q.step, true, 0, n);
        sum0_store(to);
        for (int i = 0; now && i < 2; i++, square++) grad_square(g, now, square / 2 * 2, square % 2, true);
    }
    sum1_store(to - TILE);
}

/* Products of one unit with K (or V), n tiles deep. `now`: a plain unit with four strips whose squares square .. square
 * + 7 are computed meanwhile, or NULL. */
static void unit_scores(char *to, const char *keys, const char *queries, int strips, int n, const grads *g,
                        const unit *now, int square)
{
    const int first = n - 1 - (n - 1) % HELD, last = n - first;
    const stream q = {queries, TILE, (int64_t)n * TILE};
    if (first > 0) sums(to, TILE, keys, (int64_t)KEYS * 64, q, strips, first, true, false);
    const stream rest = {q.at + first * TILE, TILE, q.job};
#define CASE(m) \
    if (last == (m)) { \
        hold(keys + first * KEYS * 64, (int64_t)KEYS * 64, m); \
        if (first > 0) unit_products(to, rest, strips, true, m, g, now, square); \
        else unit_products(to, rest, strips, false, m, g, now, square); \
    }
    CASE(1) CASE(2) CASE(3) CASE(4)
#undef CASE
}

/* ---- one tile of keys against one tile of queries ---------------------------------------------------------------- */

typedef struct span { int c0, c1; } span; /* chunks of keys that the tile of queries sees */

/* P and dS for all units; the products of each run beside the vector work of the one before. */
static void make_gradients(bwd_buffers *b, const bwd_keys *k, const weft_attn_desc *d, const rules *r, span c)
{
    const int strips = b->t.nv, kc = chunks(d->D), vc = chunks(d->Dv);
    const bool plain = rules_plain(r) && !b->dropout->on && !b->far;
    const grads g = {b, r, c.c0, vset(r->scale * LOG2E)};
    unit two[2], *now = NULL;
    int turn = 0;
    for (int half = 0; half * UNIT_STRIPS < strips; half++)
        for (int key = 2 * c.c0; key < 2 * c.c1; key++, turn ^= 1) {
            const int here = strips - half * UNIT_STRIPS < UNIT_STRIPS ? strips - half * UNIT_STRIPS : UNIT_STRIPS;
            const int v = half * UNIT_STRIPS;
            unit *u = &two[turn];
            *u = (unit){key, half, here / 2, (const float *)(const void *)b->s[turn],
                        (const float *)(const void *)b->dp[turn]};
            const bool together = now && plain && now->pairs * 2 == UNIT_STRIPS && here == UNIT_STRIPS;
            unit_scores(b->s[turn], k->k + key * TILE, b->q + (int64_t)v * kc * TILE, here, kc, &g,
                        together ? now : NULL, 0);
            unit_scores(b->dp[turn], k->v + key * TILE, b->dout + (int64_t)v * vc * TILE, here, vc, &g,
                        together ? now : NULL, 8);
            if (now && !together) grads_all(&g, now, plain);
            now = u;
        }
    if (now) grads_all(&g, now, plain);
}

/* dV, dK of the tile of keys and dQ^T of the tile of queries. */
static void add_gradients(bwd_buffers *b, const bwd_keys *k, const weft_attn_desc *d, span c)
{
    const int kx = columns(d->D), vx = columns(d->Dv), n = chunks(b->t.n);
    const stream dout = {b->dout_pairs, TILE, LANE_CHUNKS * TILE}, q = {b->q_pairs, TILE, LANE_CHUNKS * TILE};
    const stream kt = {k->kt + c.c0 * TILE, TILE, KEY_CHUNKS * TILE};
    for (int key = 2 * c.c0; key < 2 * c.c1; key++)
        sums(k->dv + (int64_t)key * vx * TILE, TILE, b->p + key * LANE_CHUNKS * TILE, TILE, dout, vx, n, true, true);
    for (int key = 2 * c.c0; key < 2 * c.c1; key++)
        sums(k->dk + (int64_t)key * kx * TILE, TILE, b->ds + key * LANE_CHUNKS * TILE, TILE, q, kx, n, true, true);
    for (int v = 0; v < 2 * n; v++)
        sums(b->dq + (int64_t)v * kx * TILE, TILE, b->ds_pairs + (v * KEY_CHUNKS + c.c0) * TILE, TILE, kt, kx,
             c.c1 - c.c0, false, true);
}

/* Keys [from, from + n) of the pair against b->t. */
static void backward_block(bwd_buffers *b, const bwd_keys *k, const weft_attn_desc *d, const weft_attn_pair *p,
                           int64_t from, int n)
{
    rules r;
    const int64_t lo = weft_max_i64(b->t.lo, from), hi = weft_min_i64(b->t.hi, from + n);
    if (lo >= hi) return;
    const span c = {(int)((lo - from) / PAIRS), (int)weft_ceil_div(hi - from, PAIRS)};
    const int64_t j0 = from + c.c0 * PAIRS, j1 = weft_min_i64(p->nk, from + c.c1 * PAIRS);
    block_rules(&r, d, p, &b->t, j0, j1, from + c.c1 * PAIRS > p->nk);
    if (b->dropout->on) {
        drop_keys_set(&b->drop[0].keys, b->dropout, p, j0, j1);
        for (int v = 0; v < b->t.nv; v++) {
            if (v > 0) b->drop[v].keys = b->drop[0].keys;
            drop_decide(&b->drop[v], b->dropout, &b->drop_lanes, v);
        }
    }
    make_gradients(b, k, d, &r, c);
    add_gradients(b, k, d, c);
}

/* ---- tasks ---------------------------------------------------------------------------------------------------- */

/* Tiles of keys per task. It fixes the order of dQ's sums, so it depends on the number of keys only: short rows are cut
 * finer, for the threads. */
static int64_t tiles_per_task(const weft_attn_pair *p) { return p->nk >= 1024 ? SUPER : weft_ceil_div(SUPER, 2); }

static int64_t backward_tasks(const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int threads)
{
    (void)d, (void)threads;
    return p->nq == 0 || gr->heads == 0 ? 0 : weft_ceil_div(p->nk, KEYS * tiles_per_task(p));
}

static void add_dq(const bwd_buffers *b, const weft_attn_desc *d, float *dq)
{
    const int kx = columns(d->D);
    const V scale = vset((float)d->scale);
    for (int v = 0; v < b->t.nv; v++)
        for (int x = 0; x < kx; x++) {
            const float *from = (const float *)(const void *)(b->dq + ((int64_t)v * kx + x) * TILE);
            V r[VLEN];
            for (int i = 0; i < VLEN; i++) r[i] = vload(from + i * VLEN);
            vtranspose(r);
            for (int i = 0; i < VLEN; i++) {
                const int lane = dq_lane(v, i), n = d->D - x * VLEN;
                if (lane >= b->t.n) continue;
                float *to = dq + lane_at(&b->t, d, lane, d->D) + x * VLEN;
                vstoren(to, vfma(r[i], scale, vloadn(to, n)), n);
            }
        }
}

/* dst[rows, g] += by * C tiles [KEY_TILES][columns(size)] */
static void add_keys(float *dst, const char *src, const weft_attn_desc *d, int64_t row, int rows, int g, int size,
                     float by)
{
    for (int j = 0; j < rows; j++)
        for (int x = 0; x < columns(size); x++) {
            const char *tile = src + ((int64_t)(j / TILE_ROWS) * columns(size) + x) * TILE;
            const V sum = vload((const float *)(const void *)(tile + j % TILE_ROWS * 64));
            float *to = dst + ((row + j) * d->Hkv + g) * size + x * VLEN;
            const int n = size - x * VLEN;
            vstoren(to, vfma(sum, vset(by), vloadn(to, n)), n);
        }
}

/* Which of keys [from, from + n) any of the query tiles [lo, hi) sees. */
static void seen_by_tiles(bool *seen, const weft_attn_desc *d, const task *t, int64_t lo, int64_t hi, int64_t from,
                          int n)
{
    const weft_attn_pair *p = t->p;
    int64_t first, last, unused;
    memset(seen, 0, (size_t)n * sizeof *seen);
    for (int64_t tile = lo; tile < hi; tile++) {
        const int64_t i0 = tile * LANES / t->gr.heads;
        const int64_t i1 = weft_min_i64(p->nq, weft_ceil_div((tile + 1) * LANES, t->gr.heads)) - 1;
        weft_attn_key_range(&d->mask, p, weft_attn_qpos(p, i0), &first, &unused);
        weft_attn_key_range(&d->mask, p, weft_attn_qpos(p, i1), &unused, &last);
        mark_seen(seen, first, last, from, n);
    }
}

static void backward_task(bwd_buffers *b, const weft_attn_desc *d, const weft_attn_bwd_io *io, const task *t,
                          slot *mine, const weft_attn_run *run, int me)
{
    const int64_t per = KEYS * tiles_per_task(t->p), from = t->tile * per, to = weft_min_i64(t->p->nk, from + per);
    int64_t lo, hi, unused, before_hi = 0;
    bool seen[SUPER * KEYS];
    const int g = t->gr.g;
    touched(d, t->p, &t->gr, per, t->tile, &lo, &hi);
    if (t->tile > 0) touched(d, t->p, &t->gr, per, t->tile - 1, &unused, &before_hi);
    seen_by_tiles(seen, d, t, lo, hi, from, (int)(to - from));
    for (int64_t j = from; j < to; j += KEYS)
        keys_in(&b->key[(j - from) / KEYS], d, io, t->p->k_row + j, (int)weft_min_i64(KEYS, to - j), g,
                seen + (j - from));
    for (int64_t tile = lo; tile < hi; tile++) {
        lanes_set(&b->t, d, t->p, &t->gr, tile);
        b->t.nv = chunks(b->t.n) * 2; /* strips are worked on in pairs: rules must hold for both */
        const bool any = weft_max_i64(from, b->t.lo) < weft_min_i64(to, b->t.hi);
        if (any) {
            queries_in(b, d, t->p, io);
            for (int64_t j = from; j < to; j += KEYS)
                backward_block(b, &b->key[(j - from) / KEYS], d, t->p, j, (int)weft_min_i64(KEYS, to - j));
        }
        if (tile < before_hi) wait_before(t, tile, run, me);
        if (any) add_dq(b, d, io->dq);
        atomic_store_explicit(&mine->done, tile + 1, memory_order_release);
        if (me == 0 && run->poll) run->poll(run->poll_ud);
    }
    for (int64_t j = from; j < to; j += KEYS) {
        const bwd_keys *k = &b->key[(j - from) / KEYS];
        const int rows = (int)weft_min_i64(KEYS, to - j);
        add_keys(io->dk, k->dk, d, t->p->k_row + j, rows, g, d->D, (float)d->scale);
        add_keys(io->dv, k->dv, d, t->p->k_row + j, rows, g, d->Dv, 1);
    }
}
