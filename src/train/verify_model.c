/* verify_model.c — a model on given tokens and targets: nll per token, every gradient, and a trajectory of
 * AdamW steps, against a file's numbers or, when it holds none, against Weft's own single-rank run. */
#include "train/verify_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- reading the case ----------------------------------------------------------------------------- */

static weft_status read_ids(const weft_st *f, const char *name, weft_arena *arena, int64_t V, bool targets,
                            int64_t shape[2], int32_t **out)
{
    const weft_view *v = NULL;
    char text[96];
    WEFT_TRY(weft_st_require(f, name, &v));
    if (v->nd != 2 || (v->dtype != WEFT_I64 && v->dtype != WEFT_I32))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is %s %s; an I64 or I32 tensor [batch, tokens] is needed",
                         weft_st_path(f), name, weft_dtype_safetensors(v->dtype),
                         weft_shape_text(v->shape, v->nd, text, sizeof text));
    if (shape[0] >= 0 && (shape[0] != v->shape[0] || shape[1] != v->shape[1]))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s has another shape than tokens", weft_st_path(f), name);
    shape[0] = v->shape[0];
    shape[1] = v->shape[1];
    int64_t n = weft_view_count(v);
    if (n < 1) return weft_fail(WEFT_ERR_REFUSED, "%s: %s is empty", weft_st_path(f), name);
    WEFT_TRY(WEFT_NEW(arena, n, name, out));
    for (int64_t i = 0; i < n; i++) {
        int64_t id = v->dtype == WEFT_I64 ? ((const int64_t *)v->data)[i] : ((const int32_t *)v->data)[i];
        if ((id < 0 || id >= V) && !(targets && id == -100))
            return weft_fail(WEFT_ERR_REFUSED, "%s: %s[%lld, %lld] is %lld; ids are 0 to %lld%s", weft_st_path(f), name,
                             (long long)(i / shape[1]), (long long)(i % shape[1]), (long long)id, (long long)V - 1,
                             targets ? ", and -100 where there is no label" : "");
        (*out)[i] = (int32_t)id;
    }
    return WEFT_OK;
}

weft_status weft_case_read(weft_case *c, const weft_st *f, int64_t V, weft_arena *arena)
{
    int64_t shape[2] = {-1, -1};
    *c = (weft_case){.file = f};
    WEFT_TRY(read_ids(f, "tokens", arena, V, false, shape, &c->token));
    WEFT_TRY(read_ids(f, "targets", arena, V, true, shape, &c->target));
    c->B = shape[0];
    c->T = shape[1];
    WEFT_TRY(weft_read_cu_seqlens(f, arena, c->B, c->T, &c->docs));
    for (int64_t i = 0; i < c->B * c->T; i++) c->valid += c->target[i] >= 0;
    if (!c->valid)
        return weft_fail(WEFT_ERR_REFUSED, "%s: no target is valid, so there is no loss to compare", weft_st_path(f));
    return WEFT_OK;
}

/* ---- one rank's side of it ------------------------------------------------------------------------ */

/* Rows [first, last) of the batch belong to this data-parallel rank; with dp > B some have none. */
static void my_rows(const weft_checker *k, int64_t *first, int64_t *last)
{
    weft_span rows = weft_model_cut(k->c->B, k->run->mesh.dp, k->e.mesh.at.dp);
    *first = rows.begin;
    *last = rows.end;
}

weft_status weft_checker_open(weft_checker *k, weft_world *world, const weft_run *run, const char *dir,
                              const weft_model_config *config, const weft_case *c)
{
    *k = (weft_checker){.c = c, .run = run, .scale = run->loss_scale};
    int64_t most = weft_ceil_div(c->B, run->mesh.dp);
    k->micro_batch = run->micro_batch_given ? weft_min_i64(run->o->micro_batch, most) : most;
    int64_t B = k->micro_batch, micros = weft_ceil_div(most, B);
    weft_engine_options eo = {.B = B, .T = c->T, .max_docs = B * (c->docs.first[1] - 1), .micros = micros,
                              .train = true};
    WEFT_TRY(weft_engine_open(&k->e, world, run, config, &eo));
    WEFT_TRY(weft_pipeline_create(&k->pipeline, &k->e, micros));
    k->spec = weft_model_spec(k->e.model, &k->n);
    WEFT_TRY(weft_model_whole_spec(config, k->e.arena, &k->whole, &k->n_whole));
    weft_dtype R = weft_prec_real(run->prec);
    WEFT_TRY(weft_engine_load(&k->e, dir));
    WEFT_TRY(weft_arena_alloc(k->e.arena, c->B * c->T, weft_dtype_size(R), "token nll", &k->token_nll));
    return weft_arena_alloc(k->e.arena, k->e.rows, weft_dtype_size(R), "token nll", &k->mine);
}

