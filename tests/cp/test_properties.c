/* labels: small */ /* timeout: 120 */
/* mpi: 4 */
/* What holds whatever the numbers are, for every strategy and layout on four ranks, in fp64: linear in v; a constant
 * added to a row's scores changes nothing; a causal prefix is a run on the prefix; rows of dS sum to zero; backward is
 * the transpose of forward's derivative; and an evaluation drops nothing. */
#include "harness/cp_case.h"
#include "harness/test.h"

enum { P = 4, T = 67 };

static cp_case base(void)
{
    return (cp_case){.name = "property", .prec = WEFT_PREC_F64, .B = 1, .Tq = T, .T = T, .H = 4, .Hkv = 2, .D = 6,
                     .Dv = 5, .mask = {true, -1, -1, 0}, .softcap = 0, .seed = 11};
}

typedef void (*property)(const char *strategy, weft_layout_kind layout);

static void for_all(property holds)
{
    int n;
    const char *const *names = weft_cp_names(&n);
    for (int s = 0; s < n; s++)
        for (int l = 0; l < WEFT_LAYOUT_COUNT && strcmp(names[s], "none"); l++) holds(names[s], (weft_layout_kind)l);
}

static cp_result *run(const cp_case *c, const cp_data *data, const char *strategy, weft_layout_kind layout)
{
    cp_job job = {c, data, strategy, layout, true, 1, NULL, cp_result_make(c, P), {0}};
    assert_ok(cp_run(P, &job, 1));
    return job.out;
}

/* Fails with the place when the largest difference is above the limit. */
static void close_to(const double *a, const double *b, int64_t n, double limit, const char *what, const char *strategy,
                     weft_layout_kind layout)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= limit))
            fail_msg("%s, %s, layout %d: element %lld is %.17g, should be %.17g", what, strategy, (int)layout,
                     (long long)i, a[i], b[i]);
}

static void linear_in_v(const char *strategy, weft_layout_kind layout)
{
    cp_case c = base();
    cp_data x = cp_data_make(&c), y, z = cp_data_make(&c);
    c.seed = 12;
    y = cp_data_make(&c);
    int64_t nv = c.T * c.Hkv * c.Dv, no = c.Tq * c.H * c.Dv;
    memcpy(y.q, x.q, (size_t)(c.Tq * c.H * c.D) * sizeof *y.q);
    memcpy(y.k, x.k, (size_t)(c.T * c.Hkv * c.D) * sizeof *y.k);
    for (int64_t i = 0; i < nv; i++) z.v[i] = 3 * x.v[i] - 2 * y.v[i];
    cp_result *a = run(&c, &x, strategy, layout), *b = run(&c, &y, strategy, layout),
              *d = run(&c, &z, strategy, layout);
    for (int64_t i = 0; i < no; i++) a->o[i] = 3 * a->o[i] - 2 * b->o[i];
    close_to(d->o, a->o, no, 1e-13 * T, "linear in v", strategy, layout); /* T terms, each rounded at 1e-16 */
    cp_result_free(a), cp_result_free(b), cp_result_free(d);
    cp_data_free(&x), cp_data_free(&y), cp_data_free(&z);
}

/* The last element of every key is 1, so the last of a query is a constant on the scores of its row. */
static void constant_on_a_row(const char *strategy, weft_layout_kind layout)
{
    cp_case c = base();
    cp_data x = cp_data_make(&c);
    double scale = 1 / sqrt(c.D);
    for (int64_t i = 0; i < c.T * c.Hkv; i++) x.k[i * c.D + c.D - 1] = 1;
    for (int64_t i = 0; i < c.Tq * c.H; i++) x.q[i * c.D + c.D - 1] = 0;
    cp_result *a = run(&c, &x, strategy, layout);
    for (int64_t i = 0; i < c.Tq * c.H; i++) x.q[i * c.D + c.D - 1] = (double)(i % 23) - 11;
    cp_result *b = run(&c, &x, strategy, layout);
    close_to(b->o, a->o, c.Tq * c.H * c.Dv, 1e-12, "a constant on a row", strategy, layout);
    close_to(b->dv, a->dv, c.T * c.Hkv * c.Dv, 1e-12 * T, "a constant on a row, dv", strategy, layout);
    for (int64_t i = 0; i < c.Tq * c.H; i++)
        assert_at_most(fabs(b->lse[i] - a->lse[i] - scale * ((double)(i % 23) - 11)), 1e-13 * 20);
    cp_result_free(a), cp_result_free(b);
    cp_data_free(&x);
}

static double by_token(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    return test_normal(c->seed + (uint64_t)what, ((b * 99 + t) * 8 + h) * 16 + d);
}

