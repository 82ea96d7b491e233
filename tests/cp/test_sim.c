/* labels: small noasan */
/* The real plans on simulated ranks: every strategy and layout that there is ends without dead-lock and sends what it
 * planned; bytes equal the formulas, written down once more here; times behave as the theory says. The whole
 * product of strategies, layouts and ranks is in test_sim_all. */
#include "harness/test.h"
#include "harness/cp_case.h"
#include "harness/sim_case.h"

/* ---- no dead-lock ------------------------------------------------------------------------------------------ */

/* What varies beside strategy, layout and P: dealt out so that each P meets several. */
static void vary(sim_case *c, int k)
{
    c->no_overlap = k % 3 == 0;
    c->mask = k % 4 == 0   ? (weft_mask){false, -1, -1, 0}
              : k % 4 == 3 ? (weft_mask){true, 20, -1, 0}
                           : (weft_mask){true, -1, -1, 0};
    c->groups = 1 + k % 3;
    c->interleaved = k % 2;
    c->pieces = k % 5 == 1 ? 300 : 0;
    c->layers = 1 + k % 2;
    c->needs_poll = k % 7 == 0;
}

/* Every strategy and layout; returns how many of fn's were not refused. */
static int each_way(int (*fn)(const char *strategy, weft_layout_kind layout, int way))
{
    int n = 0, way = 0, ran = 0;
    const char *const *names = weft_cp_names(&n);
    for (int s = 0; s < n; s++)
        for (int l = 0; l < WEFT_LAYOUT_COUNT; l++, way++) ran += fn(names[s], (weft_layout_kind)l, way);
    return ran;
}

static const int ranks[] = {1, 2, 3, 5, 8, 12};
enum { RANKS = sizeof ranks / sizeof *ranks };

static int ends(const char *strategy, weft_layout_kind layout, int way)
{
    int ran = 0;
    for (int p = 0; p < RANKS; p++) {
        int k = way * RANKS + p;
        sim_case c = sim_case_make(strategy, layout, ranks[p], k % 2 ? 257 : 33);
        vary(&c, k);
        ran += sim_case_check(&c);
    }
    return ran;
}

static void every_strategy_and_layout_ends(void **state)
{
    (void)state;
    int n = 0;
    weft_cp_names(&n);
    /* of none P = 1 alone, of ulysses with four heads P = 1, 2, 3 */
    assert_int_equal(each_way(ends), WEFT_LAYOUT_COUNT * (RANKS * (n - 2) + 1 + 3));
}

static int ends_on_seven_ranks_with_three_tokens(const char *strategy, weft_layout_kind layout, int way)
{
    (void)way;
    sim_case c = sim_case_make(strategy, layout, 7, 3);
    c.mask.causal = true;
    return sim_case_check(&c);
}

static void more_ranks_than_tokens(void **state)
{
    (void)state;
    int n = 0;
    weft_cp_names(&n);
    assert_int_equal(each_way(ends_on_seven_ranks_with_three_tokens), WEFT_LAYOUT_COUNT * (n - 2));
}

/* Documents that differ between the rows, with empty ones and ones of one token. */
static int ends_with_documents(const char *strategy, weft_layout_kind layout, int way)
{
    static const int64_t cu[] = {0, 1, 1, 40, 257, 0, 0, 200, 201, 257, 257}, first[] = {0, 5, 11};
    weft_docs docs = {2, 257, cu, first, NULL};
    sim_case c = sim_case_make(strategy, layout, 4, 257);
    c.B = 2;
    c.docs = &docs;
    c.mask.causal = way % 2 == 0;
    return sim_case_check(&c);
}

static void documents(void **state)
{
    (void)state;
    int n = 0;
    weft_cp_names(&n);
    assert_int_equal(each_way(ends_with_documents), WEFT_LAYOUT_COUNT * (n - 1));
}

/* ---- the order of events ------------------------------------------------------------------------------------ */

/* With kernels that compute, on networks that let messages come in quite different orders: the bits are those of
 * threads. Blocks are taken in the order of the plan, never of arrival. */
