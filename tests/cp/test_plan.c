/* Plans: what is refused, on every rank alike; how "auto" chooses; how a plan prints itself; faults in a step. */
/* labels: small */
#include "harness/ranks.h"
#include "harness/test.h"
#include "harness/cp_case.h"
#include "cp/cp_impl.h"

static weft_cp_problem good(void)
{
    return (weft_cp_problem){.prec = WEFT_PREC_F64, .B = 1, .Tq = 12, .T = 12, .max_docs = 2, .H = 4, .Hkv = 2, .D = 4,
                             .Dv = 4, .scale = 0.5, .mask = {true, -1, -1, 0}, .layout = {WEFT_LAYOUT_ZIGZAG, 0},
                             .need_backward = true, .slots = 1};
}

/* ---- on ranks ------------------------------------------------------------------------------------------------ */

typedef struct attempt { /* every rank tries; each must be refused with `part` in its message */
    weft_cp_problem problem;
    const char *strategy, *part;
    bool rank_1_differs; /* in its window; of a part of the heads in where it begins */
    int refused; /* ranks that were */
    weft_cp_options options;
} attempt;

static weft_status try_plan(weft_ctx *ctx, weft_world *world, void *ud)
{
    attempt *a = ud;
    weft_comm *comm;
    weft_arena *arena;
    weft_kern kern;
    weft_cp_plan *plan;
    WEFT_TRY(test_comm_all(&comm, world, "cp"));
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "test", NULL));
    WEFT_TRY(weft_kern_init(&kern, WEFT_ISA_REF));
    weft_cp_problem problem = a->problem;
    if (a->rank_1_differs && weft_world_rank(world) == 1) problem.group ? problem.head0++ : (problem.mask.left = 5);
    weft_cp_options options = a->options;
    options.strategy = a->strategy, options.overlap = true;
    weft_status st = weft_cp_plan_create(&plan, arena, &kern, comm, &problem, &options);
    bool as_asked = st == WEFT_ERR_REFUSED && strstr(weft_last_error(), a->part);
    if (as_asked) __atomic_add_fetch(&a->refused, 1, __ATOMIC_RELAXED);
    else if (st == WEFT_OK) st = weft_fail(WEFT_ERR_INTERNAL, "accepted");
    weft_arena_destroy(arena);
    weft_comm_destroy(comm);
    return as_asked ? WEFT_OK : st;
}

static void refused_on(int P, weft_cp_problem problem, const char *strategy, weft_cp_options options, const char *part)
{
    attempt a = {problem, strategy, part, false, 0, options};
    assert_ok(weft_run_threads(P, try_plan, &a));
    assert_int_equal(a.refused, P);
}

static void refused(weft_cp_problem problem, const char *strategy, bool rank_1_differs, const char *part)
{
    attempt a = {problem, strategy, part, rank_1_differs, 0, {0}};
    assert_ok(weft_run_threads(2, try_plan, &a));
    assert_int_equal(a.refused, 2);
}

static void every_rank_refuses(void **state)
{
    (void)state;
    weft_cp_problem p = good();
    refused(p, "none", false, "use pcp, ring or auto");
    refused(p, "rign", false, "did you mean \"ring\"?");
    refused(p, "ulises", false, "auto");
    refused(p, "ring", true, "same configuration");
    p = good(), p.Hkv = 3;
    refused(p, "ring", false, "multiple");
    p = good(), p.H = 0;
    refused(p, "ring", false, "multiple");
    p = good(), p.D = 257;
    refused(p, "ring", false, "257");
    p = good(), p.mask.left = -2;
    refused(p, "pcp", false, "window");
    p = good(), p.T = 0;
    refused(p, "pcp", false, "at least 1");
    p = good(), p.max_docs = 0;
    refused(p, "pcp", false, "at least 1 are needed");
    p = good(), p.slots = 0;
    refused(p, "auto", false, "at least 1");
    p = good(), p.T = p.Tq = INT64_MAX / 4;
    refused(p, "auto", false, "attention rows");
}

