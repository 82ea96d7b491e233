/* cp_case.c — see cp_case.h. */
#include "harness/cp_case.h"

#include "harness/mpi_ranks.h"
#include "harness/ranks.h"
#include "harness/test.h"

static void *zeros(int64_t n, size_t size)
{
    void *p = calloc((size_t)(n > 0 ? n : 1), size);
    if (!p) abort();
    return p;
}

static double *doubles(int64_t n) { return zeros(n, sizeof(double)); }

cp_docs cp_docs_make(int64_t B, int64_t T, int pattern)
{
    static const int64_t lens[] = {0, 1, 5, 0, 0, 3, 1, 11, 2, 0, 17};
    cp_docs d = {zeros(B * (2 * T + 16), sizeof(int64_t)), zeros(B + 1, sizeof(int64_t)), 0};
    int64_t n = 0;
    for (int64_t b = 0; b < B; b++) {
        d.first[b] = n;
        d.cu[n++] = 0;
        for (int64_t at = 0, i = 0; pattern && at < T; i++) {
            at = weft_min_i64(T, at + lens[(i + b * 3 + pattern) % 11]);
            d.cu[n++] = at;
        }
        d.cu[n++] = T; /* the only document, or an empty one at the end */
    }
    d.first[B] = n;
    d.total = n - B;
    return d;
}

void cp_docs_free(cp_docs *d)
{
    free(d->cu);
    free(d->first);
}

static double round_to(weft_dtype t, double x)
{
    union { double d; float f; uint16_t h; } u;
    weft_store(&u, t, 0, x);
    return weft_load(&u, t, 0);
}

static void fill(const cp_case *c, char what, double *x, int64_t T, int heads, int dim)
{
    weft_dtype t = weft_prec_compute(c->prec);
    uint64_t seed = c->seed * 1000 + (uint64_t)what;
    for (int64_t b = 0, i = 0; b < c->B; b++)
        for (int64_t s = 0; s < T; s++)
            for (int h = 0; h < heads; h++)
                for (int d = 0; d < dim; d++, i++)
                    x[i] = round_to(t, c->value ? c->value(c, what, b, s, h, d) : test_normal(seed, i));
}

cp_data cp_data_make(const cp_case *c)
{
    cp_data x = {doubles(c->B * c->Tq * c->H * c->D),
                 doubles(c->B * c->T * c->Hkv * c->D),
                 doubles(c->B * c->T * c->Hkv * c->Dv),
                 doubles(c->B * c->Tq * c->H * c->Dv),
                 doubles(c->H),
                 doubles(c->H)};
    fill(c, 'q', x.q, c->Tq, c->H, c->D);
    fill(c, 'k', x.k, c->T, c->Hkv, c->D);
    fill(c, 'v', x.v, c->T, c->Hkv, c->Dv);
    fill(c, 'o', x.dout, c->Tq, c->H, c->Dv);
    for (int h = 0; h < c->H; h++) {
        x.sinks[h] = round_to(weft_prec_real(c->prec), test_normal(c->seed + 77, h));
        x.alibi[h] = round_to(weft_prec_real(c->prec), 0.25 / (1 + h));
    }
    return x;
}

void cp_data_free(cp_data *d)
{
    free(d->q), free(d->k), free(d->v), free(d->dout), free(d->sinks), free(d->alibi);
}

cp_result *cp_result_make(const cp_case *c, int ranks)
{
    cp_result *r = zeros(1, sizeof *r);
    r->o = doubles(c->B * c->Tq * c->H * c->Dv);
    r->lse = doubles(c->B * c->Tq * c->H);
    r->dq = doubles(c->B * c->Tq * c->H * c->D);
    r->dk = doubles(c->B * c->T * c->Hkv * c->D);
    r->dv = doubles(c->B * c->T * c->Hkv * c->Dv);
    r->dsinks = doubles(c->H);
    r->ranks = ranks;
    r->dsinks_part = doubles((int64_t)ranks * c->H);
    r->forward_bytes = zeros(ranks, sizeof(int64_t));
    r->backward_bytes = zeros(ranks, sizeof(int64_t));
    r->planned_forward = zeros(ranks, sizeof(int64_t));
    r->planned_backward = zeros(ranks, sizeof(int64_t));
    r->forward_messages = zeros(ranks, sizeof(int64_t));
    r->backward_messages = zeros(ranks, sizeof(int64_t));
    r->planned_forward_messages = zeros(ranks, sizeof(int64_t));
    r->planned_backward_messages = zeros(ranks, sizeof(int64_t));
    r->kv_buffer_bytes = zeros(ranks, sizeof(size_t));
    r->pool_bytes = zeros(ranks, sizeof(size_t));
    r->kept_bytes = zeros(ranks, sizeof(size_t));
    return r;
}

