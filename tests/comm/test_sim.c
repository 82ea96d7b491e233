/* labels: small */
/* The simulated transport: when transfers begin and end, that a run is the same every time, and that what would hang is
 * named. Times are sums of a few exact figures; they are compared to 1e-12 of themselves. */
#include "harness/ranks.h"
#include "harness/test.h"
#include "comm/comm.h"

#include <sys/mman.h>

/* Powers of two and ten without rounding where possible: 1 KiB takes 1 s on a link of 1 KiB/s. */
static weft_sim_model plain(void)
{
    return (weft_sim_model){.latency_seconds = 0.5, .link_bytes_per_second = 1024, .port_bytes_per_second = 1024,
                            .node_ranks = 1, .node_latency_seconds = 0.125, .node_bytes_per_second = 8192};
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fmax(1, fabs(b)); }

static weft_status send_to(weft_comm *c, int to, size_t bytes, weft_req *r)
{
    static const char zeros[1 << 16];
    return weft_isend(c, zeros, bytes, to, 0, WEFT_MEM_HOST, NULL, r);
}

static weft_status recv_from(weft_comm *c, int from, char *buf, size_t bytes, weft_req *r)
{
    return weft_irecv(c, buf, bytes, from, 0, WEFT_MEM_HOST, NULL, r);
}

/* ---- times -------------------------------------------------------------------------------------------- */

/* Work that only takes time. */
static void work(weft_ctx *ctx, double seconds) { ctx->clock.charge(ctx->clock.ud, seconds); }

/* All ranks start at the same time, whenever they left the opening of the group. */
static double start_together(weft_ctx *ctx)
{
    enum { START = 4096 };
    work(ctx, START - weft_now(&ctx->clock));
    return START;
}

typedef struct pair_case { double posted[2], ends; size_t bytes; } pair_case;

static weft_status pair_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    const pair_case *k = ud;
    weft_comm *c;
    WEFT_TRY(test_comm_all(&c, w, "all"));
    int me = weft_comm_rank(c);
    double start = start_together(ctx);
    static char buf[1 << 16];
    weft_req r;
    work(ctx, k->posted[me]);
    WEFT_TRY(me == 0 ? send_to(c, 1, k->bytes, &r) : recv_from(c, 0, buf, k->bytes, &r));
    WEFT_TRY(weft_wait(&r));
    REQUIRE(near(weft_now(&ctx->clock) - start, k->ends));
    return WEFT_OK;
}

/* A transfer takes latency + bytes / rate from the moment when both ends are there. */
static void a_transfer_begins_when_both_are_there(void **state)
{
    (void)state;
    weft_sim_model m = plain();
    assert_ok(weft_run_sim(2, &m, pair_body, &(pair_case){{0, 0}, 0.5 + 2, 2048}));
    assert_ok(weft_run_sim(2, &m, pair_body, &(pair_case){{3, 0}, 3 + 0.5 + 1, 1024}));
    assert_ok(weft_run_sim(2, &m, pair_body, &(pair_case){{0, 7}, 7 + 0.5 + 1, 1024}));
    m.node_ranks = 0;
    assert_ok(weft_run_sim(2, &m, pair_body, &(pair_case){{0, 0}, 0.125 + 1, 8192}));
    m = plain(), m.port_bytes_per_second = 4096; /* the link is the limit */
    assert_ok(weft_run_sim(2, &m, pair_body, &(pair_case){{0, 0}, 0.5 + 1, 1024}));
    m.post_seconds = 0.25;
    assert_ok(weft_run_sim(2, &m, pair_body, &(pair_case){{0, 1}, 1 + 0.25 + 0.5 + 1, 1024}));
}

typedef struct star_case { bool to_centre; double first, last; } star_case;

