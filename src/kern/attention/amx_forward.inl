/* amx_forward.inl — forward with queries along the lanes, as in simd_forward.inl, on tiles:
 *   S^T[keys x lanes] = K Q^T      P^T = 2^(S^T - ref)      O^T[Dv x lanes] += V^T P^T
 * A strip is 16 lanes, one tile wide. For a block of keys, all strips of the task first make their P: the products of a
 * strip run between the exponentials of the strip before, since the processor's tile and vector units work side by
 * side only when their instructions are neighbours. K stays in the first-level cache meanwhile; then V^T takes its
 * place.
 *
 * The reference of a lane, in powers of two, is the maximum of the first block that shows the lane a key (its P is 1
 * exactly: a row with one key gets o = v). It stays although later keys may be larger: a P above 1 is as exact as one
 * below. Only a block whose P exceed LARGEST_SUM raises it. Memory has the natural m; what rounding leaves between the
 * two is put into l and acc. */

enum { STRIPS = LANES / TILE_ROWS, FWD_TILES = 8 /* tiles of queries that share packed keys; changes no result */ };
_Static_assert(VLEN == TILE_ROWS && LANES <= 128 && KEYS <= 128 && KEYS == (int)HELD * (int)PAIRS, "tiles");

static const float LARGEST_SUM = 0x1p32f;

typedef struct fwd_tile {
    lanes t;
    char *q, *ot, *p; /* B [STRIPS][chunks(D)], C [STRIPS][columns(Dv)], B [STRIPS][KEYS / PAIRS] */
    float ref[LANES], l[LANES];
    bool used;        /* any lane sees a key of the run of pairs */
    bool sees[LANES]; /* a key of the run */
    bool tame;        /* as `tame` in fwd_buffers, of q */
    drop_lanes drop;
    int c0, c1;       /* chunks of the block that any lane sees */
    rules r;          /* of these */
} fwd_tile;

typedef struct fwd_buffers {
    char *k, *vt;  /* A [chunks(D)][KEYS rows], A [columns(Dv)][KEYS / PAIRS] */
    char *s[2];    /* C [KEYS / 16] of a strip; two in turn */
    bool tame;     /* no element of k is so large that a product could be NaN */
    fwd_tile tile[FWD_TILES];
    const dropout *dropout;
    drop_block drop;
} fwd_buffers;

static size_t forward_tile_bytes(const weft_attn_desc *d)
{
    return (size_t)STRIPS * TILE * (size_t)(chunks(d->D) + columns(d->Dv) + KEYS / PAIRS);
}

static size_t forward_bytes(const weft_attn_desc *d)
{
    return (size_t)KEYS * 64 * (size_t)chunks(d->D) + (size_t)columns(d->Dv) * (KEYS / PAIRS) * TILE +
           2 * (size_t)(KEYS / TILE_ROWS) * TILE + FWD_TILES * forward_tile_bytes(d);
}

static char *carve(char **from, int64_t bytes)
{
    char *p = *from;
    *from += bytes;
    return p;
}

static void forward_carve(fwd_buffers *b, const weft_attn_desc *d, char *work)
{
    b->k = carve(&work, (int64_t)KEYS * 64 * chunks(d->D));
    b->vt = carve(&work, (int64_t)columns(d->Dv) * (KEYS / PAIRS) * TILE);
    for (int i = 0; i < 2; i++) b->s[i] = carve(&work, (KEYS / TILE_ROWS) * TILE);
    for (int i = 0; i < FWD_TILES; i++) {
        b->tile[i].q = carve(&work, (int64_t)STRIPS * chunks(d->D) * TILE);
        b->tile[i].ot = carve(&work, (int64_t)STRIPS * columns(d->Dv) * TILE);
        b->tile[i].p = carve(&work, (int64_t)STRIPS * (KEYS / PAIRS) * TILE);
    }
}

/* ---- state ---------------------------------------------------------------------------------------------------- */

