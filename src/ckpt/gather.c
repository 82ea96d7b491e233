/* gather.c — whole tensors from the parts that ranks hold.
 *
 * Every rank announces what it gives: which tensor, which elements of its part, and how that part was cut. From then on
 * all know all, and both ends of a transfer count its messages alike. A part is one stretch of its owner's memory, so
 * it is sent as it lies; the rank that gets it puts the elements where they belong in the whole, a few MiB at a time.
 */
#include "ckpt/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20, WINDOW = 4, TAG = 17 };

typedef struct given {                  /* as it travels: no pointers */
    int64_t number, first, count, here; /* here: indices of the cut dimension that the part has */
    weft_span cut[WEFT_SPEC_CUTS];
    int32_t cut_dim, cuts;
} given;

typedef struct source { /* one part of a tensor */
    const given *what;
    int rank, index; /* who announced it, as which of its own */
} source;

struct weft_gather {
    weft_mesh mesh;
    const weft_spec *whole;
    int n_whole;
    weft_dtype dtype;
    bool copies;
    given *mine, *all;
    const void **data; /* [n_mine] */
    int n_mine, n_all;
    source *source; /* [n_all] by tensor */
    int *first;     /* [n_whole + 1] in source */
    void *window;   /* [WINDOW] chunks */
};

/* ---- what this rank gives --------------------------------------------------------------------------------- */

void weft_pieces_of(const weft_spec *spec, int n, void *array, weft_dtype dtype, weft_piece *piece)
{
    for (int i = 0; i < n; i++)
        piece[i] = (weft_piece){i, 0, spec[i].count, (char *)array + (size_t)spec[i].offset * weft_dtype_size(dtype)};
}

/* The owned elements of a piece, if any. */
static bool owned(const weft_spec *s, const weft_piece *p, int64_t *first, int64_t *count)
{
    int64_t end = weft_min_i64(p->first + p->count, s->own_first + s->own_count);
    *first = weft_max_i64(p->first, s->own_first);
    *count = end - *first;
    return *count > 0;
}

static weft_status list_mine(weft_gather *g, const weft_held *parts)
{
    g->mine = calloc((size_t)parts->pieces + 1, sizeof *g->mine);
    g->data = calloc((size_t)parts->pieces + 1, sizeof *g->data);
    if (!g->mine || !g->data) return weft_fail(WEFT_ERR_MEMORY, "no memory to list %d parts", parts->pieces);
    for (int i = 0; i < parts->pieces; i++) {
        const weft_piece *p = &parts->piece[i];
        const weft_spec *s = &parts->spec[p->spec];
        given x = {.number = s->number, .cut_dim = s->cut_dim, .cuts = s->cuts};
        if (!owned(s, p, &x.first, &x.count)) continue;
        if (s->cut_dim >= 0) {
            x.here = s->shape[s->cut_dim];
            memcpy(x.cut, s->cut, sizeof x.cut);
        }
        g->data[g->n_mine] = (const char *)p->data + (size_t)(x.first - p->first) * weft_dtype_size(g->dtype);
        g->mine[g->n_mine++] = x;
    }
    return WEFT_OK;
}

/* Of ranks that hold copies only the first announces. */
static bool announces(const weft_gather *g) { return !g->copies || (g->mesh.at.cp == 0 && g->mesh.at.dp == 0); }

/* ---- who gives what ----------------------------------------------------------------------------------------- */

static weft_status exchange(weft_gather *g, size_t *bytes)
{
    int world = weft_comm_size(g->mesh.all);
    size_t eight[1] = {sizeof(int64_t)}, *each = malloc((size_t)world * sizeof *each), total = 0;
    if (!each) return weft_fail(WEFT_ERR_MEMORY, "no memory for the parts of %d ranks", world);
    for (int r = 0; r < world; r++) each[r] = *eight;
    int64_t own = announces(g) ? g->n_mine : 0, *n = calloc((size_t)world, sizeof *n);
    weft_status st = n ? weft_all_gather(g->mesh.all, &own, n, each)
                       : weft_fail(WEFT_ERR_MEMORY, "no memory for the parts of %d ranks", world);
    for (int r = 0; st >= 0 && r < world; r++) total += bytes[r] = (size_t)n[r] * sizeof(given);
    free(each);
    free(n);
    WEFT_TRY(st);
    g->n_all = (int)(total / sizeof(given));
    g->all = malloc(total + 1);
    if (!g->all) return weft_fail(WEFT_ERR_MEMORY, "no memory for %d parts", g->n_all);
    return weft_all_gather(g->mesh.all, g->mine, g->all, bytes);
}

