/* labels: small tsan */
/* The transport over MPI on an MPI library of the tests' own, so that the sanitizers see it: opening that fails on one
 * rank, ranks of several nodes, calls that fail, what a rank leaves behind that fails by itself. */
#include "harness/test.h"
#include "harness/fake_mpi.h"
#include "comm/mpi_impl.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#define REQUIRE(cond) \
    do { \
        if (!(cond)) return weft_fail(WEFT_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #cond); \
    } while (0)
#define assert_fails(st, status, part) \
    do { \
        weft_status s_ = (st); \
        if (s_ != (status) || !strstr(weft_last_error(), (part))) \
            fail_msg("%s: \"%s\" lacks \"%s\"", weft_status_text(s_), s_ < 0 ? weft_last_error() : "", (part)); \
    } while (0)

static void nap(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}

/* ---- messages ------------------------------------------------------------------------------------------------- */

/* A ring of messages, some longer than the pieces, and a sum over all ranks. */
static weft_status talk(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c = weft_world_all(w);
    int P = weft_world_size(w), me = weft_world_rank(w);
    unsigned char out[3001], in[3001];
    for (int round = 0; round < 5; round++) {
        weft_req r[2];
        size_t n = (size_t)(round * 750 + 1);
        for (size_t i = 0; i < n; i++) out[i] = (unsigned char)(i * 7 + (size_t)(me + round));
        WEFT_TRY(weft_irecv(c, in, n, (me + P - 1) % P, round, WEFT_MEM_HOST, NULL, &r[0]));
        WEFT_TRY(weft_isend(c, out, n, (me + 1) % P, round, WEFT_MEM_HOST, NULL, &r[1]));
        WEFT_TRY(weft_wait_all(r, 2));
        for (size_t i = 0; i < n; i++) REQUIRE(in[i] == (unsigned char)(i * 7 + (size_t)((me + P - 1) % P + round)));
    }
    int64_t sum = me;
    WEFT_TRY(weft_all_reduce(c, &sum, 1, WEFT_I64, WEFT_SUM));
    REQUIRE(sum == P * (P - 1) / 2);
    return WEFT_OK;
}

static void ranks_of_one_node_and_of_several(void **state)
{
    (void)state;
    static const int ranks[] = {2, 3, 5, 8};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (int node = 0; node <= 3; node++)
            for (int thread = 0; thread < 2; thread++)
                assert_ok(fake_mpi_run(ranks[i], &(fake_plan){.node_ranks = node, .thread = thread}, talk, NULL));
}

static void limits_that_differ(void **state)
{
    (void)state;
    assert_ok(fake_mpi_run(3, &(fake_plan){.limits = {1000, 7, 20}}, talk, NULL));
    assert_ok(fake_mpi_run(2, &(fake_plan){.limits = {0, 1}, .thread = true}, talk, NULL));
}

static weft_status many(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    enum { N = 600 };
    static const struct timespec while_ = {.tv_nsec = 1000000};
    if (weft_world_rank(w) == 1) {
        weft_req never;
        char byte;
        WEFT_TRY(weft_irecv(weft_world_all(w), &byte, 1, 0, N, WEFT_MEM_HOST, NULL, &never));
        return weft_wait(&never);
    }
    char *to = malloc(N);
    weft_req *r = malloc(N * sizeof *r);
    REQUIRE(to && r);
    weft_status st = WEFT_OK;
    for (int i = 0; i < N && st >= 0; i++)
        st = weft_irecv(weft_world_all(w), to + i, 1, 1, i, WEFT_MEM_HOST, NULL, &r[i]);
    nanosleep(&while_, NULL);
    free(to);
    free(r);
    return st;
}

static void more_messages_than_tags(void **state)
{
    (void)state;
    assert_fails(fake_mpi_run(2, &(fake_plan){.tag_max = 600}, many, NULL), WEFT_ERR_REFUSED,
                 "rank 0: more than 512 messages at once; wait for some of them first");
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

static void a_rank_that_cannot_open(void **state)
{
    (void)state;
    /* The receives of control messages are the first. */
    assert_fails(fake_mpi_run(3, &(fake_plan){.fails = FAKE_RECV, .rank = 1, .hit = 1}, talk, NULL), WEFT_ERR_LIBRARY,
                 "rank 1: MPI, posting a receive: fake error 77");
    assert_fails(fake_mpi_run(3, &(fake_plan){.limits = {0, 0, (size_t)1 << 40}}, talk, NULL), WEFT_ERR_REFUSED,
                 "rank 2: MPI messages of 1099511627776 bytes; at most 1073741824");
}

/* Without shared memory each rank is like a node of its own. */
static void a_node_that_cannot_share_memory(void **state)
{
    (void)state;
    for (int thread = 0; thread < 2; thread++)
        assert_ok(fake_mpi_run(3, &(fake_plan){.fails = FAKE_SHARE, .rank = 1, .hit = 1, .thread = thread}, talk,
                               NULL));
}

/* Types with alignas would be where the compiler does not expect them. */
static void shared_memory_that_is_askew(void **state)
{
    (void)state;
    assert_fails(fake_mpi_run(2, &(fake_plan){.askew = true}, talk, NULL), WEFT_ERR_INTERNAL,
                 "it is not aligned to 64 bytes");
}

static void a_rank_that_does_not_come(void **state)
{
    (void)state;
    assert_fails(fake_mpi_run(3, &(fake_plan){.late = 2, .timeout = 0.2}, talk, NULL), WEFT_ERR_TIMEOUT,
                 "not every rank of the communicator came within 0.2 s");
    for (int hit = 1; hit <= 3; hit++) /* at each meeting */
        assert_fails(fake_mpi_run(3, &(fake_plan){.fails = FAKE_LEAST, .rank = 2, .hit = hit, .timeout = 0.2}, talk,
                                  NULL),
                     WEFT_ERR_TIMEOUT, "not every rank of the communicator came within 0.2 s");
}

/* ---- calls that fail --------------------------------------------------------------------------------------------- */

static void a_call_that_fails(void **state)
{
    (void)state;
    for (int thread = 0; thread < 2; thread++) {
        assert_fails(fake_mpi_run(3, &(fake_plan){.fails = FAKE_POLL, .rank = 1, .hit = 20, .thread = thread}, talk,
                                  NULL),
                     WEFT_ERR_LIBRARY, "rank 1: MPI, progress: fake error 77");
        assert_fails(fake_mpi_run(3, &(fake_plan){.fails = FAKE_SEND, .rank = 1, .hit = 9, .thread = thread}, talk,
                                  NULL),
                     WEFT_ERR_LIBRARY, "rank 1: MPI, sending");
        assert_fails(fake_mpi_run(3, &(fake_plan){.fails = FAKE_RECV, .rank = 2, .hit = 25, .thread = thread}, talk,
                                  NULL),
                     WEFT_ERR_LIBRARY, "rank 2: MPI, ");
    }
}

static void a_piece_that_is_too_short(void **state)
{
    (void)state;
    for (int thread = 0; thread < 2; thread++)
        assert_fails(fake_mpi_run(2, &(fake_plan){.fails = FAKE_SHORT, .rank = 1, .hit = 2, .limits = {500, 500},
                                                  .thread = thread}, talk, NULL),
                     WEFT_ERR_LIBRARY, " bytes arrived from rank 0 where ");
}

/* ---- a rank that fails by itself --------------------------------------------------------------------------------- */

/* Rank 1 leaves with a failure and without its requests, as a body does that frees what it has on its way out. The
 * address sanitizer sees who touches them. */
static weft_status leave_requests(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c = weft_world_all(w);
    int me = weft_world_rank(w), P = weft_world_size(w);
    weft_req *r = malloc(3 * sizeof *r);
    char *from = calloc(1, 1 << 16), *to = malloc(1 << 16);
    REQUIRE(r && from && to);
    WEFT_TRY(weft_irecv(c, to, 1 << 16, (me + 1) % P, 0, WEFT_MEM_HOST, NULL, &r[0]));
    WEFT_TRY(weft_irecv(c, to, 1 << 10, (me + 1) % P, 1, WEFT_MEM_HOST, NULL, &r[1]));
    WEFT_TRY(weft_isend(c, from, 1 << 16, (me + 1) % P, 2, WEFT_MEM_HOST, NULL, &r[2]));
    weft_progress(w);
    weft_status st = me == 1 ? weft_fail(WEFT_ERR_INTERNAL, "a failure of its own") : weft_wait_all(r, 3);
    if (me != 1) {
        free(r), free(from), free(to);
        return st;
    }
    free(r); /* buffers are for the transport to read until it is told */
    weft_world_abort(w, st, weft_last_error());
    free(from), free(to);
    return weft_fail(st, "a failure of its own");
}

static void requests_that_are_gone(void **state)
{
    (void)state;
    for (int node = 0; node <= 1; node++)
        for (int thread = 0; thread < 2; thread++)
            assert_fails(fake_mpi_run(3, &(fake_plan){.node_ranks = node, .thread = thread}, leave_requests, NULL),
                         WEFT_ERR_INTERNAL, "a failure of its own");
}

/* Ranks 0 and 1 of the first node fail at the same time; those of the second node are told of one of them, and never of
 * a record that nobody has written yet. */
static weft_status fail_together(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    _Atomic int *ready = ud;
    int me = weft_world_rank(w);
    WEFT_TRY(weft_barrier(weft_world_all(w)));
    if (me < 2) {
        atomic_fetch_add(ready, 1);
        while (atomic_load(ready) < 2) {}
        return weft_fail(WEFT_ERR_IO, "rank %d: no such file", me);
    }
    weft_status st = weft_barrier(weft_world_all(w));
    REQUIRE(st == WEFT_ERR_PEER);
    REQUIRE(strstr(weft_last_error(), "no such file") && weft_world_failed_rank(w) < 2);
    REQUIRE(strstr(weft_last_error(), weft_world_failed_rank(w) ? "rank 1: no" : "rank 0: no"));
    return weft_fail(st, "told");
}

static void failures_reach_other_nodes(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        _Atomic int ready = 0;
        assert_fails(fake_mpi_run(4, &(fake_plan){.node_ranks = 2, .thread = i % 2}, fail_together, &ready),
                     WEFT_ERR_IO, "no such file");
    }
}

/* Rank 1 is in the middle of writing the record when rank 0 fails too: what is told is what rank 1 wrote in the end. */
static weft_status half_written(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    _Atomic int *step = ud;
    const weft_mpi_ep *e = w->ep;
    local_header *h = e->map.header;
    int me = weft_world_rank(w);
    WEFT_TRY(weft_barrier(weft_world_all(w)));
    if (me == 0) {
        atomic_store(&h->failed, WEFT_LOCAL_FAILING);
        weft_world_abort(w, WEFT_ERR_IO, "the second");
        atomic_store(step, 1);
        while (atomic_load(step) == 1) {}
        return weft_fail(WEFT_ERR_IO, "the second");
    }
    if (me == 1) {
        while (atomic_load(step) == 0) {}
        h->failed_rank = 1;
        h->failed_status = WEFT_ERR_IO;
        snprintf(h->failed_message, sizeof h->failed_message, "rank 1: the first");
        atomic_store(&h->failed, WEFT_LOCAL_FAILED);
        weft_world_abort(w, WEFT_ERR_IO, "rank 1: the first");
        atomic_fetch_add(step, 1);
        return weft_fail(WEFT_ERR_IO, "rank 1: the first");
    }
    weft_status st = weft_barrier(weft_world_all(w));
    REQUIRE(st == WEFT_ERR_PEER && weft_world_failed_rank(w) == 1 && strstr(weft_last_error(), "rank 1: the first"));
    atomic_fetch_add(step, 1);
    return st;
}

static void a_record_that_is_not_written_yet_is_not_told(void **state)
{
    (void)state;
    _Atomic int step = 0;
    assert_fails(fake_mpi_run(4, &(fake_plan){.node_ranks = 2}, half_written, &step), WEFT_ERR_IO, "rank 1: the first");
    assert_int_equal(atomic_load(&step), 4); /* both ranks of the other node had it */
}

/* ---- places of ranks on other nodes ------------------------------------------------------------------------------ */

static weft_status sleep_in_place(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    WEFT_TRY(weft_barrier(weft_world_all(w)));
    weft_place(w, "cp.ring.forward", 2, 1);
    WEFT_TRY(weft_world_set_timeout(w, 0.4));
    if (weft_world_rank(w) == 1) nap(1.5);
    return weft_barrier(weft_world_all(w));
}

static void a_rank_that_sleeps_on_another_node(void **state)
{
    (void)state;
    for (int thread = 0; thread < 2; thread++)
        assert_fails(fake_mpi_run(2, &(fake_plan){.node_ranks = 1, .thread = thread}, sleep_in_place, NULL),
                     WEFT_ERR_TIMEOUT, "rank 1 is in cp.ring.forward, layer 2, step 1 for 0.");
}

/* ---- what is counted --------------------------------------------------------------------------------------------- */

/* A helper has moved the first exchange long before the second begins: the time between is no time in flight. */
static weft_status two_flights(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    static const int both[] = {0, 1};
    weft_comm *c;
    weft_counters n;
    int peer = 1 - weft_world_rank(w);
    char out[64] = "", in[64];
    WEFT_TRY(weft_comm_create(&c, w, both, 2, "pair"));
    for (int i = 0; i < 2; i++) {
        weft_req r[2];
        WEFT_TRY(weft_irecv(c, in, sizeof in, peer, 0, WEFT_MEM_HOST, NULL, &r[0]));
        WEFT_TRY(weft_isend(c, out, sizeof out, peer, 0, WEFT_MEM_HOST, NULL, &r[1]));
        if (i == 0) nap(1.0);
        weft_req second[2];
        WEFT_TRY(weft_irecv(c, in, sizeof in, peer, 1, WEFT_MEM_HOST, NULL, &second[0]));
        WEFT_TRY(weft_isend(c, out, sizeof out, peer, 1, WEFT_MEM_HOST, NULL, &second[1]));
        WEFT_TRY(weft_wait_all(r, 2));
        WEFT_TRY(weft_wait_all(second, 2));
    }
    weft_comm_counters(c, &n);
    REQUIRE(n.flight_seconds < 0.5); /* of 1.0 s; what remains is a loaded machine's */
    return WEFT_OK;
}

static void time_in_flight_ends_when_the_helper_is_done(void **state)
{
    (void)state;
    assert_ok(fake_mpi_run(2, &(fake_plan){.thread = true}, two_flights, NULL));
}

/* Choosing a way of progress exchanges megabytes, which are not the caller's. */
static weft_status choose(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_counters before, after;
    WEFT_TRY(talk(ctx, w, NULL));
    weft_comm_counters(weft_world_all(w), &before);
    WEFT_TRY(weft_world_set_progress(w, WEFT_MPI_AUTO));
    weft_comm_counters(weft_world_all(w), &after);
    REQUIRE(before.bytes_logical > 7000 && before.messages >= 5);
    REQUIRE(after.bytes_logical >= before.bytes_logical && after.bytes_logical < before.bytes_logical + 1000);
    weft_world_counters(w, &after);
    REQUIRE(after.bytes_logical >= before.bytes_logical && after.bytes_logical < before.bytes_logical + 1000);
    return talk(ctx, w, NULL);
}

static void a_choice_leaves_the_counters(void **state)
{
    (void)state;
    for (int node = 0; node <= 1; node++) assert_ok(fake_mpi_run(2, &(fake_plan){.node_ranks = node}, choose, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_node_and_of_several),
        cmocka_unit_test(limits_that_differ),
        cmocka_unit_test(more_messages_than_tags),
        cmocka_unit_test(a_rank_that_cannot_open),
        cmocka_unit_test(a_node_that_cannot_share_memory), cmocka_unit_test(shared_memory_that_is_askew),
        cmocka_unit_test(a_rank_that_does_not_come),
        cmocka_unit_test(a_call_that_fails),
        cmocka_unit_test(a_piece_that_is_too_short),
        cmocka_unit_test(requests_that_are_gone),
        cmocka_unit_test(failures_reach_other_nodes),
        cmocka_unit_test(a_record_that_is_not_written_yet_is_not_told),
        cmocka_unit_test(a_rank_that_sleeps_on_another_node),
        cmocka_unit_test(time_in_flight_ends_when_the_helper_is_done),
        cmocka_unit_test(a_choice_leaves_the_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
