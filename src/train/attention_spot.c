/* attention_spot.c — a made case checked in double precision at any length.
 *
 * Only the rows in c->spot have an output gradient. So dS of every other row is exactly 0, and O, dQ of the spots and
 * the whole of dK, dV follow from the spots' scores alone: O(spots T H D) instead of O(T^2). Every rank walks over its
 * own keys; maxima, sums and the spots' own results are put together by all-reduces in double. Nothing here knows of
 * segments, strategies or kernels: visibility comes from token numbers. */
#include "train/attention_case.h"

#include <math.h>
#include <string.h>

typedef struct spot_row { /* where a query stands */
    int64_t b, doc, pos, token; /* token: of the row, counted with the keys */
} spot_row;

typedef struct spots {
    const weft_attention_case *c;
    int64_t n, keys;        /* spots; keys of this rank */
    int64_t *index, *pos;   /* [keys] */
    int64_t *doc;           /* [keys] */
    spot_row *row;          /* [n] */
    double *q, *dout;       /* [n, H, D], [n, H, Dv] */
    double *p, *slope;      /* [n, H, keys]: score, then probability; derivative of the softcap */
    double *m, *l, *o, *dq; /* [n, H], [n, H], [n, H, Dv], [n, H, D] */
    double *dk, *dv;        /* [keys, Hkv, D], [keys, Hkv, Dv] */
    double dq_terms, dk_terms; /* sums of squares over own keys: of what dQ and dK are added up from (see terms_of) */
    double *dsinks;         /* [H] */
} spots;

/* The last document that begins at or before the token: empty ones end before it. */
static int64_t document_of(const weft_docs *docs, int64_t b, int64_t token, int64_t *begin)
{
    const int64_t *cu = docs->cu + docs->first[b];
    int64_t lo = 0, hi = docs->first[b + 1] - docs->first[b] - 1;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (cu[mid] <= token) lo = mid;
        else hi = mid;
    }
    *begin = cu[lo];
    return lo;
}

static weft_status alloc(spots *s, weft_arena *arena)
{
    const weft_cp_problem *p = &s->c->problem;
    int64_t nh = s->n * p->H;
    WEFT_TRY(WEFT_NEW(arena, s->keys, "spot keys", &s->index));
    WEFT_TRY(WEFT_NEW(arena, s->keys, "spot keys", &s->pos));
    WEFT_TRY(WEFT_NEW(arena, s->keys, "spot keys", &s->doc));
    WEFT_TRY(WEFT_NEW(arena, s->n, "spots", &s->row));
    WEFT_TRY(WEFT_NEW(arena, nh * p->D, "spots", &s->q));
    WEFT_TRY(WEFT_NEW(arena, nh * p->Dv, "spots", &s->dout));
    WEFT_TRY(WEFT_NEW(arena, nh * s->keys, "spot scores", &s->p));
    WEFT_TRY(WEFT_NEW(arena, nh * s->keys, "spot scores", &s->slope));
    WEFT_TRY(WEFT_NEW(arena, nh, "spots", &s->m));
    WEFT_TRY(WEFT_NEW0(arena, nh, "spots", &s->l));
    WEFT_TRY(WEFT_NEW0(arena, nh * p->Dv, "spots", &s->o));
    WEFT_TRY(WEFT_NEW0(arena, nh * p->D, "spots", &s->dq));
    WEFT_TRY(WEFT_NEW0(arena, s->keys * p->Hkv * p->D, "spot dK", &s->dk));
    WEFT_TRY(WEFT_NEW0(arena, s->keys * p->Hkv * p->Dv, "spot dV", &s->dv));
    return WEFT_NEW0(arena, p->H, "spots", &s->dsinks);
}

