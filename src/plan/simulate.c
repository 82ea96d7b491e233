/* simulate.c — runs the real context-parallel code on simulated ranks and reports what it took. */
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Starting a message costs its rank a small part of the time that it needs to get there: on current networks 0.1 to
 * 0.5 us of 1 to 5 us. */
static const double POST_SHARE = 0.1;

weft_sim_model weft_sim_model_of(const weft_profile *p)
{
    return (weft_sim_model){.post_seconds = POST_SHARE * p->node_latency_seconds, .latency_seconds = p->latency_seconds,
                            .link_bytes_per_second = p->link_bytes_per_second,
                            .port_bytes_per_second = p->rank_bytes_per_second, .node_ranks = p->node_ranks,
                            .node_latency_seconds = p->node_latency_seconds,
                            .node_bytes_per_second = p->node_bytes_per_second, .no_memory = true};
}

typedef struct job { /* shared by all ranks, which are fibers of one thread */
    const weft_sim_ask *ask;
    weft_sim_result *result;
    weft_profile profile;
    weft_shard q, kv;   /* the same on every rank */
    double latest;      /* when the last rank was ready */
    double start;       /* of forward, on all ranks */
    weft_trace *trace;  /* [n_traced], when a trace is asked for */
} job;

typedef struct meter { /* a clock that counts what is charged to it, as long as it takes on this rank */
    const weft_clock *clock;
    const weft_sim_disturb *disturb;
    int rank;
    uint64_t calls;
    double charged;
} meter;

static double disturbed(const meter *m, double seconds)
{
    const weft_sim_disturb *d = m->disturb;
    if (d->kernels) seconds *= d->kernels[m->rank];
    if (d->jitter > 0) {
        const weft_philox_out x = weft_philox(d->seed, (uint32_t)m->calls, (uint32_t)(m->calls >> 32),
                                              (uint32_t)m->rank, weft_philox_word3(0, 0, WEFT_SITE_JITTER));
        seconds *= 1 + d->jitter * (double)weft_uniform(x.w[0]);
    }
    return seconds;
}

static double meter_now(void *ud) { return weft_now(((const meter *)ud)->clock); }

static void meter_charge(void *ud, double seconds)
{
    meter *m = ud;
    seconds = disturbed(m, seconds);
    m->calls++;
    m->charged += seconds;
    m->clock->charge(m->clock->ud, seconds);
}

/* ---- one rank ------------------------------------------------------------------------------------------- */

typedef struct part { /* of one rank */
    job *j;
    weft_ctx *ctx;
    weft_world *world;
    weft_comm *all, *cp; /* every rank; this rank's group */
    weft_arena *arena, *buffers;
    weft_cp_plan *plan;
    weft_cp_io io;
    weft_sim_rank_result *r;
} part;

static weft_status create_groups(part *p)
{
    const weft_sim_ask *a = p->j->ask;
    int n = a->cp * a->groups, *ranks;
    WEFT_TRY(WEFT_NEW(p->arena, n, "groups", &ranks));
    for (int i = 0; i < n; i++) ranks[i] = i;
    WEFT_TRY(weft_comm_create(&p->all, p->world, ranks, n, "all"));
    for (int g = 0; g < a->groups; g++) {
        weft_comm *c;
        for (int i = 0; i < a->cp; i++) ranks[i] = a->interleaved ? g + i * a->groups : g * a->cp + i;
        WEFT_TRY(weft_comm_create(&c, p->world, ranks, a->cp, "cp"));
        if (c) p->cp = c;
    }
    return WEFT_OK;
}

static weft_status take(part *p, int64_t rows, int64_t width, weft_dtype type, void *where)
{
    return weft_arena_alloc(p->buffers, rows * width, weft_dtype_size(type), "sim operands", where);
}

