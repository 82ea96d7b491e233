/* simd_backward.inl — backward, a few tiles of keys at a time (a superblock):
 *   S^T = K Q^T    dP^T = V dO^T    P^T = exp(S^T - m) / l    dS^T = P^T (dP^T - delta) (1 - tanh^2)
 *   dV += P^T dO   dK += scale dS^T Q     dQ^T += scale K^T dS^T
 * With dropout dP^T is dropped before delta is subtracted, and P^T for dV only.
 * A superblock reads and turns Q and dO once for all of its tiles. Its dK and dV belong to the task. The dQ of a query
 * tile gets its parts in ascending order of superblocks (see README.md), so the sums have one order for any number of
 * threads. */

/* Tiles of keys in a superblock: at most BWD_TILES; as many as BWD_BYTES hold (of a second-level cache of 2 MB); few
 * enough to leave BWD_TASKS tasks of a pair, over its key/value heads. Depends on nothing else, because it fixes the
 * order of dQ's sums. */
enum { BWD_TILES = 4, BWD_BYTES = 1300 << 10, BWD_TASKS = 4 };

typedef struct key_tile { /* KEYS keys */
    float *k, *kt, *v;    /* packed K, K^T, V */
    float *dk, *dv;       /* panels of KEYS rows */
} key_tile;

typedef struct bwd_buffers {
    key_tile key[BWD_TILES];
    float *q, *dout, *dq; /* panels of LANES rows */
    float *qt, *doutt, *dqt; /* panels of D, Dv, D rows */
    float *s, *ds;        /* [KEYS x LANES] and MR rows in front: S^T then P^T; dP^T then dS^T */
    ahead next;           /* rows of the query tile after this one */
    lanes t;
    float m[LANES], inv_l[LANES], delta[LANES]; /* m counts powers of two */
    const dropout *dropout;
    drop_lanes drop_lanes;
    drop_block drop;
} bwd_buffers;

static int64_t key_tile_floats(const weft_attn_desc *d)
{
    return round_floats(packed_floats(KEYS, d->D)) + round_floats(packed_floats(KEYS, d->Dv)) +
           round_floats(packed_floats(d->D, KEYS)) + panel_floats(KEYS, d->D) + panel_floats(KEYS, d->Dv);
}

static int tiles_that_fit(const weft_attn_desc *d)
{
    int64_t fit = BWD_BYTES / (key_tile_floats(d) * (int64_t)sizeof(float));
    return (int)weft_max_i64(1, weft_min_i64(BWD_TILES, fit));
}

static size_t backward_floats(const weft_attn_desc *d)
{
    int64_t tiles = tiles_that_fit(d) * key_tile_floats(d);
    int64_t lane = 2 * panel_floats(LANES, d->D) + panel_floats(LANES, d->Dv), turned = LANES * (2 * d->D + d->Dv);
    return (size_t)(tiles + lane + turned + 2 * (KEYS + MR) * LANES + PANEL);
}

static void backward_carve(bwd_buffers *b, const weft_attn_desc *d, float *work)
{
    for (int i = 0; i < tiles_that_fit(d); i++) {
        key_tile *k = &b->key[i];
        k->k = carve(&work, packed_floats(KEYS, d->D));
        k->v = carve(&work, packed_floats(KEYS, d->Dv));
        k->kt = carve(&work, packed_floats(d->D, KEYS));
        k->dk = carve(&work, panel_floats(KEYS, d->D));
        k->dv = carve(&work, panel_floats(KEYS, d->Dv));
    }
    b->q = carve(&work, panel_floats(LANES, d->D)), b->dq = carve(&work, panel_floats(LANES, d->D));
    b->dout = carve(&work, panel_floats(LANES, d->Dv));
    b->qt = carve(&work, LANES * d->D), b->dqt = carve(&work, LANES * d->D);
    b->doutt = carve(&work, LANES * d->Dv);
    b->s = carve(&work, (KEYS + MR) * LANES) + MR * LANES;
    work += PANEL; /* AVX2: a panel of S^T and one of dP^T use a quarter of the cache's sets each: not the same ones */
    b->ds = carve(&work, (KEYS + MR) * LANES) + MR * LANES;
}

