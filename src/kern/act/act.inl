/* act.inl — template, see simd_each.inl. The formulas are in act.ref.inl. */

static inline V NAME(sigmoid)(V x)
{
    const V one = vset(1.0f);
    return vdiv(one, vadd(one, vexp(vsub(vzero(), x))));
}

void NAME(swiglu_fwd)(void *y, int64_t y_ld, const void *gate, int64_t g_ld, const void *up, int64_t u_ld,
                      int64_t rows, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const C *g_r = (const C *)gate + r * g_ld, *u_r = (const C *)up + r * u_ld;
        C *y_r = (C *)y + r * y_ld;
        for (int64_t i = 0; i < n; i += VLEN) {
            const V g = LD(g_r + i, n - i);
            V x = vmul(vmul(g, NAME(sigmoid)(g)), LD(u_r + i, n - i));
            if (n - i < VLEN && WEFT_PLANTED(kernel_row_end)) x = vmul(x, vset(1.01f));
            ST(y_r + i, x, n - i);
        }
    }
}

void NAME(swiglu_bwd)(void *dgate, int64_t dg_ld, void *dup, int64_t du_ld, const void *dy, int64_t dy_ld,
                      const void *gate, int64_t g_ld, const void *up, int64_t u_ld, int64_t rows, int64_t n,
                      int threads)
{
    (void)threads;
    const V one = vset(1.0f);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const C *g_r = (const C *)gate + r * g_ld, *u_r = (const C *)up + r * u_ld, *dy_r = (const C *)dy + r * dy_ld;
        C *dg_r = (C *)dgate + r * dg_ld, *du_r = (C *)dup + r * du_ld;
        for (int64_t i = 0; i < n; i += VLEN) {
            const int64_t left = n - i;
            const V g = LD(g_r + i, left), u = LD(u_r + i, left), d = LD(dy_r + i, left), s = NAME(sigmoid)(g);
            ST(dg_r + i, vmul(vmul(d, u), vmul(s, vfma(g, vsub(one, s), one))), left);
            ST(du_r + i, vmul(d, vmul(g, s)), left);
        }
    }
}

#define GELU_C 0.79788456080286535588f
#define GELU_A 0.044715f

/* (1 + tanh(u)) / 2 = sig(2 u), u = c (x + a x^3): one exponential, and no cancellation where tanh is near -1. */
static inline V NAME(gelu_gate)(V x)
{
    const V x2 = vmul(x, x);
    return NAME(sigmoid)(vmul(vmul(vset(2 * GELU_C), x), vfma(vset(GELU_A), x2, vset(1.0f))));
}

void NAME(gelu_fwd)(void *y, int64_t y_ld, const void *x, int64_t x_ld, int64_t rows, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const C *x_r = (const C *)x + r * x_ld;
        C *y_r = (C *)y + r * y_ld;
        for (int64_t i = 0; i < n; i += VLEN) {
            const V v = LD(x_r + i, n - i);
            ST(y_r + i, vmul(v, NAME(gelu_gate)(v)), n - i);
        }
    }
}

void NAME(gelu_bwd)(void *dx, int64_t dx_ld, const void *dy, int64_t dy_ld, const void *x, int64_t x_ld, int64_t rows,
                    int64_t n, int threads)
{
    (void)threads;
    const V one = vset(1.0f);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const C *x_r = (const C *)x + r * x_ld, *dy_r = (const C *)dy + r * dy_ld;
        C *dx_r = (C *)dx + r * dx_ld;
        for (int64_t i = 0; i < n; i += VLEN) {
            /* y = x s, s = sig(2 u(x))   so   y' = s + x s (1 - s) 2 u' */
            const V v = LD(x_r + i, n - i), s = NAME(gelu_gate)(v);
            const V du2 = vmul(vset(2 * GELU_C), vfma(vset(3 * GELU_A), vmul(v, v), one));
            const V slope = vfma(vmul(v, s), vmul(vsub(one, s), du2), s);
            ST(dx_r + i, vmul(LD(dy_r + i, n - i), slope), n - i);
        }
    }
}

#undef GELU_C
#undef GELU_A
