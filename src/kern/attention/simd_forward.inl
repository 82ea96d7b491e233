/* simd_forward.inl — forward with queries along the lanes:
 *   S^T[keys x lanes] = K Q^T      P^T = exp(S^T - m)      O^T[Dv x lanes] += V^T P^T
 * In this orientation K and V are only broadcast (never transposed for the products), maximum and sum of a row need no
 * reduction across lanes, and P^T comes out in the layout that the second product wants. Q^T and O^T are turned once
 * per tile of queries and run of pairs. A tile is worked on panel by panel (AVX-512: one), so that the scores of a
 * panel stay in the first-level cache from the first product through the softmax to the second. */

/* Tiles that share packed K,V, at most, and the bytes of Q^T and O^T that all of them may take (half a second-level
 * cache of 2 MB). Do not change results. */
enum { FWD_TILES = 16, FWD_BYTES = 1 << 20 };

typedef struct fwd_tile {
    lanes t;
    float *qt, *ot; /* panels of D and of Dv rows */
    float m[LANES], l[LANES]; /* m counts powers of two: log2(e) times that of the arrays */
    bool used;                /* any lane sees a key of the run of pairs */
    bool sees[LANES];         /* a key of the run */
    drop_lanes drop;
} fwd_tile;

typedef struct fwd_buffers {
    float *k, *v;    /* packed K [KEYS x D], packed V^T [Dv x KEYS] */
    float *s, *rows; /* [KEYS x PANEL] and MR rows in front, panels of LANES rows */
    fwd_tile tile[FWD_TILES];
    ahead next;      /* rows of the block of keys after this one */
    const dropout *dropout;
    drop_block drop;
} fwd_buffers;

static int64_t forward_tile_floats(const weft_attn_desc *d) { return LANES * (int64_t)(d->D + d->Dv); }

static int forward_tiles_max(const weft_attn_desc *d)
{
    int64_t fit = FWD_BYTES / (forward_tile_floats(d) * (int64_t)sizeof(float));
    return (int)weft_max_i64(4, weft_min_i64(FWD_TILES, fit));
}

static int64_t round_floats(int64_t n) { return (n + 15) / 16 * 16; } /* whole cache lines */

static float *carve(float **from, int64_t floats)
{
    float *p = *from;
    *from += round_floats(floats);
    return p;
}

static int64_t forward_rows_floats(const weft_attn_desc *d) { return panel_floats(LANES, d->D > d->Dv ? d->D : d->Dv); }

static size_t forward_floats(const weft_attn_desc *d)
{
    int64_t packed = round_floats(packed_floats(KEYS, d->D)) + round_floats(packed_floats(d->Dv, KEYS));
    return (size_t)(packed + (KEYS + MR) * PANEL + forward_rows_floats(d) +
                    forward_tiles_max(d) * forward_tile_floats(d));
}

static void forward_carve(fwd_buffers *b, const weft_attn_desc *d, float *work)
{
    b->k = carve(&work, packed_floats(KEYS, d->D));
    b->v = carve(&work, packed_floats(d->Dv, KEYS));
    b->s = carve(&work, (KEYS + MR) * PANEL) + MR * PANEL;
    b->rows = carve(&work, forward_rows_floats(d));
    for (int i = 0; i < forward_tiles_max(d); i++) {
        b->tile[i].qt = carve(&work, LANES * d->D);
        b->tile[i].ot = carve(&work, LANES * d->Dv);
    }
}

/* The state of the lanes from and to the arrays: once per tile and run of pairs. */
static void state_in(fwd_tile *f, float *rows, const weft_attn_desc *d, const weft_attn_fwd_io *io)
{
    float by[LANES];
    memset(f->sees, 0, sizeof f->sees);
    for (int x = 0; x < f->t.nv * VLEN; x++) {
        bool real = x < f->t.n;
        int64_t at = real ? lane_at(&f->t, d, x, 1) : 0;
        f->m[x] = real ? ((const float *)io->m)[at] : -INFINITY;
        f->l[x] = real ? ((const float *)io->l)[at] : 0;
    }
    for (int x = 0; x < f->t.n; x += VLEN) {
        V factor;
        vstore(f->m + x, to_base2(vload(f->m + x), &factor));
        vstore(f->l + x, vmul(vload(f->l + x), factor));
        vstore(by + x, factor);
    }
    lanes_in(rows, &f->t, io->acc, (int64_t)d->H * d->Dv, WEFT_PREC_F32, d->Dv);
    for (int x = 0; x < f->t.n; x++)
        for (int y = 0; y < d->Dv && by[x] != 1; y += VLEN) {
            float *at = rows + lane_vector(x, y);
            vstore(at, vmul(vload(at), vset(by[x])));
        }
    turn(f->ot, d->Dv, rows, LANES, f->t.n, d->Dv);
}