/* Operands have addresses only. */
static weft_status make_operands(part *p)
{
    const weft_cp_problem *c = &p->j->ask->problem;
    weft_dtype C = weft_prec_compute(c->prec), R = weft_prec_real(c->prec);
    int me = weft_comm_rank(p->cp);
    int64_t nq = p->j->q.rows[me], nk = p->j->kv.rows[me], q = (int64_t)c->H * c->D, o = (int64_t)c->H * c->Dv;
    int64_t k = (int64_t)c->Hkv * c->D, v = (int64_t)c->Hkv * c->Dv;
    weft_cp_io *io = &p->io;
    *io = (weft_cp_io){.q_ld = q, .k_ld = k, .v_ld = v, .o_ld = o, .dout_ld = o, .dq_ld = q, .dk_ld = k, .dv_ld = v};
    WEFT_TRY(take(p, nq, q, C, &io->q));
    WEFT_TRY(take(p, nk, k, C, &io->k));
    WEFT_TRY(take(p, nk, v, C, &io->v));
    WEFT_TRY(take(p, nq, o, C, &io->o));
    WEFT_TRY(take(p, nq, o, C, &io->dout));
    WEFT_TRY(take(p, nq, c->H, R, &io->m));
    WEFT_TRY(take(p, nq, c->H, R, &io->l));
    WEFT_TRY(take(p, nq, q, C, &io->dq));
    WEFT_TRY(take(p, nk, k, C, &io->dk));
    WEFT_TRY(take(p, nk, v, C, &io->dv));
    if (c->sinks) {
        WEFT_TRY(take(p, 1, c->H, R, &io->sinks));
        WEFT_TRY(take(p, 1, c->H, R, &io->dsinks));
    }
    size_t kept = weft_cp_kept_bytes(p->plan);
    return kept ? weft_arena_alloc(p->buffers, (int64_t)kept, 1, "sim kept", &io->kept) : WEFT_OK;
}

/* All ranks begin at one time: when setting up ended is no part of the result. */
static weft_status start_together(part *p)
{
    job *j = p->j;
    const weft_clock *clock = &p->ctx->clock;
    double now = weft_now(clock);
    if (now > j->latest) j->latest = now;
    WEFT_TRY(weft_barrier(p->all));
    /* The barrier takes a few latencies, a second at most; whoever leaves it last sets the start for all. */
    j->start = 2 * j->latest + 1 + 1000 * (j->profile.latency_seconds + j->profile.node_latency_seconds);
    now = weft_now(clock);
    if (now > j->start)
        return weft_fail(WEFT_ERR_INTERNAL, "rank %d came out of a barrier at %g s, after the common start at %g s",
                         p->ctx->rank, now, j->start);
    clock->charge(clock->ud, j->start - now);
    return WEFT_OK;
}

static weft_status run_layers(part *p)
{
    int layers = p->j->ask->layers;
    weft_counters before, middle, after;
    const weft_clock *clock = &p->ctx->clock;
    weft_sim_rank_result *r = p->r;
    weft_comm_counters(p->cp, &before);
    for (p->io.layer = 0; p->io.layer < layers; p->io.layer++) WEFT_TRY(weft_cp_forward(p->plan, 0, &p->io));
    weft_comm_counters(p->cp, &middle);
    double half = weft_now(clock);
    for (p->io.layer = layers - 1; p->io.layer >= 0 && p->j->ask->problem.need_backward; p->io.layer--)
        WEFT_TRY(weft_cp_backward(p->plan, 0, &p->io));
    weft_comm_counters(p->cp, &after);
    r->forward_seconds = half - p->j->start;
    r->backward_seconds = weft_now(clock) - half;
    r->exposed_seconds = after.exposed_seconds - before.exposed_seconds;
    r->flight_seconds = after.flight_seconds - before.flight_seconds;
    r->forward_bytes = middle.bytes_logical - before.bytes_logical;
    r->backward_bytes = after.bytes_logical - middle.bytes_logical;
    r->forward_messages = middle.messages - before.messages;
    r->backward_messages = after.messages - middle.messages;
    r->planned = weft_cp_planned(p->plan, 0);
    return WEFT_OK;
}

static double held(const weft_mem *mem, const char *arena)
{
    double sum = 0;
    for (int i = 0; i < mem->rows; i++)
        if (!strcmp(mem->row[i].arena, arena)) sum += (double)mem->row[i].bytes;
    return sum;
}

/* Where the events of this rank go; NULL: nowhere. They outlive the ranks. */
static weft_trace *trace_of(const part *p)
{
    const weft_sim_ask *a = p->j->ask;
    for (int i = 0; a->trace && i < a->n_traced; i++)
        if (a->traced[i] == p->ctx->rank) return &p->j->trace[i];
    return NULL;
}

