/* offload.c — the inputs of layers outside of the working memory (--offload): what is left of activations when layers
 * are made again, and the only thing that grows with the number of layers then.
 *
 * A stage has a few buffers for inputs, whatever its layers and the micro-batches alive (slots). Each input has a place
 * in a pool of the host, or in a file (base/spill.h); a thread writes it there while its own layer's forward pass reads
 * it, and reads it while the backward pass of the layer above runs.
 *
 * Which buffer is given up, and which input is read ahead, follows from one order: backward passes take micro-batches
 * as their forward passes came (sched), and of each the layers from the last to the first. An input that is needed
 * later than all others makes room; the first that is not here is read ahead when a buffer holds one that is needed
 * later, or none. So a pipeline reads the next micro-batch's last input while the pass before it runs, the last layers
 * of a forward pass that its backward pass follows are never read, and no input is read twice. Nothing here depends on
 * how fast the thread is, only on the order of passes, and bytes are moved, not changed. */
#include "model/model_impl.h"

#include <string.h>

enum { BUFFERS = 3 };    /* one more than a layer uses at once: to write behind it and to read ahead of it */
enum { IN_USE = 2 };     /* a layer's input; and its output, or in backward where x_mid is made again */

typedef struct buffer {
    void *data;
    int64_t holds;       /* place whose input it has, or is getting; NOTHING: none that is needed again */
    int64_t move;        /* the last one from or to it: until that is over it may not be written */
    bool coming;         /* that one reads */
    bool used;           /* by the layer that runs */
} buffer;
enum { NOTHING = -1 };

struct weft__offload {
    weft_spill *spill;   /* NULL in a preview */
    int64_t layers, places;
    size_t place;        /* bytes of one */
    void **pool;         /* [places]; NULL: in a file */
    const char *folder;
    int n;
    buffer buffer[BUFFERS];
    int queued, *queue;  /* slots in the order of their backward passes; the newest may be in its forward pass */
    int64_t *there;      /* [slots] inputs of its first so many layers are needed again, and have been put */
    size_t *bytes;       /* [slots] of an input of its micro-batch */
};

static int64_t inputs_of(const weft_model_config *c, const weft_model_share *share, int slots)
{
    weft_span layers = weft_model_cut(c->L, share->stages, share->stage);
    return (layers.end - layers.begin) * slots;
}

bool weft_model_offloads(const weft_model_config *c, const weft_model_share *share, const weft_model_options *o)
{
    return o->offload != WEFT_OFFLOAD_NONE && o->train && inputs_of(c, share, o->slots) > IN_USE;
}

const char *weft_offload_name(weft_offload where)
{
    static const char *const names[WEFT_OFFLOADS] = {"none", "host", "file"};
    return names[where];
}

/* ---- set-up ------------------------------------------------------------------------------------------- */

static weft_status alloc_places(weft_model *m, weft__offload *x, size_t bytes, const weft_model_options *o)
{
    const bool file = o->offload == WEFT_OFFLOAD_FILE;
    const size_t unit = weft_spill_unit(file);
    int64_t all;
    if (!weft_add_size(bytes, unit - 1, &x->place) || !weft_mul_i64(x->places, (int64_t)(x->place /= unit), &all) ||
        all > INT64_MAX / (int64_t)unit)
        return weft_fail(WEFT_ERR_REFUSED, "model: %lld inputs of %zu bytes do not fit into memory sizes",
                         (long long)x->places, bytes);
    x->place = weft_max_size(x->place, 1) * unit;
    if (file) return weft_arena_strdup(m->arena, o->offload_folder, &x->folder);
    WEFT_TRY(WEFT_NEW(m->arena, x->places, "tables", &x->pool));
    return weft_pool_alloc(m->pool, (int)x->places, x->place, "offloaded inputs", x->pool, &x->place);
}

