#include "harness/attention_case.h"

#include <sys/mman.h>

/* Pitch of the operands' rows: more than their width, so that a kernel that ignores `ld` fails. */
enum { GAP = 3 };

static double *zeros(int64_t n)
{
    double *p = calloc((size_t)n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

/* ---- shapes --------------------------------------------------------------------------------------- */

void case_init(attention_case *c, int H, int Hkv, int D, int Dv)
{
    memset(c, 0, sizeof *c);
    c->d.H = H, c->d.Hkv = Hkv, c->d.D = D, c->d.Dv = Dv;
    c->d.group = H / Hkv;
    c->d.scale = 1 / sqrt(D);
    c->d.mask.left = c->d.mask.right = -1;
}

void case_add(attention_case *c, weft_attn_pair pair)
{
    assert_true(c->n < CASE_MAX_PAIRS);
    c->pair[c->n++] = pair;
    c->q_rows = weft_max_i64(c->q_rows, pair.q_row + pair.nq);
    c->k_rows = weft_max_i64(c->k_rows, pair.k_row + pair.nk);
}

void case_add_pair(attention_case *c, int64_t q_row, int64_t nq, int64_t q_pos, int64_t q_step, int64_t k_row,
                   int64_t nk, int64_t k_pos, int64_t k_step)
{
    case_add(c, (weft_attn_pair){.q_row = q_row, .nq = nq, .q_pos = q_pos, .q_run = 1, .q_step = q_step,
                                 .k_row = k_row, .nk = nk, .k_pos = k_pos, .k_run = 1, .k_step = k_step});
}

void case_end_call(attention_case *c)
{
    assert_true(c->calls < CASE_MAX_CALLS);
    c->call_end[c->calls++] = c->n;
}

void case_simple(attention_case *c, int64_t nq, int64_t nk)
{
    case_add_pair(c, 0, nq, weft_max_i64(0, nk - nq), 1, 0, nk, 0, 1);
    case_end_call(c);
}

void case_documents(attention_case *c, const int64_t *lengths, int n)
{
    int64_t row = 0;
    for (int i = 0; i < n; i++) {
        case_add(c, (weft_attn_pair){.q_row = row, .nq = lengths[i], .q_run = 1, .q_step = 1,
                                     .k_row = row, .nk = lengths[i], .k_run = 1, .k_step = 1, .base = row});
        row += lengths[i];
    }
    case_end_call(c);
}

/* Tokens of a share and the first of them; a cycle is one stripe of each share. */
static int64_t share(int64_t tokens, int parts, int64_t part, int64_t stripe, int64_t *first)
{
    *first = stripe ? part * stripe : part * tokens / parts;
    if (!stripe) return (part + 1) * tokens / parts - *first;
    int64_t rest = weft_max_i64(0, tokens - *first), cycle = parts * stripe;
    return rest / cycle * stripe + weft_min_i64(stripe, rest % cycle);
}

void case_ring(attention_case *c, int64_t tokens, int parts, int64_t stripe)
{
    int64_t first[CASE_MAX_CALLS], count[CASE_MAX_CALLS], row[CASE_MAX_CALLS] = {0};
    assert_true(parts < CASE_MAX_CALLS);
    for (int i = 0; i < parts; i++) {
        count[i] = share(tokens, parts, i, stripe, &first[i]);
        row[i + 1] = row[i] + count[i];
    }
    int64_t run = stripe ? stripe : 1, step = stripe ? parts * stripe : 1;
    for (int hop = 0; hop < parts; hop++) {
        for (int a = 0; a < parts; a++) {
            int b = (a + hop) % parts;
            case_add(c, (weft_attn_pair){
                .q_row = row[a], .nq = count[a], .q_pos = first[a], .q_run = run, .q_step = step,
                .k_row = row[b], .nk = count[b], .k_pos = first[b], .k_run = run, .k_step = step});
        }
        case_end_call(c);
    }
}

/* ---- operands ------------------------------------------------------------------------------------- */

static double *normals(int64_t n, uint64_t seed, double size, bool bits16)
{
    double *x = zeros(n);
    for (int64_t i = 0; i < n; i++) {
        double z = size * test_normal(seed, i);
        x[i] = bits16 ? (double)weft_bf16_to_f32(weft_f32_to_bf16((float)z)) : (double)(float)z;
        if (bits16 && fabs(x[i]) < 0x1p-13) x[i] = 0; /* fp16 would round what bf16 holds */
    }
    return x;
}

void case_operands(attention_case *c, bool bits16, uint64_t seed, double q_size, bool sinks, bool alibi)
{
    const weft_attn_desc *d = &c->d;
    c->q = normals(c->q_rows * d->H * d->D, seed, q_size, bits16);
    c->k = normals(c->k_rows * d->Hkv * d->D, seed + 1, 1, bits16);
    c->v = normals(c->k_rows * d->Hkv * d->Dv, seed + 2, 1, bits16);
    c->dout = normals(c->q_rows * d->H * d->Dv, seed + 3, 1, bits16);
    if (sinks) c->sinks = normals(d->H, seed + 4, 1, false);
    if (alibi) {
        c->alibi = zeros(d->H);
        for (int h = 0; h < d->H; h++) c->alibi[h] = ldexp(1, -1 - h);
    }
}

void case_fill(attention_case *c, bool bits16, uint64_t seed, double q_size, bool sinks, bool alibi)
{
    case_operands(c, bits16, seed, q_size, sinks, alibi);
    case_answer(c);
}

void case_clear(attention_case *c)
{
    free(c->q), free(c->k), free(c->v), free(c->dout), free(c->sinks), free(c->alibi);
    c->q = c->k = c->v = c->dout = c->sinks = c->alibi = NULL;
    result_free(&c->want);
    result_free(&c->moduli);
}

attention_result result_new(const attention_case *c)
{
    const weft_attn_desc *d = &c->d;
    return (attention_result){.o = zeros(c->q_rows * d->H * d->Dv),
                              .lse = zeros(c->q_rows * d->H),
                              .dq = zeros(c->q_rows * d->H * d->D),
                              .dk = zeros(c->k_rows * d->Hkv * d->D),
                              .dv = zeros(c->k_rows * d->Hkv * d->Dv),
                              .dsinks = zeros(d->H)};
}

void result_free(attention_result *r)
{
    free(r->o), free(r->lse), free(r->dq), free(r->dk), free(r->dv), free(r->dsinks);
    memset(r, 0, sizeof *r);
}

/* ---- the answer ----------------------------------------------------------------------------------- */

static double dot(const double *a, const double *b, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

static int64_t position(int64_t pos, int64_t run, int64_t step, int64_t i) { return pos + i / run * step + i % run; }

/* By the address of philox.h, not through weft_attn_kept. Words are compared as the integers that they are. */
bool case_kept(const attention_case *c, const weft_attn_pair *p, int64_t i, int h, int64_t x)
{
    if (c->d.dropout == 0) return true;
    int64_t q = p->base + position(p->q_pos, p->q_run, p->q_step, i - p->q_row);
    int64_t k = p->base + position(p->k_pos, p->k_run, p->k_step, x);
    uint32_t head = (uint32_t)(c->d.head0 + h);
    uint32_t word2 = p->sample % 65536 + head * 65536;
    weft_philox_out word = weft_philox(c->d.seed, (uint32_t)(k / 4), (uint32_t)q, word2, c->word3);
    return ldexp((double)word.w[k % 4], -32) >= c->d.dropout;
}

bool case_visible(const attention_case *c, const weft_attn_pair *p, int64_t i, int64_t x)
{
    const weft_mask *m = &c->d.mask;
    int64_t q = position(p->q_pos, p->q_run, p->q_step, i - p->q_row), k = position(p->k_pos, p->k_run, p->k_step, x);
    if (m->left >= 0 && q - k > m->left) return false;
    if (m->right >= 0 && k - q > m->right) return false;
    return !m->causal || k <= q || k < m->prefix;
}

static double modulus_dot(const double *a, const double *b, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += fabs(a[i] * b[i]);
    return s;
}

/* Scores of row i of head h against all keys, -inf where hidden; t = tanh of softcap; keep: what dropout multiplies
 * the weight by. */
static void scores(attention_case *c, int64_t i, int h, double *s, double *t, double *keep)
{
    const weft_attn_desc *d = &c->d;
    int g = (d->head0 + h) / d->group - d->kv_head0;
    for (int64_t j = 0; j < c->k_rows; j++) s[j] = -INFINITY, t[j] = 0, keep[j] = 0;
    for (int a = 0; a < c->n; a++) {
        const weft_attn_pair *p = &c->pair[a];
        if (i < p->q_row || i >= p->q_row + p->nq) continue;
        int64_t qpos = position(p->q_pos, p->q_run, p->q_step, i - p->q_row);
        for (int64_t x = 0; x < p->nk; x++) {
            int64_t kpos = position(p->k_pos, p->k_run, p->k_step, x), j = p->k_row + x;
            if (!case_visible(c, p, i, x)) continue;
            const double *q = c->q + (i * d->H + h) * d->D, *k = c->k + (j * d->Hkv + g) * d->D;
            double y = d->scale * dot(q, k, d->D), bias = c->alibi ? c->alibi[h] * fabs((double)(qpos - kpos)) : 0;
            if (c->conditioned)
                c->score_moduli = fmax(c->score_moduli, fabs(d->scale) * modulus_dot(q, k, d->D) + d->softcap + bias);
            if (d->softcap > 0) t[j] = tanh(y / d->softcap), y = d->softcap * t[j];
            y -= bias;
            s[j] = y;
            keep[j] = case_kept(c, p, i, h, x) ? 1 / (1 - d->dropout) : 0;
        }
    }
}

/* The sums of answer_row over moduli, for the weights p of a row. */
static void moduli_row(attention_case *c, int64_t i, int h, const double *p, double sink, const double *keep)
{
    const weft_attn_desc *d = &c->d;
    attention_result *w = &c->moduli;
    int g = (d->head0 + h) / d->group - d->kv_head0;
    int64_t at = i * d->H + h;
    double *o = w->o + at * d->Dv, *dq = w->dq + at * d->D, *dout = c->dout + at * d->Dv, *q = c->q + at * d->D;
    for (int64_t j = 0; j < c->k_rows; j++)
        for (int x = 0; x < d->Dv && p[j] != 0; x++) o[x] += keep[j] * p[j] * fabs(c->v[(j * d->Hkv + g) * d->Dv + x]);
    double delta = modulus_dot(o, dout, d->Dv);
    if (c->sinks) w->dsinks[h] += sink * delta;
    for (int64_t j = 0; j < c->k_rows; j++) {
        if (p[j] == 0) continue;
        int64_t key = j * d->Hkv + g;
        const double *k = c->k + key * d->D;
        double ds = p[j] * (keep[j] * modulus_dot(dout, c->v + key * d->Dv, d->Dv) + delta) * fabs(d->scale);
        for (int x = 0; x < d->Dv; x++) w->dv[key * d->Dv + x] += keep[j] * p[j] * fabs(dout[x]);
        for (int x = 0; x < d->D; x++) {
            dq[x] += ds * fabs(k[x]);
            w->dk[key * d->D + x] += ds * fabs(q[x]);
        }
    }
}

static void answer_row(attention_case *c, int64_t i, int h, double *s, double *t, double *keep)
{
    const weft_attn_desc *d = &c->d;
    attention_result *w = &c->want;
    int g = (d->head0 + h) / d->group - d->kv_head0;
    int64_t at = i * d->H + h;
    double *o = w->o + at * d->Dv, *dq = w->dq + at * d->D, *dout = c->dout + at * d->Dv, *q = c->q + at * d->D;
    scores(c, i, h, s, t, keep);
    double top = c->sinks ? c->sinks[h] : -INFINITY, sum = 0, delta = 0;
    for (int64_t j = 0; j < c->k_rows; j++) top = fmax(top, s[j]);
    w->lse[at] = -INFINITY;
    if (top == -INFINITY) return;
    for (int64_t j = 0; j < c->k_rows; j++) sum += exp(s[j] - top);
    if (c->sinks) sum += exp(c->sinks[h] - top);
    w->lse[at] = top + log(sum);
    for (int64_t j = 0; j < c->k_rows; j++) {
        s[j] = exp(s[j] - top) / sum;
        for (int x = 0; x < d->Dv && s[j] != 0; x++) o[x] += keep[j] * s[j] * c->v[(j * d->Hkv + g) * d->Dv + x];
    }
    if (c->conditioned) moduli_row(c, i, h, s, c->sinks ? exp(c->sinks[h] - top) / sum : 0, keep);
    delta = dot(o, dout, d->Dv);
    if (c->sinks) w->dsinks[h] -= exp(c->sinks[h] - top) / sum * delta;
    for (int64_t j = 0; j < c->k_rows; j++) {
        if (s[j] == 0) continue;
        int64_t key = j * d->Hkv + g;
        double dp = keep[j] * dot(dout, c->v + key * d->Dv, d->Dv);
        double ds = s[j] * (dp - delta) * (1 - t[j] * t[j]) * d->scale;
        for (int x = 0; x < d->Dv; x++) w->dv[key * d->Dv + x] += keep[j] * s[j] * dout[x];
        for (int x = 0; x < d->D; x++) {
            dq[x] += ds * c->k[key * d->D + x];
            w->dk[key * d->D + x] += ds * q[x];
        }
    }
}

void case_answer(attention_case *c)
{
    result_free(&c->want);
    c->want = result_new(c);
    if (c->conditioned) {
        result_free(&c->moduli);
        c->moduli = result_new(c);
        c->score_moduli = 0;
    }
    double *s = zeros(c->k_rows), *t = zeros(c->k_rows), *keep = zeros(c->k_rows);
    for (int64_t i = 0; i < c->q_rows; i++)
        for (int h = 0; h < c->d.H; h++) answer_row(c, i, h, s, t, keep);
    free(s), free(t), free(keep);
}

/* ---- a kernel's run ------------------------------------------------------------------------------- */

/* n elements of NaN. */
static void *nans(const attention_case *c, int64_t n, weft_dtype t)
{
    size_t size = weft_dtype_size(t);
    return place_new((size_t)n * size, size, c->side);
}

/* Elements from one row of operands to the next. */
static int64_t pitch_of(const attention_case *c, int64_t width) { return c->pitch ? c->pitch : width + GAP; }

/* Rows of operands, all NaN, and nothing behind the last one; far apart they are not there but for the pages that are
 * touched, and 0. */
static void *rows_of(const attention_case *c, int64_t rows, int64_t width, weft_dtype t)
{
    if (!c->pitch) return nans(c, rows ? rows * (width + GAP) - GAP : 0, t);
    void *p = mmap(NULL, (size_t)(rows * c->pitch) * weft_dtype_size(t), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        fail_msg("no address space for %lld rows of %lld elements", (long long)rows, (long long)c->pitch);
    return p;
}

static void free_rows(const attention_case *c, void *p, int64_t rows, weft_dtype t)
{
    if (c->pitch) munmap(p, (size_t)(rows * c->pitch) * weft_dtype_size(t));
    else place_free(p);
}

/* Dense double rows into rows of operands of type t. */
static void *pitched(const attention_case *c, const double *x, int64_t rows, int64_t width, weft_dtype t)
{
    void *p = rows_of(c, rows, width, t);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j++) weft_store(p, t, i * pitch_of(c, width) + j, x[i * width + j]);
    return p;
}

static void *converted(const attention_case *c, const double *x, int64_t n, weft_dtype t)
{
    if (!x) return NULL;
    void *p = nans(c, n, t);
    for (int64_t i = 0; i < n; i++) weft_store(p, t, i, x[i]);
    return p;
}

static void *cleared(const attention_case *c, int64_t n, weft_dtype t)
{
    void *p = nans(c, n, t);
    memset(p, 0, (size_t)n * weft_dtype_size(t));
    return p;
}

/* The gaps of an output must be as they were. */
static void check_gaps(const attention_case *c, const void *x, int64_t rows, int64_t width, weft_dtype t)
{
    for (int64_t i = 0; i + 1 < rows && !c->pitch; i++)
        for (int64_t j = width; j < width + GAP; j++)
            if (!isnan(weft_load(x, t, i * (width + GAP) + j))) fail_msg("the gap behind row %d was written", (int)i);
}

static void take(double *out, const void *x, int64_t rows, int64_t width, int64_t pitch, weft_dtype t)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j++) out[i * width + j] = weft_load(x, t, i * pitch + j);
}

static void run_forward(const attention_case *c, const weft_attn_ops *ops, const weft_attn_desc *d,
                        const weft_attn_fwd_io *io, const weft_attn_run *run)
{
    weft_attn_pair sorted[CASE_MAX_PAIRS];
    int n = 0;
    for (int64_t row = 0; c->runs && row < c->q_rows; row++)
        for (int i = 0; i < c->n; i++)
            if (c->pair[i].q_row == row && c->pair[i].nq > 0) sorted[n++] = c->pair[i];
    if (c->runs) ops->forward(d, io, sorted, n, run);
    for (int i = 0, from = 0; !c->runs && i < c->calls; from = c->call_end[i++])
        ops->forward(d, io, c->pair + from, c->call_end[i] - from, run);
}

void case_run(const attention_case *c, const weft_attn_ops *ops, weft_prec prec, int threads, attention_result *out)
{
    weft_attn_desc d = c->d;
    weft_dtype C = weft_prec_compute(prec), R = weft_prec_real(prec);
    int64_t qn = c->q_rows, kn = c->k_rows, qw = (int64_t)d.H * d.D, ow = (int64_t)d.H * d.Dv;
    int64_t kw = (int64_t)d.Hkv * d.D, vw = (int64_t)d.Hkv * d.Dv;
    int64_t q_ld = pitch_of(c, qw), k_ld = pitch_of(c, kw), v_ld = pitch_of(c, vw), o_ld = pitch_of(c, ow);
    void *q = pitched(c, c->q, qn, qw, C), *k = pitched(c, c->k, kn, kw, C), *v = pitched(c, c->v, kn, vw, C);
    void *dout = pitched(c, c->dout, qn, ow, C), *o = rows_of(c, qn, ow, C), *sinks = converted(c, c->sinks, d.H, R);
    void *alibi = converted(c, c->alibi, d.H, R), *acc = nans(c, qn * ow, R), *m = nans(c, qn * d.H, R);
    void *l = nans(c, qn * d.H, R), *lse = nans(c, qn * d.H, R), *delta = nans(c, qn * d.H, R);
    void *dsinks = cleared(c, d.H, R), *dq = cleared(c, qn * qw, R), *dk = cleared(c, kn * kw, R);
    void *dv = cleared(c, kn * vw, R);
    d.alibi = alibi;
    assert_ok(weft_attn_check(&d, prec));
    void *work = place_new(ops->work_bytes(&d, threads), 64, c->side);

    weft_attn_run run = {.work = work, .threads = threads};
    weft_attn_fwd_io f = {q, k, v, q_ld, k_ld, v_ld, acc, m, l, c->word3};
    weft_attn_bwd_io b = {q, k, v, dout, q_ld, k_ld, v_ld, o_ld, m, l, delta, dq, dk, dv, c->word3};
    ops->start(&d, acc, m, l, qn);
    run_forward(c, ops, &d, &f, &run);
    ops->finish(&d, o, o_ld, lse, acc, m, l, sinks, qn, threads);
    ops->delta(&d, delta, sinks ? dsinks : NULL, sinks, dout, o_ld, o, o_ld, m, l, qn, threads);
    for (int i = 0, from = 0; i < c->calls; from = c->call_end[i++])
        ops->backward(&d, &b, c->pair + from, c->call_end[i] - from, &run);

    check_gaps(c, o, qn, ow, C);
    take(out->o, o, qn, ow, o_ld, C);
    take(out->lse, lse, qn, d.H, d.H, R);
    take(out->dq, dq, qn, qw, qw, R), take(out->dk, dk, kn, kw, kw, R), take(out->dv, dv, kn, vw, vw, R);
    take(out->dsinks, dsinks, 1, d.H, d.H, R);
    void *operands[] = {q, k, v, dout, o}, *all[] = {sinks, alibi, acc, m, l, lse, delta, dsinks, dq, dk, dv, work};
    for (int i = 0; i < 5; i++) free_rows(c, operands[i], i == 1 || i == 2 ? kn : qn, C);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) place_free(all[i]);
}

