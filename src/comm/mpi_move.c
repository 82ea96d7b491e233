/* mpi_move.c — messages over an end of a plugin: rendezvous by control messages, pieces, completions.
 *
 * A receive is posted to MPI first and then announced to the sender by a control message; the sender matches its
 * sends with announcements in order of posting and sends under the receiver's number. Hence, on any MPI:
 *   - a send cannot complete without its receive, whatever MPI buffers;
 *   - data never arrives unexpected, and never waits behind other data for its match;
 *   - both ends know both sizes;
 *   - any number of groups and tags fits under any upper bound of MPI's tags.
 * Rejected: MPI_Issend under a tag made of group and tag: tags have no room for both, the sender never learns of a
 * receive that is too long, and a short message costs the same round trip. */
#include "comm/mpi_impl.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONTROL_POST, CONTROL_MISMATCH, CONTROL_ASK, CONTROL_PLACE };
/* What a token is: the low bits of a pointer or of a shifted number. */
enum { TOKEN_TRANSFER, TOKEN_LETTER, TOKEN_CONTROL, TOKEN_ABORT_IN, TOKEN_ABORT_OUT, TOKEN_BITS = 3 };

static uint64_t token_of(const void *p, unsigned kind) { return (uint64_t)(uintptr_t)p | kind; }
static void *pointer_of(uint64_t token) { return (void *)(uintptr_t)(token >> TOKEN_BITS << TOKEN_BITS); }

int weft_mpi_piece(size_t left, size_t limit)
{
    size_t most = limit < INT_MAX ? limit : INT_MAX;
    return (int)(left < most ? left : most);
}

/* ---- pools -------------------------------------------------------------------------------------------------- */

static void *more(weft_mpi_ep *e, size_t size)
{
    void **blocks = realloc(e->blocks, ((size_t)e->block_count + 1) * sizeof *blocks);
    if (!blocks) return NULL;
    e->blocks = blocks;
    void *block = aligned_alloc(64, (WEFT_MPI_CHUNK * size + 63) / 64 * 64);
    if (!block) return NULL;
    memset(block, 0, WEFT_MPI_CHUNK * size);
    e->blocks[e->block_count++] = block;
    return block;
}

static bool more_transfers(weft_mpi_ep *e)
{
    int first = e->chunks * WEFT_MPI_CHUNK;
    if (e->chunks == WEFT_MPI_CHUNKS || first + WEFT_MPI_CHUNK > e->info.tag_max - WEFT_MPI_TAG_DATA) return false;
    mpi_transfer *t = more(e, sizeof *t);
    if (!t) return false;
    e->chunk[e->chunks++] = t;
    for (int i = WEFT_MPI_CHUNK - 1; i >= 0; i--) {
        t[i].number = first + i;
        t[i].next = e->free_transfer;
        e->free_transfer = &t[i];
    }
    return true;
}

static mpi_transfer *transfer_for(weft_mpi_ep *e, weft_req *req)
{
    if (!e->free_transfer && !more_transfers(e)) return NULL;
    mpi_transfer *t = e->free_transfer;
    e->free_transfer = t->next;
    *t = (mpi_transfer){.req = req, .number = t->number};
    e->open++;
    return t;
}

static mpi_posted *posted_new(weft_mpi_ep *e)
{
    if (!e->free_posted) {
        mpi_posted *p = more(e, sizeof *p);
        for (int i = 0; p && i < WEFT_MPI_CHUNK; i++) {
            p[i].next = e->free_posted;
            e->free_posted = &p[i];
        }
    }
    mpi_posted *p = e->free_posted;
    if (p) e->free_posted = p->next;
    return p;
}

static mpi_letter *letter_new(weft_mpi_ep *e)
{
    if (!e->free_letter) {
        mpi_letter *l = more(e, sizeof *l);
        for (int i = 0; l && i < WEFT_MPI_CHUNK; i++) {
            l[i].next = e->free_letter;
            e->free_letter = &l[i];
        }
    }
    mpi_letter *l = e->free_letter;
    if (l) e->free_letter = l->next;
    return l;
}

void weft__mpi_free(weft_mpi_ep *e)
{
    for (int i = 0; i < e->block_count; i++) free(e->blocks[i]);
    free(e->blocks);
}

/* ---- trouble -------------------------------------------------------------------------------------------------- */

static void trouble(weft_mpi_ep *e, int code, const char *what)
{
    if (e->broken) return;
    char text[160] = "out of memory for messages";
    if (code) e->mpi->abi->error_text(code, text, sizeof text);
    snprintf(e->trouble, sizeof e->trouble, "rank %d: MPI, %s: %s", e->info.rank, what, text);
    e->broken = true;
}