/* Row of the table of the whole model; -1: none. */
static int row_of(const weft_gather *g, int64_t number)
{
    if (number >= 0 && number < g->n_whole && g->whole[number].number == number) return (int)number;
    for (int i = 0; i < g->n_whole; i++)
        if (g->whole[i].number == number) return i;
    return -1;
}

/* Counting sort by tensor; within one in the order of ranks. */
static weft_status sort(weft_gather *g, const size_t *bytes)
{
    int *row = calloc((size_t)g->n_all + 1, sizeof *row), *at = calloc((size_t)g->n_whole + 1, sizeof *at);
    g->first = calloc((size_t)g->n_whole + 2, sizeof *g->first);
    g->source = calloc((size_t)g->n_all + 1, sizeof *g->source);
    bool got = row && at && g->first && g->source;
    weft_status st = got ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory for %d parts", g->n_all);
    for (int i = 0; st >= 0 && i < g->n_all; i++) {
        row[i] = row_of(g, g->all[i].number);
        if (row[i] < 0)
            st = weft_fail(WEFT_ERR_INTERNAL, "a rank has a part of tensor %lld, which the model lacks",
                           (long long)g->all[i].number);
        else g->first[row[i] + 1]++;
    }
    for (int t = 0; st >= 0 && t < g->n_whole; t++) g->first[t + 1] += g->first[t];
    for (int i = 0, rank = 0, before = 0; st >= 0 && i < g->n_all; i++) {
        while ((size_t)(i - before) * sizeof(given) >= bytes[rank]) before += (int)(bytes[rank++] / sizeof(given));
        g->source[g->first[row[i]] + at[row[i]]++] = (source){&g->all[i], rank, i - before};
    }
    free(row);
    free(at);
    return st;
}

static weft_status check_complete(const weft_gather *g)
{
    for (int t = 0; t < g->n_whole; t++) {
        int64_t have = 0, need = weft_spec_whole_count(&g->whole[t]);
        for (int i = g->first[t]; i < g->first[t + 1]; i++) have += g->source[i].what->count;
        if (have != need)
            return weft_fail(WEFT_ERR_INTERNAL, "tensor %s: the ranks own %lld of its %lld elements", g->whole[t].name,
                             (long long)have, (long long)need);
    }
    return WEFT_OK;
}

/* What may fail on one rank alone is agreed on before anything else is sent. */
static weft_status build(weft_gather *g, const weft_held *parts)
{
    size_t *bytes = calloc((size_t)weft_comm_size(g->mesh.all), sizeof *bytes);
    g->window = malloc((size_t)WINDOW * CHUNK_BYTES);
    weft_status st =
        bytes && g->window ? list_mine(g, parts) : weft_fail(WEFT_ERR_MEMORY, "no memory to gather tensors");
    st = weft_agree(g->mesh.all, st);
    if (st >= 0) st = exchange(g, bytes);
    if (st >= 0) st = sort(g, bytes);
    if (st >= 0) st = check_complete(g);
    free(bytes);
    return st;
}

weft_status weft_gather_create(weft_gather **out, const weft_mesh *mesh, const weft_held *parts, const weft_spec *whole,
                               int n_whole)
{
    weft_gather *g = calloc(1, sizeof *g);
    weft_place(mesh->world, "gather whole tensors", -1, -1);
    if (!g) return weft_fail(WEFT_ERR_MEMORY, "no memory to gather tensors");
    *g = (weft_gather){.mesh = *mesh,
                       .whole = whole,
                       .n_whole = n_whole,
                       .dtype = parts->dtype,
                       .copies = parts->copies};
    weft_status st = build(g, parts);
    if (st < 0) weft_gather_destroy(g);
    else *out = g;
    return st;
}

