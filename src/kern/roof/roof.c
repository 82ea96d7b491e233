/* roof.c — the units of this machine, and their loops on several threads. */
#include "kern/roof/roof_impl.h"

#include "kern/kern.h"

#ifdef _OPENMP
#include <omp.h>
#endif

typedef struct unit {
    const char *name;
    weft_isa isa;
    weft_roof_loop loop;
} unit;

static const unit units[WEFT_ROOF_COUNT] = {
    [WEFT_ROOF_FMA256] = {"256-bit fp32 multiply-add", WEFT_ISA_AVX2, weft_roof_fma256},
    [WEFT_ROOF_FMA512] = {"512-bit fp32 multiply-add", WEFT_ISA_AVX512, weft_roof_fma512},
    [WEFT_ROOF_DOT512] = {"512-bit bf16 dot product", WEFT_ISA_AVX512, weft_roof_dot512},
    [WEFT_ROOF_AMX_BF16] = {"AMX bf16 tiles", WEFT_ISA_AMX, weft_roof_amx_bf16},
};

const char *weft_roof_name(weft_roof_unit u) { return units[u].name; }

bool weft_roof_available(weft_roof_unit u)
{
    if (!units[u].loop || !weft_isa_available(units[u].isa)) return false;
    return u != WEFT_ROOF_DOT512 || weft_cpu_has_avx512_bf16();
}

/* Turns that take a thread about `seconds`: enough to see the clock move, then in proportion. */
static int64_t turns_for(weft_roof_loop loop, const weft_clock *clock, double seconds)
{
    int64_t turns = 1000;
    for (;;) {
        double begin = weft_now(clock);
        loop(turns);
        double took = weft_now(clock) - begin;
        if (took > 1e-3) return 1 + (int64_t)((double)turns * seconds / took);
        turns *= 4;
    }
}

double weft_roof_measure(weft_roof_unit u, const weft_clock *clock, int threads, double seconds)
{
    weft_roof_loop loop = units[u].loop;
    double operations = 0, slowest = 0;
    int64_t turns = turns_for(loop, clock, seconds);
    (void)threads; /* named in the pragma only */
#pragma omp parallel num_threads(threads) reduction(+ : operations) reduction(max : slowest)
    {
        loop(turns / 16); /* all have started, and the clock rate has settled */
#pragma omp barrier
        double begin = weft_now(clock);
        operations = loop(turns);
        slowest = weft_now(clock) - begin;
    }
    return operations / slowest;
}