/* Rank 0 sends to all, or all to rank 0. */
static weft_status star_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    const star_case *k = ud;
    weft_comm *c;
    WEFT_TRY(test_comm_all(&c, w, "all"));
    int P = weft_comm_size(c), me = weft_comm_rank(c);
    double start = start_together(ctx);
    static char buf[8][1024];
    weft_req r[8] = {{0}};
    for (int i = 1; i < P && me == 0; i++)
        WEFT_TRY(k->to_centre ? recv_from(c, i, buf[i], 1024, &r[i]) : send_to(c, i, 1024, &r[i]));
    if (me > 0) WEFT_TRY(k->to_centre ? send_to(c, 0, 1024, &r[0]) : recv_from(c, 0, buf[me], 1024, &r[0]));
    WEFT_TRY(weft_wait_all(r, P));
    double took = weft_now(&ctx->clock) - start;
    REQUIRE(took >= k->first - 1e-9 && took <= k->last + 1e-9);
    REQUIRE(me != 0 || near(took, k->last));
    REQUIRE(me != 1 || near(took, k->first));
    return WEFT_OK;
}

/* A port serves one transfer after the other; with ports faster than links several are under way at once. */
static void ports_are_shared(void **state)
{
    (void)state;
    weft_sim_model m = plain();
    assert_ok(weft_run_sim(5, &m, star_body, &(star_case){false, 1.5, 0.5 + 4}));
    assert_ok(weft_run_sim(5, &m, star_body, &(star_case){true, 1.5, 0.5 + 4}));
    m.port_bytes_per_second = 2048;
    assert_ok(weft_run_sim(5, &m, star_body, &(star_case){false, 1.5, 0.5 + 3 * 0.5 + 1}));
    assert_ok(weft_run_sim(5, &m, star_body, &(star_case){true, 1.5, 0.5 + 3 * 0.5 + 1}));
}

typedef struct poll_case { double ends[2]; } poll_case;

/* Rank 1 posts its receive and computes for 10 s without looking; rank 0 comes with its send after 1 s. */
static weft_status poll_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    const poll_case *k = ud;
    weft_comm *c;
    WEFT_TRY(test_comm_all(&c, w, "all"));
    int me = weft_comm_rank(c);
    double start = start_together(ctx);
    static char buf[1024];
    weft_req r;
    if (me == 0) work(ctx, 1);
    WEFT_TRY(me == 0 ? send_to(c, 1, 1024, &r) : recv_from(c, 0, buf, 1024, &r));
    if (me == 1) work(ctx, 10);
    WEFT_TRY(weft_wait(&r));
    REQUIRE(near(weft_now(&ctx->clock) - start, k->ends[me]));
    weft_counters n;
    weft_comm_counters(c, &n);
    REQUIRE(near(n.exposed_seconds, k->ends[me] - (me == 0 ? 1 : 10)));
    REQUIRE(near(n.flight_seconds, me == 0 ? k->ends[0] - 1 : k->ends[0]));
    return WEFT_OK;
}

static void transfers_need_no_rank_unless_asked_for(void **state)
{
    (void)state;
    weft_sim_model m = plain();
    assert_ok(weft_run_sim(2, &m, poll_body, &(poll_case){{2.5, 10}}));
    m.needs_poll = true;
    assert_ok(weft_run_sim(2, &m, poll_body, &(poll_case){{11.5, 11.5}}));
}

/* ---- the same every time -------------------------------------------------------------------------------- */

typedef struct storm_case { double end[23]; } storm_case;

static weft_status storm_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    storm_case *k = ud;
    weft_comm *c;
    WEFT_TRY(test_comm_all(&c, w, "all"));
    int P = weft_comm_size(c), me = weft_comm_rank(c);
    char *buf = malloc(1024);
    for (int i = 0; i < 20; i++) {
        weft_req r[2];
        int to = (me + i + 1) % P, from = (me + 2 * P - i - 1) % P;
        if (to == me) continue;
        work(ctx, 1e-3 * (test_uniform((uint64_t)i, me) + 1));
        WEFT_TRY(recv_from(c, from, buf, (size_t)(i * 7 + from + 1), &r[0]));
        WEFT_TRY(send_to(c, to, (size_t)(i * 7 + me + 1), &r[1]));
        WEFT_TRY(weft_wait_all(r, 2));
    }
    free(buf);
    k->end[me] = weft_now(&ctx->clock);
    return WEFT_OK;
}

static void two_runs_take_the_same_time(void **state)
{
    (void)state;
    weft_sim_model m = plain();
    storm_case a, b;
    m.node_ranks = 4;
    for (int poll = 0; poll < 2; poll++) {
        m.needs_poll = poll;
        assert_ok(weft_run_sim(23, &m, storm_body, &a));
        assert_ok(weft_run_sim(23, &m, storm_body, &b));
        assert_memory_equal(&a, &b, sizeof a);
        assert_true(a.end[0] > 0);
    }
}