static void causal_prefix(const char *strategy, weft_layout_kind layout)
{
    cp_case c = base();
    c.value = by_token;
    cp_data whole = cp_data_make(&c);
    cp_result *a = run(&c, &whole, strategy, layout);
    c.Tq = c.T = 29;
    cp_data part = cp_data_make(&c);
    cp_result *b = run(&c, &part, strategy, layout);
    close_to(b->o, a->o, 29 * c.H * c.Dv, 1e-13, "a causal prefix", strategy, layout);
    close_to(b->lse, a->lse, 29 * c.H, 1e-13, "a causal prefix, lse", strategy, layout);
    cp_result_free(a), cp_result_free(b);
    cp_data_free(&whole), cp_data_free(&part);
}

static double same_query(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    return what == 'q' ? 0.5 + d : by_token(c, what, b, t, h, d);
}

/* With all queries equal to u, sum_j dk_j = scale u sum_ij ds_ij, and every row of ds sums to 0. */
static void rows_of_ds_sum_to_zero(const char *strategy, weft_layout_kind layout)
{
    cp_case c = base();
    c.value = same_query;
    cp_data x = cp_data_make(&c);
    cp_result *r = run(&c, &x, strategy, layout);
    double size = weft_norm2(r->dk, WEFT_F64, c.T * c.Hkv * c.D);
    assert_true(size > 1);
    for (int i = 0; i < c.Hkv * c.D; i++) {
        double sum = 0;
        for (int64_t j = 0; j < c.T; j++) sum += r->dk[j * c.Hkv * c.D + i];
        if (!(fabs(sum) <= 1e-12 * size)) fail_msg("%s, layout %d: dk sums to %.3e", strategy, layout, sum);
    }
    cp_result_free(r);
    cp_data_free(&x);
}

static double product(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void step(double *x, const double *direction, int64_t n, double h)
{
    for (int64_t i = 0; i < n; i++) x[i] += h * direction[i];
}

/* <dO, J x> by a central difference along x in (q, k, v), against <J' dO, x>. */
static void backward_is_the_transpose(const char *strategy, weft_layout_kind layout)
{
    const double h = 1e-5;
    cp_case c = base();
    cp_data at = cp_data_make(&c), x;
    c.seed = 13;
    x = cp_data_make(&c);
    int64_t nq = c.Tq * c.H * c.D, nk = c.T * c.Hkv * c.D, nv = c.T * c.Hkv * c.Dv, no = c.Tq * c.H * c.Dv;
    cp_result *r = run(&c, &at, strategy, layout);
    double want = product(r->dq, x.q, nq) + product(r->dk, x.k, nk) + product(r->dv, x.v, nv), loss[2];
    for (int s = 0; s < 2; s++) {
        double by = s ? -2 * h : h;
        step(at.q, x.q, nq, by), step(at.k, x.k, nk, by), step(at.v, x.v, nv, by);
        cp_result *moved = run(&c, &at, strategy, layout);
        loss[s] = product(moved->o, at.dout, no);
        cp_result_free(moved);
    }
    /* third derivatives times h^2 leave about 1e-8 of a sum of a thousand products of size 1 */
    double got = (loss[0] - loss[1]) / (2 * h);
    if (!(fabs(got - want) <= 1e-6 * fmax(1, fabs(want))))
        fail_msg("%s, layout %d: <dO, J x> = %.12g, <J' dO, x> = %.12g", strategy, layout, got, want);
    cp_result_free(r);
    cp_data_free(&at), cp_data_free(&x);
}

/* A plan with dropout evaluates without: the bits of a plan that has none; and it drops where it trains. */
static void evaluation_drops_nothing(const char *strategy, weft_layout_kind layout)
{
    cp_case plain = base(), evaluates = plain, trains = plain;
    trains.dropout = evaluates.dropout = 0.4;
    evaluates.no_dropout = true;
    cp_data x = cp_data_make(&plain);
    cp_result *a = run(&plain, &x, strategy, layout), *b = run(&evaluates, &x, strategy, layout),
              *c = run(&trains, &x, strategy, layout);
    if (!cp_same_bits(&plain, a, b)) fail_msg("%s, layout %d: an evaluation drops", strategy, layout);
    if (cp_same_bits(&plain, a, c)) fail_msg("%s, layout %d: training drops nothing", strategy, layout);
    cp_result_free(a), cp_result_free(b), cp_result_free(c);
    cp_data_free(&x);
}

#define PROPERTY(name) static void test_##name(void **state) { (void)state; for_all(name); }
PROPERTY(linear_in_v)
PROPERTY(constant_on_a_row)
PROPERTY(causal_prefix)
PROPERTY(rows_of_ds_sum_to_zero)
PROPERTY(backward_is_the_transpose)
PROPERTY(evaluation_drops_nothing)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_linear_in_v), cmocka_unit_test(test_constant_on_a_row),
                                       cmocka_unit_test(test_causal_prefix),
                                       cmocka_unit_test(test_rows_of_ds_sum_to_zero),
                                       cmocka_unit_test(test_backward_is_the_transpose),
                                       cmocka_unit_test(test_evaluation_drops_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