static weft_status judged(const weft_mpi_ep *e)
{
    return e->broken ? weft_fail(WEFT_ERR_LIBRARY, "%s", e->trouble) : WEFT_OK;
}

/* ---- control messages --------------------------------------------------------------------------------------- */

static void tell(weft_mpi_ep *e, int peer, mpi_control c)
{
    mpi_letter *l = letter_new(e);
    if (!l) {
        trouble(e, 0, "announcing a receive");
        return;
    }
    l->control = c;
    l->control.layer = e->layer;
    l->control.step = e->step;
    l->control.waits_for = e->waits_for;
    memcpy(l->control.op, e->op, sizeof l->control.op);
    int error = e->mpi->abi->send(e->end, &l->control, (int)sizeof l->control, peer, WEFT_MPI_TAG_CONTROL,
                                  token_of(l, TOKEN_LETTER));
    if (error) trouble(e, error, "sending a control message");
}

static void listen(weft_mpi_ep *e, int i)
{
    e->in_source[i] = -1;
    int error = e->mpi->abi->recv(e->end, &e->in[i], (int)sizeof e->in[i], -1, WEFT_MPI_TAG_CONTROL,
                                  (uint64_t)i << TOKEN_BITS | TOKEN_CONTROL);
    if (error) trouble(e, error, "posting a receive");
}

weft_status weft__mpi_begin(weft_mpi_ep *e)
{
    /* The first blocks before the first step, so that ordinary traffic never grows them. */
    mpi_posted *p = posted_new(e);
    mpi_letter *l = letter_new(e);
    if (!p || !l || !more_transfers(e)) return weft_fail(WEFT_ERR_MEMORY, "rank %d: no memory for MPI messages", e->info.rank);
    p->next = e->free_posted;
    e->free_posted = p;
    l->next = e->free_letter;
    e->free_letter = l;
    e->finished.end = &e->finished.first;
    for (int i = 0; i < WEFT_MPI_CONTROLS; i++) listen(e, i);
    int error = e->mpi->abi->recv(e->end, &e->abort_in, (int)sizeof e->abort_in, -1, WEFT_MPI_TAG_ABORT, TOKEN_ABORT_IN);
    if (error) trouble(e, error, "posting a receive");
    return judged(e);
}

/* ---- transfers ------------------------------------------------------------------------------------------------ */

static void finish(weft_mpi_ep *e, mpi_transfer *t, int state)
{
    t->state = state;
    t->at = weft_now(&e->ctx->clock);
    t->next = NULL;
    *e->finished.end = t;
    e->finished.end = &t->next;
    e->open--;
}

/* One piece of a message at a time: below MPI's limit there is one, above it a piece is long enough to hide the gap. */
static void next_piece(weft_mpi_ep *e, mpi_transfer *t)
{
    weft_req *r = t->req;
    int bytes = weft_mpi_piece(r->bytes - t->moved, e->limit), peer = (int)r->priv[WEFT_REQ_PEER], error;
    t->piece = (size_t)bytes;
    if (r->send)
        error = e->mpi->abi->send(e->end, (const char *)r->send + t->moved, bytes, peer, WEFT_MPI_TAG_DATA + t->data,
                                  token_of(t, TOKEN_TRANSFER));
    else
        error = e->mpi->abi->recv(e->end, (char *)r->recv + t->moved, bytes, peer, WEFT_MPI_TAG_DATA + t->data,
                                  token_of(t, TOKEN_TRANSFER));
    if (error) trouble(e, error, r->send ? "sending" : "receiving");
}

static void start_send(weft_mpi_ep *e, mpi_transfer *t, int number, uint64_t bytes)
{
    weft_req *r = t->req;
    t->data = number;
    if (bytes == r->bytes) {
        next_piece(e, t);
        return;
    }
    tell(e, (int)r->priv[WEFT_REQ_PEER], (mpi_control){.kind = CONTROL_MISMATCH, .number = number, .bytes = r->bytes});
    t->moved = (size_t)bytes; /* carried to the request by the rank's own thread */
    finish(e, t, WEFT_REQ_MISMATCH);
}

static void piece_done(weft_mpi_ep *e, mpi_transfer *t, const weft_mpi_done *d)
{
    if (d->cancelled || !t->req) return;
    if (d->error) {
        trouble(e, d->error, t->req->send ? "sending" : "receiving");
        return;
    }
    t->moved += t->piece;
    if (t->moved < t->req->bytes) next_piece(e, t);
    else finish(e, t, WEFT_REQ_DONE);
}

