/* sim_match.c — finds the send that a receive waits for and the other way round: one hash table over all ranks,
 * because a gather of thousands of ranks has millions of requests waiting at once. What it compares is its own copy:
 * the requests of a rank that fails may be gone by the time that its failure is told, and are dropped here without a
 * look. */
#include "comm/sim_impl.h"

#include <stdlib.h>

#define NONE UINT32_MAX /* no waiter */

static weft_sim_waiter waiter_of(weft_req *r)
{
    int me = r->comm->world->rank, peer = (int)r->priv[WEFT_REQ_PEER];
    bool send = r->send != NULL;
    return (weft_sim_waiter){r,   send ? me : peer, send ? peer : me, r->tag, (uint32_t)r->priv[WEFT_REQ_COMM], send,
                             NONE};
}

static weft_sim_bucket *bucket_of(const weft_sim_table *t, const weft_sim_waiter *k)
{
    uint64_t h = (uint64_t)(uint32_t)k->from << 32 | (uint32_t)k->to;
    h = (h ^ ((uint64_t)(uint32_t)k->tag << 24) ^ k->comm) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0x9e3779b97f4a7c15u;
    return &t->bucket[(size_t)(h >> 16) & (t->buckets - 1)];
}

static bool fits(const weft_sim_waiter *a, const weft_sim_waiter *b)
{
    return a->send != b->send && a->from == b->from && a->to == b->to && a->tag == b->tag && a->comm == b->comm;
}

static bool make_buckets(weft_sim_table *t, size_t n)
{
    weft_sim_bucket *b = malloc(n * sizeof *b);
    if (!b) return false;
    for (size_t i = 0; i < n; i++) b[i] = (weft_sim_bucket){NONE, NONE};
    free(t->bucket);
    t->bucket = b;
    t->buckets = n;
    return true;
}

bool weft_sim_table_init(weft_sim_table *t)
{
    *t = (weft_sim_table){.free = NONE};
    return make_buckets(t, 1024);
}

void weft_sim_table_free(weft_sim_table *t)
{
    free(t->bucket);
    free(t->waiter);
}

static void append(weft_sim_table *t, uint32_t i)
{
    weft_sim_bucket *b = bucket_of(t, &t->waiter[i]);
    t->waiter[i].next = NONE;
    if (b->first == NONE) b->first = i;
    else t->waiter[b->last].next = i;
    b->last = i;
}

/* Takes the waiter that follows `before` (NONE: the first) out of its bucket; which one follows then. */
static uint32_t unlink_after(weft_sim_table *t, weft_sim_bucket *b, uint32_t before)
{
    uint32_t i = before == NONE ? b->first : t->waiter[before].next, next = t->waiter[i].next;
    if (before == NONE) b->first = next;
    else t->waiter[before].next = next;
    if (b->last == i) b->last = before;
    t->waiter[i] = (weft_sim_waiter){.next = t->free};
    t->free = i;
    t->n--;
    return next;
}

weft_req *weft_sim_take(weft_sim_table *t, weft_req *r)
{
    weft_sim_waiter k = waiter_of(r);
    weft_sim_bucket *b = bucket_of(t, &k);
    for (uint32_t before = NONE, i = b->first; i != NONE; before = i, i = t->waiter[i].next) {
        if (!fits(&t->waiter[i], &k)) continue;
        weft_req *found = t->waiter[i].req;
        unlink_after(t, b, before);
        return found;
    }
    return NULL;
}

/* As many buckets as waiters; in each bucket the order of posting is kept. */
static bool grow(weft_sim_table *t)
{
    weft_sim_bucket *old = t->bucket;
    size_t n = t->buckets;
    t->bucket = NULL;
    if (!make_buckets(t, 4 * n)) {
        t->bucket = old;
        return false;
    }
    for (size_t b = 0; b < n; b++)
        for (uint32_t i = old[b].first, next; i != NONE; i = next) {
            next = t->waiter[i].next;
            append(t, i);
        }
    free(old);
    return true;
}

static bool add_waiters(weft_sim_table *t)
{
    size_t more = t->capacity ? 2 * t->capacity : 1024;
    weft_sim_waiter *w = more < NONE ? realloc(t->waiter, more * sizeof *w) : NULL;
    if (!w) return false;
    for (size_t i = more; i-- > t->capacity; t->free = (uint32_t)i) w[i] = (weft_sim_waiter){.next = t->free};
    t->waiter = w;
    t->capacity = more;
    return true;
}

bool weft_sim_put(weft_sim_table *t, weft_req *r)
{
    if (t->n >= t->buckets && !grow(t)) return false;
    if (t->free == NONE && !add_waiters(t)) return false;
    uint32_t i = t->free;
    t->free = t->waiter[i].next;
    t->waiter[i] = waiter_of(r);
    append(t, i);
    t->n++;
    return true;
}

void weft_sim_table_drop(weft_sim_table *t, int rank)
{
    for (size_t b = 0; b < t->buckets; b++)
        for (uint32_t before = NONE, i = t->bucket[b].first; i != NONE;) {
            const weft_sim_waiter *w = &t->waiter[i];
            if (rank < 0 || (w->send ? w->from : w->to) == rank) i = unlink_after(t, &t->bucket[b], before);
            else before = i, i = w->next;
        }
}