static void bits_do_not_depend_on_arrival(void **state)
{
    (void)state;
    enum { P = 5 };
    const weft_sim_model models[] = {
        {.link_bytes_per_second = 1e9, .port_bytes_per_second = 1e9, .node_bytes_per_second = 1e9},
        {1e-3, 1e-2, 10, 1e6, 2, 1e-9, 1e9, false, false, NULL, 0},
        {0, 5, 1e9, 100, 3, 1e-9, 50, true, false, NULL, 0}};
    cp_case c = {.name = "arrival", .prec = WEFT_PREC_BF16, .B = 1, .Tq = 57, .T = 57, .H = 5, .Hkv = 5, .D = 8,
                 .Dv = 6,
                 .mask = {true, -1, -1, 0}, .sinks = true, .seed = 6};
    cp_data data = cp_data_make(&c);
    cp_result *threads = cp_result_make(&c, P), *sim = cp_result_make(&c, P);
    int n = 0;
    const char *const *names = weft_cp_names(&n);
    for (int s = 0; s < n; s++) {
        if (!strcmp(names[s], "none")) continue;
        cp_job job = {.c = &c, .data = &data, .strategy = names[s], .layout = WEFT_LAYOUT_ZIGZAG, .overlap = true,
                      .repeat = 2, .out = threads, .more = {.buffer_bytes = 100}};
        assert_ok(cp_run(P, &job, 1));
        job.out = sim;
        for (int m = 0; m < 3; m++) {
            assert_ok(cp_run_sim(P, &models[m], &job, 1));
            if (!cp_same_bits(&c, threads, sim)) fail_msg("%s: other bits on network %d", names[s], m);
        }
    }
    cp_result_free(threads);
    cp_result_free(sim);
    cp_data_free(&data);
}

/* ---- bytes ------------------------------------------------------------------------------------------------- */

static void bytes_and_messages_of_a_full_mask(void **state)
{
    (void)state;
    static const struct { int P, H, Hkv; } sizes[] = {
        /* uneven groups, shared K,V heads */
        {2, 64, 4}, {5, 30, 15}, {12, 30, 15}, {12, 64, 4}, {33, 35, 5}, {64, 64, 4}};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    int n = 0, k = 0, ran = 0;
    const char *const *names = weft_cp_names(&n);
    for (int s = 0; s < n; s++)
        for (int p = 0; p < SIZES; p++, k++) {
            sim_case c = sim_case_make(names[s], (weft_layout_kind)(k % WEFT_LAYOUT_COUNT), sizes[p].P,
                                       k % 3 ? 257 : 1001);
            c.prec = k % 3 ? WEFT_PREC_BF16 : WEFT_PREC_F32;
            c.pieces = k % 5 < 2 ? 1000 : 0;
            c.H = sizes[p].H, c.Hkv = sizes[p].Hkv;
            ran += sim_case_check_formula(&c);
        }
    assert_int_equal(ran, SIZES * (n - 1)); /* all but none */
}

/* Pairwise with a causal mask and with a window, where zigzag cuts even chunks: the closed forms, and in sum 3/4 of
 * what the ring moves forward. */
static void traffic_of_causal_pairwise(void **state)
{
    (void)state;
    for (int P = 4; P <= 64; P *= 4)
        for (int64_t window = -1; window < 4; window += 4)
            for (int pieces = 0; pieces < 2; pieces++) {
                sim_case c = sim_case_make("pairwise", WEFT_LAYOUT_ZIGZAG, P, 2 * P * 5);
                c.mask = (weft_mask){true, window, -1, 0}, c.pieces = pieces ? 100 : 0;
                const traffic_case formula = sim_case_traffic(&c);
                weft_sim_result out;
                int64_t sum = 0;
                assert_true(sim_case_run(&c, &out));
                for (int r = 0; r < P; r++) {
                    traffic want = traffic_causal_pairwise(&formula, r, window);
                    sim_case_expect(&c, &out, r, &want);
                    sum += out.rank[r].forward_bytes;
                }
                if (window < 0) assert_int_equal(4 * sum, 3 * (P - 1) * c.T * c.Hkv * (c.D + c.Dv) * 2);
                else assert_int_equal(sum, (2 * P - 2) * window * c.Hkv * (c.D + c.Dv) * 2);
                weft_sim_result_free(&out);
            }
}

