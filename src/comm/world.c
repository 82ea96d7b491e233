/* world.c — worlds, groups and their counters: everything about ranks that no transport decides. */
#include "comm/world.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* ---- flights ---------------------------------------------------------------------------------------- */

void weft_flight_begin(weft_flight *f, double now)
{
    if (f->open++ == 0) f->since = now;
}

void weft_flight_end(weft_flight *f, double now)
{
    if (--f->open == 0) f->seconds += now - f->since;
}

double weft_flight_seconds(const weft_flight *f, double now)
{
    return f->seconds + (f->open > 0 ? now - f->since : 0.0);
}

/* ---- groups ----------------------------------------------------------------------------------------- */

/* Multiply and shift over numbers; only compared between ranks of one job. */
static uint64_t hash_of(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t hash_text(uint64_t h, const char *s)
{
    while (*s) h = hash_of(h, (unsigned char)*s++);
    return hash_of(h, 256);
}

/* Marks the ranks of a list; the first that is marked already is its index, n when there is none. */
static int mark_ranks(weft_world *w, const int *ranks, int n)
{
    for (int i = 0; i < n; i++) {
        uint8_t bit = (uint8_t)(1u << ranks[i] % 8);
        if (w->listed[ranks[i] / 8] & bit) return i;
        w->listed[ranks[i] / 8] |= bit;
    }
    return n;
}

static weft_status check_ranks(weft_world *w, const int *ranks, int n, const char *name)
{
    if (!name) return weft_fail(WEFT_ERR_REFUSED, "a group needs a name");
    if (n < 1 || n > w->size)
        return weft_fail(WEFT_ERR_REFUSED, "group %s: %d ranks in a world of %d; give 1 to %d", name, n, w->size,
                         w->size);
    for (int i = 0; i < n; i++)
        if (ranks[i] < 0 || ranks[i] >= w->size)
            return weft_fail(WEFT_ERR_REFUSED, "group %s: rank %d does not exist; the world has ranks 0 to %d", name,
                             ranks[i], w->size - 1);
    int twice = mark_ranks(w, ranks, n);
    for (int i = 0; i < n; i++) w->listed[ranks[i] / 8] = 0;
    if (twice < n)
        return weft_fail(WEFT_ERR_REFUSED, "group %s: rank %d is listed twice; list every rank once", name,
                         ranks[twice]);
    return WEFT_OK;
}

/* If the ranks do not build the same groups in the same order, messages go to the wrong peers or nowhere.
 * One collective comparison here is cheaper than the hang. Groups of one rank never send, so they are only
 * folded into the hash and compared together with the next larger group. */
static weft_status check_same_groups(weft_world *w, int largest, const char *name)
{
    if (largest == 1 || !w->all) return WEFT_OK;
    int64_t h = (int64_t)w->groups_hash, both[2] = {h, ~h};
    WEFT_TRY(weft_all_reduce(w->all, both, 2, WEFT_I64, WEFT_MAX));
    if (both[0] != ~both[1])
        return weft_fail(WEFT_ERR_REFUSED,
                         "group %s: the ranks give different members, names or orders of groups; "
                         "call weft_comm_create for every group on every rank in one common order", name);
    return WEFT_OK;
}

/* The comm of this rank, which is number `mine` of the n that start at `first`, `step` apart. */
static weft_status open_comm(weft_comm **out, weft_world *w, uint32_t id, const char *name, int first, int step, int n,
                             int mine)
{
    weft_comm *c;
    WEFT_TRY(WEFT_NEW0(w->arena, 1, "comm", &c));
    *c = (weft_comm){.world = w, .id = id, .rank = mine, .size = n, .first = first, .step = step, .next = w->comms};
    snprintf(c->name, sizeof c->name, "%s", name);
    if (c->next) c->next->prev = c;
    w->comms = c;
    *out = c;
    return WEFT_OK;
}

static bool progression(const int *ranks, int n)
{
    for (int i = 2; i < n; i++)
        if (ranks[i] - ranks[i - 1] != ranks[1] - ranks[0]) return false;
    return true;
}

static weft_status open_listed(weft_comm **out, weft_world *w, uint32_t id, const char *name, const int *ranks, int n,
                               int mine)
{
    int *copy = NULL;
    if (!progression(ranks, n)) {
        WEFT_TRY(WEFT_NEW(w->arena, n, "comm", &copy));
        memcpy(copy, ranks, (size_t)n * sizeof *ranks);
    }
    WEFT_TRY(open_comm(out, w, id, name, ranks[0], n > 1 ? ranks[1] - ranks[0] : 1, n, mine));
    (*out)->ranks = copy;
    return WEFT_OK;
}

weft_status weft_comm_create(weft_comm **out, weft_world *w, const int *ranks, int n, const char *name)
{
    *out = NULL;
    WEFT_TRY(weft_world_good(w));
    WEFT_TRY(check_ranks(w, ranks, n, name));
    uint32_t id = w->next_comm++;
    w->groups_hash = hash_of(w->groups_hash, (uint64_t)n);
    for (int i = 0; i < n; i++) w->groups_hash = hash_of(w->groups_hash, (uint64_t)ranks[i]);
    w->groups_hash = hash_text(w->groups_hash, name);
    WEFT_TRY(check_same_groups(w, n, name));
    int mine = 0;
    while (mine < n && ranks[mine] != w->rank) mine++;
    return mine < n ? open_listed(out, w, id, name, ranks, n, mine) : WEFT_OK;
}

/* ---- all groups of one kind ------------------------------------------------------------------------- */

static weft_status check_numbers(const weft_world *w, const int *group_of, const char *name)
{
    if (!name) return weft_fail(WEFT_ERR_REFUSED, "groups need a name");
    for (int r = 0; r < w->size; r++)
        if (group_of[r] < 0 || group_of[r] >= w->size)
            return weft_fail(WEFT_ERR_REFUSED, "groups %s: rank %d is put into group %d; give 0 to %d", name, r,
                             group_of[r], w->size - 1);
    return WEFT_OK;
}

/* Whether each rank is alone: then no number is used twice, which takes as many as there are ranks. */
static bool all_alone(weft_world *w, const int *group_of)
{
    int twice = mark_ranks(w, group_of, w->size);
    memset(w->listed, 0, ((size_t)w->size + 7) / 8);
    return twice == w->size;
}

/* This rank's group: where it starts, the distance of its ranks (0: not the same between all), its size, this rank's
 * number. */
typedef struct family { int first, step, n, mine; } family;

static family family_of(const weft_world *w, const int *group_of)
{
    family f = {.step = 1};
    bool even = true;
    for (int r = 0; r < w->size; r++) {
        if (group_of[r] != group_of[w->rank]) continue;
        if (r == w->rank) f.mine = f.n;
        if (f.n == 0) f.first = r;
        else if (f.n == 1) f.step = r - f.first;
        else even &= r == f.first + f.n * f.step;
        f.n++;
    }
    if (!even) f.step = 0;
    return f;
}

static weft_status list_members(weft_comm *c, const int *group_of)
{
    const weft_world *w = c->world;
    WEFT_TRY(WEFT_NEW(w->arena, c->size, "comm", &c->ranks));
    for (int r = 0, n = 0; r < w->size; r++)
        if (group_of[r] == group_of[w->rank]) c->ranks[n++] = r;
    return WEFT_OK;
}

weft_status weft_comm_split(weft_comm **out, weft_world *w, const int *group_of, const char *name)
{
    *out = NULL;
    WEFT_TRY(weft_world_good(w));
    WEFT_TRY(check_numbers(w, group_of, name));
    uint32_t id = w->next_comm++; /* one for all: no two ranks meet in more than one of the groups */
    for (int r = 0; r < w->size; r++) w->groups_hash = hash_of(w->groups_hash, (uint64_t)group_of[r]);
    w->groups_hash = hash_text(w->groups_hash, name);
    WEFT_TRY(check_same_groups(w, all_alone(w, group_of) ? 1 : 2, name));
    family f = family_of(w, group_of);
    weft_comm *c;
    WEFT_TRY(open_comm(&c, w, id, name, f.first, f.step, f.n, f.mine));
    if (f.step == 0) WEFT_TRY(list_members(c, group_of));
    *out = c;
    return WEFT_OK;
}

static void add_counters(weft_counters *sum, const weft_counters *x)
{
    sum->bytes_logical += x->bytes_logical;
    sum->bytes_copied += x->bytes_copied;
    sum->messages += x->messages;
    sum->exposed_seconds += x->exposed_seconds;
}

void weft_comm_destroy(weft_comm *c)
{
    if (!c) return;
    weft_world *w = c->world;
    add_counters(&w->dead, &c->counters);
    if (c->prev) c->prev->next = c->next;
    else w->comms = c->next;
    if (c->next) c->next->prev = c->prev;
}

int weft_comm_rank(const weft_comm *c) { return c->rank; }
int weft_comm_size(const weft_comm *c) { return c->size; }
int weft_comm_world_rank(const weft_comm *c, int rank) { return weft_comm_member(c, rank); }
weft_world *weft_comm_world(const weft_comm *c) { return c->world; }

void weft_comm_counters(const weft_comm *c, weft_counters *out)
{
    *out = c->counters;
    out->flight_seconds = weft_flight_seconds(&c->flight, weft_now(&c->world->ctx->clock));
}

void weft_world_counters(const weft_world *w, weft_counters *out)
{
    weft_counters sum = w->dead;
    for (const weft_comm *c = w->comms; c; c = c->next) add_counters(&sum, &c->counters);
    sum.flight_seconds = weft_flight_seconds(&w->flight, weft_now(&w->ctx->clock));
    *out = sum;
}

/* ---- worlds ----------------------------------------------------------------------------------------- */

static weft_status alloc_world(weft_world *w)
{
    int window = w->size - 1 < WEFT_COLL_WINDOW ? w->size - 1 : WEFT_COLL_WINDOW;
    WEFT_TRY(WEFT_NEW0(w->arena, (w->size + 7) / 8, "world", &w->listed));
    if (w->size > 1) {
        WEFT_TRY(WEFT_NEW0(w->arena, 2 * window, "world", &w->reqs));
        WEFT_TRY(WEFT_NEW(w->arena, WEFT_SCRATCH_SMALL, "partial sums", &w->scratch));
        w->scratch_bytes = WEFT_SCRATCH_SMALL;
    }
    w->groups_hash = hash_text(hash_of(0, (uint64_t)w->size), "world");
    return open_comm(&w->all, w, w->next_comm++, "world", 0, 1, w->size, w->rank);
}

weft_status weft_world_scratch(weft_world *w, size_t bytes, char **out)
{
    if (bytes > w->scratch_bytes) {
        weft_status st = weft_arena_alloc(w->arena, WEFT_SCRATCH_BYTES, 1, "partial sums", (void **)&w->scratch);
        if (st < 0) return weft_world_fail(w, st); /* the others are in the same collective */
        w->scratch_bytes = WEFT_SCRATCH_BYTES;
    }
    *out = w->scratch;
    return WEFT_OK;
}

weft_status weft_world_open(weft_world **out, weft_ctx *ctx, const weft_transport *tp, void *ep, int rank, int size)
{
    weft_status st;
    weft_arena *arena = NULL;
    weft_world *w;
    WEFT_TRY_OR(st, weft_arena_create(&arena, &ctx->mem, "comm", NULL), close_ep);
    WEFT_TRY_OR(st, WEFT_NEW0(arena, 1, "world", &w), free_arena);
    *w = (weft_world){.tp = tp, .ep = ep, .ctx = ctx, .arena = arena, .rank = rank, .size = size, .op = "start",
                      .timeout = weft_clock_virtual(&ctx->clock) ? INFINITY : WEFT_DEFAULT_TIMEOUT, .layer = -1,
                      .step = -1};
    WEFT_TRY_OR(st, alloc_world(w), free_arena);
    *out = w;
    return WEFT_OK;
free_arena:
    weft_arena_destroy(arena);
close_ep:
    if (tp->close) tp->close(ep, false);
    return st;
}

weft_status weft_world_good(const weft_world *w)
{
    return w->failed == WEFT_OK ? WEFT_OK : weft_fail(w->failed, "%s", w->message);
}

weft_status weft_world_fail(weft_world *w, weft_status st)
{
    if (w->failed != WEFT_OK) return st;
    w->failed = st;
    snprintf(w->message, sizeof w->message, "%s", weft_last_error());
    if (w->tp->abort) w->tp->abort(w->ep, st, w->message);
    return st;
}

void weft_world_abort(weft_world *w, weft_status st, const char *message)
{
    if (w->failed != WEFT_OK) return;
    w->failed = st < 0 ? st : WEFT_ERR_INTERNAL;
    snprintf(w->message, sizeof w->message, "%s", weft__message_of(message, w->failed));
    if (w->tp->abort) w->tp->abort(w->ep, w->failed, w->message);
}

void weft_world_close(weft_world *w)
{
    if (!w) return;
    /* The barrier keeps a rank from vanishing while a peer still takes bytes from it. */
    bool orderly = w->failed == WEFT_OK && weft_barrier(w->all) == WEFT_OK;
    if (w->tp->close) w->tp->close(w->ep, orderly);
    weft_arena_destroy(w->arena); /* holds w itself */
}

int weft_world_rank(const weft_world *w) { return w->rank; }
int weft_world_size(const weft_world *w) { return w->size; }
const char *weft_world_transport(const weft_world *w) { return w->tp->name; }
weft_ctx *weft_world_ctx(const weft_world *w) { return w->ctx; }
weft_comm *weft_world_all(const weft_world *w) { return w->all; }

int weft_world_failed_rank(const weft_world *w) { return w->tp->failed_rank ? w->tp->failed_rank(w->ep) : -1; }

void weft_world_describe(const weft_world *w, char *text, size_t n)
{
    if (w->tp->describe) w->tp->describe(w->ep, text, n);
    else snprintf(text, n, "%s", w->tp->name);
}

void weft_world_cpus(const weft_world *w, int *cpus, int *sharers)
{
    cpu_set_t set;
    *sharers = w->size;
    *cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    if (w->tp->cpus) w->tp->cpus(w->ep, cpus, sharers);
}

weft_status weft_world_set_timeout(weft_world *w, double seconds)
{
    if (!(seconds > 0)) /* NaN too: no time would ever be later */
        return weft_fail(WEFT_ERR_REFUSED, "a timeout of %g seconds; give more than 0, or INFINITY for none", seconds);
    w->timeout = seconds;
    return WEFT_OK;
}

double weft_world_timeout(const weft_world *w) { return w->timeout; }

void weft_place(weft_world *w, const char *op, int layer, int step)
{
    w->op = op;
    w->layer = layer;
    w->step = step;
    if (w->tp->place) w->tp->place(w->ep, op, layer, step);
}
