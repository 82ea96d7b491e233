/* bench_profile.c — `weft bench profile`: the rates of this machine as its ranks see them, all of them at work at once.
 *
 * Every figure is the best of a few repetitions on a rank (disturbances only ever slow it down), and then the worst of
 * all ranks, because ranks wait for the slowest. */
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

enum { HEADS = 2, SIZE = 128, ROWS_MAX = 4096, REPEATS = 3, PINGS = 200 };
static const double long_enough = 0.05; /* seconds that a measurement should take */
static const size_t bulk = (size_t)32 << 20; /* bytes; no cache holds it */

typedef struct bench { /* one rank's */
    weft_ctx *ctx;
    weft_world *world;
    weft_comm *comm;
    weft_arena *arena;
    weft_kern kern;
    int64_t repeats;
} bench;

static double now(const bench *b) { return weft_now(&b->ctx->clock); }

/* ---- attention --------------------------------------------------------------------------------------------- */

typedef struct attention { /* a full mask over n rows */
    weft_attn_desc desc;
    weft_attn_run run;
    weft_attn_fwd_io forward;
    weft_attn_bwd_io backward;
    double seconds[2]; /* forward, backward */
    double flops;      /* of forward */
} attention;

/* Some numbers of the size of 1: what they are does not change the time, denormals would. */
static weft_status make_rows(bench *b, weft_dtype t, int64_t n, void **out)
{
    WEFT_TRY(weft_arena_alloc(b->arena, n, weft_dtype_size(t), "bench rows", out));
    for (int64_t i = 0; i < n; i++) weft_store(*out, t, i, (double)(i * 7919 % 1021 - 510) / 510);
    return WEFT_OK;
}

static weft_status prepare(bench *b, weft_prec prec, int64_t n, attention *a)
{
    weft_dtype c = weft_prec_compute(prec), r = weft_prec_real(prec);
    int64_t ld = HEADS * SIZE;
    void *x[4], *sum[4], *row[3], *work;
    *a = (attention){.desc = {.H = HEADS, .Hkv = HEADS, .D = SIZE, .Dv = SIZE, .group = 1, .scale = 0.088,
                              .mask = {false, -1, -1, 0}},
                     .run = {.threads = b->ctx->threads}};
    for (int i = 0; i < 4; i++) WEFT_TRY(make_rows(b, c, n * ld, &x[i]));
    for (int i = 0; i < 4; i++)
        WEFT_TRY(weft_arena_zalloc(b->arena, n * ld, weft_dtype_size(r), "bench rows", &sum[i]));
    for (int i = 0; i < 3; i++)
        WEFT_TRY(weft_arena_zalloc(b->arena, n * HEADS, weft_dtype_size(r), "bench rows", &row[i]));
    WEFT_TRY(weft_arena_alloc(b->arena, (int64_t)b->kern.op[prec].attn.work_bytes(&a->desc, a->run.threads), 1,
                              "bench work", &work));
    a->run.work = work;
    a->forward = (weft_attn_fwd_io){.q = x[0], .k = x[1], .v = x[2], .q_ld = ld, .k_ld = ld, .v_ld = ld, .acc = sum[0],
                                    .m = row[0], .l = row[1]};
    a->backward = (weft_attn_bwd_io){.q = x[0],
                                     .k = x[1],
                                     .v = x[2],
                                     .dout = x[3],
                                     .q_ld = ld,
                                     .k_ld = ld,
                                     .v_ld = ld,
                                     .dout_ld = ld,
                                     .m = row[0],
                                     .l = row[1],
                                     .delta = row[2],
                                     .dq = sum[1],
                                     .dk = sum[2],
                                     .dv = sum[3]};
    a->flops = 2.0 * (double)n * (double)n * HEADS * 2 * SIZE;
    return WEFT_OK;
}

static void best(double *least, double seconds)
{
    if (*least == 0 || seconds < *least) *least = seconds;
}

static void run_once(bench *b, weft_prec prec, int64_t n, attention *a)
{
    const weft_attn_ops *ops = &b->kern.op[prec].attn;
    const weft_attn_pair pair = {.nq = n, .q_run = 1, .q_step = 1, .nk = n, .k_run = 1, .k_step = 1};
    ops->start(&a->desc, a->forward.acc, a->forward.m, a->forward.l, n);
    double begin = now(b);
    ops->forward(&a->desc, &a->forward, &pair, 1, &a->run);
    double middle = now(b);
    ops->backward(&a->desc, &a->backward, &pair, 1, &a->run);
    best(&a->seconds[0], middle - begin);
    best(&a->seconds[1], now(b) - middle);
}

