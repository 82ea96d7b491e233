/* labels: small tsan */
/* Coordinates round trip; every group holds the right ranks (field report G24); refusals name what works. */
#include "harness/ranks.h"
#include "harness/test.h"
#include "mesh/mesh.h"

static void coordinates_round_trip(void **state)
{
    (void)state;
    for (int tp = 1; tp <= 3; tp++)
        for (int cp = 1; cp <= 5; cp++)
            for (int dp = 1; dp <= 4; dp++)
                for (int pp = 1; pp <= 3; pp++) {
                    weft_mesh_shape n = {.tp = tp, .cp = cp, .dp = dp, .pp = pp, .order = (tp + 2 * cp + dp + pp) % 24};
                    for (int r = 0; r < tp * cp * dp * pp; r++) {
                        weft_mesh_shape at = weft_mesh_coords(n, r);
                        assert_in_range(at.tp, 0, tp - 1);
                        assert_in_range(at.cp, 0, cp - 1);
                        assert_in_range(at.dp, 0, dp - 1);
                        assert_in_range(at.pp, 0, pp - 1);
                        assert_int_equal(weft_mesh_rank(n, at), r);
                    }
                }
    /* cp neighbours are neighbours in rank when tp = 1. */
    weft_mesh_shape at = weft_mesh_coords((weft_mesh_shape){.tp = 1, .cp = 4, .dp = 2, .pp = 1}, 6);
    assert_int_equal(at.cp, 2);
    assert_int_equal(at.dp, 1);
}

/* All values of dp group g equal g; a ring over the cp group must bring g only, whatever the other does. */
static weft_status groups_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    weft_mesh_shape n = *(weft_mesh_shape *)ud;
    weft_mesh m;
    weft_world_set_timeout(w, 60);
    WEFT_TRY(weft_mesh_create(&m, w, n));
    int me = weft_world_rank(w), P = weft_comm_size(m.cp), at = weft_comm_rank(m.cp);
    REQUIRE(P == n.cp && weft_comm_size(m.dp) == n.dp && weft_comm_size(m.all) == weft_world_size(w));
    REQUIRE(weft_comm_size(m.dp_cp) == n.cp * n.dp && weft_comm_size(m.tp) == n.tp && weft_comm_size(m.pp) == n.pp);
    REQUIRE(weft_comm_size(m.tp_pp) == n.tp * n.pp);
    REQUIRE(weft_comm_rank(m.tp) == m.at.tp && weft_comm_rank(m.pp) == m.at.pp);
    bool end = n.pp > 1 && (m.at.pp == 0 || m.at.pp == n.pp - 1);
    REQUIRE((m.ends != NULL) == end);
    REQUIRE(!end || (weft_comm_size(m.ends) == 2 && weft_comm_rank(m.ends) == (m.at.pp > 0)));
    REQUIRE(at == m.at.cp && weft_comm_rank(m.dp) == m.at.dp && weft_comm_rank(m.all) == me);
    int group = m.at.dp, value = group;
    for (int hop = 0; hop < P - 1; hop++) {
        int next;
        weft_req r[2];
        WEFT_TRY(weft_irecv(m.cp, &next, sizeof next, (at + P - 1) % P, hop, WEFT_MEM_HOST, NULL, &r[0]));
        WEFT_TRY(weft_isend(m.cp, &value, sizeof value, (at + 1) % P, hop, WEFT_MEM_HOST, NULL, &r[1]));
        WEFT_TRY(weft_wait_all(r, 2));
        REQUIRE(next == group);
        value = next;
    }
    int64_t cp_sum = m.at.dp, dp_sum = m.at.cp, part = m.at.tp + n.tp * m.at.pp, part_sum = part, all_sum = me;
    WEFT_TRY(weft_all_reduce(m.cp, &cp_sum, 1, WEFT_I64, WEFT_SUM));
    WEFT_TRY(weft_all_reduce(m.dp, &dp_sum, 1, WEFT_I64, WEFT_SUM));
    WEFT_TRY(weft_all_reduce(m.all, &all_sum, 1, WEFT_I64, WEFT_SUM));
    WEFT_TRY(weft_all_reduce(m.dp_cp, &part_sum, 1, WEFT_I64, WEFT_SUM));
    int world = weft_world_size(w);
    REQUIRE(cp_sum == (int64_t)m.at.dp * n.cp && dp_sum == (int64_t)m.at.cp * n.dp && part_sum == part * n.cp * n.dp &&
            all_sum == world * (world - 1) / 2);
    weft_mesh_destroy(&m);
    return WEFT_OK;
}

