/* verify_attention.c — one attention problem, forward and backward on P ranks, against the expected values that its
 * file holds or, for a made case, against double precision. Every rank takes its own rows. */
#include "train/attention_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- this rank's rows ----------------------------------------------------------------------------- */

int64_t weft__case_width(const weft_attention_case *c, int i)
{
    const weft_cp_problem *p = &c->problem;
    switch (i) {
    case WEFT_CASE_Q:
    case WEFT_CASE_DQ: return (int64_t)p->H * p->D;
    case WEFT_CASE_K:
    case WEFT_CASE_DK: return (int64_t)p->Hkv * p->D;
    case WEFT_CASE_V:
    case WEFT_CASE_DV: return (int64_t)p->Hkv * p->Dv;
    default: return (int64_t)p->H * p->Dv;
    }
}

weft_status weft__case_take(weft_attention_case *c, int i, int rank)
{
    const weft_shard *s = weft__case_shard(c, i);
    int64_t rows = s->rows[rank], width = weft__case_width(c, i), *index = NULL, *pos = NULL;
    size_t to = weft_dtype_size(c->C);
    WEFT_TRY(weft_arena_alloc(c->arena, rows * width, to, weft__case_names[i], &c->mine[i]));
    if (i > WEFT_CASE_DO) return WEFT_OK;
    weft_mark mark = weft_arena_mark(c->arena);
    WEFT_TRY(WEFT_NEW(c->arena, rows, "index", &index));
    WEFT_TRY(WEFT_NEW(c->arena, rows, "positions", &pos));
    weft_shard_tokens(s, rank, index, pos);
    for (int64_t r = 0; r < rows; r++) {
        char *row = (char *)c->mine[i] + (size_t)(r * width) * to;
        if (!c->file) weft__case_value(c, i, index[r], row);
        else
            weft_convert(row, c->C,
                         (const char *)c->in[i]->data + (size_t)(index[r] * width) * weft_dtype_size(c->in[i]->dtype),
                         c->in[i]->dtype, width);
    }
    weft_arena_release(c->arena, mark);
    return WEFT_OK;
}

static weft_status convert_heads(weft_attention_case *c, const weft_view *v, const char *label, void **out)
{
    if (!v) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(c->arena, c->problem.H, label, (double **)out));
    weft_convert(*out, c->R, v->data, v->dtype, c->problem.H);
    return WEFT_OK;
}

weft_status weft__case_cut(weft_attention_case *c)
{
    weft_cp_problem *p = &c->problem;
    int P = weft_comm_size(c->comm);
    int64_t capacity = weft_shard_capacity(c->run->layout, p->B, p->T, p->max_docs, P);
    WEFT_TRY(weft_shard_alloc(&c->shard_kv, c->arena, P, capacity));
    WEFT_TRY(weft_shard_make(&c->shard_kv, c->run->layout, &c->docs, 0));
    WEFT_TRY(weft_shard_alloc(&c->shard_q, c->arena, P, capacity));
    return weft_shard_make(&c->shard_q, c->run->layout, &c->q_docs, 0);
}

weft_status weft__case_prepare(weft_attention_case *c)
{
    weft_cp_problem *p = &c->problem;
    int me = weft_comm_rank(c->comm);
    WEFT_TRY(weft__case_cut(c));
    for (int i = 0; i < WEFT_CASE_TENSORS; i++) WEFT_TRY(weft__case_take(c, i, me));
    int64_t stats = c->shard_q.rows[me] * p->H;
    size_t real = weft_dtype_size(c->R);
    WEFT_TRY(weft_arena_alloc(c->arena, stats, real, "max", &c->m));
    WEFT_TRY(weft_arena_alloc(c->arena, stats, real, "sum", &c->l));
    WEFT_TRY(weft_arena_alloc(c->arena, stats, real, "lse", &c->lse));
    WEFT_TRY(WEFT_NEW0(c->arena, p->H, "dsinks", (double **)&c->dsinks));
    WEFT_TRY(convert_heads(c, c->file_sinks, "sinks", &c->sinks));
    WEFT_TRY(convert_heads(c, c->file_alibi, "alibi", &c->alibi));
    p->alibi = c->alibi;
    p->sinks = c->sinks != NULL;
    return WEFT_OK;
}

