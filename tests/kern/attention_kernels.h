/* attention_kernels.h — every attention kernel of this machine, and a case's run through all of them. For the tests
 * of this folder. */
#ifndef WEFT_TEST_ATTENTION_KERNELS_H
#define WEFT_TEST_ATTENTION_KERNELS_H

#include "harness/attention_case.h"
#include "kern/attention/attention_impl.h"
#include "kern/kern.h"

typedef struct kernel {
    const char *name;
    weft_isa isa;
    weft_prec prec;
    void (*fill)(weft_attn_ops *ops, weft_prec prec);
    double limit, lse_limit;
} kernel;

/* Limits of design.md section 6. bf16: 2.5 times the error of an ideal kernel, 6e-3 or a little more in every
 * stored case; fp16 the same. lse of 16-bit inputs is computed in fp32 from exact inputs, so it keeps fp32's. */
static const kernel kernels[] = {
    {"ref fp64", WEFT_ISA_REF, WEFT_PREC_F64, weft_attn_fill_ref, 1e-12, 1e-13},
    {"ref fp32", WEFT_ISA_REF, WEFT_PREC_F32, weft_attn_fill_ref, 2e-6, 1e-5},
    {"ref bf16", WEFT_ISA_REF, WEFT_PREC_BF16, weft_attn_fill_ref, 6e-3, 1e-5},
    {"ref fp16", WEFT_ISA_REF, WEFT_PREC_F16, weft_attn_fill_ref, 6e-3, 1e-5},
    {"avx2 fp32", WEFT_ISA_AVX2, WEFT_PREC_F32, weft_attn_fill_avx2, 2e-6, 1e-5},
    {"avx2 bf16", WEFT_ISA_AVX2, WEFT_PREC_BF16, weft_attn_fill_avx2, 6e-3, 1e-5},
    {"avx2 fp16", WEFT_ISA_AVX2, WEFT_PREC_F16, weft_attn_fill_avx2, 6e-3, 1e-5},
    {"avx512 fp32", WEFT_ISA_AVX512, WEFT_PREC_F32, weft_attn_fill_avx512, 2e-6, 1e-5},
    {"avx512 bf16", WEFT_ISA_AVX512, WEFT_PREC_BF16, weft_attn_fill_avx512, 6e-3, 1e-5},
    {"avx512 fp16", WEFT_ISA_AVX512, WEFT_PREC_F16, weft_attn_fill_avx512, 6e-3, 1e-5},
};
#define FOR_KERNELS(k) \
    for (const kernel *k = kernels; k < kernels + sizeof kernels / sizeof *kernels; k++) \
        if (weft_isa_available(k->isa))

static inline weft_attn_ops ops_of(const kernel *k)
{
    weft_attn_ops ops;
    k->fill(&ops, k->prec);
    return ops;
}

static inline bool bits16(const kernel *k) { return k->prec == WEFT_PREC_BF16 || k->prec == WEFT_PREC_F16; }

/* Heads of a model with larger groups than are here: 3..9 in groups of 4 read key/value heads 0..2, in shares of 1, 4
 * and 2; 5..7 in groups of 2 read key/value heads 2 and 3. Returns what it is. */
enum { UNEVEN_HEADS = 2 };
static inline const char *case_uneven_heads(attention_case *c, int way)
{
    if (way == 0) case_init(c, 7, 3, 8, 8);
    else case_init(c, 3, 2, 8, 8);
    if (way == 0) c->d.group = 4, c->d.head0 = 3;
    else c->d.group = 2, c->d.head0 = 5, c->d.kv_head0 = 2;
    case_simple(c, 40, 60);
    c->d.mask.causal = way == 0;
    return way == 0 ? "heads 3..9 in groups of 4" : "heads 5..7 in groups of 2";
}

static inline void check_threads(const attention_case *c, const kernel *k, const attention_result *one,
                                 const char *what)
{
    weft_attn_ops ops = ops_of(k);
    attention_result more = result_new(c);
    const int several[] = {2 + (int)(c->k_rows % 2), 4};
    for (int i = 0; i < 2; i += test_every(2)) {
        int threads = several[i];
        char text[128];
        case_run(c, &ops, k->prec, threads, &more);
        snprintf(text, sizeof text, "%s, %s, %d threads", k->name, what, threads);
        case_check_same(c, one, &more, text);
    }
    result_free(&more);
}

/* The case as it stands, with every kernel, and with 2 or 3 and with 4 threads, whose bits must be those of 1. The
 * precisions of an instruction set share their source, so that fp32 (fp64) speaks for the threads of all. */
static inline void check_all(attention_case *c, double q_size, bool sinks, bool alibi, double loosen, const char *what)
{
    for (int half = 0; half < 2; half++) {
        case_fill(c, half, (uint64_t)(c->q_rows * 17 + c->k_rows + c->d.D * 7919), q_size, sinks, alibi);
        FOR_KERNELS(k) {
            if (bits16(k) != half) continue;
            weft_attn_ops ops = ops_of(k);
            char text[128];
            attention_result one = result_new(c);
            case_run(c, &ops, k->prec, 1, &one);
            snprintf(text, sizeof text, "%s, %s", k->name, what);
            case_check(c, &one, k->limit * loosen, k->lse_limit, text);
            if (k->prec == (k->isa == WEFT_ISA_REF ? WEFT_PREC_F64 : WEFT_PREC_F32)) check_threads(c, k, &one, what);
            result_free(&one);
        }
        case_clear(c);
    }
}

static inline double objective(attention_case *c)
{
    double sum = 0;
    case_answer(c);
    for (int64_t i = 0; i < c->q_rows * c->d.H * c->d.Dv; i++) sum += c->want.o[i] * c->dout[i];
    return sum;
}

/* Every 1 + n / 40th of the gradients of <o, dout> with respect to x, against central differences of the answer. */
static inline void differences(attention_case *c, double *x, const double *grad, int64_t n, const char *name)
{
    const double h = 1e-5;
    for (int64_t i = 0; i < n; i += 1 + n / 40) {
        double keep = x[i], up, down;
        x[i] = keep + h, up = objective(c);
        x[i] = keep - h, down = objective(c);
        x[i] = keep;
        double numeric = (up - down) / (2 * h);
        /* h^2 times a third derivative of some tens */
        if (!(fabs(numeric - grad[i]) <= 1e-8 * fmax(1, fabs(numeric))))
            fail_msg("d%s[%lld] = %.12g, central difference %.12g", name, (long long)i, grad[i], numeric);
    }
}

#endif
