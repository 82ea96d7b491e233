/* attention_kernels.h — every attention kernel of this machine, and a case's run through all of them. For the tests
 * of this folder. */
#ifndef WEFT_TEST_ATTENTION_KERNELS_H
#define WEFT_TEST_ATTENTION_KERNELS_H

#include "harness/amx_trap.h"
#include "harness/attention_case.h"
#include "kern/attention/attention_impl.h"
#include "kern/check/limits.h"
#include "kern/kern_impl.h"

typedef struct kernel {
    const char *name;
    weft_isa isa;
    weft_prec prec;
    void (*fill)(weft_attn_ops *ops, weft_prec prec);
    double limit, lse_limit;
} kernel;

/* All of the manifest. */
static const kernel kernels[] = {
#define KERN(op, prec, isa, symbol)
#define KERN_ATTN(prec, isa, fill) {#isa " " #prec, WEFT_ISA_##isa, WEFT_PREC_##prec, fill, LIMIT_OF_##isa(prec)},
#define KERN_MOVE(prec, isa, fill)
#include "kern/kern_list.inc"
#undef KERN
#undef KERN_ATTN
#undef KERN_MOVE
};

/* Kernels with tiles run on a machine without as well, which executes the instructions in software. */
static inline bool runs_here(const kernel *k)
{
    return weft_isa_available(k->isa) || (k->isa == WEFT_ISA_AMX && amx_trap_install());
}

#define FOR_KERNELS(k) \
    for (const kernel *k = kernels; k < kernels + sizeof kernels / sizeof *kernels; k++) \
        if (runs_here(k))

static inline weft_attn_ops ops_of(const kernel *k)
{
    weft_attn_ops ops;
    k->fill(&ops, k->prec);
    return ops;
}

/* What kernel k makes of the case; result_free. */
static inline attention_result kernel_result(const attention_case *c, const kernel *k, int threads)
{
    weft_attn_ops ops = ops_of(k);
    attention_result r = result_new(c);
    case_run(c, &ops, k->prec, threads, &r);
    return r;
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

/* The precisions of the reference share their source, and it takes most of the time: where many cases differ in numbers
 * only, fp64 speaks for all of them. */
static inline bool speaks_for_its_source(const kernel *k) { return k->isa != WEFT_ISA_REF || k->prec == WEFT_PREC_F64; }

/* One case of four for each of the others. */
static inline bool has_its_turn(const kernel *k)
{
    static int turn; /* goes on by three in a case */
    return speaks_for_its_source(k) || turn++ % 4 == 0;
}

/* The case as it stands, with every kernel, and with 2 or 3 and with 4 threads, whose bits must be those of 1. Where
 * the precisions of an instruction set share their source, fp32 (fp64) speaks for the threads of all. */
static inline void check_all(attention_case *c, double q_size, bool sinks, bool alibi, double loosen, const char *what)
{
    for (int half = 0; half < 2; half++) {
        case_fill(c, half, (uint64_t)(c->q_rows * 17 + c->k_rows + c->d.D * 7919), q_size, sinks, alibi);
        FOR_KERNELS(k) {
            if (bits16(k) != half || !has_its_turn(k)) continue;
            char text[128];
            attention_result one = kernel_result(c, k, 1);
            snprintf(text, sizeof text, "%s, %s", k->name, what);
            case_check(c, &one, k->limit * loosen, k->lse_limit, text);
            bool fp32_speaks = k->isa == WEFT_ISA_AVX2 || k->isa == WEFT_ISA_AVX512;
            if (fp32_speaks ? k->prec == WEFT_PREC_F32 : speaks_for_its_source(k)) check_threads(c, k, &one, what);
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
