/* coll.c — collectives over point-to-point messages. Every exchange posts all its receives before it sends,
 * so no order of arrival can stop it. Sums are taken from a buffer in rank order, never in the order of
 * arrival: the same bits every run.
 *
 * Everything goes directly from its owner to its reader: on one machine a message costs a copy whatever its
 * path, so a ring's hops would only add copies. The bytes sent are those of a ring (docs/maths/context_parallel.md). */
#include "comm/pattern.h"
#include "comm/reduce.h"
#include "comm/world.h"

#include <string.h>

/* A set of transfers that are waited for together. They use the comm's own requests. */
typedef struct batch {
    weft_comm *c;
    int n, tag;
    weft_status st;
} batch;

static void take(batch *b, void *buf, size_t bytes, int peer)
{
    if (b->st == WEFT_OK) b->st = weft_irecv(b->c, buf, bytes, peer, b->tag, WEFT_MEM_HOST, NULL, &b->c->reqs[b->n++]);
}

static void give(batch *b, const void *buf, size_t bytes, int peer)
{
    if (b->st == WEFT_OK) b->st = weft_isend(b->c, buf, bytes, peer, b->tag, WEFT_MEM_HOST, NULL, &b->c->reqs[b->n++]);
}

/* A collective that stops half-way leaves transfers behind that nobody waits for: the world is done for. */
static weft_status finish(batch *b)
{
    if (b->st == WEFT_OK) b->st = weft_wait_all(b->c->reqs, b->n);
    return b->st == WEFT_OK ? WEFT_OK : weft_world_fail(b->c->world, b->st);
}

static batch open_batch(weft_comm *c, int tag) { return (batch){.c = c, .tag = tag, .st = weft_world_good(c->world)}; }

static weft_status sum_of(const size_t *bytes, int n, const char *what)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        if (!weft_add_size(sum, bytes[i], &sum))
            return weft_fail(WEFT_ERR_REFUSED, "%s: the counts do not fit into memory sizes", what);
    return WEFT_OK;
}

/* base + offset; an empty buffer may be NULL, to which C allows to add nothing, not even 0. */
static char *shifted(const void *base, size_t offset)
{
    char *p = (char *)(uintptr_t)base;
    return offset == 0 ? p : p + offset;
}

static size_t place_of(const size_t *bytes, int i)
{
    size_t at = 0;
    while (i-- > 0) at += bytes[i];
    return at;
}

/* ---- moving -------------------------------------------------------------------------------------------- */

weft_status weft_all_to_all(weft_comm *c, const void *send, const size_t *send_bytes, void *recv,
                            const size_t *recv_bytes)
{
    WEFT_TRY(sum_of(send_bytes, c->size, "all_to_all"));
    WEFT_TRY(sum_of(recv_bytes, c->size, "all_to_all"));
    if (send_bytes[c->rank] != recv_bytes[c->rank])
        return weft_fail(WEFT_ERR_REFUSED, "all_to_all: rank %d sends %zu bytes to itself but receives %zu", c->rank,
                         send_bytes[c->rank], recv_bytes[c->rank]);
    batch b = open_batch(c, WEFT_TAG_A2A);
    for (int s = 1; s < c->size; s++) {
        int from = weft_pairwise_from(c->size, c->rank, s);
        take(&b, shifted(recv, place_of(recv_bytes, from)), recv_bytes[from], from);
    }
    for (int s = 1; s < c->size; s++) {
        int to = weft_pairwise_to(c->size, c->rank, s);
        give(&b, shifted(send, place_of(send_bytes, to)), send_bytes[to], to);
    }
    if (b.st == WEFT_OK && send_bytes[c->rank] > 0)
        memcpy(shifted(recv, place_of(recv_bytes, c->rank)), shifted(send, place_of(send_bytes, c->rank)),
               send_bytes[c->rank]);
    return finish(&b);
}

weft_status weft_all_gather(weft_comm *c, const void *send, void *recv, const size_t *counts)
{
    WEFT_TRY(sum_of(counts, c->size, "all_gather"));
    batch b = open_batch(c, WEFT_TAG_GATHER);
    for (int s = 1; s < c->size; s++) {
        int from = weft_pairwise_from(c->size, c->rank, s);
        take(&b, shifted(recv, place_of(counts, from)), counts[from], from);
    }
    for (int s = 1; s < c->size; s++) give(&b, send, counts[c->rank], weft_pairwise_to(c->size, c->rank, s));
    char *mine = shifted(recv, place_of(counts, c->rank));
    if (b.st == WEFT_OK && counts[c->rank] > 0 && mine != send) memcpy(mine, send, counts[c->rank]);
    return finish(&b);
}

/* Down a binomial tree in pieces, so that a long message flows through all levels at once. A piece is a
 * few times what a mailbox holds. */