/* ---- comparison ----------------------------------------------------------------------------------- */

static void check_one(const char *what, const char *name, const double *x, const double *want, int64_t n, double floor,
                      double limit)
{
    double e = weft_rel_l2(x, WEFT_F64, want, WEFT_F64, n, floor);
    if (!(e <= limit)) fail_msg("%s: error of %s is %.3e > %.3e", what, name, e, limit);
}

void case_check(const attention_case *c, const attention_result *r, double limit, double lse_limit, const char *what)
{
    const weft_attn_desc *d = &c->d;
    const attention_result *w = &c->want;
    int64_t on = c->q_rows * d->H * d->Dv;
    double floor = weft_norm2(c->dout, WEFT_F64, on) / 100;
    check_one(what, "o", r->o, w->o, on, floor, limit);
    check_one(what, "dq", r->dq, w->dq, c->q_rows * d->H * d->D, floor, limit);
    check_one(what, "dk", r->dk, w->dk, c->k_rows * d->Hkv * d->D, floor, limit);
    check_one(what, "dv", r->dv, w->dv, c->k_rows * d->Hkv * d->Dv, floor, limit);
    /* a sum over rows of products of either sign: its error is that of its terms, not of what remains */
    if (c->sinks) check_one(what, "dsinks", r->dsinks, w->dsinks, d->H, floor, 3 * limit);
    double e = weft_max_scaled(r->lse, WEFT_F64, w->lse, WEFT_F64, c->q_rows * d->H);
    if (!(e <= lse_limit)) fail_msg("%s: error of lse is %.3e > %.3e", what, e, lse_limit);
}

void case_check_same(const attention_case *c, const attention_result *a, const attention_result *b, const char *what)
{
    const weft_attn_desc *d = &c->d;
    size_t on = (size_t)(c->q_rows * d->H * d->Dv), qn = (size_t)(c->q_rows * d->H * d->D);
    size_t kn = (size_t)(c->k_rows * d->Hkv * d->D), vn = (size_t)(c->k_rows * d->Hkv * d->Dv);
    if (memcmp(a->o, b->o, on * sizeof(double)) || memcmp(a->dq, b->dq, qn * sizeof(double)) ||
        memcmp(a->dk, b->dk, kn * sizeof(double)) || memcmp(a->dv, b->dv, vn * sizeof(double)) ||
        memcmp(a->lse, b->lse, (size_t)(c->q_rows * d->H) * sizeof(double)) ||
        memcmp(a->dsinks, b->dsinks, (size_t)d->H * sizeof(double)))
        fail_msg("%s: the bits differ", what);
}