void cp_result_free(cp_result *r)
{
    free(r->o), free(r->lse), free(r->dq), free(r->dk), free(r->dv), free(r->dsinks), free(r->dsinks_part);
    free(r->forward_bytes), free(r->backward_bytes), free(r->planned_forward), free(r->planned_backward);
    free(r->forward_messages), free(r->backward_messages);
    free(r->planned_forward_messages), free(r->planned_backward_messages);
    free(r->kv_buffer_bytes), free(r->pool_bytes), free(r->kept_bytes);
    free(r);
}

/* ---- one rank ----------------------------------------------------------------------------------------- */

typedef struct rows { /* a local tensor with an uneven distance between rows, and the tokens of its rows */
    void *data;
    weft_dtype type;
    int64_t n, width, ld;
    const int64_t *index;
} rows;

static weft_status make_rows(rows *x, weft_arena *arena, weft_dtype type, int64_t n, int64_t width, int64_t gap,
                             const int64_t *index)
{
    *x = (rows){NULL, type, n, width, width + gap, index};
    WEFT_TRY(weft_arena_alloc(arena, n * x->ld, weft_dtype_size(type), "test rows", &x->data));
    for (int64_t i = 0; i < n * x->ld; i++) weft_store(x->data, type, i, NAN); /* what is not written shows */
    return WEFT_OK;
}

static void pick_rows(const rows *x, const double *whole)
{
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t j = 0; j < x->width; j++)
            weft_store(x->data, x->type, i * x->ld + j, whole[x->index[i] * x->width + j]);
}

static void put_rows(const rows *x, double *whole)
{
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t j = 0; j < x->width; j++)
            whole[x->index[i] * x->width + j] = weft_load(x->data, x->type, i * x->ld + j);
}

typedef struct local { rows q, k, v, dout, o, m, l, lse, dq, dk, dv, sinks, dsinks, kept; } local;

static weft_status make_local(local *x, const cp_job *job, weft_arena *arena, int64_t nq, const int64_t *qi, int64_t nk,
                              const int64_t *ki)
{
    const cp_case *c = job->c;
    weft_dtype C = weft_prec_compute(c->prec), R = weft_prec_real(c->prec);
    int64_t q = (int64_t)c->H * c->D, o = (int64_t)c->H * c->Dv, k = (int64_t)c->Hkv * c->D,
            v = (int64_t)c->Hkv * c->Dv;
    static const int64_t head_index[] = {0};
    WEFT_TRY(make_rows(&x->q, arena, C, nq, q, 3, qi));
    WEFT_TRY(make_rows(&x->k, arena, C, nk, k, 5, ki));
    WEFT_TRY(make_rows(&x->v, arena, C, nk, v, 1, ki));
    WEFT_TRY(make_rows(&x->dout, arena, C, nq, o, 2, qi));
    WEFT_TRY(make_rows(&x->o, arena, C, nq, o, 4, qi));
    WEFT_TRY(make_rows(&x->m, arena, R, nq, c->H, 0, qi));
    WEFT_TRY(make_rows(&x->l, arena, R, nq, c->H, 0, qi));
    WEFT_TRY(make_rows(&x->lse, arena, R, nq, c->H, 0, qi));
    WEFT_TRY(make_rows(&x->dq, arena, C, nq, q, 0, qi));
    WEFT_TRY(make_rows(&x->dk, arena, C, nk, k, 7, ki));
    WEFT_TRY(make_rows(&x->dv, arena, C, nk, v, 0, ki));
    WEFT_TRY(make_rows(&x->sinks, arena, R, 1, c->H, 0, head_index));
    WEFT_TRY(make_rows(&x->dsinks, arena, R, 1, c->H, 0, head_index));
    return WEFT_OK;
}

static void pick_local(local *x, const cp_data *data)
{
    pick_rows(&x->q, data->q);
    pick_rows(&x->k, data->k);
    pick_rows(&x->v, data->v);
    pick_rows(&x->dout, data->dout);
    pick_rows(&x->sinks, data->sinks);
}

/* 0xff: a NaN in every type. */
static weft_status make_kept(rows *x, weft_arena *arena, size_t bytes)
{
    *x = (rows){.n = bytes > 0};
    WEFT_TRY(weft_arena_alloc(arena, (int64_t)bytes, 1, "test kept", &x->data));
    memset(x->data, 0xff, bytes);
    return WEFT_OK;
}

static weft_cp_io io_of(const local *x, const cp_case *c)
{
    return (weft_cp_io){.layer = 3, .no_dropout = c->no_dropout, .q = x->q.data, .k = x->k.data, .v = x->v.data,
                        .q_ld = x->q.ld, .k_ld = x->k.ld,
                        .v_ld = x->v.ld, .sinks = c->sinks ? x->sinks.data : NULL, .o = x->o.data, .o_ld = x->o.ld,
                        .m = x->m.data, .l = x->l.data, .lse = x->lse.data, .dout = x->dout.data, .dout_ld = x->dout.ld,
                        .dq = x->dq.data, .dk = x->dk.data, .dv = x->dv.data, .dq_ld = x->dq.ld, .dk_ld = x->dk.ld,
                        .dv_ld = x->dv.ld, .dsinks = c->sinks ? x->dsinks.data : NULL,
                        .kept = x->kept.n ? x->kept.data : NULL};
}

