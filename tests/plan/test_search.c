/* labels: small */
/* The search: what it lists fits, takes what the predictor says and is what was asked for; more ranks are never slower;
 * the longest sequence fits and a longer one does not; a target's rules hold; bytes are those of weft_plan_bytes. */
#include "harness/test.h"
#include "plan/plan_impl.h"

static const weft_model_config config = {
    .family = WEFT_LLAMA, .V = 1024, .C = 512, .F = 1536, .L = 8, .max_position = 1 << 20, .H = 8, .Hkv = 4, .D = 64,
    .norm_eps = 1e-5, .rope = {.type = WEFT_ROPE_PLAIN, .theta = 1e4, .factor = 1}, .bos = -1, .eos = -1};

/* Nodes of four, with fast links inside. */
static const weft_profile machine = {
    .latency_seconds = 5e-6, .link_bytes_per_second = 25e9, .rank_bytes_per_second = 25e9,
    .memory_bytes_per_second = 1e12, .flops_per_second = {1e12, 1e13, 1e13, 1e13}, .backward_factor = 2.5,
    .node_ranks = 4, .node_latency_seconds = 2e-6, .node_bytes_per_second = 200e9,
    .product_flops_per_second = {1e12, 2e13, 2e13, 2e13}, .product_seconds = 4e-6, .attention_seconds = 5e-6,
    .element_bytes_per_second = 1e12, .collective_factor = 0.8};

static weft_kern kern;
static weft_comm *any;

static weft_search_ask ask_for(int ranks, int64_t T, double memory)
{
    return (weft_search_ask){
        .profile = &machine, .ranks = ranks, .memory = memory, .fixed = weft_plan_all_free(), .best = 8,
        .step = {.config = &config, .global_batch = 8, .threads = 1, .overlap_gradients = true,
                 .options = {.prec = WEFT_PREC_BF16, .T = T, .cp = {.overlap = true}}}};
}

static weft_search_result search(const weft_search_ask *a)
{
    weft_search_result r;
    assert_ok(weft_plan_search(&r, a, &kern, any));
    return r;
}

/* The largest of all stages, parts and ranks of cp, one by one. */
static int64_t most_of_all(const weft_search_ask *a, const weft_layout_choice *c)
{
    int64_t most = 0;
    weft_memory_ask m = {.config = a->step.config, .options = weft_plan_options(&a->step, c), .cp = c->cp,
                         .threads = 1,
                         .at = {.ranks = c->dp * c->cp, .zero = c->zero}};
    assert_ok(weft_plan_micros(&a->step, c, &m.micros));
    for (int stage = 0; stage < c->pp; stage++)
        for (int part = 0; part < c->tp; part++)
            for (int i = 0; i < 2 * c->cp; i++) {
                weft_memory x;
                m.at.share = (weft_model_share){part, c->tp, stage, c->pp, c->sequence_parallel};
                m.at.rank = i % 2 ? c->dp * c->cp - 1 : 0;
                m.cp_rank = i / 2;
                assert_ok(weft_plan_memory(&x, &kern, any, &m));
                most = weft_max_i64(most, weft_memory_total(&x));
            }
    return most;
}

/* ---- bytes --------------------------------------------------------------------------------------------------- */

/* What moves by the model of time, beside what a step sends to the byte, of the rank that sends most. A thousandth are
 * the numbers that ranks share: statistics of the loss, counts of labels. */
