/* labels: small tsan */
/* mpi-thread: 5 */
/* mpi-nodes: 5 */
/* mpi: 5 */
/* mpi-long: 8 */
/* Messages between ranks, threads or processes under mpirun: sizes, orders of posting, tags, mismatches, deadlines,
 * failures. Bodies return a status: cmocka may fail a test only from its own thread. */
#include "harness/ranks.h"
#include "harness/test.h"
#include "harness/mpi_ranks.h"

#include <sched.h>

#define MIB ((size_t)1 << 20)

static weft_status open_all(weft_comm **c, weft_world *w)
{
    weft_world_set_timeout(w, 60);
    return test_comm_all(c, w, "all");
}

/* The bytes that `from` sends under `tag`: words of 8, because sanitizers pay per access. */
static uint64_t word_of(int from, int tag, size_t i)
{
    return (uint64_t)(from * 31 + tag * 7 + 1) * 0x9e3779b97f4a7c15u + i * 0x2545f4914f6cdd1du;
}

static void fill(unsigned char *p, size_t n, int from, int tag)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = word_of(from, tag, i);
        memcpy(p + i, &word, n - i < 8 ? n - i : 8);
    }
}

static bool holds(const unsigned char *p, size_t n, int from, int tag)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = word_of(from, tag, i);
        if (memcmp(p + i, &word, n - i < 8 ? n - i : 8) != 0) return false;
    }
    return true;
}

/* ---- sizes and orders --------------------------------------------------------------------------------- */

typedef struct ring_case { size_t bytes; bool sends_first; } ring_case;

/* Everybody sends to next and receives from prev; field report G16 in both orders of posting. */
static weft_status ring_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    const ring_case *k = ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int P = weft_comm_size(c), me = weft_comm_rank(c), next = (me + 1) % P, prev = (me + P - 1) % P;
    unsigned char *out = malloc(k->bytes + 1), *in = malloc(k->bytes + 1);
    REQUIRE(out && in);
    fill(out, k->bytes, me, 0);
    memset(in, 0, k->bytes + 1);
    weft_req r[2];
    if (k->sends_first) WEFT_TRY(weft_isend(c, out, k->bytes, next, 0, WEFT_MEM_HOST, NULL, &r[0]));
    WEFT_TRY(weft_irecv(c, in, k->bytes, prev, 0, WEFT_MEM_HOST, NULL, &r[1]));
    if (!k->sends_first) WEFT_TRY(weft_isend(c, out, k->bytes, next, 0, WEFT_MEM_HOST, NULL, &r[0]));
    WEFT_TRY(weft_wait_all(r, 2));
    REQUIRE(holds(in, k->bytes, prev, 0) && in[k->bytes] == 0);
    weft_counters n;
    weft_comm_counters(c, &n);
    REQUIRE(n.bytes_logical == (int64_t)k->bytes && n.messages == (k->bytes > 0));
    REQUIRE(n.bytes_copied == (test_under_mpi() ? 0 : 2 * (int64_t)k->bytes)); /* what MPI copies is not known */
    REQUIRE(k->bytes == 0 ? n.flight_seconds == 0 : n.flight_seconds > 0 && n.exposed_seconds >= 0);
    free(out);
    free(in);
    return WEFT_OK;
}

/* Of a message that goes through a mailbox many times: less for a sanitizer. */
static size_t long_message(size_t bytes) { return bytes > MIB ? bytes / (size_t)test_every(4) : bytes; }

static void messages_of_all_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 7, 4095, 65537, 5 * 1048576, 20 * 1048576};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int first = 0; first < 2; first++)
            assert_ok(test_run(2, ring_body, &(ring_case){long_message(sizes[i]), first}, 0));
}

static void g16_ring_in_both_orders(void **state)
{
    (void)state;
    static const size_t sizes[] = {1024, 16 * 1048576};
    for (int P = 2; P <= 4; P += 2)
        for (int i = 0; i < 2; i++)
            for (int first = 0; first < 2; first++)
                assert_ok(test_run(P, ring_body, &(ring_case){long_message(sizes[i]), first}, 0));
}

/* ---- many messages ----------------------------------------------------------------------------------------- */