static weft_layout layout_of(const cp_job *job)
{
    return (int)job->layout == CP_STRIPED_3 ? (weft_layout){WEFT_LAYOUT_STRIPED, 3}
                                            : (weft_layout){job->layout, job->c->block};
}

static weft_status make_shard(weft_shard *s, weft_arena *arena, const cp_job *job, int P, int64_t T, int64_t pos0,
                              bool use_docs)
{
    const cp_case *c = job->c;
    weft_layout layout = layout_of(job);
    cp_docs whole = cp_docs_make(c->B, T, 0);
    weft_docs docs = {c->B, T, use_docs ? c->cu : whole.cu, use_docs ? c->first : whole.first, NULL};
    weft_status st = weft_shard_alloc(s, arena, P, weft_shard_capacity(layout, c->B, T, docs.first[c->B] - c->B, P));
    if (st == WEFT_OK) st = weft_shard_make(s, layout, &docs, pos0);
    cp_docs_free(&whole);
    return st;
}

static int64_t q_pos0(const cp_case *c) { return c->own_q_pos0 ? c->q_pos0 : c->k_pos0 + c->T - c->Tq; }

static weft_cp_problem problem_of(const cp_job *job, const void *alibi)
{
    const cp_case *c = job->c;
    return (weft_cp_problem){.prec = c->prec, .B = c->B, .Tq = c->Tq, .T = c->T,
                             .max_docs = c->cu ? c->first[c->B] - c->B : c->B, .H = c->H, .Hkv = c->Hkv, .D = c->D,
                             .Dv = c->Dv, .group = c->group, .head0 = c->head0,
                             .scale = c->scale != 0 ? c->scale : 1 / sqrt(c->D), .softcap = c->softcap,
                             .mask = c->mask, .dropout = c->dropout, .seed = c->seed, .alibi = c->alibi ? alibi : NULL,
                             .sinks = c->sinks, .layout = layout_of(job), .need_backward = true, .slots = 2};
}

static weft_counters counters(weft_comm *comm)
{
    weft_counters n;
    weft_comm_counters(comm, &n);
    return n;
}

static void note_traffic(cp_result *out, int rank, weft_counters a, weft_counters b, weft_counters c,
                         weft_cp_traffic planned)
{
    out->forward_bytes[rank] = b.bytes_logical - a.bytes_logical;
    out->backward_bytes[rank] = c.bytes_logical - b.bytes_logical;
    out->forward_messages[rank] = b.messages - a.messages;
    out->backward_messages[rank] = c.messages - b.messages;
    out->planned_forward[rank] = planned.forward_bytes;
    out->planned_backward[rank] = planned.backward_bytes;
    out->planned_forward_messages[rank] = planned.forward_messages;
    out->planned_backward_messages[rank] = planned.backward_messages;
}

typedef struct shards { weft_shard q, kv, other_q, other_kv; } shards;

/* A first run on nothing but NaN: it leaves NaN in every buffer of the plan. */
static weft_status poison(weft_cp_plan *plan, const shards *s, local *x, const cp_case *c)
{
    weft_cp_io io = io_of(x, c);
    WEFT_TRY(weft_cp_bind(plan, 0, &s->q, &s->kv));
    WEFT_TRY(weft_cp_forward(plan, 0, &io));
    return weft_cp_backward(plan, 0, &io);
}

/* Bind, forward, backward, as often as asked for, in turn through both slots. In between the other slot is bound to
 * other documents: it must not matter. Nothing may be allocated. */
static weft_status run_plan(weft_ctx *ctx, weft_comm *comm, const cp_job *job, weft_cp_plan *plan, const shards *s,
                            local *x)
{
    int rank = weft_comm_rank(comm);
    weft_cp_io io = io_of(x, job->c);
    int64_t before = ctx->mem.allocations;
    for (int i = 0; i < (job->repeat > 0 ? job->repeat : 1); i++) {
        for (int h = 0; h < job->c->H; h++) weft_store(x->dsinks.data, x->dsinks.type, h, 0);
        WEFT_TRY(weft_cp_bind(plan, i % 2, &s->q, &s->kv));
        weft_counters a = counters(comm);
        WEFT_TRY(weft_cp_forward(plan, i % 2, &io));
        weft_counters b = counters(comm);
        WEFT_TRY(weft_cp_bind(plan, (i + 1) % 2, &s->other_q, &s->other_kv));
        WEFT_TRY(weft_cp_backward(plan, i % 2, &io));
        note_traffic(job->out, rank, a, b, counters(comm), weft_cp_planned(plan, i % 2));
    }
    job->out->kv_buffer_bytes[rank] = weft_cp_kv_buffer_bytes(plan);
    job->out->pool_bytes[rank] = weft_cp_pool_bytes(plan);
    job->out->kept_bytes[rank] = weft_cp_kept_bytes(plan);
    if (ctx->mem.allocations != before)
        return weft_fail(WEFT_ERR_INTERNAL, "bind, forward, backward made %lld allocations",
                         (long long)(ctx->mem.allocations - before));
    return WEFT_OK;
}

