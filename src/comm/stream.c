/* stream.c — reduce-scatter and all-gather that go on while the rank computes.
 *
 * An operation is cut into rounds, of which a few are under way: in a round every rank has some elements of its part
 * from all others, and then adds them up. Rounds are posted one after the other, those of the next operation behind
 * those of this one, in the same order on all ranks; so the messages of a pair match by their order alone.
 *
 * A round is added up only when all of it is there, in the order of ranks that was asked for and never in that of
 * arrival. That keeps a slot for every peer, which pieces make small: with many ranks a piece is short, not the work
 * area long. */
#include "comm/parts.h"
#include "comm/reduce.h"
#include "comm/world.h"

#include <string.h>

enum { ROUNDS = 4 }; /* under way at once: one is added up while the next ones travel */

typedef struct operation {
    parts cut;
    const char *send;
    char *recv;          /* reduce-scatter: this rank's part; all-gather: all parts */
    size_t size;         /* of an element */
    int64_t longest;     /* part */
    weft_reduce_fn *add; /* NULL: all-gather */
    int first;           /* rank whose part begins the sums */
} operation;

typedef struct piece {      /* one round under way */
    int64_t op, done, most; /* elements [done, done + most) of every part */
    int seen;               /* requests before this one are complete */
    bool last;              /* of its operation */
    weft_req *req;          /* [2 (P - 1)]: receives, then sends */
    char *slots;            /* of the ranks after this one, in that order */
} piece;

struct weft_stream {
    weft_comm *c;
    weft_stream *next; /* of the world */
    int tag, ops;
    operation *op;             /* [ops] operation i is at i % ops */
    int64_t started, finished; /* operations */
    int64_t at_op, at_done;    /* the next round to post */
    piece piece[ROUNDS];
    int64_t posted, summed; /* rounds: number i is at i % ROUNDS */
    size_t slot_bytes;
    bool waiting; /* for the requests of the oldest round, which must stay as they are */
    weft_flight flight;
    double waited;
};

/* ---- rounds ------------------------------------------------------------------------------------------- */

static int64_t piece_len(const piece *p, int64_t part)
{
    return weft_min_i64(p->most, weft_max_i64(0, part - p->done));
}

/* Where rank i's elements of the round lie in an array of all parts. */
static char *place(const operation *o, const piece *p, const void *array, const walk *at)
{
    return shifted(array, at->begin + weft_min_i64(p->done, part_len(&o->cut, at->i)), o->size);
}

static size_t piece_bytes(const operation *o, const piece *p, int i)
{
    return (size_t)piece_len(p, part_len(&o->cut, i)) * o->size;
}

/* Receives before sends. A sum's elements come from everybody into slots, this rank's part of what is gathered goes to
 * everybody. */
static weft_status post(weft_stream *s, piece *p)
{
    weft_comm *c = s->c;
    const operation *o = &s->op[p->op % s->ops];
    const int P = c->size;
    walk from = walk_from(&o->cut, c->rank), to = from;
    size_t mine = piece_bytes(o, p, c->rank);
    char *own = place(o, p, o->send, &from);
    if (!o->add) own = shifted(o->send, p->done, o->size);
    for (int k = 1; k < P; k++) {
        walk_up(&from);
        WEFT_TRY(weft__irecv(c, o->add ? p->slots + (size_t)(k - 1) * s->slot_bytes : place(o, p, o->recv, &from),
                             o->add ? mine : piece_bytes(o, p, from.i), from.i, s->tag, &p->req[k - 1]));
    }
    for (int k = 1; k < P; k++) {
        walk_down(&to);
        WEFT_TRY(weft__isend(c, o->add ? place(o, p, o->send, &to) : own, o->add ? piece_bytes(o, p, to.i) : mine, to.i,
                             s->tag, &p->req[P - 1 + k - 1]));
    }
    return WEFT_OK;
}

/* Adds this rank's elements of a round, beginning with the part of rank o->first. The sum grows in the first part's
 * slot, or in its place when that part is this rank's. */