static weft_status load_row(const weft_attention_case *c, weft_arena *arena, int tensor, int64_t token, double *to)
{
    void *row = NULL;
    int64_t width = weft__case_width(c, tensor);
    weft_mark mark = weft_arena_mark(arena);
    WEFT_TRY(weft_arena_alloc(arena, width, weft_dtype_size(c->C), "spot row", &row));
    weft__case_value(c, tensor, token, row);
    weft_convert(to, WEFT_F64, row, c->C, width);
    weft_arena_release(arena, mark);
    return WEFT_OK;
}

static weft_status load(spots *s, weft_arena *arena)
{
    const weft_attention_case *c = s->c;
    const weft_cp_problem *p = &c->problem;
    int64_t begin = 0;
    weft_shard_tokens(&c->shard_kv, weft_comm_rank(c->comm), s->index, s->pos);
    for (int64_t j = 0; j < s->keys; j++)
        s->doc[j] = document_of(&c->docs, s->index[j] / p->T, s->index[j] % p->T, &begin);
    for (int64_t i = 0; i < s->n; i++) {
        spot_row *r = &s->row[i];
        r->b = c->spot[i] / p->Tq;
        r->token = c->spot[i] % p->Tq + p->T - p->Tq;
        r->doc = document_of(&c->docs, r->b, r->token, &begin);
        r->pos = r->token - begin;
        WEFT_TRY(load_row(c, arena, WEFT_CASE_Q, c->spot[i], s->q + i * p->H * p->D));
        WEFT_TRY(load_row(c, arena, WEFT_CASE_DO, c->spot[i], s->dout + i * p->H * p->Dv));
    }
    return WEFT_OK;
}

static double dot(const double *a, const void *b, weft_dtype t, int64_t at, int n)
{
    double sum = 0;
    for (int x = 0; x < n; x++) sum += a[x] * weft_load(b, t, at + x);
    return sum;
}

/* What the score of a pair is, and how much of its derivative the softcap lets through. */
static double score_of(const spots *s, int64_t i, int h, int64_t j, double *slope)
{
    const weft_attention_case *c = s->c;
    const weft_cp_problem *p = &c->problem;
    const spot_row *r = &s->row[i];
    int64_t g = h / (p->H / p->Hkv);
    *slope = 1;
    if (s->index[j] / p->T != r->b || s->doc[j] != r->doc || !weft_visible(&p->mask, r->pos, s->pos[j]))
        return -INFINITY;
    double y = p->scale * dot(s->q + (i * p->H + h) * p->D, c->mine[WEFT_CASE_K], c->C, (j * p->Hkv + g) * p->D, p->D);
    if (p->softcap > 0) {
        double t = tanh(y / p->softcap);
        y = p->softcap * t;
        *slope = 1 - t * t;
    }
    return c->alibi ? y - weft_load(c->alibi, c->R, h) * fabs((double)(r->pos - s->pos[j])) : y;
}

static double sink_of(const spots *s, int64_t x)
{
    return s->c->sinks ? weft_load(s->c->sinks, s->c->R, x % s->c->problem.H) : -INFINITY;
}

/* Probabilities of all pairs, in place of the scores. */
static weft_status probabilities(spots *s)
{
    int H = s->c->problem.H;
    int64_t nh = s->n * H;
    for (int64_t x = 0; x < nh; x++) {
        s->m[x] = sink_of(s, x);
        for (int64_t j = 0, at = x * s->keys; j < s->keys; j++, at++) {
            s->p[at] = score_of(s, x / H, (int)(x % H), j, &s->slope[at]);
            if (s->p[at] > s->m[x]) s->m[x] = s->p[at];
        }
    }
    WEFT_TRY(weft_all_reduce(s->c->comm, s->m, nh, WEFT_F64, WEFT_MAX));
    for (int64_t x = 0; x < nh; x++)
        for (int64_t j = 0, at = x * s->keys; j < s->keys; j++, at++) {
            s->p[at] = s->p[at] == -INFINITY ? 0 : exp(s->p[at] - s->m[x]); /* -inf - -inf must not happen */
            s->l[x] += s->p[at];
        }
    WEFT_TRY(weft_all_reduce(s->c->comm, s->l, nh, WEFT_F64, WEFT_SUM));
    for (int64_t x = 0; x < nh; x++) {
        if (s->c->sinks) s->l[x] += exp(sink_of(s, x) - s->m[x]);
        for (int64_t j = 0, at = x * s->keys; j < s->keys && s->l[x] > 0; j++, at++) s->p[at] /= s->l[x];
    }
    return WEFT_OK;
}

