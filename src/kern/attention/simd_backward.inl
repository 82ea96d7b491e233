/* simd_backward.inl — backward, one tile of keys at a time:
 *   S^T = K Q^T    dP^T = V dO^T    P^T = exp(S^T - m) / l    dS^T = scale P^T (dP^T - delta) (1 - tanh^2)
 *   dV += P^T dO   dK += dS^T Q     dQ += dS K
 * With dropout dP^T is dropped before delta is subtracted, and P^T for dV only.
 * dK and dV belong to the task. The dQ of a query tile gets its parts in ascending order of key tiles (see
 * README.md), so the sums have one order for any number of threads. */

typedef struct bwd_buffers {
    float *k, *v, *dk, *dv;      /* [KEYS x padded] */
    float *q, *dout, *dq;        /* [LANES x padded] */
    float *qt, *doutt;           /* [D x LANES], [Dv x LANES] */
    float *s, *ds;               /* [KEYS x LANES]: S^T then P^T; dP^T then dS^T */
    lanes t;
    float m[LANES], inv_l[LANES], delta[LANES];
    const dropout *dropout;
    drop_lanes drop_lanes;
    drop_block drop;
} bwd_buffers;

static size_t backward_floats(const weft_attn_desc *d)
{
    size_t dp = (size_t)padded(d->D), vp = (size_t)padded(d->Dv);
    return 2 * KEYS * (dp + vp + LANES) + LANES * (2 * dp + vp + (size_t)d->D + (size_t)d->Dv);
}

static void backward_carve(bwd_buffers *b, const weft_attn_desc *d, float *work)
{
    int dp = padded(d->D), vp = padded(d->Dv);
    b->k = carve(&work, KEYS * dp), b->dk = carve(&work, KEYS * dp);
    b->v = carve(&work, KEYS * vp), b->dv = carve(&work, KEYS * vp);
    b->q = carve(&work, LANES * dp), b->dq = carve(&work, LANES * dp);
    b->dout = carve(&work, LANES * vp);
    b->qt = carve(&work, LANES * d->D), b->doutt = carve(&work, LANES * d->Dv);
    b->s = carve(&work, KEYS * LANES), b->ds = carve(&work, KEYS * LANES);
}

/* Lanes without a row, and rows without a key, get m = +inf: exp(s - inf) = 0 for every s. */
static void queries_in(bwd_buffers *b, const weft_attn_desc *d, const weft_attn_bwd_io *io, weft_prec c)
{
    const lanes *t = &b->t;
    lanes_in(b->q, t, io->q, io->q_ld, c, d->D);
    lanes_in(b->dout, t, io->dout, io->dout_ld, c, d->Dv);
    transpose(b->qt, LANES, b->q, padded(d->D), t->n, d->D);
    transpose(b->doutt, LANES, b->dout, padded(d->Dv), t->n, d->Dv);
    for (int x = 0; x < t->nv * VLEN; x++) {
        int64_t at = x < t->n ? t->row[x] * d->H + t->head[x] : 0;
        float l = x < t->n ? ((const float *)io->l)[at] : 0;
        b->m[x] = l != 0 ? ((const float *)io->m)[at] : INFINITY;
        b->inv_l[x] = l != 0 ? 1 / l : 0;
        b->delta[x] = l != 0 ? ((const float *)io->delta)[at] : 0;
    }
}