/* Eight million tokens of 32 heads: bytes of a rank are above 2^32 everywhere, elements in some. */
static void g30_bytes_of_long_sequences(void **state)
{
    (void)state;
    int n = 0, ran = 0;
    const char *const *names = weft_cp_names(&n);
    for (int s = 0; s < n; s++) {
        sim_case c = sim_case_make(names[s], WEFT_LAYOUT_ZIGZAG, 4, (INT64_C(1) << 23) + 1);
        c.H = c.Hkv = 32, c.D = c.Dv = 128;
        traffic_case formula = sim_case_traffic(&c);
        if (strcmp(names[s], "none")) assert_true(traffic_of(&formula, 0).forward_bytes > INT64_C(1) << 32);
        ran += sim_case_check_formula(&c);
    }
    assert_int_equal(ran, n - 1);
}

/* ---- time -------------------------------------------------------------------------------------------------- */

/* No latency, one rate each for kernels and links. */
static weft_profile rates(double flops, double bytes)
{
    weft_profile p = weft_profile_default();
    p.latency_seconds = p.node_latency_seconds = 0;
    p.link_bytes_per_second = p.rank_bytes_per_second = p.node_bytes_per_second = bytes;
    p.flops_per_second[WEFT_PREC_BF16] = flops;
    p.memory_bytes_per_second = 1e18; /* nothing but attention and links takes time */
    return p;
}

static double forward_seconds(const sim_case *c)
{
    weft_sim_result out;
    assert_true(sim_case_run(c, &out));
    double t = out.forward_seconds;
    weft_sim_result_free(&out);
    return t;
}