/* Rows [16 lanes x Dv] of acc from or to the strip's O^T, times `by` per lane. */
static void strip_in(fwd_tile *f, int v, const weft_attn_desc *d, const float *acc, const float *by)
{
    for (int x = 0; x < columns(d->Dv); x++) {
        V r[VLEN];
        for (int i = 0; i < VLEN; i++) {
            const int lane = v * VLEN + i;
            const int64_t at = lane < f->t.n ? lane_at(&f->t, d, lane, d->Dv) + x * VLEN : 0;
            r[i] = lane < f->t.n ? vmul(vloadn(acc + at, d->Dv - x * VLEN), vset(by[i])) : vzero();
        }
        tile_turn(r, f->ot + ((int64_t)v * columns(d->Dv) + x) * TILE);
    }
}

static void strip_out(const fwd_tile *f, int v, const weft_attn_desc *d, float *acc, const float *by)
{
    for (int x = 0; x < columns(d->Dv); x++) {
        const float *ot = (const float *)(const void *)(f->ot + ((int64_t)v * columns(d->Dv) + x) * TILE);
        V r[VLEN];
        for (int i = 0; i < VLEN; i++) r[i] = vload(ot + i * VLEN);
        vtranspose(r);
        for (int i = 0; i < VLEN; i++) {
            const int lane = v * VLEN + i;
            if (lane >= f->t.n || !f->sees[lane]) continue;
            float *to = acc + lane_at(&f->t, d, lane, d->Dv) + x * VLEN;
            vstoren(to, vmul(r[i], vset(by[i])), d->Dv - x * VLEN);
        }
    }
}

/* Which lanes see a key of the n pairs: a call that shows a row nothing leaves its state as it was. */
static void sees_set(fwd_tile *f, const weft_attn_desc *d, const weft_attn_pair *p, int64_t n)
{
    int64_t lo, hi;
    for (int x = 0; x < f->t.n; x++) {
        f->sees[x] = x > 0 && f->t.row[x] == f->t.row[x - 1] && f->sees[x - 1];
        if (x > 0 && f->t.row[x] == f->t.row[x - 1]) continue;
        for (int64_t i = 0; i < n && !f->sees[x]; i++) {
            weft_attn_key_range(&d->mask, &p[i], f->t.pos[x], &lo, &hi);
            f->sees[x] = lo < hi;
        }
    }
}

static void state_in(fwd_tile *f, const weft_attn_desc *d, const weft_attn_fwd_io *io)
{
    for (int v = 0; v < f->t.nv; v++) {
        float m[VLEN], l[VLEN], by[VLEN];
        for (int i = 0; i < VLEN; i++) {
            const int x = v * VLEN + i;
            const int64_t at = x < f->t.n ? lane_at(&f->t, d, x, 1) : 0;
            m[i] = x < f->t.n ? ((const float *)io->m)[at] : 0; /* a lane without a row has a reference */
            l[i] = x < f->t.n ? ((const float *)io->l)[at] : 0;
        }
        V factor;
        vstore(f->ref + v * VLEN, to_base2(vload(m), &factor));
        vstore(f->l + v * VLEN, vmul(vload(l), factor));
        vstore(by, factor);
        strip_in(f, v, d, io->acc, by);
    }
}

static void state_out(const fwd_tile *f, const weft_attn_desc *d, const weft_attn_fwd_io *io)
{
    for (int v = 0; v < f->t.nv; v++) {
        float m[VLEN], l[VLEN], by[VLEN];
        V factor;
        vstore(m, from_base2(vload(f->ref + v * VLEN), &factor));
        vstore(l, vmul(vload(f->l + v * VLEN), factor));
        vstore(by, factor);
        for (int i = 0, x = v * VLEN; i < VLEN && x < f->t.n; i++, x++) {
            if (!f->sees[x]) continue;
            const int64_t at = lane_at(&f->t, d, x, 1);
            ((float *)io->m)[at] = m[i];
            ((float *)io->l)[at] = l[i];
        }
        strip_out(f, v, d, io->acc, by);
    }
}

/* ---- one strip against a block of keys ------------------------------------------------------------------------ */

typedef struct strip {
    fwd_tile *f;
    int v;
    char *s;     /* products, key by key */
    char *p;     /* B tiles of P^T */
    float scale; /* from what s holds to powers of two */
    bool quick;  /* worth trying the quick exponential */
} strip;

/* What is between the scores of a strip and its P. */
typedef struct weights {
    const float *s;
    char *p;
    V scale, ref, sum0, sum1, keep;
    __m512i order;
    const drop_block *drop;
} weights;

