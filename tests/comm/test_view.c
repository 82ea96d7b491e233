/* labels: small tsan */
/* Receives that are answered in place, with ranks as threads and as processes: every size, chains of forwarding, many
 * at once, memory that is used again, mismatches, deadlines, failures while somebody reads. */
#include "harness/test.h"
#include "harness/ranks.h"
#include "comm/local_heap.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

typedef struct bench { /* what every body needs */
    weft_world *w;
    weft_comm *c;
    weft_arena *shared; /* memory that the others may read */
    int P, me;
} bench;

static weft_status open_bench(bench *b, weft_ctx *ctx, weft_world *w)
{
    *b = (bench){.w = w, .P = weft_world_size(w), .me = weft_world_rank(w)};
    weft_world_set_timeout(w, 60);
    WEFT_TRY(test_comm_all(&b->c, w, "all"));
    return weft_arena_create(&b->shared, &ctx->mem, "travelling", weft_world_buffers(w));
}

static weft_status close_bench(bench *b, weft_status st)
{
    if (st < 0) weft_world_abort(b->w, st, weft_last_error());
    weft_arena_destroy(b->shared);
    return st;
}

static weft_status shared_bytes(bench *b, size_t n, unsigned char **out)
{
    return weft_arena_alloc(b->shared, (int64_t)n, 1, "bytes", (void **)out);
}

/* The bytes of `seed`: words of 8, because sanitizers pay per access. */
static uint64_t word_of(uint64_t seed, size_t i) { return (seed + 1) * 0x9e3779b97f4a7c15u + i * 0x2545f4914f6cdd1du; }

static void fill(unsigned char *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = word_of(seed, i);
        memcpy(p + i, &word, n - i < 8 ? n - i : 8);
    }
}

static bool holds(const unsigned char *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = word_of(seed, i);
        if (memcmp(p + i, &word, n - i < 8 ? n - i : 8) != 0) return false;
    }
    return true;
}

static weft_status view(bench *b, void *buf, size_t n, int peer, int tag, weft_req *r)
{
    return weft_irecv_view(b->c, buf, n, peer, tag, WEFT_MEM_HOST, NULL, r);
}

static weft_status send(bench *b, const void *buf, size_t n, int peer, int tag, weft_req *r)
{
    return weft_isend(b->c, buf, n, peer, tag, WEFT_MEM_SHARED, NULL, r);
}

/* ---- every size ----------------------------------------------------------------------------------------- */

/* The send stays open until the release, the bytes lie where the sender has them, and nothing is copied. */
static weft_status one_message(bench *b, size_t n)
{
    unsigned char *p;
    weft_req r;
    bool done = false;
    weft_counters before, after;
    WEFT_TRY(shared_bytes(b, n, &p));
    weft_comm_counters(b->c, &before);
    if (b->me == 0) {
        fill(p, n, n);
        WEFT_TRY(send(b, p, n, 1, 3, &r));
        WEFT_TRY(weft_barrier(b->c)); /* the peer has the bytes, and has not released them */
        WEFT_TRY(weft_test(&r, &done));
        REQUIRE(done == (n == 0));
        WEFT_TRY(weft_barrier(b->c));
        WEFT_TRY(weft_wait(&r));
    } else {
        memset(p, 0xaa, n);
        WEFT_TRY(view(b, p, n, 0, 3, &r));
        WEFT_TRY(weft_wait(&r));
        WEFT_TRY(weft_barrier(b->c));
        const unsigned char *q = weft_received(&r);
        REQUIRE((q != p) == (n > 0) && holds(q, n, n));
        for (size_t i = 0; i < n; i += 997) REQUIRE(p[i] == 0xaa);
        WEFT_TRY(weft_barrier(b->c));
        weft_release(&r);
        weft_release(&r); /* does nothing more */
    }
    WEFT_TRY(weft_barrier(b->c));
    weft_comm_counters(b->c, &after);
    REQUIRE(after.bytes_copied - before.bytes_copied == 3 * 2); /* the barriers' byte, sent and received */
    REQUIRE(after.bytes_logical - before.bytes_logical == (b->me == 0 ? (int64_t)n : 0));
    REQUIRE(after.messages - before.messages == 3 + (b->me == 0 && n > 0));
    weft_arena_reset(b->shared);
    return WEFT_OK;
}