/* ---- running and gathering ------------------------------------------------------------------------ */

weft_cp_io weft__case_io(const weft_attention_case *c)
{
    return (weft_cp_io){.q = c->mine[WEFT_CASE_Q],
                     .k = c->mine[WEFT_CASE_K],
                     .v = c->mine[WEFT_CASE_V],
                     .q_ld = weft__case_width(c, WEFT_CASE_Q),
                     .k_ld = weft__case_width(c, WEFT_CASE_K),
                     .v_ld = weft__case_width(c, WEFT_CASE_V),
                     .sinks = c->sinks,
                     .o = c->mine[WEFT_CASE_O],
                     .o_ld = weft__case_width(c, WEFT_CASE_O),
                     .m = c->m,
                     .l = c->l,
                     .lse = c->lse,
                     .kept = c->kept,
                     .dout = c->mine[WEFT_CASE_DO],
                     .dout_ld = weft__case_width(c, WEFT_CASE_DO),
                     .dq = c->mine[WEFT_CASE_DQ],
                     .dk = c->mine[WEFT_CASE_DK],
                     .dv = c->mine[WEFT_CASE_DV],
                     .dq_ld = weft__case_width(c, WEFT_CASE_DQ),
                     .dk_ld = weft__case_width(c, WEFT_CASE_DK),
                     .dv_ld = weft__case_width(c, WEFT_CASE_DV),
                     .dsinks = c->sinks ? c->dsinks : NULL};
}

static weft_status run_plan(weft_attention_case *c, weft_cp_plan *plan, const weft_report *report)
{
    weft_cp_io io = weft__case_io(c);
    WEFT_TRY(weft_cp_bind(plan, 0, weft__case_queries(c), &c->shard_kv));
    weft_report_stage(report, "forward");
    WEFT_TRY(weft_cp_forward(plan, 0, &io));
    weft_report_stage(report, "backward");
    WEFT_TRY(weft_cp_backward(plan, 0, &io));
    if (c->sinks) WEFT_TRY(weft_all_reduce(c->comm, c->dsinks, c->problem.H, c->R, WEFT_SUM));
    return WEFT_OK;
}

static weft_status run_case(weft_attention_case *c, weft_report *report)
{
    weft_kern kern;
    weft_cp_plan *plan = NULL;
    WEFT_TRY(weft_kern_init(&kern, c->run->isa));
    WEFT_TRY(weft_cp_plan_create(&plan, c->arena, &kern, c->comm, &c->problem, &c->run->cp));
    weft_status st = weft_arena_alloc(c->arena, (int64_t)weft_cp_kept_bytes(plan), 1, "kept by heads", &c->kept);
    st = weft_agree(c->comm, st);
    if (st >= 0) st = run_plan(c, plan, report);
    if (st >= 0 && c->ctx->rank == 0) {
        weft_text_add(&report->note, "plan      ");
        weft_cp_describe(plan, &report->note);
        char pool[32];
        weft_text_add(&report->note, "\nbuffers   %s for the exchange, fixed, on rank 0\n",
                      weft_format_bytes((double)weft_cp_pool_bytes(plan), pool, sizeof pool));
    }
    weft_cp_plan_destroy(plan);
    return st;
}

/* All ranks' rows in the order of the file, as `to`. */
static weft_status gather(weft_attention_case *c, const weft_shard *s, const void *mine, weft_dtype from, int64_t width,
                          weft_dtype to, void **out)
{
    int P = s->P;
    size_t unit = (size_t)width * weft_dtype_size(from), *counts = NULL;
    int64_t total = s->B * s->T, *index = NULL, *pos = NULL;
    char *packed = NULL;
    WEFT_TRY(WEFT_NEW(c->arena, P, "counts", &counts));
    WEFT_TRY(weft_arena_alloc(c->arena, total, unit, "gathered rows", (void **)&packed));
    WEFT_TRY(weft_arena_alloc(c->arena, total * width, weft_dtype_size(to), "gathered", out));
    WEFT_TRY(WEFT_NEW(c->arena, total, "index", &index));
    WEFT_TRY(WEFT_NEW(c->arena, total, "positions", &pos));
    for (int r = 0; r < P; r++) counts[r] = (size_t)s->rows[r] * unit;
    WEFT_TRY(weft_all_gather(c->comm, mine, packed, counts));
    for (int r = 0; r < P; r++) {
        weft_shard_tokens(s, r, index, pos);
        for (int64_t i = 0; i < s->rows[r]; i++, packed += unit)
            weft_convert((char *)*out + (size_t)(index[i] * width) * weft_dtype_size(to), to, packed, from, width);
    }
    return WEFT_OK;
}