static void both_plans_of_bytes_agree(void)
{
    static const weft_layout_choice each[] = {
        {.tp = 1, .cp = 4, .dp = 1, .pp = 1, .strategy = "ring", .micro_batch = 1},
        {.tp = 1, .cp = 4, .dp = 1, .pp = 1, .strategy = "pcp", .micro_batch = 1, .zero = 1},
        {.tp = 1, .cp = 2, .dp = 2, .pp = 1, .strategy = "ulysses", .micro_batch = 2, .zero = 1},
        {.tp = 2, .cp = 1, .dp = 2, .pp = 1, .strategy = "none", .micro_batch = 1, .zero = 1},
        {.tp = 2, .cp = 2, .dp = 1, .pp = 1, .strategy = "ring", .micro_batch = 1, .sequence_parallel = true},
        {.tp = 1, .cp = 2, .dp = 1, .pp = 2, .strategy = "ring", .micro_batch = 1}};
    const weft_search_ask a = ask_for(4, 2048, 1e12);
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        weft_layout_choice c = each[i];
        weft_plan_time t;
        weft_bytes most = {0};
        c.cp_layout = (weft_layout){WEFT_LAYOUT_ZIGZAG, 0};
        assert_ok(weft_plan_time_of(&t, &machine, &a.step, &c));
        weft_bytes_ask b = {.config = &config, .options = weft_plan_options(&a.step, &c), .zero = c.zero,
                            .size = {.tp = c.tp, .cp = c.cp, .dp = c.dp, .pp = c.pp},
                            .sequence_parallel = c.sequence_parallel};
        assert_ok(weft_plan_micros(&a.step, &c, &b.micros));
        b.options.train = true;
        for (int r = 0; r < weft_mesh_ranks(b.size); r++) {
            weft_bytes x;
            b.at = weft_mesh_coords(b.size, r);
            assert_ok(weft_plan_bytes(&x, &kern, any, &b));
            for (int k = 0; k < WEFT_BYTES_KINDS; k++) most.of[k] = weft_max_i64(most.of[k], x.of[k]);
        }
        for (int k = 0; k < WEFT_LINKS; k++) {
            const double planned = t.bytes_node[k] + t.bytes_link[k], sent = (double)most.of[k];
            if (fabs(planned - sent) > 1e-3 * sent)
                fail_msg("layout %zu, %s: %.0f bytes in the time of a step, %.0f sent", i,
                         weft_bytes_name((weft_bytes_kind)k), planned, sent);
        }
    }
}

/* ---- what is listed ------------------------------------------------------------------------------------------ */

static void what_is_listed_is_true(void)
{
    const weft_search_ask a = ask_for(8, 1 << 14, 400e6);
    weft_search_result r = search(&a);
    assert_true(r.n > 1 && r.n_front > 0);
    for (int i = 0; i < r.n; i++) {
        const weft_plan_found *x = &r.best[i];
        weft_plan_time t;
        assert_int_equal(x->choice.tp * x->choice.cp * x->choice.dp * x->choice.pp, 8);
        assert_ok(weft_plan_time_of(&t, &machine, &a.step, &x->choice));
        assert_true(t.step == x->time.step);
        assert_true((double)weft_memory_total(&x->memory) <= a.memory);
        assert_int_equal(weft_memory_total(&x->memory), most_of_all(&a, &x->choice));
        if (i > 0) assert_true(r.best[i - 1].time.step <= x->time.step);
    }
    for (int i = 1; i < r.n_front; i++) {
        assert_true(r.front[i - 1].time.step <= r.front[i].time.step);
        assert_true(weft_memory_total(&r.front[i - 1].memory) > weft_memory_total(&r.front[i].memory));
    }
    assert_true(r.best[0].time.step <= 1.002 * r.front[0].time.step);
    weft_search_result_free(&r);
}

/* A choice by hand is never faster than the best. */
static void nothing_by_hand_is_faster(void)
{
    const weft_search_ask a = ask_for(8, 1 << 14, 0);
    weft_search_result r = search(&a);
    static const char *const strategies[] = {"ring", "pcp", "pairwise", "dcp", "ulysses", "dcp-ring"};
    int tried = 0;
    for (int tp = 1; tp <= 8; tp *= 2)
        for (int cp = 1; cp <= 8 / tp; cp *= 2)
            for (int pp = 1; pp <= 8 / tp / cp; pp *= 2)
                for (int s = 0; s < 6; s++)
                    for (int order = 0; order < WEFT_MESH_ORDERS; order += 5) {
                        weft_plan_time t;
                        const weft_layout_choice c = {
                            .tp = tp, .cp = cp, .dp = 8 / tp / cp / pp, .pp = pp,
                            .strategy = cp > 1 ? strategies[s] : "none", .cp_layout = {WEFT_LAYOUT_ZIGZAG, 0},
                            .order = order, .zero = s % 2, .micro_batch = 1, .sequence_parallel = tp > 1 && s % 3 > 0};
                        if (weft_plan_time_of(&t, &machine, &a.step, &c) != WEFT_OK) continue;
                        tried++;
                        assert_true(r.best[0].time.step <= t.step * 1.0021);
                    }
    assert_true(tried > 200);
    weft_search_result_free(&r);
}

