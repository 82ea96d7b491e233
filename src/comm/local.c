/* local.c — the transport between ranks of one machine: mailboxes in one shared mapping.
 *
 * Rendezvous. The receiver publishes its receive (group, tag, size) to the sender; the sender matches its
 * sends with them in order and streams the bytes through a ring per ordered pair. Hence:
 *   - no unexpected messages: every byte in a ring has a place to go, so nothing ever blocks the ring's head;
 *   - a send cannot complete without its receive, so no plan works by luck of buffering;
 *   - any number of messages, of any size, in any order of tags: what does not fit waits in lists at its end.
 *   - a receive that may read in place (WEFT_POST_VIEW) gets, when the sender's bytes lie in memory that all ranks
 *     see (local_heap.h), their place instead of them; the send is complete when the receiver publishes its release.
 * Rejected: reading any memory of the peer with process_vm_readv (one copy less, but containers often forbid it,
 * and it does not work for threads under the sanitizer's eye).
 *
 * Memory order: head and posts_made are stored with release after the bytes they announce, tail and
 * posts_taken after the bytes were read. Lent bytes are written before the head that announces their place, and
 * read before the posts_made that announces their release. They and the *_waits flags are sequentially consistent,
 * because each side writes its counter and then reads the other's flag (see weft_local_ring_bell). */
#include "comm/local_heap.h"
#include "comm/world.h"

#include <sched.h>
#include <string.h>

enum { FRAGMENT_ALIGN = 16, POSTED_CHUNK = 32 };

typedef struct fragment { /* header of a piece of a message in the ring */
    uint64_t token;
    uint32_t bytes;       /* that follow, padded to FRAGMENT_ALIGN */
    uint32_t kind;
    uint64_t other;       /* the sender's bytes; of what is in place its offset in the heap */
    uint64_t lent;        /* the sender's request, which the receiver only sends back */
} fragment;
enum { FRAGMENT_BYTES, FRAGMENT_MISMATCH, FRAGMENT_IN_PLACE }; /* only with the first do bytes follow */
_Static_assert(sizeof(fragment) % FRAGMENT_ALIGN == 0, "headers must not wrap");

typedef struct list { weft_req *first, **end; } list; /* in order of posting */

typedef struct posted { /* a receive of the peer, waiting for this rank's send */
    local_post post;
    struct posted *next;
} posted;

typedef struct ticket { /* of a receive that may be in place, so that releasing needs no memory */
    uint64_t lent;
    struct ticket *next;
} ticket;

typedef struct mailbox { /* this rank's view of one peer */
    local_pair *out, *in;
    char *out_ring, *in_ring;
    list unmatched, streaming; /* sends: without a receive yet; under way */
    list unpublished;          /* receives that wait for room in in->posts */
    posted *posted_first, **posted_end;
    ticket *released_first, **released_end; /* wait for room in in->posts */
    int sends, recvs;          /* not complete; what was received in place counts until its release is published */
} mailbox;

typedef struct endpoint {
    weft_local *map;
    local_area *me;
    weft_arena *arena;
    posted *free_posted;
    ticket *free_tickets;
    weft_heap heap;
    mailbox *box;   /* [ranks] */
    uint64_t mask;  /* ring bytes - 1 */
    int rank, ranks, open; /* open: requests not complete */
    uint32_t seen;  /* bell before the last look */
    bool spin;
} endpoint;

/* ---- lists ------------------------------------------------------------------------------------------------ */

static void list_reset(list *l) { *l = (list){.first = NULL, .end = &l->first}; }

static void list_add(list *l, weft_req *r)
{
    r->next = NULL;
    *l->end = r;
    l->end = &r->next;
}

static void list_remove(list *l, weft_req **link)
{
    weft_req *r = *link;
    *link = r->next;
    if (l->end == &r->next) l->end = link;
}

/* ---- the ring ----------------------------------------------------------------------------------------------- */

static void ring_put(const endpoint *e, char *ring, uint64_t at, const void *data, size_t n)
{
    size_t from = (size_t)(at & e->mask), first = (size_t)e->mask + 1 - from;
    if (first > n) first = n;
    memcpy(ring + from, data, first);
    if (n > first) memcpy(ring, (const char *)data + first, n - first);
}

static void ring_get(const endpoint *e, const char *ring, uint64_t at, void *data, size_t n)
{
    size_t from = (size_t)(at & e->mask), first = (size_t)e->mask + 1 - from;
    if (first > n) first = n;
    memcpy(data, ring + from, first);
    if (n > first) memcpy((char *)data + first, ring, n - first);
}

