/* simd_forward.inl — forward with queries along the lanes:
 *   S^T[keys x lanes] = K Q^T      P^T = exp(S^T - m)      O^T[Dv x lanes] += V^T P^T
 * In this orientation K and V are only broadcast (never transposed), maximum and sum of a row need no
 * reduction across lanes, and P^T comes out in the layout that the second product wants. Q^T and O^T are
 * turned once per tile of queries. */

enum { FWD_TILES = 8 }; /* tiles that share one packed tile of K,V; does not change results */

typedef struct fwd_tile {
    lanes t;
    float *qt, *ot; /* [D x LANES], [Dv x LANES] */
    float m[LANES], l[LANES];
    drop_lanes drop;
} fwd_tile;

typedef struct fwd_buffers {
    float *k, *v;    /* [KEYS x padded(D)], [KEYS x padded(Dv)] */
    float *s, *rows; /* [KEYS x LANES], [LANES x padded(max(D, Dv))] */
    fwd_tile tile[FWD_TILES];
    const dropout *dropout;
    drop_block drop;
} fwd_buffers;

static size_t forward_floats(const weft_attn_desc *d)
{
    size_t dp = (size_t)padded(d->D), vp = (size_t)padded(d->Dv);
    return KEYS * (dp + vp + LANES) + LANES * (dp > vp ? dp : vp) + FWD_TILES * LANES * (size_t)(d->D + d->Dv);
}

static float *carve(float **from, int64_t floats)
{
    float *p = *from;
    *from += floats;
    return p;
}

static void forward_carve(fwd_buffers *b, const weft_attn_desc *d, float *work)
{
    int dp = padded(d->D), vp = padded(d->Dv);
    b->k = carve(&work, KEYS * dp);
    b->v = carve(&work, KEYS * vp);
    b->s = carve(&work, KEYS * LANES);
    b->rows = carve(&work, LANES * (dp > vp ? dp : vp));
    for (int i = 0; i < FWD_TILES; i++) {
        b->tile[i].qt = carve(&work, LANES * d->D);
        b->tile[i].ot = carve(&work, LANES * d->Dv);
    }
}

/* The state of the lanes from and to the arrays: once per tile and pair. */
static void state_in(fwd_tile *f, float *rows, const weft_attn_desc *d, const weft_attn_fwd_io *io)
{
    lanes_in(rows, &f->t, io->acc, (int64_t)d->H * d->Dv, WEFT_PREC_F32, d->Dv);
    transpose(f->ot, LANES, rows, padded(d->Dv), f->t.n, d->Dv);
    for (int x = 0; x < f->t.nv * VLEN; x++) {
        bool real = x < f->t.n;
        int64_t at = real ? f->t.row[x] * d->H + f->t.head[x] : 0;
        f->m[x] = real ? ((const float *)io->m)[at] : -INFINITY;
        f->l[x] = real ? ((const float *)io->l)[at] : 0;
    }
}

static void state_out(const fwd_tile *f, float *rows, const weft_attn_desc *d, const weft_attn_fwd_io *io)
{
    int vp = padded(d->Dv);
    /* a block past the last row of O^T is never read: rows beyond Dv become lanes that are not stored */
    transpose(rows, vp, f->ot, LANES, d->Dv, f->t.n);
    for (int x = 0; x < f->t.n; x++) {
        int64_t at = f->t.row[x] * d->H + f->t.head[x];
        row_out(io->acc, at * d->Dv, WEFT_PREC_F32, rows + x * vp, d->Dv, vset(1));
        ((float *)io->m)[at] = f->m[x];
        ((float *)io->l)[at] = f->l[x];
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
            V x = vload(s + (j + i) * LANES);
            top[i] = vmax(negative ? vsub(vzero(), x) : x, top[i]);
        }
    for (; j < n; j++) {
        V x = vload(s + j * LANES);
        top[0] = vmax(negative ? vsub(vzero(), x) : x, top[0]);
    }
    return vmax(vmax(top[0], top[1]), vmax(top[2], top[3]));
}

/* Maximum of scale * s. Rounding keeps order, so one product after the maximum gives the bits of one product each. */
static inline V column_max(const float *s, int n, float scale)
{
    return scale < 0 ? vmul(column_most(s, n, true), vset(-scale)) : vmul(column_most(s, n, false), vset(scale));
}

/* s = exp(scale * s - m) for n keys, in place; returns their sum. */
static inline V column_exp(float *s, int n, V scale, V m)
{
    V sum[4];
    for (int i = 0; i < 4; i++) sum[i] = vzero();
    int j = 0;
    for (; j + 4 <= n; j += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            V e = vexp_low(vfms(vload(s + (j + i) * LANES), scale, m));
            vstore(s + (j + i) * LANES, e);
            sum[i] = vadd(sum[i], e);
        }
    for (; j < n; j++) {
        V e = vexp_low(vfms(vload(s + j * LANES), scale, m));
        vstore(s + j * LANES, e);
        sum[0] = vadd(sum[0], e);
    }
    return vadd(vadd(sum[0], sum[1]), vadd(sum[2], sum[3]));
}

/* Products to scores in place, hidden ones to -inf (selected: what a hidden key holds cannot leak). */
static void apply_rules(float *s, int n, int v, const rules *r)
{
    for (int j = 0; j < n; j++) {
        V unused, y = rules_score(r, vload(s + j * LANES), j, v, &unused);
        if (r->masked) y = vsel(rules_visible(r, j, v), y, vset(-INFINITY));
        vstore(s + j * LANES, y);
    }
}