weft_status weft_broadcast(weft_comm *c, void *data, size_t bytes, int root)
{
    enum { PIECE = 1 << 20 };
    if (root < 0 || root >= c->size)
        return weft_fail(WEFT_ERR_REFUSED, "broadcast: root %d is not in group %s; give 0 to %d", root, c->name, c->size - 1);
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

/* One round: rank i is to have elements [begin[i], begin[i] + len[i]) of everybody's `send`, combined in
 * the order i+1, i+2, ..., i. All partial results of this rank fit into the world's scratch. `out` may be
 * this rank's own place in `send`. */
static weft_status reduce_round(weft_comm *c, const char *send, char *out, size_t size, weft_reduce_fn *combine)
{
    char *slots = c->world->scratch;
    size_t mine = (size_t)c->len[c->rank] * size;
    batch b = open_batch(c, WEFT_TAG_REDUCE);
    for (int s = 1; s < c->size; s++)
        take(&b, slots + (size_t)(s - 1) * mine, mine, weft_pairwise_to(c->size, c->rank, s));
    for (int s = 1; s < c->size; s++) {
        int to = weft_pairwise_from(c->size, c->rank, s);
        give(&b, send + (size_t)c->begin[to] * size, (size_t)c->len[to] * size, to);
    }
    WEFT_TRY(finish(&b));
    if (mine == 0) return WEFT_OK;
    for (int s = 2; s < c->size; s++) combine(slots, slots + (size_t)(s - 1) * mine, c->len[c->rank]);
    combine(slots, send + (size_t)c->begin[c->rank] * size, c->len[c->rank]);
    memcpy(out, slots, mine);
    return WEFT_OK;
}

static int64_t round_elements(const weft_comm *c, size_t size)
{
    return (int64_t)(WEFT_SCRATCH_BYTES / ((size_t)(c->size - 1) * size));
}

weft_status weft_reduce_scatter(weft_comm *c, const void *send, void *recv, const int64_t *counts, weft_dtype t)
{
    weft_reduce_fn *combine;
    WEFT_TRY(weft_reduce_find(&combine, t, WEFT_SUM, "reduce_scatter"));
    size_t size = weft_dtype_size(t);
    int64_t most = 0, before = 0;
    for (int i = 0; i < c->size; i++) {
        size_t bytes;
        WEFT_TRY(weft_size_of(counts[i], size, "reduce_scatter", &bytes));
        if (i < c->rank) before += counts[i];
        most = weft_max_i64(most, counts[i]);
    }
    if (c->size == 1) {
        if (counts[0] > 0 && recv != send) memmove(recv, send, (size_t)counts[0] * size);
        return weft_world_good(c->world);
    }
    int64_t E = round_elements(c, size);
    for (int64_t done = 0; done < most; done += E) {
        int64_t at = 0;
        for (int i = 0; i < c->size; at += counts[i++]) {
            c->begin[i] = at + weft_min_i64(done, counts[i]);
            c->len[i] = weft_min_i64(E, weft_max_i64(0, counts[i] - done));
        }
        WEFT_TRY(reduce_round(c, send, (char *)recv + (size_t)(c->begin[c->rank] - before) * size, size, combine));
    }
    return WEFT_OK;
}

weft_status weft_all_reduce(weft_comm *c, void *data, int64_t n, weft_dtype t, weft_op op)
{
    weft_reduce_fn *combine;
    size_t size = weft_dtype_size(t), bytes;
    WEFT_TRY(weft_reduce_find(&combine, t, op, "all_reduce"));
    WEFT_TRY(weft_size_of(n, size, "all_reduce", &bytes));
    if (c->size == 1) return weft_world_good(c->world);
    int64_t per_round = round_elements(c, size) * c->size;
    for (int64_t done = 0; done < n; done += per_round) {
        char *base = (char *)data + (size_t)done * size;
        int64_t now = weft_min_i64(per_round, n - done);
        for (int i = 0; i < c->size; i++) {
            c->begin[i] = weft_share_begin(now, c->size, i);
            c->len[i] = weft_share_begin(now, c->size, i + 1) - c->begin[i];
            c->bytes[i] = (size_t)c->len[i] * size;
        }
        char *mine = base + (size_t)c->begin[c->rank] * size;
        WEFT_TRY(reduce_round(c, base, mine, size, combine));
        WEFT_TRY(weft_all_gather(c, mine, base, c->bytes));
    }
    return WEFT_OK;
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

weft_status weft_agree(weft_comm *c, weft_status mine)
{
    for (int i = 0; i < c->size; i++) c->bytes[i] = sizeof *c->begin;
    int64_t status = mine < 0 ? mine : WEFT_OK;
    char message[WEFT_MESSAGE] = "";
    if (status < 0) strncpy(message, weft_last_error(), sizeof message - 1);
    WEFT_TRY(weft_all_gather(c, &status, c->begin, c->bytes));
    int first = -1;
    int64_t worst = WEFT_OK;
    for (int i = c->size - 1; i >= 0; i--) {
        if (c->begin[i] < 0) first = i;
        worst = weft_min_i64(worst, c->begin[i]);
    }
    if (first < 0) return WEFT_OK;
    WEFT_TRY(weft_broadcast(c, message, sizeof message, first));
    if (status < 0) return (weft_status)worst;
    return weft_fail((weft_status)worst, "rank %d: %s", c->ranks[first], message);
}