static uint64_t padded(uint64_t n) { return (n + FRAGMENT_ALIGN - 1) / FRAGMENT_ALIGN * FRAGMENT_ALIGN; }

/* ---- sending -------------------------------------------------------------------------------------------------- */

/* The flags that let a peer skip the bell when nobody waits for it. */
static void sends_changed(mailbox *b, int by)
{
    b->sends += by;
    if (by > 0 ? b->sends == 1 : b->sends == 0) atomic_store(&b->out->src_waits, by > 0);
}

static void recvs_changed(mailbox *b, int by)
{
    b->recvs += by;
    if (by > 0 ? b->recvs == 1 : b->recvs == 0) atomic_store(&b->in->dst_waits, by > 0);
}

static bool same_key(const weft_req *r, const local_post *p)
{
    return r->priv[WEFT_REQ_COMM] == p->comm && r->tag == p->tag;
}

static void match(mailbox *b, weft_req *r, const local_post *p)
{
    r->priv[WEFT_REQ_TOKEN] = p->token;
    r->priv[WEFT_REQ_OTHER_BYTES] = p->bytes;
    if (p->kind == WEFT_POST_VIEW) r->flags |= WEFT_REQ_MAY_VIEW;
    list_add(&b->streaming, r);
}

/* Growing happens while the number of receives that a peer posts ahead grows, not in every step. */
static weft_status keep_posted(endpoint *e, mailbox *b, const local_post *p)
{
    if (!e->free_posted) {
        posted *chunk;
        WEFT_TRY(WEFT_NEW(e->arena, POSTED_CHUNK, "posted receives", &chunk));
        for (int i = 0; i < POSTED_CHUNK; i++) {
            chunk[i].next = e->free_posted;
            e->free_posted = &chunk[i];
        }
    }
    posted *q = e->free_posted;
    e->free_posted = q->next;
    *q = (posted){.post = *p};
    *b->posted_end = q;
    b->posted_end = &q->next;
    return WEFT_OK;
}

/* A token is this rank's own pointer coming back. Peers are copies of this program that are trusted as its
 * threads are. */
static weft_req *request_of(uint64_t token) { return (weft_req *)(uintptr_t)token; }

static void finish_send(endpoint *e, mailbox *b, weft_req *r, int state)
{
    sends_changed(b, -1);
    e->open--;
    weft_req_finish(r, state);
}

static bool take_receive(endpoint *e, mailbox *b, const local_post *p)
{
    weft_req **link = &b->unmatched.first;
    while (*link && !same_key(*link, p)) link = &(*link)->next;
    weft_req *r = *link;
    if (!r) return keep_posted(e, b, p) == WEFT_OK;
    list_remove(&b->unmatched, link);
    match(b, r, p);
    return true;
}

/* Takes what the peer has published. Each receive goes to the first send it fits, or waits for one. A key is
 * never in both lists, so both sides are matched in the order of posting. */
static bool take_posts(endpoint *e, mailbox *b, local_area *peer)
{
    uint32_t before = atomic_load_explicit(&b->out->posts_taken, memory_order_relaxed), taken = before;
    uint32_t made = atomic_load(&b->out->posts_made);
    for (; taken != made; taken++) {
        const local_post *p = &b->out->posts[taken % WEFT_LOCAL_POSTS];
        if (p->kind == WEFT_POST_RELEASE) finish_send(e, b, request_of(p->token), WEFT_REQ_DONE);
        else if (!take_receive(e, b, p)) break; /* no memory: stays published; the wait's deadline tells */
    }
    if (taken == before) return false;
    atomic_store(&b->out->posts_taken, taken);
    if (made - before == WEFT_LOCAL_POSTS && atomic_load(&b->out->dst_waits)) weft_local_ring_bell(peer);
    return true;
}

static bool take_kept(endpoint *e, mailbox *b, weft_req *r)
{
    posted **link = &b->posted_first;
    while (*link && !same_key(r, &(*link)->post)) link = &(*link)->next;
    posted *q = *link;
    if (!q) return false;
    match(b, r, &q->post);
    *link = q->next;
    if (b->posted_end == &q->next) b->posted_end = link;
    q->next = e->free_posted;
    e->free_posted = q;
    return true;
}

