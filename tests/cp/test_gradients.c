/* Gradients by properties: central differences (field report G26), identities of softmax, and the planted fault
 * of an exchange that carries no gradient. */
/* labels: small */
/* mpi-thread: 8 */
/* mpi-long: 8 */
/* timeout: 240 */
#include "harness/test.h"
#include "harness/cp_case.h"
#include "cp/cp_impl.h"

static const weft_mask causal = {true, -1, -1, 0};

/* ---- G26 --------------------------------------------------------------------------------------------------- */

static double loss_of(const cp_case *c, const cp_data *data, const cp_result *r)
{
    double loss = 0;
    for (int64_t i = 0; i < c->B * c->Tq * c->H * c->Dv; i++) loss += r->o[i] * data->dout[i];
    return loss;
}

/* Central differences of every element of x (n of them, inside data) on P ranks; numeric[n]. */
static void differences(const cp_case *c, const cp_data *data, double *x, int64_t n, int P, double *numeric)
{
    const double h = 1e-6;
    for (int64_t i = 0; i < n; i++) {
        double loss[2], keep = x[i];
        for (int s = 0; s < 2; s++) {
            x[i] = keep + (s ? h : -h);
            cp_job job = {c,  data, P == 1 ? "none" : "ring", WEFT_LAYOUT_ZIGZAG, true, 1, NULL, cp_result_make(c, P),
                          {0}};
            assert_ok(cp_run(P, &job, 1));
            loss[s] = loss_of(c, data, job.out);
            cp_result_free(job.out);
        }
        x[i] = keep;
        numeric[i] = (loss[1] - loss[0]) / (2 * h);
    }
}

static void g26_central_differences(void **state)
{
    (void)state;
    cp_case c = {.name = "G26", .prec = WEFT_PREC_F64, .B = 2, .Tq = 8, .T = 8, .H = 3, .Hkv = 1, .D = 5, .Dv = 5,
                 .mask = causal, .seed = 26};
    cp_data data = cp_data_make(&c);
    cp_result *r[2];
    int64_t nq = 2 * 8 * 3 * 5, nk = 2 * 8 * 5;
    double numeric[240];
    for (int P = 1; P <= 2; P++) {
        cp_job job = {&c, &data, P == 1 ? "none" : "ring", WEFT_LAYOUT_ZIGZAG, true, 1, NULL,
                      r[P - 1] = cp_result_make(&c, P), {0}};
        assert_ok(cp_run(P, &job, 1));
        /* rounding of the loss (1e-15 * 30) over 2h leaves 1e-8 or so */
        differences(&c, &data, data.q, nq, P, numeric);
        assert_at_most(weft_rel_l2(r[P - 1]->dq, WEFT_F64, numeric, WEFT_F64, nq, 0), 1e-7);
        differences(&c, &data, data.k, nk, P, numeric);
        assert_at_most(weft_rel_l2(r[P - 1]->dk, WEFT_F64, numeric, WEFT_F64, nk, 0), 1e-7);
        differences(&c, &data, data.v, nk, P, numeric);
        assert_at_most(weft_rel_l2(r[P - 1]->dv, WEFT_F64, numeric, WEFT_F64, nk, 0), 1e-7);
    }
    assert_at_most(cp_distance(&c, &data, r[1], r[0], 1), 1e-12);
    cp_result_free(r[0]);
    cp_result_free(r[1]);
    cp_data_free(&data);
}

/* ---- identities ---------------------------------------------------------------------------------------------- */

static double same_query(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    return what == 'q' ? 0.5 + d : test_normal(c->seed + (uint64_t)what, ((b * 99 + t) * 8 + h) * 16 + d);
}
static double same_key(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    return what == 'k' ? 0.5 - d : test_normal(c->seed + (uint64_t)what, ((b * 99 + t) * 8 + h) * 16 + d);
}

static cp_result *run(const cp_case *c, cp_data *data, const char *strategy, int P)
{
    *data = cp_data_make(c);
    cp_job job = {c, data, strategy, WEFT_LAYOUT_ZIGZAG, true, 1, NULL, cp_result_make(c, P), {0}};
    assert_ok(cp_run(P, &job, 1));
    return job.out;
}

static cp_case base(void)
{
    return (cp_case){.name = "identity", .prec = WEFT_PREC_F64, .B = 1, .Tq = 37, .T = 37, .H = 4, .Hkv = 2, .D = 6,
                     .Dv = 5, .mask = causal, .seed = 7};
}

/* sum_j ds_ij = 0 for each row i. With all queries equal to u, sum_j dk_j = scale u sum_ij ds_ij = 0; with all
 * keys equal to w, dq_i = scale w sum_j ds_ij = 0. */
static void rows_of_ds_sum_to_zero(void **state)
{
    (void)state;
    for (int P = 1; P <= 5; P += 2) {
        cp_data data;
        cp_case c = base();
        c.value = same_query;
        cp_result *r = run(&c, &data, P == 1 ? "none" : "ring", P);
        double size = weft_norm2(r->dk, WEFT_F64, c.T * c.Hkv * c.D);
        assert_true(size > 1);
        for (int i = 0; i < c.Hkv * c.D; i++) {
            double sum = 0;
            for (int64_t j = 0; j < c.T; j++) sum += r->dk[j * c.Hkv * c.D + i];
            assert_at_most(fabs(sum), 1e-12 * size);
        }
        cp_result_free(r);
        cp_data_free(&data);
        c.value = same_key;
        r = run(&c, &data, P == 1 ? "none" : "pcp", P);
        assert_at_most(weft_norm2(r->dq, WEFT_F64, c.Tq * c.H * c.D),
                       1e-12 * weft_norm2(data.dout, WEFT_F64, c.Tq * c.H * c.Dv));
        cp_result_free(r);
        cp_data_free(&data);
    }
}