static weft_status sizes(bench *b, int random, size_t most)
{
    static const size_t edges[] = {0, 1, 7, 63, 64, 65, 4095, 4096, 4097, 262144, 262145};
    WEFT_TRY(weft_barrier(b->c)); /* of the groups */
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) WEFT_TRY(one_message(b, edges[i]));
    for (int i = 0; i < random; i++) /* as many small as large ones */
        WEFT_TRY(one_message(b, (size_t)exp(0.5 * (test_uniform(77, i) + 1) * log((double)most))));
    return one_message(b, most);
}

static weft_status sizes_body(weft_ctx *ctx, weft_world *w, const char *arg)
{
    bench b;
    WEFT_TRY(open_bench(&b, ctx, w));
    REQUIRE(weft_world_peer_memory(w) && weft_world_buffers(w)->kind == WEFT_MEM_SHARED);
    return close_bench(&b, sizes(&b, 12, (size_t)atoi(arg) * MIB));
}

/* ---- forwarding ------------------------------------------------------------------------------------------- */

/* Blocks go round the ring as in cp: what came in place goes on, and is released when the next rank has released it.
 * Every hop sees the owner's own memory. */
static weft_status chain(bench *b, size_t n, int rounds)
{
    unsigned char *own, *room;
    weft_req in[64], out[64];
    weft_arena_reset(b->shared);
    WEFT_TRY(shared_bytes(b, n, &own));
    WEFT_TRY(shared_bytes(b, n, &room));
    int next = (b->me + 1) % b->P, prev = (b->me + b->P - 1) % b->P, hops = b->P - 1;
    for (int round = 0; round < rounds; round++) {
        fill(own, n, (uint64_t)(b->me * 1000 + round));
        const unsigned char *here = own;
        for (int i = 0; i < hops; i++) {
            WEFT_TRY(view(b, room, n, prev, i, &in[i]));
            WEFT_TRY(send(b, here, n, next, i, &out[i]));
            WEFT_TRY(weft_wait(&in[i]));
            here = weft_received(&in[i]);
            WEFT_TRY(weft_fault_pass(&weft_world_ctx(b->w)->fault, b->me, "test.reading", NULL));
            int owner = (b->me - i - 1 + b->P) % b->P;
            REQUIRE(here != room && holds(here, n, (uint64_t)(owner * 1000 + round)));
        }
        /* From the last hop back: the block of hop i went on as send i + 1. */
        for (int i = hops - 1; i >= 0; i--) {
            if (i + 1 < hops) WEFT_TRY(weft_wait(&out[i + 1]));
            weft_release(&in[i]);
        }
        WEFT_TRY(weft_wait(&out[0]));
        memset(own, 0xff, n); /* whoever still read it would see this */
    }
    return WEFT_OK;
}

static weft_status chain_body(weft_ctx *ctx, weft_world *w, const char *arg)
{
    bench b;
    WEFT_TRY(open_bench(&b, ctx, w));
    size_t n = (size_t)atoi(arg);
    weft_status st = chain(&b, n, 2);
    int64_t allocations = ctx->mem.allocations;
    if (st == WEFT_OK) st = chain(&b, n, 5);
    if (st == WEFT_OK && n < 10000 && ctx->mem.allocations != allocations)
        st = weft_fail(WEFT_ERR_INTERNAL, "memory is taken after the first rounds");
    weft_counters k;
    weft_comm_counters(b.c, &k);
    if (st == WEFT_OK &&
        (k.bytes_copied != 0 || k.bytes_logical != (int64_t)n * 7 * (b.P - 1) || k.messages != 7 * (b.P - 1)))
        st = weft_fail(WEFT_ERR_INTERNAL, "%lld bytes copied, %lld counted, %lld messages", (long long)k.bytes_copied,
                       (long long)k.bytes_logical, (long long)k.messages);
    return close_bench(&b, st);
}

