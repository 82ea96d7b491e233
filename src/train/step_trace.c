/* step_trace.c — the time line of chosen training steps: room for events, made once; one clock for all ranks; the file,
 * which rank 0 writes from what the others send it.
 *
 * What is recorded begins before a step and ends where the next one begins, so that evaluation and checkpoint are in
 * it. No message is under way at either end, which is what arrows rest on (metrics/chrome.c). */
#include "train/trainer_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct weft_step_trace {
    weft_trainer *t;
    const int *rank;      /* [ranks] that are recorded, ascending */
    int ranks;
    bool mine, apart;     /* this rank is one of them; clocks of several machines */
    const weft_numbers *steps;
    int n_steps;
    weft_trace room;      /* of this rank */
    double origin;
    int64_t step;         /* that is recorded; 0: none */
};

/* What rank 0 gets of a rank, before its events. */
typedef struct sheet {
    int64_t written, held;
    double origin;
    weft_trace_names names;
} sheet;

enum { TAG_SHEET = 1, TAG_EVENTS };

/* ---- clocks ------------------------------------------------------------------------------------------------ */

/* A number that all processes of one machine have since it was started; 0: not known. */
static int64_t machine(void)
{
    char id[64];
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    const size_t n = f ? fread(id, 1, sizeof id, f) : 0;
    if (f) fclose(f);
    return n ? (int64_t)(weft_hash_of(id, n).low >> 1) : 0;
}

/* The clock counts from a machine's start: where all ranks are on one, it is the same. COLLECTIVE */
static weft_status compare_clocks(const weft_world *w, bool *apart)
{
    int64_t m = machine(), both[2] = {m, -m};
    *apart = false;
    if (strcmp(weft_world_transport(w), "mpi")) return WEFT_OK;
    WEFT_TRY(weft_all_reduce(weft_world_all(w), both, 2, WEFT_I64, WEFT_MAX));
    *apart = both[0] != -both[1] || both[0] == 0;
    return WEFT_OK;
}

/* ---- recording --------------------------------------------------------------------------------------------- */

static bool among(const int *rank, int n, int r)
{
    for (int i = 0; i < n; i++)
        if (rank[i] == r) return true;
    return false;
}

weft_status weft_step_trace_open(weft_step_trace **out, weft_trainer *t, const int *ranks, int n,
                                 const weft_numbers *steps, int n_steps)
{
    weft_step_trace *s;
    WEFT_TRY(WEFT_NEW0(t->arena, 1, "trace", &s));
    *s = (weft_step_trace){.t = t, .rank = ranks, .ranks = n, .mine = among(ranks, n, t->ctx->rank), .steps = steps,
                           .n_steps = n_steps};
    WEFT_TRY(compare_clocks(t->world, &s->apart));
    if (s->mine) WEFT_TRY(weft_trace_init(&s->room, t->arena, WEFT_TRACE_EVENTS));
    *out = s;
    return WEFT_OK;
}

static bool wanted(const weft_step_trace *s, int64_t step)
{
    for (int i = 0; i < s->n_steps; i++)
        if (step >= s->steps[i].first && step <= s->steps[i].last) return true;
    return false;
}

weft_status weft_step_trace_begin(weft_step_trace *s, int64_t step)
{
    if (!s || !wanted(s, step)) return WEFT_OK;
    weft_ctx *ctx = s->t->ctx;
    weft_comm *all = weft_world_all(s->t->world);
    WEFT_TRY(weft_barrier(all));
    s->origin = weft_now(&ctx->clock);
    if (!s->apart) WEFT_TRY(weft_all_reduce(all, &s->origin, 1, WEFT_F64, WEFT_MIN));
    s->step = step;
    s->room.written = 0;
    if (s->mine) ctx->trace = s->room;
    return WEFT_OK;
}

void weft_step_trace_close(weft_step_trace *s)
{
    if (s) s->t->ctx->trace = (weft_trace){0};
}

/* ---- the file ---------------------------------------------------------------------------------------------- */

