/* labels: small */
/* The golden models, computed in float64 by an independent implementation: nll of each token and every
 * gradient, on one rank in fp32. */
#include "toy.h"

#include "ckpt/ckpt.h"

typedef struct golden {
    toy t;
    char dir[512];
    weft_st *st;
    int32_t *token, *target;
    int64_t *cu, *first, valid;
    double *nll;
} golden;

static int32_t *integers(const weft_st *st, const char *name)
{
    const weft_view *v = weft_st_find(st, name);
    int64_t n = v ? weft_view_count(v) : 0;
    int32_t *out = malloc((size_t)(n + 1) * sizeof *out);
    for (int64_t i = 0; i < n; i++) out[i] = (int32_t)weft_load(v->data, v->dtype, i);
    return out;
}

/* cu_seqlens holds offsets inside a row, the same for every row. */
static void documents(golden *g)
{
    const weft_view *v = weft_st_find(g->st, "cu_seqlens");
    if (!v) return;
    int64_t n = weft_view_count(v);
    g->cu = malloc((size_t)(n * g->t.B) * sizeof *g->cu);
    g->first = malloc((size_t)(g->t.B + 1) * sizeof *g->first);
    for (int64_t b = 0; b < g->t.B; b++)
        for (int64_t i = 0; i < n; i++) g->cu[b * n + i] = (int64_t)weft_load(v->data, v->dtype, i);
    for (int64_t b = 0; b <= g->t.B; b++) g->first[b] = b * n;
    g->t.cu = g->cu;
    g->t.first = g->first;
}

static void open_golden(golden *g, const char *name, weft_prec prec)
{
    char path[600];
    *g = (golden){0};
    snprintf(g->dir, sizeof g->dir, "%s/models/%s", getenv("WEFT_GOLDEN"), name);
    snprintf(path, sizeof path, "%s/config.json", g->dir);
    assert_ok(weft_model_config_read(&g->t.config, path));
    snprintf(path, sizeof path, "%s/case.safetensors", g->dir);
    assert_ok(weft_st_open(&g->st, path));
    const weft_view *tokens = weft_st_find(g->st, "tokens");
    g->token = integers(g->st, "tokens");
    g->target = integers(g->st, "targets");
    g->t = (toy){.config = g->t.config, .prec = prec, .P = 1, .strategy = "none", .B = tokens->shape[0],
                 .T = tokens->shape[1], .token = g->token, .target = g->target};
    documents(g);
    for (int64_t i = 0; i < g->t.B * g->t.T; i++) g->valid += g->target[i] >= 0;
    g->t.grad_scale = 1.0 / (double)g->valid;
}

static void close_golden(golden *g)
{
    weft_st_close(g->st);
    free(g->token);
    free(g->target);
    free(g->cu);
    free(g->first);
}

typedef struct errors {
    double nll, grad;
    int tensors;     /* gradients that the file holds */
    char worst[128]; /* tensor with the largest error */
} errors;

static void compare(const golden *g, toy_rank *r, const void *nll, errors *e)
{
    weft_dtype type = weft_prec_real(g->t.prec);
    const weft_view *want = weft_st_find(g->st, "token_nll");
    int n;
    const weft_spec *spec = weft_model_spec(r->model, &n);
    *e = (errors){.nll = weft_max_scaled(nll, type, want->data, want->dtype, weft_view_count(want))};
    for (int i = 0; i < n; i++) {
        char name[128];
        snprintf(name, sizeof name, "grad.%s", spec[i].name);
        const weft_view *v = weft_st_find(g->st, name);
        if (!v) continue;
        e->tensors++;
        const char *grads = weft_model_gradients(r->model);
        double error = weft_rel_l2(grads + spec[i].offset * (int64_t)weft_dtype_size(type), type, v->data, v->dtype,
                                   spec[i].count, 1e-12);
        if (!(error <= e->grad)) {
            e->grad = error;
            snprintf(e->worst, sizeof e->worst, "%s", name);
        }
    }
}

typedef struct job { golden g; errors e; } job;

static weft_status run_golden(weft_ctx *ctx, weft_world *world, void *ud)
{
    job *j = ud;
    toy_rank r;
    double sum;
    void *nll;
    int n;
    WEFT_TRY(toy_open(&r, ctx, world, &j->g.t));
    const weft_spec *spec = weft_model_spec(r.model, &n);
    WEFT_TRY(weft_ckpt_load_weights(j->g.dir, spec, n, j->g.t.config.tied, weft_model_weights(r.model),
                                    weft_prec_real(j->g.t.prec)));
    weft_model_weights_changed(r.model);
    WEFT_TRY(weft_arena_alloc(r.arena, r.rows, sizeof(double), "test", &nll));
    WEFT_TRY(toy_step(&r, &j->g.t, true, &sum, nll));
    compare(&j->g, &r, nll, &j->e); /* on one rank the rows lie in the order of the file */
    toy_close(&r);
    return WEFT_OK;
}

static errors errors_of(const char *name, weft_prec prec)
{
    job j = {0};
    open_golden(&j.g, name, prec);
    assert_ok(weft_run_threads(1, run_golden, &j));
    close_golden(&j.g);
    if (getenv("WEFT_TEST_VERBOSE"))
        print_message("%s %s: nll %.2e, gradient %.2e (%s)\n", name, weft_prec_name(prec), j.e.nll, j.e.grad,
                      j.e.worst);
    return j.e;
}

static const char *const names[] = {"gpt2", "llama", "llama3_rope", "llama_docs", "llama_yarn",
                                    "mistral", "qwen2", "qwen3", "stories260K"};
enum { NAMES = sizeof names / sizeof names[0] };

/* fp32 has 6e-8 per operation; two layers of width 64 leave some 1e-6. */
static void fp32_matches_the_files(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        errors e = errors_of(names[i], WEFT_PREC_F32);
        assert_true(e.tensors > 0 || strcmp(names[i], "stories260K") == 0); /* that file holds no gradients */
        assert_at_most(e.nll, 1e-5);
        assert_at_most(e.grad, 2e-5);
    }
}

/* The files store f32: 6e-8 is their own rounding. */
static void fp64_matches_the_files_to_their_rounding(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        errors e = errors_of(names[i], WEFT_PREC_F64);
        assert_at_most(e.nll, 2e-7);
        assert_at_most(e.grad, 2e-7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_matches_the_files),
        cmocka_unit_test(fp64_matches_the_files_to_their_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