/* Twice the rows until it takes long enough. All ranks compute at once: they share the machine in a real run, too. */
static weft_status measure_attention(bench *b, weft_prec prec, attention *a)
{
    for (int64_t n = 128; n <= ROWS_MAX; n *= 2) {
        weft_mark mark = weft_arena_mark(b->arena);
        WEFT_TRY(weft_agree(b->comm, prepare(b, prec, n, a)));
        for (int i = 0; i < b->repeats; i++) run_once(b, prec, n, a);
        weft_arena_release(b->arena, mark);
        double enough = a->seconds[0] >= long_enough;
        WEFT_TRY(weft_all_reduce(b->comm, &enough, 1, WEFT_F64, WEFT_MIN));
        if (enough > 0) break;
    }
    return WEFT_OK;
}

static weft_status measure_kernels(bench *b, weft_profile *p)
{
    double seconds[2] = {0, 0};
    for (int i = 0; i < WEFT_PREC_COUNT; i++) {
        attention a;
        WEFT_TRY(measure_attention(b, (weft_prec)i, &a));
        p->flops_per_second[i] = a.flops / a.seconds[0];
        if (i == WEFT_PREC_F64) continue; /* the reference kernels have a ratio of their own */
        seconds[0] += a.seconds[0], seconds[1] += a.seconds[1];
    }
    p->backward_factor = seconds[1] / seconds[0];
    return WEFT_OK;
}

/* ---- memory and messages ------------------------------------------------------------------------------------- */

static weft_status measure_memory(bench *b, const char *from, char *to, weft_profile *p)
{
    double least = 0;
    for (int i = 0; i < b->repeats; i++) {
        WEFT_TRY(weft_barrier(b->comm));
        double begin = now(b);
        memcpy(to, from, bulk);
        best(&least, now(b) - begin);
    }
    p->memory_bytes_per_second = (double)bulk / least;
    return WEFT_OK;
}

/* Half of there and back, between ranks 0 and 1; the others get the number later. */
static weft_status measure_latency(bench *b, char *buf, weft_profile *p)
{
    int rank = weft_comm_rank(b->comm);
    double least = 0;
    for (int i = 0; i < b->repeats && rank < 2; i++) {
        double begin = now(b);
        for (int n = 0; n < PINGS; n++)
            for (int turn = 0; turn < 2; turn++) {
                weft_req req;
                if (turn == rank) WEFT_TRY(weft_isend(b->comm, buf, 8, 1 - rank, 1, WEFT_MEM_HOST, NULL, &req));
                else WEFT_TRY(weft_irecv(b->comm, buf, 8, 1 - rank, 1, WEFT_MEM_HOST, NULL, &req));
                WEFT_TRY(weft_wait(&req));
            }
        best(&least, (now(b) - begin) / (2 * PINGS));
    }
    p->latency_seconds = least;
    return weft_broadcast(b->comm, &p->latency_seconds, sizeof p->latency_seconds, 0);
}

/* Every rank sends `bytes` to each of its next `peers` ranks and gets as much, all at once. */
static weft_status measure_link(bench *b, int peers, size_t bytes, const char *from, char *to, weft_req *req,
                                double *rate)
{
    int P = weft_comm_size(b->comm), rank = weft_comm_rank(b->comm);
    double least = 0;
    for (int i = 0; i < b->repeats; i++) {
        WEFT_TRY(weft_barrier(b->comm));
        double begin = now(b);
        for (int k = 1; k <= peers; k++)
            WEFT_TRY(weft_irecv(b->comm, to + (size_t)(k - 1) * bytes, bytes, (rank - k + P) % P, 2, WEFT_MEM_HOST,
                                NULL, req++));
        for (int k = 1; k <= peers; k++)
            WEFT_TRY(weft_isend(b->comm, from, bytes, (rank + k) % P, 2, WEFT_MEM_HOST, NULL, req++));
        req -= 2 * peers;
        WEFT_TRY(weft_wait_all(req, 2 * peers));
        best(&least, now(b) - begin);
    }
    *rate = (double)bytes * peers / least;
    return WEFT_OK;
}

static weft_status measure_exchange(bench *b, weft_profile *p)
{
    int peers = weft_comm_size(b->comm) - 1;
    char *from, *to;
    weft_req *req;
    weft_status st = WEFT_NEW0(b->arena, (int64_t)bulk, "bench buffers", &from);
    if (st >= 0) st = WEFT_NEW0(b->arena, (int64_t)bulk, "bench buffers", &to);
    if (st >= 0) st = WEFT_NEW0(b->arena, 2 * peers, "bench requests", &req);
    WEFT_TRY(weft_agree(b->comm, st));
    WEFT_TRY(measure_memory(b, from, to, p));
    WEFT_TRY(measure_latency(b, to, p));
    WEFT_TRY(measure_link(b, 1, bulk, from, to, req, &p->link_bytes_per_second));
    return measure_link(b, peers, bulk / (size_t)peers, from, to, req, &p->rank_bytes_per_second);
}

