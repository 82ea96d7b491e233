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
                    weft_mesh_shape n = {tp, cp, dp, pp};
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
    weft_mesh_shape at = weft_mesh_coords((weft_mesh_shape){1, 4, 2, 1}, 6);
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
    REQUIRE(P == n.cp && weft_comm_size(m.dp) == n.dp && weft_comm_size(m.all) == n.cp * n.dp);
    REQUIRE(weft_comm_size(m.dp_cp) == n.cp * n.dp && weft_comm_size(m.tp) == 1 && weft_comm_size(m.pp) == 1);
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
    int64_t cp_sum = m.at.dp, dp_sum = m.at.cp, all_sum = me;
    WEFT_TRY(weft_all_reduce(m.cp, &cp_sum, 1, WEFT_I64, WEFT_SUM));
    WEFT_TRY(weft_all_reduce(m.dp, &dp_sum, 1, WEFT_I64, WEFT_SUM));
    WEFT_TRY(weft_all_reduce(m.dp_cp, &all_sum, 1, WEFT_I64, WEFT_SUM));
    int world = n.cp * n.dp;
    REQUIRE(cp_sum == (int64_t)m.at.dp * n.cp && dp_sum == (int64_t)m.at.cp * n.dp &&
            all_sum == world * (world - 1) / 2);
    weft_mesh_destroy(&m);
    return WEFT_OK;
}

static void g24_groups_hold_their_own_ranks(void **state)
{
    (void)state;
    static weft_mesh_shape shapes[] = {{1, 1, 1, 1}, {1, 2, 2, 1}, {1, 4, 2, 1},
                                       {1, 3, 2, 1}, {1, 1, 5, 1}, {1, 5, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_ok(weft_run_threads(shapes[i].cp * shapes[i].dp, groups_body, &shapes[i]));
}

static void bad_shapes_are_refused(void **state)
{
    (void)state;
    weft_ctx ctx;
    weft_world *w;
    weft_mesh m;
    weft_ctx_init(&ctx);
    assert_ok(weft_world_self(&w, &ctx));
    assert_refused(weft_mesh_create(&m, w, (weft_mesh_shape){1, 0, 1, 1}), "cp = 0; give 1 or more");
    assert_refused(weft_mesh_create(&m, w, (weft_mesh_shape){1, 1, -2, 1}), "dp = -2");
    assert_refused(weft_mesh_create(&m, w, (weft_mesh_shape){2, 1, 1, 1}), "give tp = 1");
    assert_refused(weft_mesh_create(&m, w, (weft_mesh_shape){1, 1, 1, 2}), "give tp = 1, pp = 1");
    assert_refused(weft_mesh_create(&m, w, (weft_mesh_shape){1, 2, 1, 1}), "needs 2 ranks, the world has 1");
    assert_refused(weft_mesh_create(&m, w, (weft_mesh_shape){1, 1 << 30, 1 << 30, 1}), "the world has 1");
    assert_refused(weft_mesh_create(&m, w, (weft_mesh_shape){1, 1, 3, 1}), "give dp = 1");
    assert_ok(weft_mesh_create(&m, w, (weft_mesh_shape){1, 1, 1, 1}));
    weft_mesh_destroy(&m);
    weft_world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coordinates_round_trip),
        cmocka_unit_test(g24_groups_hold_their_own_ranks),
        cmocka_unit_test(bad_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