/* A lane that saw nothing keeps its state bit for bit. */
static void state_out(const fwd_tile *f, float *rows, const weft_attn_desc *d, const weft_attn_fwd_io *io)
{
    float m[LANES], by[LANES];
    turn(rows, LANES, f->ot, d->Dv, d->Dv, f->t.n);
    for (int x = 0; x < f->t.n; x += VLEN) {
        V factor;
        vstore(m + x, from_base2(vload(f->m + x), &factor));
        vstore(by + x, factor);
    }
    for (int x = 0; x < f->t.n; x++) {
        int64_t at = lane_at(&f->t, d, x, 1);
        if (!f->sees[x]) continue;
        for (int y = 0; y < d->Dv; y += VLEN)
            row_out(io->acc, at * d->Dv + y, WEFT_PREC_F32, rows + lane_vector(x, y),
                    d->Dv - y < VLEN ? d->Dv - y : VLEN, vset(by[x]));
        ((float *)io->m)[at] = m[x];
        ((float *)io->l)[at] = f->l[x] * by[x];
    }
}

/* Maximum over n keys of sign * s, for one vector of lanes (4 chains, because one waits for itself). */
static inline __attribute__((always_inline)) V column_most(const float *s, int n, const bool negative)
{
    V top[4];
    for (int i = 0; i < 4; i++) top[i] = vset(-INFINITY);
    int j = 0;
    for (; j + 4 <= n; j += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            V x = vload(s + (j + i) * PANEL);
            top[i] = vmax(negative ? vsub(vzero(), x) : x, top[i]);
        }
    for (; j < n; j++) {
        V x = vload(s + j * PANEL);
        top[0] = vmax(negative ? vsub(vzero(), x) : x, top[0]);
    }
    return vmax(vmax(top[0], top[1]), vmax(top[2], top[3]));
}

/* Maximum of scale * s. Rounding keeps order, so one product after the maximum gives the bits of one product each. */
static inline V column_max(const float *s, int n, float scale)
{
    return scale < 0 ? vmul(column_most(s, n, true), vset(-scale)) : vmul(column_most(s, n, false), vset(scale));
}

/* s = 2^(scale * s - m) for n keys, in place; returns their sum. */
static inline V column_exp(float *s, int n, V scale, V m)
{
    V sum[4];
    for (int i = 0; i < 4; i++) sum[i] = vzero();
    int j = 0;
    for (; j + 4 <= n; j += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            V e = vexp2(vfms(vload(s + (j + i) * PANEL), scale, m));
            vstore(s + (j + i) * PANEL, e);
            sum[i] = vadd(sum[i], e);
        }
    for (; j < n; j++) {
        V e = vexp2(vfms(vload(s + j * PANEL), scale, m));
        vstore(s + j * PANEL, e);
        sum[0] = vadd(sum[0], e);
    }
    return vadd(vadd(sum[0], sum[1]), vadd(sum[2], sum[3]));
}

/* Products to scores in place, hidden ones to -inf (selected: what a hidden key holds cannot leak). */
static void apply_rules(float *s, int lo, int hi, int v, const rules *r)
{
    for (int j = lo; j < hi; j++) {
        V unused, y = rules_score(r, vload(s + j * PANEL), j, v, &unused);
        if (r->masked) y = vsel(rules_visible(r, j, v), y, vset(-INFINITY));
        vstore(s + j * PANEL, y);
    }
}

/* Products of hidden keys to what becomes -inf when multiplied by the scale. */
static void hide(float *s, int lo, int hi, int v, const rules *r)
{
    V hidden = vset(r->scale < 0 ? INFINITY : -INFINITY);
    for (int j = lo; j < hi; j++)
        vstore(s + j * PANEL, vsel(rules_visible(r, j, v), vload(s + j * PANEL), hidden));
}