/* Lanes without a row, and rows without a key, get m = +inf: exp(s - inf) = 0 for every s. */
static void queries_in(bwd_buffers *b, const weft_attn_desc *d, const weft_attn_bwd_io *io, weft_prec c)
{
    const lanes *t = &b->t;
    lanes_in(b->q, t, io->q, io->q_ld, c, d->D);
    lanes_in(b->dout, t, io->dout, io->dout_ld, c, d->Dv);
    turn(b->qt, d->D, b->q, LANES, t->n, d->D);
    turn(b->doutt, d->Dv, b->dout, LANES, t->n, d->Dv);
    for (int x = 0; x < t->nv * VLEN; x++) {
        int64_t at = x < t->n ? lane_at(t, d, x, 1) : 0;
        float l = x < t->n ? ((const float *)io->l)[at] : 0;
        b->m[x] = l != 0 ? ((const float *)io->m)[at] : INFINITY;
        b->inv_l[x] = l;
        b->delta[x] = l != 0 ? ((const float *)io->delta)[at] : 0;
    }
    for (int x = 0; x < t->n; x += VLEN) { /* e^(s - m) / l = 2^(log2(e) s - m2) / (l by) */
        V by, l = vload(b->inv_l + x);
        vstore(b->m + x, to_base2(vload(b->m + x), &by));
        vstore(b->inv_l + x, vsel(veq(l, vzero()), vzero(), vdiv(vset(1), vmul(l, by))));
    }
}

static inline __attribute__((always_inline)) void gradients_column(bwd_buffers *b, int lo, int hi, int v,
                                                                   const rules *r, const bool plain, const bool drop)
{
    V m = vload(b->m + v * VLEN), inv_l = vload(b->inv_l + v * VLEN), delta = vload(b->delta + v * VLEN);
    const bool linear = plain || rules_linear(r);
    V factor = vset(linear ? r->scale * LOG2E : LOG2E), keep = vset(b->dropout->scale);
    for (int j = lo; j < hi; j++) {
        float *ps = b->s + j * LANES + v * VLEN, *pds = b->ds + j * LANES + v * VLEN;
        V tanh = vzero(), s = vload(ps), dp = vload(pds), e, ds;
        if (drop) dp = drop_apply(&b->drop, j, dp, keep);
        if (!linear) s = rules_score(r, s, j, v, &tanh);
        e = vmul(vexp2(vfms(s, factor, m)), inv_l);
        ds = vmul(e, vsub(dp, delta));
        if (!plain) {
            if (r->cap > 0) ds = vmul(ds, vfnma(tanh, tanh, vset(1)));
            if (r->masked) { /* selected, not multiplied: a hidden key may hold NaN */
                VM seen = rules_visible(r, j, v);
                e = vsel(seen, e, vzero());
                ds = vsel(seen, ds, vzero());
            }
        }
        vstore(ps, drop ? drop_apply(&b->drop, j, e, keep) : e);
        vstore(pds, ds);
    }
}

static void gradients_keys(bwd_buffers *b, int lo, int hi, int v, const rules *r, bool plain)
{
    bool drop = b->dropout->on;
    if (plain && !drop) gradients_column(b, lo, hi, v, r, true, false);
    else if (plain) gradients_column(b, lo, hi, v, r, true, true);
    else if (!drop) gradients_column(b, lo, hi, v, r, false, false);
    else gradients_column(b, lo, hi, v, r, false, true);
}

/* S^T, dP^T -> P^T, dS^T in place, for keys [lo, hi) of vector v. Scores are found as forward finds them, masked or
 * not: a rounding more moves a large one, and P of a row with one large score would not be the 1 that it is. */
static void gradients(bwd_buffers *b, int lo, int hi, int v, const rules *r)
{
    int from, to;
    if (b->dropout->on) drop_decide(&b->drop, b->dropout, &b->drop_lanes, v);
    rules_common(r, &b->t, v, lo, hi, &from, &to);
    gradients_keys(b, lo, from, v, r, false);
    gradients_keys(b, from, to, v, r, rules_linear(r));
    gradients_keys(b, to, hi, v, r, false);
}

/* P^T and dS^T are 0 for keys that no lane of a panel sees. */
static void clear_rows(bwd_buffers *b, int from, int to, int v, int nv)
{
    for (int j = from; j < to; j++)
        for (int i = v; i < v + nv; i++) {
            vstore(b->s + j * LANES + i * VLEN, vzero());
            vstore(b->ds + j * LANES + i * VLEN, vzero());
        }
}

