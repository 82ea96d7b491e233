/* roof_impl.h — the loops of the units; nobody outside includes it. */
#ifndef WEFT_KERN_ROOF_IMPL_H
#define WEFT_KERN_ROOF_IMPL_H

#include "kern/roof/roof.h"

/* Runs `turns` turns and returns the operations of one thread. */
typedef double (*weft_roof_loop)(int64_t turns);

double weft_roof_fma256(int64_t turns);
double weft_roof_fma512(int64_t turns);
double weft_roof_dot512(int64_t turns);
double weft_roof_amx_bf16(int64_t turns);

#define ROOF_TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

#endif