static inline int keys_of(const strip *u) { return (u->f->c1 - u->f->c0) * PAIRS; }

static weights weights_of(const strip *u, const fwd_buffers *b)
{
    const V ref = vload(u->f->ref + u->v * VLEN);
    return (weights){.s = (const float *)(const void *)u->s, .p = u->p, .scale = vset(u->scale),
                     /* nothing seen: subtract 0, so that -inf - -inf never happens */
                     .ref = vsel(veq(ref, vset(-INFINITY)), vzero(), ref), .sum0 = vzero(), .sum1 = vzero(),
                     .keep = vset(b->dropout->scale), .order = _mm512_loadu_si512(pair_order), .drop = &b->drop};
}

/* P of keys [j, j + n), n even. */
static inline __attribute__((always_inline)) void weights_some(weights *w, int j, const int n, const bool drop)
{
#pragma GCC unroll 8
    for (int i = j; i < j + n; i += 2) {
        V a = exp2_bf16(vfms(vload(w->s + i * VLEN), w->scale, w->ref));
        V b = exp2_bf16(vfms(vload(w->s + (i + 1) * VLEN), w->scale, w->ref));
        w->sum0 = vadd(w->sum0, a); /* of all keys, kept or not */
        w->sum1 = vadd(w->sum1, b);
        if (drop) a = drop_apply(w->drop, i, a, w->keep), b = drop_apply(w->drop, i + 1, b, w->keep);
        _mm512_store_si512(w->p + i / 2 * 64, pair_words(a, b, w->order));
    }
}

static V weights_all(const fwd_buffers *b, const strip *u, bool drop)
{
    weights w = weights_of(u, b);
    for (int j = 0; j < keys_of(u); j += TILE_ROWS) {
        if (drop) weights_some(&w, j, TILE_ROWS, true);
        else weights_some(&w, j, TILE_ROWS, false);
    }
    return vadd(w.sum0, w.sum1);
}

static quick quick_begin(const strip *u)
{
    return quick_of((const float *)(const void *)u->s, u->p, u->scale, vload(u->f->ref + u->v * VLEN));
}

/* What runs between products: the exponentials of a strip by either way. */
typedef struct beside {
    weights w;
    quick q;
} beside;

static inline __attribute__((always_inline)) void beside_some(beside *b, int j, const int n, const bool fast)
{
    if (fast) quick_some(&b->q, j, n);
    else weights_some(&b->w, j, n, false);
}

/* Products of `next` (n tiles of Q are held; the last part of D) between the exponentials of `now`, 16 keys of each in
 * turn. */
static inline __attribute__((always_inline)) sums_of_p scores_and_weights(const strip *next, stream k, const bool add,
                                                                          const int n, beside w, int count,
                                                                          const bool fast)
{
    const int jobs = (next->f->c1 - next->f->c0) * 2, half = n > 2 ? 2 : n, keys = n > 2 ? TILE_ROWS / 2 : TILE_ROWS;
    char *s = next->s;
    int j = 0;
    for (int x = 0; x < jobs; x += 2, s += 2 * TILE) {
        const char *p = k.at + x * k.job;
        const bool busy = j < count;
        sum0_start(add ? s : NULL);
        sum0_add(p, k.step, false, 0, half);
        if (x > 0) sum1_store(s - TILE);
        if (busy) beside_some(&w, j, keys, fast);
        if (n > 2) {
            sum0_add(p, k.step, false, half, n);
            if (busy) beside_some(&w, j + keys, keys, fast);
        }
        sum1_start(add ? s + TILE : NULL);
        sum1_add(p + k.job, k.step, false, 0, half);
        sum0_store(s);
        if (busy) beside_some(&w, j + TILE_ROWS, keys, fast);
        if (n > 2) {
            sum1_add(p + k.job, k.step, false, half, n);
            if (busy) beside_some(&w, j + TILE_ROWS + keys, keys, fast);
        }
        j += 2 * TILE_ROWS;
    }
    sum1_store(s - TILE);
    for (; j < count; j += TILE_ROWS) beside_some(&w, j, TILE_ROWS, fast);
    return fast ? quick_sums(&w.q) : (sums_of_p){vadd(w.w.sum0, w.w.sum1), vzero()};
}