/* Documents are alike in all rows, so offsets may begin at any of them. */
static weft_status batch_of_case(void *ud, int64_t micro, weft_batch *out)
{
    const weft_checker *k = ud;
    const weft_case *c = k->c;
    int64_t first, last;
    my_rows(k, &first, &last);
    first += micro * k->micro_batch;
    *out = (weft_batch){
        .token = c->token + first * c->T, .target = c->target + first * c->T, .sequence = first,
        .docs = {.B = weft_min_i64(k->micro_batch, last - first), .T = c->T, .cu = c->docs.cu + c->docs.first[first],
                 .first = c->docs.first},
    };
    return WEFT_OK;
}

/* The nll of this rank's rows of a micro-batch goes where the whole batch has them. */
static void keep_nll(void *ud, int64_t micro, int slot)
{
    weft_checker *k = ud;
    const weft_engine_slot *s = &k->e.slot[slot];
    size_t size = weft_dtype_size(weft_prec_real(k->run->prec));
    int64_t first, last;
    if (k->e.mesh.at.pp + 1 < k->e.mesh.size.pp) return;
    my_rows(k, &first, &last);
    first += micro * k->micro_batch;
    for (int64_t i = 0; i < s->shard.rows[k->e.mesh.at.cp]; i++)
        memcpy((char *)k->token_nll + (size_t)(first * k->c->T + s->index[i]) * size,
               (char *)k->mine + (size_t)i * size, size);
}

weft_status weft_checker_run(weft_checker *k)
{
    const weft_case *c = k->c;
    weft_dtype R = weft_prec_real(k->run->prec);
    int64_t first, last;
    my_rows(k, &first, &last);
    weft_model_zero_gradients(k->e.model);
    memset(k->token_nll, 0, (size_t)(c->B * c->T) * weft_dtype_size(R));
    const weft_pipeline_job job = {.sequences = last - first, .B = k->micro_batch, .backward = true,
                                   .grad_scale = k->scale / (double)c->valid, .batch = batch_of_case, .done = keep_nll,
                                   .ud = k, .token_nll = k->mine, .optim = k->optim};
    WEFT_TRY(weft_pipeline_run(k->pipeline, &job, &k->loss));
    WEFT_TRY(weft_all_reduce(k->e.mesh.dp_cp, &k->loss, 1, WEFT_F64, WEFT_SUM));
    k->loss /= (double)c->valid;
    /* Every row is one rank's, the others hold zeros: the sums are exact. */
    WEFT_TRY(weft_all_reduce(k->e.mesh.pp, k->token_nll, c->B * c->T, R, WEFT_SUM));
    return weft_all_reduce(k->e.mesh.dp_cp, k->token_nll, c->B * c->T, R, WEFT_SUM);
}

typedef struct collected { char *data; size_t size; } collected;

static weft_status collect(void *ud, const weft_spec *spec, const void *data)
{
    const collected *c = ud;
    memcpy(c->data + (size_t)spec->offset * c->size, data, (size_t)spec->count * c->size);
    return WEFT_OK;
}

weft_status weft_checker_gradients(weft_checker *k)
{
    weft_dtype R = weft_prec_real(k->run->prec);
    collected c = {.size = weft_dtype_size(R)};
    weft_held held;
    k->gradients = weft_model_gradients(k->e.model);
    if (weft_comm_size(k->e.mesh.tp_pp) == 1) return WEFT_OK;
    if (k->e.ctx->rank == 0)
        WEFT_TRY(weft_arena_alloc(k->e.arena, weft_model_params(&k->e.config), c.size, "gathered gradients",
                                  (void **)&c.data));
    WEFT_TRY(weft_engine_held(&k->e, weft_model_gradients(k->e.model), &held));
    k->gradients = c.data;
    return weft_gather_each(&k->e.mesh, &held, k->whole, k->n_whole, collect, &c);
}

/* Loss, and gradients without the loss scale, at a scale that holds them; with an optimizer their sums over ranks and
 * the norm of these. COLLECTIVE */
