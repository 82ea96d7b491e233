/* labels: small tsan */
/* mpi-thread: 5 */
/* mpi-nodes: 4 */
/* mpi: 3 */
/* mpi-long: 8 */
/* Collectives over thread ranks and simulated ones, or under mpirun, P in 1, 2, 3, 5, 8 and 41 (more than a window of
 * steps, and than the sums that go directly), with uneven and zero counts. Sums of small integers are
 * exact, so results are compared without tolerance; sums of real numbers are compared bit by bit with the
 * documented order of additions. */
#include "harness/ranks.h"
#include "harness/test.h"
#include "harness/mpi_ranks.h"

static const int worlds[] = {1, 2, 3, 5, 8};
enum { CROWD = 41, RANKS = 64 }; /* a crowd is mostly simulated: the same code, and forty threads wait long */
static const weft_sim_model sim_model = {1e-6, 1e-5, 1e9, 1e9, 0, 1e-6, 1e10, false, false, NULL, 0};

/* Under mpirun, what needs more ranks than there are is left out, and the simulator needs no repetition. Simulated
 * ranks share a thread, so there is nothing in them for the thread sanitizer. */
static weft_status run(int P, weft_rank_fn body, void *ud)
{
    return P <= test_run_most() ? test_run(P, body, ud, 0) : WEFT_OK;
}

static weft_status run_sim(int P, weft_rank_fn body, void *ud)
{
    return test_under_mpi() || test_under_tsan() ? WEFT_OK : weft_run_sim(P, &sim_model, body, ud);
}

#define EACH_P(body, ud) \
    for (size_t k_ = 0; k_ < sizeof worlds / sizeof *worlds; k_++) { \
        assert_ok(run(worlds[k_], (body), (ud))); \
        assert_ok(run_sim(worlds[k_], (body), (ud))); \
    }
/* How much a rank of many moves at most: they share a few cores. */
static int64_t scale_limit(int P, int64_t few) { return P > 8 ? 3 : few; }

static weft_status open_all(weft_comm **c, weft_world *w)
{
    weft_world_set_timeout(w, 60);
    return test_comm_all(c, w, "all");
}

/* Uneven counts with empty ranks; scale 0 empties all. */
static int64_t count_of(int r, int64_t scale) { return r % 3 == 1 ? 0 : (int64_t)(r + 1) * scale; }

static weft_status gather_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int P = weft_comm_size(c), me = weft_comm_rank(c);
    for (int64_t scale = 0; scale <= scale_limit(P, 40000); scale = scale * 200 + 1) {
        size_t counts[RANKS], total = 0, before = 0;
        for (int i = 0; i < P; i++) {
            counts[i] = (size_t)count_of(i, scale) * sizeof(int64_t);
            if (i < me) before += counts[i];
            total += counts[i];
        }
        int64_t *send = malloc(counts[me] + 8), *recv = malloc(total + 8);
        for (int64_t i = 0; i < count_of(me, scale); i++) send[i] = me * 1000000 + i;
        for (int in_place = 0; in_place < 2; in_place++) {
            memset(recv, 0xff, total + 8);
            if (in_place) memcpy((char *)recv + before, send, counts[me]);
            WEFT_TRY(weft_all_gather(c, in_place ? (void *)((char *)recv + before) : send, recv, counts));
            int64_t at = 0;
            for (int r = 0; r < P; r++)
                for (int64_t i = 0; i < count_of(r, scale); i++) REQUIRE(recv[at++] == r * 1000000 + i);
            REQUIRE(recv[at] == -1);
        }
        free(send);
        free(recv);
    }
    return WEFT_OK;
}

static void all_gather_in_rank_order(void **state)
{
    (void)state;
    EACH_P(gather_body, NULL);
    assert_ok(run_sim(CROWD, gather_body, NULL));
    assert_ok(run(CROWD, gather_body, NULL));
}

