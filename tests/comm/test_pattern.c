/* labels: small */
/* Rank arithmetic, exhaustively for P = 1..64. */
#include "harness/test.h"
#include "comm/pattern.h"

enum { P_MAX = 64 };

static void ring_is_a_cycle(void **state)
{
    (void)state;
    for (int P = 1; P <= P_MAX; P++)
        for (int r = 0; r < P; r++) {
            assert_int_equal(weft_ring_prev(P, weft_ring_next(P, r)), r);
            int at = r;
            for (int hop = 0; hop < P; hop++) {
                /* The block of `at` has travelled `hop` times to next. */
                assert_int_equal(weft_ring_owner(P, at, hop), r);
                at = weft_ring_next(P, at);
            }
            assert_int_equal(at, r);
        }
}

static void every_pair_meets_once(void **state)
{
    (void)state;
    for (int P = 1; P <= P_MAX; P++) {
        int met[P_MAX][P_MAX] = {{0}};
        for (int s = 1; s < P; s++)
            for (int r = 0; r < P; r++) {
                int to = weft_pairwise_to(P, r, s);
                assert_int_equal(weft_pairwise_from(P, to, s), r); /* nobody waits for a non-sender */
                met[r][to]++;
            }
        for (int a = 0; a < P; a++)
            for (int b = 0; b < P; b++) assert_int_equal(met[a][b], a != b);
    }
}

static void tree_reaches_all_from_any_root(void **state)
{
    (void)state;
    for (int P = 1; P <= P_MAX; P++)
        for (int root = 0; root < P; root++) {
            int fathers = 0, deepest = 0;
            for (int r = 0; r < P; r++) {
                int parent = weft_tree_parent(P, r, root), depth = 0;
                if (r == root) assert_int_equal(parent, -1);
                for (int up = r; up != root; up = weft_tree_parent(P, up, root)) assert_in_range(++depth, 1, P);
                if (depth > deepest) deepest = depth;
                for (int i = 0, child; (child = weft_tree_child(P, r, root, i)) >= 0; i++, fathers++) {
                    assert_true(i < WEFT_TREE_CHILDREN_MAX);
                    assert_int_equal(weft_tree_parent(P, child, root), r);
                }
            }
            assert_int_equal(fathers, P - 1); /* each but the root is the child of its parent */
            assert_in_range(deepest, 0, weft_dissemination_rounds(P));
        }
}

static void barrier_hears_from_all(void **state)
{
    (void)state;
    for (int P = 1; P <= P_MAX; P++) {
        uint64_t heard[P_MAX], next[P_MAX], all = P == 64 ? ~0ull : (1ull << P) - 1;
        for (int r = 0; r < P; r++) heard[r] = 1ull << r;
        for (int k = 0; k < weft_dissemination_rounds(P); k++) {
            for (int r = 0; r < P; r++) {
                int from = weft_dissemination_from(P, r, k);
                assert_int_equal(weft_dissemination_to(P, from, k), r);
                assert_true(P == 1 || from != r);
                next[r] = heard[r] | heard[from];
            }
            memcpy(heard, next, sizeof heard);
        }
        for (int r = 0; r < P; r++) assert_true(heard[r] == all);
    }
}

static void shares_are_even(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 33, 257, 1001, ((int64_t)1 << 62) + 7};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int P = 1; P <= P_MAX; P++) {
            assert_true(weft_share_begin(sizes[k], P, 0) == 0);
            assert_true(weft_share_begin(sizes[k], P, P) == sizes[k]);
            for (int i = 0; i < P; i++) {
                int64_t len = weft_share_begin(sizes[k], P, i + 1) - weft_share_begin(sizes[k], P, i);
                assert_true(len == sizes[k] / P || len == sizes[k] / P + 1);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_is_a_cycle),           cmocka_unit_test(every_pair_meets_once),
        cmocka_unit_test(tree_reaches_all_from_any_root), cmocka_unit_test(barrier_hears_from_all),
        cmocka_unit_test(shares_are_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