static weft_status run_and_sum(weft_checker *k, double *norm)
{
    weft_dtype R = weft_prec_real(k->run->prec);
    void *gradients = weft_model_gradients(k->e.model);
    int64_t count = weft_model_weight_count(k->e.model);
    for (;; k->scale /= 2) {
        WEFT_TRY(weft_checker_run(k));
        if (k->optim) WEFT_TRY(weft_optim_reduce(k->optim));
        if (k->scale != 1) k->e.kern.op[k->run->prec].scale(gradients, 1 / k->scale, count, k->e.ctx->threads);
        if (k->optim) WEFT_TRY(weft_optim_norm(k->optim, 1, norm)); /* the same on all ranks */
        else *norm = weft_norm2(gradients, R, count);
        if (isfinite(*norm) || !k->run->loss_scale_dynamic || k->scale <= 1) return WEFT_OK;
    }
}

/* ---- comparisons ---------------------------------------------------------------------------------- */

/* Against outside numbers fp32 may differ by summation order and by what float32 costs. 16-bit operands differ by their
 * rounding, 2^-9 and 2^-12, through tens of products: the golden models reach 1.4e-2, 2.7e-2, 3e-3, 3.5e-2 in bf16 on
 * the layouts of tests/cli/test_verify_matrix_long.c, and a small qwen3 of five layers 7e-2 in the gradients of q and k
 * norms (so does PyTorch's autocast: these are sums that cancel); fp16 has an eighth of that. */
typedef struct limits {
    double nll, grad, loss, norm;
} limits;
static limits limits_of(const weft_run *run, bool own)
{
    if (run->prec == WEFT_PREC_F64 && own) return (limits){1e-12, 1e-12, 1e-12, 1e-12};
    if (run->prec == WEFT_PREC_BF16) return (limits){5e-2, 1e-1, 3e-2, 1e-1};
    if (run->prec == WEFT_PREC_F16) return (limits){1e-2, 2e-2, 5e-3, 2e-2};
    if (own) return (limits){5e-6, 1e-5, 5e-5, 5e-5};
    return (limits){1e-5, 2e-5, 1e-4, 1e-4};
}

static weft_status compare_gradient(weft_checker *k, const char *name, const weft_view *want, double floor,
                                    double limit, weft_report *report)
{
    const weft_spec *s = weft_spec_find(k->whole, k->n_whole, name);
    weft_dtype R = weft_prec_real(k->run->prec);
    char text[96], row[256] = "grad.";
    if (!s)
        return weft_fail(WEFT_ERR_REFUSED, "%s: grad.%s: the model has no tensor of this name",
                         weft_st_path(k->c->file), name);
    if (want->dtype > WEFT_F16 || want->nd != s->nd || memcmp(want->shape, s->shape, (size_t)s->nd * sizeof *s->shape))
        return weft_fail(WEFT_ERR_REFUSED, "%s: grad.%s has another type or shape than the model's %s",
                         weft_st_path(k->c->file), name, weft_shape_text(s->shape, s->nd, text, sizeof text));
    const char *mine = k->gradients + (size_t)s->offset * weft_dtype_size(R);
    strncat(row, name, sizeof row - 6);
    return weft_report_add(report, row, weft_rel_l2(mine, R, want->data, want->dtype, s->count, floor), limit);
}

static bool holds_expected_values(const weft_st *f)
{
    for (int i = 0; i < weft_st_count(f); i++) {
        const char *name = weft_st_at(f, i)->name;
        if (!strcmp(name, "token_nll") || !strncmp(name, "grad.", 5)) return true;
    }
    return false;
}

static weft_status compare_with_file(weft_checker *k, weft_report *report)
{
    const weft_st *f = k->c->file;
    limits lim = limits_of(k->run, false);
    weft_dtype R = weft_prec_real(k->run->prec);
    for (int i = 0; i < weft_st_count(f); i++) {
        const weft_st_entry *e = weft_st_at(f, i);
        if (!strcmp(e->name, "token_nll")) {
            if (weft_view_count(&e->view) != k->c->B * k->c->T || e->view.dtype > WEFT_F16)
                return weft_fail(WEFT_ERR_REFUSED, "%s: token_nll has another type or shape than tokens",
                                 weft_st_path(f));
            WEFT_TRY(
                weft_report_add(report, "token_nll",
                                weft_rel_l2(k->token_nll, R, e->view.data, e->view.dtype, k->c->B * k->c->T, 1e-12),
                                lim.nll));
        } else if (!strncmp(e->name, "grad.", 5)) {
            WEFT_TRY(compare_gradient(k, e->name + 5, &e->view, 1e-12, lim.grad, report));
        }
    }
    return WEFT_OK;
}