/* Kernels of every precision but fp64 hold these in fp32, where they would become 0 or infinite. */
static void numbers_outside_of_fp32(void **state)
{
    (void)state;
    static const weft_prec precs[] = {WEFT_PREC_F32, WEFT_PREC_BF16, WEFT_PREC_F16};
    static const double bad[] = {1e39, 1e-40, 1e-300};
    for (int i = 0; i < 3; i++)
        for (int b = 0; b < 3; b++) {
            weft_cp_problem p = good();
            p.prec = precs[i], p.scale = -bad[b];
            refused(p, "auto", false, "scale is -1e");
            p.scale = 0.5, p.softcap = bad[b];
            refused(p, "ring", false, "outside of fp32");
            weft_cp_options o = {.strategy = "auto"};
            weft_attn_desc desc;
            p.prec = WEFT_PREC_F64, p.scale = bad[b];
            assert_ok(weft__cp_check(&p, &o, &desc));
        }
    const double slopes[4] = {1, 0.5, INFINITY, NAN};
    weft_cp_problem p = good();
    p.alibi = slopes;
    refused(p, "ring", false, "slope of head 2 is inf");
}

static void head_sizes_that_cannot_be(void **state)
{
    (void)state;
    weft_cp_problem p = good(); /* 4 query heads */
    refused_on(6, p, "dcp", (weft_cp_options){.head_size = 6},
               "need as many query heads, there are 4; usable head sizes on 6 "
               "ranks: 1, 2, 3");
    refused_on(6, p, "dcp-ring", (weft_cp_options){.head_size = 4},
               "4 ranks do not divide 6 ranks; usable head sizes: 1, 2, 3");
    refused_on(6, p, "ulysses", (weft_cp_options){0},
               "all 6 ranks needs as many query heads, there are 4; use dcp, with one of "
               "the head sizes 1, 2, 3");
    refused_on(4, p, "ulysses", (weft_cp_options){.head_size = 2}, "leave it out, or use dcp");
    refused_on(2, p, "dcp", (weft_cp_options){.head_size = -1}, "at least 1");
    refused_on(2, p, "ring", (weft_cp_options){.head_size = 2}, "a head size asks for dcp");
    refused_on(2, p, "pcp", (weft_cp_options){.keep_heads = true}, "keeping the head layout asks for dcp");
    /* auto has strategies to choose from, or none */
    refused_on(3, p, "auto", (weft_cp_options){.head_size = 2}, "do not divide 3 ranks");
}

/* ---- heads of the members of a head group ------------------------------------------------------------------- */

static void heads_are_dealt_without_padding(void **state)
{
    (void)state;
    static const int want[] = {4, 4, 4, 4, 4, 4, 3, 3};
    weft_cp_problem own_kv = {.H = 30, .Hkv = 30}, shared_kv = {.H = 30, .Hkv = 6};
    for (int u = 0; u < 8; u++) {
        weft__cp_heads own = weft__cp_heads_of(&own_kv, 8, u), shared = weft__cp_heads_of(&shared_kv, 8, u);
        assert_int_equal(own.heads, want[u]);
        assert_int_equal(own.kv_head0, own.head0); /* every head with its own K,V head */
        assert_int_equal(own.kv_heads, own.heads);
        assert_int_equal(shared.kv_head0, shared.head0 / 5);
    }
    for (int H = 1; H <= 12; H++)
        for (int Hkv = 1; Hkv <= H; Hkv++)
            for (int U = 1; U <= H && H % Hkv == 0; U++) {
                int next = 0;
                for (int u = 0; u < U; u++) {
                    weft_cp_problem p = {.H = H, .Hkv = Hkv};
                    weft__cp_heads h = weft__cp_heads_of(&p, U, u);
                    assert_int_equal(h.head0, next);
                    assert_in_range(h.heads, H / U, H / U + 1);
                    assert_int_equal(h.kv_head0, h.head0 * Hkv / H);
                    assert_int_equal(h.kv_head0 + h.kv_heads - 1, (h.head0 + h.heads - 1) * Hkv / H);
                    next += h.heads;
                }
                assert_int_equal(next, H);
            }
}