/* The least and the most of one cut's times over all orders of ranks, and over all strategies and layouts. */
static void spread_of(const weft_search_ask *a, weft_layout_choice c, double *least, double *most)
{
    static const char *const strategies[] = {"ring", "pcp", "pairwise", "dcp", "ulysses", "dcp-ring", "dcp-pairwise"};
    *least = 1e30, *most = 0;
    for (int order = 0; order < WEFT_MESH_ORDERS; order++)
        for (int s = 0; s < 7; s++)
            for (int layout = 0; layout < 2; layout++) {
                weft_plan_time t;
                c.order = order, c.strategy = strategies[s];
                c.cp_layout = (weft_layout){layout ? WEFT_LAYOUT_CONTIGUOUS : WEFT_LAYOUT_ZIGZAG, 0};
                if (weft_plan_time_of(&t, &machine, &a->step, &c) != WEFT_OK) continue;
                *least = fmin(*least, t.step), *most = fmax(*most, t.step);
            }
}

static void the_best_order_and_way_are_found(void)
{
    static const struct { int tp, cp, dp; } cuts[] = {{4, 4, 1}, {1, 8, 2}, {2, 2, 4}};
    for (int i = 0; i < 3; i++) {
        weft_search_ask a = ask_for(16, 4096, 0);
        a.fixed.tp = cuts[i].tp, a.fixed.cp = cuts[i].cp, a.fixed.dp = cuts[i].dp;
        a.fixed.sequence_parallel = 0, a.fixed.zero = 1, a.fixed.micro_batch = 1;
        a.fixed.recompute = WEFT_RECOMPUTE_NONE;
        weft_search_result r = search(&a);
        double least, most;
        spread_of(&a, r.best[0].choice, &least, &most);
        if (!(r.best[0].time.step <= least * 1.0021) || !(most > 1.02 * least))
            fail_msg("cut %d: %g s found, %g to %g s by hand", i, r.best[0].time.step, least, most);
        weft_search_result_free(&r);
    }
}

static void more_ranks_are_never_slower(void)
{
    double before = 1e30;
    for (int ranks = 1; ranks <= 16; ranks *= 2) {
        const weft_search_ask a = ask_for(ranks, 1 << 15, 0);
        weft_search_result r = search(&a);
        if (!(r.best[0].time.step < before))
            fail_msg("%d ranks take %g s, half as many %g s", ranks, r.best[0].time.step, before);
        before = r.best[0].time.step;
        weft_search_result_free(&r);
    }
}

