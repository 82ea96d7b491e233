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

/* Every strategy in pieces, in other types, kept as fp8; read in place and copied, which changes no bit. Blocks of 150
 * rows, of 300 in a grid, are computed in two portions. */
static void pieces_and_types(void **state)
{
    (void)state;
    static const weft_cp_options more[] = {
        {.buffer_bytes = 1000}, {.buffer_bytes = 400, .comm_dtype = WEFT_CP_WIRE_FP8, .grad_dtype = WEFT_CP_WIRE_BF16},
        {.buffer_bytes = 700, .fp8 = true}};
    static const char *const names[] = {"pcp", "ring", "pairwise", "dcp", "dcp-ring", "dcp-pairwise", "ulysses"};
    enum { NAMES = sizeof names / sizeof *names, JOBS = NAMES * sizeof more / sizeof *more, P = 4 };
    cp_case c = {.name = "pieces", .prec = WEFT_PREC_F32, .B = 1, .Tq = 600, .T = 600, .H = 4, .Hkv = 2, .D = 4,
                 .Dv = 2, .mask = {true, 40, -1, 0}, .seed = 6};
    cp_data data = cp_data_make(&c);
    cp_job jobs[JOBS], copies[JOBS];
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (cp_job){&c, &data, names[i % NAMES], WEFT_LAYOUT_ZIGZAG, i % 2, 2, NULL, cp_result_make(&c, P),
                           more[i / NAMES]};
        jobs[i].more.keep_heads = i % NAMES == 4; /* dcp-ring */
        copies[i] = jobs[i];
        copies[i].out = cp_result_make(&c, P);
    }
    assert_ok(cp_run(P, jobs, JOBS));
    assert_ok(cp_run_copies(P, copies, JOBS));
    for (int i = 0; i < JOBS; i++) {
        if (!cp_same_bits(&c, jobs[i].out, copies[i].out))
            fail_msg("%s, options %d: copies have other bits", jobs[i].strategy, i / NAMES);
        cp_result_free(jobs[i].out), cp_result_free(copies[i].out);
    }
    cp_data_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(exchanges), cmocka_unit_test(pieces_and_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