weft_status weft__mpi_send(weft_mpi_ep *e, weft_req *req)
{
    mpi_box *b = &e->box[req->priv[WEFT_REQ_PEER]];
    mpi_transfer *t = transfer_for(e, req);
    if (!t) return weft_fail(WEFT_ERR_MEMORY, "rank %d: more than %d messages at once", e->info.rank, e->open);
    mpi_posted **link = &b->posted;
    while (*link && ((*link)->comm != req->priv[WEFT_REQ_COMM] || (*link)->tag != req->tag)) link = &(*link)->next;
    mpi_posted *p = *link;
    if (!p) {
        *b->sends_end = t;
        b->sends_end = &t->next;
        return WEFT_OK;
    }
    *link = p->next;
    if (b->posted_end == &p->next) b->posted_end = link;
    start_send(e, t, p->number, p->bytes);
    p->next = e->free_posted;
    e->free_posted = p;
    return judged(e);
}

weft_status weft__mpi_recv(weft_mpi_ep *e, weft_req *req)
{
    mpi_transfer *t = transfer_for(e, req);
    if (!t) return weft_fail(WEFT_ERR_MEMORY, "rank %d: more than %d messages at once", e->info.rank, e->open);
    t->data = t->number;
    next_piece(e, t);
    tell(e, (int)req->priv[WEFT_REQ_PEER],
         (mpi_control){.kind = CONTROL_POST, .comm = (uint32_t)req->priv[WEFT_REQ_COMM], .tag = req->tag, .number = t->number,
                       .bytes = req->bytes});
    return judged(e);
}

/* ---- what arrives ----------------------------------------------------------------------------------------------- */

static void take_post(weft_mpi_ep *e, int source, const mpi_control *c)
{
    mpi_box *b = &e->box[source];
    mpi_transfer **link = &b->sends;
    while (*link && ((*link)->req->priv[WEFT_REQ_COMM] != c->comm || (*link)->req->tag != c->tag)) link = &(*link)->next;
    mpi_transfer *t = *link;
    if (t) {
        *link = t->next;
        if (b->sends_end == &t->next) b->sends_end = link;
        start_send(e, t, c->number, c->bytes);
        return;
    }
    mpi_posted *p = posted_new(e);
    if (!p) {
        trouble(e, 0, "keeping a posted receive");
        return;
    }
    *p = (mpi_posted){.bytes = c->bytes, .comm = c->comm, .tag = c->tag, .number = c->number};
    *b->posted_end = p;
    b->posted_end = &p->next;
}

static mpi_transfer *transfer_at(const weft_mpi_ep *e, int number)
{
    if (number < 0 || number >= e->chunks * WEFT_MPI_CHUNK) return NULL;
    return &e->chunk[number / WEFT_MPI_CHUNK][number % WEFT_MPI_CHUNK];
}

static void take_mismatch(weft_mpi_ep *e, const mpi_control *c)
{
    mpi_transfer *t = transfer_at(e, c->number);
    if (!t || !t->req) return;
    int error = e->mpi->abi->cancel(e->end, token_of(t, TOKEN_TRANSFER));
    if (error) trouble(e, error, "withdrawing a receive");
    t->moved = (size_t)c->bytes;
    finish(e, t, WEFT_REQ_MISMATCH);
}

static void take_control(weft_mpi_ep *e, int source, const mpi_control *c)
{
    local_area *a = &e->map.areas[source];
    if (atomic_load(&a->pid) == 0) { /* on another node: what it says is all that is known here */
        char op[WEFT_MPI_OP];
        snprintf(op, sizeof op, "%.*s", WEFT_MPI_OP - 1, c->op);
        weft_local_place(a, op, c->layer, c->step);
        atomic_store_explicit(&a->waits_for, c->waits_for, memory_order_relaxed);
        atomic_store(&a->state, WEFT_LOCAL_JOINED);
    }
    e->box[source].answered = true;
    switch (c->kind) {
    case CONTROL_POST: take_post(e, source, c); break;
    case CONTROL_MISMATCH: take_mismatch(e, c); break;
    case CONTROL_ASK: tell(e, source, (mpi_control){.kind = CONTROL_PLACE}); break;
    default: break;
    }
}

/* In the order in which the receives were posted: that is the order of each sender. */
static bool take_controls(weft_mpi_ep *e)
{
    bool any = false;
    while (e->in_source[e->in_next] >= 0 && !e->dead) {
        int i = e->in_next;
        mpi_control c = e->in[i];
        int source = e->in_source[i];
        listen(e, i);
        e->in_next = (i + 1) % WEFT_MPI_CONTROLS;
        take_control(e, source, &c);
        any = true;
    }
    return any;
}

