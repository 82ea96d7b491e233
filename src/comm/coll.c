/* coll.c — collectives over point-to-point messages. Every exchange posts all its receives before it sends,
 * so no order of arrival can stop it. Sums are taken from a buffer in rank order, never in the order of
 * arrival: the same bits every run.
 *
 * Everything goes directly from its owner to its reader: on one machine a message costs a copy whatever its
 * path, so a ring's hops would only add copies. The bytes sent are those of a ring (docs/maths/context_parallel.md). */
#include "comm/parts.h"
#include "comm/reduce.h"
#include "comm/world.h"

#include <stdio.h>
#include <string.h>

/* A set of transfers that are waited for together. They use the world's own requests: collectives of a rank follow one
 * another, also those of different groups. */
typedef struct batch {
    weft_comm *c;
    int n, tag;
    weft_status st;
} batch;

static weft_req *next_request(batch *b) { return &b->c->world->reqs[b->n++]; }

static void take(batch *b, void *buf, size_t bytes, int peer)
{
    if (b->st == WEFT_OK) b->st = weft__irecv(b->c, buf, bytes, peer, b->tag, next_request(b));
}

static void give(batch *b, const void *buf, size_t bytes, int peer)
{
    if (b->st == WEFT_OK) b->st = weft__isend(b->c, buf, bytes, peer, b->tag, next_request(b));
}

/* A collective that stops half-way leaves transfers behind that nobody waits for: the world is done for. */
static weft_status finish(batch *b)
{
    if (b->st == WEFT_OK) b->st = weft_wait_all(b->c->world->reqs, b->n);
    return b->st == WEFT_OK ? WEFT_OK : weft_world_fail(b->c->world, b->st);
}

static batch open_batch(weft_comm *c, int tag) { return (batch){.c = c, .tag = tag, .st = weft_world_good(c->world)}; }

/* Exchanges with everybody go in steps 1 .. P-1, of which WEFT_COLL_WINDOW are under way at once: requests and scratch
 * do not grow with P. No stand-still: who is in the earliest window of all finds that its peers have posted their side,
 * because they have passed that window or are in it. */
static int window_end(int P, int first) { return P - first < WEFT_COLL_WINDOW ? P : first + WEFT_COLL_WINDOW; }

/* Sizes in bytes are counts of bytes: what does not fit into int64_t does not fit into memory either. */
static weft_status byte_parts(parts *out, const size_t *bytes, int P, const char *what)
{
    return count_parts(out, (const int64_t *)bytes, P, 1, what);
}

/* ---- moving -------------------------------------------------------------------------------------------- */

weft_status weft_all_to_all(weft_comm *c, const void *send, const size_t *send_bytes, void *recv,
                            const size_t *recv_bytes)
{
    parts out, in;
    WEFT_TRY(byte_parts(&out, send_bytes, c->size, "all_to_all"));
    WEFT_TRY(byte_parts(&in, recv_bytes, c->size, "all_to_all"));
    if (send_bytes[c->rank] != recv_bytes[c->rank])
        return weft_fail(WEFT_ERR_REFUSED, "all_to_all: rank %d sends %zu bytes to itself but receives %zu", c->rank,
                         send_bytes[c->rank], recv_bytes[c->rank]);
    WEFT_TRY(weft_world_good(c->world));
    walk to = walk_from(&out, c->rank), from = walk_from(&in, c->rank);
    if (send_bytes[c->rank] > 0)
        memcpy(shifted(recv, from.begin, 1), shifted(send, to.begin, 1), send_bytes[c->rank]);
    for (int first = 1, end; first < c->size; first = end) {
        end = window_end(c->size, first);
        batch b = open_batch(c, WEFT_TAG_A2A);
        for (int s = first; s < end; s++) {
            walk_down(&from);
            take(&b, shifted(recv, from.begin, 1), len_bytes(&from, 1), from.i);
        }
        for (int s = first; s < end; s++) {
            walk_up(&to);
            give(&b, shifted(send, to.begin, 1), len_bytes(&to, 1), to.i);
        }
        WEFT_TRY(finish(&b));
    }
    return WEFT_OK;
}

