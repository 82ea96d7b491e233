/* labels: small */
/* Simulated ranks and links that are not as they should be: what they cost by theory; the same numbers every time. */
#include "harness/test.h"

#include "harness/sim_case.h"

enum { P = 8, N = 64 };

static double work(const sim_case *c) { return (double)N * N * c->H * 2 * (c->D + c->Dv); }
static double moved(const sim_case *c) { return (double)N * c->Hkv * (c->D + c->Dv) * 2; }

/* No latency; nothing but attention and links takes time: a block so many seconds, and so does its keys' transfer. */
static weft_profile rates(const sim_case *c, double block, double transfer)
{
    weft_profile p = weft_profile_default();
    p.latency_seconds = p.node_latency_seconds = 0;
    p.link_bytes_per_second = p.rank_bytes_per_second = p.node_bytes_per_second =
        transfer > 0 ? moved(c) / transfer : 1e18;
    p.flops_per_second[WEFT_PREC_BF16] = work(c) / block;
    p.memory_bytes_per_second = 1e18;
    return p;
}

static sim_case ring(void) { return sim_case_make("ring", WEFT_LAYOUT_CONTIGUOUS, P, P * N); }

static weft_sim_result run(const sim_case *c)
{
    weft_sim_result out;
    assert_true(sim_case_run(c, &out));
    return out;
}

static double forward_seconds(const sim_case *c)
{
    weft_sim_result out = run(c);
    const double t = out.forward_seconds;
    weft_sim_result_free(&out);
    return t;
}