/* 1 / (1 - dropout) for a pair that dropout keeps, 0 for one that it drops, 1 without dropout. */
static double kept(const spots *s, int64_t i, int h, int64_t j)
{
    const weft_cp_problem *p = &s->c->problem;
    if (p->dropout == 0) return 1;
    bool keep = weft_attn_kept(p->dropout, p->seed, weft_philox_word3(0, 0, WEFT_SITE_DROP_ATTENTION),
                               (uint32_t)s->row[i].b, (uint32_t)h, s->row[i].token, s->index[j] % p->T);
    return keep ? 1 / (1 - p->dropout) : 0;
}

static weft_status outputs(spots *s)
{
    const weft_attention_case *c = s->c;
    const weft_cp_problem *p = &c->problem;
    for (int64_t x = 0; x < s->n * p->H; x++) {
        int64_t i = x / p->H, g = x % p->H / (p->H / p->Hkv);
        for (int64_t j = 0; j < s->keys; j++) {
            double w = s->p[x * s->keys + j];
            if (w == 0) continue;
            w *= kept(s, i, (int)(x % p->H), j);
            for (int d = 0; d < p->Dv; d++)
                s->o[x * p->Dv + d] += w * weft_load(c->mine[WEFT_CASE_V], c->C, (j * p->Hkv + g) * p->Dv + d);
        }
    }
    return weft_all_reduce(c->comm, s->o, s->n * p->H * p->Dv, WEFT_F64, WEFT_SUM);
}

/* The square of what dS = scale P (dP - delta) slope is made of before it cancels. dP and delta are dot products, each
 * rounded as its own products are large; their difference may be nothing at all: a query that sees one key has
 * dP = delta and dQ = dK = 0, and what is computed of it is that rounding alone. The slope 1 - tanh^2 of a softcap is a
 * difference, too, of 1 and almost 1. So an error of dQ and dK can be judged against these terms only. Added as
 * squares, as roundings of either sign add up: where nothing cancels, that is one to two times the norm of the gradient
 * itself, and the limit hardly less sharp than without. */
static double terms_of(const spots *s, int64_t x, int64_t j, double keep, double difference)
{
    const weft_attention_case *c = s->c;
    const weft_cp_problem *p = &c->problem;
    int64_t key = j * p->Hkv + x % p->H / (p->H / p->Hkv);
    double sum = 0, slope = s->slope[x * s->keys + j], scale = p->scale * s->p[x * s->keys + j];
    for (int d = 0; d < p->Dv; d++) {
        double in_dp = keep * weft_load(c->mine[WEFT_CASE_V], c->C, key * p->Dv + d), in_delta = s->o[x * p->Dv + d];
        sum += s->dout[x * p->Dv + d] * s->dout[x * p->Dv + d] * (in_dp * in_dp + in_delta * in_delta);
    }
    return scale * scale * (slope * slope * sum + (p->softcap > 0 ? difference * difference : 0));
}

static double square_sum(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}

