/* labels: small tsan */
/* mpi-thread: 3 */
/* mpi: 3 */
/* Collectives that go on while the rank computes: the bits of the blocking ones for every P from 1 to 9, with uneven
 * and empty parts, many under way at once among other exchanges, on thread ranks, simulated ranks or under mpirun; no
 * allocation; a rank that is killed or late is named. */
#include "harness/ranks.h"
#include "harness/test.h"
#include "harness/mpi_ranks.h"

#include <sched.h>

enum { MOST = 9, OPS = 6 };
static const weft_sim_model sim_model = {1e-6, 1e-5, 1e9, 1e9, 0, 1e-6, 1e10, true, false, NULL, 0};

/* Real numbers whose sum depends on the order of additions. */
static double value(int rank, int op, int64_t i)
{
    uint64_t x = ((uint64_t)i * 64 + (uint64_t)rank + 1 + ((uint64_t)op << 40)) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    return ldexp((double)(int64_t)x, -63 - (int)(x % 17));
}

typedef struct one { /* an operation and what it works on */
    bool even, gather, in_place;
    weft_dtype t;
    int first;
    int64_t counts[MOST], total, before, op;
    void *send, *recv, *want;
} one;

/* Empty ranks, and sizes that no piece divides. */
static int64_t count_of(int rank, int op, int64_t scale)
{
    return (rank + op) % 4 == 1 ? 0 : (rank * 3 + op + 1) * scale;
}

static void cut(one *x, int op, int P, int me, int64_t scale)
{
    x->even = op % 3 == 2;
    x->total = x->before = 0;
    for (int i = 0; i < P; i++) x->total += x->counts[i] = count_of(i, op, scale);
    for (int i = 0; x->even && i < P; i++)
        x->counts[i] = weft_share_begin(x->total, P, i + 1) - weft_share_begin(x->total, P, i);
    for (int i = 0; i < me; i++) x->before += x->counts[i];
}

static void *at(const one *x, void *array, int64_t i) { return (char *)array + (size_t)i * weft_dtype_size(x->t); }

static weft_status prepare(one *x, int op, int P, int me, int64_t scale)
{
    *x = (one){.gather = op % 2 == 1, .in_place = op % 4 >= 2, .t = op % 3 == 1 ? WEFT_F32 : WEFT_F64};
    cut(x, op, P, me, scale);
    x->first = op % 4 == 0 ? me + 1 : 2;
    size_t bytes = (size_t)(x->total + 1) * weft_dtype_size(x->t);
    x->send = malloc(bytes);
    x->recv = malloc(bytes);
    x->want = malloc(bytes);
    REQUIRE(x->send && x->recv && x->want);
    for (int64_t i = 0; i < x->total; i++) weft_store(x->send, x->t, i, value(me, op, i));
    if (x->in_place && x->gather)
        memcpy(at(x, x->recv, x->before), x->send, (size_t)x->counts[me] * weft_dtype_size(x->t));
    return WEFT_OK;
}

static weft_status begin(weft_stream *s, one *x)
{
    const int64_t *counts = x->even ? NULL : x->counts;
    void *mine = at(x, x->gather ? x->recv : x->send, x->before);
    if (x->gather)
        return weft_stream_all_gather(s, x->in_place ? mine : x->send, x->recv, counts, x->total, x->t, &x->op);
    return weft_stream_reduce_scatter(s, x->send, x->in_place ? mine : x->recv, counts, x->total, x->t, x->first,
                                      &x->op);
}

/* The same by the blocking collective, or added up here in the order that was asked for. */
static weft_status check(const one *x, int op, weft_comm *c)
{
    int P = weft_comm_size(c), me = weft_comm_rank(c);
    size_t size = weft_dtype_size(x->t), bytes[MOST];
    const void *got = x->gather ? x->recv : x->in_place ? at(x, x->send, x->before) : x->recv;
    int64_t n = x->gather ? x->total : x->counts[me];
    for (int i = 0; i < P; i++) bytes[i] = (size_t)x->counts[i] * size;
    if (x->gather) {
        WEFT_TRY(weft_all_gather(c, x->send, x->want, bytes));
    } else if (x->first == me + 1 && !x->in_place) {
        WEFT_TRY(weft_reduce_scatter(c, x->send, x->want, x->counts, x->t));
    } else {
        for (int64_t i = 0; i < n; i++) {
            int64_t e = x->before + i;
            double sum = value(x->first % P, op, e);
            weft_store(x->want, x->t, i, sum);
            for (int k = 1; k < P; k++) {
                float other = (float)value((x->first + k) % P, op, e),
                      narrow = (float)weft_load(x->want, x->t, i) + other;
                sum += value((x->first + k) % P, op, e);
                weft_store(x->want, x->t, i, x->t == WEFT_F32 ? narrow : sum);
            }
        }
    }
    REQUIRE(memcmp(got, x->want, (size_t)n * size) == 0);
    return WEFT_OK;
}