static bool close_to(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

/* A ring has no barrier: whoever is fast waits for blocks, and the whole takes what the slow rank computes. */
static void a_slow_rank_costs_its_factor(void **state)
{
    (void)state;
    sim_case c = ring();
    weft_profile p = rates(&c, 1, 0);
    c.profile = &p;
    for (int slow = 0; slow < P; slow += 3) {
        double kernels[P] = {1, 1, 1, 1, 1, 1, 1, 1};
        kernels[slow] = 1.5;
        c.disturb.kernels = kernels;
        weft_sim_result out = run(&c);
        assert_true(close_to(out.forward_seconds, 1.5 * P));
        assert_true(close_to(out.forward_seconds + out.backward_seconds, 1.5 * P * (1 + p.backward_factor)));
        for (int r = 0; r < P; r++) {
            const weft_sim_rank_result *x = &out.rank[r];
            assert_true(close_to(x->compute_seconds, P * (1 + p.backward_factor) * (r == slow ? 1.5 : 1)));
            if (r == slow) assert_true(x->exposed_seconds < 1e-9);
        }
        weft_sim_result_free(&out);
    }
}

/* Where transfers take longer than blocks, a ring goes at the rate of its slowest link: P - 1 blocks cross it, and the
 * last is computed. */
static void a_slow_link_sets_the_pace(void **state)
{
    (void)state;
    sim_case c = ring();
    weft_profile p = rates(&c, 1, 3);
    c.profile = &p;
    const weft_sim_slow_link pair = {2, 3, 4}, all = {3, -1, 4}, away = {2, 5, 4};
    assert_true(close_to(forward_seconds(&c), 3 * (P - 1) + 1));
    c.disturb = (weft_sim_disturb){.link = &pair, .links = 1};
    assert_true(close_to(forward_seconds(&c), 12 * (P - 1) + 1));
    c.pieces = 1000; /* of one message, one after the other over the same link */
    assert_true(close_to(forward_seconds(&c), 12 * (P - 1) + 1));
    c.pieces = 0;
    c.disturb.link = &all;
    assert_true(close_to(forward_seconds(&c), 12 * (P - 1) + 1));
    c.disturb.link = &away; /* which no ring uses */
    assert_true(close_to(forward_seconds(&c), 3 * (P - 1) + 1));
    c.disturb = (weft_sim_disturb){.node = 2};
    assert_true(close_to(forward_seconds(&c), 6 * (P - 1) + 1));
    c.disturb = (weft_sim_disturb){.net = 2}; /* all ranks are on one node */
    assert_true(close_to(forward_seconds(&c), 3 * (P - 1) + 1));
    p.node_ranks = 4;
    assert_true(close_to(forward_seconds(&c), 6 * (P - 1) + 1));
}

static void jitter_comes_from_the_seed(void **state)
{
    (void)state;
    sim_case c = ring();
    weft_profile p = rates(&c, 1, 0);
    c.profile = &p;
    c.disturb = (weft_sim_disturb){.jitter = 0.5, .seed = 7};
    const double once = forward_seconds(&c), again = forward_seconds(&c);
    assert_true(once == again);
    assert_true(once > P * 1.05 && once < P * 1.5);
    c.disturb.seed = 8;
    assert_true(forward_seconds(&c) != once);
}

static weft_status parse(weft_arena *a, const char *ranks, const char *links, bool one_node)
{
    weft_sim_disturb d;
    return weft_sim_disturb_parse(&d, a, ranks, links, P, one_node);
}

static void texts(void **state)
{
    (void)state;
    weft_mem mem = {0};
    weft_arena *a;
    weft_sim_disturb d;
    weft_text t = {0};
    assert_ok(weft_arena_create(&a, &mem, "test", NULL));
    assert_ok(weft_sim_disturb_parse(&d, a, "3:1.5,5-6:2", "2-3:4,7:2,node:3,net:5", P, false));
    d.jitter = 0.1;
    weft_sim_disturb_text(&d, P, &t);
    assert_string_equal(t.data, "kernels of rank 3 x1.5; kernels of ranks 5-6 x2; link 2-3 x4; links of rank 7 x2; "
                                "links inside nodes x3; links between nodes x5; "
                                "kernels of all ranks longer by up to 0.1 of their time, seed 0");
    weft_text_free(&t);
    assert_ok(weft_sim_disturb_parse(&d, a, NULL, NULL, P, false));
    weft_sim_disturb_text(&d, P, &t);
    assert_int_equal(t.len, 0);
    /* a factor of 1 disturbs nothing, whatever it is given to */
    assert_ok(weft_sim_disturb_parse(&d, a, "3:1,4-5:1", "2-3:1,7:1,node:1,net:1", P, false));
    weft_sim_disturb_text(&d, P, &t);
    assert_int_equal(t.len, 0);
    assert_refused(parse(a, "3:1,3:2", NULL, true), "rank 3 is named twice");
    assert_refused(parse(a, NULL, "node:2,node:3", true), "node is named twice");
    assert_refused(parse(a, NULL, "net:1,net:3", false), "net is named twice");
    assert_refused(parse(a, "8:2", NULL, true), "there are ranks 0 to 7");
    assert_refused(parse(a, "3", NULL, true), "\"3\" has no factor");
    assert_refused(parse(a, "3:0.5", NULL, true), "give 1 to 1e6");
    assert_refused(parse(a, "3:nan", NULL, true), "--slow-rank 3:nan");
    assert_refused(parse(a, "3:2,3:2", NULL, true), "rank 3 is named twice");
    assert_refused(parse(a, "3:2,", NULL, true), "ends with a comma");
    assert_refused(parse(a, ",3:2", NULL, true), "has no factor");
    assert_refused(parse(a, NULL, "3-3:2", true), "3-3 is no link");
    assert_refused(parse(a, NULL, "2-3:2,2-3:4", true), "named twice");
    assert_refused(parse(a, NULL, "net:2", true), "one node");
    assert_refused(parse(a, NULL, "nodes:2", true), "\"nodes\" is not");
    weft_arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_rank_costs_its_factor),
        cmocka_unit_test(a_slow_link_sets_the_pace),
        cmocka_unit_test(jitter_comes_from_the_seed),
        cmocka_unit_test(texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