/* Bytes of the next piece of `r` that go into `room`; 0: wait until more is free, a ring of crumbs is slow. */
static size_t piece_of(const endpoint *e, const weft_req *r, uint64_t room)
{
    uint64_t quarter = (e->mask + 1) / 4, left = r->bytes - r->done_bytes, n = left;
    if (room < sizeof(fragment) + FRAGMENT_ALIGN) return 0;
    if (n > room - sizeof(fragment)) n = room - sizeof(fragment);
    if (n > quarter) n = quarter; /* so that the receiver copies while this side still does */
    return n < left && n < quarter / 2 ? 0 : (size_t)n;
}

/* Where the peer may read the bytes of `r` itself. */
static bool place_of(const endpoint *e, const weft_req *r, uint64_t *offset)
{
    return r->flags & WEFT_REQ_MAY_VIEW && weft_heap_find(e->map, r->send, r->bytes, offset);
}

/* The next piece of `r`: its header and how many bytes follow; false: no room. */
static bool next_fragment(const endpoint *e, const weft_req *r, uint64_t room, fragment *f)
{
    *f = (fragment){.token = r->priv[WEFT_REQ_TOKEN], .other = r->bytes, .lent = (uint64_t)(uintptr_t)r};
    if (room < sizeof *f) return false;
    if (r->priv[WEFT_REQ_OTHER_BYTES] != r->bytes) f->kind = FRAGMENT_MISMATCH;
    else if (place_of(e, r, &f->other)) f->kind = FRAGMENT_IN_PLACE;
    else return (f->bytes = (uint32_t)piece_of(e, r, room)) > 0;
    return true;
}

/* After a piece of the first streaming send is in the ring. */
static void sent(endpoint *e, mailbox *b, weft_req *r, const fragment *f)
{
    if (f->kind == FRAGMENT_BYTES) {
        r->done_bytes += f->bytes;
        weft_req_copied(r, f->bytes);
        if (r->done_bytes < r->bytes) return;
    }
    list_remove(&b->streaming, &b->streaming.first);
    if (f->kind == FRAGMENT_IN_PLACE) weft_req_lent(r);
    else finish_send(e, b, r, f->kind == FRAGMENT_MISMATCH ? WEFT_REQ_MISMATCH : WEFT_REQ_DONE);
}

/* Puts pieces of the matched sends into the ring, in order, as far as there is room. */
static bool stream(endpoint *e, mailbox *b, local_area *peer)
{
    uint64_t head = atomic_load_explicit(&b->out->head, memory_order_relaxed), before = head;
    uint64_t tail = atomic_load(&b->out->tail);
    fragment f;
    for (weft_req *r; (r = b->streaming.first) && next_fragment(e, r, e->mask + 1 - (head - tail), &f);) {
        ring_put(e, b->out_ring, head, &f, sizeof f);
        ring_put(e, b->out_ring, head + sizeof f, (const char *)r->send + r->done_bytes, f.bytes);
        head += sizeof f + padded(f.bytes);
        /* The peer may answer at once; this rank looks at its answers only later, so r is still there. */
        atomic_store(&b->out->head, head);
        sent(e, b, r, &f);
    }
    if (head == before) return false;
    if (atomic_load(&b->out->dst_waits)) weft_local_ring_bell(peer);
    return true;
}

static weft_status local_send(void *ep, weft_req *req, weft_queue *queue)
{
    (void)queue; /* host memory: nothing to be ordered with */
    endpoint *e = ep;
    int peer = (int)req->priv[WEFT_REQ_PEER];
    mailbox *b = &e->box[peer];
    e->open++;
    sends_changed(b, 1);
    if (!take_kept(e, b, req)) {
        list_add(&b->unmatched, req);
        take_posts(e, b, &e->map->areas[peer]);
    }
    stream(e, b, &e->map->areas[peer]);
    return WEFT_OK;
}

/* ---- receiving ------------------------------------------------------------------------------------------------- */

/* Growing happens while the number of receives ahead grows, not in every step. */
static weft_status take_ticket(endpoint *e, ticket **out)
{
    if (!e->free_tickets) {
        ticket *chunk;
        WEFT_TRY(WEFT_NEW(e->arena, POSTED_CHUNK, "receives in place", &chunk));
        for (int i = 0; i < POSTED_CHUNK; i++) {
            chunk[i].next = e->free_tickets;
            e->free_tickets = &chunk[i];
        }
    }
    *out = e->free_tickets;
    e->free_tickets = (*out)->next;
    return WEFT_OK;
}

static void return_ticket(endpoint *e, ticket *t)
{
    t->next = e->free_tickets;
    e->free_tickets = t;
}

