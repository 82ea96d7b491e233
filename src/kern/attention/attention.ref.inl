/* attention.ref.inl — the specification of attention, included once per precision through ref_each.inl
 * (R, C, FROM_C, TO_C, NAME, FN are explained there).
 *
 * One query row at a time, one key after the other, in the order of the lists. Products of a row sum in
 * double, so that what remains of rounding error is that of the state. Heads run in parallel: a key/value
 * head and its query heads belong to one thread, hence every sum has one order. */

typedef struct NAME(score) {
    R s, t; /* the score; tanh(x / cap), or 0 without softcap */
} NAME(score);

static R NAME(dot)(const C *a, const C *b, int n)
{
    double sum = 0;
    for (int x = 0; x < n; x++) sum += (double)FROM_C(a[x]) * (double)FROM_C(b[x]);
    return (R)sum;
}

static NAME(score) NAME(score_of)(const weft_attn_desc *d, int h, const C *q, const C *k, int64_t distance)
{
    NAME(score) y = {(R)d->scale * NAME(dot)(q, k, d->D), 0};
    if (d->softcap > 0) {
        y.t = FN(tanh)(y.s / (R)d->softcap);
        y.s = (R)d->softcap * y.t;
    }
    if (d->alibi) y.s -= ((const R *)d->alibi)[h] * (R)(distance < 0 ? -distance : distance);
    return y;
}

/* What dropout multiplies a weight by, and the gradient with respect to it. */
static R NAME(keep)(const weft_attn_desc *d, uint32_t word3, const weft_attn_pair *p, int h, int64_t qpos, int64_t kpos)
{
    uint32_t head = (uint32_t)(d->head0 + h);
    if (!(d->dropout > 0)) return 1;
    bool kept = weft_attn_kept(d->dropout, d->seed, word3, p->sample, head, qpos + p->base, kpos + p->base);
    return kept ? (R)(1 / (1 - d->dropout)) : 0;
}

static void NAME(start)(const weft_attn_desc *d, void *acc, void *m, void *l, int64_t rows)
{
    for (int64_t i = 0; i < rows * d->H * d->Dv; i++) ((R *)acc)[i] = 0;
    for (int64_t i = 0; i < rows * d->H; i++) {
        ((R *)m)[i] = -(R)INFINITY;
        ((R *)l)[i] = 0;
    }
}

/* One query row of one head against all keys of its pair. */
static void NAME(forward_row)(const weft_attn_desc *d, const weft_attn_fwd_io *io, const weft_attn_pair *p, int64_t i,
                              int h)
{
    int g = weft_attn_kv_head(d, h);
    int64_t at = (p->q_row + i) * d->H + h, qpos = weft_attn_qpos(p, i);
    const C *q = (const C *)io->q + (p->q_row + i) * io->q_ld + (int64_t)h * d->D;
    R *acc = (R *)io->acc + at * d->Dv, m = ((R *)io->m)[at], l = ((R *)io->l)[at];
    weft_attn_walk key = weft_attn_kwalk(p, 0);
    for (int64_t j = 0; j < p->nk; j++, weft_attn_walk_on(&key)) {
        int64_t kpos = key.pos;
        if (!weft_visible(&d->mask, qpos, kpos)) continue;
        const C *k = (const C *)io->k + (p->k_row + j) * io->k_ld + (int64_t)g * d->D;
        const C *v = (const C *)io->v + (p->k_row + j) * io->v_ld + (int64_t)g * d->Dv;
        R s = NAME(score_of)(d, h, q, k, qpos - kpos).s;
        if (s == -(R)INFINITY) continue; /* weight 0; and -inf - -inf must not happen */
        if (s > m) {
            R shrink = FN(exp)(m - s); /* 0 for the first key, whose m is -inf */
            for (int x = 0; x < d->Dv; x++) acc[x] *= shrink;
            l *= shrink;
            m = s;
        }
        R e = FN(exp)(s - m), kept = e * NAME(keep)(d, io->drop_word3, p, h, qpos, kpos);
        for (int x = 0; x < d->Dv; x++) acc[x] += kept * FROM_C(v[x]);
        l += e; /* of all keys: dropout acts on what softmax gave */
    }
    ((R *)io->m)[at] = m;
    ((R *)io->l)[at] = l;
}

static void NAME(forward)(const weft_attn_desc *d, const weft_attn_fwd_io *io, const weft_attn_pair *pairs, int64_t n,
                          const weft_attn_run *run)
{
#pragma omp parallel for num_threads(run->threads) schedule(dynamic, 1)
    for (int h = 0; h < d->H; h++)
        for (int64_t a = 0; a < n; a++)
            for (int64_t i = 0; i < pairs[a].nq; i++) {
                poll_now_and_then(run, i);
                NAME(forward_row)(d, io, &pairs[a], i, h);
            }
}

static R NAME(log_sum)(R m, R l) { return l == 0 ? -(R)INFINITY : m + FN(log)(l); }

static void NAME(lse)(void *lse, const void *m, const void *l, int64_t n)
{
    for (int64_t i = 0; i < n; i++) ((R *)lse)[i] = NAME(log_sum)(((const R *)m)[i], ((const R *)l)[i]);
}

