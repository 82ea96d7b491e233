/* sim_match.c — finds the send that a receive waits for and the other way round: one hash table over all ranks,
 * because a gather of thousands of ranks has millions of requests waiting at once. */
#include "comm/sim_impl.h"

#include <stdlib.h>

typedef struct key { int from, to, tag; uint32_t comm; } key;

static key key_of(const weft_req *r)
{
    int me = r->comm->world->rank, peer = (int)r->priv[WEFT_REQ_PEER];
    return (key){r->send ? me : peer, r->send ? peer : me, r->tag, (uint32_t)r->priv[WEFT_REQ_COMM]};
}

static size_t hash(key k, size_t buckets)
{
    uint64_t h = (uint64_t)(uint32_t)k.from << 32 | (uint32_t)k.to;
    h = (h ^ ((uint64_t)(uint32_t)k.tag << 24) ^ k.comm) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0x9e3779b97f4a7c15u;
    return (size_t)(h >> 16) & (buckets - 1);
}

static bool fits(const weft_req *a, key k, bool send)
{
    key o = key_of(a);
    return (a->send != NULL) == send && o.from == k.from && o.to == k.to && o.tag == k.tag && o.comm == k.comm;
}

static weft_sim_bucket *make_buckets(size_t n)
{
    weft_sim_bucket *b = malloc(n * sizeof *b);
    for (size_t i = 0; b && i < n; i++) b[i] = (weft_sim_bucket){NULL, &b[i].first};
    return b;
}

bool weft_sim_table_init(weft_sim_table *t)
{
    *t = (weft_sim_table){.buckets = 1024};
    t->bucket = make_buckets(t->buckets);
    return t->bucket != NULL;
}

static void append(weft_sim_bucket *b, weft_req *r)
{
    r->next = NULL;
    *b->end = r;
    b->end = &r->next;
}

weft_req *weft_sim_take(weft_sim_table *t, const weft_req *r)
{
    key k = key_of(r);
    weft_sim_bucket *b = &t->bucket[hash(k, t->buckets)];
    bool send = r->send == NULL;
    for (weft_req **link = &b->first; *link; link = &(*link)->next) {
        weft_req *found = *link;
        if (!fits(found, k, send)) continue;
        *link = found->next;
        if (b->end == &found->next) b->end = link;
        t->n--;
        return found;
    }
    return NULL;
}

static bool grow(weft_sim_table *t)
{
    size_t more = 4 * t->buckets;
    weft_sim_bucket *b = make_buckets(more);
    if (!b) return false;
    for (size_t i = 0; i < t->buckets; i++)
        for (weft_req *r = t->bucket[i].first, *next; r; r = next) {
            next = r->next;
            append(&b[hash(key_of(r), more)], r);
        }
    free(t->bucket);
    t->bucket = b;
    t->buckets = more;
    return true;
}

bool weft_sim_put(weft_sim_table *t, weft_req *r)
{
    if (t->n >= t->buckets && !grow(t)) return false;
    append(&t->bucket[hash(key_of(r), t->buckets)], r);
    t->n++;
    return true;
}

void weft_sim_table_clear(weft_sim_table *t)
{
    for (size_t i = 0; i < t->buckets; i++) t->bucket[i] = (weft_sim_bucket){NULL, &t->bucket[i].first};
    t->n = 0;
}
