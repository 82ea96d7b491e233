/* act.avx512.c — act.inl on 512-bit registers. */
#include "kern/kern_impl.h"
#include "kern/simd/avx512.h"
#include "kern/simd/rows.h"

#define SIMD_TEMPLATE "kern/act/act.inl"
#include "kern/simd_each.inl"