static inline __attribute__((always_inline)) void gradients_column(bwd_buffers *b, int n, int v, const rules *r,
                                                                   const bool plain, const bool drop)
{
    V m = vload(b->m + v * VLEN), inv_l = vload(b->inv_l + v * VLEN), delta = vload(b->delta + v * VLEN);
    V scale = vset(r->scale), keep = vset(b->dropout->scale);
    for (int j = 0; j < n; j++) {
        float *ps = b->s + j * LANES + v * VLEN, *pds = b->ds + j * LANES + v * VLEN;
        V tanh, s = vload(ps), dp = vload(pds), e, ds;
        if (drop) dp = drop_apply(&b->drop, j, dp, keep);
        if (plain) {
            e = vmul(vexp(vfms(s, scale, m)), inv_l);
            ds = vmul(e, vmul(scale, vsub(dp, delta)));
        } else {
            e = vmul(vexp(vsub(rules_score(r, s, j, v, &tanh), m)), inv_l);
            ds = vmul(e, vmul(scale, vsub(dp, delta)));
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

/* S^T, dP^T -> P^T, dS^T in place. */
static void gradients(bwd_buffers *b, int n, const rules *r)
{
    bool plain = rules_plain(r), drop = b->dropout->on;
    for (int v = 0; v < b->t.nv; v++) {
        if (drop) drop_decide(&b->drop, b->dropout, &b->drop_lanes, v);
        if (plain && !drop) gradients_column(b, n, v, r, true, false);
        else if (plain) gradients_column(b, n, v, r, true, true);
        else if (!drop) gradients_column(b, n, v, r, false, false);
        else gradients_column(b, n, v, r, false, true);
    }
}

/* Keys [j0, j1) of the task's tile, which starts at key `from`, against the query tile b->t; dQ to b->dq. */
static void backward_block(bwd_buffers *b, const weft_attn_desc *d, const weft_attn_pair *p, int64_t from, int64_t j0,
                           int64_t j1)
{
    rules r;
    int n = (int)(j1 - j0), dp = padded(d->D), vp = padded(d->Dv);
    int64_t ko = (j0 - from) * dp, vo = (j0 - from) * vp;
    rules_set(&r, d, p, &b->t, j0, j1);
    gemm(b->s, LANES, (mat){b->k + ko, dp, 1}, b->qt, LANES, n, b->t.nv, d->D, false);
    gemm(b->ds, LANES, (mat){b->v + vo, vp, 1}, b->doutt, LANES, n, b->t.nv, d->Dv, false);
    if (b->dropout->on) {
        drop_lanes_set(&b->drop_lanes, b->dropout, d, p, &b->t);
        drop_keys_set(&b->drop.keys, b->dropout, p, j0, j1);
    }
    gradients(b, n, &r);
    gemm(b->dv + vo, vp, (mat){b->s, LANES, 1}, b->dout, vp, n, vectors(d->Dv), b->t.n, true);
    gemm(b->dk + ko, dp, (mat){b->ds, LANES, 1}, b->q, dp, n, vectors(d->D), b->t.n, true);
    gemm(b->dq, dp, (mat){b->ds, 1, LANES}, b->k + ko, dp, b->t.n, vectors(d->D), n, false);
}

static int64_t backward_tasks(const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int threads)
{
    (void)d, (void)threads;
    return p->nq == 0 || gr->heads == 0 ? 0 : weft_ceil_div(p->nk, KEYS);
}

/* The query tiles [*lo, *hi) that key tile `tile` may touch; both ends grow with `tile`. */
static void touched(const weft_attn_desc *d, const task *t, int64_t tile, int64_t *lo, int64_t *hi)
{
    int64_t j0 = tile * KEYS;
    weft_attn_query_range(&d->mask, t->p, j0, weft_min_i64(t->p->nk, j0 + KEYS), lo, hi);
    *lo = *lo * t->gr.heads / LANES;
    *hi = weft_ceil_div(*hi * t->gr.heads, LANES);
}

static void add_dq(const bwd_buffers *b, const weft_attn_desc *d, float *dq)
{
    for (int x = 0; x < b->t.n; x++)
        row_add(dq + (b->t.row[x] * d->H + b->t.head[x]) * d->D, b->dq + x * padded(d->D), d->D);
}

static void add_keys(float *dst, const float *src, const weft_attn_desc *d, int64_t row, int rows, int g, int n)
{
    for (int j = 0; j < rows; j++) row_add(dst + ((row + j) * d->Hkv + g) * n, src + j * padded(n), n);
}

static void backward_task(bwd_buffers *b, const weft_attn_desc *d, const weft_attn_bwd_io *io, const task *t,
                          slot *mine, weft_prec c, const weft_attn_run *run, int me)
{
    int64_t from = t->tile * KEYS, to = weft_min_i64(t->p->nk, from + KEYS), lo, hi, unused, before_hi = 0;
    int rows = (int)(to - from), g = t->gr.g;
    touched(d, t, t->tile, &lo, &hi);
    if (t->tile > 0) touched(d, t, t->tile - 1, &unused, &before_hi);
    pack_keys(b->k, io->k, io->k_ld, c, t->p->k_row + from, rows, g, d->D);
    pack_keys(b->v, io->v, io->v_ld, c, t->p->k_row + from, rows, g, d->Dv);
    memset(b->dk, 0, (size_t)(rows * padded(d->D)) * sizeof *b->dk);
    memset(b->dv, 0, (size_t)(rows * padded(d->Dv)) * sizeof *b->dv);
    for (int64_t tile = lo; tile < hi; tile++) {
        lanes_set(&b->t, d, t->p, &t->gr, tile);
        int64_t j0 = weft_max_i64(from, b->t.lo), j1 = weft_min_i64(to, b->t.hi);
        if (j0 < j1) {
            queries_in(b, d, io, c);
            backward_block(b, d, t->p, from, j0, j1);
        }
        if (tile < before_hi) wait_before(t, tile, run, me);
        if (j0 < j1) add_dq(b, d, io->dq);
        atomic_store_explicit(&mine->done, tile + 1, memory_order_release);
        if (me == 0 && run->poll) run->poll(run->poll_ud);
    }
    add_keys(io->dk, b->dk, d, t->p->k_row + from, rows, g, d->D);
    add_keys(io->dv, b->dv, d, t->p->k_row + from, rows, g, d->Dv);
}