/* P^T, dS^T of n keys and the lanes of panel x; dQ^T of these lanes. `at`: where the n keys start in the tile. */
static void backward_panel(bwd_buffers *b, const key_tile *key, const weft_attn_desc *d, const rules *r, int at, int n,
                           int x, bool add)
{
    int lo, hi, v = x * NR, nv = b->t.nv - v < NR ? b->t.nv - v : NR;
    int64_t kp = d->D * MR + SLACK, vp = d->Dv * MR + SLACK;
    rules_span(r, &b->t, x * PANEL, PANEL, n, &lo, &hi);
    if (hi <= lo) hi = lo = 0;
    int skip = (at + lo) % MR, first = (at + lo) / MR; /* the products start at a whole panel of keys */
    vmat s = {b->s + (lo - skip) * LANES + x * PANEL, 0, LANES}, dp = {b->ds + (s.p - b->s), 0, LANES};
    vmat q = {b->qt + x * d->D * PANEL, 0, PANEL}, o = {b->doutt + x * d->Dv * PANEL, 0, PANEL};
    gemm(s, (mat){key->k + first * kp, kp, false}, q, hi - lo + skip, nv, d->D, false, &b->next);
    gemm(dp, (mat){key->v + first * vp, vp, false}, o, hi - lo + skip, nv, d->Dv, false, &b->next);
    for (int i = v; i < v + nv; i++) gradients(b, lo, hi, i, r);
    clear_rows(b, 0, lo, v, nv);
    clear_rows(b, hi, n, v, nv);
    gemm((vmat){b->dqt + x * d->D * PANEL, 0, PANEL}, (mat){key->kt + (at + lo) * MR, KEYS * MR + SLACK, false},
         (vmat){b->ds + lo * LANES + x * PANEL, 0, LANES}, d->D, nv, hi - lo, add, &b->next);
}

/* Keys [j0, j1) of the tile that starts at key `from`, against the query tile b->t; dQ^T to b->dqt. */
static void backward_block(bwd_buffers *b, const key_tile *key, const weft_attn_desc *d, const weft_attn_pair *p,
                           int64_t from, int64_t j0, int64_t j1, bool add)
{
    rules r;
    int n = (int)(j1 - j0), at = (int)(j0 - from);
    rules_set(&r, d, p, &b->t, j0, j1);
    if (b->dropout->on) drop_keys_set(&b->drop.keys, b->dropout, p, j0, j1);
    for (int x = 0; x * NR < b->t.nv; x++) backward_panel(b, key, d, &r, at, n, x, add);
    gemm((vmat){key->dv + at * PANEL, KEYS * PANEL, PANEL}, (mat){b->s, MR * LANES, true},
         (vmat){b->dout, LANES * PANEL, PANEL}, n, vectors(d->Dv), b->t.n, true, &b->next);
    gemm((vmat){key->dk + at * PANEL, KEYS * PANEL, PANEL}, (mat){b->ds, MR * LANES, true},
         (vmat){b->q, LANES * PANEL, PANEL}, n, vectors(d->D), b->t.n, true, &b->next);
}

/* Keys of a superblock. */
static int64_t super_keys(const weft_attn_desc *d, const weft_attn_pair *p)
{
    return KEYS * weft_max_i64(1, weft_min_i64(tiles_that_fit(d), p->nk * d->Hkv / (BWD_TASKS * KEYS)));
}

static int64_t backward_tasks(const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int threads)
{
    (void)threads;
    return p->nq == 0 || gr->heads == 0 ? 0 : weft_ceil_div(p->nk, super_keys(d, p));
}

static void add_dq(bwd_buffers *b, const weft_attn_desc *d, float *dq)
{
    V scale = vset((float)d->scale);
    turn(b->dq, LANES, b->dqt, d->D, d->D, b->t.n);
    for (int x = 0; x < b->t.n; x++) {
        float *to = dq + lane_at(&b->t, d, x, d->D);
        for (int y = 0; y < d->D; y += VLEN) vector_add(to + y, b->dq + lane_vector(x, y), d->D - y, scale);
    }
}

static void add_keys(float *dst, const float *src, const weft_attn_desc *d, int64_t row, int rows, int g, int n, V f)
{
    for (int j = 0; j < rows; j++) {
        float *to = dst + ((row + j) * d->Hkv + g) * n;
        for (int y = 0; y < n; y += VLEN)
            vector_add(to + y, src + (y / PANEL * KEYS + j) * PANEL + y % PANEL, n - y, f);
    }
}

