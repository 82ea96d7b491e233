/* roof.avx512.c — twelve chains of 512-bit multiply-adds, and of dot products of pairs of bf16. The instruction is
 * spelled in assembly, so the file needs no flag for AVX512-BF16; weft_roof_available says who has it. */
#include "kern/roof/roof_impl.h"

#define ONE(i) "vbroadcastss %[one], %%zmm" #i "\n"
#define FMA(i) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" #i "\n"
#define DOT(i) "vdpbf16ps %%zmm14, %%zmm15, %%zmm" #i "\n"

#define LOOP(STEP) \
    __asm__ volatile(ROOF_TWELVE(ONE) "vbroadcastss %[small], %%zmm14\n" \
                                      "vbroadcastss %[small], %%zmm15\n" \
                                      ".p2align 4\n" \
                                      "1:\n" ROOF_TWELVE(STEP) "sub $1, %[turns]\n" \
                                                               "jnz 1b\n" \
                     : [turns] "+r"(turns) \
                     : [one] "m"(one), [small] "m"(small) \
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
                       "xmm11", "xmm14", "xmm15", "cc")

double weft_roof_fma512(int64_t turns)
{
    const float one = 1, small = 1e-6f; /* sums stay ordinary numbers */
    double operations = (double)turns * 12 * 16 * 2;
    LOOP(FMA);
    return operations;
}

double weft_roof_dot512(int64_t turns)
{
    const float one = 1, small = 1e-6f; /* as bf16 pairs: 1e-6 and a small number of its lower half */
    double operations = (double)turns * 12 * 32 * 2;
    LOOP(DOT);
    return operations;
}