static void collect(const cp_job *job, const local *x, int rank)
{
    put_rows(&x->o, job->out->o);
    put_rows(&x->lse, job->out->lse);
    put_rows(&x->dq, job->out->dq);
    put_rows(&x->dk, job->out->dk);
    put_rows(&x->dv, job->out->dv);
    if (job->c->sinks) put_rows(&x->dsinks, job->out->dsinks_part + rank * job->c->H);
}

static weft_status run_in_arena(weft_ctx *ctx, weft_comm *comm, const cp_job *job, weft_arena *arena)
{
    const cp_case *c = job->c;
    int P = weft_comm_size(comm), rank = weft_comm_rank(comm);
    weft_kern kern;
    shards s;
    weft_cp_plan *plan;
    local x;
    rows alibi;
    static const int64_t head_index[] = {0};
    WEFT_TRY(weft_kern_init(&kern, weft_isa_best()));
    WEFT_TRY(make_shard(&s.q, arena, job, P, c->Tq, c->cu ? 0 : q_pos0(c), c->cu));
    WEFT_TRY(make_shard(&s.kv, arena, job, P, c->T, c->cu ? 0 : c->k_pos0, c->cu));
    WEFT_TRY(make_shard(&s.other_q, arena, job, P, c->Tq, 0, false));
    WEFT_TRY(make_shard(&s.other_kv, arena, job, P, c->T, 0, false));
    WEFT_TRY(make_rows(&alibi, arena, weft_prec_real(c->prec), 1, c->H, 0, head_index));
    pick_rows(&alibi, job->data->alibi);
    weft_cp_problem problem = problem_of(job, alibi.data);
    weft_cp_options options = job->more;
    options.strategy = job->strategy, options.overlap = job->overlap;
    WEFT_TRY(weft_cp_plan_create(&plan, arena, &kern, comm, &problem, &options));
    if (job->tamper) job->tamper(plan);
    int64_t *index_q, *index_k, *pos;
    WEFT_TRY(WEFT_NEW(arena, s.q.rows[rank], "test index", &index_q));
    WEFT_TRY(WEFT_NEW(arena, s.kv.rows[rank], "test index", &index_k));
    WEFT_TRY(WEFT_NEW(arena, s.q.rows[rank] + s.kv.rows[rank], "test index", &pos));
    weft_shard_tokens(&s.q, rank, index_q, pos);
    weft_shard_tokens(&s.kv, rank, index_k, pos);
    WEFT_TRY(make_local(&x, job, arena, s.q.rows[rank], index_q, s.kv.rows[rank], index_k));
    WEFT_TRY(make_kept(&x.kept, arena, weft_cp_kept_bytes(plan)));
    if (c->poison) WEFT_TRY(poison(plan, &s, &x, c));
    pick_local(&x, job->data);
    weft_status st = run_plan(ctx, comm, job, plan, &s, &x);
    weft_cp_plan_destroy(plan); /* also where a test makes ranks fail */
    if (st == WEFT_OK) collect(job, &x, rank);
    return st;
}

weft_status cp_run_rank(weft_ctx *ctx, weft_comm *comm, const cp_job *job)
{
    weft_arena *arena;
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "test", NULL));
    weft_status st = run_in_arena(ctx, comm, job, arena);
    weft_arena_destroy(arena);
    return st;
}

/* ---- all ranks ---------------------------------------------------------------------------------------- */

typedef struct job_list { cp_job *jobs; int n; bool copies; } job_list;

static weft_status run_jobs(weft_ctx *ctx, weft_world *world, void *ud)
{
    const job_list *list = ud;
    int P = weft_world_size(world);
    weft_comm *comm;
    if (list->copies) weft_world_copy_only(world);
    WEFT_TRY(test_comm_all(&comm, world, "cp"));
    weft_status st = WEFT_OK;
    for (int i = 0; i < list->n && st == WEFT_OK; i++) {
        const cp_job *j = &list->jobs[i];
        st = cp_run_rank(ctx, comm, j);
        if (st < 0)
            weft_fail_at(st, "case %s, %s, layout %d, overlap %d, P %d: ", j->c->name ? j->c->name : "?", j->strategy,
                         (int)j->layout, j->overlap, P);
    }
    weft_comm_destroy(comm);
    return st;
}

