/* xent.avx512.c — xent.inl on 512-bit registers. */
#include "kern/kern_impl.h"
#include "kern/simd/avx512.h"
#include "kern/simd/rows.h"

#include <math.h>

#define SIMD_TEMPLATE "kern/xent/xent.inl"
#include "kern/simd_each.inl"
