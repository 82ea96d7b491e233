/* Any length on any number of ranks: uneven shares, ranks without tokens, fewer queries than keys. */
/* labels: small */
/* mpi-long: 8 */
/* timeout: 240 */
#include "harness/test.h"
#include "harness/cp_case.h"

static const int ranks[] = {1, 2, 3, 4, 5, 8};
enum { RANKS = sizeof ranks / sizeof *ranks };

static cp_case base(int64_t B, int64_t Tq, int64_t T)
{
    return (cp_case){.name = "length", .prec = WEFT_PREC_F64, .B = B, .Tq = Tq, .T = T, .H = 2, .Hkv = 1, .D = 4,
                     .Dv = 3,
                     .mask = {true, -1, -1, 0}, .seed = 5};
}

static void short_rows(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 3, 5, 7, 33};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int64_t B = 1; B <= 3; B += 2)
            for (int causal = 0; causal < 2; causal++) {
                cp_case c = base(B, lengths[i], lengths[i]);
                c.mask.causal = causal;
                cp_check_all(&c, ranks, RANKS, 1e-12, 1e-12, 1);
            }
}

static void a_long_row(void **state)
{
    (void)state;
    cp_case c = base(1, 257, 257);
    cp_check_all(&c, ranks, RANKS, 1e-12, 1e-12, 1);
    c.B = 3;
    cp_check_all(&c, ranks + RANKS - 1, 1, 1e-12, 1e-12, 1);
}

/* Queries are the last part of the keys; also one query, which leaves most ranks without any. */
static void fewer_queries_than_keys(void **state)
{
    (void)state;
    static const int64_t lengths[][2] = {{1, 7}, {1, 33}, {5, 33}, {20, 33}, {2, 3}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int causal = 0; causal < 2; causal++) {
            cp_case c = base(1 + (int64_t)i % 2, lengths[i][0], lengths[i][1]);
            c.mask.causal = causal;
            cp_check_all(&c, ranks, RANKS, 1e-12, 1e-12, 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_rows), cmocka_unit_test(a_long_row), cmocka_unit_test(fewer_queries_than_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