static weft_status write_out(weft_checker *k, const char *path)
{
    weft_dtype R = weft_prec_real(k->run->prec);
    weft_st_entry *entries = NULL;
    WEFT_TRY(WEFT_NEW(k->e.arena, k->n_whole + 1, "output", &entries));
    entries[0] = (weft_st_entry){"token_nll", {.data = k->token_nll, .dtype = R, .nd = 2, .shape = {k->c->B, k->c->T}}};
    for (int i = 0; i < k->n_whole; i++) {
        const weft_spec *s = &k->whole[i];
        char *name = NULL;
        size_t bytes = strlen(s->name) + 6;
        WEFT_TRY(WEFT_NEW(k->e.arena, (int64_t)bytes, "output", &name));
        memcpy(name, "grad.", 5);
        memcpy(name + 5, s->name, bytes - 5);
        entries[i + 1] =
            (weft_st_entry){name,
                            {.data = (char *)(uintptr_t)k->gradients + (size_t)s->offset * weft_dtype_size(R),
                             .dtype = R,
                             .nd = s->nd}};
        memcpy(entries[i + 1].view.shape, s->shape, sizeof s->shape);
    }
    return weft_st_write(path, entries, k->n_whole + 1, NULL);
}

/* norm: of the first step's gradients, which are there. */
static weft_status run_trajectory(weft_checker *k, const weft_trajectory *t, double norm, weft_report *report)
{
    limits lim = limits_of(k->run, false);
    char name[64];
    for (int64_t s = 0; s < t->steps; s++) {
        if (s) {
            snprintf(name, sizeof name, "step %lld of %lld", (long long)s, (long long)t->steps);
            weft_report_stage(report, name);
            WEFT_TRY(run_and_sum(k, &norm));
        }
        snprintf(name, sizeof name, "step %lld loss", (long long)s);
        WEFT_TRY(weft_report_add(report, name, fabs(k->loss - t->loss[s]), lim.loss));
        snprintf(name, sizeof name, "step %lld grad_norm", (long long)s);
        WEFT_TRY(weft_report_add(report, name, fabs(norm - t->norm[s]) / t->norm[s], lim.norm));
        WEFT_TRY(weft_optim_update(k->optim, norm, 1, t->options.lr, s + 1));
        weft_model_weights_changed(k->e.model);
    }
    return WEFT_OK;
}

/* ---- against Weft's own run on one rank ------------------------------------------------------------ */

/* Rank 0 alone; a ctx and a world of its own, so that the ranks' counters and memory stay theirs. */
static weft_status compare_with_one_rank(weft_checker *k, const char *dir, weft_report *report)
{
    weft_ctx ctx;
    weft_world *self = NULL;
    weft_checker one = {0};
    weft_run run = *k->run;
    weft_run_one_rank(&run);
    weft_ctx_init(&ctx);
    ctx.threads = k->e.ctx->threads;
    limits lim = limits_of(k->run, true);
    weft_dtype R = weft_prec_real(k->run->prec);
    double norm;
    weft_status st;
    WEFT_TRY(weft_world_self(&self, &ctx));
    WEFT_TRY_OR(st, weft_checker_open(&one, self, &run, dir, &k->e.config, k->c), out);
    WEFT_TRY_OR(st, run_and_sum(&one, &norm), out);
    st = weft_report_add(report, "token_nll against one rank",
                         weft_rel_l2(k->token_nll, R, one.token_nll, R, k->c->B * k->c->T, 1e-12), lim.nll);
    /* A gradient that is zero but for rounding (of q and k, where each token sees itself only) has a size only beside
     * the whole: a hundredth, as for attention. */
    double floor = norm / 100;
    for (int i = 0; i < k->n_whole && st >= 0; i++) {
        const weft_spec *s = &k->whole[i];
        size_t at = (size_t)s->offset * weft_dtype_size(R);
        weft_view want = {.data = (char *)weft_model_gradients(one.e.model) + at, .dtype = R, .nd = s->nd};
        memcpy(want.shape, s->shape, sizeof want.shape);
        st = compare_gradient(k, s->name, &want, floor, lim.grad, report);
    }
out:
    weft_engine_close(&one.e);
    weft_world_close(self);
    return st;
}