static weft_status run_plan(part *p)
{
    const weft_sim_ask *a = p->j->ask;
    WEFT_TRY(weft_cp_bind(p->plan, 0, &p->j->q, &p->j->kv));
    WEFT_TRY(make_operands(p));
    WEFT_TRY(start_together(p));
    weft_trace *trace = trace_of(p);
    if (trace) p->ctx->trace = *trace;
    weft_status st = run_layers(p);
    if (trace) *trace = p->ctx->trace;
    p->ctx->trace = (weft_trace){0};
    WEFT_TRY(st);
    p->r->memory_bytes = held(&p->ctx->mem, "cp buffers") + (double)a->layers * (double)weft_cp_kept_bytes(p->plan);
    if (p->ctx->rank == 0) weft_cp_describe(p->plan, &p->j->result->plan);
    return WEFT_OK;
}

static weft_status run_part(part *p)
{
    const weft_sim_ask *a = p->j->ask;
    const weft_profile *f = &p->j->profile;
    weft_kern kern;
    meter m = {.clock = &p->ctx->clock, .disturb = &a->disturb, .rank = p->ctx->rank};
    weft_clock clock = {meter_now, meter_charge, &m};
    weft_charge rates = {.clock = &clock, .backward_factor = f->backward_factor, .edge_keys = f->attention_edge_keys,
                         .row_keys = f->attention_row_keys,
                         .memory_bytes_per_second = f->memory_bytes_per_second};
    memcpy(rates.flops_per_second, f->flops_per_second, sizeof rates.flops_per_second);
    memcpy(rates.pair_seconds, f->attention_pair_seconds, sizeof rates.pair_seconds);
    weft_cp_options options = a->options;
    options.profile = f;
    weft_cp_problem problem = a->problem;
    problem.slots = 1;
    WEFT_TRY(weft_kern_init_charge(&kern, &rates));
    WEFT_TRY(create_groups(p));
    WEFT_TRY(weft_cp_plan_create(&p->plan, p->arena, &kern, p->cp, &problem, &options));
    m.charged = 0;
    weft_status st = run_plan(p);
    p->r->compute_seconds = m.charged;
    weft_cp_plan_destroy(p->plan);
    return st;
}

static weft_status rank_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    job *j = ud;
    part p = {.j = j, .ctx = ctx, .world = world, .r = &j->result->rank[ctx->rank]};
    WEFT_TRY(weft_arena_create(&p.arena, &ctx->mem, "sim", NULL));
    weft_status st = weft_arena_create(&p.buffers, &ctx->mem, "sim operands", weft_world_buffers(world));
    if (st == WEFT_OK) st = run_part(&p);
    weft_arena_destroy(p.buffers);
    weft_arena_destroy(p.arena);
    return st;
}

/* ---- the job ---------------------------------------------------------------------------------------------- */

static weft_status check(const weft_sim_ask *a)
{
    if (a->cp < 1 || a->groups < 1 || a->groups > 1 << 16 || a->cp > (1 << 16) / a->groups)
        return weft_fail(WEFT_ERR_REFUSED,
                         "simulation: %d groups of %d ranks; give at least 1 of each, and at most %d ranks", a->groups,
                         a->cp, 1 << 16);
    if (a->layers < 1) return weft_fail(WEFT_ERR_REFUSED, "simulation: %d layers; at least 1 is needed", a->layers);
    for (int i = 0; i < a->n_traced; i++)
        if (a->traced[i] < 0 || a->traced[i] >= a->cp * a->groups)
            return weft_fail(WEFT_ERR_REFUSED,
                             "simulation: rank %d to be traced does not exist; there are ranks 0 to %d", a->traced[i],
                             a->cp * a->groups - 1);
    return WEFT_OK;
}

/* Without documents of the caller: one per row. */
static weft_status make_shard(weft_shard *s, weft_arena *arena, const weft_sim_ask *a, int64_t T, int64_t pos0,
                              bool with_docs)
{
    weft_docs docs;
    if (with_docs) docs = *a->docs;
    else WEFT_TRY(weft_docs_whole(&docs, arena, a->problem.B, T));
    return weft_shard_create(s, arena, a->problem.layout, a->cp, &docs, pos0);
}