static void drop(one *x) { free(x->send), free(x->recv), free(x->want); }

/* Ranks do different things in between: look, look often, nothing. */
static void dawdle(weft_world *w, int me, int op)
{
    for (int i = 0; i < (me * 5 + op) % 7; i++) weft_progress(w);
    if (me % 2) sched_yield();
}

static weft_status all_at_once(weft_stream *s, weft_stream *other, weft_comm *c, int64_t scale)
{
    weft_world *w = weft_comm_world(c);
    int me = weft_comm_rank(c), P = weft_comm_size(c);
    one x[OPS], y;
    for (int i = 0; i < OPS; i++) {
        WEFT_TRY(prepare(&x[i], i, P, me, scale));
        WEFT_TRY(begin(s, &x[i]));
        dawdle(w, me, i);
        if (i == 2) WEFT_TRY(weft_barrier(c)); /* other exchanges of the same group in between */
    }
    WEFT_TRY(prepare(&y, 4, P, me, scale)); /* a second stream of the group, which is finished first */
    WEFT_TRY(begin(other, &y));
    WEFT_TRY(weft_stream_finish(other, y.op));
    WEFT_TRY(weft_stream_finish(s, x[OPS / 2].op));
    for (int i = 0; i <= OPS / 2; i++) REQUIRE(weft_stream_done(s, x[i].op));
    WEFT_TRY(weft_stream_finish(s, x[OPS - 1].op));
    for (int i = 0; i < OPS; i++) WEFT_TRY(check(&x[i], i, c));
    WEFT_TRY(check(&y, 4, c));
    for (int i = 0; i < OPS; i++) drop(&x[i]);
    drop(&y);
    return WEFT_OK;
}

static weft_status bits_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    static const size_t work[] = {0, 20000};
    weft_comm *c;
    weft_arena *arena;
    (void)ud;
    weft_world_set_timeout(w, 60);
    WEFT_TRY(test_comm_all(&c, w, "all"));
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "test", NULL));
    weft_status st = WEFT_OK;
    for (size_t k = 0; k < 2 && st == WEFT_OK; k++) {
        weft_stream *s = NULL, *other = NULL;
        double under_way, waited;
        WEFT_TRY(weft_stream_create(&s, arena, c, OPS, work[k]));
        WEFT_TRY(weft_stream_create(&other, arena, c, 1, 0));
        for (int64_t scale = 0; scale <= 61 && st == WEFT_OK; scale = scale * 60 + 1) {
            st = all_at_once(s, other, c, k == 0 ? scale % 7 : scale * 11);
            int64_t before = ctx->mem.allocations;
            if (st == WEFT_OK) st = all_at_once(s, other, c, k == 0 ? scale % 7 : scale * 11);
            REQUIRE(st < 0 || scale == 0 || ctx->mem.allocations == before);
        }
        weft_stream_seconds(s, &under_way, &waited);
        REQUIRE(st < 0 || (under_way >= waited && waited >= 0));
        weft_stream_destroy(other);
        weft_stream_destroy(s);
    }
    weft_arena_destroy(arena);
    return st;
}

static void the_bits_of_the_blocking_ones(void **state)
{
    (void)state;
    for (int P = 1; P <= MOST; P += test_under_tsan() && P >= 3 ? 6 : 1) { /* its threads wait long for each other */
        if (P <= test_run_most()) assert_ok(test_run(P, bits_body, NULL, 0));
        if (!test_under_mpi() && !test_under_tsan()) assert_ok(weft_run_sim(P, &sim_model, bits_body, NULL));
    }
}

/* ---- what goes wrong ---------------------------------------------------------------------------------- */

static weft_status open_one(weft_stream **s, weft_arena **arena, weft_comm **c, weft_ctx *ctx, weft_world *w)
{
    WEFT_TRY(test_comm_all(c, w, "all"));
    WEFT_TRY(weft_arena_create(arena, &ctx->mem, "test", NULL));
    return weft_stream_create(s, *arena, *c, 1, 1000);
}