static void keys_in(bwd_buffers *b, const weft_attn_desc *d, const weft_attn_bwd_io *io, const task *t, int64_t from,
                    int64_t to, weft_prec c)
{
    for (int64_t j = from; j < to; j += KEYS) {
        const key_tile *k = &b->key[(j - from) / KEYS];
        int64_t row = t->p->k_row + j;
        int rows = (int)weft_min_i64(KEYS, to - j), g = t->gr.g;
        pack_keys(k->k, io->k, io->k_ld, c, row, rows, g, d->D);
        pack_keys(k->v, io->v, io->v_ld, c, row, rows, g, d->Dv);
        pack_turned(k->kt, KEYS, io->k, io->k_ld, c, row, rows, g, d->D);
        memset(k->dk, 0, (size_t)panel_floats(KEYS, d->D) * sizeof(float));
        memset(k->dv, 0, (size_t)panel_floats(KEYS, d->Dv) * sizeof(float));
    }
}

static void keys_out(const bwd_buffers *b, const weft_attn_desc *d, const weft_attn_bwd_io *io, const task *t,
                     int64_t from, int64_t to)
{
    for (int64_t j = from; j < to; j += KEYS) {
        const key_tile *k = &b->key[(j - from) / KEYS];
        int rows = (int)weft_min_i64(KEYS, to - j), g = t->gr.g;
        add_keys(io->dk, k->dk, d, t->p->k_row + j, rows, g, d->D, vset((float)d->scale));
        add_keys(io->dv, k->dv, d, t->p->k_row + j, rows, g, d->Dv, vset(1));
    }
}

/* Query tile b->t against what it sees of the superblock [from, to). */
static void backward_tile(bwd_buffers *b, const weft_attn_desc *d, const weft_attn_pair *p, int64_t from, int64_t to)
{
    int64_t first = weft_max_i64(from, b->t.lo), last = weft_min_i64(to, b->t.hi), next;
    if (b->dropout->on) drop_lanes_set(&b->drop_lanes, b->dropout, d, p, &b->t);
    for (int64_t j = first; j < last; j = next) {
        int i = (int)((j - from) / KEYS);
        next = weft_min_i64(from + (i + 1) * KEYS, last);
        backward_block(b, &b->key[i], d, p, from + i * KEYS, j, next, j > first);
    }
}

/* Rows of query tile `tile`, all heads of the group. */
static void queries_ahead(bwd_buffers *b, const weft_attn_desc *d, const weft_attn_bwd_io *io, const task *t,
                          int64_t tile, weft_prec c)
{
    const int64_t size = c == WEFT_PREC_F32 ? 4 : 2, heads = t->gr.heads, h0 = t->gr.h0;
    const int64_t i = tile * LANES / heads, row = t->p->q_row + i;
    const int64_t rows = weft_min_i64(weft_ceil_div(LANES, heads), t->p->nq - i);
    b->next.n = 0;
    if (rows <= 0) return;
    ahead_add(&b->next, (float *)io->dq + (row * d->H + h0) * d->D, d->H * d->D * 4, heads * d->D * 4, rows);
    ahead_add(&b->next, (const char *)io->dout + (row * io->dout_ld + h0 * d->Dv) * size, io->dout_ld * size,
              heads * d->Dv * size, rows);
    ahead_add(&b->next, (const char *)io->q + (row * io->q_ld + h0 * d->D) * size, io->q_ld * size, heads * d->D * size,
              rows);
}

static void backward_task(bwd_buffers *b, const weft_attn_desc *d, const weft_attn_bwd_io *io, const task *t,
                          slot *mine, weft_prec c, const weft_attn_run *run, int me)
{
    int64_t keys = super_keys(d, t->p), from = t->tile * keys, to = weft_min_i64(t->p->nk, from + keys);
    int64_t lo, hi, unused, before_hi = 0;
    touched(d, t->p, &t->gr, keys, t->tile, &lo, &hi);
    if (t->tile > 0) touched(d, t->p, &t->gr, keys, t->tile - 1, &unused, &before_hi);
    keys_in(b, d, io, t, from, to, c);
    for (int64_t tile = lo; tile < hi; tile++) {
        lanes_set(&b->t, d, t->p, &t->gr, tile);
        bool sees = weft_max_i64(from, b->t.lo) < weft_min_i64(to, b->t.hi);
        if (sees) {
            queries_in(b, d, io, c);
            queries_ahead(b, d, io, t, tile + 1, c);
            backward_tile(b, d, t->p, from, to);
        }
        if (tile < before_hi) wait_before(t, tile, run, me);
        if (sees) add_dq(b, d, io->dq);
        atomic_store_explicit(&mine->done, tile + 1, memory_order_release);
        if (me == 0 && run->poll) run->poll(run->poll_ud);
    }
    keys_out(b, d, io, t, from, to);
}