/* ---- the time line ------------------------------------------------------------------------------------------ */

static weft_status open_traces(job *j, weft_arena *arena)
{
    const weft_sim_ask *a = j->ask;
    if (!a->trace) return WEFT_OK;
    WEFT_TRY(WEFT_NEW0(arena, a->n_traced, "trace", &j->trace));
    for (int i = 0; i < a->n_traced; i++) WEFT_TRY(weft_trace_init(&j->trace[i], arena, WEFT_TRACE_EVENTS));
    return WEFT_OK;
}

static weft_status write_traces(const job *j, weft_arena *arena)
{
    const weft_sim_ask *a = j->ask;
    weft_chrome_rank *rank;
    if (!a->trace) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(arena, a->n_traced, "trace", &rank));
    for (int i = 0; i < a->n_traced; i++) rank[i] = (weft_chrome_rank){a->traced[i], j->start, &j->trace[i]};
    return weft_chrome_write(a->trace, rank, a->n_traced, "simulated ranks, virtual time", &j->result->trace);
}

static void disturb_links(weft_sim_model *m, const weft_sim_disturb *d)
{
    m->slow = d->link;
    m->slow_links = d->links;
    if (d->node > 1) m->node_bytes_per_second /= d->node;
    if (d->net > 1) m->link_bytes_per_second /= d->net, m->port_bytes_per_second /= d->net;
}

static weft_status run_job(job *j, weft_arena *arena)
{
    const weft_sim_ask *a = j->ask;
    const weft_cp_problem *p = &a->problem;
    weft_sim_result *out = j->result;
    WEFT_TRY(make_shard(&j->kv, arena, a, p->T, 0, a->docs != NULL));
    if (p->Tq == p->T) j->q = j->kv;
    else WEFT_TRY(make_shard(&j->q, arena, a, p->Tq, p->T - p->Tq, false));
    out->ranks = a->cp * a->groups;
    out->rank = calloc((size_t)out->ranks, sizeof *out->rank);
    if (!out->rank) return weft_fail(WEFT_ERR_MEMORY, "simulation: no memory for the results of %d ranks", out->ranks);
    weft_sim_model model = weft_sim_model_of(&j->profile);
    model.needs_poll = a->needs_poll;
    disturb_links(&model, &a->disturb);
    WEFT_TRY(open_traces(j, arena));
    WEFT_TRY(weft_run_sim(out->ranks, &model, rank_body, j));
    WEFT_TRY(write_traces(j, arena));
    double forward = 0, all = 0;
    for (int r = 0; r < out->ranks; r++) {
        const weft_sim_rank_result *x = &out->rank[r];
        if (x->forward_seconds > forward) forward = x->forward_seconds;
        if (x->forward_seconds + x->backward_seconds > all) all = x->forward_seconds + x->backward_seconds;
    }
    out->forward_seconds = forward;
    out->backward_seconds = all - forward;
    return WEFT_OK;
}

/* A refusal is all ranks': which of them spoke first says nothing. */
static weft_status unranked(weft_status st)
{
    int length = 0;
    const char *message = weft_last_error();
    if (st == WEFT_ERR_REFUSED && sscanf(message, "rank %*d: %n", &length) == 0 && length > 0)
        return weft_fail(st, "%s", message + length);
    return st;
}

weft_status weft_simulate(weft_sim_result *out, const weft_sim_ask *ask)
{
    weft_mem mem = {0};
    weft_arena *arena;
    *out = (weft_sim_result){0};
    WEFT_TRY(check(ask));
    WEFT_TRY(weft_arena_create(&arena, &mem, "simulation", NULL));
    job j = {.ask = ask,
             .result = out,
             .profile = ask->options.profile ? *ask->options.profile : weft_profile_default()};
    weft_status st = run_job(&j, arena);
    weft_arena_destroy(arena);
    if (st == WEFT_OK) return WEFT_OK;
    weft_sim_result_free(out);
    return unranked(st);
}

void weft_sim_result_free(weft_sim_result *r)
{
    free(r->rank);
    weft_text_free(&r->plan);
    *r = (weft_sim_result){0};
}
