/* comm_ways.c — messages to the next rank (ring) or to all others at once (direct), alone or as the library's
 * collectives, and copies in memory.
 *
 * A repeat's time is that of its slowest rank, because the others wait for it; of the repeats the median counts. */
#include "cli/comm_ways.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES_MAX = 4096, INNER_MAX = 1000, REPEATS_MAX = WEFT_BENCH_REPEATS_MAX };
static const double long_enough = 0.005; /* seconds of one measurement at least */

/* ---- what is exchanged --------------------------------------------------------------------------------------- */

static weft_status copy(weft_ways *b, size_t bytes)
{
    memcpy(b->to, b->from, bytes);
    return WEFT_OK;
}

static weft_status to_next(weft_ways *b, size_t bytes)
{
    return weft_rates_exchange(&b->r, 1, bytes, b->from, b->to, b->req);
}

static weft_status to_all(weft_ways *b, size_t bytes)
{
    return weft_rates_exchange(&b->r, b->P - 1, bytes, b->from, b->to, b->req);
}

static weft_status in_pieces(weft_ways *b, size_t bytes)
{
    return weft_rates_pieces(&b->r, b->largest, bytes, b->from, b->to, b->req);
}

/* P - 1 hops, each of which begins when the one before has arrived. */
static weft_status ring_gather(weft_ways *b, size_t bytes)
{
    for (int hop = 0; hop + 1 < b->P; hop++) {
        char *to = b->to + (size_t)hop * bytes;
        WEFT_TRY(weft_rates_exchange(&b->r, 1, bytes, hop ? to - bytes : b->from, to, b->req));
    }
    return WEFT_OK;
}

static void set_parts(weft_ways *b, size_t bytes)
{
    for (int i = 0; i < b->P; i++) b->each[i] = bytes, b->elements[i] = (int64_t)(bytes / sizeof(float));
}

static weft_status all_gather(weft_ways *b, size_t bytes)
{
    set_parts(b, bytes);
    return weft_all_gather(b->r.comm, b->from, b->to, b->each);
}

static weft_status reduce_scatter(weft_ways *b, size_t bytes)
{
    set_parts(b, bytes);
    return weft_reduce_scatter(b->r.comm, b->from, b->to, b->elements, WEFT_F32);
}

static weft_status all_to_all(weft_ways *b, size_t bytes)
{
    set_parts(b, bytes);
    return weft_all_to_all(b->r.comm, b->from, b->each, b->to, b->each);
}

/* How much a rank sends when a message has `bytes`. */
static double one(const weft_ways *b, size_t bytes) { return (void)b, (double)bytes; }
static double others(const weft_ways *b, size_t bytes) { return (double)(b->P - 1) * (double)bytes; }
static double whole(const weft_ways *b, size_t bytes) { return (void)bytes, (double)b->largest; }

static const struct way {
    const char *path, *what;
    weft_status (*run)(weft_ways *b, size_t bytes);
    double (*sent)(const weft_ways *b, size_t bytes);
} ways[WEFT_WAYS] = {
    [WEFT_WAY_COPY] = {"memory", "copy", copy, one},
    [WEFT_WAY_NEXT] = {"ring", "to the next", to_next, one},
    [WEFT_WAY_ALL] = {"direct", "to all others", to_all, others},
    [WEFT_WAY_PIECES] = {"ring", "in pieces", in_pieces, whole},
    [WEFT_WAY_RING_GATHER] = {"ring", "all-gather", ring_gather, others},
    [WEFT_WAY_GATHER] = {"direct", "all-gather", all_gather, others},
    [WEFT_WAY_SCATTER] = {"direct", "reduce-scatter", reduce_scatter, others},
    [WEFT_WAY_DEAL] = {"direct", "all-to-all", all_to_all, others},
};

/* ---- measuring ------------------------------------------------------------------------------------------------ */

typedef struct sample { double seconds, exposed; } sample;

static int ascending(const void *a, const void *b)
{
    double x = ((const sample *)a)->seconds, y = ((const sample *)b)->seconds;
    return (x > y) - (x < y);
}

/* `inner` of them one after the other; seconds and exposed seconds of one on the slowest rank. */
static weft_status timed(weft_ways *b, const struct way *w, size_t bytes, int inner, sample *x, weft_way_figures *out)
{
    weft_counters before, after;
    WEFT_TRY(weft_barrier(b->r.comm));
    weft_comm_counters(b->r.comm, &before);
    double begin = weft_rates_now(&b->r);
    for (int i = 0; i < inner; i++) WEFT_TRY(w->run(b, bytes));
    double took[2] = {(weft_rates_now(&b->r) - begin) / inner, 0};
    weft_comm_counters(b->r.comm, &after);
    took[1] = (after.exposed_seconds - before.exposed_seconds) / inner;
    const double sent = (double)(after.bytes_logical - before.bytes_logical);
    out->copies = sent > 0 ? (double)(after.bytes_copied - before.bytes_copied) / sent : 0;
    WEFT_TRY(weft_all_reduce(b->r.comm, took, 2, WEFT_F64, WEFT_MAX));
    *x = (sample){took[0], took[1]};
    return WEFT_OK;
}

weft_status weft_way_measure(weft_ways *b, weft_way way, size_t bytes, weft_way_figures *out)
{
    const struct way *w = &ways[way];
    sample x[REPEATS_MAX], first;
    *out = (weft_way_figures){0};
    WEFT_TRY(timed(b, w, bytes, 1, &first, out)); /* touches the memory */
    const double want = long_enough / fmax(first.seconds, 1e-7);
    const int inner = want < 1 ? 1 : want > INNER_MAX ? INNER_MAX : (int)want;
    for (int i = 0; i < b->repeats; i++) WEFT_TRY(timed(b, w, bytes, inner, &x[i], out));
    qsort(x, (size_t)b->repeats, sizeof *x, ascending);
    const sample *median = &x[b->repeats / 2];
    out->seconds = median->seconds;
    out->spread = (x[3 * b->repeats / 4].seconds - x[b->repeats / 4].seconds) / median->seconds;
    out->rate = w->sent(b, bytes) / median->seconds;
    out->exposed = way == WEFT_WAY_COPY ? 0 : fmin(median->exposed / median->seconds, 1);
    return WEFT_OK;
}

/* ---- for the bench -------------------------------------------------------------------------------------------- */

const char *weft_way_path(weft_way way) { return ways[way].path; }

const char *weft_way_name(weft_way way) { return ways[way].what; }

bool weft_way_measured(const weft_ways *b, weft_way way, size_t bytes)
{
    return way != WEFT_WAY_PIECES || b->largest / bytes < PIECES_MAX;
}

weft_status weft_ways_buffers(weft_ways *b)
{
    size_t bytes = 0;
    WEFT_TRY(weft_size_of(b->P, b->largest, "messages", &bytes));
    WEFT_TRY(WEFT_NEW0(b->r.arena, (int64_t)bytes, "messages", &b->from));
    WEFT_TRY(WEFT_NEW0(b->r.arena, (int64_t)bytes, "messages", &b->to));
    WEFT_TRY(WEFT_NEW(b->r.arena, b->P, "sizes", &b->each));
    WEFT_TRY(WEFT_NEW(b->r.arena, b->P, "sizes", &b->elements));
    return WEFT_NEW(b->r.arena, 2 * weft_max_i64(b->P, PIECES_MAX), "requests", &b->req);
}