/* The bytes that a formula expects: P-1 copies of the own part. */
static weft_status bytes_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int P = weft_comm_size(c), me = weft_comm_rank(c);
    size_t counts[RANKS], total = 0;
    int64_t elements[RANKS], sum = 0;
    for (int i = 0; i < P; i++) {
        elements[i] = count_of(i, 10);
        counts[i] = (size_t)elements[i] * sizeof(float);
        total += counts[i];
        sum += elements[i];
    }
    float *a = calloc(1, total + 4), *b = calloc(1, total + 4);
    weft_counters n0, n1, n2, n3;
    weft_comm_counters(c, &n0);
    WEFT_TRY(weft_all_gather(c, a, b, counts));
    weft_comm_counters(c, &n1);
    WEFT_TRY(weft_reduce_scatter(c, b, a, elements, WEFT_F32));
    weft_comm_counters(c, &n2);
    WEFT_TRY(weft_barrier(c));
    weft_comm_counters(c, &n3);
    REQUIRE(n1.bytes_logical - n0.bytes_logical == (P - 1) * (int64_t)counts[me]);
    REQUIRE(n2.bytes_logical - n1.bytes_logical == (sum - elements[me]) * (int64_t)sizeof(float));
    REQUIRE(n3.bytes_logical == n2.bytes_logical && (P == 1 || n3.messages > n2.messages));
    REQUIRE(n3.exposed_seconds >= 0 && n3.flight_seconds >= 0);
    weft_counters before, after;
    weft_world_counters(w, &before);
    weft_comm_destroy(c);
    weft_world_counters(w, &after);
    REQUIRE(after.bytes_logical == before.bytes_logical && after.messages == before.messages);
    free(a);
    free(b);
    return WEFT_OK;
}

static void counters_count_the_payload(void **state)
{
    (void)state;
    EACH_P(bytes_body, NULL);
    assert_ok(run_sim(CROWD, bytes_body, NULL));
}

/* Wraps, so that it differs between all ranks. */
static int32_t word(int from, int to, size_t i)
{
    return (int32_t)((uint32_t)from * 100000007u + (uint32_t)to * 1000003u + (uint32_t)i);
}

static weft_status a2a_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int P = weft_comm_size(c), me = weft_comm_rank(c);
    /* n(from, to): uneven, sometimes 0, different in both directions. */
    /* The last: several times what a mailbox holds. */
    for (int64_t scale = 1; scale <= scale_limit(P, 90000); scale *= 300) {
        size_t out[RANKS], in[RANKS], out_total = 0, in_total = 0;
        for (int i = 0; i < P; i++) {
            out[i] = (size_t)((me * 3 + i) % 4 * scale) * sizeof(int32_t);
            in[i] = (size_t)((i * 3 + me) % 4 * scale) * sizeof(int32_t);
            out_total += out[i];
            in_total += in[i];
        }
        int32_t *send = malloc(out_total + 4), *recv = malloc(in_total + 4), *p = send;
        for (int to = 0; to < P; to++)
            for (size_t i = 0; i < out[to] / 4; i++) *p++ = word(me, to, i);
        WEFT_TRY(weft_all_to_all(c, send, out, recv, in));
        p = recv;
        for (int from = 0; from < P; from++)
            for (size_t i = 0; i < in[from] / 4; i++) REQUIRE(*p++ == word(from, me, i));
        free(send);
        free(recv);
    }
    size_t wrong_out[RANKS] = {0}, wrong_in[RANKS] = {0};
    wrong_out[me] = 4;
    REQUIRE(weft_all_to_all(c, &wrong_in, wrong_out, NULL, wrong_in) == WEFT_ERR_REFUSED);
    return WEFT_OK;
}

static void all_to_all_is_a_transpose(void **state)
{
    (void)state;
    EACH_P(a2a_body, NULL);
    assert_ok(run_sim(CROWD, a2a_body, NULL));
}

/* ---- sums --------------------------------------------------------------------------------------------- */

/* Value of element i on rank r; real numbers whose sum depends on the order of additions. */
static double part(int r, int64_t i)
{
    uint64_t x = ((uint64_t)i * 64 + (uint64_t)r + 1) * 0x9e3779b97f4a7c15u; /* cheap: called millions of times */
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    return ldexp((double)(int64_t)x, -63 - (int)(x % 17));
}

