/* The exchanges under the thread sanitizer: a few steps of everything that moves. */
/* labels: small tsan */
#include "harness/test.h"
#include "harness/cp_case.h"

static void exchanges(void **state)
{
    (void)state;
    static const int ranks[] = {2, 3, 4};
    cp_docs docs = cp_docs_make(2, 19, 1);
    cp_case c = {.name = "threads", .prec = WEFT_PREC_F32, .B = 2, .Tq = 19, .T = 19, .H = 2, .Hkv = 1, .D = 8, .Dv = 6,
                 .mask = {true, -1, -1, 0}, .sinks = true, .seed = 6};
    cp_check_all(&c, ranks, 3, 2e-6, 1e-6, 0.1);
    c.cu = docs.cu, c.first = docs.first;
    cp_check_all(&c, ranks, 3, 2e-6, 1e-6, 0.1);
    cp_docs_free(&docs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(exchanges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