static uint32_t publish_releases(endpoint *e, mailbox *b, uint32_t made, uint32_t taken)
{
    for (ticket *t; (t = b->released_first) && made - taken < WEFT_LOCAL_POSTS; made++) {
        b->in->posts[made % WEFT_LOCAL_POSTS] = (local_post){.token = t->lent, .kind = WEFT_POST_RELEASE};
        b->released_first = t->next;
        if (!t->next) b->released_end = &b->released_first;
        return_ticket(e, t);
        recvs_changed(b, -1);
        e->open--;
    }
    return made;
}

static bool publish(endpoint *e, mailbox *b, local_area *peer)
{
    uint32_t made = atomic_load_explicit(&b->in->posts_made, memory_order_relaxed), before = made;
    uint32_t taken = atomic_load(&b->in->posts_taken);
    made = publish_releases(e, b, made, taken); /* first: a peer may wait for its memory */
    for (weft_req *r; (r = b->unpublished.first) && made - taken < WEFT_LOCAL_POSTS; made++) {
        b->in->posts[made % WEFT_LOCAL_POSTS] = (local_post){
            .token = (uint64_t)(uintptr_t)r, .bytes = r->bytes, .comm = (uint32_t)r->priv[WEFT_REQ_COMM], .tag = r->tag,
            .kind = r->flags & WEFT_REQ_MAY_VIEW ? WEFT_POST_VIEW : WEFT_POST_COPY};
        list_remove(&b->unpublished, &b->unpublished.first);
    }
    if (made == before) return false;
    atomic_store(&b->in->posts_made, made);
    if (atomic_load(&b->in->src_waits)) weft_local_ring_bell(peer);
    return true;
}

static ticket *ticket_of(const weft_req *r) { return (ticket *)(uintptr_t)r->priv[WEFT_REQ_TOKEN]; }

static void finish_recv(endpoint *e, mailbox *b, weft_req *r, int state)
{
    if (r->flags & WEFT_REQ_MAY_VIEW) return_ticket(e, ticket_of(r));
    r->flags = 0;
    recvs_changed(b, -1);
    e->open--;
    weft_req_finish(r, state);
}

static void finish_in_place(const endpoint *e, weft_req *r, const fragment *f)
{
    ticket_of(r)->lent = f->lent;
    r->view = weft_heap_address(e->map, f->other);
    r->done_bytes = r->bytes;
    r->flags = WEFT_REQ_IN_PLACE;
    weft_req_finish(r, WEFT_REQ_DONE);
}

static void received(endpoint *e, mailbox *b, weft_req *r, const fragment *f)
{
    if (f->kind == FRAGMENT_IN_PLACE) {
        finish_in_place(e, r, f);
        return;
    }
    r->done_bytes += f->bytes;
    weft_req_copied(r, f->bytes);
    r->priv[WEFT_REQ_OTHER_BYTES] = f->other;
    if (f->kind == FRAGMENT_MISMATCH) finish_recv(e, b, r, WEFT_REQ_MISMATCH);
    else if (r->done_bytes == r->bytes) finish_recv(e, b, r, WEFT_REQ_DONE);
}

/* The bytes of a receive without a buffer should have been lent. */
static void refuse_bytes(const weft_req *r)
{
    weft_world *w = r->comm->world;
    weft_world_fail(w, weft_fail(WEFT_ERR_INTERNAL,
                                 "rank %d: a receive in place of %zu bytes from rank %d: the sender's "
                                 "buffer does not come from weft_world_buffers",
                                 w->rank, r->bytes, (int)r->priv[WEFT_REQ_PEER]));
}

/* Empties the ring as it was at the time of the call: the bound keeps one fast peer from holding this rank. */
static bool drain(endpoint *e, mailbox *b, local_area *peer)
{
    uint64_t head = atomic_load(&b->in->head);
    uint64_t tail = atomic_load_explicit(&b->in->tail, memory_order_relaxed), before = tail;
    while (tail != head) {
        fragment f;
        ring_get(e, b->in_ring, tail, &f, sizeof f);
        weft_req *r = request_of(f.token);
        if (r->recv) ring_get(e, b->in_ring, tail + sizeof f, (char *)r->recv + r->done_bytes, f.bytes);
        else if (f.bytes > 0) refuse_bytes(r);
        tail += sizeof f + padded(f.bytes);
        atomic_store(&b->in->tail, tail);
        received(e, b, r, &f);
    }
    if (tail == before) return false;
    if (atomic_load(&b->in->src_waits)) weft_local_ring_bell(peer);
    return true;
}