weft_status weft__offload_alloc(weft_model *m, const weft_model_options *o)
{
    weft__offload *x = NULL;
    const size_t bytes = (size_t)(weft__stream_rows_max(m, m->rows_max) * m->config.C) * m->rs;
    if (!weft_model_offloads(&m->config, &m->share, o)) return WEFT_OK;
    WEFT_TRY(WEFT_NEW0(m->arena, 1, "tables", &x));
    x->layers = m->layers.end - m->layers.begin;
    x->places = inputs_of(&m->config, &m->share, m->slots);
    x->n = (int)weft_min_i64(BUFFERS, x->places - 1);
    WEFT_TRY(WEFT_NEW0(m->arena, m->slots, "tables", &x->queue));
    WEFT_TRY(WEFT_NEW0(m->arena, m->slots, "tables", &x->there));
    WEFT_TRY(WEFT_NEW0(m->arena, m->slots, "tables", &x->bytes));
    for (int i = 0; i < x->n; i++) {
        x->buffer[i].holds = NOTHING;
        WEFT_TRY(weft_arena_alloc(m->buffers, (int64_t)bytes, 1, "residual", &x->buffer[i].data));
    }
    WEFT_TRY(alloc_places(m, x, bytes, o));
    m->offload = x;
    return WEFT_OK;
}

weft_status weft__offload_open(weft_model *m)
{
    weft__offload *x = m->offload;
    if (!x) return WEFT_OK;
    const weft_spill_options o = {.places = x->places, .bytes = x->place, .memory = x->pool, .folder = x->folder,
                                  .rank = m->ctx->rank, .fault = &m->ctx->fault};
    weft_status st = weft_spill_open(&x->spill, &o);
    if (st < 0) return weft_fail_at(st, "offloaded inputs of layers: ");
    if (m->ctx->rank == 0 && weft_spill_in_memory(x->spill))
        weft_logf(&m->ctx->log, WEFT_LOG_WARN, "offloaded inputs of layers: %s is a folder in memory, which saves "
                  "nothing; one on a disk does", x->folder);
    return WEFT_OK;
}

void weft__offload_close(weft_model *m)
{
    if (m->offload) weft_spill_close(m->offload->spill);
}

int64_t weft_model_file_bytes(const weft_model *m)
{
    const weft__offload *x = m->offload;
    return x && !x->pool ? x->places * (int64_t)x->place : 0;
}

bool weft_model_copies_input(const weft_model *m) { return m->offload; }

/* ---- the order of backward passes ------------------------------------------------------------------------ */

static int64_t place_of(const weft__offload *x, int slot, int64_t layer)
{
    return (WEFT_PLANTED(offload_slots_share) ? 0 : slot * x->layers) + layer;
}

/* Where an input stands in the order in which all that are alive are needed: from 0, with gaps. */
static int64_t turn_of(const weft__offload *x, int64_t place)
{
    if (place == NOTHING) return INT64_MAX;
    int64_t slot = place / x->layers, q = 0;
    while (q < x->queued && x->queue[q] != slot) q++;
    return q * x->layers + x->layers - 1 - place % x->layers;
}

/* The buffer that holds an input; NULL: none does. */
static buffer *find(weft__offload *x, int64_t place)
{
    for (int i = 0; i < x->n; i++)
        if (x->buffer[i].holds == place) return &x->buffer[i];
    return NULL;
}

/* The buffer that can be missed longest, of several the one that was moved first; never of those in use, which are
 * fewer than there are. */
static buffer *spare(weft__offload *x)
{
    buffer *best = NULL;
    for (int i = 0; i < x->n; i++) {
        buffer *b = &x->buffer[i];
        if (b->used) continue;
        int64_t later = best ? turn_of(x, b->holds) - turn_of(x, best->holds) : 1;
        if (later > 0 || (later == 0 && b->move < best->move)) best = b;
    }
    return best;
}

/* The first input in the order that is in no buffer; NOTHING: all are, or none is alive. */
static int64_t first_missing(weft__offload *x)
{
    for (int q = 0; q < x->queued; q++)
        for (int64_t l = x->there[x->queue[q]] - 1; l >= 0; l--)
            if (!find(x, place_of(x, x->queue[q], l))) return place_of(x, x->queue[q], l);
    return NOTHING;
}