static double limit_of(const weft_attention_case *c, const char *name)
{
    bool narrow = c->C == WEFT_BF16 || c->C == WEFT_F16;
    char key[32];
    double v;
    /* the gradient of the sinks is judged like dq in 16 bits */
    snprintf(key, sizeof key, "tol_%s_%s", narrow ? "bf16" : "fp32", narrow && !strcmp(name, "dsinks") ? "dq" : name);
    const char *text = weft_st_meta(c->file, key);
    if (text && weft_parse_f64(text, &v) >= 0) return v;
    return narrow ? 6e-3 : 2e-6;
}

/* For information: the same error over the last eighth of the positions, where most keys are visible. */
static double tail_error(const weft_view *want, const void *got, weft_dtype t, double floor)
{
    int64_t B = want->shape[0], T = want->shape[1], width = want->shape[2] * want->shape[3];
    int64_t tail = weft_ceil_div(T, 8);
    double diff = 0, norm = 0;
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = (b * T + T - tail) * width; i < (b + 1) * T * width; i++) {
            double a = weft_load(got, t, i), r = weft_load(want->data, want->dtype, i);
            diff += (a - r) * (a - r);
            norm += r * r;
        }
    return diff == 0 ? 0 : weft_unsigned_nan(sqrt(diff) / fmax(sqrt(norm), floor));
}

static weft_status compare(weft_attention_case *c, const weft_st_entry *got, int n, weft_report *report)
{
    const weft_view *dout = c->in[WEFT_CASE_DO];
    double floor = weft_norm2(dout->data, dout->dtype, weft_view_count(dout)) / 100;
    weft_text_add(&report->note, "last 1/8");
    for (int i = 0; i < n; i++) {
        const weft_view *want = weft_st_find(c->file, got[i].name), *x = &got[i].view;
        if (!want || !strcmp(got[i].name, "dropout_mask")) continue; /* the mask follows from the seed */
        WEFT_TRY(weft__case_expect_shape(c, got[i].name, want, x->nd, x->shape));
        bool lse = !strcmp(got[i].name, "lse"), narrow = c->C != WEFT_F32 && c->C != WEFT_F64;
        double error = lse ? weft_max_scaled(x->data, x->dtype, want->data, want->dtype, weft_view_count(x))
                           : weft_rel_l2(x->data, x->dtype, want->data, want->dtype, weft_view_count(x), floor);
        WEFT_TRY(weft_report_add(report, got[i].name, error, lse ? (narrow ? 1e-3 : 1e-5) : limit_of(c, got[i].name)));
        if (x->nd == 4)
            weft_text_add(&report->note, "  %s %.1e", got[i].name,
                          tail_error(want, x->data, x->dtype, floor / sqrt(8)));
    }
    weft_text_add(&report->note, "\n");
    return WEFT_OK;
}

static weft_status collect_one(weft_attention_case *c, int i, weft_st_entry *out)
{
    const weft_cp_problem *p = &c->problem;
    bool keys = weft__case_of_keys(i),
         wide = i == WEFT_CASE_Q || i == WEFT_CASE_K || i == WEFT_CASE_DQ || i == WEFT_CASE_DK;
    weft_view v = {.dtype = c->R, /* 16-bit results are written as the F32 that they are */
                   .nd = 4,
                   .shape = {p->B, keys ? p->T : p->Tq, keys ? p->Hkv : p->H, wide ? p->D : p->Dv}};
    WEFT_TRY(gather(c, weft__case_shard(c, i), c->mine[i], c->C, weft__case_width(c, i), c->R, &v.data));
    *out = (weft_st_entry){weft__case_names[i], v};
    return WEFT_OK;
}