/* Sums of at most a few hundred products in double. */
static bool close_to(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

/* theory c3: a ring step hides its transfer when its compute takes at least as long: n rows of keys against n queries,
 * n^2 H 2 (D + Dv) / F, and n Hkv (D + Dv) e / B of transfer. */
static void a_ring_hides_its_transfers(void **state)
{
    (void)state;
    enum { P = 8, N = 64 };
    sim_case c = sim_case_make("ring", WEFT_LAYOUT_CONTIGUOUS, P, P * N);
    double step = (double)N * N * c.H * 2 * (c.D + c.Dv), transfer = (double)N * c.Hkv * (c.D + c.Dv) * 2;
    /* a step takes 1 s, a transfer 0.99 s or 3 s */
    weft_profile fast = rates(step, transfer * 1.01), slow = rates(step, transfer / 3);
    c.profile = &fast;
    assert_true(close_to(forward_seconds(&c), P));
    c.no_overlap = true;
    assert_true(close_to(forward_seconds(&c), P + (P - 1) / 1.01));
    c.no_overlap = false;
    c.profile = &slow;
    assert_true(close_to(forward_seconds(&c), 3 * (P - 1) + 1));
}

/* theory c5: a causal ring over contiguous shares waits for its slowest rank in every step: P - 1/2 full blocks where
 * the mean is P/2; zigzag gives every rank the same in every step. Blocks count with n^2, diagonals with n (n + 1) /
 * 2. */
static void balance_of_causal_rings(void **state)
{
    (void)state;
    enum { P = 8, N = 64 };
    sim_case c = sim_case_make("ring", WEFT_LAYOUT_CONTIGUOUS, P, P * N);
    weft_profile p = rates((double)N * N * c.H * 2 * (c.D + c.Dv), 1e18);
    c.profile = &p;
    c.mask.causal = true;
    double diagonal = 0.5 * (N + 1) / N, mean = (P - 1) / 2.0 + diagonal;
    assert_true(close_to(forward_seconds(&c), P - 1 + diagonal));
    c.layout = sim_layout(WEFT_LAYOUT_ZIGZAG);
    assert_true(close_to(forward_seconds(&c), mean));
    weft_sim_result out;
    assert_true(sim_case_run(&c, &out));
    for (int r = 0; r < P; r++) assert_true(close_to(out.rank[r].compute_seconds, mean * (1 + p.backward_factor)));
    weft_sim_result_free(&out);
}

static void two_runs_take_the_same_time(void **state)
{
    (void)state;
    int n = 0;
    const char *const *names = weft_cp_names(&n);
    for (int s = 0; s < n; s++) {
        sim_case c = sim_case_make(names[s], WEFT_LAYOUT_ZIGZAG, !strcmp(names[s], "none") ? 1 : 4, 1001);
        c.mask.causal = true;
        c.groups = 3;
        c.interleaved = true;
        c.layers = 2;
        weft_sim_result a, b;
        assert_true(sim_case_run(&c, &a));
        assert_true(sim_case_run(&c, &b));
        assert_memory_equal(a.rank, b.rank, (size_t)a.ranks * sizeof *a.rank);
        assert_true(a.forward_seconds > 0 && a.backward_seconds > 0);
        weft_sim_result_free(&a);
        weft_sim_result_free(&b);
    }
}

/* Groups that do not share a link take the time of one. */
static void groups_side_by_side(void **state)
{
    (void)state;
    weft_profile p = weft_profile_default();
    sim_case c = sim_case_make("ring", WEFT_LAYOUT_ZIGZAG, 4, 257);
    c.profile = &p;
    double one = forward_seconds(&c);
    for (int k = 0; k < 2; k++) {
        c.groups = 3;
        c.interleaved = k;
        assert_true(close_to(forward_seconds(&c), one));
    }
}

/* The same program on a network that is slower between nodes: a ring that crosses it waits for it. */
static void nodes(void **state)
{
    (void)state;
    sim_case c = sim_case_make("ring", WEFT_LAYOUT_ZIGZAG, 4, 257);
    weft_profile p = rates(1e15, 1e6);
    p.node_bytes_per_second = 1e9;
    c.profile = &p;
    double inside = forward_seconds(&c);
    p.node_ranks = 2;
    double across = forward_seconds(&c);
    assert_true(across > 100 * inside);
    p.node_ranks = 4;
    assert_true(close_to(forward_seconds(&c), inside));
}

static void bad_asks_are_refused(void **state)
{
    (void)state;
    weft_sim_result out;
    weft_sim_ask a = {.problem = {.prec = WEFT_PREC_F32, .B = 1, .Tq = 8, .T = 8, .max_docs = 1, .H = 2, .Hkv = 2,
                                  .D = 4, .Dv = 4,
                                  .scale = 1, .mask = {false, -1, -1, 0}, .slots = 1},
                      .options = {.strategy = "ring", .overlap = true}, .cp = 2, .groups = 1, .layers = 1};
    assert_ok(weft_simulate(&out, &a));
    assert_true(out.backward_seconds == 0); /* not asked for */
    weft_sim_result_free(&out);
    weft_sim_ask b = a;
    b.cp = 0;
    assert_refused(weft_simulate(&out, &b), "groups of 0 ranks");
    b = a, b.layers = 0;
    assert_refused(weft_simulate(&out, &b), "0 layers");
    b = a, b.traced = (int[]){2}, b.n_traced = 1;
    assert_refused(weft_simulate(&out, &b), "rank 2 to be traced");
    b = a, b.options.strategy = "rings";
    assert_refused(weft_simulate(&out, &b), "did you mean \"ring\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_strategy_and_layout_ends), cmocka_unit_test(more_ranks_than_tokens),
        cmocka_unit_test(documents), cmocka_unit_test(bits_do_not_depend_on_arrival),
        cmocka_unit_test(bytes_and_messages_of_a_full_mask), cmocka_unit_test(traffic_of_causal_pairwise),
        cmocka_unit_test(g30_bytes_of_long_sequences),
        cmocka_unit_test(a_ring_hides_its_transfers),
        cmocka_unit_test(balance_of_causal_rings), cmocka_unit_test(two_runs_take_the_same_time),
        cmocka_unit_test(groups_side_by_side), cmocka_unit_test(nodes), cmocka_unit_test(bad_asks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