/* S^T of `next`, and P of `now` (or NULL) whose sums are returned. */
static sums_of_p strip_scores(const fwd_buffers *b, const strip *next, const strip *now, int n)
{
    const int first = n - 1 - (n - 1) % HELD, last = n - first;
    const char *q = next->f->q + (int64_t)next->v * n * TILE;
    const stream k = {b->k + next->f->c0 * PAIRS * 64, (int64_t)KEYS * 64, TILE};
    if (first > 0) sums(next->s, TILE, q, TILE, k, (next->f->c1 - next->f->c0) * 2, first, false, false);
    const stream rest = {k.at + first * k.step, k.step, k.job};
    beside w = {0};
    const bool fast = now && now->quick;
    const int count = now ? keys_of(now) : 0;
    if (fast) w.q = quick_begin(now);
    else if (now) w.w = weights_of(now, b);
#define CASE(m) \
    if (last == (m)) { \
        hold(q + first * TILE, TILE, m); \
        if (first > 0 && fast) return scores_and_weights(next, rest, true, m, w, count, true); \
        if (first > 0) return scores_and_weights(next, rest, true, m, w, count, false); \
        if (fast) return scores_and_weights(next, rest, false, m, w, count, true); \
        return scores_and_weights(next, rest, false, m, w, count, false); \
    }
    CASE(1) CASE(2) CASE(3) CASE(4)
#undef CASE
    return (sums_of_p){vzero(), vzero()};
}

static V column_top(const strip *u)
{
    const float *s = (const float *)(const void *)u->s;
    const V scale = vset(u->scale);
    V top[2] = {vset(-INFINITY), vset(-INFINITY)};
    for (int j = 0; j < keys_of(u); j += 2)
        for (int i = 0; i < 2; i++) top[i] = vmax(vmul(vload(s + (j + i) * VLEN), scale), top[i]);
    return vmax(top[0], top[1]);
}

/* The reference of lanes that have none yet. */
static void set_reference(const strip *u)
{
    float *at = u->f->ref + u->v * VLEN;
    const V ref = vload(at);
    const VM none = veq(ref, vset(-INFINITY));
    if (vmask_any(none)) vstore(at, vsel(none, column_top(u), ref));
}

/* Products to what gives scores in powers of two when multiplied by the scale; hidden ones to what gives -inf. */
static void apply_rules(strip *u)
{
    const rules *r = &u->f->r;
    const bool linear = rules_linear(r);
    float *s = (float *)(void *)u->s;
    const V log2e = vset(LOG2E), hidden = vset(linear && r->scale < 0 ? INFINITY : -INFINITY);
    u->scale = linear || rules_plain(r) ? r->scale * LOG2E : 1;
    if (rules_plain(r)) return;
    for (int j = 0; j < keys_of(u); j++) {
        V unused, y = vload(s + j * VLEN);
        if (!linear) y = vmul(rules_score(r, y, j, u->v, &unused), log2e);
        if (r->masked) y = vsel(rules_visible(r, j, u->v), y, hidden);
        vstore(s + j * VLEN, y);
    }
}

/* l and O^T relative to another reference. */
static void change_reference(const strip *u, V to, int dv_tiles)
{
    float *ref = u->f->ref + u->v * VLEN, *l = u->f->l + u->v * VLEN;
    const V old = vload(ref), by = vsel(veq(old, to), vset(1), vexp2(vsub(old, to)));
    float *ot = (float *)(void *)(u->f->ot + (int64_t)u->v * dv_tiles * TILE);
    for (int x = 0; x < dv_tiles * TILE_ROWS; x++) vstore(ot + x * VLEN, vmul(vload(ot + x * VLEN), by));
    vstore(ref, to);
    vstore(l, vmul(vload(l), by));
}

/* The same scores again with the reference at their maximum. */
static V raise_reference(const fwd_buffers *b, const strip *u, int dv_tiles)
{
    change_reference(u, vmax(column_top(u), vload(u->f->ref + u->v * VLEN)), dv_tiles);
    return weights_all(b, u, b->dropout->on);
}

/* How many keys of the block the lanes see; not above 0 where none. */
static V keys_seen(const strip *u)
{
    const rules *r = &u->f->r;
    if (!r->masked) return vset((float)keys_of(u));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(vi_load(r->hi + u->v * VLEN), vi_load(r->lo + u->v * VLEN)));
}