static void what_is_given_stands(void)
{
    weft_search_ask a = ask_for(8, 1 << 13, 0);
    a.fixed.tp = 2, a.fixed.cp = 4, a.fixed.strategy = "dcp-ring", a.fixed.head_size = 2, a.fixed.zero = 0;
    a.fixed.recompute = WEFT_RECOMPUTE_BLOCK, a.fixed.keep_attention = 1, a.fixed.sequence_parallel = 0;
    a.fixed.layout_given = true, a.fixed.layout = (weft_layout){WEFT_LAYOUT_CONTIGUOUS, 0};
    weft_search_result r = search(&a);
    assert_int_equal(r.n, 1); /* dp and pp have nothing left */
    const weft_layout_choice *c = &r.best[0].choice;
    assert_true(c->tp == 2 && c->cp == 4 && c->head_size == 2 && c->zero == 0 && !c->sequence_parallel);
    assert_true(c->recompute == WEFT_RECOMPUTE_BLOCK && c->keep_attention);
    assert_true(c->cp_layout.kind == WEFT_LAYOUT_CONTIGUOUS);
    assert_string_equal(c->strategy, "dcp-ring");
    weft_search_result_free(&r);
    a.fixed.tp = 3;
    assert_refused(weft_plan_search(&r, &a, &kern, any), "tp 3");
    a.ranks = 0;
    assert_refused(weft_plan_search(&r, &a, &kern, any), "at least 1");
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* Stages at the ends and between, uneven cuts of layers, heads and key/value heads: one of them holds most. */
static void the_rank_with_most_is_found(void)
{
    static const struct { int tp, cp, dp, pp; } cuts[] = {{1, 1, 1, 3}, {3, 1, 1, 1}, {3, 2, 1, 5}, {5, 1, 2, 2},
                                                          {1, 2, 2, 4}, {2, 1, 8, 8}, {7, 1, 1, 3}};
    weft_model_config c = config;
    for (int large = 0; large < 2; large++)
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
            for (int64_t T = 256; T <= 16384; T *= 64) {
                weft_search_ask a = ask_for(1, T, 0);
                weft_memory m;
                c.V = large ? 64000 : 300;
                a.step.config = &c;
                const weft_layout_choice x = {
                    .tp = cuts[i].tp, .cp = cuts[i].cp, .dp = cuts[i].dp, .pp = cuts[i].pp, .micro_batch = 1, .zero = 1,
                    .strategy = cuts[i].cp > 1 ? "ring" : "none", .cp_layout = {WEFT_LAYOUT_ZIGZAG, 0}};
                assert_ok(weft_plan_most_memory(&m, &kern, any, &a.step, &x));
                if (weft_memory_total(&m) != most_of_all(&a, &x))
                    fail_msg("tp %d cp %d dp %d pp %d: %lld bytes, a rank has %lld", x.tp, x.cp, x.dp, x.pp,
                             (long long)weft_memory_total(&m), (long long)most_of_all(&a, &x));
            }
}

/* With less memory more is recomputed, the step is slower, and at last nothing fits; the smallest says how much it
 * takes. */
static void less_memory_is_never_faster(void)
{
    double before = 0;
    int64_t least = 0;
    for (int i = 0; i < 12; i++) {
        const weft_search_ask a = ask_for(4, 1 << 13, 1e9 * pow(0.8, i));
        weft_search_result r = search(&a);
        assert_true(r.has_least);
        least = weft_memory_total(&r.least.memory);
        if (r.n > 0) {
            assert_true(r.best[0].time.step >= before * 0.998);
            assert_true((double)least <= a.memory);
            before = r.best[0].time.step;
        } else assert_true((double)least > a.memory);
        weft_search_result_free(&r);
    }
    assert_true(before > 0);
}

static bool fits_at(const weft_search_ask *a, int64_t T)
{
    weft_search_ask b = *a;
    b.step.options.T = T;
    weft_search_result r = search(&b);
    const bool fits = r.n > 0;
    weft_search_result_free(&r);
    return fits;
}

static void the_longest_fits_and_a_longer_one_does_not(void)
{
    static const struct { int ranks; double memory; } cases[] = {{1, 700e6}, {4, 400e6}, {6, 150e6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const weft_search_ask a = ask_for(cases[i].ranks, 4096, cases[i].memory);
        int64_t T;
        weft_plan_found x;
        assert_ok(weft_plan_longest(&T, &x, &a, &kern, any));
        assert_true(T > 0);
        assert_true((double)weft_memory_total(&x.memory) <= a.memory && x.time.step > 0);
        assert_true(fits_at(&a, T));
        assert_false(fits_at(&a, T + weft_plan_length_step(T)));
    }
    const weft_search_ask none = ask_for(2, 4096, 1e6);
    int64_t T = 1;
    weft_plan_found x;
    assert_ok(weft_plan_longest(&T, &x, &none, &kern, any));
    assert_int_equal(T, 0);
}

/* Not every target has a ring, and a ring has no head groups. */
static void the_longest_goes_by_what_there_is(void)
{
    const struct { const weft_target *target; int head_size; const char *strategy; } cases[] = {
        {&weft_target_deepspeed, WEFT_PLAN_FREE, "ulysses"}, {&weft_target_torchtitan, WEFT_PLAN_FREE, "ring"},
        {&weft_target_megatron, 2, "dcp-ring"}, {&weft_target_weft, 2, "dcp"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_search_ask a = ask_for(4, 4096, 2e9);
        int64_t T;
        weft_plan_found x;
        a.target = cases[i].target;
        a.fixed.cp = 4, a.fixed.head_size = cases[i].head_size;
        assert_ok(weft_plan_longest(&T, &x, &a, &kern, any));
        assert_true(T > 0);
        assert_int_equal(strncmp(x.choice.strategy, cases[i].strategy, strlen(cases[i].strategy)), 0);
    }
}

/* ---- changes, rules, the simulator --------------------------------------------------------------------------- */

static void knobs_gain(void)
{
    const weft_search_ask a = ask_for(4, 1 << 14, 400e6);
    weft_search_result r = search(&a);
    const weft_plan_found *best = &r.best[0];
    const weft_plan_knob *more = &r.knob[WEFT_GAIN_TIME_MORE], *less = &r.knob[WEFT_GAIN_MEMORY];
    if (r.knob[WEFT_GAIN_TIME].there) assert_true(r.knob[WEFT_GAIN_TIME].step < best->time.step);
    assert_true(more->there && more->step < best->time.step && more->memory > a.memory);
    assert_true(less->there && less->memory < (double)weft_memory_total(&best->memory));
    assert_true(strncmp(less->change, "--", 2) == 0);
    weft_search_result_free(&r);
}

static const weft_plan_verdict *verdict_of(const weft_search_result *r, const char *part)
{
    for (int i = 0; i < r->verdicts; i++)
        if (strstr(r->verdict[i].rule, part)) return &r->verdict[i];
    fail_msg("no rule says \"%s\"", part);
    return NULL;
}

static void rules_of_thumb_are_judged(void)
{
    weft_search_ask a = ask_for(8, 1 << 15, 0);
    a.fixed.cp = 8, a.fixed.tp = 1;
    weft_search_result r = search(&a);
    const weft_plan_verdict *v = verdict_of(&r, "16K tokens on");
    assert_int_equal(v->verdict, WEFT_RULE_AGREES); /* 32K tokens, and cp was asked for */
    v = verdict_of(&r, "cp at most T/8");
    assert_string_equal(v->value, "4096, or 32");
    assert_int_equal(v->verdict, WEFT_RULE_AGREES);
    v = verdict_of(&r, "g + 1");
    assert_string_equal(v->value, "P 8, g + 1 = 3: less");
    assert_int_equal(v->verdict, WEFT_RULE_AGREES);
    v = verdict_of(&r, "2F/(gB)"); /* 2 x 1e13 / (2 x 25e9): 400 of 4,096 tokens a rank */
    assert_string_equal(v->value, "400 tokens");
    assert_int_equal(v->verdict, WEFT_RULE_AGREES);
    assert_int_equal(verdict_of(&r, "sequence parallelism")->verdict, WEFT_RULE_SILENT);
    assert_true(r.verdicts >= 10 && r.reason.len > 0);
    weft_search_result_free(&r);
    a = ask_for(8, 2048, 0);
    a.fixed.cp = 8;
    r = search(&a);
    v = verdict_of(&r, "16K tokens on"); /* whether it fits without cp is not known: it was not looked at */
    assert_int_equal(v->verdict, WEFT_RULE_DIFFERS);
    assert_string_equal(v->because, "cp was asked for: nothing without cp was looked at");
    v = verdict_of(&r, "cp at most T/8");
    assert_int_equal(v->verdict, WEFT_RULE_DIFFERS);
    assert_string_equal(v->because, "cp was asked for");
    weft_search_result_free(&r);
    a.fixed.cp = WEFT_PLAN_FREE, a.fixed.tp = a.fixed.dp = a.fixed.pp = 1;
    r = search(&a);
    v = verdict_of(&r, "16K tokens on");
    assert_string_equal(v->because, "tp, dp and pp were asked for, and leave one cp: nothing without cp was looked at");
    weft_search_result_free(&r);
}

/* The simulator's seconds stand for the formulas', and all else stays; both are of one size. */
static void the_exchange_is_simulated(void)
{
    weft_search_ask a = ask_for(8, 1 << 14, 0);
    a.fixed.cp = 8, a.fixed.strategy = "ring";
    a.simulate = true;
    weft_search_result r = search(&a);
    weft_plan_time t;
    assert_true(r.n == 1 && r.best[0].simulated);
    assert_ok(weft_plan_time_of(&t, &machine, &a.step, &r.best[0].choice));
    double sum = 0;
    for (int i = 0; i < WEFT_TIMES; i++) {
        const double s = r.best[0].time.seconds[i];
        sum += s;
        if (i != WEFT_TIME_CP && i != WEFT_TIME_IMBALANCE) assert_true(s == t.seconds[i]);
    }
    assert_true(fabs(sum - r.best[0].time.step) < 1e-12 * sum);
    weft_search_result_free(&r);
    a.step.options.cp.overlap = false; /* all of it shows */
    r = search(&a);
    assert_ok(weft_plan_time_of(&t, &machine, &a.step, &r.best[0].choice));
    const double ratio = r.best[0].time.seconds[WEFT_TIME_CP] / t.seconds[WEFT_TIME_CP];
    if (!(ratio > 0.8 && ratio < 1.3)) fail_msg("the simulator says %g times as long as the formulas", ratio);
    weft_search_result_free(&r);
}

/* ---- targets ------------------------------------------------------------------------------------------------- */

static bool no_tp(const weft_plan_ask *ask, const weft_layout_choice *c, const char **rule, weft_text *why)
{
    (void)ask;
    if (c->tp == 1) return true;
    *rule = "no tensor parallelism";
    weft_text_add(why, "tp %d; tp 1 works", c->tp);
    return false;
}

static void a_targets_rules_hold(void)
{
    weft_target target = weft_target_weft;
    target.allowed = no_tp;
    target.strategies = "none|ring|ulysses";
    target.layouts = "contiguous";
    weft_search_ask a = ask_for(8, 1 << 13, 0);
    a.target = &target;
    weft_search_result r = search(&a);
    assert_true(r.n > 0);
    for (int i = 0; i < r.n; i++) {
        const weft_layout_choice *c = &r.best[i].choice;
        assert_int_equal(c->tp, 1);
        assert_true(c->cp == 1 || c->cp_layout.kind == WEFT_LAYOUT_CONTIGUOUS);
        assert_true(!strcmp(c->strategy, "none") || !strcmp(c->strategy, "ring") || !strcmp(c->strategy, "ulysses"));
    }
    int at = 0;
    while (at < r.refusals && strcmp(r.refusal[at].rule, "no tensor parallelism") != 0) at++;
    assert_true(at < r.refusals && r.refusal[at].count > 0);
    assert_non_null(strstr(r.refusal[at].example, "tp 1 works"));
    weft_search_result_free(&r);
    a.fixed.tp = 2;
    assert_refused(weft_plan_search(&r, &a, &kern, any), "tp 1 works");
    const weft_target *found;
    assert_refused(weft_target_find(&found, "weff"), "did you mean \"weft\"");
    assert_ok(weft_target_find(&found, "weft"));
    assert_ptr_equal(found, &weft_target_weft);
}

/* ---- the program --------------------------------------------------------------------------------------------- */

typedef void check(void);

/* A world of one rank, which is this thread: cmocka fails by a long jump. */
static void run(check *c)
{
    weft_ctx ctx;
    weft_world *world;
    weft_ctx_init(&ctx);
    assert_ok(weft_world_self(&world, &ctx));
    assert_ok(weft_kern_init(&kern, weft_isa_best()));
    assert_ok(weft_comm_create(&any, world, (int[]){0}, 1, "search"));
    c();
    weft_comm_destroy(any);
    weft_world_close(world);
}

#define CASE(name) \
    static void test_##name(void **state) \
    { \
        (void)state; \
        run(name); \
    }
CASE(both_plans_of_bytes_agree)
CASE(what_is_listed_is_true)
CASE(nothing_by_hand_is_faster)
CASE(the_best_order_and_way_are_found)
CASE(the_rank_with_most_is_found)
CASE(more_ranks_are_never_slower)
CASE(what_is_given_stands)
CASE(less_memory_is_never_faster)
CASE(the_longest_fits_and_a_longer_one_does_not)
CASE(the_longest_goes_by_what_there_is)
CASE(knobs_gain)
CASE(rules_of_thumb_are_judged)
CASE(the_exchange_is_simulated)
CASE(a_targets_rules_hold)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_plans_of_bytes_agree),
        cmocka_unit_test(test_what_is_listed_is_true),
        cmocka_unit_test(test_nothing_by_hand_is_faster),
        cmocka_unit_test(test_the_best_order_and_way_are_found),
        cmocka_unit_test(test_the_rank_with_most_is_found),
        cmocka_unit_test(test_more_ranks_are_never_slower),
        cmocka_unit_test(test_what_is_given_stands),
        cmocka_unit_test(test_less_memory_is_never_faster),
        cmocka_unit_test(test_the_longest_fits_and_a_longer_one_does_not),
        cmocka_unit_test(test_the_longest_goes_by_what_there_is),
        cmocka_unit_test(test_knobs_gain),
        cmocka_unit_test(test_rules_of_thumb_are_judged),
        cmocka_unit_test(test_the_exchange_is_simulated),
        cmocka_unit_test(test_a_targets_rules_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
