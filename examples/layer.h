/* layer.h — one attention layer of a transformer, forward and backward, cut over the ranks of a communicator; what
 * pcp_layer.c and dcp_layer.c have in common.
 *
 *   q = x Wq, k = x Wk, v = x Wv, o = attention(q, k, v), y = o Wo
 *
 * Every rank holds the whole weights and its own tokens' rows of x, so the projections need no other rank; only the
 * attention does, and that is Weft's. Backward the same way: the gradient of a weight is the sum over all tokens, hence
 * over the ranks. In double precision, so that the comparison with one rank shows that the cut is exact. */
#ifndef WEFT_EXAMPLE_LAYER_H
#define WEFT_EXAMPLE_LAYER_H

#include <weft/attention.h>
#include <weft/mpi.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 251, WIDTH = 40, HEADS = 6, KV_HEADS = 3, HEAD = 8, QW = HEADS * HEAD, KW = KV_HEADS * HEAD };

typedef struct weights { double q[WIDTH * QW], k[WIDTH * KW], v[WIDTH * KW], o[QW * WIDTH]; } weights;
typedef struct outcome { double y[TOKENS * WIDTH], dx[TOKENS * WIDTH]; weights dw; } outcome; /* whole sequence */

static double value(int which, int64_t a, int64_t b)
{
    return sin(1.3 * which + 0.37 * (double)a + 1.9 * (double)b) * cos(0.11 * (double)(a * (b % 5 + 1)) + which);
}

static void fill_weights(weights *w)
{
    double *x = (double *)w;
    for (size_t i = 0; i < sizeof *w / sizeof *x; i++) x[i] = 0.3 * value(9, (int64_t)i, (int64_t)(i % 13));
}

/* c[n, m] += a[n, l] b[l, m]; with ta: a is [l, n]; with tb: b is [m, l] */
static void multiply(double *c, const double *a, const double *b, int64_t n, int64_t l, int64_t m, int ta, int tb)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < l; k++) {
            double x = ta ? a[k * n + i] : a[i * l + k];
            for (int64_t j = 0; j < m; j++) c[i * m + j] += x * (tb ? b[j * l + k] : b[k * m + j]);
        }
}

/* of one rank */
typedef struct rows { double *x, *q, *k, *v, *o, *y, *dy, *dout, *dq, *dk, *dv, *dx; int64_t *token; } rows;

static int make_rows(rows *r, int64_t n)
{
    double **const at[] = {&r->x, &r->q, &r->k, &r->v, &r->o, &r->y, &r->dy, &r->dout, &r->dq, &r->dk, &r->dv, &r->dx};
    r->token = calloc((size_t)n + 1, sizeof *r->token);
    int good = r->token != NULL;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        *at[i] = calloc((size_t)(n * QW) + WIDTH, sizeof **at[i]); /* QW is the widest */
        good = good && *at[i];
    }
    return good;
}

static void free_rows(rows *r)
{
    free(r->x), free(r->q), free(r->k), free(r->v), free(r->o), free(r->y), free(r->dy), free(r->dout);
    free(r->dq), free(r->dk), free(r->dv), free(r->dx), free(r->token);
}

static weft_status forward(weft_attention *a, const weights *w, rows *r, int64_t n, weft_attention_io *io)
{
    multiply(r->q, r->x, w->q, n, WIDTH, QW, 0, 0);
    multiply(r->k, r->x, w->k, n, WIDTH, KW, 0, 0);
    multiply(r->v, r->x, w->v, n, WIDTH, KW, 0, 0);
    io->q = r->q, io->k = r->k, io->v = r->v, io->o = r->o;
    weft_status st = weft_attention_forward(a, io);
    if (st == WEFT_OK) multiply(r->y, r->o, w->o, n, QW, WIDTH, 0, 0);
    return st;
}

static weft_status backward(weft_attention *a, const weights *w, rows *r, int64_t n, weft_attention_io *io, weights *dw)
{
    multiply(r->dout, r->dy, w->o, n, WIDTH, QW, 0, 1); /* y = o Wo: do = dy Wo', dWo = o' dy */
    multiply(dw->o, r->o, r->dy, QW, n, WIDTH, 1, 0);
    io->dout = r->dout, io->dq = r->dq, io->dk = r->dk, io->dv = r->dv;
    weft_status st = weft_attention_backward(a, io);
    if (st < 0) return st;
    multiply(r->dx, r->dq, w->q, n, QW, WIDTH, 0, 1); /* q = x Wq: dx += dq Wq', dWq = x' dq */
    multiply(r->dx, r->dk, w->k, n, KW, WIDTH, 0, 1);
    multiply(r->dx, r->dv, w->v, n, KW, WIDTH, 0, 1);
    multiply(dw->q, r->x, r->dq, WIDTH, n, QW, 1, 0);
    multiply(dw->k, r->x, r->dk, WIDTH, n, KW, 1, 0);
    multiply(dw->v, r->x, r->dv, WIDTH, n, KW, 1, 0);
    return WEFT_OK;
}