/* send: this rank's part, or its place in recv. */
static weft_status gather(weft_comm *c, const void *send, void *recv, const parts *p, size_t size)
{
    WEFT_TRY(weft_world_good(c->world));
    walk from = walk_from(p, c->rank);
    size_t mine = len_bytes(&from, size);
    char *place = shifted(recv, from.begin, size);
    if (mine > 0 && place != send) memcpy(place, send, mine);
    for (int first = 1, end; first < c->size; first = end) {
        end = window_end(c->size, first);
        batch b = open_batch(c, WEFT_TAG_GATHER);
        for (int s = first; s < end; s++) {
            walk_down(&from);
            take(&b, shifted(recv, from.begin, size), len_bytes(&from, size), from.i);
        }
        for (int s = first; s < end; s++) give(&b, send, mine, weft_pairwise_to(c->size, c->rank, s));
        WEFT_TRY(finish(&b));
    }
    return WEFT_OK;
}

weft_status weft_all_gather(weft_comm *c, const void *send, void *recv, const size_t *counts)
{
    parts p;
    WEFT_TRY(byte_parts(&p, counts, c->size, "all_gather"));
    return gather(c, send, recv, &p, 1);
}

/* Down a binomial tree in pieces, so that a long message flows through all levels at once. A piece is a
 * few times what a mailbox holds. */
weft_status weft_broadcast(weft_comm *c, void *data, size_t bytes, int root)
{
    enum { PIECE = 1 << 20 };
    if (root < 0 || root >= c->size)
        return weft_fail(WEFT_ERR_REFUSED, "broadcast: root %d is not in group %s; give 0 to %d", root, c->name,
                         c->size - 1);
    int parent = weft_tree_parent(c->size, c->rank, root);
    size_t sent = 0, sending = 0;
    for (size_t at = 0; sent < bytes; at += PIECE) {
        size_t n = at >= bytes ? 0 : bytes - at < PIECE ? bytes - at : PIECE;
        batch b = open_batch(c, WEFT_TAG_BROADCAST);
        if (parent >= 0) take(&b, (char *)data + at, n, parent);
        else sending = n, sent = at;
        for (int i = 0, child; (child = weft_tree_child(c->size, c->rank, root, i)) >= 0; i++)
            give(&b, (char *)data + sent, sending, child);
        WEFT_TRY(finish(&b));
        sent += sending;
        sending = n; /* what has just come goes on while the next piece comes */
    }
    return WEFT_OK;
}

/* ---- reductions ------------------------------------------------------------------------------------------ */

/* One round: rank i is to have the elements [done, done + most) of its part of everybody's `send`, combined in the
 * order i+1, i+2, ..., i. `out` may be this rank's own place in `send`. */
typedef struct reduction {
    weft_comm *c;
    const parts *cut;
    size_t size; /* of an element */
    int64_t done, most;
    weft_reduce_fn *combine;
} reduction;

static int64_t round_len(const reduction *r, int64_t len)
{
    return weft_min_i64(r->most, weft_max_i64(0, len - r->done));
}

/* The partial sum lies in the first slot; the first window has a peer more, whose part starts it. */
static weft_status reduce_round(const reduction *r, const void *send, char *out)
{
    weft_comm *c = r->c;
    walk at = walk_from(r->cut, c->rank), to = at;
    int64_t len = round_len(r, part_len(r->cut, at.i));
    size_t mine = (size_t)len * r->size;
    int used = 0;
    char *slots;
    WEFT_TRY(weft_world_scratch(c->world, mine * (size_t)weft_min_i64(c->size - 1, WEFT_COLL_WINDOW), &slots));
    for (int first = 1, end; first < c->size; first = end) {
        end = (int)weft_min_i64(c->size, (int64_t)first + WEFT_COLL_WINDOW - used);
        batch b = open_batch(c, WEFT_TAG_REDUCE);
        for (int s = first; s < end; s++)
            take(&b, slots + (size_t)(used + s - first) * mine, mine, weft_pairwise_to(c->size, c->rank, s));
        for (int s = first; s < end; s++) {
            walk_down(&to);
            give(&b, shifted(send, to.begin + weft_min_i64(r->done, part_len(r->cut, to.i)), r->size),
                 (size_t)round_len(r, part_len(r->cut, to.i)) * r->size, to.i);
        }
        WEFT_TRY(finish(&b));
        for (int k = 1; mine > 0 && k < used + end - first; k++) r->combine(slots, slots + (size_t)k * mine, len);
        used = 1;
    }
    if (mine == 0) return WEFT_OK;
    r->combine(slots, shifted(send, at.begin + r->done, r->size), len);
    memcpy(out, slots, mine);
    return WEFT_OK;
}

