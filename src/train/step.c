/* step.c — one optimizer step; the table of contents of training.
 *
 * The one contract (docs/maths/loss.md): loss = sum of nll over valid tokens / number of valid tokens, both over
 * dp x cp x accumulation. Every rank back-propagates its own sum over the global count and gradients are
 * summed over dp x cp, so no parallel size appears in any formula. */
#include "train/trainer_impl.h"

#include <math.h>

weft_status weft_trainer_load(weft_trainer *t, bool valid, int64_t a, int64_t first_sequence, weft_docs *docs)
{
    int64_t B = t->run->o->micro_batch, T = t->run->o->seq_length;
    int64_t *cu = t->cu + a * B * (t->max_docs + 1), *first = t->first + a * (B + 1), used = 0;
    for (int64_t b = 0; b < B; b++) {
        int64_t at = (a * B + b) * T;
        weft_sequence s = {.token = t->token + at, .target = t->target + at, .cu = cu + used};
        WEFT_TRY(weft_batches_sequence(t->batches, valid, first_sequence + b, &s));
        first[b] = used;
        used += s.docs + 1;
    }
    first[B] = used;
    *docs = (weft_docs){.B = B, .T = T, .cu = cu, .first = first};
    return WEFT_OK;
}

/* Sequence i of a step goes to micro-batch i / (B dp), data-parallel rank i / B mod dp: a function of the
 * step and the dp index only, so all ranks of a cp group read the same text. */
static int64_t first_sequence(const weft_trainer *t, int64_t a)
{
    int64_t B = t->run->o->micro_batch, dp = t->run->mesh.dp;
    return t->state.sequence + (a * dp + t->engine.mesh.at.dp) * B;
}

static int64_t count_valid(const int32_t *target, int64_t n)
{
    int64_t valid = 0;
    for (int64_t i = 0; i < n; i++) valid += target[i] >= 0;
    return valid;
}

/* Loads every micro-batch of the step and counts its labels over dp (all cp ranks count the same). */
static weft_status load_step(weft_trainer *t, int64_t *valid)
{
    weft_docs docs;
    int64_t per_micro = t->run->o->micro_batch * t->run->o->seq_length;
    for (int64_t a = 0; a < t->accumulation; a++) {
        t->area[a] = 0; /* of a step that is skipped */
        WEFT_TRY(weft_trainer_load(t, false, a, first_sequence(t, a), &docs));
    }
    *valid = count_valid(t->target, t->accumulation * per_micro);
    return weft_all_reduce(t->engine.mesh.dp, valid, 1, WEFT_I64, WEFT_SUM);
}

weft_status weft__batch_of_step(void *ud, int64_t a, weft_batch *out)
{
    const weft_trainer *t = ud;
    int64_t B = t->run->o->micro_batch, T = t->run->o->seq_length;
    *out = (weft_batch){
        .token = t->token + a * B * T, .target = t->target + a * B * T,
        .docs = {.B = B, .T = T, .cu = t->cu + a * B * (t->max_docs + 1), .first = t->first + a * (B + 1)},
        .sequence = (a * t->run->mesh.dp + t->engine.mesh.at.dp) * B,
    };
    return WEFT_OK;
}

static void keep_area(void *ud, int64_t a, int slot)
{
    weft_trainer *t = ud;
    t->area[a] = t->engine.slot[slot].area;
}

/* Forward and backward passes of all micro-batches, as this stage's schedule orders them. */
static weft_status run_passes(weft_trainer *t, int64_t valid, double *nll)
{
    int64_t B = t->run->o->micro_batch;
    const weft_pipeline_job job = {
        .sequences = t->accumulation * B, .B = B, .backward = true,
        .grad_scale = t->numerics.scaler.scale / (double)valid, .batch = weft__batch_of_step,
        .done = keep_area, .ud = t,
        .at = t->watch.call ? weft__watch_pass : NULL,
        .optim = t->optim,
    };
    t->engine.step = t->step;
    return weft_pipeline_run(t->pipeline, &job, nll);
}

/* What is done since *begin, which goes on to now. */
static void trace(const weft_trainer *t, weft_track track, const char *name, double *begin)
{
    if (!weft_trace_on(&t->ctx->trace)) return;
    const double now = weft_now(&t->ctx->clock);
    weft_trace_emit(&t->ctx->trace, track, name, *begin, now, -1, -1);
    *begin = now;
}

static weft_status update(weft_trainer *t, weft_record *r)
{
    double begin = weft_now(&t->ctx->clock);
    double scale = t->numerics.scaler.scale; /* before the step's norm changes it */
    r->lr = weft_lr_at(&t->optim_options, t->step);
    weft__watch_at(t, WEFT_STEP_GRADIENTS);
    WEFT_TRY(weft_optim_reduce(t->optim));
    trace(t, WEFT_TRACK_OPTIMIZER, "sum gradients", &begin);
    weft__watch_at(t, WEFT_STEP_OPTIMIZER);
    WEFT_TRY(weft__numerics_judge(t, r));
    if (r->skip) return WEFT_OK;
    WEFT_TRY(weft_optim_norm(t->optim, scale, &r->grad_norm));
    WEFT_TRY(weft__numerics_norm(t, r));
    trace(t, WEFT_TRACK_OPTIMIZER, "gradient norm", &begin);
    if (r->skip) return WEFT_OK;
    WEFT_TRY(weft_optim_update(t->optim, r->grad_norm, scale, r->lr, ++t->numerics.updates));
    weft_model_weights_changed(t->engine.model);
    trace(t, WEFT_TRACK_OPTIMIZER, "update", &begin);
    return WEFT_OK;
}