/* The mask that dropout takes from addresses, so that others can compute with it. */
static weft_status collect_dropout(weft_attention_case *c, weft_st_entry *out)
{
    const weft_cp_problem *p = &c->problem;
    weft_view v = {.dtype = WEFT_U8, .nd = 4, .shape = {p->B, p->H, p->Tq, p->T}};
    uint32_t word3 = weft_philox_word3(0, 0, WEFT_SITE_DROP_ATTENTION);
    int64_t n = 0, at = 0;
    WEFT_TRY(weft_count_of(v.shape, v.nd, "dropout_mask", &n));
    WEFT_TRY(weft_arena_alloc(c->arena, n, 1, "dropout mask", &v.data));
    for (int64_t b = 0; b < p->B; b++)
        for (int h = 0; h < p->H; h++)
            for (int64_t i = 0; i < p->Tq; i++)
                for (int64_t j = 0; j < p->T; j++)
                    ((uint8_t *)v.data)[at++] =
                        weft_attn_kept(p->dropout, p->seed, word3, (uint32_t)b, (uint32_t)h, p->T - p->Tq + i, j);
    *out = (weft_st_entry){"dropout_mask", v};
    return WEFT_OK;
}

enum { COLLECTED = WEFT_CASE_TENSORS + 5 };

/* Results, gathered; of a made case its inputs too, so that the file can be judged elsewhere. COLLECTIVE */
static weft_status collect(weft_attention_case *c, weft_st_entry *got, int *n)
{
    const weft_cp_problem *p = &c->problem;
    *n = 0;
    for (int i = WEFT_CASE_O; i < WEFT_CASE_TENSORS; i++) WEFT_TRY(collect_one(c, i, &got[(*n)++]));
    weft_view lse = {.dtype = c->R, .nd = 3, .shape = {p->B, p->Tq, p->H}};
    WEFT_TRY(gather(c, &c->shard_q, c->lse, c->R, p->H, c->R, &lse.data));
    got[(*n)++] = (weft_st_entry){"lse", lse};
    if (c->sinks) got[(*n)++] = (weft_st_entry){"dsinks", {.data = c->dsinks, .dtype = c->R, .nd = 1, .shape = {p->H}}};
    if (p->dropout > 0 && c->run->o->out) WEFT_TRY(collect_dropout(c, &got[(*n)++]));
    if (c->file) return WEFT_OK;
    for (int i = 0; i <= WEFT_CASE_DO; i++) WEFT_TRY(collect_one(c, i, &got[(*n)++]));
    if (c->sinks) got[(*n)++] = (weft_st_entry){"sinks", {.data = c->sinks, .dtype = c->R, .nd = 1, .shape = {p->H}}};
    if (c->alibi) got[(*n)++] = (weft_st_entry){"alibi", {.data = c->alibi, .dtype = c->R, .nd = 1, .shape = {p->H}}};
    return WEFT_OK;
}

/* The expected values of a file are of one dropout mask. */
static bool expects(const weft_attention_case *c)
{
    const weft_cp_problem *p = &c->problem;
    if (!c->file || p->dropout != c->file_dropout) return false;
    return p->dropout == 0 || (c->file_seed >= 0 && p->seed == (uint64_t)c->file_seed);
}

static bool has_values(const weft_attention_case *c)
{
    static const char *const also[] = {"lse", "dsinks"};
    for (int i = WEFT_CASE_O; i < WEFT_CASE_TENSORS; i++)
        if (weft_st_find(c->file, weft__case_names[i])) return true;
    return weft_st_find(c->file, also[0]) || weft_st_find(c->file, also[1]);
}

static void add_dropout(weft_text *note, double dropout, bool known, uint64_t seed)
{
    weft_text_add(note, "%g", dropout);
    if (dropout == 0) return;
    if (known) weft_text_add(note, " with seed %llu", (unsigned long long)seed);
    else weft_text_add(note, " with a seed that it does not name");
}

/* Why nothing is compared, where the file has values of another mask. */
static void explain_dropout(const weft_attention_case *c, weft_text *note)
{
    if (!c->file || expects(c) || !has_values(c)) return;
    weft_text_add(note, "dropout   this run's is ");
    add_dropout(note, c->problem.dropout, true, c->problem.seed);
    weft_text_add(note, ", that of the file's expected values is ");
    add_dropout(note, c->file_dropout, c->file_seed >= 0, (uint64_t)c->file_seed);
    weft_text_add(note, ": not compared\n");
}