/* A part of the heads, which may begin inside a group: what a member reads, counted from the part's first K,V head. */
static void heads_of_a_part_keep_their_groups(void **state)
{
    (void)state;
    for (int group = 1; group <= 4; group++)
        for (int head0 = 0; head0 <= 8; head0++)
            for (int H = 1; H <= 9; H++)
                for (int U = 1; U <= H; U++)
                    for (int u = 0; u < U; u++) {
                        weft_cp_problem p = {.H = H, .group = group, .head0 = head0,
                                             .Hkv = (head0 + H - 1) / group - head0 / group + 1};
                        weft__cp_heads h = weft__cp_heads_of(&p, U, u);
                        int first = (head0 + h.head0) / group, last = (head0 + h.head0 + h.heads - 1) / group;
                        assert_int_equal(h.kv_head0 + head0 / group, first);
                        assert_int_equal(h.kv_heads, last - first + 1);
                        assert_in_range(h.kv_head0 + h.kv_heads, 1, p.Hkv);
                    }
}

static void parts_of_the_heads_that_cannot_be(void **state)
{
    (void)state;
    weft_cp_problem p = good();
    p.head0 = 2;
    refused(p, "ring", false, "first head 2 without");
    p.group = 3, p.H = 4, p.Hkv = 1; /* heads 2..5 read 0 and 1 */
    refused(p, "ring", false, "read key/value heads 0..1, but 1 are here; give those 2");
    p.Hkv = 3;
    refused(p, "ring", false, "give those 2");
    p.Hkv = 2, p.H = 0;
    refused(p, "ring", false, "at least 1 of each");
    p.H = 4, p.head0 = -1;
    refused(p, "ring", false, "from number -1 on");
    p.head0 = INT32_MAX;
    refused(p, "ring", false, "numbered from 0");
    p.head0 = 0;
    refused(p, "ring", true, "same configuration"); /* heads 0..3 and 1..4: as many of both, but others */
    p.head0 = 2;
    refused_on(6, p, "ulysses", (weft_cp_options){0},
               "there are 4 (heads 2 to 5 of the model are this part's); use dcp, with one of the head sizes 1, 2, 3");
}

/* ---- one rank, a plan that exists ------------------------------------------------------------------------------- */

typedef struct bench { weft_ctx ctx; weft_world *world; weft_comm *comm; weft_arena *arena; weft_kern kern; } bench;

static void open_bench(bench *b)
{
    static const int ranks[] = {0};
    weft_ctx_init(&b->ctx);
    assert_ok(weft_world_self(&b->world, &b->ctx));
    assert_ok(weft_comm_create(&b->comm, b->world, ranks, 1, "cp"));
    assert_ok(weft_arena_create(&b->arena, &b->ctx.mem, "test", NULL));
    assert_ok(weft_kern_init(&b->kern, WEFT_ISA_REF));
}

static void close_bench(bench *b)
{
    weft_arena_destroy(b->arena);
    weft_comm_destroy(b->comm);
    weft_world_close(b->world);
}

static void shard_of(bench *b, weft_shard *s, int64_t T, int64_t docs, int P)
{
    int64_t cu[64], first[2] = {0, docs + 1};
    for (int64_t i = 0; i <= docs; i++) cu[i] = i * T / docs;
    weft_docs d = {1, T, cu, first, NULL};
    weft_layout layout = {WEFT_LAYOUT_ZIGZAG, 0};
    assert_ok(weft_shard_alloc(s, b->arena, P, weft_shard_capacity(layout, 1, T, docs, P)));
    assert_ok(weft_shard_make(s, layout, &d, 0));
}

static void bind_refuses_what_exceeds_the_plan(void **state)
{
    (void)state;
    bench b;
    open_bench(&b);
    weft_cp_problem p = good();
    p.need_backward = false, p.sinks = true;
    weft_cp_options options = {.strategy = "auto", .overlap = true};
    weft_cp_plan *plan;
    weft_shard small, large, many, other;
    shard_of(&b, &small, 7, 2, 1);
    shard_of(&b, &large, 13, 1, 1);
    shard_of(&b, &many, 12, 12, 1);
    shard_of(&b, &other, 12, 1, 2);
    weft_cp_io io = {0};
    assert_ok(weft_cp_plan_create(&plan, b.arena, &b.kern, b.comm, &p, &options));
    assert_refused(weft_cp_forward(plan, 0, &io), "not bound");
    assert_refused(weft_cp_bind(plan, 1, &small, &small), "slot 1; the plan has 0..0");
    assert_refused(weft_cp_bind(plan, 0, &small, &large), "13 key rows, the plan's largest case is 12");
    assert_refused(weft_cp_bind(plan, 0, &large, &small), "13 query rows");
    assert_refused(weft_cp_bind(plan, 0, &many, &many), "made for 2 documents");
    assert_refused(weft_cp_bind(plan, 0, &other, &other), "for 2 and 2 ranks, the plan is for 1");
    assert_refused(weft_cp_forward(plan, 0, &io), "not bound");
    assert_ok(weft_cp_bind(plan, 0, &small, &small)); /* shorter than planned is fine */
    assert_refused(weft_cp_backward(plan, 0, &io), "need_backward");
    assert_refused(weft_cp_forward(plan, 0, &io), "sinks");
    weft_cp_plan_destroy(plan);
    close_bench(&b);
}

