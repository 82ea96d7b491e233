/* embed.avx2.c — embed.inl on 256-bit registers. */
#include "kern/kern_impl.h"
#include "kern/simd/avx2.h"
#include "kern/simd/rows.h"

#define SIMD_TEMPLATE "kern/embed/embed.inl"
#include "kern/simd_each.inl"