static weft_status judge_on_root(weft_attention_case *c, const weft_st_entry *got, int n, weft_report *report)
{
    if (c->ctx->rank != 0) return WEFT_OK;
    if (expects(c)) WEFT_TRY(compare(c, got, n, report));
    return c->run->o->out ? weft__case_write(c, got, n) : WEFT_OK;
}

static weft_status judge(weft_attention_case *c, weft_report *report)
{
    weft_st_entry got[COLLECTED];
    int n = 0;
    weft_report_stage(report, "comparing");
    if (c->spots) WEFT_TRY(weft__case_check_spots(c, report));
    if (expects(c) || c->run->o->out) {
        WEFT_TRY(collect(c, got, &n));
        WEFT_TRY(weft_agree(c->comm, judge_on_root(c, got, n, report)));
    }
    if (c->ctx->rank == 0) explain_dropout(c, &report->note);
    return weft_report_share(c->comm, report);
}

/* Queries are the last part of the keys: their documents are those of the keys, cut, and the first of them begins where
 * it has got to. */
static weft_status make_q_docs(weft_attention_case *c)
{
    weft_cp_problem *p = &c->problem;
    int64_t n = c->docs.first[p->B], before = p->T - p->Tq, *cu = NULL, *start = NULL;
    p->max_docs = n - p->B;
    c->q_docs = c->docs;
    if (before == 0) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(c->arena, n, "documents", &cu));
    WEFT_TRY(WEFT_NEW(c->arena, n, "documents", &start));
    for (int64_t i = 0; i < n; i++) {
        cu[i] = weft_max_i64(0, c->docs.cu[i] - before);
        start[i] = weft_max_i64(0, before - c->docs.cu[i]);
    }
    c->q_docs = (weft_docs){.B = p->B, .T = p->Tq, .cu = cu, .first = c->docs.first, .start = start};
    return WEFT_OK;
}

static weft_status settle_case(weft_attention_case *c)
{
    if (c->run->dropout_given) c->problem.dropout = c->run->o->dropout;
    return make_q_docs(c);
}

weft_status weft__case_open_made(weft_attention_case *c, const char *text)
{
    WEFT_TRY(weft__case_make(c, text));
    return settle_case(c);
}

weft_status weft__case_open(weft_attention_case *c, weft_st **file, const char *path)
{
    if (!path) return weft__case_open_made(c, c->run->o->make);
    WEFT_TRY(weft_st_open(file, path));
    c->file = *file;
    WEFT_TRY(weft__case_read(c));
    return settle_case(c);
}

static weft_status run_all(weft_attention_case *c, weft_st **file, const char *path, weft_report *report)
{
    weft_report_stage(report, path ? "reading the case" : "making the case");
    WEFT_TRY(weft_agree(c->comm, weft__case_open(c, file, path)));
    if (path) WEFT_TRY(weft_run_same_file(c->comm, "case values", path, weft_st_glance(*file)));
    WEFT_TRY(weft_agree(c->comm, weft__case_prepare(c)));
    WEFT_TRY(run_case(c, report));
    return judge(c, report);
}

weft_status weft_verify_attention(weft_world *world, const weft_run *run, const char *path, weft_report *report)
{
    uint64_t seed = (uint64_t)run->o->seed;
    weft_attention_case c = {.name = path ? path : "--make",
                             .run = run,
                             .ctx = weft_world_ctx(world),
                             .C = weft_prec_compute(run->prec),
                             .R = weft_prec_real(run->prec),
                             .seed = seed,
                             .spots = path ? 0 : run->o->spot,
                             .problem = {.prec = run->prec, .layout = run->layout, .need_backward = true, .slots = 1,
                                         .seed = seed}};
    weft_st *file = NULL;
    weft_mesh mesh = {0};
    weft_status st;
    WEFT_TRY(weft_mesh_create(&mesh, world, run->mesh));
    c.comm = mesh.cp;
    WEFT_TRY_OR(st, weft_arena_create(&c.arena, &c.ctx->mem, "attention case", NULL), close_mesh);
    st = run_all(&c, &file, path, report);
    weft_st_close(file);
    weft_arena_destroy(c.arena);
close_mesh:
    weft_mesh_destroy(&mesh);
    return st;
}