static void sum_up(const weft_stream *s, const piece *p, const operation *o)
{
    const int P = s->c->size, me = s->c->rank;
    walk at = walk_from(&o->cut, me);
    int64_t len = piece_len(p, part_len(&o->cut, me));
    if (len == 0) return;
    char *own = place(o, p, o->send, &at), *out = shifted(o->recv, p->done, o->size), *sum = out;
    for (int k = 0; k < P; k++) {
        int rank = (o->first + k) % P;
        char *part = rank == me ? own : p->slots + (size_t)((rank - me - 1 + P) % P) * s->slot_bytes;
        if (k > 0) o->add(sum, part, len);
        else if (part != own) sum = part;
        else if (out != own) memcpy(out, own, (size_t)len * o->size);
    }
    if (sum != out) memcpy(out, sum, (size_t)len * o->size);
}

/* ---- going on ----------------------------------------------------------------------------------------- */

static bool arrived(const weft_stream *s, piece *p)
{
    while (p->seen < 2 * (s->c->size - 1) && weft_req_complete(&p->req[p->seen])) p->seen++;
    return p->seen == 2 * (s->c->size - 1);
}

static void end_oldest(weft_stream *s, piece *p)
{
    const operation *o = &s->op[p->op % s->ops];
    if (o->add) sum_up(s, p, o);
    s->summed++;
    if (!p->last) return;
    s->finished = p->op + 1;
    weft_flight_end(&s->flight, weft_now(&s->c->world->ctx->clock));
}

/* Every operation has a round, be it empty. What is gathered needs no slots and goes in one. */
static weft_status post_next(weft_stream *s)
{
    const operation *o = &s->op[s->at_op % s->ops];
    piece *p = &s->piece[s->posted % ROUNDS];
    p->op = s->at_op;
    p->done = s->at_done;
    p->most = o->add && s->slot_bytes > 0 ? (int64_t)(s->slot_bytes / o->size) : o->longest;
    p->seen = 0;
    p->last = p->most >= o->longest - p->done;
    s->at_done += p->most;
    if (p->last) s->at_op++, s->at_done = 0;
    s->posted++;
    return post(s, p);
}

/* Failures are the world's: its next wait returns them. */
static bool advance(weft_stream *s)
{
    weft_world *w = s->c->world;
    int64_t before = s->summed + s->posted;
    while (s->summed < s->posted && arrived(s, &s->piece[s->summed % ROUNDS]))
        end_oldest(s, &s->piece[s->summed % ROUNDS]);
    while (w->failed == WEFT_OK && s->at_op < s->started && s->posted - s->summed < ROUNDS)
        if (post_next(s) < 0) break;
    return s->summed + s->posted != before;
}

bool weft_streams_advance(weft_world *w)
{
    bool moved = false;
    for (weft_stream *s = w->streams; s && w->failed == WEFT_OK; s = s->next)
        if (!s->waiting) moved |= advance(s);
    return moved;
}

/* ---- the door ----------------------------------------------------------------------------------------- */

static size_t slot_bytes(int64_t peers, size_t work_bytes)
{
    const int64_t align = 64, slot = (int64_t)work_bytes / (ROUNDS * peers) / align * align;
    return (size_t)weft_max_i64(slot, align);
}

size_t weft_stream_bytes(int ranks, size_t work_bytes)
{
    const int64_t peers = ranks - 1;
    return peers > 0 ? ROUNDS * (size_t)peers * slot_bytes(peers, work_bytes) : 0;
}