/* ---- moves -------------------------------------------------------------------------------------------- */

static weft_status failed(const weft__pass *p, weft_status st)
{
    return p->layer < 0 ? weft_fail_at(st, "offloaded inputs of layers: ")
                        : weft_fail_at(st, "offloaded inputs of layers, at layer %d: ", p->layer);
}

/* Messages go on meanwhile: other ranks may wait for this one to take part in them. */
static weft_status wait_for(const weft__pass *p, int64_t move)
{
    const double slice = 1e-3;
    weft_world *world = weft_comm_world(p->m->cp);
    weft_spill *spill = p->m->offload->spill;
    const double most = weft_world_timeout(world);
    bool over = false;
    weft_status st = weft_spill_wait(spill, move, 0, &over);
    if (over && st >= 0) return WEFT_OK;
    weft_part outer = weft__part(p, WEFT_PART_OFFLOAD);
    weft_place(world, "wait for an offloaded input", p->layer, -1);
    for (double waited = 0; st >= 0 && !over; waited += slice) {
        if (waited > most)
            st = weft_fail(WEFT_ERR_TIMEOUT, "not moved within %g s; is the disk stuck?", most);
        else st = weft_spill_wait(spill, move, slice, &over);
        weft_progress(world);
    }
    weft_place(world, "layer", p->layer, -1);
    weft__part_end(p, outer);
    return st < 0 ? failed(p, st) : WEFT_OK;
}

static weft_status begin_reading(const weft__pass *p, buffer *b, int64_t place)
{
    weft__offload *x = p->m->offload;
    b->holds = place;
    b->coming = true;
    weft_status st = weft_spill_get(x->spill, place, b->data, x->bytes[place / x->layers], &b->move);
    return st < 0 ? failed(p, st) : WEFT_OK;
}

/* Buffers, but one, with inputs of other micro-batches than this pass's. */
static int held_for_others(const weft__offload *x, int slot, const buffer *but)
{
    int n = 0;
    for (int i = 0; i < x->n; i++) {
        const buffer *b = &x->buffer[i];
        n += b != but && b->holds != NOTHING && b->holds / x->layers != slot;
    }
    return n;
}

/* Unless all slots are taken a forward pass may be next: what it would have to give up is not read for others. */
static weft_status read_ahead(const weft__pass *p, bool backward)
{
    weft__offload *x = p->m->offload;
    const int most = !backward && x->queued == p->m->slots ? x->n : x->n - IN_USE;
    for (;;) {
        int64_t place = first_missing(x);
        buffer *b = spare(x);
        if (place == NOTHING || !b || turn_of(x, b->holds) <= turn_of(x, place)) return WEFT_OK;
        if (place / x->layers != p->slot && held_for_others(x, p->slot, b) >= most) return WEFT_OK;
        WEFT_TRY(begin_reading(p, b, place));
    }
}

/* A buffer to write to, in use from now on. */
static weft_status take(const weft__pass *p, int64_t place, void **data)
{
    buffer *b = spare(p->m->offload);
    WEFT_TRY(wait_for(p, b->move));
    b->holds = place;
    b->coming = false;
    b->used = true;
    *data = b->data;
    return WEFT_OK;
}

static void release(weft__offload *x)
{
    for (int i = 0; i < x->n; i++) x->buffer[i].used = false;
}

/* Inputs of layers from `layer` on of a slot are not needed any more. */
static void drop(weft__offload *x, int slot, int64_t layer)
{
    for (int i = 0; i < x->n; i++) {
        int64_t place = x->buffer[i].holds;
        if (place != NOTHING && place / x->layers == slot && place % x->layers >= layer) x->buffer[i].holds = NOTHING;
    }
    x->there[slot] = weft_min_i64(x->there[slot], layer);
}