static void NAME(finish)(const weft_attn_desc *d, void *o, int64_t o_ld, void *lse, const void *acc, void *m, void *l,
                         const void *sinks, int64_t rows, int threads)
{
    (void)threads; /* without OpenMP */
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int h = 0; h < d->H; h++) {
            int64_t at = i * d->H + h;
            R top = ((R *)m)[at], sum = ((R *)l)[at], shrink = 1;
            if (sinks && ((const R *)sinks)[h] != -(R)INFINITY) {
                R sink = ((const R *)sinks)[h], old = top;
                if (!(top >= sink)) top = sink;
                shrink = FN(exp)(old - top);
                sum = sum * shrink + FN(exp)(sink - top);
            }
            const R *a = (const R *)acc + at * d->Dv;
            C *y = (C *)o + i * o_ld + (int64_t)h * d->Dv;
            for (int x = 0; x < d->Dv; x++) y[x] = TO_C(sum == 0 ? (R)0 : a[x] * shrink / sum);
            ((R *)m)[at] = top;
            ((R *)l)[at] = sum;
            if (lse) ((R *)lse)[at] = NAME(log_sum)(top, sum);
        }
}

static void NAME(delta)(const weft_attn_desc *d, void *delta, void *dsinks, const void *sinks, const void *dout,
                        int64_t dout_ld, const void *o, int64_t o_ld, const void *m, const void *l, int64_t rows,
                        int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int h = 0; h < d->H; h++) {
        double dsink = 0;
        for (int64_t i = 0; i < rows; i++) {
            int64_t at = i * d->H + h;
            R y = NAME(dot)((const C *)dout + i * dout_ld + (int64_t)h * d->Dv,
                            (const C *)o + i * o_ld + (int64_t)h * d->Dv, d->Dv);
            ((R *)delta)[at] = y;
            R sum = ((const R *)l)[at];
            if (sinks && sum != 0) dsink -= (double)(FN(exp)(((const R *)sinks)[h] - ((const R *)m)[at]) / sum * y);
        }
        if (sinks && dsinks) ((R *)dsinks)[h] += (R)dsink;
    }
}

/* What one query row of one head adds to dq, and to dk and dv of its key/value head. */
static void NAME(backward_row)(const weft_attn_desc *d, const weft_attn_bwd_io *io, const weft_attn_pair *p, int64_t i,
                               int h)
{
    int g = weft_attn_kv_head(d, h);
    int64_t at = (p->q_row + i) * d->H + h, qpos = weft_attn_qpos(p, i);
    const C *q = (const C *)io->q + (p->q_row + i) * io->q_ld + (int64_t)h * d->D;
    const C *dout = (const C *)io->dout + (p->q_row + i) * io->dout_ld + (int64_t)h * d->Dv;
    R *dq = (R *)io->dq + at * d->D;
    R m = ((const R *)io->m)[at], l = ((const R *)io->l)[at], delta = ((const R *)io->delta)[at];
    if (l == 0) return; /* a row without keys has no gradient */
    weft_attn_walk key = weft_attn_kwalk(p, 0);
    for (int64_t j = 0; j < p->nk; j++, weft_attn_walk_on(&key)) {
        int64_t kpos = key.pos, krow = p->k_row + j;
        if (!weft_visible(&d->mask, qpos, kpos)) continue;
        const C *k = (const C *)io->k + krow * io->k_ld + (int64_t)g * d->D;
        const C *v = (const C *)io->v + krow * io->v_ld + (int64_t)g * d->Dv;
        R *dk = (R *)io->dk + (krow * d->Hkv + g) * d->D, *dv = (R *)io->dv + (krow * d->Hkv + g) * d->Dv;
        NAME(score) y = NAME(score_of)(d, h, q, k, qpos - kpos);
        R e = FN(exp)(y.s - m) / l;
        R keep = NAME(keep)(d, io->drop_word3, p, h, qpos, kpos), kept = e * keep;
        for (int x = 0; x < d->Dv; x++) dv[x] += kept * FROM_C(dout[x]);
        R ds = e * (keep * NAME(dot)(dout, v, d->Dv) - delta) * (1 - y.t * y.t) * (R)d->scale;
        for (int x = 0; x < d->D; x++) {
            dq[x] += ds * FROM_C(k[x]);
            dk[x] += ds * FROM_C(q[x]);
        }
    }
}

static void NAME(backward)(const weft_attn_desc *d, const weft_attn_bwd_io *io, const weft_attn_pair *pairs, int64_t n,
                           const weft_attn_run *run)
{
#pragma omp parallel for num_threads(run->threads) schedule(dynamic, 1)
    for (int g = 0; g < d->Hkv; g++) {
        int h0, h1;
        weft_attn_heads_of(d, g, &h0, &h1);
        for (int64_t a = 0; a < n; a++)
            for (int h = h0; h < h1; h++)
                for (int64_t i = 0; i < pairs[a].nq; i++) {
                    poll_now_and_then(run, i);
                    NAME(backward_row)(d, io, &pairs[a], i, h);
                }
    }
}

static const weft_attn_ops NAME(ops) = {"ref",           NAME(start), NAME(forward), NAME(finish),
                                        NAME(delta),     NAME(backward), work_bytes,   NAME(lse)};