void cp_result_sum_sinks(cp_result *r, int H)
{
    memset(r->dsinks, 0, (size_t)H * sizeof(double));
    for (int p = 0; p < r->ranks; p++)
        for (int h = 0; h < H; h++) r->dsinks[h] += r->dsinks_part[p * H + h];
}

/* Everything that ranks write in a result. */
enum { PARTS = 17 };
typedef struct part { void *data; size_t bytes; } part;

static void parts_of(const cp_case *c, const cp_result *r, part parts[PARTS])
{
    size_t d = sizeof(double), nq = (size_t)(c->B * c->Tq * c->H) * d, nk = (size_t)(c->B * c->T * c->Hkv) * d,
           P = (size_t)r->ranks;
    void *const counts[] = {r->forward_bytes, r->backward_bytes, r->planned_forward, r->planned_backward,
                            r->forward_messages,
                            r->backward_messages, r->planned_forward_messages, r->planned_backward_messages};
    void *const sizes[] = {r->kv_buffer_bytes, r->pool_bytes, r->kept_bytes};
    part *to = parts;
    *to++ = (part){r->o, nq * (size_t)c->Dv};
    *to++ = (part){r->lse, nq};
    *to++ = (part){r->dq, nq * (size_t)c->D};
    *to++ = (part){r->dk, nk * (size_t)c->D};
    *to++ = (part){r->dv, nk * (size_t)c->Dv};
    *to++ = (part){r->dsinks_part, P * (size_t)c->H * d};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) *to++ = (part){counts[i], P * sizeof(int64_t)};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) *to++ = (part){sizes[i], P * sizeof(size_t)};
}

/* All parts of all results, to or from one piece of memory; the bytes of it. */
static size_t move_parts(const job_list *list, char *flat, bool back)
{
    size_t at = 0;
    for (int i = 0; i < list->n; i++) {
        part parts[PARTS];
        parts_of(list->jobs[i].c, list->jobs[i].out, parts);
        for (int k = 0; k < PARTS; k++) {
            if (flat && parts[k].bytes)
                memcpy(back ? parts[k].data : flat + at, back ? flat + at : parts[k].data, parts[k].bytes);
            at += parts[k].bytes;
        }
    }
    return at;
}

/* Ranks that are processes have each written their rows into arrays of their own: afterwards all have all rows. The
 * arrays begin with a pattern that no result has, so that every written value is seen. */
static weft_status run_processes(int P, job_list *list)
{
    size_t bytes = move_parts(list, NULL, false);
    char *before = zeros((int64_t)bytes, 1), *flat = zeros((int64_t)bytes, 1);
    memset(before, 0xa5, bytes);
    move_parts(list, before, true);
    weft_status st = test_run(P, run_jobs, list, 0);
    move_parts(list, flat, false);
    test_run_merge(P, flat, before, bytes);
    move_parts(list, flat, true);
    free(before);
    free(flat);
    return st;
}

static weft_status run_list(int P, const weft_sim_model *model, cp_job *jobs, int n, bool copies)
{
    job_list list = {jobs, n, copies};
    WEFT_TRY(model              ? weft_run_sim(P, model, run_jobs, &list)
             : test_under_mpi() ? run_processes(P, &list)
                                : weft_run_threads(P, run_jobs, &list));
    for (int i = 0; i < n; i++) cp_result_sum_sinks(jobs[i].out, jobs[i].c->H);
    return WEFT_OK;
}

weft_status cp_run(int P, cp_job *jobs, int n) { return run_list(P, NULL, jobs, n, false); }
weft_status cp_run_copies(int P, cp_job *jobs, int n) { return run_list(P, NULL, jobs, n, true); }
weft_status cp_run_sim(int P, const weft_sim_model *model, cp_job *jobs, int n)
{
    return run_list(P, model, jobs, n, false);
}

/* ---- the specification ---------------------------------------------------------------------------------- */

static int64_t doc_of(const cp_case *c, int64_t b, int64_t t, int64_t *begin)
{
    *begin = 0;
    if (!c->cu) return 0;
    const int64_t *cu = c->cu + c->first[b];
    int64_t d = 0;
    while (cu[d + 1] <= t) d++;
    *begin = cu[d];
    return d;
}

typedef struct row_view {
    const cp_case *c;
    const cp_data *x;
    int64_t b, i, qpos, doc;
    int h, hk;
    double *s, *ds_cap;
} row_view;