void weft_gather_destroy(weft_gather *g)
{
    if (!g) return;
    free(g->mine);
    free(g->all);
    free(g->data);
    free(g->source);
    free(g->first);
    free(g->window);
    free(g);
}

/* ---- one round ------------------------------------------------------------------------------------------------ */

/* Of ranks with copies, the one beside the rank that gets it: itself where it can be, and each copy of the model is
 * asked for its share. */
static int giver(const weft_gather *g, const source *s, int to)
{
    if (!g->copies) return s->rank;
    weft_mesh_shape at = weft_mesh_coords(g->mesh.size, s->rank), near = weft_mesh_coords(g->mesh.size, to);
    at.cp = near.cp;
    at.dp = near.dp;
    return weft_mesh_rank(g->mesh.size, at);
}

static int64_t chunk_of(const weft_gather *g) { return CHUNK_BYTES / (int64_t)weft_dtype_size(g->dtype); }

typedef struct target {
    void *data;
    weft_dtype dtype;
} target;

/* Elements [first, first + count) of a part, to their places in the whole. */
static void put(const weft_gather *g, const weft_spec *whole, const given *x, int64_t first, int64_t count,
                const void *data, const target *into)
{
    weft_spec part = *whole;
    weft_stretch s;
    weft_spec_uncut(&part);
    part.cut_dim = x->cut_dim;
    part.cuts = x->cuts;
    memcpy(part.cut, x->cut, sizeof part.cut);
    if (x->cut_dim >= 0) part.shape[x->cut_dim] = x->here;
    weft_spec_walk w = weft_spec_walk_of(&part, first, count);
    while (weft_spec_walk_next(&w, &s))
        weft_convert((char *)into->data + (size_t)s.whole * weft_dtype_size(into->dtype), into->dtype,
                     (const char *)data + (size_t)(s.at - first) * weft_dtype_size(g->dtype), g->dtype, s.n);
}

typedef struct arrival {
    const source *from;
    int64_t first, count;
} arrival; /* one message, in the order of sending */

/* The next message to this rank; false at the end. */
static bool next_arrival(const weft_gather *g, int tensor, int me, int *i, int64_t *at, arrival *out)
{
    for (; *i < g->first[tensor + 1]; ++*i, *at = 0) {
        const source *s = &g->source[*i];
        if (giver(g, s, me) == me || *at >= s->what->count) continue;
        *out = (arrival){s, s->what->first + *at, weft_min_i64(chunk_of(g), s->what->count - *at)};
        *at += out->count;
        return true;
    }
    return false;
}

static weft_status receive(weft_gather *g, int tensor, const target *into)
{
    size_t size = weft_dtype_size(g->dtype);
    int me = weft_comm_rank(g->mesh.all), i = g->first[tensor], posted = 0, done = 0;
    int64_t at = 0;
    bool more = true;
    arrival a[WINDOW];
    weft_req req[WINDOW];
    for (;;) {
        while (more && posted - done < WINDOW) {
            int k = posted % WINDOW;
            more = next_arrival(g, tensor, me, &i, &at, &a[k]);
            if (!more) break;
            WEFT_TRY(weft_irecv(g->mesh.all, (char *)g->window + (size_t)k * CHUNK_BYTES, (size_t)a[k].count * size,
                                giver(g, a[k].from, me), TAG, WEFT_MEM_HOST, NULL, &req[k]));
            posted++;
        }
        if (done == posted) return WEFT_OK;
        int k = done++ % WINDOW;
        WEFT_TRY(weft_wait(&req[k]));
        put(g, &g->whole[tensor], a[k].from->what, a[k].first, a[k].count, (char *)g->window + (size_t)k * CHUNK_BYTES,
            into);
    }
}

