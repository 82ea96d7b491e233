/* reduce.avx512.c — sums.inl (arrays of R) and reduce.inl (conversions) on 512-bit registers. */
#include "kern/kern_impl.h"
#include "kern/simd/avx512.h"
#include "kern/simd/rows.h"

#include "kern/reduce/sums.inl"

#define SIMD_TEMPLATE "kern/reduce/reduce.inl"
#include "kern/simd_each.inl"