/* Score of key j, or -inf; ds_cap: derivative of the softcap. */
static double score(const row_view *r, int64_t j, double *ds_cap)
{
    const cp_case *c = r->c;
    int64_t begin, doc = doc_of(c, r->b, j, &begin), kpos = j - begin + (c->cu ? 0 : c->k_pos0);
    *ds_cap = 0;
    if (doc != r->doc || !weft_visible(&c->mask, r->qpos, kpos)) return -INFINITY;
    const double *q = r->x->q + ((r->b * c->Tq + r->i) * c->H + r->h) * c->D;
    const double *k = r->x->k + ((r->b * c->T + j) * c->Hkv + r->hk) * c->D;
    double s = 0;
    for (int d = 0; d < c->D; d++) s += q[d] * k[d];
    s *= c->scale != 0 ? c->scale : 1 / sqrt(c->D);
    *ds_cap = 1;
    if (c->softcap > 0) {
        double t = tanh(s / c->softcap);
        s = c->softcap * t;
        *ds_cap = 1 - t * t;
    }
    return c->alibi ? s - r->x->alibi[r->h] * fabs((double)(r->qpos - kpos)) : s;
}

static void reference_row(row_view *r, cp_result *out)
{
    const cp_case *c = r->c;
    double m = c->sinks ? r->x->sinks[r->h] : -INFINITY, l = 0, delta = 0;
    int64_t at = (r->b * c->Tq + r->i) * c->H + r->h;
    double *o = out->o + at * c->Dv, *dq = out->dq + at * c->D;
    const double *dout = r->x->dout + at * c->Dv, *q = r->x->q + at * c->D;
    for (int64_t j = 0; j < c->T; j++) m = fmax(m, r->s[j] = score(r, j, &r->ds_cap[j]));
    out->lse[at] = -INFINITY;
    if (m == -INFINITY) return;
    for (int64_t j = 0; j < c->T; j++) l += r->s[j] = exp(r->s[j] - m);
    double sink = c->sinks ? exp(r->x->sinks[r->h] - m) : 0;
    l += sink;
    out->lse[at] = m + log(l);
    for (int64_t j = 0; j < c->T; j++) {
        r->s[j] /= l;
        for (int d = 0; d < c->Dv; d++) o[d] += r->s[j] * r->x->v[((r->b * c->T + j) * c->Hkv + r->hk) * c->Dv + d];
    }
    for (int d = 0; d < c->Dv; d++) delta += o[d] * dout[d];
    if (c->sinks) out->dsinks_part[r->h] -= sink / l * delta;
    for (int64_t j = 0; j < c->T; j++) {
        if (r->s[j] == 0) continue;
        int64_t key = (r->b * c->T + j) * c->Hkv + r->hk;
        double dp = 0;
        for (int d = 0; d < c->Dv; d++) {
            out->dv[key * c->Dv + d] += r->s[j] * dout[d];
            dp += dout[d] * r->x->v[key * c->Dv + d];
        }
        double ds = r->s[j] * (dp - delta) * r->ds_cap[j] * (c->scale != 0 ? c->scale : 1 / sqrt(c->D));
        for (int d = 0; d < c->D; d++) {
            dq[d] += ds * r->x->k[key * c->D + d];
            out->dk[key * c->D + d] += ds * q[d];
        }
    }
}

void cp_reference(const cp_case *c, const cp_data *data, cp_result *out)
{
    double *s = doubles(c->T), *ds_cap = doubles(c->T);
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t i = 0; i < c->Tq; i++)
            for (int h = 0; h < c->H; h++) {
                int64_t begin;
                int g = c->group ? c->group : c->H / c->Hkv, hk = (c->head0 + h) / g - c->head0 / g;
                row_view r = {c, data, b, i, 0, doc_of(c, b, i, &begin), h, hk, s, ds_cap};
                r.qpos = c->cu ? i - begin : i + q_pos0(c);
                reference_row(&r, out);
            }
    cp_result_sum_sinks(out, c->H);
    free(s);
    free(ds_cap);
}

/* ---- comparison ------------------------------------------------------------------------------------------ */

double cp_distance(const cp_case *c, const cp_data *data, const cp_result *x, const cp_result *ref, double lse_weight)
{
    int64_t nq = c->B * c->Tq * c->H, nk = c->B * c->T * c->Hkv;
    double floor = weft_norm2(data->dout, WEFT_F64, nq * c->Dv) / 100;
    double e = weft_rel_l2(x->o, WEFT_F64, ref->o, WEFT_F64, nq * c->Dv, floor);
    e = fmax(e, weft_rel_l2(x->dq, WEFT_F64, ref->dq, WEFT_F64, nq * c->D, floor));
    e = fmax(e, weft_rel_l2(x->dk, WEFT_F64, ref->dk, WEFT_F64, nk * c->D, floor));
    e = fmax(e, weft_rel_l2(x->dv, WEFT_F64, ref->dv, WEFT_F64, nk * c->Dv, floor));
    if (c->sinks) e = fmax(e, weft_rel_l2(x->dsinks, WEFT_F64, ref->dsinks, WEFT_F64, c->H, floor));
    return fmax(e, lse_weight * weft_max_scaled(x->lse, WEFT_F64, ref->lse, WEFT_F64, nq));
}