static void rescale(float *ot, int rows, V by)
{
    for (int x = 0; x < rows; x++) vstore(ot + x * PANEL, vmul(by, vload(ot + x * PANEL)));
}

/* One step of online softmax for keys [lo, hi) of the block and the vector v of lanes, at s and ot. A lane that has
 * seen nothing yet keeps m = -inf; it subtracts 0 instead, so that -inf - -inf never happens and exp gives 0. */
static void softmax(fwd_tile *f, float *s, float *ot, int lo, int hi, int v, const rules *r, int Dv)
{
    bool linear = rules_linear(r);
    float factor = linear ? r->scale * LOG2E : LOG2E;
    if (linear) {
        int a, b;
        rules_common(r, &f->t, v, lo, hi, &a, &b);
        hide(s, lo, a, v, r);
        hide(s, b, hi, v, r);
    } else apply_rules(s, lo, hi, v, r);
    s += lo * PANEL;
    V old = vload(f->m + v * VLEN), m = vmax(column_max(s, hi - lo, factor), old);
    V base = vsel(veq(m, vset(-INFINITY)), vzero(), m);
    V shrink = vexp2(vsub(old, base));
    V sum = column_exp(s, hi - lo, vset(factor), base);
    vstore(f->l + v * VLEN, vfma(vload(f->l + v * VLEN), shrink, sum));
    vstore(f->m + v * VLEN, m);
    if (vmask_any(vlt(old, m))) rescale(ot, Dv, shrink);
}

/* Keys [lo, hi) of P^T, in place, for nv vectors of lanes from vector v on; rows of a panel. */
static void drop_weights(drop_block *b, float *p, int lo, int hi, const dropout *x, const drop_lanes *t, int v, int nv)
{
    V scale = vset(x->scale);
    for (int i = 0; i < nv; i++) {
        drop_decide(b, x, t, v + i);
        for (int j = lo; j < hi; j++) {
            float *at = p + j * PANEL + i * VLEN;
            vstore(at, drop_apply(b, j, vload(at), scale));
        }
    }
}

/* The lanes of panel x against keys [lo, hi) of the block, which starts at row `at` of the packed keys. The first
 * product starts at a whole panel of keys; what keys in front of `lo` hold, perhaps nothing, goes no further. */
static void forward_panel(fwd_buffers *b, fwd_tile *f, const weft_attn_desc *d, const rules *r, int at, int x, int lo,
                          int hi)
{
    int v = x * NR, nv = f->t.nv - v < NR ? f->t.nv - v : NR, skip = (at + lo) % MR;
    int64_t kp = d->D * MR + SLACK;
    mat k = {b->k + (at + lo) / MR * kp, kp, false}, vt = {b->v + (at + lo) * MR, KEYS * MR + SLACK, false};
    vmat q = {f->qt + x * d->D * PANEL, 0, PANEL}, o = {f->ot + x * d->Dv * PANEL, 0, PANEL};
    gemm((vmat){b->s + (lo - skip) * PANEL, 0, PANEL}, k, q, hi - lo + skip, nv, d->D, false, &b->next);
    for (int i = 0; i < nv; i++) softmax(f, b->s + i * VLEN, o.p + i * VLEN, lo, hi, v + i, r, d->Dv);
    if (b->dropout->on) /* after the sums: l is that of all keys */
        drop_weights(&b->drop, b->s, lo, hi, b->dropout, &f->drop, v, nv);
    gemm(o, vt, (vmat){b->s + lo * PANEL, 0, PANEL}, d->Dv, nv, hi - lo, true, &b->next);
}

/* Keys [j0, j1) of the pair, packed from row `from` on, a multiple of MR, for one tile of queries. */
static void forward_block(fwd_buffers *b, fwd_tile *f, const weft_attn_desc *d, const weft_attn_pair *p, int64_t from,
                          int64_t j0, int64_t j1)
{
    rules r;
    rules_set(&r, d, p, &f->t, j0, j1);
    if (b->dropout->on) drop_keys_set(&b->drop.keys, b->dropout, p, j0, j1);
    for (int x = 0; x < f->t.n; x++) f->sees[x] = f->sees[x] || !r.masked || r.lo[x] < r.hi[x];
    for (int x = 0; x * NR < f->t.nv; x++) {
        int lo, hi;
        rules_span(&r, &f->t, x * PANEL, PANEL, (int)(j1 - j0), &lo, &hi);
        if (lo < hi) forward_panel(b, f, d, &r, (int)(j0 - from), x, lo, hi);
    }
}