/* Messages of this rank in a round: counted with req NULL, else posted. */
static weft_status send(weft_gather *g, const int *tensor, weft_req *req, int *n)
{
    int world = weft_comm_size(g->mesh.all), me = weft_comm_rank(g->mesh.all);
    size_t size = weft_dtype_size(g->dtype);
    *n = 0;
    for (int k = 1; k < world; k++) {
        int to = (me + k) % world; /* not all to the same rank at once */
        if (tensor[to] < 0) continue;
        for (int i = g->first[tensor[to]]; i < g->first[tensor[to] + 1]; i++) {
            const source *s = &g->source[i];
            if (giver(g, s, to) != me) continue;
            for (int64_t at = 0; at < s->what->count; at += chunk_of(g), ++*n)
                if (req)
                    WEFT_TRY(weft_isend(g->mesh.all, (const char *)g->data[s->index] + (size_t)at * size,
                                        (size_t)weft_min_i64(chunk_of(g), s->what->count - at) * size, to, TAG,
                                        WEFT_MEM_HOST, NULL, &req[*n]));
        }
    }
    return WEFT_OK;
}

static void take_own(weft_gather *g, int tensor, const target *into)
{
    int me = weft_comm_rank(g->mesh.all);
    for (int i = g->first[tensor]; i < g->first[tensor + 1]; i++) {
        const source *s = &g->source[i];
        if (giver(g, s, me) == me)
            put(g, &g->whole[tensor], s->what, s->what->first, s->what->count, g->data[s->index], into);
    }
}

weft_status weft_gather_round(weft_gather *g, const int *tensor, void *into, weft_dtype dtype)
{
    int sends = 0, me = weft_comm_rank(g->mesh.all);
    const target at = {into, dtype};
    weft_place(g->mesh.world, "gather whole tensors", -1, -1);
    WEFT_TRY(send(g, tensor, NULL, &sends));
    weft_req *req = calloc((size_t)sends + 1, sizeof *req);
    if (!req) return weft_fail(WEFT_ERR_MEMORY, "no memory to send %d pieces of tensors", sends);
    weft_status st = send(g, tensor, req, &sends);
    if (st >= 0 && tensor[me] >= 0) {
        take_own(g, tensor[me], &at);
        st = receive(g, tensor[me], &at);
    }
    if (st >= 0) st = weft_wait_all(req, sends);
    free(req);
    return st;
}

/* ---- all tensors on rank 0 -------------------------------------------------------------------------------------- */

/* What fails on rank 0 alone is told at the end: until then the others send. */
static weft_status each_round(weft_gather *g, int *tensor, void *buffer, weft_whole_fn fn, void *ud)
{
    bool root = weft_comm_rank(g->mesh.all) == 0;
    weft_status said = WEFT_OK;
    char why[1024] = "";
    for (int i = 0; i < g->n_whole; i++) {
        tensor[0] = i;
        WEFT_TRY(weft_gather_round(g, tensor, buffer, g->dtype));
        if (!root || said < 0) continue;
        said = fn(ud, &g->whole[i], buffer);
        if (said < 0) snprintf(why, sizeof why, "%s", weft_last_error());
    }
    return weft_agree(g->mesh.all, said < 0 ? weft_fail(said, "%s", why) : WEFT_OK);
}

weft_status weft_gather_each(const weft_mesh *mesh, const weft_held *parts, const weft_spec *whole, int n_whole,
                             weft_whole_fn fn, void *ud)
{
    weft_gather *g = NULL;
    int world = weft_comm_size(mesh->all);
    int64_t most = 0;
    size_t bytes = 0;
    for (int i = 0; i < n_whole; i++) most = weft_max_i64(most, weft_spec_whole_count(&whole[i]));
    WEFT_TRY(weft_size_of(most, weft_dtype_size(parts->dtype), "the largest tensor", &bytes));
    WEFT_TRY(weft_gather_create(&g, mesh, parts, whole, n_whole));
    int *tensor = malloc((size_t)world * sizeof *tensor);
    void *buffer = weft_comm_rank(mesh->all) == 0 ? malloc(bytes + 1) : g->window;
    weft_status st =
        tensor && buffer ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory for a tensor of %zu bytes", bytes);
    for (int r = 0; st >= 0 && r < world; r++) tensor[r] = -1;
    st = weft_agree(mesh->all, st);
    if (st >= 0) st = each_round(g, tensor, buffer, fn, ud);
    free(tensor);
    if (buffer != g->window) free(buffer);
    weft_gather_destroy(g);
    return st;
}
