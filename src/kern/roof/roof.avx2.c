/* roof.avx2.c — twelve chains of 256-bit multiply-adds: two units with a latency of four or five need ten. */
#include "kern/roof/roof_impl.h"

#define ONE(i) "vbroadcastss %[one], %%ymm" #i "\n"
#define FMA(i) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #i "\n"

double weft_roof_fma256(int64_t turns)
{
    const float one = 1, small = 1e-6f; /* sums stay ordinary numbers: denormals and infinities may be slower */
    double operations = (double)turns * 12 * 8 * 2;
    __asm__ volatile(ROOF_TWELVE(ONE) "vbroadcastss %[small], %%ymm14\n"
                                      "vbroadcastss %[small], %%ymm15\n"
                                      ".p2align 4\n"
                                      "1:\n" ROOF_TWELVE(FMA) "sub $1, %[turns]\n"
                                                              "jnz 1b\n"
                     : [turns] "+r"(turns)
                     : [one] "m"(one), [small] "m"(small)
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                       "xmm14", "xmm15", "cc");
    return operations;
}