static weft_status local_recv(void *ep, weft_req *req, weft_queue *queue)
{
    (void)queue;
    endpoint *e = ep;
    int peer = (int)req->priv[WEFT_REQ_PEER];
    mailbox *b = &e->box[peer];
    ticket *t = NULL;
    if (req->flags & WEFT_REQ_MAY_VIEW) WEFT_TRY(take_ticket(e, &t));
    req->priv[WEFT_REQ_TOKEN] = (uint64_t)(uintptr_t)t;
    e->open++;
    recvs_changed(b, 1);
    list_add(&b->unpublished, req);
    publish(e, b, &e->map->areas[peer]);
    return WEFT_OK;
}

static void local_release(void *ep, weft_req *req)
{
    endpoint *e = ep;
    int peer = (int)req->priv[WEFT_REQ_PEER];
    mailbox *b = &e->box[peer];
    ticket *t = ticket_of(req);
    t->next = NULL;
    *b->released_end = t;
    b->released_end = &t->next;
    publish(e, b, &e->map->areas[peer]);
}

/* ---- progress and rest ------------------------------------------------------------------------------------------ */

static bool local_progress(void *ep)
{
    endpoint *e = ep;
    e->seen = atomic_load(&e->me->bell); /* before the look: what changes after it rings again */
    if (e->open == 0) return false;
    bool moved = false;
    /* Starting behind this rank spreads the ranks over different partners. */
    for (int i = 1; i < e->ranks; i++) {
        int p = (e->rank + i) % e->ranks;
        mailbox *b = &e->box[p];
        local_area *peer = &e->map->areas[p];
        if (b->sends > 0) {
            moved |= take_posts(e, b, peer);
            moved |= stream(e, b, peer);
        }
        if (b->recvs > 0) {
            moved |= publish(e, b, peer);
            moved |= drain(e, b, peer);
        }
    }
    return moved;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Spinning saves the wake-up when the peer has a core of its own; without that it only keeps the peer from
 * running. Measured on 2 cores that other programs also used: 2,000 spins made a barrier of 2 ranks ten
 * times slower than 100 (400 us and 30 us); on idle cores both take 1.5 us. 50 yields let 8 ranks on 2 cores
 * pass a barrier in 40 us without going to sleep. */
static void local_idle(void *ep, int round)
{
    enum { SPINS = 100, YIELDS = 50 };
    endpoint *e = ep;
    int spins = e->spin ? SPINS : 0;
    if (round <= spins) relax();
    else if (round <= spins + YIELDS) sched_yield();
    else weft_local_sleep(e->me, e->seen);
}

static weft_status local_failure(void *ep)
{
    const endpoint *e = ep;
    return weft_local_failed(e->map) ? weft_local_fail_with(e->map, WEFT_ERR_PEER) : WEFT_OK;
}

static void local_abort(void *ep, weft_status st, const char *message)
{
    endpoint *e = ep;
    weft_local_abort(e->map, e->rank, st, message);
}

static void mailbox_init(mailbox *b)
{
    list_reset(&b->unmatched);
    list_reset(&b->streaming);
    list_reset(&b->unpublished);
    b->posted_end = &b->posted_first;
    b->released_end = &b->released_first;
}

static void local_place(void *ep, const char *op, int layer, int step)
{
    endpoint *e = ep;
    weft_local_place(e->me, op, layer, step);
}

static void local_waiting(void *ep, int peer)
{
    endpoint *e = ep;
    atomic_store_explicit(&e->me->waits_for, peer + 1, memory_order_relaxed);
}

static void local_peer_state(void *ep, int peer, char *text, size_t n)
{
    const endpoint *e = ep;
    weft_local_peer_text(e->map, peer, text, n);
}

static const weft_mem_provider *local_buffers(void *ep)
{
    const endpoint *e = ep;
    return e->map->header->slice_bytes ? &e->heap.provider : &weft_mem_host;
}

static void local_close(void *ep, bool orderly)
{
    endpoint *e = ep;
    weft_heap_close(&e->heap);
    if (orderly) atomic_store(&e->me->state, WEFT_LOCAL_LEFT);
    weft_arena_destroy(e->arena); /* holds e itself */
}

static void local_cpus(void *ep, int *cpus, int *sharers)
{
    const weft_local *map = ((endpoint *)ep)->map;
    cpu_set_t set;
    *cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    *sharers = map->header->pinned ? 1 : map->header->ranks;
}

static const weft_transport local = {
    .name = "local",
    .desc = "ranks of one machine over shared memory",
    .caps = WEFT_CAP_PEER_MEMORY,
    .mem_kinds = 1u << WEFT_MEM_HOST | 1u << WEFT_MEM_SHARED | 1u << WEFT_MEM_PINNED,
    .post_send = local_send,
    .post_recv = local_recv,
    .progress = local_progress,
    .idle = local_idle,
    .failure = local_failure,
    .abort = local_abort,
    .cpus = local_cpus,
    .place = local_place,
    .waiting = local_waiting,
    .peer_state = local_peer_state,
    .buffers = local_buffers,
    .release = local_release,
    .close = local_close,
};

/* ---- joining ----------------------------------------------------------------------------------------------------- */

static weft_status endpoint_create(endpoint **out, weft_ctx *ctx, weft_local *map, int rank)
{
    weft_arena *arena;
    endpoint *e;
    int ranks = map->header->ranks;
    weft_status st;
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "local ranks", NULL));
    WEFT_TRY_OR(st, WEFT_NEW0(arena, 1, "endpoint", &e), free_arena);
    *e = (endpoint){.map = map, .me = &map->areas[rank], .arena = arena, .mask = map->header->ring_bytes - 1,
                    .rank = rank, .ranks = ranks, .spin = ranks <= map->header->cores};
    WEFT_TRY_OR(st, WEFT_NEW0(arena, ranks, "mailboxes", &e->box), free_arena);
    WEFT_TRY_OR(st, weft_heap_init(&e->heap, map, rank), free_arena);
    for (int p = 0; p < ranks; p++) {
        mailbox *b = &e->box[p];
        b->out = weft_local_pair(map, rank, p);
        b->in = weft_local_pair(map, p, rank);
        b->out_ring = weft_local_ring(map, rank, p);
        b->in_ring = weft_local_ring(map, p, rank);
        mailbox_init(b);
    }
    *out = e;
    return WEFT_OK;