bool cp_same_bits(const cp_case *c, const cp_result *a, const cp_result *b)
{
    size_t nq = (size_t)(c->B * c->Tq * c->H), nk = (size_t)(c->B * c->T * c->Hkv), size = sizeof(double);
    return memcmp(a->o, b->o, nq * (size_t)c->Dv * size) == 0 && memcmp(a->lse, b->lse, nq * size) == 0 &&
           memcmp(a->dq, b->dq, nq * (size_t)c->D * size) == 0 && memcmp(a->dk, b->dk, nk * (size_t)c->D * size) == 0 &&
           memcmp(a->dv, b->dv, nk * (size_t)c->Dv * size) == 0 &&
           memcmp(a->dsinks, b->dsinks, (size_t)c->H * size) == 0;
}

double cp_roundoff(weft_dtype type)
{
    switch (type) {
    case WEFT_F64: return 0x1p-53;
    case WEFT_F32: return 0x1p-24;
    case WEFT_F16: return 0x1p-11;
    case WEFT_BF16: return 0x1p-8;
    case WEFT_F8_E4M3: return 0x1p-4;
    case WEFT_F8_E5M2: return 0x1p-3;
    default: fail_msg("type %d has no roundoff", (int)type);
    }
    return 0;
}

double cp_reorder_limit(weft_prec prec, int64_t terms)
{
    double x = (16 + sqrt((double)terms)) * cp_roundoff(weft_prec_real(prec)), u = cp_roundoff(weft_prec_compute(prec));
    if (prec == WEFT_PREC_F64) return x;
    x = fmin(x, 1e-6);
    return prec == WEFT_PREC_F32 ? x : 2 * u * sqrt(x / (2 * u));
}

void cp_expect_traffic(const cp_job *job, int rank, const traffic *want)
{
    const cp_case *c = job->c;
    const cp_result *x = job->out;
    const int64_t found[] = {x->forward_bytes[rank], x->backward_bytes[rank], x->forward_messages[rank],
                             x->backward_messages[rank]};
    const int64_t planned[] = {x->planned_forward[rank], x->planned_backward[rank], x->planned_forward_messages[rank],
                               x->planned_backward_messages[rank]};
    const int64_t right[] = {want->forward_bytes, want->backward_bytes, want->forward_messages,
                             want->backward_messages};
    static const char *const names[] = {"forward bytes", "backward bytes", "forward messages", "backward messages"};
    for (int i = 0; i < 4; i++)
        if (found[i] != right[i] || planned[i] != right[i])
            fail_msg("%s: %s P=%d U=%d layout %d T=%lld/%lld, rank %d, %s: %lld, planned %lld, wanted %lld", c->name,
                     job->strategy, x->ranks, job->more.head_size, (int)job->layout, (long long)c->Tq, (long long)c->T,
                     rank, names[i], (long long)found[i], (long long)planned[i], (long long)right[i]);
}

void cp_check_planned(const cp_job *job)
{
    const cp_result *x = job->out;
    for (int r = 0; r < x->ranks; r++) {
        const traffic planned = {x->planned_forward[r], x->planned_backward[r], x->planned_forward_messages[r],
                                 x->planned_backward_messages[r]};
        cp_expect_traffic(job, r, &planned);
    }
}

traffic_case cp_traffic_case(const cp_job *job)
{
    const cp_case *c = job->c;
    return (traffic_case){.strategy = job->strategy, .layout = layout_of(job), .P = job->out->ranks,
                          .U = job->more.head_size, .B = c->B, .Tq = c->Tq, .T = c->T, .H = c->H, .Hkv = c->Hkv,
                          .group = c->group, .head0 = c->head0,
                          .D = c->D, .Dv = c->Dv, .prec = c->prec, .keep_heads = job->more.keep_heads,
                          .piece = job->more.buffer_bytes};
}

void cp_check_traffic(const cp_job *job)
{
    const traffic_case c = cp_traffic_case(job);
    for (int r = 0; r < c.P; r++) {
        traffic want = traffic_of(&c, r);
        cp_expect_traffic(job, r, &want);
    }
}

/* ---- the whole claim --------------------------------------------------------------------------------------- */

