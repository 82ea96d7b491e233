/* check_attention.c — attention forward and backward against the specification in fp64, on the same operands. */
#include "kern/check/check_impl.h"

#include <math.h>
#include <string.h>

typedef struct attention { /* one problem */
    const char *name;
    int H, Hkv, D, Dv;
    int64_t nq, nk;        /* queries stand at the end of the keys; with documents, both are those of all */
    weft_mask mask;
    double softcap, dropout;
    bool sinks, alibi;
    int documents;         /* of equal length, a pair each; 1: the whole */
} attention;

#define ALL {.left = -1, .right = -1}
#define CAUSAL {.causal = true, .left = -1, .right = -1}
static const attention problems[] = {
    {"causal, grouped heads", 4, 2, 33, 33, 67, 67, CAUSAL, 0, 0, false, false, 1},
    {"window and sinks", 2, 2, 64, 64, 40, 133, {.causal = true, .left = 19, .right = -1}, 0, 0, true, false, 1},
    {"softcap and slopes", 3, 1, 8, 12, 35, 50, ALL, 20, 0, false, true, 1},
    {"dropout", 2, 1, 16, 16, 65, 65, CAUSAL, 0, 0.25, false, false, 1},
    {"documents", 1, 1, 128, 128, 3 * 43, 3 * 43, CAUSAL, 0, 0, false, false, 3},
    {"one query", 2, 1, 80, 80, 1, 257, CAUSAL, 0, 0, false, false, 1},
};
enum { PROBLEMS = sizeof problems / sizeof *problems, DOCUMENTS_MAX = 3 };

enum { O, LSE, DQ, DK, DV, DSINKS, RESULTS };
static const char *const names[RESULTS] = {"o", "lse", "dq", "dk", "dv", "dsinks"};

typedef struct answer { double *x[RESULTS]; int64_t n[RESULTS]; double floor; } answer;

static void *numbers(weft_check_memory *m, weft_dtype to, weft_dtype via, int64_t n, uint64_t seed)
{
    void *x = weft__check_take(m, (size_t)n * weft_dtype_size(to), 64);
    for (int64_t i = 0; i < n; i++) {
        double rounded;
        weft_store(&rounded, via, 0, weft__check_number(seed, i));
        weft_store(x, to, i, weft_load(&rounded, via, 0));
    }
    return x;
}

static void *blank(weft_check_memory *m, weft_dtype t, int64_t n)
{
    return weft__check_take(m, (size_t)n * weft_dtype_size(t), 64); /* NaN */
}

static void *zeros(weft_check_memory *m, weft_dtype t, int64_t n)
{
    void *x = blank(m, t, n);
    memset(x, 0, (size_t)n * weft_dtype_size(t));
    return x;
}

static double *kept(weft_check_memory *m, const void *x, weft_dtype t, int64_t n)
{
    double *out = blank(m, WEFT_F64, n);
    for (int64_t i = 0; i < n; i++) out[i] = weft_load(x, t, i);
    return out;
}

static weft_attn_desc describe(const attention *p, const void *alibi)
{
    return (weft_attn_desc){.H = p->H, .Hkv = p->Hkv, .D = p->D, .Dv = p->Dv, .group = p->H / p->Hkv,
                            .scale = 1 / sqrt(p->D), .softcap = p->softcap, .mask = p->mask, .alibi = alibi,
                            .dropout = p->dropout, .seed = 17};
}

static void pairs_of(const attention *p, weft_attn_pair *pair)
{
    const int64_t nq = p->nq / p->documents, nk = p->nk / p->documents;
    for (int i = 0; i < p->documents; i++)
        pair[i] = (weft_attn_pair){.q_row = i * nq, .nq = nq, .q_pos = nk - nq, .q_run = 1, .q_step = 1,
                                   .k_row = i * nk, .nk = nk, .k_run = 1, .k_step = 1, .base = i * nk};
}