/* Elements of a part that one round takes: those of a window fill the scratch. */
static int64_t round_elements(int P, size_t size)
{
    return (int64_t)(WEFT_SCRATCH_BYTES / ((size_t)weft_min_i64(P - 1, WEFT_COLL_WINDOW) * size));
}

weft_status weft_reduce_scatter(weft_comm *c, const void *send, void *recv, const int64_t *counts, weft_dtype t)
{
    parts p;
    reduction r = {.c = c, .cut = &p, .size = weft_dtype_size(t)};
    WEFT_TRY(weft_reduce_find(&r.combine, t, WEFT_SUM, "reduce_scatter"));
    WEFT_TRY(count_parts(&p, counts, c->size, r.size, "reduce_scatter"));
    WEFT_TRY(weft_world_good(c->world));
    if (c->size == 1) {
        if (counts[0] > 0 && recv != send) memmove(recv, send, (size_t)counts[0] * r.size);
        return WEFT_OK;
    }
    int64_t longest = 0;
    for (int i = 0; i < c->size; i++) longest = weft_max_i64(longest, counts[i]);
    r.most = round_elements(c->size, r.size);
    for (; r.done < longest; r.done += r.most)
        WEFT_TRY(reduce_round(&r, send, shifted(recv, weft_min_i64(r.done, counts[c->rank]), r.size)));
    return WEFT_OK;
}

/* Up a binomial tree to rank 0, each rank adding its children to its own in ascending order, and down again: 2 log P
 * messages one after the other on a rank, where everybody with everybody would be P of them. */
static weft_status tree_reduce(weft_comm *c, void *data, int64_t n, size_t size, weft_reduce_fn *combine)
{
    int children = 0, parent = weft_tree_parent(c->size, c->rank, 0);
    while (weft_tree_child(c->size, c->rank, 0, children) >= 0) children++;
    char *slot;
    WEFT_TRY(weft_world_scratch(c->world, (size_t)n * size, &slot));
    for (int i = children - 1; i >= 0; i--) {
        batch b = open_batch(c, WEFT_TAG_REDUCE);
        take(&b, slot, (size_t)n * size, weft_tree_child(c->size, c->rank, 0, i));
        WEFT_TRY(finish(&b));
        combine(data, slot, n);
    }
    if (parent >= 0) {
        batch b = open_batch(c, WEFT_TAG_REDUCE);
        give(&b, data, (size_t)n * size, parent);
        WEFT_TRY(finish(&b));
    }
    return weft_broadcast(c, data, (size_t)n * size, 0);
}

/* Few ranks are done sooner in two steps. */
static bool goes_up_a_tree(int P, size_t bytes)
{
    enum { DIRECT_RANKS = 16 };
    return P > DIRECT_RANKS && bytes <= WEFT_SCRATCH_SMALL;
}

weft_status weft_all_reduce(weft_comm *c, void *data, int64_t n, weft_dtype t, weft_op op)
{
    reduction r = {.c = c, .size = weft_dtype_size(t), .most = INT64_MAX};
    size_t bytes = 0;
    WEFT_TRY(weft_reduce_find(&r.combine, t, op, "all_reduce"));
    WEFT_TRY(weft_size_of(n, r.size, "all_reduce", &bytes));
    WEFT_TRY(weft_world_good(c->world));
    if (c->size == 1) return WEFT_OK;
    if (goes_up_a_tree(c->size, bytes)) return tree_reduce(c, data, n, r.size, r.combine);
    int64_t per_round = round_elements(c->size, r.size) * c->size;
    for (int64_t done = 0; done < n; done += per_round) {
        char *base = (char *)data + (size_t)done * r.size;
        parts even = {.total = weft_min_i64(per_round, n - done), .P = c->size};
        char *mine = shifted(base, weft_share_begin(even.total, c->size, c->rank), r.size);
        r.cut = &even;
        WEFT_TRY(reduce_round(&r, base, mine));
        WEFT_TRY(gather(c, mine, base, &even, r.size));
    }
    return WEFT_OK;
}