/* ---- what would hang ------------------------------------------------------------------------------------ */

/* The message names, in order, all of `parts`. */
static void assert_says(const char *const *parts)
{
    const char *at = weft_last_error();
    for (int i = 0; parts[i]; i++) {
        at = strstr(at, parts[i]);
        if (!at) fail_msg("message \"%s\" lacks \"%s\" (in this order)", weft_last_error(), parts[i]);
    }
}

/* Everybody sends and waits before it receives. Field report G16: works elsewhere as long as messages are small. */
static weft_status blocking_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c;
    WEFT_TRY(test_comm_all(&c, w, "ring"));
    int P = weft_comm_size(c), me = weft_comm_rank(c);
    static char in;
    weft_req r;
    weft_place(w, "test.blocking", 7, 2);
    WEFT_TRY(send_to(c, (me + 1) % P, 1, &r));
    WEFT_TRY(weft_wait(&r));
    WEFT_TRY(recv_from(c, (me + P - 1) % P, &in, 1, &r));
    return weft_wait(&r);
}

static void g16_sends_before_receives_are_a_cycle(void **state)
{
    (void)state;
    weft_sim_model m = plain();
    assert_int_equal(weft_run_sim(4, &m, blocking_body, NULL), WEFT_ERR_TIMEOUT);
    assert_says(
        (const char *const[]){"dead-lock: 4 of 4 ranks wait",
                              "rank 0 waits in test.blocking, layer 7, step 2 for a send to rank 1 (group ring, tag 0)",
                              "-> rank 1 waits in", "-> rank 2 waits in", "-> 3 -> rank 0", NULL});
    /* every rank of a long cycle is named */
    assert_int_equal(weft_run_sim(64, &m, blocking_body, NULL), WEFT_ERR_TIMEOUT);
    assert_says((const char *const[]){"dead-lock: 64 of 64 ranks wait", "-> 5 ->", "-> 40 ->", "-> 63 -> rank 0",
                                      NULL});
}

typedef struct swap_case { bool swapped; int failed; char message[4][200]; } swap_case;

/* Two groups of the same ranks; rank 1 takes their collectives in the other order. */
static weft_status swap_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    swap_case *k = ud;
    weft_comm *all, *group[2];
    static const char *const place[] = {"test.first", "test.second"};
    WEFT_TRY(test_comm_all(&all, w, "all"));
    WEFT_TRY(weft_comm_create(&group[0], w, (int[]){0, 1}, 2, "first"));
    WEFT_TRY(weft_comm_create(&group[1], w, (int[]){1, 0}, 2, "second"));
    int64_t x = 1;
    weft_status st = WEFT_OK;
    for (int i = 0; i < 2 && st == WEFT_OK && ctx->rank < 2; i++) {
        int now = k->swapped && ctx->rank == 1 ? 1 - i : i;
        weft_place(w, place[now], 0, -1);
        st = weft_all_reduce(group[now], &x, 1, WEFT_I64, WEFT_SUM);
    }
    weft_place(w, "test.end", -1, -1);
    if (st == WEFT_OK) st = weft_barrier(all);
    if (st < 0) {
        snprintf(k->message[k->failed++], sizeof *k->message, "%s", weft_last_error());
        return st;
    }
    REQUIRE(x == (ctx->rank < 2 ? 4 : 1));
    return WEFT_OK;
}

static void reversed_collectives_are_a_cycle(void **state)
{
    (void)state;
    weft_sim_model m = plain();
    swap_case good = {.swapped = false}, bad = {.swapped = true};
    assert_ok(weft_run_sim(4, &m, swap_body, &good));
    assert_int_equal(weft_run_sim(4, &m, swap_body, &bad), WEFT_ERR_TIMEOUT);
    assert_says((const char *const[]){"dead-lock: 4 of 4 ranks wait",
                                      "rank 0 waits in test.first, layer 0 for a", "rank 1 (group first, reduction)",
                                      "-> rank 1 waits in test.second, layer 0 for a",
                                      "rank 0 (group second, reduction)",
                                      "-> rank 0", NULL});
    /* every rank gets the error */
    assert_int_equal(bad.failed, 4);
    for (int i = 0; i < 4; i++) assert_non_null(strstr(bad.message[i], "dead-lock"));
}

