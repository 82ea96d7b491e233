/* attention_api.c — include/weft/attention.h: the plan of this room behind a handle that shows no type of it.
 *
 * Whatever may fail on one rank alone is agreed on before anything else is exchanged, so that a refusal is
 * the same on every rank and none is left waiting. */
#include "weft/attention.h"

#include "cp/cp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct weft_attention {
    weft_comm *comm;
    weft_arena *arena;
    weft_kern kern;
    weft_cp_problem problem;
    weft_cp_plan *plan;
    weft_shard shard;
    int64_t *whole, *first; /* offsets of one document per sequence; [B+1] places of offsets */
    int64_t rows;
    void *state;            /* of callers that give none */
    bool bound;             /* the last documents were accepted */
    bool state_written;     /* by a forward on the documents that are bound */
    int64_t sent;
};

/* ---- parameters ------------------------------------------------------------------------------------- */

/* Copies what the caller's header knows; a field that only a newer header has keeps its default. */
static weft_status take_struct(void *full, size_t known, const void *given, size_t size, const char *name)
{
    if (size >= sizeof(size_t) && size <= known) {
        memcpy(full, given, size);
        return WEFT_OK;
    }
    return weft_fail(
        WEFT_ERR_REFUSED,
        "%s.size is %zu, this library knows up to %zu; call %s_init first, with a header that is not newer", name, size,
        known, name);
}

void weft_attention_params_init(weft_attention_params *params, size_t size)
{
    weft_attention_params full = {.size = size, .precision = WEFT_ATTENTION_FP32, .B = 1, .causal = true,
                                  .window_left = -1,
                                  .window_right = -1, .backward = true, .strategy = "auto", .layout = "zigzag",
                                  .overlap = true};
    memcpy(params, &full, size < sizeof full ? size : sizeof full);
}

void weft_attention_io_init(weft_attention_io *io, size_t size)
{
    weft_attention_io full = {.size = size, .layer = -1};
    memcpy(io, &full, size < sizeof full ? size : sizeof full);
}

static weft_status precision_of(weft_attention_precision given, weft_prec *out)
{
    switch (given) {
    case WEFT_ATTENTION_FP32: *out = WEFT_PREC_F32; return WEFT_OK;
    case WEFT_ATTENTION_BF16: *out = WEFT_PREC_BF16; return WEFT_OK;
    case WEFT_ATTENTION_FP64: *out = WEFT_PREC_F64; return WEFT_OK;
    }
    return weft_fail(WEFT_ERR_REFUSED,
                     "attention: precision %d is unknown; there are WEFT_ATTENTION_FP32, _BF16, _FP64", (int)given);
}

/* What the room's own checks do not see: fields that mean "default", and names. */
static weft_status read_params(const weft_attention_params *given, weft_attention_params *p, weft_cp_problem *problem)
{
    weft_attention_params_init(p, sizeof *p);
    if (!given) return weft_fail(WEFT_ERR_REFUSED, "attention: the parameters are NULL");
    WEFT_TRY(take_struct(p, sizeof *p, given, given->size, "weft_attention_params"));
    if (p->threads < 0)
        return weft_fail(WEFT_ERR_REFUSED, "attention: %d threads; give 1 or more, or 0 for cores / ranks", p->threads);
    if (p->D < 1)
        return weft_fail(WEFT_ERR_REFUSED, "attention: head size D = %d; 1 to %d is possible", p->D, WEFT_ATTN_MAX_D);
    if (!isfinite(p->scale)) return weft_fail(WEFT_ERR_REFUSED, "attention: scale is not finite; give 0 for 1/sqrt(D)");
    *problem = (weft_cp_problem){.B = p->B, .Tq = p->T, .T = p->T, .max_docs = p->max_docs ? p->max_docs : p->B,
                                 .H = p->H, .Hkv = p->Hkv, .D = p->D, .Dv = p->Dv,
                                 .scale = p->scale != 0 ? p->scale : 1.0 / sqrt((double)p->D), .softcap = p->softcap,
                                 .mask = {.causal = p->causal, .left = p->window_left, .right = p->window_right,
                                          .prefix = p->prefix},
                                 .alibi = p->alibi, .sinks = p->sinks, .dropout = p->dropout, .seed = p->seed,
                                 .need_backward = p->backward, .slots = 1};
    WEFT_TRY(precision_of(p->precision, &problem->prec));
    return weft_layout_parse(p->layout ? p->layout : "zigzag", &problem->layout);
}