/* More messages than a mailbox publishes at once, waited for in the opposite order. */
static weft_status many_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    enum { N = 300, SIZE = 257 };
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int me = weft_comm_rank(c), peer = 1 - me;
    unsigned char *buf = malloc(2 * N * SIZE);
    weft_req *r = calloc(2 * N, sizeof *r);
    REQUIRE(buf && r);
    for (int t = 0; t < N; t++) {
        fill(buf + t * SIZE, SIZE, me, t);
        WEFT_TRY(weft_irecv(c, buf + (N + t) * SIZE, SIZE, peer, t, WEFT_MEM_HOST, NULL, &r[N + t]));
    }
    for (int t = N - 1; t >= 0; t--) WEFT_TRY(weft_isend(c, buf + t * SIZE, SIZE, peer, t, WEFT_MEM_HOST, NULL, &r[t]));
    for (int t = N - 1; t >= 0; t--) {
        WEFT_TRY(weft_wait(&r[t]));
        WEFT_TRY(weft_wait(&r[N + t]));
        REQUIRE(holds(buf + (N + t) * SIZE, SIZE, peer, t));
    }
    free(buf);
    free(r);
    return WEFT_OK;
}

/* Blocking on tags from the last to the first while the peer waits for the first to go out last: only
 * possible when no posted receive hides behind another. */
static weft_status backwards_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    enum { N = 200 };
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int value[N];
    weft_req r[N];
    if (weft_comm_rank(c) == 0) {
        for (int t = N - 1; t >= 0; t--) {
            value[t] = 1000 + t;
            WEFT_TRY(weft_isend(c, &value[t], sizeof value[t], 1, t, WEFT_MEM_HOST, NULL, &r[t]));
            WEFT_TRY(weft_wait(&r[t]));
        }
    } else {
        for (int t = 0; t < N; t++)
            WEFT_TRY(weft_irecv(c, &value[t], sizeof value[t], 0, t, WEFT_MEM_HOST, NULL, &r[t]));
        WEFT_TRY(weft_wait_all(r, N));
        for (int t = 0; t < N; t++) REQUIRE(value[t] == 1000 + t);
    }
    return WEFT_OK;
}

/* Messages of one (pair, group, tag) arrive in order; two groups with the same tag do not mix. */
static weft_status order_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    enum { N = 100 };
    weft_comm *a, *b;
    WEFT_TRY(open_all(&a, w));
    WEFT_TRY(weft_comm_create(&b, w, (int[]){1, 0}, 2, "reversed"));
    REQUIRE(weft_comm_rank(b) == 1 - weft_comm_rank(a));
    int out[2 * N], in[2 * N];
    weft_req r[4 * N];
    int me = weft_world_rank(w);
    for (int i = 0; i < N; i++) {
        out[i] = i;
        out[N + i] = 5000 + i;
        WEFT_TRY(weft_isend(a, &out[i], sizeof *out, 1 - me, 3, WEFT_MEM_HOST, NULL, &r[i]));
        WEFT_TRY(weft_isend(b, &out[N + i], sizeof *out, me, 3, WEFT_MEM_HOST, NULL, &r[N + i]));
    }
    for (int i = 0; i < N; i++) {
        WEFT_TRY(weft_irecv(b, &in[N + i], sizeof *in, me, 3, WEFT_MEM_HOST, NULL, &r[3 * N + i]));
        WEFT_TRY(weft_irecv(a, &in[i], sizeof *in, 1 - me, 3, WEFT_MEM_HOST, NULL, &r[2 * N + i]));
    }
    WEFT_TRY(weft_wait_all(r, 4 * N));
    for (int i = 0; i < N; i++) REQUIRE(in[i] == i && in[N + i] == 5000 + i);
    weft_comm_destroy(b);
    return WEFT_OK;
}