/* Takes a slot out of the queue, and puts it in at the front or at the end. */
enum { FRONT, END, OUT };
static void enqueue(weft__offload *x, int slot, int where)
{
    int n = 0;
    for (int q = 0; q < x->queued; q++)
        if (x->queue[q] != slot) x->queue[n++] = x->queue[q];
    x->queued = n;
    if (where == OUT) return;
    if (where == FRONT) memmove(x->queue + 1, x->queue, (size_t)n * sizeof *x->queue);
    x->queue[where == FRONT ? 0 : n] = slot;
    x->queued++;
}

/* ---- passes ------------------------------------------------------------------------------------------- */

/* Of a pass that no backward pass follows nothing is kept, or moved. */
static int64_t kept_place(const weft__pass *p, int64_t layer)
{
    return p->training ? place_of(p->m->offload, p->slot, layer) : NOTHING;
}

weft_status weft__offload_begin(const weft__pass *p)
{
    weft__offload *x = p->m->offload;
    if (!x) return WEFT_OK;
    release(x); /* a pass that failed left them in use */
    drop(x, p->slot, 0);
    enqueue(x, p->slot, p->training ? END : OUT);
    x->bytes[p->slot] = (size_t)(weft__stream_count(p) * p->m->config.C) * p->m->rs;
    return take(p, kept_place(p, 0), &weft__acts_of(p->m, p->slot, p->m->layers.begin)->x_in);
}

/* x_in(l) -> its place */
static weft_status put(const weft__pass *p, int64_t layer)
{
    weft__offload *x = p->m->offload;
    const int64_t place = place_of(x, p->slot, layer);
    buffer *b = find(x, place);
    weft_status st = weft_spill_put(x->spill, place, b->data, x->bytes[p->slot], &b->move);
    x->there[p->slot] = layer + 1;
    return st < 0 ? failed(p, st) : WEFT_OK;
}

weft_status weft__offload_fwd(weft__pass *p, int64_t l)
{
    weft_model *m = p->m;
    weft__offload *x = m->offload;
    if (!x) return WEFT_OK;
    weft__acts *a = weft__acts_of(m, p->slot, l);
    const int64_t layer = l - m->layers.begin;
    p->layer = (int)l;
    for (int i = 0; i < x->n; i++) x->buffer[i].used = x->buffer[i].data == a->x_in;
    if (p->training) WEFT_TRY(put(p, layer));
    if (layer + 1 < x->layers) {
        weft__acts *after = weft__acts_of(m, p->slot, l + 1);
        WEFT_TRY(take(p, kept_place(p, layer + 1), &after->x_in));
        if (m->recompute == WEFT_RECOMPUTE_FULL) a->x_mid = after->x_in;
    }
    return read_ahead(p, false);
}

weft_status weft__offload_bwd(weft__pass *p, int64_t l)
{
    weft_model *m = p->m;
    weft__offload *x = m->offload;
    if (!x) return WEFT_OK;
    weft__acts *a = weft__acts_of(m, p->slot, l);
    const int64_t layer = l - m->layers.begin, place = place_of(x, p->slot, layer);
    p->layer = (int)l;
    release(x);
    drop(x, p->slot, layer + 1);
    if (layer + 1 == x->layers) enqueue(x, p->slot, FRONT);
    buffer *b = find(x, place);
    if (!b) WEFT_TRY(begin_reading(p, b = spare(x), place));
    b->used = true;
    a->x_in = b->data;
    if (m->recompute == WEFT_RECOMPUTE_FULL && layer + 1 < x->layers) WEFT_TRY(take(p, NOTHING, &a->x_mid));
    WEFT_TRY(read_ahead(p, true));
    return b->coming ? wait_for(p, b->move) : WEFT_OK;
}

weft_status weft__offload_end(const weft__pass *p, bool backward)
{
    weft__offload *x = p->m->offload;
    if (!x) return WEFT_OK;
    release(x);
    if (backward) drop(x, p->slot, 0), enqueue(x, p->slot, OUT);
    return read_ahead(p, backward);
}
