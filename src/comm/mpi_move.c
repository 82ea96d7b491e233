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

/* Their numbers are tags of MPI. */
static bool all_transfers(const weft_mpi_ep *e)
{
    return e->chunks == WEFT_MPI_CHUNKS || (e->chunks + 1) * WEFT_MPI_CHUNK > e->info.tag_max - WEFT_MPI_TAG_DATA;
}

static bool more_transfers(weft_mpi_ep *e)
{
    int first = e->chunks * WEFT_MPI_CHUNK;
    if (all_transfers(e)) return false;
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

static weft_status transfer_for(weft_mpi_ep *e, weft_req *req, mpi_transfer **out)
{
    if (!e->free_transfer && all_transfers(e))
        return weft_fail(WEFT_ERR_REFUSED, "rank %d: more than %d messages at once; wait for some of them first",
                         e->info.rank, e->open);
    if (!e->free_transfer && !more_transfers(e))
        return weft_fail(WEFT_ERR_MEMORY, "rank %d: no memory for more than %d MPI messages at once", e->info.rank,
                         e->open);
    mpi_transfer *t = *out = e->free_transfer;
    e->free_transfer = t->next;
    *t = (mpi_transfer){.req = req, .number = t->number, .bytes = req->bytes,
                        .comm = (uint32_t)req->priv[WEFT_REQ_COMM],
                        .tag = req->tag, .peer = (int)req->priv[WEFT_REQ_PEER], .is_recv = !req->send};
    /* MPI takes what it sends as const. */
    const void *from = req->send ? req->send : req->recv;
    memcpy(&t->buf, &from, sizeof t->buf);
    e->open++;
    return WEFT_OK;
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

static void trouble_text(weft_mpi_ep *e, const char *what, const char *text)
{
    if (e->broken) return;
    snprintf(e->trouble, sizeof e->trouble, "rank %d: MPI, %s: %s", e->info.rank, what, text);
    atomic_store_explicit(&e->broken, true, memory_order_release);
}

static void trouble(weft_mpi_ep *e, int code, const char *what)
{
    char text[160];
    e->mpi->abi->error_text(code, text, sizeof text);
    trouble_text(e, what, text);
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
        trouble_text(e, "announcing a receive", "no memory");
        return;
    }
    l->control = c;
    l->control.layer = e->layer;
    l->control.step = e->step;
    l->control.waits_for = e->waits_for;
    double age = 1e3 * (weft_now(&weft_clock_real) - e->placed_at);
    l->control.age_ms = age < INT32_MAX ? (int32_t)age : INT32_MAX;
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
    if (!p || !l || !more_transfers(e))
        return weft_fail(WEFT_ERR_MEMORY, "rank %d: no memory for MPI messages", e->info.rank);
    p->next = e->free_posted;
    e->free_posted = p;
    l->next = e->free_letter;
    e->free_letter = l;
    e->finished.end = &e->finished.first;
    for (int i = 0; i < WEFT_MPI_CONTROLS; i++) listen(e, i);
    int error =
        e->mpi->abi->recv(e->end, &e->abort_in, (int)sizeof e->abort_in, -1, WEFT_MPI_TAG_ABORT, TOKEN_ABORT_IN);
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
    const weft_mpi_abi *abi = e->mpi->abi;
    int bytes = weft_mpi_piece(t->bytes - t->moved, e->limit), tag = WEFT_MPI_TAG_DATA + t->data;
    t->piece = (size_t)bytes;
    int error = t->is_recv ? abi->recv(e->end, t->buf + t->moved, bytes, t->peer, tag, token_of(t, TOKEN_TRANSFER))
                           : abi->send(e->end, t->buf + t->moved, bytes, t->peer, tag, token_of(t, TOKEN_TRANSFER));
    if (error) trouble(e, error, t->is_recv ? "receiving" : "sending");
}

static void start_send(weft_mpi_ep *e, mpi_transfer *t, int number, uint64_t bytes)
{
    t->data = number;
    if (bytes == t->bytes) {
        next_piece(e, t);
        return;
    }
    tell(e, t->peer, (mpi_control){.kind = CONTROL_MISMATCH, .number = number, .bytes = t->bytes});
    t->moved = (size_t)bytes; /* carried to the request by the rank's own thread */
    finish(e, t, WEFT_REQ_MISMATCH);
}

/* The ends cut messages alike, so a piece of another length is not the one that is due here. */
static bool piece_fits(weft_mpi_ep *e, const mpi_transfer *t, const weft_mpi_done *d)
{
    char text[120];
    if (!t->is_recv || d->bytes == t->piece) return true;
    snprintf(text, sizeof text, "%zu bytes arrived from rank %d where %zu were due", d->bytes, t->peer, t->piece);
    trouble_text(e, "receiving", text);
    return false;
}

static void piece_done(weft_mpi_ep *e, mpi_transfer *t, const weft_mpi_done *d)
{
    if (d->cancelled || !t->req) return;
    if (d->error) trouble(e, d->error, t->is_recv ? "receiving" : "sending");
    if (d->error || !piece_fits(e, t, d)) return;
    t->moved += t->piece;
    if (t->moved < t->bytes) next_piece(e, t);
    else finish(e, t, WEFT_REQ_DONE);
}

weft_status weft__mpi_send(weft_mpi_ep *e, weft_req *req)
{
    mpi_transfer *t = NULL;
    WEFT_TRY(transfer_for(e, req, &t));
    mpi_box *b = &e->box[t->peer];
    mpi_posted **link = &b->posted;
    while (*link && ((*link)->comm != t->comm || (*link)->tag != t->tag)) link = &(*link)->next;
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
    mpi_transfer *t = NULL;
    WEFT_TRY(transfer_for(e, req, &t));
    t->data = t->number;
    next_piece(e, t);
    tell(e, t->peer,
         (mpi_control){.kind = CONTROL_POST, .comm = t->comm, .tag = t->tag, .number = t->number, .bytes = t->bytes});
    return judged(e);
}

/* ---- what arrives ----------------------------------------------------------------------------------------------- */

static void take_post(weft_mpi_ep *e, int source, const mpi_control *c)
{
    mpi_box *b = &e->box[source];
    mpi_transfer **link = &b->sends;
    while (*link && ((*link)->comm != c->comm || (*link)->tag != c->tag)) link = &(*link)->next;
    mpi_transfer *t = *link;
    if (t) {
        *link = t->next;
        if (b->sends_end == &t->next) b->sends_end = link;
        start_send(e, t, c->number, c->bytes);
        return;
    }
    mpi_posted *p = posted_new(e);
    if (!p) {
        trouble_text(e, "keeping a posted receive", "no memory");
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

/* On another node what a rank says is all that is known here. */
static void note_place(local_area *a, const mpi_control *c)
{
    char op[WEFT_MPI_OP];
    snprintf(op, sizeof op, "%.*s", WEFT_MPI_OP - 1, c->op);
    weft_local_place(a, op, c->layer, c->step);
    atomic_fetch_sub(&a->since, c->age_ms);
    atomic_store_explicit(&a->waits_for, c->waits_for, memory_order_relaxed);
    atomic_store(&a->state, WEFT_LOCAL_JOINED);
}

static void take_control(weft_mpi_ep *e, int source, const mpi_control *c)
{
    local_area *a = &e->map.areas[source];
    if (atomic_load(&a->pid) == 0) note_place(a, c);
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
        if (d->cancelled || d->error) break;
        atomic_store(&e->node->told, 1); /* by that rank */
        weft__mpi_record(e, e->abort_in.rank, (weft_status)e->abort_in.status, e->abort_in.message);
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
    /* A rank that failed leaves its memory for a while to those who read it, which some MPIs do while they look. */
    if (e->dead || e->broken || weft__mpi_failed_for(e, WEFT_MPI_MESSAGE_SECONDS)) return false;
    bool moved = pass(e);
    /* What was announced can often start at once. */
    if (take_controls(e)) moved |= pass(e);
    return moved;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

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

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* A rank that died cannot tell, so whoever of its node comes first does. A record that is still being written is told
 * by its writer. */
static void tell_other_nodes(weft_mpi_ep *e)
{
    const local_header *h = e->map.header;
    if (e->node_ranks == e->info.size || !weft_local_failed(&e->map) || atomic_exchange(&e->node->told, 1)) return;
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

/* Receives first: what arrives for them later meets nothing. */
void weft__mpi_withdraw(weft_mpi_ep *e, double seconds)
{
    if (e->dead) return;
    e->dead = true;
    for (int i = 0; i < e->chunks * WEFT_MPI_CHUNK; i++) {
        mpi_transfer *t = transfer_at(e, i);
        if (t->req && t->is_recv) e->mpi->abi->cancel(e->end, token_of(t, TOKEN_TRANSFER));
    }
    tell_other_nodes(e);
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