/* Random sizes and tags between all pairs, posted in different random orders at both ends. */
static weft_status storm_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    enum { N = 40, MOST = 50000 };
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int P = weft_comm_size(c), me = weft_comm_rank(c), n = 0;
    weft_req *r = calloc((size_t)(2 * N * P), sizeof *r);
    unsigned char *buf = malloc((size_t)(2 * N * P) * MOST);
    REQUIRE(r && buf);
    for (int k = 0; k < N; k++) {
        for (int s = 1; s < P; s++) {
            int to = (me + s) % P, from = (me + P - s) % P;
            /* The sender goes up, the receiver in a shuffled order of tags (37 is coprime to 40). */
            int tag = k, back = k * 37 % N;
            size_t len = (size_t)((test_uniform((uint64_t)tag + 1, me * 64 + to) + 1) * MOST / 2);
            size_t back_len = (size_t)((test_uniform((uint64_t)back + 1, from * 64 + me) + 1) * MOST / 2);
            fill(buf + (size_t)n * MOST, len, me, tag);
            WEFT_TRY(weft_isend(c, buf + (size_t)n * MOST, len, to, tag, WEFT_MEM_HOST, NULL, &r[n]));
            n++;
            WEFT_TRY(weft_irecv(c, buf + (size_t)n * MOST, back_len, from, back, WEFT_MEM_HOST, NULL, &r[n]));
            n++;
        }
        weft_progress(w);
    }
    WEFT_TRY(weft_wait_all(r, n));
    for (int i = 1; i < n; i += 2) REQUIRE(holds(buf + (size_t)i * MOST, r[i].bytes, r[i].peer, r[i].tag));
    free(buf);
    free(r);
    return WEFT_OK;
}

static void many_messages(void **state)
{
    (void)state;
    assert_ok(test_run(2, many_body, NULL, 0));
    assert_ok(test_run(2, backwards_body, NULL, 0));
    assert_ok(test_run(2, order_body, NULL, 0));
    assert_ok(test_run(5, storm_body, NULL, 0));
}

/* Bytes for rank 2 lie in its mailbox while the mailbox before it, 0 to 1, wraps many times. */
static weft_status wrap_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    enum { LYING = 150000, PASSING = 50001, N = 40 };
    _Atomic int *stage = ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int me = weft_comm_rank(c);
    unsigned char *buf = malloc(LYING);
    weft_req r;
    REQUIRE(buf);
    if (me == 2) {
        WEFT_TRY(weft_irecv(c, buf, LYING, 0, 0, WEFT_MEM_HOST, NULL, &r));
        *stage = 1;
        while (*stage != 2) sched_yield(); /* makes no progress on purpose */
        WEFT_TRY(weft_wait(&r));
        REQUIRE(holds(buf, LYING, 0, 0));
    }
    if (me == 0) {
        while (*stage != 1) sched_yield();
        fill(buf, LYING, 0, 0);
        WEFT_TRY(weft_isend(c, buf, LYING, 2, 0, WEFT_MEM_HOST, NULL, &r));
        WEFT_TRY(weft_wait(&r));
    }
    for (int i = 1; i <= N && me < 2; i++) {
        if (me == 0) fill(buf, PASSING, 0, i);
        WEFT_TRY(me == 0 ? weft_isend(c, buf, PASSING, 1, i, WEFT_MEM_HOST, NULL, &r)
                         : weft_irecv(c, buf, PASSING, 0, i, WEFT_MEM_HOST, NULL, &r));
        WEFT_TRY(weft_wait(&r));
        if (me == 1) REQUIRE(holds(buf, PASSING, 0, i));
    }
    if (me == 0) *stage = 2;
    free(buf);
    return WEFT_OK;
}

static void mailboxes_do_not_overlap(void **state)
{
    (void)state;
    if (test_under_mpi()) return; /* about the mapping of local ranks, and bodies that share memory */
    _Atomic int stage = 0;
    assert_ok(weft_run_threads(3, wrap_body, &stage));
}

/* A send must not complete before its receive is posted, whatever its size. */
static weft_status rendezvous_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    char byte = 1;
    weft_req r;
    if (weft_comm_rank(c) == 0) {
        bool done = false;
        WEFT_TRY(weft_isend(c, &byte, 1, 1, 9, WEFT_MEM_HOST, NULL, &r));
        for (int i = 0; i < 1000; i++) {
            WEFT_TRY(weft_test(&r, &done));
            REQUIRE(!done);
        }
        WEFT_TRY(weft_barrier(c));
        WEFT_TRY(weft_wait(&r));
        WEFT_TRY(weft_test(&r, &done));
        REQUIRE(done);
    } else {
        WEFT_TRY(weft_barrier(c));
        WEFT_TRY(weft_irecv(c, &byte, 1, 0, 9, WEFT_MEM_HOST, NULL, &r));
        WEFT_TRY(weft_wait(&r));
    }
    return WEFT_OK;
}

static void a_send_needs_its_receive(void **state)
{
    (void)state;
    assert_ok(test_run(2, rendezvous_body, NULL, 0));
}