/* ---- many at once -------------------------------------------------------------------------------------------- */

enum { MANY = 700, PIECE = 300, BOX = 320 };

/* Which messages may be read in place: the sender's memory is shared, and the receiver asked for it. */
static bool private_send(int t) { return t % 3 == 0; }
static bool plain_recv(int t) { return t % 5 == 0; }

/* More than a mailbox publishes at once, in both directions; views, copies of shared memory, and views of private
 * memory mixed; released in another order than they came. */
static weft_status many(bench *b, unsigned char *private, unsigned char *in, weft_req *r)
{
    unsigned char *shared;
    int peer = 1 - b->me;
    WEFT_TRY(shared_bytes(b, (size_t)MANY * BOX, &shared));
    for (int t = 0; t < MANY; t++) {
        unsigned char *out = (private_send(t) ? private : shared) + t * BOX;
        size_t n = (size_t)(1 + t % PIECE);
        fill(out, n, (uint64_t)(b->me * MANY + t));
        if (plain_recv(t)) WEFT_TRY(weft_irecv(b->c, in + t * BOX, n, peer, t, WEFT_MEM_HOST, NULL, &r[t]));
        else WEFT_TRY(view(b, in + t * BOX, n, peer, t, &r[t]));
        WEFT_TRY(send(b, out, n, peer, t, &r[MANY + t]));
    }
    WEFT_TRY(weft_wait_all(r, MANY));
    for (int k = 0; k < MANY; k++) {
        int t = k * 37 % MANY; /* coprime */
        const unsigned char *q = weft_received(&r[t]);
        bool in_place = q != in + t * BOX;
        REQUIRE(in_place == (!private_send(t) && !plain_recv(t)));
        REQUIRE(holds(q, (size_t)(1 + t % PIECE), (uint64_t)(peer * MANY + t)));
        weft_release(&r[t]);
    }
    WEFT_TRY(weft_wait_all(r + MANY, MANY));
    memset(shared, 0xff, (size_t)MANY * BOX);
    weft_arena_reset(b->shared);
    return weft_barrier(b->c);
}

/* What the endpoint has handed out: more exact than its allocations, which come in large chunks. */
static size_t endpoint_bytes(const weft_ctx *ctx)
{
    size_t sum = 0;
    for (int i = 0; i < ctx->mem.rows; i++)
        if (!strcmp(ctx->mem.row[i].arena, "local ranks")) sum += ctx->mem.row[i].bytes;
    return sum;
}

static weft_status many_body(weft_ctx *ctx, weft_world *w, const char *arg)
{
    (void)arg;
    bench b;
    WEFT_TRY(open_bench(&b, ctx, w));
    unsigned char *private = calloc(2 * MANY, BOX);
    weft_req *r = calloc(2 * MANY, sizeof *r);
    weft_status st = private && r ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "memory");
    /* How many receives are taken ahead depends on who is faster: after the most that there can be nothing grows. */
    size_t most = endpoint_bytes(ctx) + MANY * 64 + 4096;
    for (int i = 0; i < 24 && st == WEFT_OK; i++) st = many(&b, private, private + MANY * BOX, r);
    if (st == WEFT_OK && endpoint_bytes(ctx) > most)
        st = weft_fail(WEFT_ERR_INTERNAL, "memory is taken in every round");
    st = close_bench(&b, st);
    free(private);
    free(r);
    return st;
}

/* ---- a buffer is free after the release, and not before --------------------------------------------------------- */