static weft_status leaving_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ud;
    weft_comm *c;
    WEFT_TRY(test_comm_all(&c, w, "all"));
    if (ctx->rank == 2) return WEFT_OK;
    weft_place(w, "test.leaving", -1, 1);
    static char in;
    weft_req r;
    WEFT_TRY(recv_from(c, ctx->rank == 0 ? 1 : 2, &in, 1, &r));
    return weft_wait(&r);
}

static void a_rank_that_left_is_named(void **state)
{
    (void)state;
    weft_sim_model m = plain();
    assert_int_equal(weft_run_sim(3, &m, leaving_body, NULL), WEFT_ERR_TIMEOUT);
    assert_says((const char *const[]){"rank 0 waits in test.leaving, step 1 for a receive from rank 1",
                                      "-> rank 1 waits in", "-> rank 2 has left", NULL});
}

static weft_status failing_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    int *ended = ud;
    weft_comm *c;
    WEFT_TRY(test_comm_all(&c, w, "all"));
    start_together(ctx);
    if (ctx->rank == 1) return weft_fail(WEFT_ERR_IO, "no such file");
    weft_status st = weft_barrier(c);
    if (st == WEFT_ERR_PEER && !strcmp(weft_last_error(), "rank 1: no such file")) ++*ended;
    return st;
}

static weft_status sizes_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ud;
    weft_comm *c;
    WEFT_TRY(test_comm_all(&c, w, "all"));
    static char in[8];
    weft_req r;
    WEFT_TRY(ctx->rank == 0 ? send_to(c, 1, 8, &r) : recv_from(c, 0, in, 4, &r));
    return weft_wait(&r);
}

static void failures_reach_everybody(void **state)
{
    (void)state;
    weft_sim_model m = plain();
    int ended = 0;
    assert_int_equal(weft_run_sim(5, &m, failing_body, &ended), WEFT_ERR_IO);
    assert_string_equal(weft_last_error(), "rank 1: no such file");
    assert_int_equal(ended, 4);
    assert_refused(weft_run_sim(2, &m, sizes_body, NULL),
                   "rank 0 sends 8 bytes to rank 1, which posted a receive of 4 bytes");
}

/* Rank 1 fails with a transfer under way, after it has given back the memory of its request and buffer: unmapped, so
 * that a look at them would not go unnoticed in any build. */
static weft_status open_transfer_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    bool posts_late = *(bool *)ud;
    struct { weft_req req[2]; char buf[2][1024]; } *m =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(sizeof *m <= 4096 && m != MAP_FAILED);
    weft_comm *c = weft_world_all(w);
    double begin = weft_now(&ctx->clock);
    if (ctx->rank == 0) {
        if (posts_late) work(ctx, 5); /* meets what rank 1 has posted, on its way to failing */
        WEFT_TRY(send_to(c, 1, 1024, &m->req[0]));
        weft_status st = weft_wait(&m->req[0]);
        REQUIRE(weft_now(&ctx->clock) - begin <= 10 + 1e-9);
        munmap(m, 4096);
        return st;
    }
    WEFT_TRY(recv_from(c, 0, m->buf[0], 1024, &m->req[0]));
    WEFT_TRY(recv_from(c, 0, m->buf[1], 1024, &m->req[1]));
    work(ctx, 10);
    munmap(m, 4096);
    return weft_fail(WEFT_ERR_NUMERIC, "not finite");
}

static void a_rank_that_fails_may_give_back_what_it_posted(void **state)
{
    (void)state;
    for (int polls = 0; polls < 2; polls++)
        for (int late = 0; late < 2; late++) {
            weft_sim_model m = plain();
            m.needs_poll = polls;
            assert_int_equal(weft_run_sim(2, &m, open_transfer_body, &(bool){late}), WEFT_ERR_NUMERIC);
            assert_string_equal(weft_last_error(), "rank 1: not finite");
        }
}