/* What one pair of a spot and an own key adds to dQ, dK, dV. */
static void pair_gradient(spots *s, int64_t x, int64_t j, double delta)
{
    const weft_attention_case *c = s->c;
    const weft_cp_problem *p = &c->problem;
    int64_t i = x / p->H, key = j * p->Hkv + x % p->H / (p->H / p->Hkv);
    double w = s->p[x * s->keys + j], keep = kept(s, i, (int)(x % p->H), j);
    const double *dout = s->dout + x * p->Dv, *q = s->q + x * p->D;
    double dp = keep * dot(dout, c->mine[WEFT_CASE_V], c->C, key * p->Dv, p->Dv);
    double ds = p->scale * w * (dp - delta) * s->slope[x * s->keys + j], k[WEFT_ATTN_MAX_D];
    double terms = terms_of(s, x, j, keep, dp - delta);
    const char *rows = c->mine[WEFT_CASE_K];
    weft_convert(k, WEFT_F64, rows + (size_t)(key * p->D) * weft_dtype_size(c->C), c->C, p->D);
    s->dq_terms += terms * square_sum(k, p->D);
    s->dk_terms += terms * square_sum(q, p->D);
    for (int d = 0; d < p->Dv; d++) s->dv[key * p->Dv + d] += keep * w * dout[d];
    for (int d = 0; d < p->D; d++) {
        s->dk[key * p->D + d] += ds * q[d];
        s->dq[x * p->D + d] += ds * k[d];
    }
}

static weft_status gradients(spots *s)
{
    const weft_attention_case *c = s->c;
    const weft_cp_problem *p = &c->problem;
    for (int64_t x = 0; x < s->n * p->H; x++) {
        double delta = 0;
        for (int d = 0; d < p->Dv; d++) delta += s->dout[x * p->Dv + d] * s->o[x * p->Dv + d];
        for (int64_t j = 0; j < s->keys; j++)
            if (s->p[x * s->keys + j] != 0) pair_gradient(s, x, j, delta);
        if (c->sinks) s->dsinks[x % p->H] -= exp(sink_of(s, x) - s->m[x]) / s->l[x] * delta;
    }
    WEFT_TRY(weft_all_reduce(c->comm, &s->dq_terms, 1, WEFT_F64, WEFT_SUM));
    WEFT_TRY(weft_all_reduce(c->comm, &s->dk_terms, 1, WEFT_F64, WEFT_SUM));
    return weft_all_reduce(c->comm, s->dq, s->n * p->H * p->D, WEFT_F64, WEFT_SUM);
}

/* ---- comparison ------------------------------------------------------------------------------------- */

typedef struct sums { double diff, norm; } sums; /* of squares, over this rank's rows */

static void compare_row(sums *x, const double *want, const void *got, weft_dtype t, int64_t at, int64_t width)
{
    for (int64_t i = 0; i < width; i++) {
        double w = want ? want[i] : 0, d = weft_load(got, t, at + i) - w;
        x->diff += d * d;
        x->norm += w * w;
    }
}

static weft_status add(const weft_attention_case *c, weft_report *report, const char *name, sums x, double floor,
                       double limit)
{
    double both[2] = {x.diff, x.norm};
    WEFT_TRY(weft_all_reduce(c->comm, both, 2, WEFT_F64, WEFT_SUM));
    double error = sqrt(both[0]) / fmax(sqrt(both[1]), floor);
    return c->ctx->rank == 0 ? weft_report_add(report, name, error, limit) : WEFT_OK;
}

