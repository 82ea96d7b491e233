/* labels: small tsan */
/* What an all-reduce makes a rank send, by the formula and by the counters: few ranks and many, which go up a tree with
 * what is small; nothing, less than an element for everybody, and more than one round of the scratch. */
#include "harness/test.h"
#include "comm/comm.h"

#include <stdlib.h>

static const int64_t counts[] = {0, 1, 7, 511, 513, 100003};
enum { COUNTS = sizeof counts / sizeof *counts };

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    const weft_dtype types[] = {WEFT_F64, WEFT_F32};
    weft_comm *all = weft_world_all(world);
    const int P = weft_world_size(world);
    (void)ud;
    void *data = calloc((size_t)counts[COUNTS - 1], sizeof(double));
    if (!data) return weft_fail(WEFT_ERR_MEMORY, "no memory");
    weft_status st = WEFT_OK;
    for (int i = 0; i < COUNTS * 2 && st >= 0; i++) {
        const int64_t n = counts[i / 2];
        const weft_dtype t = types[i % 2];
        weft_counters before, after;
        weft_comm_counters(all, &before);
        st = weft_all_reduce(all, data, n, t, WEFT_SUM);
        weft_comm_counters(all, &after);
        const int64_t sent = after.bytes_logical - before.bytes_logical;
        const int64_t planned = weft_all_reduce_bytes(P, ctx->rank, n, weft_dtype_size(t));
        if (st >= 0 && sent != planned)
            st = weft_fail(WEFT_ERR_COMPARE, "rank %d of %d, %lld elements of %zu bytes: %lld sent, %lld planned",
                           ctx->rank, P, (long long)n, weft_dtype_size(t), (long long)sent, (long long)planned);
    }
    free(data);
    return st;
}

static void bytes_are_those_of_the_formula(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 16, 17, 23};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i += (size_t)test_every(3))
        if (weft_run_threads(sizes[i], body, NULL) < 0) fail_msg("%s", weft_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_are_those_of_the_formula)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