static weft_status scatter_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    weft_dtype t = *(weft_dtype *)ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int P = weft_comm_size(c), me = weft_comm_rank(c);
    /* The last: more than one round of the scratch with P = 8 and with P = 41. */
    const int64_t scales[] = {0, 3, P > 8 ? 250 : 11000};
    for (size_t s_ = 0; s_ < sizeof scales / sizeof *scales; s_++) {
        int64_t scale = scales[s_];
        int64_t counts[RANKS], total = 0, before = 0;
        for (int i = 0; i < P; i++) {
            counts[i] = count_of(i, scale);
            if (i < me) before += counts[i];
            total += counts[i];
        }
        size_t size = weft_dtype_size(t);
        void *send = malloc((size_t)(total + 1) * size), *recv = malloc((size_t)(counts[me] + 1) * size);
        for (int64_t i = 0; i < total; i++) weft_store(send, t, i, part(me, i));
        WEFT_TRY(weft_reduce_scatter(c, send, recv, counts, t));
        for (int64_t i = 0; i < counts[me]; i++) {
            double got = weft_load(recv, t, i);
            float f = (float)part((me + 1) % P, before + i);
            double d = part((me + 1) % P, before + i);
            for (int s = 2; s <= P; s++) {
                f += (float)part((me + s) % P, before + i);
                d += part((me + s) % P, before + i);
            }
            REQUIRE(got == (t == WEFT_F32 ? (double)f : d));
        }
        free(send);
        free(recv);
    }
    weft_bf16 h = 0;
    int64_t one[RANKS];
    for (int i = 0; i < P; i++) one[i] = 1;
    REQUIRE(weft_reduce_scatter(c, &h, &h, one, WEFT_BF16) == WEFT_ERR_REFUSED && strstr(weft_last_error(), "bf16"));
    return WEFT_OK;
}

static void reduce_scatter_adds_in_the_documented_order(void **state)
{
    (void)state;
    EACH_P(scatter_body, (&(weft_dtype){WEFT_F32}));
    EACH_P(scatter_body, (&(weft_dtype){WEFT_F64}));
    assert_ok(run_sim(CROWD, scatter_body, &(weft_dtype){WEFT_F32}));
}

typedef struct sum_case { int64_t n; int P; double *result; /* [P][n] */ } sum_case;

static weft_status sum_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    sum_case *k = ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int me = weft_comm_rank(c);
    double *x = k->result + me * k->n;
    for (int64_t i = 0; i < k->n; i++) x[i] = part(me, i);
    return weft_all_reduce(c, x, k->n, WEFT_F64, WEFT_SUM);
}

static weft_status run_sum(int P, sum_case *k)
{
    return P > 8 ? weft_run_sim(P, &sim_model, sum_body, k) : run(P, sum_body, k);
}

static void check_sum(int P, int64_t n)
{
    size_t bytes = (size_t)(n * P + 1) * sizeof(double);
    if (P > test_run_most()) return;
    double *a = calloc(1, bytes), *b = calloc(1, bytes), *before = calloc(1, bytes);
    assert_ok(run_sum(P, &(sum_case){n, P, a}));
    assert_ok(run_sum(P, &(sum_case){n, P, b}));
    if (P <= 8) {
        test_run_merge(P, a, before, bytes);
        test_run_merge(P, b, before, bytes);
    }
    free(before);
    assert_memory_equal(a, b, bytes);
    for (int r = 1; r < P; r++) assert_int_equal(memcmp(a, a + r * n, (size_t)n * sizeof *a), 0);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, size = 0;
        for (int r = 0; r < P; r++) sum += part(r, i), size += fabs(part(r, i));
        /* P - 1 additions in either order: each rounds by at most 2^-53 of a partial sum. */
        assert_at_most(fabs(a[i] - sum), 2 * P * 0x1p-53 * size);
    }
    free(a);
    free(b);
}

static void all_reduce_gives_the_same_bits_everywhere_and_always(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 3, 1001, 150000}; /* the last: more than one round */
    for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) check_sum(worlds[k], sizes[s]);
    /* 512 doubles are the last that go through a tree. */
    static const int64_t few[] = {1, 3, 512, 513, 1001};
    for (size_t s = 0; s < sizeof few / sizeof *few; s++) check_sum(s % 2 ? 17 : CROWD, few[s]);
}