/* Strategies of one family give the same bits: their ranks hold the same heads of the same rows. */
typedef enum { BY_ROWS, BY_GRID, BY_HEADS, FAMILIES } family;
typedef struct way { const char *strategy; bool overlap; int repeat; family family; weft_cp_options more; } way;
/* The first half may read in place, the other half copies. */
static const way ways[] = {
    {"pcp", true, 1, BY_ROWS, {0}},
    {"ring", true, 2, BY_ROWS, {0}},
    {"pairwise", true, 2, BY_ROWS, {0}},
    {"dcp", true, 1, BY_GRID, {0}},
    {"ulysses", true, 1, BY_HEADS, {0}},
    {"pcp", false, 1, BY_ROWS, {0}},
    {"ring", false, 1, BY_ROWS, {0}},
    {"pairwise", false, 1, BY_ROWS, {0}},
    {"dcp-ring", false, 2, BY_GRID, {.keep_heads = true}},
    {"dcp-pairwise", true, 1, BY_GRID, {0}},
};
enum { WAYS = sizeof ways / sizeof *ways };
_Static_assert((int)WAYS == (int)CP_WAYS, "what callers of cp_jobs have room for");

/* Head ranks of the grid: as many as can be. */
static int grid_heads(const cp_case *c, int P)
{
    int U = P < c->H ? P : c->H;
    while (P % U != 0) U--;
    return U;
}

/* One head rank is no grid, and more ranks than heads are no head group. */
static bool has_way(const cp_case *c, int P, const way *w)
{
    return w->family == BY_ROWS || (w->family == BY_GRID ? grid_heads(c, P) > 1 : P > 1 && P <= c->H);
}

/* Jobs of all ways that there are, and which way each is. */
static int make_jobs(const cp_case *c, const cp_data *data, int P, weft_layout_kind layout, cp_job *jobs,
                     const way **of)
{
    int n = 0;
    for (int i = 0; i < WAYS; i++) {
        if (!has_way(c, P, &ways[i])) continue;
        of[n] = &ways[i];
        jobs[n++] = (cp_job){c, data, ways[i].strategy, layout, ways[i].overlap, ways[i].repeat, NULL,
                             cp_result_make(c, P),
                             ways[i].more};
        if (ways[i].family == BY_GRID) jobs[n - 1].more.head_size = grid_heads(c, P);
    }
    return n;
}

int cp_jobs(const cp_case *c, const cp_data *data, int P, weft_layout_kind layout, cp_job jobs[CP_WAYS])
{
    const way *of[WAYS];
    return make_jobs(c, data, P, layout, jobs, of);
}

static void check_layout(const cp_case *c, const cp_data *data, const cp_result *one, int P, weft_layout_kind layout,
                         double across, double lse_weight)
{
    cp_job jobs[WAYS];
    const cp_result *like[FAMILIES] = {NULL};
    const way *of[WAYS];
    int n = make_jobs(c, data, P, layout, jobs, of);
    assert_ok(cp_run(P, jobs, n / 2)); /* reading in place where the transport can */
    assert_ok(cp_run_copies(P, jobs + n / 2, n - n / 2));
    for (int i = 0; i < n; i++) {
        double e = cp_distance(c, data, jobs[i].out, one, lse_weight);
        const cp_result **first = &like[of[i]->family];
        if (!(e <= across))
            fail_msg("%s: %s on P=%d, layout %d: %.3e from P=1, limit %.3e", c->name, jobs[i].strategy, P, (int)layout,
                     e, across);
        if (!*first) *first = jobs[i].out;
        if (!cp_same_bits(c, jobs[i].out, *first))
            fail_msg("%s: %s (overlap %d) differs in bits from the first of its family on P=%d, layout %d", c->name,
                     jobs[i].strategy, jobs[i].overlap, P, (int)layout);
        cp_check_planned(&jobs[i]);
    }
    for (int i = 0; i < n; i++) cp_result_free(jobs[i].out);
}

void cp_check_all(const cp_case *c, const int *ranks, int n, double exact, double across, double lse_weight)
{
    cp_data data = cp_data_make(c);
    cp_result *want = cp_result_make(c, 1), *one = cp_result_make(c, 1);
    cp_job job = {c, &data, "none", WEFT_LAYOUT_CONTIGUOUS, true, 1, NULL, one, {0}};
    cp_reference(c, &data, want);
    assert_ok(cp_run(1, &job, 1));
    double e = cp_distance(c, &data, one, want, lse_weight);
    if (!(e <= exact)) fail_msg("%s: P=1 is %.3e from the specification, limit %.3e", c->name, e, exact);
    /* where cases begin differs, so that all pairs of P and layout are met */
    int64_t turn = c->T + c->B + c->H + (int64_t)c->seed;
    for (int i = 0; i < n; i++)
        for (int l = 0; l < CP_LAYOUTS; l++) {
            /* under mpirun: as many as it has started */
            if (ranks[i] > test_run_most() || (n > 1 && l != WEFT_LAYOUT_ZIGZAG && (l + i) % 2 != 0)) continue;
            if (n > 1 && turn++ % test_every(5) != 0) continue;
            check_layout(c, &data, one, ranks[i], (weft_layout_kind)l, across, lse_weight);
        }
    cp_result_free(want);
    cp_result_free(one);
    cp_data_free(&data);
}