static void take_done(weft_mpi_ep *e, const weft_mpi_done *d)
{
    switch (d->token & ((1u << TOKEN_BITS) - 1)) {
    case TOKEN_TRANSFER: piece_done(e, pointer_of(d->token), d); break;
    case TOKEN_LETTER: {
        mpi_letter *l = pointer_of(d->token);
        if (d->error) trouble(e, d->error, "sending a control message");
        l->next = e->free_letter;
        e->free_letter = l;
        break;
    }
    case TOKEN_CONTROL:
        if (d->error) trouble(e, d->error, "receiving a control message");
        else if (!d->cancelled) e->in_source[d->token >> TOKEN_BITS] = d->source;
        break;
    case TOKEN_ABORT_IN:
        if (!d->cancelled && !d->error)
            weft_local_abort(&e->map, e->abort_in.rank, (weft_status)e->abort_in.status, e->abort_in.message);
        break;
    default: break;
    }
}

static bool pass(weft_mpi_ep *e)
{
    const weft_mpi_done *done;
    int n = 0;
    int error = e->mpi->abi->poll(e->end, &done, &n);
    if (error) trouble(e, error, "progress");
    for (int i = 0; i < n; i++) take_done(e, &done[i]);
    return n > 0;
}

bool weft__mpi_pass(weft_mpi_ep *e)
{
    if (e->dead || e->broken) return false;
    bool moved = pass(e);
    /* What was announced can often start at once. */
    if (take_controls(e)) moved |= pass(e);
    return moved;
}

/* ---- places ------------------------------------------------------------------------------------------------------- */

void weft__mpi_ask(weft_mpi_ep *e, int peer)
{
    e->box[peer].answered = false;
    tell(e, peer, (mpi_control){.kind = CONTROL_ASK});
}

void weft__mpi_show_moved(weft_mpi_ep *e)
{
    for (int i = 0; i < e->chunks * WEFT_MPI_CHUNK; i++) {
        mpi_transfer *t = transfer_at(e, i);
        if (t->req && t->state == 0) t->req->done_bytes = t->moved;
    }
}

/* ---- the end ------------------------------------------------------------------------------------------------------- */

static void tell_other_nodes(weft_mpi_ep *e)
{
    const local_header *h = e->map.header;
    if (h->failed_rank != e->info.rank) return;
    e->abort_out = (mpi_failure){.rank = h->failed_rank, .status = h->failed_status};
    memcpy(e->abort_out.message, h->failed_message, sizeof e->abort_out.message);
    for (int p = 0; p < e->info.size; p++)
        if (p != e->info.rank && atomic_load(&e->map.areas[p].pid) == 0)
            e->mpi->abi->send(e->end, &e->abort_out, (int)sizeof e->abort_out, p, WEFT_MPI_TAG_ABORT, TOKEN_ABORT_OUT);
}

static void wait_for_requests(weft_mpi_ep *e, int left, double seconds)
{
    static const struct timespec nap = {.tv_nsec = 1000000};
    weft_deadline deadline = weft_deadline_in(&weft_clock_real, seconds);
    const weft_mpi_done *done;
    int n;
    while (e->mpi->abi->open_requests(e->end) > left && !weft_deadline_passed(&weft_clock_real, deadline)) {
        if (e->mpi->abi->poll(e->end, &done, &n)) return;
        if (n == 0) nanosleep(&nap, NULL);
    }
}

void weft__mpi_withdraw(weft_mpi_ep *e, double seconds)
{
    if (e->dead) return;
    e->dead = true;
    tell_other_nodes(e);
    for (int i = 0; i < e->chunks * WEFT_MPI_CHUNK; i++) {
        mpi_transfer *t = transfer_at(e, i);
        if (t->req && !t->req->send) e->mpi->abi->cancel(e->end, token_of(t, TOKEN_TRANSFER));
    }
    wait_for_requests(e, WEFT_MPI_CONTROLS + 1, seconds);
}

bool weft__mpi_end_control(weft_mpi_ep *e)
{
    for (int i = 0; i < WEFT_MPI_CONTROLS; i++) e->mpi->abi->cancel(e->end, (uint64_t)i << TOKEN_BITS | TOKEN_CONTROL);
    e->mpi->abi->cancel(e->end, TOKEN_ABORT_IN);
    e->dead = true;
    wait_for_requests(e, 0, 1.0);
    return e->mpi->abi->open_requests(e->end) == 0;
}