static weft_status ops_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int P = weft_comm_size(c), me = weft_comm_rank(c);
    enum { N = 5 };
    for (int op = WEFT_SUM; op <= WEFT_MIN; op++) {
        float f[N];
        double d[N];
        int64_t n[N], big = (int64_t)1 << 60;
        for (int i = 0; i < N; i++) {
            f[i] = (float)(d[i] = (double)((me * 7 + i) % 11 - 5));
            n[i] = big + (me * 7 + i) % 11 - 5; /* beyond what a double holds */
        }
        WEFT_TRY(weft_all_reduce(c, f, N, WEFT_F32, (weft_op)op));
        WEFT_TRY(weft_all_reduce(c, d, N, WEFT_F64, (weft_op)op));
        WEFT_TRY(weft_all_reduce(c, n, N, WEFT_I64, (weft_op)op));
        for (int i = 0; i < N; i++) {
            int64_t expect = i % 11 - 5;
            for (int r = 1; r < P; r++) {
                int64_t x = (r * 7 + i) % 11 - 5;
                expect = op == WEFT_SUM   ? expect + x
                         : op == WEFT_MAX ? weft_max_i64(expect, x)
                                          : weft_min_i64(expect, x);
            }
            REQUIRE(f[i] == (float)expect && d[i] == (double)expect);
            int64_t bigs = op == WEFT_SUM ? (int64_t)((uint64_t)big * (uint64_t)P) : big;
            REQUIRE(n[i] == (int64_t)((uint64_t)bigs + (uint64_t)expect));
        }
    }
    /* One rank's NaN reaches all, through max as well. */
    float x[3] = {1, me == P - 1 ? NAN : 2, -1};
    WEFT_TRY(weft_all_reduce(c, x, 3, WEFT_F32, WEFT_MAX));
    REQUIRE(x[0] == 1 && isnan(x[1]) && x[2] == -1);
    return WEFT_OK;
}

static void all_reduce_of_every_operation_and_type(void **state)
{
    (void)state;
    EACH_P(ops_body, NULL);
    assert_ok(run_sim(CROWD, ops_body, NULL));
}

/* ---- the rest ---------------------------------------------------------------------------------------------- */

static weft_status broadcast_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    const size_t sizes[] = {0, 1, 4095, ((size_t)3 << 20) / (size_t)test_every(4) + 5};
    int P = weft_comm_size(c);
    for (int root = 0; root < P; root++) {
        size_t n = root == 0 || root == P - 1 ? 4 : 3; /* the longest from two roots only */
        for (size_t k = 0; k < n; k++) {
            unsigned char *x = malloc(sizes[k] + 1);
            for (size_t i = 0; i < sizes[k]; i++)
                x[i] = weft_comm_rank(c) == root ? (unsigned char)(i * 7 + (size_t)root) : 0;
            WEFT_TRY(weft_broadcast(c, x, sizes[k], root));
            for (size_t i = 0; i < sizes[k]; i++) REQUIRE(x[i] == (unsigned char)(i * 7 + (size_t)root));
            free(x);
        }
    }
    REQUIRE(weft_broadcast(c, &(char){0}, 1, weft_comm_size(c)) == WEFT_ERR_REFUSED);
    return WEFT_OK;
}

static void broadcast_from_every_root(void **state)
{
    (void)state;
    EACH_P(broadcast_body, NULL);
}

static _Atomic int arrived[100];

static weft_status barrier_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    for (int i = 0; i < 100; i++) {
        arrived[i]++;
        WEFT_TRY(weft_barrier(c));
        REQUIRE(arrived[i] == weft_comm_size(c));
    }
    return WEFT_OK;
}

static void nobody_passes_a_barrier_early(void **state)
{
    (void)state;
    if (test_under_mpi()) return; /* the ranks count in memory that they share */
    for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++) {
        for (int i = 0; i < 100; i++) arrived[i] = 0;
        assert_ok(run(worlds[k], barrier_body, NULL));
    }
}

