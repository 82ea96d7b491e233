/* world.c — worlds, groups and their counters: everything about ranks that no transport decides. */
#include "comm/world.h"

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

/* FNV-1a over bytes; only compared between ranks of one job. */
static uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static weft_status check_ranks(const weft_world *w, const int *ranks, int n, const char *name)
{
    if (!name) return weft_fail(WEFT_ERR_REFUSED, "a group needs a name");
    if (n < 1 || n > w->size)
        return weft_fail(WEFT_ERR_REFUSED, "group %s: %d ranks in a world of %d; give 1 to %d", name, n, w->size, w->size);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= w->size)
            return weft_fail(WEFT_ERR_REFUSED, "group %s: rank %d does not exist; the world has ranks 0 to %d", name,
                             ranks[i], w->size - 1);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                return weft_fail(WEFT_ERR_REFUSED, "group %s: rank %d is listed twice; list every rank once", name, ranks[i]);
    }
    return WEFT_OK;
}

/* If the ranks do not build the same groups in the same order, messages go to the wrong peers or nowhere.
 * One collective comparison here is cheaper than the hang. Groups of one rank never send, so they are only
 * folded into the hash and compared together with the next larger group. */
static weft_status check_same_groups(weft_world *w, int n, const char *name)
{
    if (n == 1 || !w->all) return WEFT_OK;
    int64_t h = (int64_t)w->groups_hash, both[2] = {h, ~h};
    WEFT_TRY(weft_all_reduce(w->all, both, 2, WEFT_I64, WEFT_MAX));
    if (both[0] != ~both[1])
        return weft_fail(WEFT_ERR_REFUSED,
                         "group %s: the ranks give different members, names or orders of groups; "
                         "call weft_comm_create for every group on every rank in one common order", name);
    return WEFT_OK;
}

static weft_status comm_alloc(weft_comm **out, weft_world *w, int n)
{
    weft_comm *c;
    WEFT_TRY(WEFT_NEW0(w->arena, 1, "comm", &c));
    WEFT_TRY(WEFT_NEW(w->arena, n, "comm", &c->ranks));
    WEFT_TRY(WEFT_NEW0(w->arena, 2 * (int64_t)n, "comm", &c->reqs));
    WEFT_TRY(WEFT_NEW0(w->arena, n, "comm", &c->bytes));
    WEFT_TRY(WEFT_NEW0(w->arena, n, "comm", &c->begin));
    WEFT_TRY(WEFT_NEW0(w->arena, n, "comm", &c->len));
    *out = c;
    return WEFT_OK;
}

weft_status weft_comm_create(weft_comm **out, weft_world *w, const int *ranks, int n, const char *name)
{
    *out = NULL;
    WEFT_TRY(weft_world_good(w));
    WEFT_TRY(check_ranks(w, ranks, n, name));
    uint32_t id = w->next_comm++;
    w->groups_hash = hash_bytes(w->groups_hash, &n, sizeof n);
    w->groups_hash = hash_bytes(w->groups_hash, ranks, (size_t)n * sizeof *ranks);
    w->groups_hash = hash_bytes(w->groups_hash, name, strlen(name));
    WEFT_TRY(check_same_groups(w, n, name));

    int mine = -1;
    for (int i = 0; i < n; i++)
        if (ranks[i] == w->rank) mine = i;
    if (mine < 0) return WEFT_OK;
    weft_comm *c;
    WEFT_TRY(comm_alloc(&c, w, n));
    memcpy(c->ranks, ranks, (size_t)n * sizeof *ranks);
    snprintf(c->name, sizeof c->name, "%s", name);
    c->world = w;
    c->id = id;
    c->rank = mine;
    c->size = n;
    c->next = w->comms;
    if (c->next) c->next->prev = c;
    w->comms = c;
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

static weft_status create_all(weft_world *w)
{
    int *ranks;
    WEFT_TRY(WEFT_NEW(w->arena, w->size, "comm", &ranks));
    for (int i = 0; i < w->size; i++) ranks[i] = i;
    return weft_comm_create(&w->all, w, ranks, w->size, "world");
}

weft_status weft_world_open(weft_world **out, weft_ctx *ctx, const weft_transport *tp, void *ep, int rank, int size)
{
    weft_status st;
    weft_arena *arena = NULL;
    weft_world *w;
    WEFT_TRY_OR(st, weft_arena_create(&arena, &ctx->mem, "comm", NULL), close_ep);
    WEFT_TRY_OR(st, WEFT_NEW0(arena, 1, "world", &w), free_arena);
    *w = (weft_world){.tp = tp, .ep = ep, .ctx = ctx, .arena = arena, .rank = rank, .size = size, .timeout = WEFT_DEFAULT_TIMEOUT,
                      .op = "start", .layer = -1, .step = -1};
    if (size > 1)
        WEFT_TRY_OR(st, weft_arena_alloc(arena, WEFT_SCRATCH_BYTES, 1, "partial sums", &w->scratch), free_arena);
    WEFT_TRY_OR(st, create_all(w), free_arena);
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
    snprintf(w->message, sizeof w->message, "%s", message ? message : weft_status_text(w->failed));
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
void weft_world_set_timeout(weft_world *w, double seconds) { w->timeout = seconds; }

void weft_place(weft_world *w, const char *op, int layer, int step)
{
    w->op = op;
    w->layer = layer;
    w->step = step;
    if (w->tp->place) w->tp->place(w->ep, op, layer, step);
}