static void many_messages_in_virtual_time(void **state)
{
    (void)state;
    const weft_sim_model models[] = {{1e-6, 1e-5, 1e9, 1e9, 0, 1e-6, 1e10, false, false, NULL, 0},
                                     {0, 0, 1e9, 2e9, 1, 0, 1e9, true, false, NULL, 0}};
    for (int i = 0; i < 2; i++) {
        assert_ok(weft_run_sim(2, &models[i], many_body, NULL));
        assert_ok(weft_run_sim(2, &models[i], backwards_body, NULL));
        assert_ok(weft_run_sim(2, &models[i], order_body, NULL));
        assert_ok(weft_run_sim(5, &models[i], storm_body, NULL));
        assert_ok(weft_run_sim(2, &models[i], rendezvous_body, NULL));
    }
}

/* ---- buffer reuse (field report G38) ------------------------------------------------------------------------ */

typedef struct reuse_case { size_t bytes; int repeats; } reuse_case;

/* A double-buffered ring; each released buffer is filled with NaN (all bits set), which would travel on if a
 * buffer were released before its send was complete. */
static weft_status reuse_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    const reuse_case *k = ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int P = weft_comm_size(c), me = weft_comm_rank(c), next = (me + 1) % P, prev = (me + P - 1) % P;
    unsigned char *buf[2] = {malloc(k->bytes), malloc(k->bytes)}, *expect = malloc((size_t)P * k->bytes);
    REQUIRE(buf[0] && buf[1] && expect);
    for (int owner = 0; owner < P; owner++) fill(expect + (size_t)owner * k->bytes, k->bytes, owner, 0);
    for (int repeat = 0; repeat < k->repeats; repeat++) {
        memcpy(buf[0], expect + (size_t)me * k->bytes, k->bytes);
        for (int hop = 0; hop < P; hop++) {
            unsigned char *now = buf[hop % 2], *other = buf[1 - hop % 2];
            weft_req r[2] = {{0}};
            if (hop < P - 1) {
                WEFT_TRY(weft_irecv(c, other, k->bytes, prev, hop, WEFT_MEM_HOST, NULL, &r[0]));
                WEFT_TRY(weft_isend(c, now, k->bytes, next, hop, WEFT_MEM_HOST, NULL, &r[1]));
            }
            int owner = (me - hop + P) % P;
            REQUIRE(memcmp(now, expect + (size_t)owner * k->bytes, k->bytes) == 0);
            WEFT_TRY(weft_wait_all(r, 2));
            memset(now, 0xff, k->bytes);
        }
    }
    free(buf[0]);
    free(buf[1]);
    free(expect);
    return WEFT_OK;
}

static void g38_buffers_are_free_after_the_wait(void **state)
{
    (void)state;
    assert_ok(test_run(4, reuse_body, &(reuse_case){64, 50}, 0));
    assert_ok(test_run(4, reuse_body, &(reuse_case){4 * MIB, 8 / test_every(4)}, 0));
}

/* ---- refusals --------------------------------------------------------------------------------------------------- */

