/* labels: long */
/* timeout: 3600 */
/* The whole proof on simulated ranks: every strategy x every layout x P = 1 .. 64, forward and backward, with two or
 * three groups side by side, ends and sends what it planned; bytes and messages of full masks equal the formulas up to
 * P = 512; 4,096 ranks once. What test_sim checks in small is not repeated. */
#include "harness/test.h"
#include "harness/sim_case.h"

#include <sys/resource.h>

static const weft_mask full = {false, -1, -1, 0}, causal = {true, -1, -1, 0}, window = {true, 30, -1, 0},
                       both = {false, 9, 5, 0};

static void every_number_of_ranks(void **state)
{
    (void)state;
    int n = 0, ran = 0;
    const char *const *names = weft_cp_names(&n);
    const weft_mask *const masks[] = {&full, &causal, &window, &both};
    for (int s = 0; s < n; s++)
        for (int l = 0; l < WEFT_LAYOUT_COUNT; l++)
            for (int P = 1; P <= 64; P++)
                for (int k = 0; k < 2; k++) {
                    sim_case c = sim_case_make(names[s], (weft_layout_kind)l, P, (k + P) % 3 ? 257 : 1001);
                    c.mask = *masks[(2 * k + P + l) % 4];
                    c.no_overlap = k % 2;
                    c.groups = 1 + (k + P + l) % 3;
                    c.interleaved = (k + P / 2) % 2;
                    c.pieces = (k + l) % 3 == 0 ? 1000 : 0;
                    c.layers = 1 + P % 3 / 2;
                    c.H = 64, c.Hkv = k % 2 ? 64 : 8;
                    c.D = c.Dv = 2;
                    ran += sim_case_check(&c);
                }
    assert_true(ran >= 2 * 64 * WEFT_LAYOUT_COUNT * (n - 1));
}

/* Bytes and messages. Heads for every rank and some over, or few that ranks share: ulysses needs the former. */
static void traffic_up_to_512_ranks(void **state)
{
    (void)state;
    static const int ranks[] = {96, 127, 128, 255, 512};
    int n = 0, ran = 0;
    const char *const *names = weft_cp_names(&n);
    for (int s = 0; s < n; s++)
        for (int k = 0; k < 10; k++) {
            sim_case c =
                sim_case_make(names[s], (weft_layout_kind)(k % WEFT_LAYOUT_COUNT), ranks[k % 5], k / 5 ? 1001 : 257);
            bool ulysses = !strcmp(names[s], "ulysses");
            c.H = ulysses ? c.P + (k % 5 == 2 ? 0 : 9) : k % 2 ? 16 : 4;
            c.Hkv = ulysses && k % 3 == 0 ? 1 : c.H;
            c.pieces = k % 4 == 1 ? 1000 : 0;
            ran += sim_case_check_formula(&c);
        }
    assert_int_equal(ran, 10 * (n - 1)); /* all but none */
}

/* Every grid of 64 ranks, heads that divide and heads that do not. */
static void traffic_of_every_grid(void **state)
{
    (void)state;
    static const char *const names[] = {"dcp", "dcp-ring", "dcp-pairwise"};
    static const int heads[][2] = {{64, 64}, {64, 8}, {30, 5}, {33, 1}};
    for (int s = 0; s < 3; s++)
        for (int h = 0; h < 4; h++)
            for (int U = 1; U <= 64 && U <= heads[h][0]; U *= 2) {
                sim_case c = sim_case_make(names[s], (weft_layout_kind)((h + U) % WEFT_LAYOUT_COUNT), 64, 1001);
                c.H = heads[h][0], c.Hkv = heads[h][1];
                c.head_size = U;
                c.pieces = (s + h + U) % 2 ? 500 : 0;
                assert_true(sim_case_check_formula(&c));
            }
}

static double seconds(void) { return weft_now(&weft_clock_real); }

/* A million tokens on 4,096 ranks in one process: 64 ranks over heads, 64 over the sequence. */
static void four_thousand_ranks(void **state)
{
    (void)state;
    sim_case c = sim_case_make("dcp-ring", WEFT_LAYOUT_ZIGZAG, 4096, 1 << 20);
    c.H = c.Hkv = 64;
    c.D = c.Dv = 128;
    c.mask = causal;
    c.head_size = 64;
    double begin = seconds();
    assert_true(sim_case_check(&c));
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf("4096 ranks: %.1f s, largest resident set %.0f MiB\n", seconds() - begin, (double)u.ru_maxrss / 1024);
    assert_true(u.ru_maxrss < 2l << 20); /* KiB: half a MiB per rank; measured: 270 KiB */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_ranks), cmocka_unit_test(traffic_up_to_512_ranks),
        cmocka_unit_test(traffic_of_every_grid), cmocka_unit_test(four_thousand_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