/* After the exponentials: l. The quick ones are taken back where a lane's largest P is too much of its sum, or hardly
 * larger than the others; sums that are too large (or NaN, which stays NaN) raise the reference. */
static void strip_close(const fwd_buffers *b, const strip *u, sums_of_p got, int dv_tiles)
{
    float *l = u->f->l + u->v * VLEN;
    V sum = got.sum;
    if (u->quick && !quick_good(&got, vload(l), keys_seen(u))) sum = weights_all(b, u, false);
    if (vmask_bits(vle(sum, vset(LARGEST_SUM))) != 0xffff) sum = raise_reference(b, u, dv_tiles);
    vstore(l, vadd(vload(l), sum));
}

static void strip_open(fwd_buffers *b, strip *u, int dv_tiles)
{
    apply_rules(u);
    set_reference(u);
    const V ref = vload(u->f->ref + u->v * VLEN);
    u->quick = b->tame && u->f->tame && !b->dropout->on && quick_promises(ref, vload(u->f->l + u->v * VLEN));
    if (u->quick && vmask_bits(veq(ref, steps(ref))) != 0xffff) change_reference(u, steps(ref), dv_tiles);
    if (!b->dropout->on) return;
    drop_decide(&b->drop, b->dropout, &u->f->drop, u->v);
}

/* ---- tasks ---------------------------------------------------------------------------------------------------- */

/* `zeros`: rows of zeros follow key j1, which nobody sees. */
static void block_rules(rules *r, const weft_attn_desc *d, const weft_attn_pair *p, const lanes *t, int64_t j0,
                        int64_t j1, bool zeros)
{
    rules_set(r, d, p, t, j0, j1);
    if (r->masked || !zeros) return;
    r->masked = true;
    rules_lanes(r, d, p, t, j0, j1);
}

/* The chunks of keys [from, from + n) that the tile sees, and what its lanes need for them. Chunks begin at multiples
 * of 32 keys of the pair, whatever other tiles see: so bits do not depend on which tiles share a task. */
static void block_set(fwd_tile *f, const weft_attn_desc *d, const weft_attn_pair *p, int64_t from, int n)
{
    const int64_t lo = weft_max_i64(f->t.lo, from), hi = weft_min_i64(f->t.hi, from + n);
    f->c0 = f->c1 = 0;
    if (lo >= hi) return;
    f->c0 = (int)((lo - from) / PAIRS);
    f->c1 = (int)weft_ceil_div(hi - from, PAIRS);
    const int64_t j0 = from + f->c0 * PAIRS, j1 = weft_min_i64(p->nk, from + f->c1 * PAIRS);
    block_rules(&f->r, d, p, &f->t, j0, j1, from + f->c1 * PAIRS > p->nk);
}

static void make_weights(fwd_buffers *b, const weft_attn_desc *d, const weft_attn_pair *p, int64_t from, int tiles)
{
    strip two[2], *now = NULL;
    const int n = chunks(d->D), dv_tiles = columns(d->Dv);
    for (int i = 0, turn = 0; i < tiles; i++) {
        fwd_tile *f = &b->tile[i];
        if (f->c0 == f->c1) continue;
        for (int v = 0; v < f->t.nv; v++, turn ^= 1) {
            strip *u = &two[turn];
            *u = (strip){f, v, b->s[turn], f->p + (int64_t)v * (KEYS / PAIRS) * TILE, 0, false};
            const sums_of_p sum = strip_scores(b, u, now, n);
            if (now) strip_close(b, now, sum, dv_tiles);
            if (b->dropout->on && v == 0)
                drop_keys_set(&b->drop.keys, b->dropout, p, from + f->c0 * PAIRS,
                              weft_min_i64(p->nk, from + f->c1 * PAIRS));
            strip_open(b, u, dv_tiles);
            now = u;
            if (b->dropout->on) { /* a decision per pair costs more than what running side by side saves */
                strip_close(b, u, (sums_of_p){weights_all(b, u, true), vzero()}, dv_tiles);
                now = NULL;
            }
        }
    }
    if (!now) return;
    const sums_of_p last = now->quick ? quick_all(quick_begin(now), keys_of(now))
                                      : (sums_of_p){weights_all(b, now, false), vzero()};
    strip_close(b, now, last, dv_tiles);
}