/* Hours of simulated time are no dead-lock; who sets a deadline gets it, and is told where the other is. */
static weft_status hours_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    double timeout = *(double *)ud;
    weft_comm *c = weft_world_all(w);
    static char in[3];
    weft_req r[3] = {{0}};
    if (timeout > 0) WEFT_TRY(weft_world_set_timeout(w, timeout));
    if (ctx->rank > 0) {
        work(ctx, 7200 * ctx->rank);
        WEFT_TRY(send_to(c, 0, 1, &r[0]));
        return weft_wait(&r[0]);
    }
    for (int i = 0; i < 2; i++) WEFT_TRY(recv_from(c, 2 - i, &in[i], 1, &r[i]));
    return weft_wait_all(r, 2);
}

static void hours_are_no_dead_lock(void **state)
{
    (void)state;
    weft_sim_model m = plain();
    assert_ok(weft_run_sim(3, &m, hours_body, &(double){0}));
    assert_int_equal(weft_run_sim(3, &m, hours_body, &(double){100}), WEFT_ERR_TIMEOUT);
    assert_says((const char *const[]){"passed its deadline of 100 s", "rank 2 is in start", NULL});
    assert_null(strstr(weft_last_error(), "-1"));
}

static void bad_models_are_refused(void **state)
{
    (void)state;
    weft_sim_model m = plain();
    assert_refused(weft_run_sim(0, &m, failing_body, NULL), "0 simulated ranks");
    m.link_bytes_per_second = 0;
    assert_refused(weft_run_sim(2, &m, failing_body, NULL), "above 0");
    m = plain(), m.latency_seconds = NAN;
    assert_refused(weft_run_sim(2, &m, failing_body, NULL), "at least 0");
    m = plain(), m.node_ranks = -1;
    assert_refused(weft_run_sim(2, &m, failing_body, NULL), "nodes of -1");
}

/* ---- buffers without memory ------------------------------------------------------------------------------ */

static weft_status addresses_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ud;
    weft_comm *c;
    WEFT_TRY(test_comm_all(&c, w, "all"));
    const weft_mem_provider *p = weft_world_buffers(w);
    REQUIRE(p->kind == WEFT_MEM_DEVICE);
    weft_arena *arena;
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "test", p));
    void *a, *b;
    /* as much as no machine has */
    WEFT_TRY(weft_arena_alloc(arena, (int64_t)1 << 32, 1, "a", &a));
    WEFT_TRY(weft_arena_alloc(arena, (int64_t)1 << 32, 1, "b", &b));
    REQUIRE((char *)b - (char *)a >= (int64_t)1 << 32 || (char *)a - (char *)b >= (int64_t)1 << 32);
    weft_req r[2];
    int other = 1 - ctx->rank;
    WEFT_TRY(weft_irecv(c, a, (size_t)1 << 32, other, 1, WEFT_MEM_DEVICE, NULL, &r[0]));
    WEFT_TRY(weft_isend(c, b, (size_t)1 << 32, other, 1, WEFT_MEM_DEVICE, NULL, &r[1]));
    WEFT_TRY(weft_wait_all(r, 2));
    weft_counters n;
    weft_comm_counters(c, &n);
    REQUIRE(n.bytes_logical == (int64_t)1 << 32 && n.messages == 1);
    weft_arena_destroy(arena);
    return WEFT_OK;
}

static void buffers_without_memory(void **state)
{
    (void)state;
    weft_sim_model m = plain();
    m.no_memory = true;
    assert_ok(weft_run_sim(2, &m, addresses_body, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transfer_begins_when_both_are_there),
        cmocka_unit_test(ports_are_shared),
        cmocka_unit_test(transfers_need_no_rank_unless_asked_for),
        cmocka_unit_test(two_runs_take_the_same_time),
        cmocka_unit_test(g16_sends_before_receives_are_a_cycle),
        cmocka_unit_test(reversed_collectives_are_a_cycle),
        cmocka_unit_test(a_rank_that_left_is_named),
        cmocka_unit_test(failures_reach_everybody),
        cmocka_unit_test(a_rank_that_fails_may_give_back_what_it_posted),
        cmocka_unit_test(hours_are_no_dead_lock),
        cmocka_unit_test(bad_models_are_refused),
        cmocka_unit_test(buffers_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