static weft_status wire_of(weft_attention_wire given, const char *name, weft_cp_wire *out)
{
    static const weft_cp_wire wires[] = {WEFT_CP_WIRE_SAME, WEFT_CP_WIRE_FP32, WEFT_CP_WIRE_BF16, WEFT_CP_WIRE_FP16,
                                         WEFT_CP_WIRE_FP8};
    if ((int)given < 0 || (size_t)given >= sizeof wires / sizeof *wires)
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention: %s %d is unknown; there are WEFT_ATTENTION_WIRE_SAME, _FP32, _BF16, _FP16, _FP8",
                         name, (int)given);
    *out = wires[given];
    return WEFT_OK;
}

static weft_status read_options(const weft_attention_params *p, weft_cp_options *o)
{
    *o = (weft_cp_options){.strategy = p->strategy ? p->strategy : "auto", .overlap = p->overlap,
                           .head_size = p->head_size,
                           .keep_heads = p->keep_heads, .fp8 = p->fp8, .buffer_bytes = p->buffer_bytes};
    WEFT_TRY(wire_of(p->comm_dtype, "comm_dtype", &o->comm_dtype));
    return wire_of(p->grad_dtype, "grad_dtype", &o->grad_dtype);
}

/* ---- documents -------------------------------------------------------------------------------------- */

static weft_status check_counts(const weft_attention *a, const int64_t *counts)
{
    if (!counts)
        return weft_fail(WEFT_ERR_REFUSED, "attention: document offsets without counts; give counts[B], or no offsets");
    int64_t total = 0;
    for (int64_t b = 0; b < a->problem.B; b++) {
        if (counts[b] < 1)
            return weft_fail(WEFT_ERR_REFUSED, "attention: sequence %lld has %lld documents; at least 1 is needed",
                             (long long)b, (long long)counts[b]);
        if (counts[b] > a->problem.max_docs - total)
            return weft_fail(WEFT_ERR_REFUSED,
                             "attention: more than %lld documents in a micro-batch; plan with a larger max_docs",
                             (long long)a->problem.max_docs);
        total += counts[b];
    }
    return WEFT_OK;
}

static weft_status make_shard(weft_attention *a, const int64_t *offsets, const int64_t *counts, weft_docs *docs)
{
    if (offsets) WEFT_TRY(check_counts(a, counts));
    a->first[0] = 0;
    for (int64_t b = 0; b < a->problem.B; b++) a->first[b + 1] = a->first[b] + (offsets ? counts[b] + 1 : 2);
    *docs = (weft_docs){.B = a->problem.B, .T = a->problem.T, .cu = offsets ? offsets : a->whole, .first = a->first};
    return weft_shard_make(&a->shard, a->problem.layout, docs, 0);
}

static int64_t hash_docs(const weft_docs *docs)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a over whole offsets */
    for (int64_t b = 0; b < docs->B; b++)
        for (int64_t i = docs->first[b]; i < docs->first[b + 1]; i++) h = (h ^ (uint64_t)docs->cu[i]) * 0x100000001b3u;
    return (int64_t)(h >> 2); /* may be negated without overflow */
}

/* Ranks with different documents would exchange blocks of the right size and compute nonsense. */
static weft_status same_documents(weft_attention *a, const weft_docs *docs)
{
    int64_t h = hash_docs(docs), both[2] = {h, -h};
    WEFT_TRY(weft_all_reduce(a->comm, both, 2, WEFT_I64, WEFT_MAX));
    if (both[0] == -both[1]) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED,
                     "attention: the ranks were given different documents; give every rank the offsets "
                     "of the whole micro-batch");
}