/* ---- the bench ---------------------------------------------------------------------------------------------- */

/* Ranks wait for the slowest: rates are the least of all ranks, the factor the largest. */
static weft_status worst_of_all(bench *b, weft_profile *p)
{
    double rate[3 + WEFT_PREC_COUNT] = {p->link_bytes_per_second, p->rank_bytes_per_second, p->memory_bytes_per_second};
    memcpy(rate + 3, p->flops_per_second, sizeof p->flops_per_second);
    WEFT_TRY(weft_all_reduce(b->comm, rate, 3 + WEFT_PREC_COUNT, WEFT_F64, WEFT_MIN));
    WEFT_TRY(weft_all_reduce(b->comm, &p->backward_factor, 1, WEFT_F64, WEFT_MAX));
    p->link_bytes_per_second = rate[0], p->rank_bytes_per_second = rate[1], p->memory_bytes_per_second = rate[2];
    memcpy(p->flops_per_second, rate + 3, sizeof p->flops_per_second);
    /* One kind of link was there to be measured: ranks on all sides of it count as one node. */
    snprintf(p->name, sizeof p->name, "this machine");
    memcpy(p->product_flops_per_second, p->flops_per_second, sizeof p->flops_per_second);
    p->element_bytes_per_second = 2 * p->memory_bytes_per_second;
    p->collective_factor = 1;
    p->node_ranks = 0;
    p->node_latency_seconds = p->latency_seconds;
    p->node_bytes_per_second = p->rank_bytes_per_second < p->link_bytes_per_second ? p->rank_bytes_per_second
                                                                                   : p->link_bytes_per_second;
    return WEFT_OK;
}

static void print_profile(const bench *b, const weft_profile *p)
{
    printf("%d ranks (%s), %d thread%s each, kernels %s; all at work at once, the slowest counts\n\n",
           weft_world_size(b->world), weft_world_transport(b->world), b->ctx->threads, b->ctx->threads > 1 ? "s" : "",
           weft_isa_name(b->kern.isa));
    for (int i = 0; i < WEFT_PREC_COUNT; i++)
        printf("attention, forward, %-4s   %10.2f GFLOP/s\n", weft_prec_name((weft_prec)i),
               p->flops_per_second[i] / 1e9);
    printf("backward / forward         %10.2f\n", p->backward_factor);
    printf("copy in memory             %10.2f GB/s\n", p->memory_bytes_per_second / 1e9);
    printf("latency of a message       %10.2f us\n", p->latency_seconds * 1e6);
    printf("to one rank                %10.2f GB/s\n", p->link_bytes_per_second / 1e9);
    printf("to all ranks at once       %10.2f GB/s\n", p->rank_bytes_per_second / 1e9);
}

static weft_status measure(bench *b, weft_profile *p)
{
    WEFT_TRY(weft_agree(b->comm, weft_arena_create(&b->arena, &b->ctx->mem, "bench", NULL)));
    weft_status st = measure_kernels(b, p);
    if (st >= 0) st = measure_exchange(b, p);
    if (st >= 0) st = worst_of_all(b, p);
    weft_arena_destroy(b->arena);
    return st;
}

static weft_status body(weft_cli *cli, weft_world *world)
{
    const int64_t given = cli->options.bench_repeats;
    bench b = {.ctx = weft_world_ctx(world), .world = world, .repeats = given ? given : REPEATS};
    weft_profile p = {0};
    weft_mesh mesh;
    WEFT_TRY(weft_kern_init(&b.kern, cli->run.isa));
    WEFT_TRY(weft_mesh_create(&mesh, world, cli->run.mesh));
    b.comm = mesh.cp;
    weft_status st = measure(&b, &p);
    if (st >= 0 && weft_is_root(world)) {
        print_profile(&b, &p);
        if (cli->options.out) st = weft_profile_write(&p, cli->options.out);
        if (cli->options.out && st >= 0) printf("\nwritten to %s\n", cli->options.out);
    }
    weft_mesh_destroy(&mesh);
    return st;
}

static weft_status check(weft_cli *cli)
{
    if (cli->run.mesh.cp < 2)
        return weft_fail(WEFT_ERR_REFUSED, "bench profile --cp %d: messages need two ranks; give --cp 2 or more",
                         cli->run.mesh.cp);
    return cli->options.out ? weft_writer_check(cli->options.out) : WEFT_OK;
}

/* It measures the machine, not a way to cut. */
static const char *const uses[] = {"parallel.cp", "parallel.peer_memory", "run.isa", "run.threads", "run.timeout",
                                   "run.mpi_progress", "out", "bench.repeats", NULL};

const weft_bench weft_bench_profile = {"profile", 2, false, uses, check, body};