/* The layer on this rank's tokens; its part of the outcome, zero where other ranks have the token. */
static weft_status run_layer(weft_attention *a, outcome *out)
{
    int64_t n = weft_attention_rows(a);
    rows r = {0};
    weights w;
    weft_attention_io io;
    fill_weights(&w);
    weft_status st = make_rows(&r, n) ? WEFT_OK : WEFT_ERR_MEMORY;
    if (st == WEFT_OK) {
        weft_attention_tokens(a, r.token, NULL);
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < WIDTH; c++) {
                r.x[i * WIDTH + c] = value(1, r.token[i], c);
                r.dy[i * WIDTH + c] = value(2, r.token[i], c);
            }
        weft_attention_io_init(&io, sizeof io);
        st = forward(a, &w, &r, n, &io);
    }
    if (st == WEFT_OK) st = backward(a, &w, &r, n, &io, &out->dw);
    for (int64_t i = 0; st == WEFT_OK && i < n; i++) {
        memcpy(out->y + r.token[i] * WIDTH, r.y + i * WIDTH, WIDTH * sizeof(double));
        memcpy(out->dx + r.token[i] * WIDTH, r.dx + i * WIDTH, WIDTH * sizeof(double));
    }
    free_rows(&r);
    return st;
}

/* strategy: of Weft's context parallelism; U: ranks of a head group, 0: chosen. */
static weft_status plan_and_run(weft_group *group, const char *strategy, int U, outcome *out, char plan[160])
{
    weft_attention_params p;
    weft_attention_params_init(&p, sizeof p);
    p.precision = WEFT_ATTENTION_FP64;
    p.T = TOKENS, p.H = HEADS, p.Hkv = KV_HEADS, p.D = p.Dv = HEAD;
    p.strategy = strategy;
    p.head_size = U;
    weft_attention *a;
    weft_status st = weft_attention_create(&a, group, &p);
    if (st < 0) return st;
    weft_attention_describe(a, plan, 160);
    st = run_layer(a, out);
    weft_attention_destroy(a);
    return st;
}

static double difference(const double *x, const double *ref, size_t n)
{
    double d2 = 0, r2 = 0;
    for (size_t i = 0; i < n; i++) d2 += (x[i] - ref[i]) * (x[i] - ref[i]), r2 += ref[i] * ref[i];
    return sqrt(d2 / r2);
}

static int compare(const outcome *many, const outcome *one)
{
    const double limit = 1e-12; /* double sums of 251 terms in another order: far below */
    double y = difference(many->y, one->y, TOKENS * WIDTH), dx = difference(many->dx, one->dx, TOKENS * WIDTH);
    double dw = difference((const double *)&many->dw, (const double *)&one->dw, sizeof many->dw / sizeof(double));
    printf("against one rank: y %.1e, dx %.1e, dW %.1e (limit %.0e)\n", y, dx, dw, limit);
    return y <= limit && dx <= limit && dw <= limit ? 0 : 1;
}

static weft_status layer_on(MPI_Comm comm, const char *strategy, int U, int *failed)
{
    static outcome many, one;
    char plan[160];
    int rank;
    weft_group *group, *self;
    MPI_Comm_rank(comm, &rank);
    weft_status st = weft_group_mpi(&group, comm);
    if (st < 0) return st;
    st = plan_and_run(group, strategy, U, &many, plan);
    if (st < 0) weft_group_abort(group, st, weft_last_error());
    weft_group_destroy(group);
    if (st < 0) return st;
    MPI_Allreduce(MPI_IN_PLACE, &many, (int)(sizeof many / sizeof(double)), MPI_DOUBLE, MPI_SUM, comm);
    if (rank != 0) return WEFT_OK;
    printf("layer of width %d, %d heads on %d, %d tokens: %s\n", WIDTH, HEADS, KV_HEADS, TOKENS, plan);
    st = weft_group_self(&self);
    if (st < 0) return st;
    st = plan_and_run(self, "none", 0, &one, plan);
    weft_group_destroy(self);
    if (st == WEFT_OK) *failed = compare(&many, &one);
    return st;
}

/* The whole program but for its words. */
static int layer_main(int argc, char **argv, const char *strategy, int U)
{
    int provided, failed = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    weft_status st = layer_on(MPI_COMM_WORLD, strategy, U, &failed);
    if (st < 0) {
        fprintf(stderr, "%s: %s: %s\n", argv[0], weft_status_text(st), weft_last_error());
        MPI_Abort(MPI_COMM_WORLD, weft_exit_code(st));
    }
    MPI_Bcast(&failed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return failed;
}

#endif