static void add_values(fwd_buffers *b, const weft_attn_desc *d, int tiles)
{
    const int dv_tiles = columns(d->Dv);
    for (int i = 0; i < tiles; i++) {
        fwd_tile *f = &b->tile[i];
        const stream vt = {b->vt + f->c0 * TILE, TILE, (KEYS / PAIRS) * TILE};
        for (int v = 0; v < f->t.nv && f->c0 < f->c1; v++)
            sums(f->ot + (int64_t)v * dv_tiles * TILE, TILE, f->p + (int64_t)v * (KEYS / PAIRS) * TILE, TILE, vt,
                 dv_tiles, f->c1 - f->c0, false, true);
    }
}

static int64_t forward_tasks(const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int threads)
{
    return weft_ceil_div(tiles_of(p, gr), forward_tiles_per_task(d, p, gr, threads, FWD_TILES));
}

/* The task's tiles with their queries and state; returns their number. */
static int forward_tiles(fwd_buffers *b, const weft_attn_desc *d, const weft_attn_fwd_io *io, const task *t,
                         int threads)
{
    row_list rows;
    const int64_t per = forward_tiles_per_task(d, t->p, &t->gr, threads, FWD_TILES);
    const int64_t first = (t->tiles - 1 - t->tile) * per;
    const int n = (int)weft_min_i64(per, tiles_of(t->p, &t->gr) - first);
    for (int i = 0; i < n; i++) {
        fwd_tile *f = &b->tile[i];
        lanes_set(&f->t, d, t->p, &t->gr, first + i);
        f->used = lanes_see(&f->t, d, t->p, t->pairs);
        if (!f->used) continue; /* its state stays as it is, bit for bit */
        rows_of_lanes(rows, f->t.nv * VLEN, &f->t, io->q, io->q_ld, d->D);
        f->tame = pack_columns(f->q, rows, f->t.nv * VLEN, d->D);
        sees_set(f, d, t->p, t->pairs);
        state_in(f, d, io);
        if (b->dropout->on) drop_lanes_set(&f->drop, b->dropout, d, t->p, &f->t);
    }
    return n;
}

/* The n tiles against the keys of one pair of their run. */
static void forward_pair(fwd_buffers *b, int n, const weft_attn_desc *d, const weft_attn_fwd_io *io,
                         const weft_attn_pair *p, int g, const weft_attn_run *run, int me)
{
    row_list rows;
    bool seen[KEYS];
    int64_t lo = p->nk, hi = 0;
    for (int i = 0; i < n; i++) lanes_meet(&b->tile[i].t, d, p, &lo, &hi);
    for (int64_t from = lo / KEYS * KEYS; from < hi; from += KEYS) {
        const int keys = (int)weft_min_i64(KEYS, p->nk - from), height = chunks(keys) * PAIRS;
        for (int i = 0; i < n; i++) block_set(&b->tile[i], d, p, from, keys);
        memset(seen, 0, sizeof seen);
        for (int i = 0; i < n; i++) mark_seen(seen, b->tile[i].t.lo, b->tile[i].t.hi, from, keys);
        rows_of_keys(rows, height, io->k, io->k_ld, p->k_row + from, keys, g, d->D, seen);
        b->tame = pack_rows(b->k, rows, height, KEYS, d->D);
        make_weights(b, d, p, from, n);
        rows_of_keys(rows, height, io->v, io->v_ld, p->k_row + from, keys, g, d->Dv, seen);
        pack_turned(b->vt, rows, height, KEYS, d->Dv);
        add_values(b, d, n);
        if (me == 0 && run->poll) run->poll(run->poll_ud);
    }
}

static void forward_task(fwd_buffers *b, const weft_attn_desc *d, const weft_attn_fwd_io *io, const task *t,
                         const weft_attn_run *run, int me)
{
    const int n = forward_tiles(b, d, io, t, run->threads);
    for (int64_t i = 0; i < t->pairs; i++) forward_pair(b, n, d, io, &t->p[i], t->gr.g, run, me);
    for (int i = 0; i < n; i++)
        if (b->tile[i].used) state_out(&b->tile[i], d, io);
}
