/* roof.amx.c — tile products of bf16 into four accumulators. A product takes 16 cycles, whatever is in them. */
#include "kern/roof/roof_impl.h"

#include <string.h>

typedef struct tile_config { /* palette 1: rows and bytes per row of eight tiles */
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "what ldtilecfg reads");

double weft_roof_amx_bf16(int64_t turns)
{
    double operations = (double)turns * 8 * 16 * 16 * 32 * 2;
    _Alignas(64) tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.rows[i] = 16, config.bytes[i] = 64;
    _Alignas(64) uint16_t operand[16 * 32];
    for (int i = 0; i < 16 * 32; i++) operand[i] = 0x3586; /* 1e-6 in bf16: sums stay ordinary numbers */
    const int64_t stride = 64;
    __asm__ volatile("ldtilecfg %[config]\n"
                     "tilezero %%tmm0\n"
                     "tilezero %%tmm1\n"
                     "tilezero %%tmm2\n"
                     "tilezero %%tmm3\n"
                     "tileloadd (%[operand], %[stride]), %%tmm4\n"
                     "tileloadd (%[operand], %[stride]), %%tmm5\n"
                     "tileloadd (%[operand], %[stride]), %%tmm6\n"
                     "tileloadd (%[operand], %[stride]), %%tmm7\n"
                     ".p2align 4\n"
                     "1:\n"
                     "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n"
                     "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
                     "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n"
                     "tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n"
                     "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n"
                     "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
                     "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n"
                     "tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n"
                     "sub $1, %[turns]\n"
                     "jnz 1b\n"
                     "tilerelease\n"
                     : [turns] "+r"(turns)
                     : [config] "m"(config), [operand] "r"(operand), [stride] "r"(stride)
                     : "cc", "memory");
    return operations;
}