weft_status weft_attention_documents(weft_attention *a, const int64_t *offsets, const int64_t *counts)
{
    weft_docs docs;
    a->bound = a->state_written = false;
    WEFT_TRY(weft_agree(a->comm, make_shard(a, offsets, counts, &docs)));
    WEFT_TRY(same_documents(a, &docs));
    WEFT_TRY(weft_cp_bind(a->plan, 0, &a->shard, &a->shard));
    a->bound = true;
    return WEFT_OK;
}

/* ---- state: maxima, sums, and at the next multiple of 64 bytes what the plan keeps ------------------------ */

enum { STATE_ALIGN = 64 };

static size_t statistics_bytes(const weft_attention *a)
{
    return 2 * (size_t)a->rows * (size_t)a->problem.H * weft_dtype_size(weft_prec_real(a->problem.prec));
}

static size_t kept_at(const weft_attention *a)
{
    return (statistics_bytes(a) + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
}

/* ---- life ------------------------------------------------------------------------------------------- */

static weft_status alloc_all(weft_attention *a)
{
    const weft_cp_problem *p = &a->problem;
    int P = weft_comm_size(a->comm);
    WEFT_TRY(weft_shard_alloc(&a->shard, a->arena, P, weft_shard_capacity(p->layout, p->B, p->T, p->max_docs, P)));
    WEFT_TRY(WEFT_NEW(a->arena, 2 * p->B, "documents", &a->whole));
    WEFT_TRY(WEFT_NEW(a->arena, p->B + 1, "documents", &a->first));
    for (int64_t b = 0; b < p->B; b++) {
        a->whole[2 * b] = 0;
        a->whole[2 * b + 1] = p->T;
    }
    a->rows = weft_shard_rows(p->layout, p->B, p->T, P, weft_comm_rank(a->comm));
    return weft_arena_alloc(a->arena, (int64_t)weft_attention_state_bytes(a), 1, "attention state", &a->state);
}

/* The part of creation that needs no other rank. */
static weft_status prepare(weft_attention **out, weft_group *group, const weft_attention_params *given,
                           weft_cp_options *options)
{
    weft_attention_params p;
    weft_cp_problem problem;
    if (!out) return weft_fail(WEFT_ERR_REFUSED, "attention: the place of the plan is NULL");
    WEFT_TRY(read_params(given, &p, &problem));
    WEFT_TRY(read_options(&p, options));
    weft_ctx *ctx = weft_world_ctx(weft_group_world(group));
    ctx->threads = p.threads ? p.threads : weft_group_default_threads(group);
    weft_attention *a = calloc(1, sizeof *a);
    if (!a) return weft_fail(WEFT_ERR_MEMORY, "no memory for an attention plan");
    a->comm = weft_group_comm(group);
    a->problem = problem;
    weft_status st = weft_arena_create(&a->arena, &ctx->mem, "attention", NULL);
    if (st >= 0) st = weft_kern_init(&a->kern, weft_isa_best());
    if (st >= 0) *out = a;
    else weft_attention_destroy(a);
    return st;
}

weft_status weft_attention_create(weft_attention **out, weft_group *group, const weft_attention_params *params)
{
    weft_attention *a = NULL;
    weft_cp_options options = {0};
    weft_status st;
    WEFT_TRY_OR(st, weft_agree(weft_group_comm(group), prepare(out ? &a : NULL, group, params, &options)), fail);
    WEFT_TRY_OR(st, weft_cp_plan_create(&a->plan, a->arena, &a->kern, a->comm, &a->problem, &options), fail);
    a->problem.alibi = NULL; /* the plan has its copy; the caller's may go */
    WEFT_TRY_OR(st, weft_agree(a->comm, alloc_all(a)), fail);
    WEFT_TRY_OR(st, weft_attention_documents(a, NULL, NULL), fail);
    *out = a;
    return WEFT_OK;
fail:
    weft_attention_destroy(a);
    return st;
}

void weft_attention_destroy(weft_attention *a)
{
    if (!a) return;
    weft_cp_plan_destroy(a->plan);
    weft_arena_destroy(a->arena);
    free(a);
}

/* ---- running ---------------------------------------------------------------------------------------- */

static int64_t dense(int64_t stride, int64_t width) { return stride ? stride : width; }

static weft_status need(const void *pointer, int64_t rows, const char *name, const char *call)
{
    if (pointer || rows == 0) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "attention %s: %s is NULL", call, name);
}

