/* limits.h — how far attention may be from float64: relative L2 of o, dq, dk, dv; then lse.
 *
 * Of design.md section 6. bf16: 2.5 times the error of an ideal kernel, 6e-3 or a little more in every stored case;
 * fp16 the same. lse of 16-bit inputs is computed in fp32 from exact inputs, so it keeps fp32's where the exponential
 * is fp32's, too. */
#ifndef WEFT_KERN_LIMITS_H
#define WEFT_KERN_LIMITS_H

#define LIMIT_F64 1e-12, 1e-13
#define LIMIT_F32 2e-6, 1e-5
#define LIMIT_BF16 6e-3, 1e-5
#define LIMIT_F16 6e-3, 1e-5
/* Kernels with tiles round P and dS to bf16 as well, 2^-9 each, which sums of few terms show (stored cases keep their
 * own limits); their exponential is good to 9e-5, within design.md's 1e-3 for lse of 16-bit inputs. */
#define LIMIT_TILES 1e-2, 2e-4
#define LIMIT_OF_REF(prec) LIMIT_##prec
#define LIMIT_OF_AVX2(prec) LIMIT_##prec
#define LIMIT_OF_AVX512(prec) LIMIT_##prec
#define LIMIT_OF_AMX(prec) LIMIT_TILES

#endif
