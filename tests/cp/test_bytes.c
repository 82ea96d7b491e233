/* Bytes and messages on the wire: the counters of comm, the plan's formulas, and the formulas worked out once more from
 * lengths alone (harness/traffic.h). Buffers: the ring's and pairwise's do not grow with P. */
/* labels: small noasan */
/* mpi-long: 8 */
#include "harness/mpi_ranks.h"
#include "harness/test.h"
#include "harness/cp_case.h"

static void check(const cp_case *c)
{
    static const char *const strategies[] = {"pcp", "ring", "pairwise"};
    cp_data data = cp_data_make(c);
    size_t buffers[3] = {0};
    for (int P = 2; P <= 8; P++)
        for (int s = 0; s < 3; s++)
            for (int l = 0; l < CP_LAYOUTS; l++) {
                if (l == WEFT_LAYOUT_BALANCED && s == 2 && c->B > 1)
                    continue; /* rows stay whole: pairwise sends less */
                cp_result *out = cp_result_make(c, P);
                cp_job job = {c, &data, strategies[s], (weft_layout_kind)l, l % 2 == 0, 1, NULL, out,
                              {.buffer_bytes = (P + s + l) % 2 ? 0 : 300}};
                assert_ok(cp_run(P, &job, 1));
                cp_check_traffic(&job);
                for (int r = 0; r < P && s > 0; r++) {
                    if (P == 2) buffers[s] = out->kv_buffer_bytes[r];
                    assert_true(out->kv_buffer_bytes[r] <= buffers[s]);
                }
                cp_result_free(out);
            }
    cp_data_free(&data);
}

static cp_case base(weft_prec prec, int64_t B, int64_t T)
{
    return (cp_case){.name = "bytes", .prec = prec, .B = B, .Tq = T, .T = T, .H = 2, .Hkv = 2, .D = 4, .Dv = 6,
                     .mask = {false, -1, -1, 0}, .seed = 8};
}

static void full_mask_T257(void **state) { (void)state; cp_case c = base(WEFT_PREC_BF16, 1, 257); check(&c); }
static void full_mask_T1024(void **state)
{
    (void)state;
    cp_case c = base(WEFT_PREC_BF16, 1, 1024);
    c.H = c.Hkv = 1, c.D = 2, c.Dv = 3;
    check(&c);
}
static void fp64_batch_of_three(void **state) { (void)state; cp_case c = base(WEFT_PREC_F64, 3, 33); check(&c); }
/* ranks without tokens send nothing, and nothing is sent for them */
static void fewer_tokens_than_ranks(void **state) { (void)state; cp_case c = base(WEFT_PREC_F32, 1, 3); check(&c); }

/* Two blocks of the largest share, rounded up to whole cache lines; the own one alone where others are read in place.
 * Of gradients: two parts, and what arrives. */
static void check_ring(const cp_case *c, const cp_data *data, int P, bool copies)
{
    cp_result *out = cp_result_make(c, P);
    cp_job job = {c, data, "ring", WEFT_LAYOUT_ZIGZAG, true, 1, NULL, out, {0}};
    assert_ok((copies ? cp_run_copies : cp_run)(P, &job, 1));
    size_t row = 2 * 10, rows = (size_t)weft_shard_max_rows((weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, 1, 1024, P);
    size_t blocks = copies ? 2 : 1, block = rows * row * 2, sums = copies ? 3 : 2, sum = rows * row * 4;
    for (int r = 0; r < P; r++) {
        assert_true(out->kv_buffer_bytes[r] >= blocks * block && out->kv_buffer_bytes[r] < blocks * (block + 64));
        assert_true(out->pool_bytes[r] >= blocks * block + sums * sum);
        assert_true(out->pool_bytes[r] < blocks * (block + 64) + sums * (sum + 64));
    }
    cp_result_free(out);
}

static void ring_holds_two_blocks(void **state)
{
    (void)state;
    cp_case c = base(WEFT_PREC_BF16, 1, 1024);
    c.mask = (weft_mask){true, 0, -1, 0}; /* no bytes depend on the mask, time does */
    cp_data data = cp_data_make(&c);
    for (int P = 2; P <= 8; P++) {
        check_ring(&c, &data, P, test_under_mpi()); /* MPI always copies */
        check_ring(&c, &data, P, true);
    }
    cp_data_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_mask_T257), cmocka_unit_test(full_mask_T1024), cmocka_unit_test(fp64_batch_of_three),
        cmocka_unit_test(fewer_tokens_than_ranks), cmocka_unit_test(ring_holds_two_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
