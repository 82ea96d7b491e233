/* peer_memory.c — what a K,V block costs between two ranks of one machine: copied, and read in place.
 *
 * Both ranks pack a block, give it to each other, read the other's block once (that stands for the kernel) and
 * pack again, as in a step of the ring. The two ways alternate within one run, so that whatever else the machine does
 * hits both alike. Printed: the least and the middle time of an exchange, and their ratios.
 *
 *   ninja -C build bench_peer_memory && build/bench_peer_memory */
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MIN = 9, ROUNDS_MAX = 401, WAYS = 2 };
#define SECONDS_PER_SIZE 2.0
#define KIB ((size_t)1 << 10)

typedef struct exchange {
    weft_comm *c;
    const char *own;   /* private, as the caller's keys and values are */
    char *out, *in;    /* travelling */
    size_t bytes;
    int peer;
    uint64_t sum;
} exchange;

/* Every word, as a kernel reads every row; four sums, so that the additions do not wait for each other. */
static uint64_t read_all(const void *p, size_t bytes)
{
    const uint64_t *x = p;
    uint64_t s[4] = {0};
    for (size_t i = 0; i + 4 <= bytes / sizeof *x; i += 4)
        for (int k = 0; k < 4; k++) s[k] += x[i + (size_t)k];
    return s[0] + s[1] + s[2] + s[3];
}

static weft_status exchange_once(exchange *e, bool in_place)
{
    weft_req r[2];
    memcpy(e->out, e->own, e->bytes);
    if (in_place) WEFT_TRY(weft_irecv_view(e->c, e->in, e->bytes, e->peer, 0, WEFT_MEM_SHARED, NULL, &r[0]));
    else WEFT_TRY(weft_irecv(e->c, e->in, e->bytes, e->peer, 0, WEFT_MEM_SHARED, NULL, &r[0]));
    WEFT_TRY(weft_isend(e->c, e->out, e->bytes, e->peer, 0, WEFT_MEM_SHARED, NULL, &r[1]));
    WEFT_TRY(weft_wait(&r[0]));
    e->sum += read_all(weft_received(&r[0]), e->bytes);
    weft_release(&r[0]);
    return weft_wait(&r[1]);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The ranks decide together when a size has been measured for long enough. */
static weft_status enough(const exchange *e, double begin, int rounds, bool *done)
{
    int64_t left =
        rounds < ROUNDS_MIN || (weft_now(&weft_clock_real) - begin < SECONDS_PER_SIZE && rounds < ROUNDS_MAX);
    WEFT_TRY(weft_all_reduce(e->c, &left, 1, WEFT_I64, WEFT_MAX));
    *done = left == 0;
    return WEFT_OK;
}

static weft_status measure(exchange *e, double seconds[WAYS][ROUNDS_MAX], int *rounds)
{
    double begin = weft_now(&weft_clock_real);
    bool done = false;
    int n = 0;
    for (int way = 0; way < WAYS; way++) WEFT_TRY(exchange_once(e, way)); /* pages, caches */
    for (; !done; n++) {
        for (int way = 0; way < WAYS; way++) {
            WEFT_TRY(weft_barrier(e->c));
            double start = weft_now(&weft_clock_real);
            WEFT_TRY(exchange_once(e, way));
            seconds[way][n] = weft_now(&weft_clock_real) - start;
        }
        WEFT_TRY(enough(e, begin, n + 1, &done));
    }
    for (int way = 0; way < WAYS; way++) qsort(seconds[way], (size_t)n, sizeof(double), by_value);
    *rounds = n;
    return WEFT_OK;
}

static void print_row(size_t bytes, double seconds[WAYS][ROUNDS_MAX], int n)
{
    const double *copied = seconds[0], *read = seconds[1];
    printf("%8zu KiB  %6d  %10.1f %10.1f  %10.1f %10.1f  %6.2f %6.2f\n", bytes / KIB, n, copied[0] * 1e6,
           copied[n / 2] * 1e6, read[0] * 1e6, read[n / 2] * 1e6, copied[0] / read[0], copied[n / 2] / read[n / 2]);
    fflush(stdout);
}

static weft_status run(weft_world *w, weft_arena *shared, weft_arena *private)
{
    static double seconds[WAYS][ROUNDS_MAX]; /* one rank per process */
    size_t most = 64 * KIB * KIB;
    exchange e = {.peer = 1 - weft_world_rank(w)};
    char *own;
    WEFT_TRY(weft_comm_create(&e.c, w, (int[]){0, 1}, 2, "bench"));
    if (!weft_world_peer_memory(w)) return weft_fail(WEFT_ERR_REFUSED, "ranks of this machine cannot read in place");
    WEFT_TRY(weft_arena_zalloc(private, (int64_t)most, 1, "own", (void **)&own));
    WEFT_TRY(weft_arena_zalloc(shared, (int64_t)most, 1, "out", (void **)&e.out));
    WEFT_TRY(weft_arena_zalloc(shared, (int64_t)most, 1, "in", (void **)&e.in));
    for (size_t i = 0; i < most; i++) own[i] = (char)(i * 7 + (size_t)e.peer);
    e.own = own;
    if (e.peer == 1)
        printf("microseconds       rounds  copied: min     median   in place: min  median   ratio: min median\n");
    for (e.bytes = 64 * KIB; e.bytes <= most; e.bytes *= 4) {
        int rounds;
        WEFT_TRY(measure(&e, seconds, &rounds));
        if (e.peer == 1) print_row(e.bytes, seconds, rounds);
    }
    return e.sum ? WEFT_OK : weft_fail(WEFT_ERR_INTERNAL, "nothing was read");
}

static weft_status rank_main(weft_local *map, int rank)
{
    weft_ctx ctx;
    weft_world *w;
    weft_arena *shared = NULL, *private = NULL;
    weft_ctx_init(&ctx);
    WEFT_TRY(weft_world_local(&w, &ctx, map, rank));
    weft_status st = weft_arena_create(&shared, &ctx.mem, "shared", weft_world_buffers(w));
    if (st == WEFT_OK) st = weft_arena_create(&private, &ctx.mem, "private", NULL);
    if (st == WEFT_OK) st = run(w, shared, private);
    if (st < 0) weft_world_abort(w, st, weft_last_error());
    weft_arena_destroy(shared);
    weft_arena_destroy(private);
    weft_world_close(w);
    return st;
}

int main(int argc, char **argv)
{
    (void)argc;
    weft_local *map;
    int rank, code;
    if (weft_local_from_env(&map, &rank) != WEFT_OK) return 2;
    if (map) {
        code = weft_exit_code(rank_main(map, rank));
        weft_local_destroy(map);
        return code;
    }
    if (weft_local_supervise(&(weft_spawn){.ranks = 2, .argv = argv}, &code) != WEFT_OK)
        fprintf(stderr, "%s\n", weft_last_error());
    return code;
}