/* To the parent; and down again, from which everybody else gets it. */
static int64_t tree_bytes(int P, int rank, int64_t bytes)
{
    int children = 0;
    while (weft_tree_child(P, rank, 0, children) >= 0) children++;
    return bytes * ((rank > 0) + children);
}

int64_t weft_all_reduce_bytes(int P, int rank, int64_t n, size_t size)
{
    int64_t sum = 0;
    if (P == 1) return 0;
    if (goes_up_a_tree(P, (size_t)n * size)) return tree_bytes(P, rank, n * (int64_t)size);
    const int64_t per_round = round_elements(P, size) * P;
    for (int64_t done = 0; done < n; done += per_round) {
        int64_t all = weft_min_i64(per_round, n - done);
        int64_t mine = weft_share_begin(all, P, rank + 1) - weft_share_begin(all, P, rank);
        sum += all - mine + mine * (P - 1); /* the parts of the others to them, and the sum of its own to each */
    }
    return sum * (int64_t)size;
}

int64_t weft_all_reduce_room(int P, int rank, int64_t n, size_t size)
{
    if (P == 1 || goes_up_a_tree(P, (size_t)n * size)) return WEFT_SCRATCH_SMALL;
    const int64_t all = weft_min_i64(n, round_elements(P, size) * P);
    const int64_t mine = weft_share_begin(all, P, rank + 1) - weft_share_begin(all, P, rank);
    const size_t parts_of_others = (size_t)mine * size * (size_t)weft_min_i64(P - 1, WEFT_COLL_WINDOW);
    return WEFT_SCRATCH_SMALL + (parts_of_others > WEFT_SCRATCH_SMALL ? WEFT_SCRATCH_BYTES : 0);
}

/* ---- agreeing --------------------------------------------------------------------------------------------- */

weft_status weft_barrier(weft_comm *c)
{
    WEFT_TRY(weft_world_good(c->world));
    char out = 0, in;
    for (int k = 0; k < weft_dissemination_rounds(c->size); k++) {
        batch b = open_batch(c, WEFT_TAG_BARRIER);
        take(&b, &in, 1, weft_dissemination_from(c->size, c->rank, k));
        give(&b, &out, 1, weft_dissemination_to(c->size, c->rank, k));
        WEFT_TRY(finish(&b));
    }
    return WEFT_OK;
}

/* An agreement over a part of these ranks may have named it before. */
static bool names_a_rank(const char *message)
{
    int n = 0;
    return sscanf(message, "rank %*d: %n", &n) == 0 && n > 0;
}

weft_status weft_agree(weft_comm *c, weft_status mine)
{
    /* worst; first that is bad */
    int64_t status = mine < 0 ? mine : WEFT_OK, x[2] = {status, status < 0 ? c->rank : c->size};
    char message[WEFT_MESSAGE] = "";
    if (status < 0) strncpy(message, weft_last_error(), sizeof message - 1);
    WEFT_TRY(weft_all_reduce(c, x, 2, WEFT_I64, WEFT_MIN));
    if (x[0] >= 0) return WEFT_OK;
    int first = (int)x[1];
    WEFT_TRY(weft_broadcast(c, message, sizeof message, first));
    if (status < 0) return (weft_status)x[0];
    if (names_a_rank(message)) return weft_fail((weft_status)x[0], "%s", message);
    return weft_fail((weft_status)x[0], "rank %d: %s", weft_comm_member(c, first), message);
}

weft_status weft_comm_fault(weft_comm *c, const char *site, bool *nan)
{
    weft_fault *f = &c->world->ctx->fault;
    if (f->kind != WEFT_FAULT_STRAY) return weft_fault_pass(f, c->world->rank, site, nan);
    if (nan) *nan = false;
    return weft_fault_strays(f, c->world->rank, site) ? weft_barrier(c) : WEFT_OK;
}
