/* memory.c — what the ranks of a run hold, by kind, beside what was planned for them. */
#include "train/trainer_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KINDS = WEFT_MEMORY_KINDS };

typedef struct numbers { /* of one rank, as they are gathered */
    int64_t counted[KINDS + 1], planned[KINDS + 1], resident; /* the last one in a file */
    int64_t room, process;     /* bytes that its machine can still give; its process there */
    char host[WEFT_HOST_BYTES];
} numbers;

static weft_status plan_checkpoint(const weft__memory_of *x, weft_arena *arena, weft_memory *out)
{
    const weft_engine *e = x->engine;
    int *writer = NULL, writers = 0;
    int64_t *bytes = NULL;
    weft_comm *all = e->mesh.all;
    if (!x->saves) return WEFT_OK;
    WEFT_TRY(weft_run_writers(e->run, all, arena, &writer, &writers));
    WEFT_TRY(WEFT_NEW(arena, weft_comm_size(all), "report", &bytes));
    WEFT_TRY(weft_run_checkpoint_bytes(e->run, &e->config, arena, writer, writers, weft_comm_size(all), bytes));
    out->bytes[WEFT_MEMORY_CHECKPOINT] = bytes[weft_comm_rank(all)];
    return WEFT_OK;
}

static weft_status plan(const weft__memory_of *x, weft_memory *out)
{
    const weft_engine *e = x->engine;
    const weft_run_options *o = e->run->o;
    const weft_engine_options eo = {.B = o->micro_batch, .T = o->seq_length, .max_docs = x->max_docs,
                                    .micros = x->micros, .train = x->train};
    const weft_memory_ask ask = {
        .config = &e->config, .options = weft_engine_model_options(e->run, &eo), .cp = e->mesh.size.cp,
        .cp_rank = e->mesh.at.cp,
        .at = weft_plan_rank_of(&e->mesh, e->run->sequence_parallel, (int)o->zero_stage),
        .threads = e->ctx->threads, .micros = x->micros,
    };
    return weft_plan_memory(out, &e->kern, e->mesh.all, &ask);
}

static void copy_in(int64_t *of, const weft_memory *m)
{
    for (int k = 0; k < KINDS; k++) of[k] = m->bytes[k];
    of[KINDS] = m->file;
}

static void copy_out(weft_memory *m, const int64_t *of)
{
    for (int k = 0; k < KINDS; k++) m->bytes[k] = of[k];
    m->file = of[KINDS];
}

static int64_t sum(const int64_t *of)
{
    int64_t all = 0;
    for (int i = 0; i < KINDS; i++) all += of[i];
    return all;
}

static void spread_of_totals(weft_memory_report *r, const numbers *of, int ranks)
{
    r->least_total = r->most_total = sum(of[0].counted);
    for (int i = 0; i < ranks; i++) {
        int64_t total = sum(of[i].counted);
        r->least_total = weft_min_i64(r->least_total, total);
        r->most_total = weft_max_i64(r->most_total, total);
        r->mean_total += (double)total / ranks;
    }
}

static void merge(weft_memory_report *r, const numbers *of, int ranks)
{
    *r = (weft_memory_report){.ranks = ranks, .resident = of[0].resident, .least_resident = of[0].resident};
    spread_of_totals(r, of, ranks);
    for (int i = 1; i < ranks; i++) {
        if (sum(of[i].counted) > sum(of[r->rank].counted)) r->rank = i;
        if (sum(of[i].planned) > sum(of[r->needs].planned)) r->needs = i;
        r->resident = weft_max_i64(r->resident, of[i].resident);
        r->least_resident = weft_min_i64(r->least_resident, of[i].resident);
    }
    numbers least = of[0], most = of[0];
    for (int k = 0; k <= KINDS; k++)
        for (int i = 1; i < ranks; i++) {
            least.counted[k] = weft_min_i64(least.counted[k], of[i].counted[k]);
            most.counted[k] = weft_max_i64(most.counted[k], of[i].counted[k]);
        }
    copy_out(&r->counted, of[r->rank].counted);
    copy_out(&r->planned, of[r->rank].planned);
    copy_out(&r->needed, of[r->needs].planned);
    copy_out(&r->least, least.counted);
    copy_out(&r->most, most.counted);
}

static int by_process(const void *a, const void *b)
{
    const numbers *x = a, *y = b;
    int order = strcmp(x->host, y->host);
    return order ? order : (x->process > y->process) - (x->process < y->process);
}

/* Sorts the ranks. What ranks of one process hold by now, as threads, counts once. */
static void find_tightest(weft_memory_report *r, numbers *of, int ranks)
{
    qsort(of, (size_t)ranks, sizeof *of, by_process);
    for (int i = 0; i < ranks;) {
        weft_memory_machine m = {.room = of[i].room};
        snprintf(m.host, sizeof m.host, "%s", of[i].host);
        for (; i < ranks && !strcmp(of[i].host, m.host); i++, m.ranks++) {
            m.planned += sum(of[i].planned);
            if (m.ranks == 0 || by_process(&of[i - 1], &of[i])) m.room += of[i].resident;
        }
        if (r->tightest.ranks == 0 || m.room - m.planned < r->tightest.room - r->tightest.planned) r->tightest = m;
    }
}

weft_status weft__memory_report(const weft__memory_of *x, weft_memory_report *out)
{
    weft_ctx *ctx = x->engine->ctx;
    weft_comm *all = x->engine->mesh.all;
    int ranks = weft_comm_size(all), me = weft_comm_rank(all);
    weft_memory counted, planned;
    numbers *of = NULL;
    size_t *bytes = NULL;
    weft_arena *arena = NULL;
    weft_memory_count(&ctx->mem, &counted);
    counted.file = weft_model_file_bytes(x->engine->model);
    weft_status st = weft_arena_create(&arena, &ctx->mem, "memory report", NULL);
    if (st >= 0) st = WEFT_NEW0(arena, ranks, "report", &of);
    if (st >= 0) st = WEFT_NEW(arena, ranks, "report", &bytes);
    if (st >= 0) st = plan(x, &planned);
    st = weft_agree(all, st);
    if (st >= 0) st = weft_agree(all, plan_checkpoint(x, arena, &planned));
    if (st >= 0) {
        for (int i = 0; i < ranks; i++) bytes[i] = sizeof *of;
        copy_in(of[me].counted, &counted);
        copy_in(of[me].planned, &planned);
        of[me].resident = (int64_t)weft_resident_bytes();
        of[me].room = (int64_t)weft_min_size(weft_machine_room(), INT64_MAX / 4);
        of[me].process = getpid();
        gethostname(of[me].host, sizeof of[me].host - 1);
        st = weft_all_gather(all, &of[me], of, bytes);
    }
    if (st >= 0) {
        merge(out, of, ranks);
        find_tightest(out, of, ranks);
        out->own = counted;
        out->own_planned = planned;
    }
    weft_arena_destroy(arena);
    return st;
}

weft_status weft_trainer_memory(weft_trainer *t, weft_memory_report *out)
{
    const bool train = t->optim != NULL; /* an evaluation saves nothing */
    const weft__memory_of x = {.engine = &t->engine, .max_docs = t->run->o->micro_batch * t->max_docs,
                               .micros = t->accumulation, .train = train, .saves = train};
    return weft__memory_report(&x, out);
}