static void rescale(float *ot, int rows, int v, V by)
{
    for (int x = 0; x < rows; x++) vstore(ot + x * LANES + v * VLEN, vmul(by, vload(ot + x * LANES + v * VLEN)));
}

/* One step of online softmax for n keys. A lane that has seen nothing yet keeps m = -inf; it subtracts 0
 * instead, so that -inf - -inf never happens and exp gives 0. */
static void softmax(fwd_tile *f, float *s, int n, const rules *r, int Dv)
{
    bool plain = rules_plain(r);
    float factor = plain ? r->scale : 1;
    V scale = vset(factor);
    for (int v = 0; v < f->t.nv; v++) {
        float *column = s + v * VLEN;
        if (!plain) apply_rules(column, n, v, r);
        V old = vload(f->m + v * VLEN), m = vmax(column_max(column, n, factor), old);
        V base = vsel(veq(m, vset(-INFINITY)), vzero(), m);
        V shrink = vexp(vsub(old, base));
        V sum = column_exp(column, n, scale, base);
        vstore(f->l + v * VLEN, vfma(vload(f->l + v * VLEN), shrink, sum));
        vstore(f->m + v * VLEN, m);
        if (vmask_any(vlt(old, m))) rescale(f->ot, Dv, v, shrink);
    }
}

/* Keys [j0, j1) of the pair, packed from row `from` on, for one tile of queries. */
static void forward_block(fwd_buffers *b, fwd_tile *f, const weft_attn_desc *d, const weft_attn_pair *p, int64_t from,
                          int64_t j0, int64_t j1)
{
    rules r;
    int n = (int)(j1 - j0), dp = padded(d->D), vp = padded(d->Dv);
    mat k = {b->k + (j0 - from) * dp, dp, 1}, vt = {b->v + (j0 - from) * vp, 1, vp};
    rules_set(&r, d, p, &f->t, j0, j1);
    gemm(b->s, LANES, k, f->qt, LANES, n, f->t.nv, d->D, false);
    softmax(f, b->s, n, &r, d->Dv);
    if (b->dropout->on) { /* after the sums: l is that of all keys */
        drop_keys_set(&b->drop.keys, b->dropout, p, j0, j1);
        drop_weights(&b->drop, b->s, n, b->dropout, &f->drop, f->t.nv);
    }
    gemm(f->ot, LANES, vt, b->s, LANES, d->Dv, f->t.nv, n, true);
}

static void pack_keys(float *dst, const void *src, int64_t ld, weft_prec c, int64_t row, int rows, int g, int n)
{
    for (int j = 0; j < rows; j++) row_in(dst + j * padded(n), src, (row + j) * ld + (int64_t)g * n, c, n);
}

static int64_t forward_tiles_per_task(const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int threads)
{
    /* several tiles share packed keys, but every thread should get some tasks */
    int64_t share = tiles_of(p, gr) * d->Hkv / (4 * (int64_t)threads);
    return threads == 1 ? FWD_TILES : weft_max_i64(1, weft_min_i64(FWD_TILES, share));
}

static int64_t forward_tasks(const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int threads)
{
    return p->nk == 0 ? 0 : weft_ceil_div(tiles_of(p, gr), forward_tiles_per_task(d, p, gr, threads));
}

static void forward_task(fwd_buffers *b, const weft_attn_desc *d, const weft_attn_fwd_io *io, const task *t,
                         weft_prec c, const weft_attn_run *run, int me)
{
    int64_t per = forward_tiles_per_task(d, t->p, &t->gr, run->threads), first = (t->tiles - 1 - t->tile) * per;
    int n = (int)weft_min_i64(per, tiles_of(t->p, &t->gr) - first);
    int64_t lo = t->p->nk, hi = 0;
    for (int i = 0; i < n; i++) {
        fwd_tile *f = &b->tile[i];
        lanes_set(&f->t, d, t->p, &t->gr, first + i);
        if (f->t.lo >= f->t.hi) continue; /* sees nothing: its state stays as it is, bit for bit */
        lanes_in(b->rows, &f->t, io->q, io->q_ld, c, d->D);
        transpose(f->qt, LANES, b->rows, padded(d->D), f->t.n, d->D);
        state_in(f, b->rows, d, io);
        if (b->dropout->on) drop_lanes_set(&f->drop, b->dropout, d, t->p, &f->t);
        lo = weft_min_i64(lo, f->t.lo);
        hi = weft_max_i64(hi, f->t.hi);
    }
    for (int64_t j = lo / KEYS * KEYS; j < hi; j += KEYS) {
        int64_t from = weft_max_i64(j, lo), to = weft_min_i64(j + KEYS, hi);
        pack_keys(b->k, io->k, io->k_ld, c, t->p->k_row + from, (int)(to - from), t->gr.g, d->D);
        pack_keys(b->v, io->v, io->v_ld, c, t->p->k_row + from, (int)(to - from), t->gr.g, d->Dv);
        for (int i = 0; i < n; i++) {
            int64_t j0 = weft_max_i64(from, b->tile[i].t.lo), j1 = weft_min_i64(to, b->tile[i].t.hi);
            if (j0 < j1) forward_block(b, &b->tile[i], d, t->p, from, j0, j1);
        }
        if (me == 0 && run->poll) run->poll(run->poll_ud);
    }
    for (int i = 0; i < n; i++)
        if (b->tile[i].t.lo < b->tile[i].t.hi) state_out(&b->tile[i], b->rows, d, io);
}