static weft_status need_stride(int64_t stride, int64_t rows, int64_t width, const char *name)
{
    int64_t bytes;
    if (!weft_mul_i64(stride, weft_max_i64(rows, 1) * (int64_t)sizeof(double), &bytes))
        return weft_fail(WEFT_ERR_REFUSED, "attention: %s has %lld elements between rows, more than memory has", name,
                         (long long)stride);
    if (stride == 0 || stride >= width) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "attention: %s has %lld elements between rows, a row has %lld", name,
                     (long long)stride, (long long)width);
}

static weft_status check_io(const weft_attention *a, const weft_attention_io *io, bool backward)
{
    const char *call = backward ? "backward" : "forward";
    const weft_cp_problem *p = &a->problem;
    if (io->reserved) /* a number there may mean something one day */
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention %s: io.reserved is %u; it must be 0, as weft_attention_io_init leaves it", call,
                         io->reserved);
    if (!a->bound)
        return weft_fail(WEFT_ERR_REFUSED, "attention %s: the last documents were refused; give documents first", call);
    const struct { const void *pointer; int64_t stride, width; const char *name; bool needed; } array[] = {
        {io->q, io->q_stride, (int64_t)p->H * p->D, "q", true},
        {io->k, io->k_stride, (int64_t)p->Hkv * p->D, "k", true},
        {io->v, io->v_stride, (int64_t)p->Hkv * p->Dv, "v", true},
        {io->o, io->o_stride, (int64_t)p->H * p->Dv, "o", true},
        {io->dout, io->dout_stride, (int64_t)p->H * p->Dv, "dout", backward},
        {io->dq, io->dq_stride, (int64_t)p->H * p->D, "dq", backward},
        {io->dk, io->dk_stride, (int64_t)p->Hkv * p->D, "dk", backward},
        {io->dv, io->dv_stride, (int64_t)p->Hkv * p->Dv, "dv", backward},
    };
    for (size_t i = 0; i < sizeof array / sizeof *array; i++) {
        if (!array[i].needed) continue;
        WEFT_TRY(need(array[i].pointer, a->rows, array[i].name, call));
        WEFT_TRY(need_stride(array[i].stride, a->rows, array[i].width, array[i].name));
    }
    if (p->sinks && !io->sinks)
        return weft_fail(WEFT_ERR_REFUSED, "attention %s: the plan has sinks, io.sinks is NULL", call);
    int align = weft_cp_kept_bytes(a->plan) ? STATE_ALIGN : (int)sizeof(double);
    if (io->state && (uintptr_t)io->state % (unsigned)align != 0)
        return weft_fail(WEFT_ERR_REFUSED, "attention %s: io.state is not aligned to %d bytes", call, align);
    if (backward && !io->state && !a->state_written)
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention backward: no forward on these documents left its state in the plan; "
                         "run forward first, or give io.state");
    return WEFT_OK;
}