static double lse_error(const spots *s, int64_t i, int64_t row)
{
    const weft_attention_case *c = s->c;
    double worst = 0;
    for (int h = 0; h < c->problem.H; h++) {
        int64_t x = i * c->problem.H + h;
        double want = s->l[x] > 0 ? s->m[x] + log(s->l[x]) : -INFINITY;
        double got = weft_load(c->lse, c->R, row * c->problem.H + h);
        double d = got == want ? 0 : fabs(got - want) / fmax(1, fabs(want));
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    return worst;
}

static bool narrow(const weft_attention_case *c) { return c->C == WEFT_BF16 || c->C == WEFT_F16; }

/* O and lse of the spots, dQ of all rows (0 but for the spots). */
static weft_status compare_queries(const spots *s, weft_arena *arena, weft_report *report, double floor, double limit)
{
    const weft_attention_case *c = s->c;
    const weft_cp_problem *p = &c->problem;
    int me = weft_comm_rank(c->comm);
    int64_t rows = c->shard_q.rows[me], *index = NULL, *pos = NULL, od = (int64_t)p->H * p->Dv,
            qd = (int64_t)p->H * p->D;
    sums o = {0, 0}, dq = {0, 0};
    double lse = 0;
    WEFT_TRY(WEFT_NEW(arena, rows, "index", &index));
    WEFT_TRY(WEFT_NEW(arena, rows, "positions", &pos));
    weft_shard_tokens(&c->shard_q, me, index, pos);
    for (int64_t r = 0; r < rows; r++) {
        int64_t i = 0;
        while (i < s->n && c->spot[i] != index[r]) i++;
        compare_row(&dq, i < s->n ? s->dq + i * qd : NULL, c->mine[WEFT_CASE_DQ], c->C, r * qd, qd);
        if (i == s->n) continue;
        compare_row(&o, s->o + i * od, c->mine[WEFT_CASE_O], c->C, r * od, od);
        lse = fmax(lse, lse_error(s, i, r));
    }
    WEFT_TRY(add(c, report, "o", o, floor, limit));
    WEFT_TRY(weft_all_reduce(c->comm, &lse, 1, WEFT_F64, WEFT_MAX));
    if (c->ctx->rank == 0) WEFT_TRY(weft_report_add(report, "lse", lse, narrow(c) ? 1e-3 : 1e-5));
    return add(c, report, "dq", dq, fmax(floor, sqrt(s->dq_terms)), limit);
}

static weft_status compare(const spots *s, weft_arena *arena, weft_report *report)
{
    const weft_attention_case *c = s->c;
    const weft_cp_problem *p = &c->problem;
    double limit = narrow(c) ? 6e-3 : 2e-6; /* as for a file without limits of its own */
    double floor = weft_norm2(s->dout, WEFT_F64, s->n * p->H * p->Dv) / 100;
    int64_t kd = (int64_t)p->Hkv * p->D, vd = (int64_t)p->Hkv * p->Dv;
    sums dk = {0, 0}, dv = {0, 0}, dsinks = {0, 0};
    WEFT_TRY(compare_queries(s, arena, report, floor, limit));
    compare_row(&dk, s->dk, c->mine[WEFT_CASE_DK], c->C, 0, s->keys * kd);
    compare_row(&dv, s->dv, c->mine[WEFT_CASE_DV], c->C, 0, s->keys * vd);
    WEFT_TRY(add(c, report, "dk", dk, fmax(floor, sqrt(s->dk_terms)), limit));
    WEFT_TRY(add(c, report, "dv", dv, floor, limit));
    if (!c->sinks) return WEFT_OK;
    /* the same on all ranks */
    if (weft_comm_rank(c->comm) == 0) compare_row(&dsinks, s->dsinks, c->dsinks, c->R, 0, p->H);
    return add(c, report, "dsinks", dsinks, floor, limit);
}

static weft_status check(spots *s, weft_arena *arena, weft_report *report)
{
    weft_comm *comm = s->c->comm;
    WEFT_TRY(weft_agree(comm, alloc(s, arena)));
    WEFT_TRY(weft_agree(comm, load(s, arena)));
    WEFT_TRY(probabilities(s));
    WEFT_TRY(outputs(s));
    WEFT_TRY(gradients(s));
    return compare(s, arena, report);
}

weft_status weft__case_check_spots(weft_attention_case *c, weft_report *report)
{
    spots s = {.c = c, .n = c->spots, .keys = c->shard_kv.rows[weft_comm_rank(c->comm)]};
    weft_arena *arena = NULL;
    WEFT_TRY(weft_arena_create(&arena, &c->ctx->mem, "spot check", NULL));
    weft_status st = check(&s, arena, report);
    weft_arena_destroy(arena);
    return st;
}