static weft_status give(const weft_step_trace *s, const sheet *own)
{
    weft_comm *all = weft_world_all(s->t->world);
    weft_req req[2];
    WEFT_TRY(weft_isend(all, own, sizeof *own, 0, TAG_SHEET, WEFT_MEM_HOST, NULL, &req[0]));
    WEFT_TRY(weft_isend(all, s->room.ring, (size_t)own->held * sizeof *s->room.ring, 0, TAG_EVENTS, WEFT_MEM_HOST, NULL,
                        &req[1]));
    return weft_wait_all(req, 2);
}

static weft_status take(const weft_step_trace *s, int rank, sheet *x, weft_event **events)
{
    weft_comm *all = weft_world_all(s->t->world);
    weft_req req;
    WEFT_TRY(weft_irecv(all, x, sizeof *x, rank, TAG_SHEET, WEFT_MEM_HOST, NULL, &req));
    WEFT_TRY(weft_wait(&req));
    *events = malloc((size_t)(x->held + 1) * sizeof **events);
    if (!*events) return weft_fail(WEFT_ERR_MEMORY, "no memory for %lld events of rank %d", (long long)x->held, rank);
    WEFT_TRY(weft_irecv(all, *events, (size_t)x->held * sizeof **events, rank, TAG_EVENTS, WEFT_MEM_HOST, NULL, &req));
    return weft_wait(&req);
}

static weft_status write_file(const weft_step_trace *s, const char *path, const weft_chrome_rank *ranks,
                              weft_chrome_told *told)
{
    weft_text text = {0};
    weft_status st = weft_chrome_write(
        &text, ranks, s->ranks,
        s->apart ? "clocks of several machines, set alike by a barrier before the step: to within a few messages' time"
                 : "one clock for all ranks",
        told);
    if (st >= 0) st = weft_write_file(path, text.data, text.len);
    weft_text_free(&text);
    return st;
}

typedef struct sheets { /* on rank 0 */
    sheet *sheet;
    weft_event **events;
    weft_trace *trace;
    weft_chrome_rank *rank;
} sheets;

static void drop(sheets *x, int n)
{
    for (int i = 0; x->events && i < n; i++) free(x->events[i]);
    free(x->sheet);
    free(x->events);
    free(x->trace);
    free(x->rank);
}

static weft_status collect(const weft_step_trace *s, const sheet *own, sheets *x)
{
    const size_t n = (size_t)s->ranks + 1;
    x->sheet = calloc(n, sizeof *x->sheet);
    x->events = calloc(n, sizeof *x->events);
    x->trace = calloc(n, sizeof *x->trace);
    x->rank = calloc(n, sizeof *x->rank);
    if (!x->sheet || !x->events || !x->trace || !x->rank)
        return weft_fail(WEFT_ERR_MEMORY, "no memory for the events of %d ranks", s->ranks);
    for (int i = 0; i < s->ranks; i++) {
        sheet *k = &x->sheet[i];
        const bool here = s->rank[i] == 0;
        if (here) *k = *own;
        else WEFT_TRY(take(s, s->rank[i], k, &x->events[i]));
        x->trace[i] = (weft_trace){here ? s->room.ring : x->events[i], &k->names, k->held, k->written};
        x->rank[i] = (weft_chrome_rank){s->rank[i], k->origin, &x->trace[i]};
    }
    return WEFT_OK;
}

static weft_status bring_together(const weft_step_trace *s, const sheet *own, const char *path, weft_step_traced *out)
{
    sheets x = {0};
    if (s->t->ctx->rank) return s->mine ? give(s, own) : WEFT_OK;
    weft_status st = collect(s, own, &x);
    if (st >= 0) out->file = write_file(s, path, x.rank, &out->told);
    drop(&x, s->ranks);
    return st;
}

weft_status weft_step_trace_end(weft_step_trace *s, const char *path, weft_step_traced *out)
{
    *out = (weft_step_traced){0};
    if (!s || !s->step) return WEFT_OK;
    weft_ctx *ctx = s->t->ctx;
    sheet *own = calloc(1, sizeof *own);
    if (!own) return weft_fail(WEFT_ERR_MEMORY, "no memory for the events of a step");
    if (s->mine) {
        s->room = ctx->trace;
        ctx->trace = (weft_trace){0};
        *own = (sheet){s->room.written, weft_trace_held(&s->room), s->origin, *s->room.names};
    }
    out->written = true;
    s->step = 0;
    weft_status st = bring_together(s, own, path, out);
    free(own);
    return st;
}