static weft_status agree_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int P = weft_comm_size(c), me = weft_comm_rank(c);
    REQUIRE(weft_agree(c, WEFT_OK) == WEFT_OK);
    REQUIRE(weft_agree(c, WEFT_IN_PROGRESS) == WEFT_OK);
    weft_status mine = WEFT_OK;
    if (me == 1) mine = weft_fail(WEFT_ERR_REFUSED, "layout striped does not fit");
    if (me == 2) mine = weft_fail(WEFT_ERR_IO, "disk full");
    weft_status worst = P == 1 ? WEFT_OK : P == 2 ? WEFT_ERR_REFUSED : WEFT_ERR_IO;
    REQUIRE(weft_agree(c, mine) == worst);
    const char *expect = me == 1   ? "layout striped does not fit"
                         : me == 2 ? "disk full"
                                   : "rank 1: layout striped does not fit";
    if (P > 1) REQUIRE(strcmp(weft_last_error(), expect) == 0);
    return weft_barrier(c); /* an agreed refusal is no failure of the world */
}

static void agree_gives_the_worst_to_all(void **state)
{
    (void)state;
    EACH_P(agree_body, NULL);
    assert_ok(run(CROWD, agree_body, NULL));
}

/* Collectives of a subset do not disturb those of another. */
static weft_status subset_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *half[2], *mine;
    weft_world_set_timeout(w, 60);
    WEFT_TRY(weft_comm_create(&half[0], w, (int[]){4, 0, 2}, 3, "even"));
    WEFT_TRY(weft_comm_create(&half[1], w, (int[]){1, 3}, 2, "odd"));
    int me = weft_world_rank(w);
    mine = half[me % 2];
    REQUIRE(mine && !half[1 - me % 2]);
    for (int i = 0; i < 50; i++) {
        int64_t x = me + 1;
        WEFT_TRY(weft_all_reduce(mine, &x, 1, WEFT_I64, WEFT_SUM));
        REQUIRE(x == (me % 2 ? 2 + 4 : 1 + 3 + 5));
        int32_t from = me;
        WEFT_TRY(weft_broadcast(mine, &from, sizeof from, 1));
        REQUIRE(from == (me % 2 ? 3 : 0));
    }
    return WEFT_OK;
}

static void groups_are_separate(void **state)
{
    (void)state;
    assert_ok(run(5, subset_body, NULL));
}

/* All groups of a kind at once: even distances (0, 3, 6 and so on) and others; members and numbers are right, and
 * messages of groups with the same tag do not mix. */
static weft_status split_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    bool even = ud != NULL;
    weft_comm *c, *bad;
    weft_world_set_timeout(w, 60);
    int P = weft_world_size(w), me = weft_world_rank(w), group_of[RANKS], n = 0, before = 0;
    for (int r = 0; r < P; r++) group_of[r] = even ? r % 3 : r * r % 5;
    WEFT_TRY(weft_comm_split(&c, w, group_of, "parts"));
    int64_t sum = 0, x = me;
    for (int r = 0; r < P; r++) {
        if (group_of[r] != group_of[me]) continue;
        n++;
        before += r < me;
        sum += r;
    }
    REQUIRE(weft_comm_size(c) == n && weft_comm_rank(c) == before);
    WEFT_TRY(weft_all_reduce(c, &x, 1, WEFT_I64, WEFT_SUM));
    REQUIRE(x == sum);
    int32_t from[RANKS];
    size_t counts[RANKS];
    for (int i = 0; i < n; i++) counts[i] = sizeof *from;
    int32_t mine = me;
    WEFT_TRY(weft_all_gather(c, &mine, from, counts));
    for (int r = 0, i = 0; r < P; r++)
        if (group_of[r] == group_of[me]) REQUIRE(from[i++] == r);
    for (int r = 0; r < P; r++) group_of[r] = r; /* everybody alone: nothing is exchanged */
    WEFT_TRY(weft_comm_split(&c, w, group_of, "alone"));
    REQUIRE(weft_comm_size(c) == 1);
    group_of[P - 1] = P;
    REQUIRE(weft_comm_split(&bad, w, group_of, "x") == WEFT_ERR_REFUSED && strstr(weft_last_error(), "put into group"));
    group_of[P - 1] = me == 1; /* the ranks differ */
    REQUIRE(weft_comm_split(&bad, w, group_of, "x") == WEFT_ERR_REFUSED && strstr(weft_last_error(), "common order"));
    return WEFT_OK;
}