static weft_status refusals_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    weft_comm *c;
    weft_arena *arena;
    weft_stream *s = NULL, *none = NULL;
    double x[3] = {1, 2, 3};
    const int64_t negative[3] = {1, -1, 3};
    (void)ud;
    WEFT_TRY(open_one(&s, &arena, &c, ctx, w));
    REQUIRE(weft_stream_create(&none, arena, c, 0, 0) == WEFT_ERR_REFUSED && !none);
    REQUIRE(weft_stream_reduce_scatter(s, x, x, negative, 0, WEFT_F64, 0, NULL) == WEFT_ERR_REFUSED);
    REQUIRE(weft_stream_reduce_scatter(s, x, x, NULL, 3, WEFT_BF16, 0, NULL) == WEFT_ERR_REFUSED);
    WEFT_TRY(weft_stream_all_gather(s, &x[weft_comm_rank(c)], x, NULL, 3, WEFT_F64, NULL));
    /* the first is complete where all of it has come already */
    if (!weft_stream_done(s, 0)) REQUIRE(weft_stream_all_gather(s, x, x, NULL, 3, WEFT_F64, NULL) == WEFT_ERR_INTERNAL);
    WEFT_TRY(weft_stream_finish(s, 0));
    weft_stream_destroy(s);
    weft_arena_destroy(arena);
    return WEFT_OK;
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    assert_ok(test_run(3, refusals_body, NULL, 0));
}

/* Rank 2 does not come, or leaves with an operation under way. */
static weft_status stray_body(weft_ctx *ctx, weft_world *w, const char *arg)
{
    weft_comm *c;
    weft_arena *arena;
    weft_stream *s = NULL;
    weft_status st = WEFT_OK;
    double *mine = calloc(3000, sizeof *mine);
    REQUIRE(mine);
    weft_world_set_timeout(w, strcmp(arg, "late") ? 60 : 0.3);
    WEFT_TRY(open_one(&s, &arena, &c, ctx, w));
    weft_place(w, "test.sums", 1, 7);
    bool late = !strcmp(arg, "late") && weft_comm_rank(c) == 2;
    if (!late) st = weft_stream_reduce_scatter(s, mine, mine, NULL, 3000, WEFT_F64, 0, NULL);
    if (!strcmp(arg, "leaves") && weft_comm_rank(c) == 2) st = weft_fail(WEFT_ERR_REFUSED, "this rank is fed up");
    else if (st == WEFT_OK && !late) st = weft_stream_finish(s, 0);
    else if (late) st = weft_barrier(c);
    weft_stream_destroy(s);
    weft_arena_destroy(arena);
    free(mine);
    return st;
}

static const test_body bodies[] = {{"stray", stray_body}};

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    if (test_under_mpi()) skip();
    setenv("WEFT_FAULT", "kill:rank=2:site=comm.send:hit=5", 1);
    weft_status st = test_ranks(TEST_PROCESSES, 3, &bodies[0], "killed");
    unsetenv("WEFT_FAULT");
    assert_true(st < 0);
    assert_non_null(strstr(weft_last_error(), "rank 2 was killed by signal 9"));
    assert_non_null(strstr(weft_last_error(), "test.sums, layer 1, step 7"));
}

static void a_late_rank_is_named(void **state)
{
    (void)state;
    if (test_under_mpi()) skip();
    assert_int_equal(test_ranks(TEST_THREADS, 3, &bodies[0], "late"), WEFT_ERR_TIMEOUT);
    assert_non_null(strstr(weft_last_error(), "rank 2"));
    assert_non_null(strstr(weft_last_error(), "stream"));
}

/* Its message is the cause that all report, and nobody touches what it freed. */
static void who_leaves_in_the_middle_ends_the_world(void **state)
{
    (void)state;
    if (test_under_mpi()) skip();
    for (int way = TEST_THREADS; way <= TEST_PROCESSES; way++) {
        assert_true(test_ranks((test_way)way, 3, &bodies[0], "leaves") < 0);
        assert_non_null(strstr(weft_last_error(), "this rank is fed up"));
    }
}

int main(int argc, char **argv)
{
    int code;
    if (test_ranks_child(argc, argv, bodies, 1, &code)) return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_of_the_blocking_ones),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_late_rank_is_named),
        cmocka_unit_test(who_leaves_in_the_middle_ends_the_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
