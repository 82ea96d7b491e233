/* drop.avx512.c — drop_real.inl and drop.inl on 512-bit registers. */
#include "kern/kern_impl.h"
#include "kern/simd/avx512.h"
#include "kern/simd/rows.h"


#include <math.h>

#include "kern/drop/drop_real.inl"

#define SIMD_TEMPLATE "kern/drop/drop.inl"
#include "kern/simd_each.inl"