static weft_status reuse(bench *b, unsigned char *in, size_t n, int rounds)
{
    unsigned char *p;
    WEFT_TRY(shared_bytes(b, n, &p));
    for (int i = 0; i < rounds; i++) {
        weft_req r;
        if (b->me == 0) {
            fill(p, n, (uint64_t)i);
            WEFT_TRY(send(b, p, n, 1, 0, &r));
            WEFT_TRY(weft_wait(&r));
            memset(p, 0xff, n);
        } else {
            WEFT_TRY(view(b, in, n, 0, 0, &r));
            WEFT_TRY(weft_wait(&r));
            for (int look = 0; look < 3; look++) {
                REQUIRE(holds(weft_received(&r), n, (uint64_t)i));
                if (i % 4 == 0) sched_yield();
            }
            weft_release(&r);
        }
    }
    return WEFT_OK;
}

static weft_status reuse_body(weft_ctx *ctx, weft_world *w, const char *arg)
{
    (void)arg;
    bench b;
    WEFT_TRY(open_bench(&b, ctx, w));
    enum { BYTES = 20000 };
    unsigned char in[BYTES];
    return close_bench(&b, reuse(&b, in, BYTES, 300));
}

/* ---- copies only ------------------------------------------------------------------------------------------------- */

static weft_status copies(bench *b)
{
    enum { N = 100001 };
    unsigned char *p;
    weft_req r;
    WEFT_TRY(shared_bytes(b, N, &p)); /* taken before: still memory that others could read */
    weft_world_copy_only(b->w);
    REQUIRE(!weft_world_peer_memory(b->w) && weft_world_buffers(b->w)->kind == WEFT_MEM_HOST);
    if (b->me == 0) {
        fill(p, N, 5);
        WEFT_TRY(send(b, p, N, 1, 0, &r));
        WEFT_TRY(weft_wait(&r));
    } else {
        WEFT_TRY(view(b, p, N, 0, 0, &r));
        WEFT_TRY(weft_wait(&r));
        REQUIRE(weft_received(&r) == p && holds(p, N, 5));
        weft_release(&r);
    }
    weft_counters k;
    weft_comm_counters(b->c, &k);
    REQUIRE(k.bytes_copied == N && k.bytes_logical == (b->me == 0 ? N : 0));
    return WEFT_OK;
}