static void plans_print_themselves(void **state)
{
    (void)state;
    bench b;
    open_bench(&b);
    weft_cp_problem p = good();
    static const char *const want[] = {"(none (kernel ", "(pcp P=1 zigzag (kernel ", "(ring P=1 zigzag (kernel ",
                                       "(heads U=1 (ring P=1 zigzag (kernel ", "(heads U=1 (none (kernel "};
    static const char *const names[] = {"none", "pcp", "ring", "dcp-ring", "ulysses"};
    for (int i = 0; i < 5; i++) {
        weft_cp_options options = {.strategy = names[i], .overlap = true};
        weft_cp_plan *plan;
        weft_text text = {0};
        assert_ok(weft_cp_plan_create(&plan, b.arena, &b.kern, b.comm, &p, &options));
        weft_cp_describe(plan, &text);
        assert_true(strncmp(text.data, want[i], strlen(want[i])) == 0);
        assert_int_equal(weft_cp_kv_buffer_bytes(plan), 0);
        weft_text_free(&text);
        weft_cp_plan_destroy(plan);
    }
    close_bench(&b);
}

typedef struct printed { int head_size; const char *strategy, *want; } printed;

static weft_status print_grid(weft_ctx *ctx, weft_world *world, void *ud)
{
    const printed *x = ud;
    weft_comm *comm;
    weft_arena *arena;
    weft_kern kern;
    weft_cp_plan *plan;
    weft_text text = {0};
    WEFT_TRY(test_comm_all(&comm, world, "cp"));
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "test", NULL));
    WEFT_TRY(weft_kern_init(&kern, WEFT_ISA_REF));
    weft_cp_problem problem = good();
    weft_cp_options options = {.strategy = x->strategy, .overlap = true, .head_size = x->head_size};
    WEFT_TRY(weft_cp_plan_create(&plan, arena, &kern, comm, &problem, &options));
    weft_cp_describe(plan, &text);
    bool as_wanted = strcmp(text.data, x->want) == 0;
    weft_status st = as_wanted ? WEFT_OK : weft_fail(WEFT_ERR_COMPARE, "%s, not %s", text.data, x->want);
    weft_text_free(&text);
    weft_cp_plan_destroy(plan);
    weft_arena_destroy(arena);
    weft_comm_destroy(comm);
    return st;
}

/* 4 heads on 2 K,V heads, 8 ranks: the default is the largest divisor that is at most Hkv. */
static void grids_print_themselves(void **state)
{
    (void)state;
    printed cases[] = {{0, "dcp", "(heads U=2 (pcp R=4 zigzag (kernel ref)))"},
                       {4, "dcp-ring", "(heads U=4 (ring R=2 zigzag (kernel ref)))"},
                       {1, "dcp-pairwise", "(heads U=1 (pairwise P=8 zigzag (kernel ref)))"}};
    for (int i = 0; i < 3; i++) assert_ok(weft_run_threads(8, print_grid, &cases[i]));
    printed all = {0, "ulysses", "(heads U=4 (none (kernel ref)))"};
    assert_ok(weft_run_threads(4, print_grid, &all));
}

/* ---- choice ------------------------------------------------------------------------------------------------------ */

static weft_status choose(const weft_cp_problem *p, const char *name, int P, const weft_cp_strategy **out)
{
    weft_profile profile = weft_profile_default();
    weft_cp_options options = {.strategy = name, .overlap = true};
    weft__cp_ask ask = {p, &options, &profile, P, 1};
    return weft__cp_choose(&ask, out);
}