free_arena:
    weft_arena_destroy(arena);
    return st;
}

static weft_status wait_for_all(endpoint *e, const weft_clock *clock)
{
    double timeout = e->map->header->timeout;
    weft_deadline deadline = weft_deadline_in(clock, timeout);
    for (int p = 0; p < e->ranks; p++) {
        local_area *a = &e->map->areas[p];
        for (;;) {
            uint32_t seen = atomic_load(&e->me->bell);
            bool gone = atomic_load(&a->gone);
            if (atomic_load(&a->state) != WEFT_LOCAL_ABSENT) break;
            WEFT_TRY(local_failure(e));
            bool late = weft_deadline_look(clock, &deadline);
            if (gone) weft_fail(WEFT_ERR_TIMEOUT, "rank %d: rank %d ended before it joined the others", e->rank, p);
            else if (late)
                weft_fail(WEFT_ERR_TIMEOUT, "rank %d: rank %d has not joined the others within %.3g s", e->rank, p,
                          timeout);
            if (gone || late) {
                weft_local_abort(e->map, e->rank, WEFT_ERR_TIMEOUT, weft_last_error());
                return WEFT_ERR_TIMEOUT;
            }
            weft_local_sleep(e->me, seen);
        }
    }
    return WEFT_OK;
}

weft_status weft_world_local(weft_world **out, weft_ctx *ctx, weft_local *map, int rank)
{
    if (rank < 0 || rank >= map->header->ranks)
        return weft_fail(WEFT_ERR_REFUSED, "local ranks: rank %d does not exist; the mapping has ranks 0 to %d", rank,
                         map->header->ranks - 1);
    int absent = WEFT_LOCAL_ABSENT;
    if (!atomic_compare_exchange_strong(&map->areas[rank].state, &absent, WEFT_LOCAL_JOINED))
        return weft_fail(WEFT_ERR_REFUSED, "local ranks: rank %d has joined already; a mapping serves one world", rank);
    endpoint *e;
    WEFT_TRY(endpoint_create(&e, ctx, map, rank));
    weft_local_present(e->me);
    weft_local_place(e->me, "start", -1, -1);
    for (int p = 0; p < e->ranks; p++) weft_local_ring_bell(&map->areas[p]);
    weft_status st = wait_for_all(e, &ctx->clock);
    if (st != WEFT_OK) {
        local_close(e, false);
        return st;
    }
    WEFT_TRY(weft_world_open(out, ctx, &local, e, rank, e->ranks));
    return weft_world_set_timeout(*out, map->header->timeout);
}
