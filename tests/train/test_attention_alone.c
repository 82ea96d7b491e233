/* labels: small */
/* test_attention_alone.c — what `weft bench cp` holds a layer against is the layer's work: one rank's queries with all
 * keys at hand give the rows that this rank has in the layer, their gradients of keys add up to the layer's, and all
 * queries on one rank give the same once more. */
#include "harness/test.h"
#include "harness/ranks.h"
#include "train/attention_alone.h"

typedef struct problem { const char *text, *strategy; weft_layout layout; } problem;

/* Both are sums of the same some hundred terms in fp32, cut in other places. */
static const double limit = 1e-6;

static weft_status near(const char *what, const float *got, const float *want, int64_t n)
{
    double norm = weft_norm2(want, WEFT_F32, n), error = weft_rel_l2(got, WEFT_F32, want, WEFT_F32, n, 1e-3);
    if (n > 0 && !(norm > 0)) return weft_fail(WEFT_ERR_INTERNAL, "%s: nothing was computed", what);
    return error <= limit ? WEFT_OK : weft_fail(WEFT_ERR_INTERNAL, "%s: differs by %.1e", what, error);
}

/* Rows of this rank among all rows, which lie in token order. */
static weft_status near_rows(const weft_attention_case *c, int tensor, const float *all, const float *mine)
{
    const weft_shard *s = weft__case_shard(c, tensor);
    int rank = weft_comm_rank(c->comm);
    int64_t rows = s->rows[rank], width = weft__case_width(c, tensor), *index, *pos;
    float *part;
    WEFT_TRY(WEFT_NEW(c->arena, rows, "index", &index));
    WEFT_TRY(WEFT_NEW(c->arena, rows, "positions", &pos));
    WEFT_TRY(WEFT_NEW(c->arena, rows * width, "rows", &part));
    weft_shard_tokens(s, rank, index, pos);
    for (int64_t r = 0; r < rows; r++) memcpy(part + r * width, all + index[r] * width, (size_t)width * sizeof *part);
    return near(weft__case_names[tensor], part, mine, rows * width);
}

static weft_status copy(const weft_attention_case *c, int tensor, float **out)
{
    int64_t n = weft__case_shard(c, tensor)->rows[weft_comm_rank(c->comm)] * weft__case_width(c, tensor);
    WEFT_TRY(WEFT_NEW(c->arena, n, "copy", out));
    if (n > 0) memcpy(*out, c->mine[tensor], (size_t)n * sizeof **out);
    return WEFT_OK;
}

static weft_status check_own(weft_attention_case *c, const weft_kern *kern)
{
    weft__alone own;
    float *o, *dq;
    int64_t rows = c->problem.B * c->problem.T;
    WEFT_TRY(copy(c, WEFT_CASE_O, &o));
    WEFT_TRY(copy(c, WEFT_CASE_DQ, &dq));
    WEFT_TRY(weft__alone_open(&own, c, kern, false));
    weft_status st = weft__alone_run(&own);
    int64_t mine = weft__case_queries(c)->rows[weft_comm_rank(c->comm)];
    if (st >= 0) st = near("own o", c->mine[WEFT_CASE_O], o, mine * weft__case_width(c, WEFT_CASE_O));
    if (st >= 0) st = near("own dq", c->mine[WEFT_CASE_DQ], dq, mine * weft__case_width(c, WEFT_CASE_DQ));
    for (int t = WEFT_CASE_DK; st >= 0 && t <= WEFT_CASE_DV; t++) {
        float *sum = own.c.mine[t];
        st = weft_all_reduce(c->comm, sum, rows * weft__case_width(c, t), WEFT_F32, WEFT_SUM);
        if (st >= 0) st = near_rows(c, t, sum, c->mine[t]);
    }
    weft__alone_close(&own);
    return st;
}

static weft_status check_whole(weft_attention_case *c, const weft_kern *kern)
{
    weft__alone whole;
    WEFT_TRY(weft__alone_open(&whole, c, kern, true));
    weft_status st = weft__alone_run(&whole);
    for (int t = WEFT_CASE_O; st >= 0 && t <= WEFT_CASE_DV; t++) st = near_rows(c, t, whole.c.mine[t], c->mine[t]);
    weft__alone_close(&whole);
    return st;
}

static weft_status run_case(weft_attention_case *c)
{
    weft_kern kern;
    weft_st *file = NULL;
    weft_cp_plan *plan = NULL;
    WEFT_TRY(weft__case_open(c, &file, NULL));
    WEFT_TRY(weft__case_prepare(c));
    WEFT_TRY(weft_kern_init(&kern, weft_isa_best()));
    WEFT_TRY(weft_cp_plan_create(&plan, c->arena, &kern, c->comm, &c->problem, &c->run->cp));
    const weft_cp_io io = weft__case_io(c);
    weft_status st = weft_cp_bind(plan, 0, weft__case_queries(c), &c->shard_kv);
    if (st >= 0) st = weft_cp_forward(plan, 0, &io);
    if (st >= 0) st = weft_cp_backward(plan, 0, &io);
    if (st >= 0) st = check_whole(c, &kern);
    if (st >= 0) st = check_own(c, &kern); /* last: it writes over the rank's own results */
    weft_cp_plan_destroy(plan);
    return st;
}

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    const problem *p = ud;
    const weft_run_options options = {.make = p->text, .seed = 7};
    const weft_run run = {.o = &options, .prec = WEFT_PREC_F32, .layout = p->layout,
                          .cp = {.strategy = p->strategy, .overlap = true}};
    weft_attention_case c = {.name = "--make", .run = &run, .ctx = ctx, .comm = weft_world_all(world), .C = WEFT_F32,
                             .R = WEFT_F32, .seed = 7,
                             .problem = {.prec = WEFT_PREC_F32, .layout = p->layout, .need_backward = true,
                                         .slots = 1}};
    WEFT_TRY(weft_arena_create(&c.arena, &ctx->mem, "case", NULL));
    weft_status st = run_case(&c);
    weft_arena_destroy(c.arena);
    return st;
}

static void alone_is_the_layers_work(void **state)
{
    (void)state;
    static const problem problems[] = {
        {"T=257 H=4/2 D=16/8 causal", "ring", {WEFT_LAYOUT_ZIGZAG, 0}},
        {"B=2 T=101 H=2 D=8 causal docs=3,0,50,1,*", "pairwise", {WEFT_LAYOUT_BALANCED, 0}},
        {"T=130 H=3/1 D=8 window=20 docs=60,*", "ulysses", {WEFT_LAYOUT_STRIPED, 1}},
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        assert_ok(weft_run_threads(3, body, (void *)(uintptr_t)&problems[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(alone_is_the_layers_work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