static void ranks_are_split_into_groups(void **state)
{
    (void)state;
    assert_ok(run(7, split_body, NULL));
    test_run_renew(); /* the ranks disagree about their groups now */
    assert_ok(run(7, split_body, &(int){1}));
    test_run_renew();
    assert_ok(run(20, split_body, NULL));
}

static size_t comm_bytes(const weft_ctx *ctx)
{
    size_t sum = 0;
    for (int i = 0; i < ctx->mem.rows; i++)
        if (!strcmp(ctx->mem.row[i].arena, "comm")) sum += ctx->mem.row[i].bytes;
    return sum;
}

/* A simulator holds thousands of ranks: groups must not grow with their size, and the large scratch comes with the
 * first large sum. */
static weft_status lean_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ud;
    weft_comm *c;
    size_t first = comm_bytes(ctx);
    REQUIRE(first < 20000);
    for (int i = 0; i < 10; i++) WEFT_TRY(open_all(&c, w));
    int64_t x[2] = {0};
    WEFT_TRY(weft_all_reduce(c, x, 2, WEFT_I64, WEFT_MAX));
    REQUIRE(comm_bytes(ctx) - first <= 10 * 512);
    return WEFT_OK;
}

static void groups_take_little_memory(void **state)
{
    (void)state;
    assert_ok(run(64, lean_body, NULL));
}

static weft_status alloc_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    double x[100] = {0};
    int64_t before = 0;
    for (int step = 0; step < 20; step++) {
        if (step == 1) before = ctx->mem.allocations;
        WEFT_TRY(weft_all_reduce(c, x, 100, WEFT_F64, WEFT_SUM));
        WEFT_TRY(weft_barrier(c));
        WEFT_TRY(weft_broadcast(c, x, sizeof x, 0));
    }
    REQUIRE(ctx->mem.allocations == before);
    return WEFT_OK;
}

static void collectives_allocate_nothing(void **state)
{
    (void)state;
    assert_ok(run(test_run_most() < 5 ? 3 : 5, alloc_body, NULL));
}

/* As many ranks as the arithmetic is tested for; mailboxes are smaller then. */
static weft_status crowd_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    enum { N = 20000 };
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int64_t P = weft_comm_size(c);
    int64_t *x = malloc(N * sizeof *x);
    REQUIRE(x);
    for (int64_t i = 0; i < N; i++) x[i] = weft_comm_rank(c) + i;
    WEFT_TRY(weft_all_reduce(c, x, N, WEFT_I64, WEFT_SUM));
    for (int64_t i = 0; i < N; i++) REQUIRE(x[i] == P * (P - 1) / 2 + P * i);
    free(x);
    return weft_barrier(c);
}

static void sixty_four_ranks(void **state)
{
    (void)state;
    assert_ok(run(64, crowd_body, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_gather_in_rank_order),
        cmocka_unit_test(counters_count_the_payload),
        cmocka_unit_test(all_to_all_is_a_transpose),
        cmocka_unit_test(reduce_scatter_adds_in_the_documented_order),
        cmocka_unit_test(all_reduce_gives_the_same_bits_everywhere_and_always),
        cmocka_unit_test(all_reduce_of_every_operation_and_type),
        cmocka_unit_test(broadcast_from_every_root),
        cmocka_unit_test(nobody_passes_a_barrier_early),
        cmocka_unit_test(agree_gives_the_worst_to_all),
        cmocka_unit_test(groups_are_separate),
        cmocka_unit_test(ranks_are_split_into_groups),
        cmocka_unit_test(groups_take_little_memory),
        cmocka_unit_test(collectives_allocate_nothing),
        cmocka_unit_test(sixty_four_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
