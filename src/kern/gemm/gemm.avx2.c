/* gemm.avx2.c — gemm_pack.inl on 256-bit registers. */
#include "kern/gemm/gemm_impl.h"
#include "kern/simd/avx2.h"
#include "kern/simd/rows.h"

#include "kern/gemm/gemm_block.inl"

#define SIMD_TEMPLATE "kern/gemm/gemm_pack.inl"
#include "kern/simd_each.inl"