static weft_status refusals_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c, *outside;
    WEFT_TRY(open_all(&c, w));
    char b = 0;
    weft_req r;
    int me = weft_comm_rank(c);
    REQUIRE(weft_isend(c, &b, 1, me, 0, WEFT_MEM_HOST, NULL, &r) == WEFT_ERR_REFUSED &&
            strstr(weft_last_error(), "itself"));
    REQUIRE(weft_irecv(c, &b, 1, 2, 0, WEFT_MEM_HOST, NULL, &r) == WEFT_ERR_REFUSED &&
            strstr(weft_last_error(), "give 0 to 1"));
    REQUIRE(weft_isend(c, &b, 1, 1 - me, -1, WEFT_MEM_HOST, NULL, &r) == WEFT_ERR_REFUSED);
    /* Above the caller's tags are those of collectives: this byte would come out of the next gather. */
    REQUIRE(weft_isend(c, &b, 1, 1 - me, WEFT_TAG_USER_MAX, WEFT_MEM_HOST, NULL, &r) == WEFT_ERR_REFUSED &&
            strstr(weft_last_error(), "tag 1048576; give 0 to 1048575"));
    REQUIRE(weft_irecv(c, &b, 1, 1 - me, WEFT_TAG_USER_MAX, WEFT_MEM_HOST, NULL, &r) == WEFT_ERR_REFUSED);
    REQUIRE(weft_irecv_view(c, &b, 1, 1 - me, WEFT_TAG_USER_MAX, WEFT_MEM_HOST, NULL, &r) == WEFT_ERR_REFUSED);
    static const double never[] = {0, -1, -INFINITY, NAN};
    for (int i = 0; i < 4; i++) REQUIRE(weft_world_set_timeout(w, never[i]) == WEFT_ERR_REFUSED);
    REQUIRE(weft_isend(c, NULL, 1, 1 - me, 0, WEFT_MEM_HOST, NULL, &r) == WEFT_ERR_REFUSED);
    REQUIRE(weft_irecv(c, &b, 1, 1 - me, 0, WEFT_MEM_DEVICE, NULL, &r) == WEFT_ERR_REFUSED &&
            strstr(weft_last_error(), "device memory") && strstr(weft_last_error(), "host buffer"));
    REQUIRE(weft_comm_create(&outside, w, (int[]){0, 2}, 2, "x") == WEFT_ERR_REFUSED &&
            strstr(weft_last_error(), "ranks 0 to 1"));
    REQUIRE(weft_comm_create(&outside, w, (int[]){0, 0}, 2, "x") == WEFT_ERR_REFUSED &&
            strstr(weft_last_error(), "twice"));
    REQUIRE(weft_comm_create(&outside, w, (int[]){1}, 1, "one") == WEFT_OK && (outside != NULL) == (me == 1));
    /* Different orders of the same ranks are different groups. */
    int order[2] = {me, 1 - me};
    REQUIRE(weft_comm_create(&outside, w, order, 2, "mixed") == WEFT_ERR_REFUSED &&
            strstr(weft_last_error(), "common order"));
    return WEFT_OK;
}

static void bad_calls_are_refused(void **state)
{
    (void)state;
    assert_ok(test_run(2, refusals_body, NULL, 0));
    test_run_renew(); /* the ranks disagree about their groups now */
    assert_refused(weft_run_threads(0, refusals_body, NULL), "1 to 128");
    assert_refused(weft_run_threads(129, refusals_body, NULL), "1 to 128");
}

static weft_status mute_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)w, (void)ud;
    weft_clear_error();
    return ctx->rank == 1 ? WEFT_ERR_NUMERIC : WEFT_OK;
}

static void a_failure_without_a_message_has_its_status(void **state)
{
    (void)state;
    if (test_under_mpi()) return; /* a rank that fails ends the job there */
    char expected[200];
    static const weft_sim_model model = {.latency_seconds = 1, .link_bytes_per_second = 1, .port_bytes_per_second = 1,
                                         .node_bytes_per_second = 1};
    snprintf(expected, sizeof expected, "rank 1: %s", weft_status_text(WEFT_ERR_NUMERIC));
    assert_int_equal(weft_run_threads(2, mute_body, NULL), WEFT_ERR_NUMERIC);
    assert_string_equal(weft_last_error(), expected);
    if (test_under_tsan()) return; /* fibers */
    assert_int_equal(weft_run_sim(2, &model, mute_body, NULL), WEFT_ERR_NUMERIC);
    assert_string_equal(weft_last_error(), expected);
}

typedef struct mismatch_case { weft_status status[2]; char message[2][1024]; } mismatch_case;

static weft_status mismatch_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    mismatch_case *k = ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    char buf[7] = {0};
    weft_req r;
    int me = weft_comm_rank(c);
    if (me == 0) WEFT_TRY(weft_isend(c, buf, 5, 1, 4, WEFT_MEM_HOST, NULL, &r));
    else WEFT_TRY(weft_irecv(c, buf, 7, 0, 4, WEFT_MEM_HOST, NULL, &r));
    k->status[me] = weft_wait(&r);
    snprintf(k->message[me], sizeof k->message[me], "%s", weft_last_error());
    return k->status[me];
}

static void sizes_must_agree(void **state)
{
    (void)state;
    mismatch_case k = {0};
    assert_int_equal(test_run(2, mismatch_body, &k, sizeof k), WEFT_ERR_REFUSED);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(k.status[i], WEFT_ERR_REFUSED);
        assert_non_null(strstr(k.message[i], "rank 0 sends 5 bytes to rank 1"));
        assert_non_null(strstr(k.message[i], "receive of 7 bytes"));
    }
}

/* ---- deadlines and failures -------------------------------------------------------------------------------------- */