static weft_status copies_body(weft_ctx *ctx, weft_world *w, const char *arg)
{
    (void)arg;
    bench b;
    WEFT_TRY(open_bench(&b, ctx, w));
    return close_bench(&b, copies(&b));
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static weft_status mismatch_body(weft_ctx *ctx, weft_world *w, const char *arg)
{
    (void)arg;
    bench b;
    unsigned char *p;
    weft_req r;
    WEFT_TRY(open_bench(&b, ctx, w));
    WEFT_TRY(shared_bytes(&b, 8, &p));
    WEFT_TRY(b.me == 0 ? send(&b, p, 5, 1, 4, &r) : view(&b, p, 7, 0, 4, &r));
    weft_status st = weft_wait(&r);
    weft_release(&r);
    return close_bench(&b, st);
}

/* Set by a thread rank whose wait ended as if all were well: the first failure of the job hides its own. */
static _Atomic int unnoticed;

/* A view without a buffer of memory that only the sender sees: nothing could be done with the bytes. */
static weft_status private_body(weft_ctx *ctx, weft_world *w, const char *arg)
{
    (void)arg;
    bench b;
    char own[100] = {0};
    weft_req r;
    WEFT_TRY(open_bench(&b, ctx, w));
    WEFT_TRY(b.me == 0 ? send(&b, own, sizeof own, 1, 4, &r) : view(&b, NULL, sizeof own, 0, 4, &r));
    weft_status st = weft_wait(&r);
    if (b.me == 1 && st != WEFT_ERR_INTERNAL) unnoticed = 1;
    if (st == WEFT_OK) st = weft_barrier(b.c); /* the sender has sent when it hears */
    return close_bench(&b, st);
}

/* Rank 1 reads in place and does not release; rank 0's deadline says so. arg: "sleep" or "abort": what rank 1 does. */
static weft_status hold(bench *b, bool fails)
{
    unsigned char *p;
    weft_req r;
    WEFT_TRY(shared_bytes(b, MIB, &p));
    if (b->me == 0) {
        fill(p, MIB, 9);
        weft_world_set_timeout(b->w, fails ? 30 : 0.3);
        weft_place(b->w, "cp.ring.forward", 1, 2);
        WEFT_TRY(send(b, p, MIB, 1, 7, &r));
        return weft_wait(&r);
    }
    WEFT_TRY(view(b, p, MIB, 0, 7, &r));
    WEFT_TRY(weft_wait(&r));
    weft_place(b->w, "model.block.forward", 3, 4);
    if (fails) return weft_fail(WEFT_ERR_IO, "data.bin: no such file");
    const unsigned char *q = weft_received(&r);
    double end = weft_now(&weft_clock_real) + 0.8;
    /* Rank 0 fails meanwhile and gives its memory back: this rank must be able to go on reading, whatever it sees. */
    unsigned sum = 0;
    while (weft_now(&weft_clock_real) < end)
        for (size_t i = 0; i < MIB; i += 4096) sum += *(const volatile unsigned char *)&q[i];
    weft_release(&r);
    weft_status st = weft_barrier(b->c);
    REQUIRE(st == WEFT_ERR_PEER && sum < UINT32_MAX);
    return st;
}

static weft_status hold_body(weft_ctx *ctx, weft_world *w, const char *arg)
{
    bench b;
    WEFT_TRY(open_bench(&b, ctx, w));
    return close_bench(&b, hold(&b, !strcmp(arg, "abort")));
}

static const test_body bodies[] = {
    {"sizes", sizes_body},   {"chain", chain_body},       {"many", many_body}, {"reuse", reuse_body},
    {"copies", copies_body}, {"mismatch", mismatch_body}, {"hold", hold_body}, {"private", private_body},
};
enum { SIZES, CHAIN, MANY_BODY, REUSE, COPIES, MISMATCH, HOLD, PRIVATE, BODIES };

#define BOTH_WAYS(way) for (test_way way = TEST_THREADS; way <= TEST_PROCESSES; way++)

static void messages_of_all_sizes(void **state)
{
    (void)state;
    assert_ok(test_ranks(TEST_THREADS, 2, &bodies[SIZES], "64"));
    assert_ok(test_ranks(TEST_PROCESSES, 2, &bodies[SIZES], "8"));
}

static void what_came_in_place_goes_on(void **state)
{
    (void)state;
    BOTH_WAYS(way) {
        assert_ok(test_ranks(way, 2, &bodies[CHAIN], "1"));
        assert_ok(test_ranks(way, 3, &bodies[CHAIN], "4097"));
        assert_ok(test_ranks(way, 7, &bodies[CHAIN], "300001"));
    }
}

static void many_messages(void **state)
{
    (void)state;
    BOTH_WAYS(way) assert_ok(test_ranks(way, 2, &bodies[MANY_BODY], ""));
}

static void memory_is_free_after_the_release(void **state)
{
    (void)state;
    BOTH_WAYS(way) assert_ok(test_ranks(way, 2, &bodies[REUSE], ""));
}

static void copies_on_request(void **state)
{
    (void)state;
    BOTH_WAYS(way) assert_ok(test_ranks(way, 2, &bodies[COPIES], ""));
}

#define assert_message(part) \
    do { \
        if (!strstr(weft_last_error(), (part))) fail_msg("\"%s\" lacks \"%s\"", weft_last_error(), (part)); \
    } while (0)

static void sizes_must_agree(void **state)
{
    (void)state;
    BOTH_WAYS(way) {
        assert_int_equal(test_ranks(way, 2, &bodies[MISMATCH], ""), WEFT_ERR_REFUSED);
        assert_message("rank 0 sends 5 bytes to rank 1");
        assert_message("receive of 7 bytes");
    }
}

static void a_view_without_buffer_needs_shared_memory(void **state)
{
    (void)state;
    BOTH_WAYS(way) {
        assert_int_equal(test_ranks(way, 2, &bodies[PRIVATE], ""), WEFT_ERR_INTERNAL);
        assert_message("rank 1: a receive in place of 100 bytes from rank 0");
        assert_message("does not come from weft_world_buffers");
        assert_int_equal(unnoticed, 0);
    }
}

static void what_is_not_released_is_named(void **state)
{
    (void)state;
    BOTH_WAYS(way) {
        assert_int_equal(test_ranks(way, 2, &bodies[HOLD], "sleep"), WEFT_ERR_TIMEOUT);
        assert_message("rank 0 in cp.ring.forward, layer 1, step 2: send to rank 1 (group all, tag 7) passed its "
                       "deadline of 0.3 s");
        assert_message("its 1048576 bytes, which rank 1 reads in place, not released");
        assert_message("rank 1 is in model.block.forward, layer 3, step 4");
    }
}

static void a_failure_of_the_reader_ends_the_wait(void **state)
{
    (void)state;
    BOTH_WAYS(way) {
        assert_int_equal(test_ranks(way, 2, &bodies[HOLD], "abort"), WEFT_ERR_IO);
        assert_string_equal(weft_last_error(), "rank 1: data.bin: no such file");
    }
}

static void a_killed_reader_is_named(void **state)
{
    (void)state;
    setenv("WEFT_FAULT", "kill:rank=1:site=test.reading:hit=4", 1);
    weft_status st = test_ranks(TEST_PROCESSES, 3, &bodies[CHAIN], "70000");
    unsetenv("WEFT_FAULT");
    assert_int_equal(st, WEFT_ERR_PEER);
    assert_message("rank 1 was killed by signal 9");
}

/* ---- the memory itself ------------------------------------------------------------------------------------------- */

static int64_t file_bytes(const weft_local *map)
{
    struct stat info;
    assert_int_equal(fstat(weft_local_fd(map), &info), 0);
    return (int64_t)info.st_blocks * 512;
}

/* Random taking and giving back against a plain list: nothing overlaps, everything is aligned, and at the end
 * everything is back in one piece and with the machine. */
static void memory_is_taken_and_given_back(void **state)
{
    (void)state;
    enum { N = 40, ROUNDS = 600 };
    weft_local *map;
    weft_heap heap[3];
    struct { unsigned char *p; size_t n; int rank; } held[N] = {{0}};
    assert_ok(weft_local_create(&map, 3));
    int64_t before = file_bytes(map);
    for (int r = 0; r < 3; r++) assert_ok(weft_heap_init(&heap[r], map, r));
    for (int i = 0; i < ROUNDS; i++) {
        int k = (int)((test_uniform(3, i) + 1) * N / 2);
        if (held[k].p) {
            const weft_mem_provider *from = &heap[held[k].rank].provider;
            for (size_t j = 0; j < held[k].n; j += 4096) assert_int_equal(held[k].p[j], k);
            from->release(from->self, held[k].p, held[k].n);
            held[k].p = NULL;
            continue;
        }
        held[k].rank = i % 3;
        held[k].n = (size_t)((test_uniform(4, i) + 1) * 100000);
        const weft_mem_provider *of = &heap[held[k].rank].provider;
        assert_ok(of->alloc(of->self, held[k].n, (void **)&held[k].p));
        uint64_t offset;
        assert_true(weft_heap_find(map, held[k].p, held[k].n, &offset) && weft_heap_address(map, offset) == held[k].p);
        assert_int_equal((uintptr_t)held[k].p % 64, 0);
        memset(held[k].p, k, held[k].n);
    }
    assert_true(file_bytes(map) > before);
    for (int k = 0; k < N; k++)
        if (held[k].p) heap[held[k].rank].provider.release(&heap[held[k].rank], held[k].p, held[k].n);
    assert_int_equal(file_bytes(map), before);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(heap[r].extents, 1);
        assert_int_equal(heap[r].free[0].bytes, map->header->slice_bytes);
        weft_heap_close(&heap[r]);
    }
    weft_local_destroy(map);
}

