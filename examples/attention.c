/* attention.c — one attention problem on four ranks and on one, through weft/attention.h: the same numbers.
 *
 * T = 1001 tokens in three documents, 8 query heads on 2 key/value heads, causal. No length divides anything.
 * Each rank fills its rows from a formula of (token, head, channel), so that no data has to be sent. Exit code
 * 0 when the results agree, 1 when not, and Weft's codes for a failure. */
#include <weft/attention.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 1001, H = 8, HKV = 2, D = 64, DV = 48, RANKS = 4 };
static const int64_t offsets[] = {0, 137, 138, T}; /* documents of 137, 1 and 863 tokens */
static const int64_t counts[] = {3};

typedef struct run { /* whole arrays, filled by the ranks row by row */
    float *o, *dq, *dk, *dv;
    int64_t rows[RANKS], sent[RANKS], formula[RANKS];
    char plan[128];
} run;

static float value(int which, int64_t token, int64_t i)
{
    return (float)(sin(1.7 * (double)which + 0.61 * (double)token + 2.3 * (double)i) *
                   cos(0.13 * (double)(token * (i % 7 + 1))));
}

/* [rows, width] of this rank's tokens. */
static float *rows_of(int which, const int64_t *token, int64_t rows, int64_t width)
{
    float *x = malloc((size_t)(rows * width + 1) * sizeof *x);
    for (int64_t r = 0; x && r < rows; r++)
        for (int64_t i = 0; i < width; i++) x[r * width + i] = value(which, token[r], i);
    return x;
}

static void put_rows(float *whole, const float *mine, const int64_t *token, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++) whole[token[r] * width + i] = mine[r * width + i];
}

static weft_status forward_backward(weft_attention *a, weft_group *group, run *whole)
{
    int64_t rows = weft_attention_rows(a), *token = malloc((size_t)(rows + 1) * sizeof *token);
    if (!token) return WEFT_ERR_MEMORY;
    weft_attention_tokens(a, token, NULL);
    float *q = rows_of(0, token, rows, H * D), *k = rows_of(1, token, rows, HKV * D),
          *v = rows_of(2, token, rows, HKV * DV);
    float *dout = rows_of(3, token, rows, H * DV), *o = rows_of(4, token, rows, H * DV);
    float *dq = rows_of(5, token, rows, H * D), *dk = rows_of(6, token, rows, HKV * D),
          *dv = rows_of(7, token, rows, HKV * DV);
    weft_status st = q && k && v && dout && o && dq && dk && dv ? WEFT_OK : WEFT_ERR_MEMORY;

    weft_attention_io io;
    weft_attention_io_init(&io, sizeof io);
    io.q = q, io.k = k, io.v = v, io.o = o;
    io.dout = dout, io.dq = dq, io.dk = dk, io.dv = dv;
    if (st == WEFT_OK) st = weft_attention_forward(a, &io);
    if (st == WEFT_OK) st = weft_attention_backward(a, &io);
    if (st == WEFT_OK) {
        put_rows(whole->o, o, token, rows, H * DV);
        put_rows(whole->dq, dq, token, rows, H * D);
        put_rows(whole->dk, dk, token, rows, HKV * D);
        put_rows(whole->dv, dv, token, rows, HKV * DV);
        weft_attention_traffic bytes = weft_attention_bytes(a);
        int rank = weft_group_rank(group);
        whole->rows[rank] = rows;
        whole->sent[rank] = bytes.sent;
        whole->formula[rank] = bytes.forward_formula + bytes.backward_formula;
        if (rank == 0) weft_attention_describe(a, whole->plan, sizeof whole->plan);
    }
    free(token), free(q), free(k), free(v), free(dout), free(o), free(dq), free(dk), free(dv);
    return st;
}

static weft_status rank_main(weft_group *group, void *ud)
{
    weft_attention_params p;
    weft_attention_params_init(&p, sizeof p);
    p.T = T, p.max_docs = 3, p.H = H, p.Hkv = HKV, p.D = D, p.Dv = DV;
    weft_attention *a;
    weft_status st = weft_attention_create(&a, group, &p);
    if (st < 0) return st;
    st = weft_attention_documents(a, offsets, counts);
    if (st == WEFT_OK) st = forward_backward(a, group, ud);
    weft_attention_destroy(a);
    return st;
}

/* |x - ref| / |ref| in the 2-norm. */
static double difference(const float *x, const float *ref, int64_t n)
{
    double d2 = 0, r2 = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - (double)ref[i];
        d2 += d * d;
        r2 += (double)ref[i] * (double)ref[i];
    }
    return sqrt(d2 / r2);
}

static int compare(const char *name, const float *x, const float *ref, int64_t n)
{
    /* dk and dv add 4 heads x 863 rows; fp32 sums of n terms in different order part by about sqrt(n) * 6e-8. */
    const double limit = 4e-6;
    double e = difference(x, ref, n);
    printf("%-4s  %22.2e  %5.0e\n", name, e, limit);
    return e <= limit ? 0 : 1;
}

int main(void)
{
    static float o[2][T * H * DV], dq[2][T * H * D], dk[2][T * HKV * D], dv[2][T * HKV * DV];
    run many = {.o = o[0], .dq = dq[0], .dk = dk[0], .dv = dv[0]},
        one = {.o = o[1], .dq = dq[1], .dk = dk[1], .dv = dv[1]};

    weft_status st = weft_group_threads(RANKS, rank_main, &many);
    if (st == WEFT_OK) st = weft_group_threads(1, rank_main, &one);
    if (st < 0) {
        fprintf(stderr, "attention: %s: %s\n", weft_status_text(st), weft_last_error());
        return weft_exit_code(st);
    }
    printf("%d tokens in 3 documents, %d query heads on %d key/value heads, causal, fp32\n", T, H, HKV);
    printf("4 ranks: %s\n1 rank:  %s\n\n", many.plan, one.plan);
    printf("      4 ranks against 1 rank  limit\n");
    int failed = compare("o", many.o, one.o, T * H * DV) + compare("dq", many.dq, one.dq, T * H * D) +
                 compare("dk", many.dk, one.dk, T * HKV * D) + compare("dv", many.dv, one.dv, T * HKV * DV);
    printf("\nrank  rows  bytes sent  by the formula\n");
    for (int r = 0; r < RANKS; r++) {
        printf("%4d  %4lld  %10lld  %14lld\n", r, (long long)many.rows[r], (long long)many.sent[r],
               (long long)many.formula[r]);
        failed += many.sent[r] != many.formula[r];
    }
    printf("\n%s\n", failed ? "DIFFERENT" : "the same attention, whatever the cut");
    return failed ? 1 : 0;
}