/* With operands rounded to the types of `from`, whatever the precision of the kernels. */
static answer run(const attention *p, const weft_attn_ops *ops, weft_prec prec, weft_prec from, int threads,
                  weft_check_memory *m)
{
    const weft_dtype C = weft_prec_compute(prec), R = weft_prec_real(prec);
    const weft_dtype via = weft_prec_compute(from), via_r = weft_prec_real(from);
    const int64_t q_ld = p->H * p->D, k_ld = p->Hkv * p->D, v_ld = p->Hkv * p->Dv, o_ld = p->H * p->Dv;
    const int64_t states = p->nq * p->H;
    void *q = numbers(m, C, via, p->nq * q_ld, 1), *k = numbers(m, C, via, p->nk * k_ld, 2);
    void *v = numbers(m, C, via, p->nk * v_ld, 3), *dout = numbers(m, C, via, p->nq * o_ld, 4);
    void *sinks = p->sinks ? numbers(m, R, via_r, p->H, 5) : NULL, *alibi = p->alibi ? zeros(m, R, p->H) : NULL;
    for (int h = 0; h < p->H && alibi; h++) weft_store(alibi, R, h, ldexp(1, -1 - h));
    void *acc = blank(m, R, p->nq * o_ld), *max = blank(m, R, states), *sum = blank(m, R, states);
    void *o = blank(m, C, p->nq * o_ld), *lse = blank(m, R, states), *delta = blank(m, R, states);
    void *dq = zeros(m, R, p->nq * q_ld), *dk = zeros(m, R, p->nk * k_ld), *dv = zeros(m, R, p->nk * v_ld);
    void *dsinks = zeros(m, R, p->H);
    const weft_attn_desc d = describe(p, alibi);
    weft_attn_pair pair[DOCUMENTS_MAX];
    pairs_of(p, pair);
    const weft_attn_run how = {.work = weft__check_take(m, ops->work_bytes(&d, threads), 64), .threads = threads};
    const weft_attn_fwd_io f = {q, k, v, q_ld, k_ld, v_ld, acc, max, sum, 5};
    const weft_attn_bwd_io b = {q, k, v, dout, q_ld, k_ld, v_ld, o_ld, max, sum, delta, dq, dk, dv, 5};
    ops->start(&d, acc, max, sum, p->nq);
    ops->forward(&d, &f, pair, p->documents, &how);
    ops->finish(&d, o, o_ld, lse, acc, max, sum, sinks, p->nq, threads);
    ops->delta(&d, delta, sinks ? dsinks : NULL, sinks, dout, o_ld, o, o_ld, max, sum, p->nq, threads);
    ops->backward(&d, &b, pair, p->documents, &how);
    answer a = {.n = {p->nq * o_ld, states, p->nq * q_ld, p->nk * k_ld, p->nk * v_ld, p->H},
                .floor = weft_norm2(dout, C, p->nq * o_ld) / 100};
    const void *const out[RESULTS] = {o, lse, dq, dk, dv, dsinks};
    for (int i = 0; i < RESULTS; i++) a.x[i] = kept(m, out[i], i == O ? C : R, a.n[i]);
    return a;
}

static void limits_of(weft_prec prec, weft_isa isa, double limit[2])
{
    static const double plain[WEFT_PREC_COUNT][2] = {{LIMIT_F64}, {LIMIT_F32}, {LIMIT_BF16}, {LIMIT_F16}};
    static const double tiles[2] = {LIMIT_TILES};
    memcpy(limit, isa == WEFT_ISA_AMX ? tiles : plain[prec], sizeof tiles);
}

/* dsinks is a sum over rows of products of either sign: its error is that of its terms, not of what remains. */
static bool compare(const attention *p, const answer *a, const answer *want, const double limit[2], weft_line *line)
{
    for (int i = 0; i < RESULTS; i++) {
        const double most = i == LSE ? limit[1] : i == DSINKS ? 3 * limit[0] : limit[0];
        const double err = i == LSE ? weft_max_scaled(a->x[i], WEFT_F64, want->x[i], WEFT_F64, a->n[i])
                                    : weft_rel_l2(a->x[i], WEFT_F64, want->x[i], WEFT_F64, a->n[i], want->floor);
        if (err <= most) continue;
        weft_line_add(line, "%s: %s is off by %.2e (limit %.2e)", p->name, names[i], err, most);
        return false;
    }
    return true;
}

static bool same_bits(const attention *p, const answer *a, const answer *b, weft_line *line)
{
    for (int i = 0; i < RESULTS; i++) {
        if (!memcmp(a->x[i], b->x[i], (size_t)a->n[i] * sizeof(double))) continue;
        weft_line_add(line, "%s: %s depends on the number of threads", p->name, names[i]);
        return false;
    }
    return true;
}

/* Two dozen arrays of a run, none longer than all rows of all heads; three runs, one of them with threads. */
size_t weft__check_attention_bytes(const weft_attn_ops *ops, const weft_attn_ops *fp64, int threads)
{
    enum { ARRAYS = 24, RUNS = 3 };
    size_t most = 0;
    for (int i = 0; i < PROBLEMS; i++) {
        const attention *p = &problems[i];
        const weft_attn_desc d = describe(p, NULL);
        const size_t longest = (size_t)(weft_max_i64(p->nq, p->nk) * p->H * weft_max_i64(p->D, p->Dv));
        const size_t work = fp64->work_bytes(&d, 1) + ops->work_bytes(&d, 1) + ops->work_bytes(&d, threads);
        most = weft_max_size(most, RUNS * ARRAYS * (longest * sizeof(double) + 64) + work + RUNS * 64);
    }
    return most;
}

bool weft__check_attention(const weft_attn_ops *ops, const weft_attn_ops *fp64, weft_prec prec, weft_isa isa,
                           int threads, weft_check_memory *memory, char *text, size_t n)
{
    weft_line line = {text, n, 0};
    double limit[2];
    limits_of(prec, isa, limit);
    bool good = true;
    for (int i = 0; i < PROBLEMS && good; i++) {
        memory->used = 0;
        const answer want = run(&problems[i], fp64, WEFT_PREC_F64, prec, 1, memory);
        const answer one = run(&problems[i], ops, prec, prec, 1, memory);
        good = compare(&problems[i], &one, &want, limit, &line);
        if (!good || threads == 1) continue;
        const answer more = run(&problems[i], ops, prec, prec, threads, memory);
        good = same_bits(&problems[i], &one, &more, &line);
    }
    return good;
}