static void too_much_is_refused_with_a_way_out(void **state)
{
    (void)state;
    weft_local *map;
    weft_heap heap;
    void *p = NULL;
    assert_ok(weft_local_create(&map, 2));
    assert_ok(weft_heap_init(&heap, map, 1));
    size_t slice = map->header->slice_bytes;
    assert_true(slice > 0);
    assert_int_equal(heap.provider.alloc(&heap, slice + 1, &p), WEFT_ERR_MEMORY);
    assert_message("fewer ranks");
    assert_message("copy instead");
    assert_null(p);
    /* The machine itself is asked only for what it has: fallocate would let the kernel kill processes. */
    assert_in_range(weft_local_room(""), 1, (size_t)1 << 50);
    weft_heap_close(&heap);
    weft_local_destroy(map);
}

static weft_status limited_body(weft_ctx *ctx, weft_world *w, const char *arg)
{
    (void)arg;
    bench b;
    WEFT_TRY(open_bench(&b, ctx, w));
    REQUIRE(!weft_world_peer_memory(w) && weft_world_buffers(w)->kind == WEFT_MEM_HOST);
    return close_bench(&b, copies(&b));
}

/* Where files may not be so large, ranks copy. */
static void without_shared_memory_ranks_copy(void **state)
{
    (void)state;
    struct rlimit old, small;
    weft_local *map;
    assert_ok(weft_local_create(&map, 2));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){map->bytes + 4 * MIB, old.rlim_max};
    weft_local_destroy(map);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    weft_status st = test_ranks(TEST_THREADS, 2, &(test_body){"limited", limited_body}, "");
    small.rlim_cur = MIB;
    setrlimit(RLIMIT_FSIZE, &small);
    weft_status none = weft_local_create(&map, 64);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_ok(st);
    assert_int_equal(none, WEFT_ERR_MEMORY);
    assert_message("ulimit -f");
}

