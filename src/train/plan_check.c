/* plan_check.c — a step that was done, beside what was planned for it: memory, bytes by kind of group, and time where a
 * profile says what this machine does. */
#include "train/trainer_impl.h"

typedef struct sides { weft_bytes planned, sent; double seconds; } sides; /* of one rank, as they are gathered */

/* Of the step's own micro-batches: documents and labels are what they were. */
static weft_status plan_bytes(weft_trainer *t, weft_arena *arena, weft_bytes *out)
{
    const weft_engine *e = &t->engine;
    const weft_run_options *o = t->run->o;
    weft_batch *batch = NULL;
    weft_bytes_micro *micro = NULL;
    const weft_engine_options eo = {.B = o->micro_batch, .T = o->seq_length, .max_docs = o->micro_batch * t->max_docs,
                                    .micros = t->accumulation, .train = true};
    WEFT_TRY(WEFT_NEW(arena, t->accumulation, "plan", &batch));
    WEFT_TRY(WEFT_NEW(arena, t->accumulation, "plan", &micro));
    for (int64_t a = 0; a < t->accumulation; a++) {
        WEFT_TRY(weft__batch_of_step(t, a, &batch[a]));
        micro[a] = (weft_bytes_micro){&batch[a].docs, batch[a].target};
    }
    const weft_bytes_ask ask = {
        .config = &t->config, .options = weft_engine_model_options(t->run, &eo), .size = e->mesh.size,
        .at = e->mesh.at, .sequence_parallel = t->run->sequence_parallel,
        .guard = t->run->guard.policy != WEFT_GUARD_OFF, .zero = (int)o->zero_stage, .micros = t->accumulation,
        .micro = micro,
    };
    return weft_plan_bytes(out, &e->kern, e->mesh.all, &ask);
}

double weft__plan_seconds(const weft_engine *e, int64_t max_docs, int64_t micros, weft_plan_time *time)
{
    const weft_run *run = e->run;
    const weft_run_options *o = run->o;
    const weft_mesh_shape m = run->mesh;
    const weft_engine_options eo = {.B = o->micro_batch, .T = o->seq_length, .max_docs = max_docs, .micros = micros,
                                    .train = true};
    const weft_plan_ask ask = {.config = &e->config, .options = weft_engine_model_options(run, &eo),
                               .global_batch = micros * o->micro_batch * m.dp, .threads = e->ctx->threads,
                               .overlap_gradients = o->overlap_grad_reduce};
    const weft_layout_choice choice = {
        .tp = m.tp, .cp = m.cp, .dp = m.dp, .pp = m.pp, .sequence_parallel = run->sequence_parallel,
        .zero = (int)o->zero_stage, .strategy = m.cp > 1 ? run->cp.strategy : "none", .head_size = run->cp.head_size,
        .cp_layout = run->layout, .order = m.order, .recompute = run->recompute, .keep_attention = o->keep_attention,
        .offload = run->offload != WEFT_OFFLOAD_NONE, .micro_batch = o->micro_batch};
    *time = (weft_plan_time){0};
    /* What the model of time refuses (offloading without the host's rates) gets no claim; it is no error of the run. */
    if (!run->cp.profile || weft_plan_time_of(time, run->cp.profile, &ask, &choice) < 0) *time = (weft_plan_time){0};
    return time->step;
}

static bool same(const sides *x)
{
    for (int k = 0; k < WEFT_BYTES_KINDS; k++)
        if (x->planned.of[k] != x->sent.of[k]) return false;
    return true;
}

static void merge(const sides *of, int ranks, weft_plan_check *out)
{
    for (int r = 0; r < ranks; r++) {
        if (of[r].seconds > out->seconds) out->seconds = of[r].seconds;
        if (!same(&of[r]) && out->differ++ == 0) out->rank = r;
    }
    for (int r = 0; r < ranks && out->differ == 0; r++)
        if (weft_bytes_total(&of[r].sent) > weft_bytes_total(&of[out->rank].sent)) out->rank = r;
    out->planned = of[out->rank].planned;
    out->sent = of[out->rank].sent;
}

static weft_status gather(weft_trainer *t, weft_arena *arena, weft_plan_check *out)
{
    weft_comm *all = t->engine.mesh.all;
    int ranks = weft_comm_size(all), me = weft_comm_rank(all);
    sides mine = {.sent = t->sent, .seconds = t->seconds}, *of = NULL;
    size_t *bytes = NULL;
    weft_status st = WEFT_NEW(arena, ranks, "plan", &of);
    if (st >= 0) st = WEFT_NEW(arena, ranks, "plan", &bytes);
    if (st >= 0) st = plan_bytes(t, arena, &mine.planned);
    WEFT_TRY(weft_agree(all, st));
    weft_plan_time time;
    out->planned_seconds =
        weft__plan_seconds(&t->engine, t->run->o->micro_batch * t->max_docs, t->accumulation, &time);
    for (int r = 0; r < ranks; r++) bytes[r] = sizeof *of;
    of[me] = mine;
    WEFT_TRY(weft_all_gather(all, &of[me], of, bytes));
    merge(of, ranks, out);
    return WEFT_OK;
}

weft_status weft_trainer_check(weft_trainer *t, weft_plan_check *out)
{
    weft_mem mem = {0}; /* not the run's: it is looked at */
    weft_arena *arena = NULL;
    *out = (weft_plan_check){.taken = t->taken};
    WEFT_TRY(weft_trainer_memory(t, &out->memory));
    weft_status st = weft_agree(t->engine.mesh.all, weft_arena_create(&arena, &mem, "plan check", NULL));
    if (st >= 0) st = gather(t, arena, out);
    weft_arena_destroy(arena);
    return st;
}
