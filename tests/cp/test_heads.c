/* Head counts and sizes, softcap, sinks with their gradient, ALiBi: alone and together, fp64 and fp32. */
/* labels: small */
/* mpi-long: 8 */
/* timeout: 240 */
#include "harness/test.h"
#include "harness/cp_case.h"

static const int ranks[] = {2, 3, 8};
enum { RANKS = sizeof ranks / sizeof *ranks };

static const int shapes[][4] = {{4, 2, 8, 8}, {3, 1, 5, 7}, {2, 2, 8, 4}, {6, 3, 20, 16}, {1, 1, 1, 1}, {5, 5, 33, 3}};

typedef struct extra { const char *name; double softcap; bool sinks, alibi; } extra;
static const extra extras[] = {
    {"plain", 0, false, false}, {"softcap", 2.5, false, false}, {"sinks", 0, true, false},
    {"alibi", 0, false, true},  {"all together", 4, true, true},
};

static void check(weft_prec prec, double exact, double across, double lse_weight)
{
    cp_docs docs = cp_docs_make(2, 29, 1);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t e = 0; e < sizeof extras / sizeof *extras; e++) {
            if (s > 1 && e != 0 && e != 4) continue; /* one by one on two shapes, together on all */
            cp_case c = {.name = extras[e].name, .prec = prec, .B = 2, .Tq = 29, .T = 29, .H = shapes[s][0],
                         .Hkv = shapes[s][1], .D = shapes[s][2], .Dv = shapes[s][3],
                         .mask = {true, s % 2 ? 9 : -1, -1, 0}, .softcap = extras[e].softcap, .sinks = extras[e].sinks,
                         .alibi = extras[e].alibi, .seed = 40 + s};
            if (e % 2) c.cu = docs.cu, c.first = docs.first;
            cp_check_all(&c, ranks, RANKS, exact, across, lse_weight);
        }
    cp_docs_free(&docs);
}

static void heads_in_fp64(void **state) { (void)state; check(WEFT_PREC_F64, 1e-12, 1e-12, 1); }

/* 2e-6 against float64, half of it against P = 1; lse within 1e-5 */
static void heads_in_fp32(void **state) { (void)state; check(WEFT_PREC_F32, 2e-6, 1e-6, 0.1); }

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(heads_in_fp64), cmocka_unit_test(heads_in_fp32)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