static void auto_takes_the_cheapest(void **state)
{
    (void)state;
    const weft_cp_strategy *s;
    weft_cp_problem p = good();
    assert_ok(choose(&p, "auto", 1, &s));
    assert_ptr_equal(s, &weft__cp_none);
    assert_ok(choose(&p, NULL, 8, &s));
    assert_ptr_equal(s, &weft__cp_pcp); /* short: latency rules */
    p.T = p.Tq = 1 << 20;
    assert_ok(choose(&p, "auto", 8, &s));
    assert_ptr_equal(s, &weft__cp_pairwise); /* long: memory rules, and a quarter of the rows is not needed */
    p.mask = (weft_mask){false, -1, -1, 0};
    assert_ok(choose(&p, "auto", 8, &s));
    assert_ptr_equal(s, &weft__cp_ring); /* all are needed: a tie, the earlier entry */
    assert_ok(choose(&p, "auto", 2, &s));
    assert_ptr_equal(s, &weft__cp_pcp); /* one block either way: a tie, the earlier entry */
}

static void names_are_those_of_the_table(void **state)
{
    (void)state;
    int n;
    const char *const *names = weft_cp_names(&n);
    assert_int_equal(n, weft__cp_strategy_count);
    for (int i = 0; i < n; i++) assert_string_equal(names[i], weft__cp_strategies[i]->name);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

typedef struct fault_run { cp_job job; const char *spec; } fault_run;

static weft_status run_with_fault(weft_ctx *ctx, weft_world *world, void *ud)
{
    const fault_run *f = ud;
    int ranks[2] = {0, 1};
    weft_comm *comm;
    WEFT_TRY(weft_fault_parse(&ctx->fault, f->spec));
    WEFT_TRY(weft_comm_create(&comm, world, ranks, 2, "cp"));
    WEFT_TRY(cp_run_rank(ctx, comm, &f->job));
    weft_comm_destroy(comm);
    return WEFT_OK;
}

static void faults_act_once_per_step(void **state)
{
    (void)state;
    cp_case c = {.name = "fault", .prec = WEFT_PREC_F64, .B = 1, .Tq = 12, .T = 12, .H = 2, .Hkv = 1, .D = 4, .Dv = 4,
                 .mask = {true, -1, -1, 0}, .seed = 1};
    cp_data data = cp_data_make(&c);
    static const struct { const char *strategy, *site; } ways[] = {{"pcp", "pcp"}, {"ring", "ring"},
                                                                   {"ulysses", "heads"}};
    for (int i = 0; i < 3; i++) {
        char spec[80];
        fault_run f = {{&c, &data, ways[i].strategy, WEFT_LAYOUT_ZIGZAG, true, 1, NULL, cp_result_make(&c, 2), {0}},
                       spec};
        /* two steps forward and two backward: the fourth pass exists, a fifth does not */
        snprintf(spec, sizeof spec, "fail:rank=1:site=cp.%s:hit=5", ways[i].site);
        assert_ok(weft_run_threads(2, run_with_fault, &f));
        snprintf(spec, sizeof spec, "fail:rank=1:site=cp.%s:hit=4", ways[i].site);
        assert_true(weft_run_threads(2, run_with_fault, &f) < 0);
        snprintf(spec, sizeof spec, "nan:rank=0:site=cp.%s:hit=2", ways[i].site);
        assert_ok(weft_run_threads(2, run_with_fault, &f));
        int64_t bad = 0;
        for (int64_t j = 0; j < 12 * 2 * 4; j++) bad += isnan(f.job.out->o[j]);
        assert_true(bad > 0);
        cp_result_free(f.job.out);
    }
    cp_data_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_refuses), cmocka_unit_test(numbers_outside_of_fp32),
        cmocka_unit_test(head_sizes_that_cannot_be),
        cmocka_unit_test(heads_are_dealt_without_padding), cmocka_unit_test(heads_of_a_part_keep_their_groups),
        cmocka_unit_test(parts_of_the_heads_that_cannot_be), cmocka_unit_test(grids_print_themselves),
        cmocka_unit_test(bind_refuses_what_exceeds_the_plan),
        cmocka_unit_test(plans_print_themselves), cmocka_unit_test(auto_takes_the_cheapest),
        cmocka_unit_test(names_are_those_of_the_table), cmocka_unit_test(faults_act_once_per_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