static void g24_groups_hold_their_own_ranks(void **state)
{
    (void)state;
    /* tp, cp, dp, pp, order */
    static weft_mesh_shape shapes[] = {{1, 1, 1, 1, 0}, {1, 2, 2, 1, 0}, {1, 4, 2, 1, 0}, {1, 3, 2, 1, 5},
                                       {1, 1, 5, 1, 0}, {1, 5, 1, 1, 0}, {2, 2, 1, 2, 0}, {2, 1, 2, 2, 17},
                                       {3, 1, 1, 3, 0}, {2, 2, 2, 1, 23}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_ok(weft_run_threads(shapes[i].tp * shapes[i].cp * shapes[i].dp * shapes[i].pp, groups_body,
                                   &shapes[i]));
}

static void orders_have_their_names(void **state)
{
    (void)state;
    char buf[12];
    int order = -1;
    for (int i = 0; i < WEFT_MESH_ORDERS; i++) {
        assert_ok(weft_mesh_order_parse(weft_mesh_order_text(i, buf), &order));
        assert_int_equal(order, i);
    }
    assert_string_equal(weft_mesh_order_text(0, buf), "tp-cp-dp-pp");
    assert_ok(weft_mesh_order_parse("cp-tp-dp-pp", &order));
    assert_int_equal(weft_mesh_rank((weft_mesh_shape){2, 2, 1, 1, order}, (weft_mesh_shape){.cp = 1}), 1);
    assert_int_equal(weft_mesh_rank((weft_mesh_shape){2, 2, 1, 1, order}, (weft_mesh_shape){.tp = 1}), 2);
    static const char *const bad[] = {"", "tp", "tp-cp-dp", "tp-cp-dp-dp", "tp-cp-dp-pp-", "TP-CP-DP-PP"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(weft_mesh_order_parse(bad[i], &order), "once each");
    assert_refused(weft_mesh_order_parse("tp-pc-dp-pp", &order), "did you mean \"tp-cp-dp-pp\"?");
}

/* ---- what is checked on all ranks ------------------------------------------------------------------------------ */

typedef struct wrong { /* every rank must be refused with these words */
    weft_mesh_shape shape, odd;     /* of all ranks; of rank 2 */
    const char *words;
    int group_of[4];                /* planted in the place of the mesh's tp groups */
    int refused;
} wrong;

static weft_status expect_refusal(wrong *x, weft_status st)
{
    if (st >= 0) return weft_fail(WEFT_ERR_INTERNAL, "accepted");
    if (!strstr(weft_last_error(), x->words)) return st;
    __atomic_add_fetch(&x->refused, 1, __ATOMIC_RELAXED);
    return WEFT_OK;
}

static weft_status disagreeing_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    wrong *x = ud;
    weft_mesh m;
    weft_world_set_timeout(w, 60);
    weft_status st = weft_mesh_create(&m, w, weft_world_rank(w) == 2 ? x->odd : x->shape);
    WEFT_TRY(expect_refusal(x, st));
    WEFT_TRY(weft_mesh_create(&m, w, x->shape)); /* the world is as good as before */
    weft_mesh_destroy(&m);
    return WEFT_OK;
}

static void ranks_that_disagree_are_refused_alike(void **state)
{
    (void)state;
    static wrong cases[] = {
        {{1, 2, 2, 1, 0}, {1, 4, 1, 1, 0}, "mesh: cp is 2 on rank 0 and 4 on rank 2", {0}, 0},
        {{1, 2, 2, 1, 0}, {1, 2, 1, 2, 0}, "mesh: dp is 1 on rank 2 and 2 on rank 0", {0}, 0},
        {{4, 1, 1, 1, 0}, {4, 3, 1, 1, 0}, "mesh: cp is 1 on rank 0 and 3 on rank 2", {0}, 0}, /* no world of 12 */
        {{2, 2, 1, 1, 0}, {2, 2, 1, 1, 6}, "the rank order is tp-cp-dp-pp on rank 0 and cp-tp-dp-pp on rank 2", {0}, 0},
        {{2, 2, 1, 1, 0}, {2, 2, 1, 1, 99}, "the rank order is tp-cp-dp-pp on rank 0 and 99 on rank 2", {0}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(weft_run_threads(4, disagreeing_body, &cases[i]));
        assert_int_equal(cases[i].refused, 4);
    }
}

static weft_status planted_body(weft_ctx *ctx, weft_world *w, void *ud)
{
    (void)ctx;
    wrong *x = ud;
    weft_mesh m, planted;
    weft_world_set_timeout(w, 60);
    WEFT_TRY(weft_mesh_create(&m, w, x->shape));
    WEFT_TRY(weft_mesh_check(&m));
    planted = m;
    WEFT_TRY(weft_comm_split(&planted.tp, w, x->group_of, "planted"));
    WEFT_TRY(expect_refusal(x, weft_mesh_check(&planted)));
    weft_comm_destroy(planted.tp);
    weft_mesh_destroy(&m);
    return WEFT_OK;
}

/* tp 2 x cp 2: tp groups are {0,1} {2,3}, cp groups {0,2} {1,3}. */
static void groups_that_do_not_fit_are_found(void **state)
{
    (void)state;
    static wrong cases[] = {
        /* ranks with other rows */
        {{2, 2, 1, 1, 0}, {0}, "have 2 ranks in common, rank ", {0, 1, 0, 1}, 0},
        /* across: each meets its cp group in one rank, but rank 1 would have the other's heads */
        {{2, 2, 1, 1, 0}, {0}, "of 2 in its tp group; it must be number ", {0, 1, 1, 0}, 0},
        {{2, 2, 1, 1, 0}, {0}, "have 2 ranks in common, rank ", {0, 0, 0, 0}, 0},
        {{2, 2, 1, 1, 0}, {0}, "is number 0 of 1 in its tp group", {0, 1, 2, 3}, 0},
        /* cp-tp: cp groups {0,1} {2,3}; tp groups {0,3} {1,2} have the right numbers everywhere, and other rows */
        {{2, 2, 1, 1, 6}, {0}, "have numbers 0 and 1 in their cp groups", {0, 1, 1, 0}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(weft_run_threads(4, planted_body, &cases[i]));
        assert_int_equal(cases[i].refused, 4);
    }
}

static void refused(weft_world *w, int tp, int cp, int dp, const char *words)
{
    weft_mesh m;
    assert_refused(weft_mesh_create(&m, w, (weft_mesh_shape){.tp = tp, .cp = cp, .dp = dp, .pp = 1}), words);
}

static void bad_shapes_are_refused(void **state)
{
    (void)state;
    weft_ctx ctx;
    weft_world *w;
    weft_mesh m;
    weft_ctx_init(&ctx);
    assert_ok(weft_world_self(&w, &ctx));
    refused(w, 1, 0, 1, "cp = 0; give 1 or more");
    refused(w, 1, 1, -2, "dp = -2");
    refused(w, 2, 1, 1, "give sizes whose product is 1");
    refused(w, 1, 2, 1, "needs 2 ranks, the world has 1");
    refused(w, 1, 1 << 30, 1 << 30, "the world has 1");
    refused(w, 1, 1, 3, "give dp = 1");
    assert_ok(weft_mesh_create(&m, w, (weft_mesh_shape){.tp = 1, .cp = 1, .dp = 1, .pp = 1}));
    weft_mesh_destroy(&m);
    weft_world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coordinates_round_trip),
        cmocka_unit_test(g24_groups_hold_their_own_ranks),
        cmocka_unit_test(orders_have_their_names),
        cmocka_unit_test(bad_shapes_are_refused),
        cmocka_unit_test(ranks_that_disagree_are_refused_alike),
        cmocka_unit_test(groups_that_do_not_fit_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
