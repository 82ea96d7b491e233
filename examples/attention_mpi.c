/* attention_mpi.c — exact attention inside an MPI program, from its own communicator.
 *
 *   mpirun -n 4 attention_mpi
 *
 * The ranks of a communicator hold a share each of one sequence of 2003 tokens in four documents: 8 query heads on 2
 * key/value heads, causal. Rows come from a formula of (token, channel), as they would come from the program's own
 * layers. Rank 0 gathers the result and repeats it alone: the numbers are the same. Exit code 0 when they are, 1 when
 * not, and Weft's codes for a failure. */
#include <weft/attention.h>
#include <weft/mpi.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 2003, H = 8, HKV = 2, D = 32, DV = 32 };
static const int64_t offsets[] = {0, 700, 701, 1500, T}, counts[] = {4};

enum { Q, K, V, DOUT, O, DQ, DK, DV_, ARRAYS };
static const int width[ARRAYS] = {H * D, HKV * D, HKV * DV, H * DV, H * DV, H * D, HKV * D, HKV * DV};

static float value(int which, int64_t token, int64_t i)
{
    return (float)(sin(1.7 * which + 0.61 * (double)token + 2.3 * (double)i) *
                   cos(0.13 * (double)(token * (i % 7 + 1))));
}

/* This rank's rows of all arrays, then its results in their places of whole[O .. DV_], which are zero elsewhere. */
static weft_status forward_backward(weft_attention *a, float *whole[ARRAYS])
{
    int64_t rows = weft_attention_rows(a), *token = calloc((size_t)rows + 1, sizeof *token);
    float *x[ARRAYS] = {NULL};
    weft_status st = token ? WEFT_OK : WEFT_ERR_MEMORY;
    if (token) weft_attention_tokens(a, token, NULL);
    for (int k = 0; k < ARRAYS && st == WEFT_OK; k++) {
        x[k] = calloc((size_t)(rows * width[k]) + 1, sizeof **x);
        if (!x[k]) st = WEFT_ERR_MEMORY;
        for (int64_t r = 0; x[k] && k < O && r < rows; r++)
            for (int64_t i = 0; i < width[k]; i++) x[k][r * width[k] + i] = value(k, token[r], i);
    }
    weft_attention_io io;
    weft_attention_io_init(&io, sizeof io);
    io.q = x[Q], io.k = x[K], io.v = x[V], io.dout = x[DOUT];
    io.o = x[O], io.dq = x[DQ], io.dk = x[DK], io.dv = x[DV_];
    if (st == WEFT_OK) st = weft_attention_forward(a, &io);
    if (st == WEFT_OK) st = weft_attention_backward(a, &io);
    for (int k = O; k < ARRAYS && st == WEFT_OK; k++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < width[k]; i++) whole[k][token[r] * width[k] + i] = x[k][r * width[k] + i];
    for (int k = 0; k < ARRAYS; k++) free(x[k]);
    free(token);
    return st;
}

static weft_status attend(weft_group *group, float *whole[ARRAYS], char plan[128])
{
    weft_attention_params p;
    weft_attention_params_init(&p, sizeof p);
    p.T = T, p.max_docs = 4, p.H = H, p.Hkv = HKV, p.D = D, p.Dv = DV;
    weft_attention *a;
    weft_status st = weft_attention_create(&a, group, &p);
    if (st < 0) return st;
    st = weft_attention_documents(a, offsets, counts);
    if (st == WEFT_OK) st = forward_backward(a, whole);
    weft_attention_describe(a, plan, 128);
    weft_attention_destroy(a);
    return st;
}

static double difference(const float *x, const float *ref, int64_t n)
{
    double d2 = 0, r2 = 0;
    for (int64_t i = 0; i < n; i++) {
        d2 += ((double)x[i] - (double)ref[i]) * ((double)x[i] - (double)ref[i]);
        r2 += (double)ref[i] * (double)ref[i];
    }
    return sqrt(d2 / r2);
}

static int compare(int ranks, float *many[ARRAYS], float *one[ARRAYS])
{
    static const char *const name[ARRAYS] = {"q", "k", "v", "dout", "o", "dq", "dk", "dv"};
    /* dk, dv: fp32 sums of 4 heads x 800 rows in another order part by about sqrt(n) * 6e-8 */
    const double limit = 4e-6;
    int failed = 0;
    for (int k = O; k < ARRAYS; k++) {
        double e = difference(many[k], one[k], (int64_t)T * width[k]);
        printf("%-3s %d ranks against one: %.2e (limit %.0e)\n", name[k], ranks, e, limit);
        if (!(e <= limit)) failed = 1;
    }
    return failed;
}

/* All ranks run the attention; rank 0 compares. */
static weft_status run(MPI_Comm comm, float *many[ARRAYS], float *one[ARRAYS], int *failed)
{
    int rank, ranks;
    char plan[128];
    weft_group *group, *self;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    weft_status st = weft_group_mpi(&group, comm);
    if (st < 0) return st;
    st = weft_group_set_progress(group, "auto");
    if (st == WEFT_OK) st = attend(group, many, plan);
    if (st < 0) weft_group_abort(group, st, weft_last_error());
    weft_group_destroy(group);
    if (st < 0) return st;
    for (int k = O; k < ARRAYS; k++) /* every row is in one rank's array and zero in the others' */
        MPI_Reduce(rank == 0 ? MPI_IN_PLACE : many[k], many[k], T * width[k], MPI_FLOAT, MPI_SUM, 0, comm);
    if (rank != 0) return WEFT_OK;
    printf("%d tokens in 4 documents on %d ranks: %s\n", T, ranks, plan);
    st = weft_group_self(&self);
    if (st < 0) return st;
    st = attend(self, one, plan);
    weft_group_destroy(self);
    if (st == WEFT_OK) *failed = compare(ranks, many, one);
    return st;
}

int main(int argc, char **argv)
{
    static float space[2][ARRAYS - O][T * H * D];
    float *many[ARRAYS] = {NULL}, *one[ARRAYS] = {NULL};
    int provided, failed = 0;
    for (int k = O; k < ARRAYS; k++) many[k] = space[0][k - O], one[k] = space[1][k - O];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    weft_status st = run(MPI_COMM_WORLD, many, one, &failed);
    if (st < 0) {
        fprintf(stderr, "attention_mpi: %s: %s\n", weft_status_text(st), weft_last_error());
        MPI_Abort(MPI_COMM_WORLD, weft_exit_code(st));
    }
    MPI_Bcast(&failed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return failed;
}