weft_status weft_stream_create(weft_stream **out, weft_arena *arena, weft_comm *c, int ops, size_t work_bytes)
{
    weft_stream *s;
    const int64_t peers = c->size - 1;
    if (ops < 1)
        return weft_fail(WEFT_ERR_REFUSED, "stream of %s: room for %d operations; give 1 or more", c->name, ops);
    WEFT_TRY(WEFT_NEW0(arena, 1, "stream", &s));
    *s = (weft_stream){.c = c, .tag = WEFT_TAG_STREAM + c->streams, .ops = ops};
    WEFT_TRY(WEFT_NEW0(arena, ops, "stream", &s->op));
    if (peers > 0) {
        s->slot_bytes = slot_bytes(peers, work_bytes);
        for (int i = 0; i < ROUNDS; i++) {
            WEFT_TRY(WEFT_NEW0(arena, 2 * peers, "stream", &s->piece[i].req));
            WEFT_TRY(weft_arena_alloc(arena, peers, s->slot_bytes, "partial sums", (void **)&s->piece[i].slots));
        }
    }
    c->streams++;
    s->next = c->world->streams;
    c->world->streams = s;
    *out = s;
    return WEFT_OK;
}

void weft_stream_destroy(weft_stream *s)
{
    if (!s) return;
    weft_world *w = s->c->world;
    if (s->finished < s->started) weft_world_abort(w, WEFT_ERR_INTERNAL, weft_last_error());
    weft_stream **link = &w->streams;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
}

static weft_status start(weft_stream *s, operation o, const int64_t *counts, int64_t total, weft_dtype t,
                         const char *what, int64_t *op)
{
    const int P = s->c->size;
    o.size = weft_dtype_size(t);
    WEFT_TRY(weft_world_good(s->c->world));
    if (s->started - s->finished == s->ops)
        return weft_fail(WEFT_ERR_INTERNAL,
                         "%s of group %s: %d operations are under way, which is all there is room for", what,
                         s->c->name, s->ops);
    if (counts) WEFT_TRY(count_parts(&o.cut, counts, P, o.size, what));
    else o.cut = (parts){.total = total, .P = P};
    for (int i = 0; i < P; i++) o.longest = weft_max_i64(o.longest, part_len(&o.cut, i));
    weft_flight_begin(&s->flight, weft_now(&s->c->world->ctx->clock));
    s->op[s->started % s->ops] = o;
    if (op) *op = s->started;
    s->started++;
    advance(s);
    return weft_world_good(s->c->world);
}

weft_status weft_stream_reduce_scatter(weft_stream *s, const void *send, void *recv, const int64_t *counts,
                                       int64_t total, weft_dtype t, int first, int64_t *op)
{
    operation o = {.send = send, .recv = recv, .first = first % s->c->size};
    WEFT_TRY(weft_reduce_find(&o.add, t, WEFT_SUM, "reduce_scatter"));
    return start(s, o, counts, total, t, "reduce_scatter", op);
}

weft_status weft_stream_all_gather(weft_stream *s, const void *send, void *recv, const int64_t *counts, int64_t total,
                                   weft_dtype t, int64_t *op)
{
    operation o = {.send = send, .recv = recv};
    WEFT_TRY(start(s, o, counts, total, t, "all_gather", op));
    const operation *kept = &s->op[(s->started - 1) % s->ops];
    walk at = walk_from(&kept->cut, s->c->rank);
    char *mine = shifted(recv, at.begin, kept->size);
    if (mine != send && part_len(&kept->cut, at.i) > 0) memcpy(mine, send, len_bytes(&at, kept->size));
    return WEFT_OK;
}

bool weft_stream_done(const weft_stream *s, int64_t op) { return op < s->finished; }

weft_status weft_stream_finish(weft_stream *s, int64_t op)
{
    weft_world *w = s->c->world;
    weft_status st = weft_world_good(w);
    double begin = weft_now(&w->ctx->clock);
    while (st == WEFT_OK && !weft_stream_done(s, op)) {
        advance(s);
        st = weft_world_good(w);
        if (st < 0 || weft_stream_done(s, op)) break;
        s->waiting = true;
        st = weft_wait_all(s->piece[s->summed % ROUNDS].req, 2 * (s->c->size - 1));
        s->waiting = false;
    }
    s->waited += weft_now(&w->ctx->clock) - begin;
    return st;
}

void weft_stream_seconds(const weft_stream *s, double *under_way, double *waited)
{
    *under_way = weft_flight_seconds(&s->flight, weft_now(&s->c->world->ctx->clock));
    *waited = s->waited;
}