/* What is taken counts in the rank's account. */
static weft_status account_body(weft_ctx *ctx, weft_world *w, const char *arg)
{
    (void)arg;
    bench b;
    unsigned char *p;
    WEFT_TRY(open_bench(&b, ctx, w));
    size_t before = ctx->mem.bytes;
    WEFT_TRY(shared_bytes(&b, 5 * MIB, &p));
    REQUIRE(ctx->mem.bytes - before >= 5 * MIB);
    weft_arena_destroy(b.shared);
    REQUIRE(ctx->mem.bytes == before);
    return WEFT_OK;
}

static void the_account_knows_it(void **state)
{
    (void)state;
    assert_ok(test_ranks(TEST_THREADS, 2, &(test_body){"account", account_body}, ""));
}

int main(int argc, char **argv)
{
    int code;
    if (test_ranks_child(argc, argv, bodies, BODIES, &code)) return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_all_sizes),
        cmocka_unit_test(what_came_in_place_goes_on),
        cmocka_unit_test(many_messages),
        cmocka_unit_test(memory_is_free_after_the_release),
        cmocka_unit_test(copies_on_request),
        cmocka_unit_test(sizes_must_agree),
        cmocka_unit_test(a_view_without_buffer_needs_shared_memory),
        cmocka_unit_test(what_is_not_released_is_named),
        cmocka_unit_test(a_failure_of_the_reader_ends_the_wait),
        cmocka_unit_test(a_killed_reader_is_named),
        cmocka_unit_test(memory_is_taken_and_given_back),
        cmocka_unit_test(too_much_is_refused_with_a_way_out),
        cmocka_unit_test(without_shared_memory_ranks_copy),
        cmocka_unit_test(the_account_knows_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