typedef struct fail_case { weft_status status[4]; char message[4][1024]; double seconds[4]; } fail_case;

static weft_status keep(fail_case *k, int me, weft_status st, double begin)
{
    k->status[me] = st;
    k->seconds[me] = weft_now(&weft_clock_real) - begin;
    snprintf(k->message[me], sizeof k->message[me], "%s", weft_last_error());
    return st;
}

/* Rank 0 waits for rank 1, which waits for rank 2, which computes for too long. */
static weft_status deadline_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    fail_case *k = ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int me = weft_comm_rank(c);
    char *buf = malloc(MIB);
    weft_req r;
    weft_status st = WEFT_OK;
    REQUIRE(buf);
    weft_world_set_timeout(w, me == 0 ? 0.5 : 30);
    weft_place(w, me == 0 ? "cp.ring.forward" : me == 1 ? "cp.ring.backward" : "model.block.forward", me + 1, me + 2);
    double begin = weft_now(&ctx->clock);
    if (me < 2) {
        WEFT_TRY(weft_irecv(c, buf, MIB, me + 1, 7, WEFT_MEM_HOST, NULL, &r));
        st = keep(k, me, weft_wait(&r), begin);
    } else {
        while (weft_now(&ctx->clock) - begin < 1.0) weft_progress(w);
        st = keep(k, me, weft_barrier(c), begin);
    }
    free(buf);
    return st;
}

static void a_deadline_names_who_is_stuck(void **state)
{
    (void)state;
    fail_case k = {0};
    assert_int_equal(test_run(3, deadline_body, &k, sizeof k), WEFT_ERR_TIMEOUT);
    const char *m = weft_last_error();
    static const char *const parts[] = {"rank 0 in cp.ring.forward, layer 1, step 2", "receive from rank 1", "tag 7",
                                        "0 of 1048576 bytes done", "deadline of 0.5 s",
                                        "rank 1 is in cp.ring.backward, layer 2, step 3",
                                        "rank 2 is in model.block.forward, layer 3, step 4"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(m, parts[i])) fail_msg("\"%s\" lacks \"%s\"", m, parts[i]);
    assert_int_equal(k.status[0], WEFT_ERR_TIMEOUT);
    for (int r = 1; r < 3; r++) {
        assert_int_equal(k.status[r], WEFT_ERR_PEER);
        assert_non_null(strstr(k.message[r], "rank 0 in cp.ring.forward"));
    }
    assert_true(k.seconds[0] >= 0.5 && k.seconds[0] < 1.0);
    assert_true(k.seconds[1] < 1.0); /* told within its sleep of 20 ms, not at its own deadline */
}

static weft_status failing_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    fail_case *k = ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int me = weft_comm_rank(c);
    if (me == 2) {
        WEFT_TRY(weft_barrier(c));
        return weft_fail(WEFT_ERR_IO, "data.bin: no such file");
    }
    /* Rank 2 may fail while others are still inside the first barrier. */
    double begin = weft_now(&ctx->clock);
    weft_status st = weft_barrier(c);
    st = keep(k, me, st == WEFT_OK ? weft_barrier(c) : st, begin);
    /* A world that failed stays failed. */
    char b = 0;
    weft_req r;
    REQUIRE(weft_isend(c, &b, 1, (me + 1) % 4, 0, WEFT_MEM_HOST, NULL, &r) == WEFT_ERR_PEER);
    REQUIRE(weft_barrier(c) == WEFT_ERR_PEER);
    return st;
}

static void a_failure_reaches_every_wait(void **state)
{
    (void)state;
    fail_case k = {0};
    assert_int_equal(test_run(4, failing_body, &k, sizeof k), WEFT_ERR_IO);
    assert_string_equal(weft_last_error(), "rank 2: data.bin: no such file");
    for (int r = 0; r < 4; r++) {
        if (r == 2) continue;
        assert_int_equal(k.status[r], WEFT_ERR_PEER);
        assert_string_equal(k.message[r], "rank 2: data.bin: no such file");
        assert_true(k.seconds[r] < 0.5);
    }
}

static weft_status fault_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    weft_comm *c;
    WEFT_TRY(weft_fault_parse(&ctx->fault, ud));
    WEFT_TRY(open_all(&c, w));
    for (int i = 0; i < 10; i++) WEFT_TRY(weft_barrier(c));
    return WEFT_OK;
}