/* sum_j p_ij = 1, so sum_j dv_j = sum over the group's heads and rows of do_i; and o is linear in v, so
 * <dv, v> = <do, o> (Euler). */
static void gradient_of_values(void **state)
{
    (void)state;
    for (int P = 2; P <= 8; P *= 2) {
        cp_data data;
        cp_case c = base();
        cp_result *r = run(&c, &data, "ring", P);
        for (int hk = 0; hk < c.Hkv; hk++)
            for (int d = 0; d < c.Dv; d++) {
                double sum = 0, want = 0;
                for (int64_t t = 0; t < c.T; t++) {
                    sum += r->dv[(t * c.Hkv + hk) * c.Dv + d];
                    for (int g = 0; g < 2; g++) want += data.dout[(t * c.H + hk * 2 + g) * c.Dv + d];
                }
                assert_at_most(fabs(sum - want), 1e-12 * 37);
            }
        double a = 0, b = loss_of(&c, &data, r);
        for (int64_t i = 0; i < c.T * c.Hkv * c.Dv; i++) a += r->dv[i] * data.v[i];
        assert_at_most(fabs(a - b), 1e-12 * 37 * 20);
        cp_result_free(r);
        cp_data_free(&data);
    }
}

static double by_token(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    return test_normal(c->seed + (uint64_t)what, ((b * 99 + t) * 8 + h) * 16 + d);
}

/* A causal prefix equals a run on the prefix, although its tokens lie on other ranks. */
static void causal_prefix(void **state)
{
    (void)state;
    cp_data long_data, short_data;
    cp_case c = base();
    c.value = by_token;
    cp_result *a = run(&c, &long_data, "ring", 4);
    c.Tq = c.T = 14;
    cp_result *b = run(&c, &short_data, "pcp", 3);
    assert_at_most(weft_rel_l2(a->o, WEFT_F64, b->o, WEFT_F64, 14 * c.H * c.Dv, 0), 1e-14);
    cp_result_free(a);
    cp_result_free(b);
    cp_data_free(&long_data);
    cp_data_free(&short_data);
}

/* ---- the planted fault ------------------------------------------------------------------------------------------ */

/* "A collective's backward comes by itself": not so. Forward and dq are right here, and dk, dv hold what the
 * rank's own queries give: what a plain gather without a written backward would train K and V with. */
static weft_status backward_without_exchange(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    WEFT_TRY(weft__cp_pcp.backward(plan, slot, io));
    weft_cp_io own = *io;
    size_t bytes = (size_t)(slot->q_rows * io->dq_ld) * sizeof(double);
    own.dq = malloc(bytes + 1);
    if (!own.dq) return weft_fail(WEFT_ERR_MEMORY, "test");
    weft__cp_block block = weft__cp_block_of(plan, slot, &own, "own block alone", 0, NULL);
    weft__cp_backward_begin(plan, slot, &own, NULL);
    WEFT_TRY(weft__cp_backward_block(plan, &own, &block, plan->own));
    weft__cp_backward_end(plan, slot, &own);
    free(own.dq);
    return WEFT_OK;
}

static weft_cp_strategy broken;
static void break_plan(weft_cp_plan *plan) { plan->strategy = &broken; }

static void planted_fault_no_gradient_exchange_is_caught(void **state)
{
    (void)state;
    cp_case c = base();
    cp_data data;
    cp_result *good = run(&c, &data, "pcp", 3);
    broken = weft__cp_pcp;
    broken.backward = backward_without_exchange;
    cp_job job = {&c, &data, "pcp", WEFT_LAYOUT_ZIGZAG, true, 1, break_plan, cp_result_make(&c, 3), {0}};
    assert_ok(cp_run(3, &job, 1));
    int64_t nq = c.Tq * c.H, nk = c.T * c.Hkv;
    assert_at_most(weft_rel_l2(job.out->o, WEFT_F64, good->o, WEFT_F64, nq * c.Dv, 0), 0);
    assert_at_most(weft_rel_l2(job.out->dq, WEFT_F64, good->dq, WEFT_F64, nq * c.D, 0), 0);
    assert_true(weft_rel_l2(job.out->dk, WEFT_F64, good->dk, WEFT_F64, nk * c.D, 0) > 0.1);
    assert_true(weft_rel_l2(job.out->dv, WEFT_F64, good->dv, WEFT_F64, nk * c.Dv, 0) > 0.1);
    cp_result_free(job.out);
    cp_result_free(good);
    cp_data_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(g26_central_differences), cmocka_unit_test(rows_of_ds_sum_to_zero),
        cmocka_unit_test(gradient_of_values), cmocka_unit_test(causal_prefix),
        cmocka_unit_test(planted_fault_no_gradient_exchange_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