/* Only rank 0 knows a comparison; the others wait for its verdict. */
static weft_status judge(weft_checker *k, const char *dir, weft_report *report, bool own)
{
    WEFT_TRY(own ? compare_with_one_rank(k, dir, report) : compare_with_file(k, report));
    return k->run->o->out ? write_out(k, k->run->o->out) : WEFT_OK;
}

/* While rank 0 alone runs the single-rank reference, the others wait longer than any exchange takes. Elsewhere
 * --timeout holds: a stuck rank is named within it. */
static weft_status judge_together(weft_checker *k, const char *dir, weft_report *report, bool own)
{
    enum { REFERENCE_SECONDS = 3600 };
    weft_world *world = k->e.mesh.world;
    double timeout = k->run->o->timeout;
    if (own) WEFT_TRY(weft_world_set_timeout(world, fmax(timeout, REFERENCE_SECONDS)));
    weft_status st = weft_agree(k->e.mesh.all, k->e.ctx->rank == 0 ? judge(k, dir, report, own) : WEFT_OK);
    WEFT_TRY(weft_world_set_timeout(world, timeout));
    return st;
}

static weft_status check_case(weft_checker *k, const weft_trajectory *t, const char *dir, weft_report *report)
{
    double norm = 0;
    weft_status st;
    WEFT_TRY(weft_engine_optimizer(&k->e, &t->options, &k->optim));
    weft_report_stage(report, "forward and backward");
    WEFT_TRY_OR(st, run_and_sum(k, &norm), out);
    WEFT_TRY_OR(st, weft_optim_gather_gradients(k->optim), out);
    WEFT_TRY_OR(st, weft_checker_gradients(k), out);
    weft_report_stage(report, "comparing");
    WEFT_TRY_OR(st, judge_together(k, dir, report, !t->steps && !holds_expected_values(k->c->file)), out);
    if (k->e.ctx->rank == 0) {
        weft_text_add(&report->note, "loss      %.6f over %lld labels\n", weft_unsigned_nan(k->loss),
                      (long long)k->c->valid);
        if (k->scale != 1) weft_text_add(&report->note, "scale     gradients of %g times the loss\n", k->scale);
        weft_text_add_under(&report->note, "plan      ", k->e.plan.data ? k->e.plan.data : "");
    }
    if (t->steps) WEFT_TRY_OR(st, run_trajectory(k, t, norm, report), out);
    st = weft_report_share(k->e.mesh.all, report);
out:
    weft_optim_destroy(k->optim);
    k->optim = NULL;
    return st;
}

typedef struct given { /* what every rank reads for itself */
    weft_model_config config;
    weft_st *file;
    weft_case c;
    weft_trajectory t;
} given;

static weft_status read_given(given *g, weft_arena *arena, const char *dir, const char *path)
{
    char config_path[4096];
    snprintf(config_path, sizeof config_path, "%s/config.json", dir);
    WEFT_TRY(weft_model_config_read(&g->config, config_path));
    WEFT_TRY(weft_st_open(&g->file, path));
    WEFT_TRY(weft_case_read(&g->c, g->file, g->config.V, arena));
    return weft_trajectory_read(&g->t, arena, path);
}

/* Model and weights are compared as they are opened. */
static weft_status agree_on_given(weft_comm *all, const given *g, const char *path, weft_status st)
{
    WEFT_TRY(weft_agree(all, st));
    WEFT_TRY(weft_run_same_file(all, "case values", path, weft_st_glance(g->file)));
    return weft_run_same_file(all, "steps in the trajectory.json beside the case", path, g->t.file);
}

weft_status weft_verify_model(weft_world *world, const weft_run *run, const char *dir, const char *path,
                              weft_report *report)
{
    weft_ctx *ctx = weft_world_ctx(world);
    weft_arena *arena = NULL;
    given g = {0};
    weft_checker k = {0};
    weft_status st;
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "verify", NULL));
    st = read_given(&g, arena, dir, path);
    WEFT_TRY_OR(st, agree_on_given(weft_world_all(world), &g, path, st), close_file);
    WEFT_TRY_OR(st, weft_checker_open(&k, world, run, dir, &g.config, &g.c), close_engine);
    st = check_case(&k, &g.t, dir, report);
close_engine:
    weft_engine_close(&k.e);
close_file:
    weft_st_close(g.file);
    weft_arena_destroy(arena);
    return st;
}