static int64_t tiles_per_task(const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int threads)
{
    return forward_tiles_per_task(d, p, gr, threads, forward_tiles_max(d));
}

static int64_t forward_tasks(const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int threads)
{
    return weft_ceil_div(tiles_of(p, gr), tiles_per_task(d, p, gr, threads));
}

/* The task's tiles with their queries and state; returns their number. */
static int forward_tiles(fwd_buffers *b, const weft_attn_desc *d, const weft_attn_fwd_io *io, const task *t,
                         weft_prec c, int threads)
{
    int64_t per = tiles_per_task(d, t->p, &t->gr, threads), first = (t->tiles - 1 - t->tile) * per;
    int n = (int)weft_min_i64(per, tiles_of(t->p, &t->gr) - first);
    for (int i = 0; i < n; i++) {
        fwd_tile *f = &b->tile[i];
        lanes_set(&f->t, d, t->p, &t->gr, first + i);
        f->used = lanes_see(&f->t, d, t->p, t->pairs);
        if (!f->used) continue; /* its state stays as it is, bit for bit */
        lanes_in(b->rows, &f->t, io->q, io->q_ld, c, d->D);
        turn(f->qt, d->D, b->rows, LANES, f->t.n, d->D);
        state_in(f, b->rows, d, io);
        if (b->dropout->on) drop_lanes_set(&f->drop, b->dropout, d, t->p, &f->t);
    }
    return n;
}

static void keys_ahead(ahead *a, const weft_attn_desc *d, const weft_attn_fwd_io *io, weft_prec c, int64_t row,
                       int64_t rows, int64_t g)
{
    const int64_t size = c == WEFT_PREC_F32 ? 4 : 2;
    a->n = 0;
    if (rows <= 0) return;
    ahead_add(a, (const char *)io->v + (row * io->v_ld + g * d->Dv) * size, io->v_ld * size, d->Dv * size, rows);
    ahead_add(a, (const char *)io->k + (row * io->k_ld + g * d->D) * size, io->k_ld * size, d->D * size, rows);
}

/* The n tiles against the keys of one pair of their run. */
static void forward_pair(fwd_buffers *b, int n, const weft_attn_desc *d, const weft_attn_fwd_io *io,
                         const weft_attn_pair *p, int g, weft_prec c, const weft_attn_run *run, int me)
{
    int64_t lo = p->nk, hi = 0;
    for (int i = 0; i < n; i++) lanes_meet(&b->tile[i].t, d, p, &lo, &hi);
    lo = lo / MR * MR;
    for (int64_t j = lo / KEYS * KEYS; j < hi; j += KEYS) {
        int64_t from = weft_max_i64(j, lo), to = weft_min_i64(j + KEYS, hi), row = p->k_row + from;
        pack_keys(b->k, io->k, io->k_ld, c, row, (int)(to - from), g, d->D);
        pack_turned(b->v, KEYS, io->v, io->v_ld, c, row, (int)(to - from), g, d->Dv);
        keys_ahead(&b->next, d, io, c, p->k_row + to, weft_min_i64(KEYS, hi - to), g);
        for (int i = 0; i < n; i++) {
            const lanes *l = &b->tile[i].t;
            int64_t j0 = weft_max_i64(from, l->lo), j1 = weft_min_i64(to, l->hi);
            if (l->lo < l->hi && j0 < j1) forward_block(b, &b->tile[i], d, p, from, j0, j1);
        }
        if (me == 0 && run->poll) run->poll(run->poll_ud);
    }
}

static void forward_task(fwd_buffers *b, const weft_attn_desc *d, const weft_attn_fwd_io *io, const task *t,
                         weft_prec c, const weft_attn_run *run, int me)
{
    int n = forward_tiles(b, d, io, t, c, run->threads);
    for (int64_t i = 0; i < t->pairs; i++) forward_pair(b, n, d, io, &t->p[i], t->gr.g, c, run, me);
    for (int i = 0; i < n; i++)
        if (b->tile[i].used) state_out(&b->tile[i], b->rows, d, io);
}