static void fill_io(const weft_attention *a, const weft_attention_io *io, weft_cp_io *x)
{
    const weft_cp_problem *p = &a->problem;
    int64_t hd = (int64_t)p->H * p->D, hv = (int64_t)p->H * p->Dv, kd = (int64_t)p->Hkv * p->D,
            kv = (int64_t)p->Hkv * p->Dv;
    char *state = io->state ? io->state : a->state;
    *x = (weft_cp_io){.layer = io->layer, .step = io->step, .q = io->q, .k = io->k, .v = io->v,
                      .q_ld = dense(io->q_stride, hd),
                      .k_ld = dense(io->k_stride, kd), .v_ld = dense(io->v_stride, kv),
                      .sinks = p->sinks ? io->sinks : NULL,
                      .o = io->o, .o_ld = dense(io->o_stride, hv), .m = state, .l = state + statistics_bytes(a) / 2,
                      .kept = weft_cp_kept_bytes(a->plan) ? state + kept_at(a) : NULL, .lse = io->lse, .dout = io->dout,
                      .dout_ld = dense(io->dout_stride, hv), .dq = io->dq, .dk = io->dk, .dv = io->dv,
                      .dq_ld = dense(io->dq_stride, hd), .dk_ld = dense(io->dk_stride, kd),
                      .dv_ld = dense(io->dv_stride, kv), .dsinks = p->sinks ? io->dsinks : NULL};
}

/* What the caller gives is checked on its own rank only: an agreement in every call would cost a round trip.
 * When one rank is refused here, it leaves, and the waits of the others end with its message. */
static weft_status run(weft_attention *a, const weft_attention_io *given, bool backward)
{
    weft_attention_io io;
    weft_cp_io x;
    weft_counters before, after;
    weft_attention_io_init(&io, sizeof io);
    if (!given) return weft_fail(WEFT_ERR_REFUSED, "attention %s: io is NULL", backward ? "backward" : "forward");
    WEFT_TRY(take_struct(&io, sizeof io, given, given->size, "weft_attention_io"));
    WEFT_TRY(check_io(a, &io, backward));
    fill_io(a, &io, &x);
    weft_comm_counters(a->comm, &before);
    weft_status st = backward ? weft_cp_backward(a->plan, 0, &x) : weft_cp_forward(a->plan, 0, &x);
    weft_comm_counters(a->comm, &after);
    a->sent += after.bytes_logical - before.bytes_logical;
    if (st >= 0 && !backward && !io.state) a->state_written = true;
    return st;
}

weft_status weft_attention_forward(weft_attention *a, const weft_attention_io *io) { return run(a, io, false); }
weft_status weft_attention_backward(weft_attention *a, const weft_attention_io *io) { return run(a, io, true); }

/* ---- questions -------------------------------------------------------------------------------------- */

int64_t weft_attention_rows(const weft_attention *a) { return a->rows; }

void weft_attention_tokens(const weft_attention *a, int64_t *index, int64_t *position)
{
    const weft_shard *s = &a->shard;
    int me = weft_comm_rank(a->comm);
    int64_t at = 0;
    for (int64_t i = s->first[me]; i < s->first[me + 1]; i++)
        for (int64_t j = 0; j < s->seg[i].len; j++, at++) {
            const weft_segment *g = &s->seg[i];
            int64_t step = weft_segment_step(g, j);
            if (index) index[at] = g->row * s->T + g->token + step;
            if (position) position[at] = g->start + step;
        }
}

size_t weft_attention_state_bytes(const weft_attention *a)
{
    size_t kept = weft_cp_kept_bytes(a->plan);
    return kept ? kept_at(a) + kept : statistics_bytes(a);
}

size_t weft_attention_pool_bytes(const weft_attention *a) { return weft_cp_pool_bytes(a->plan); }

weft_attention_traffic weft_attention_bytes(const weft_attention *a)
{
    return (weft_attention_traffic){.sent = a->sent, .forward_formula = weft_cp_planned(a->plan, 0).forward_bytes,
                                    .backward_formula = weft_cp_planned(a->plan, 0).backward_bytes};
}

void weft_attention_describe(const weft_attention *a, char *text, size_t size)
{
    weft_text t = {0};
    weft_cp_describe(a->plan, &t);
    if (size) snprintf(text, size, "%s", t.data ? t.data : "");
    weft_text_free(&t);
}
