/* What each choice of types on the wire costs in error and saves in memory and bytes: the table of
 * docs/user/exchange.md. Normal data, causal, zigzag; errors are relative L2 against the float64 specification on the
 * same inputs. */
/* labels: long */
/* timeout: 900 */
#include "harness/test.h"
#include "harness/cp_case.h"

enum { T = 512 };

/* The limits are twice what the table says, so that it cannot grow stale unseen. */
typedef struct choice { const char *text; weft_prec prec; weft_cp_options o; double kv_limit, grad_limit; } choice;
static const choice choices[] = {
    {"fp32", WEFT_PREC_F32, {0}, 1e-6, 1e-6},
    {"fp32, K,V bf16", WEFT_PREC_F32, {.comm_dtype = WEFT_CP_WIRE_BF16}, 3.2e-3, 4.4e-3},
    {"fp32, K,V fp16", WEFT_PREC_F32, {.comm_dtype = WEFT_CP_WIRE_FP16}, 4e-4, 6e-4},
    {"fp32, K,V fp8", WEFT_PREC_F32, {.comm_dtype = WEFT_CP_WIRE_FP8}, 5e-2, 7.2e-2},
    {"fp32, fp8 enabled", WEFT_PREC_F32, {.fp8 = true}, 7.2e-2, 9e-2},
    {"fp32, sums bf16", WEFT_PREC_F32, {.grad_dtype = WEFT_CP_WIRE_BF16}, 1e-6, 6e-3},
    {"bf16", WEFT_PREC_BF16, {0}, 3.2e-3, 4e-3},
    {"bf16, K,V fp32", WEFT_PREC_BF16, {.comm_dtype = WEFT_CP_WIRE_FP32}, 3.2e-3, 4e-3},
    {"bf16, K,V fp8", WEFT_PREC_BF16, {.comm_dtype = WEFT_CP_WIRE_FP8}, 5e-2, 7.2e-2},
    {"bf16, fp8 enabled", WEFT_PREC_BF16, {.fp8 = true}, 7.2e-2, 9e-2},
    {"bf16, sums bf16", WEFT_PREC_BF16, {.grad_dtype = WEFT_CP_WIRE_BF16}, 3.2e-3, 7e-3},
};
enum { CHOICES = sizeof choices / sizeof *choices };

static double kib(int64_t bytes) { return (double)bytes / 1024; }

static void measure(const cp_case *c, const cp_data *data, const cp_result *ref, const choice *x, const char *strategy,
                    int P)
{
    cp_result *y = cp_result_make(c, P), *copies = cp_result_make(c, P);
    cp_job job = {c, data, strategy, WEFT_LAYOUT_ZIGZAG, true, 1, NULL, y, x->o}, again = job;
    again.out = copies;
    assert_ok(cp_run(P, &job, 1));
    assert_ok(cp_run_copies(P, &again, 1));
    assert_true(cp_same_bits(c, y, copies));
    int64_t q = T * c->H * c->D, k = T * c->Hkv * c->D;
    double o = weft_rel_l2(y->o, WEFT_F64, ref->o, WEFT_F64, q, 0),
           dq = weft_rel_l2(y->dq, WEFT_F64, ref->dq, WEFT_F64, q, 0);
    double dk = weft_rel_l2(y->dk, WEFT_F64, ref->dk, WEFT_F64, k, 0),
           dv = weft_rel_l2(y->dv, WEFT_F64, ref->dv, WEFT_F64, k, 0);
    printf("%-18s %-7s D=%-3d P=%d  o %.1e dq %.1e dk %.1e dv %.1e | KiB: K,V %6.1f (in place %5.1f) "
           "all %6.1f (%6.1f) kept %5.1f sent %6.1f + %6.1f\n", x->text, strategy, c->D, P, o, dq, dk, dv,
           kib((int64_t)copies->kv_buffer_bytes[0]),
           kib((int64_t)y->kv_buffer_bytes[0]), kib((int64_t)copies->pool_bytes[0]), kib((int64_t)y->pool_bytes[0]),
           kib((int64_t)y->kept_bytes[0]), kib(y->forward_bytes[0]), kib(y->backward_bytes[0]));
    assert_at_most(o, x->kv_limit);
    assert_at_most(fmax(dq, fmax(dk, dv)), x->grad_limit);
    cp_result_free(y);
    cp_result_free(copies);
}

static void measure_all(weft_prec prec, int D)
{
    cp_case c = {.name = "error", .prec = prec, .B = 1, .Tq = T, .T = T, .H = 4, .Hkv = 2, .D = D, .Dv = D,
                 .mask = {true, -1, -1, 0}, .seed = 64};
    cp_data data = cp_data_make(&c);
    cp_result *ref = cp_result_make(&c, 1);
    cp_reference(&c, &data, ref);
    for (int i = 0; i < CHOICES; i++)
        for (int P = 2; P <= 8 && choices[i].prec == prec; P *= 2) {
            measure(&c, &data, ref, &choices[i], "ring", P);
            if (choices[i].o.grad_dtype) measure(&c, &data, ref, &choices[i], "pcp", P);
            if (choices[i].o.fp8) measure(&c, &data, ref, &choices[i], "dcp", P); /* dO travels; U = 2 */
            if (choices[i].o.fp8 && P <= c.H) measure(&c, &data, ref, &choices[i], "ulysses", P);
        }
    cp_result_free(ref);
    cp_data_free(&data);
}

static void errors_and_memory(void **state)
{
    (void)state;
    for (int D = 64; D <= 128; D *= 2) {
        measure_all(WEFT_PREC_F32, D);
        measure_all(WEFT_PREC_BF16, D);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors_and_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