static void faults_at_every_site_end_all_ranks(void **state)
{
    (void)state;
    static const char *const specs[] = {"fail:rank=1:site=comm.send:hit=4", "fail:rank=1:site=comm.recv:hit=4",
                                        "fail:rank=1:site=comm.wait:hit=4"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(test_run(3, fault_body, (void *)(uintptr_t)specs[i], 0), WEFT_ERR_INTERNAL);
        assert_non_null(strstr(weft_last_error(), "rank 1"));
    }
}

/* After a failure the caller's memory may go away: a peer that sends late must not find it (the address
 * sanitizer would see it). */
static weft_status late_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx, (void)ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int me = weft_comm_rank(c);
    char *buf = malloc(MIB);
    weft_req *r = malloc(2 * sizeof *r);
    REQUIRE(buf && r);
    memset(buf, me, MIB);
    weft_world_set_timeout(w, me == 0 ? 0.1 : 30);
    weft_status st = WEFT_OK;
    if (me == 0) {
        WEFT_TRY(weft_irecv(c, buf, MIB, 1, 0, WEFT_MEM_HOST, NULL, &r[0]));
        WEFT_TRY(weft_isend(c, buf, MIB, 1, 1, WEFT_MEM_HOST, NULL, &r[1]));
        st = weft_wait_all(r, 2);
    } else {
        double begin = weft_now(&weft_clock_real);
        while (weft_now(&weft_clock_real) - begin < 0.3) weft_progress(w);
        WEFT_TRY(weft_isend(c, buf, MIB, 0, 0, WEFT_MEM_HOST, NULL, &r[0]));
        WEFT_TRY(weft_irecv(c, buf, MIB, 0, 1, WEFT_MEM_HOST, NULL, &r[1]));
        st = weft_wait_all(r, 2);
        REQUIRE(st == WEFT_ERR_PEER);
    }
    free(buf);
    free(r);
    for (int i = 0; i < 1000; i++) weft_progress(w);
    return st;
}

static void nothing_touches_requests_after_a_failure(void **state)
{
    (void)state;
    assert_int_equal(test_run(2, late_body, NULL, 0), WEFT_ERR_TIMEOUT);
}

/* A post that is refused while others are under way: its caller leaves, so the others hear of it now, and not after the
 * memory of what is under way has gone. */
static weft_status half_posted_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    fail_case *k = ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    int me = weft_comm_rank(c);
    static char buf[2][8];
    weft_req r[2];
    double begin = weft_now(&weft_clock_real);
    WEFT_TRY(weft_irecv(c, buf[me], 8, 1 - me, 0, WEFT_MEM_HOST, NULL, &r[0]));
    if (me == 1) return keep(k, me, weft_wait(&r[0]), begin);
    REQUIRE(weft_isend(c, buf[me], 8, 2, 0, WEFT_MEM_HOST, NULL, &r[1]) == WEFT_ERR_REFUSED);
    while (weft_now(&weft_clock_real) - begin < 0.5) weft_progress(w); /* the other is told meanwhile */
    return weft_fail(keep(k, me, weft_barrier(c), begin), "%s", k->message[me]);
}

static void a_refused_post_among_others_ends_the_world(void **state)
{
    (void)state;
    fail_case k = {0};
    assert_int_equal(test_run(2, half_posted_body, &k, sizeof k), WEFT_ERR_REFUSED);
    assert_int_equal(k.status[0], WEFT_ERR_REFUSED);
    assert_int_equal(k.status[1], WEFT_ERR_PEER);
    assert_non_null(strstr(k.message[1], "peer 2 is not in group all"));
    assert_true(k.seconds[1] < 0.4);
}

/* A clock that stands for 1,000 s at its 40th look: the process was suspended, as by Ctrl-Z, while it waited. */
typedef struct sleeper { int looks; } sleeper;

static double sleeping_now(void *ud)
{
    sleeper *s = ud;
    return weft_now(&weft_clock_real) + (++s->looks > 40 ? 1000 : 0);
}