typedef struct moment { /* what a step's figures are differences of */
    double now, worked, waited; /* worked: processors' time of all threads */
    /* waited: for sums of gradients, and for weights of other ranks */
    weft_counters counters;
    weft_bytes sent;
} moment;

static moment moment_of(const weft_trainer *t)
{
    moment m = {.now = weft_now(&t->ctx->clock)};
    double under_way;
    weft_optim_seconds(t->optim, &under_way, &m.waited);
    weft_world_counters(t->world, &m.counters);
    m.worked = weft_cpu_seconds();
    weft_bytes_count(&t->engine.mesh, &m.sent);
    return m;
}

static int64_t tokens_of(const weft_trainer *t)
{
    return t->accumulation * t->run->o->micro_batch * t->run->o->seq_length * t->run->mesh.dp;
}

/* visible: pairs of all micro-batches of the job. They are those of layers with a window where there are such: where
 * only some layers have one, the sum is not known. */
static double model_flops(const weft_trainer *t, double visible)
{
    const weft_model_config *c = &t->config;
    return c->window && c->window_from_layer > 0 ? 0 : weft_model_step_flops(c, tokens_of(t), visible);
}

/* Over what products reach on the machine of --profile. */
static double utilisation(const weft_trainer *t, const weft_record *r)
{
    const weft_profile *p = t->run->o->profile ? t->run->cp.profile : NULL;
    return p ? r->flops / r->seconds / ((double)r->ranks * p->product_flops_per_second[t->run->prec]) : 0;
}

static void fill_record(weft_trainer *t, weft_record *r, const moment *begin)
{
    const moment end = moment_of(t);
    const weft_counters *before = &begin->counters, *after = &end.counters;
    const weft_run_options *o = t->run->o;
    r->step = t->step;
    r->steps = o->steps;
    r->ranks = t->ctx->world;
    r->skips = t->numerics.skips;
    r->seconds = end.now - begin->now;
    r->tokens = tokens_of(t);
    r->mfu = utilisation(t, r);
    r->comm_share = (after->flight_seconds - before->flight_seconds) / r->seconds;
    r->exposed_share = (after->exposed_seconds - before->exposed_seconds) / r->seconds;
    r->idle_share = fmax(0, 1 - (end.worked - begin->worked) / (r->seconds * t->ctx->threads));
    r->reduce_exposed_share = (end.waited - begin->waited) / r->seconds;
    r->bytes_logical = after->bytes_logical - before->bytes_logical;
    r->messages = after->messages - before->messages;
    for (int k = 0; k < WEFT_BYTES_KINDS; k++) t->sent.of[k] = end.sent.of[k] - begin->sent.of[k];
    t->taken = !r->skip;
    t->seconds = r->seconds;
    r->memory_bytes = (double)t->ctx->mem.peak + (double)weft_gemm_bytes(t->engine.gemm);
    r->resident_bytes = weft_resident_bytes();
    r->eta_seconds = r->seconds * (double)(o->steps - t->step);
}

/* What the next step, or a run that goes on from here, begins with. */
static void advance(weft_trainer *t, const weft_record *r)
{
    weft_train_state *s = &t->state;
    int64_t sequences = t->accumulation * t->run->o->micro_batch * t->run->mesh.dp;
    t->step++;
    s->sequence += sequences;
    s->tokens += sequences * t->run->o->seq_length;
    if (!r->skip) s->loss = r->loss;
}

weft_status weft_trainer_step(weft_trainer *t, weft_record *r)
{
    double attention = t->ctx->attention_seconds, nll = 0, visible = 0;
    const moment begin = moment_of(t);
    *r = (weft_record){0};
    weft__watch_at(t, WEFT_STEP_DATA);
    weft__numerics_begin(t, r);
    bool reversed = WEFT_PLANTED(reversed_groups) && t->ctx->rank == 1;
    if (reversed) WEFT_TRY(weft_all_reduce(t->engine.mesh.dp_cp, &nll, 1, WEFT_F64, WEFT_SUM));
    weft_part outer = weft_part_begin(&t->ctx->parts, WEFT_PART_DATA);
    double now = begin.now;
    WEFT_TRY(load_step(t, &r->valid_tokens));
    trace(t, WEFT_TRACK_DATA, "read sequences", &now);
    weft_part_end(&t->ctx->parts, outer);
    if (r->valid_tokens == 0) r->skip = WEFT_SKIP_LABELS;
    else {
        weft_model_zero_gradients(t->engine.model);
        WEFT_TRY(run_passes(t, r->valid_tokens, &nll));
        if (!reversed) WEFT_TRY(weft_all_reduce(t->engine.mesh.dp_cp, &nll, 1, WEFT_F64, WEFT_SUM));
        r->loss = nll / (double)r->valid_tokens;
        WEFT_TRY(update(t, r));
    }
    WEFT_TRY(weft__imbalance(&t->engine, t->area, t->accumulation, t->ctx->attention_seconds - attention, &r->imbalance,
                             &r->imbalance_time, &visible));
    r->flops = model_flops(t, visible);
    weft__watch_end(t);
    advance(t, r);
    fill_record(t, r, &begin);
    return WEFT_OK;
}
