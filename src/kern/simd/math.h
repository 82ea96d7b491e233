/* math.h — elementary functions over the SIMD vocabulary, and the floating-point mode of kernels.
 * Included by avx2.h and avx512.h only. Polynomial coefficients are minimax fits (Remez) made for these
 * intervals and weights. */
#ifndef WEFT_KERN_SIMD_MATH_H
#define WEFT_KERN_SIMD_MATH_H

/* exp(x), relative error below 1e-7; exp(0) = 1 exactly, exp(-inf) = 0, exp(inf) = inf, NaN stays NaN.
 *   x = n ln2 + r, |r| <= ln2/2:  exp(x) = 2^n (1 + r + r^2 p(r)),  p of degree 4 (3e-9 relative).
 * The lower clamp lies below the smallest denormal, so everything under it rounds to 0 (and -inf never
 * meets -inf in the subtraction); ln2 is split so that n ln2 is exact in its high part. */
static inline V vexp(V x)
{
    const V magic = vset(0x1.8p23f); /* adding it rounds to an integer */
    x = vmax(vset(-105.0f), vmin(vset(100.0f), x));
    V n = vsub(vfma(x, vset(0x1.715476p0f), magic), magic);
    V r = vfnma(n, vset(0x1.62e4p-1f), x);
    r = vfnma(n, vset(0x1.7f7d1cp-20f), r);
    V p = vfma(vset(0x1.6a2434p-10f), r, vset(0x1.1239e2p-7f));
    p = vfma(p, r, vset(0x1.5558f2p-5f));
    p = vfma(p, r, vset(0x1.555492p-3f));
    p = vfma(p, r, vset(0x1.fffffcp-2f));
    p = vadd(vfma(vmul(r, r), p, r), vset(1.0f));
    return vscale2(p, n);
}

/* tanh(x), relative error below 1.5e-7 (it matters near 0, where softcap multiplies the result back).
 *   |x| < 5/8:  x + x^3 p(x^2);   else  1 - 2 / (exp(2|x|) + 1) with the sign of x. */
static inline V vtanh(V x)
{
    V a = vabs(x), z = vmul(x, x);
    V p = vfma(vset(-0x1.76ac2ep-8f), z, vset(0x1.5256dcp-6f));
    p = vfma(p, z, vset(-0x1.b8444ap-5f));
    p = vfma(p, z, vset(0x1.110768p-3f));
    p = vfma(p, z, vset(-0x1.555534p-2f));
    V small = vfma(vmul(x, z), p, x);
    V e = vexp(vadd(a, a));
    V large = vsub(vset(1.0f), vdiv(vset(2.0f), vadd(e, vset(1.0f))));
    return vsel(vlt(a, vset(0.625f)), small, vcopysign(large, x));
}

/* Flush-to-zero and denormals-are-zero for the duration of a kernel: probabilities far below the maximum
 * are denormal by the thousand and each would cost a microcode assist. The caller's state comes back. */
typedef unsigned int simd_mode;
static inline simd_mode simd_enter(void)
{
    simd_mode old = _mm_getcsr();
    _mm_setcsr(old | 0x8040u);
    return old;
}
static inline void simd_leave(simd_mode old) { _mm_setcsr(old); }

#endif