static weft_status suspended_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    fail_case *k = ud;
    weft_comm *c;
    WEFT_TRY(open_all(&c, w));
    char b = 0;
    weft_req r;
    sleeper s = {0};
    int me = weft_comm_rank(c);
    double begin = weft_now(&weft_clock_real);
    if (me == 0) {
        ctx->clock = (weft_clock){.now = sleeping_now, .ud = &s};
        WEFT_TRY(weft_world_set_timeout(w, 3));
        WEFT_TRY(weft_irecv(c, &b, 1, 1, 0, WEFT_MEM_HOST, NULL, &r));
        weft_status st = weft_wait(&r);
        REQUIRE(st == WEFT_OK && s.looks > 41);
        s.looks = 0; /* and again, while nobody sends: what is left of the deadline still counts */
        begin = weft_now(&weft_clock_real);
        WEFT_TRY(weft_world_set_timeout(w, 1.2));
        WEFT_TRY(weft_irecv(c, &b, 1, 1, 0, WEFT_MEM_HOST, NULL, &r));
        st = keep(k, me, weft_wait(&r), begin);
        ctx->clock = weft_clock_real;
        return st;
    }
    while (weft_now(&ctx->clock) - begin < 1.0) weft_progress(w);
    WEFT_TRY(weft_isend(c, &b, 1, 0, 0, WEFT_MEM_HOST, NULL, &r));
    WEFT_TRY(weft_wait(&r));
    return keep(k, me, weft_barrier(c), begin);
}

static void time_that_a_job_was_suspended_does_not_count(void **state)
{
    (void)state;
    fail_case k = {0};
    assert_int_equal(test_run(2, suspended_body, &k, sizeof k), WEFT_ERR_TIMEOUT);
    assert_int_equal(k.status[0], WEFT_ERR_TIMEOUT);
    assert_true(k.seconds[0] > 1.1 && k.seconds[0] < 30);
    test_run_renew();
}

/* ---- one rank alone ---------------------------------------------------------------------------------------------- */

static void self_has_no_peers(void **state)
{
    (void)state;
    weft_ctx ctx;
    weft_world *w;
    weft_comm *c;
    weft_ctx_init(&ctx);
    assert_ok(weft_world_self(&w, &ctx));
    assert_string_equal(weft_world_transport(w), "self");
    assert_ok(weft_comm_create(&c, w, (int[]){0}, 1, "all"));
    char b = 0;
    weft_req r;
    assert_refused(weft_isend(c, &b, 1, 0, 0, WEFT_MEM_HOST, NULL, &r), "itself");
    weft_place(w, "nowhere", 1, 2);
    weft_progress(w);
    assert_ok(weft_barrier(c));
    weft_world_close(w);
}

/* A count is an int: longer messages travel in pieces. Under mpirun 20 bytes go in messages of 7 at most, and the same
 * bytes arrive. */
static void g37_counts_do_not_overflow(void **state)
{
    (void)state;
    const size_t two_gib = (size_t)1 << 31, most = (size_t)1 << 30;
    assert_int_equal(weft_mpi_piece(two_gib, most), 1073741824);
    assert_int_equal(weft_mpi_piece(two_gib, SIZE_MAX) <= 0, 0);
    assert_int_equal(weft_mpi_piece(3 * two_gib + 5, most), 1073741824);
    static const int want[] = {7, 7, 6, 0};
    size_t left = 20;
    for (int i = 0; i < 4; left -= (size_t)want[i], i++) assert_int_equal(weft_mpi_piece(left, 7), want[i]);
    test_run_limit(7);
    for (int first = 0; first < 2; first++) assert_ok(test_run(2, ring_body, &(ring_case){20, first}, 0));
    test_run_limit(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_all_sizes),     cmocka_unit_test(g16_ring_in_both_orders),
        cmocka_unit_test(mailboxes_do_not_overlap),
        cmocka_unit_test(g37_counts_do_not_overflow),
        cmocka_unit_test(many_messages),             cmocka_unit_test(a_send_needs_its_receive),
        cmocka_unit_test(many_messages_in_virtual_time),
        cmocka_unit_test(g38_buffers_are_free_after_the_wait), cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(a_failure_without_a_message_has_its_status),
        cmocka_unit_test(sizes_must_agree),          cmocka_unit_test(a_deadline_names_who_is_stuck),
        cmocka_unit_test(a_failure_reaches_every_wait), cmocka_unit_test(faults_at_every_site_end_all_ranks),
        cmocka_unit_test(nothing_touches_requests_after_a_failure),
        cmocka_unit_test(a_refused_post_among_others_ends_the_world),
        cmocka_unit_test(time_that_a_job_was_suspended_does_not_count), cmocka_unit_test(self_has_no_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
