/* act.ref.inl — template, see ref_each.inl.
 *   silu(x) = x sig(x),  silu'(x) = sig(x) (1 + x (1 - sig(x))),  sig(x) = 1 / (1 + exp(-x))
 *   gelu(x) = x/2 (1 + t),  gelu'(x) = (1 + t)/2 + x/2 (1 - t^2) u',  t = tanh(u),
 *   u = c (x + 0.044715 x^3),  u' = c (1 + 3 * 0.044715 x^2),  c = sqrt(2/pi)
 * exp(-x) may overflow to infinity: sig is then 0, which is right. */

static R NAME(sigmoid)(R x) { return 1 / (1 + FN(exp)(-x)); }

void NAME(swiglu_fwd)(void *y, int64_t y_ld, const void *gate, int64_t g_ld, const void *up, int64_t u_ld,
                      int64_t rows, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const C *g_r = (const C *)gate + r * g_ld, *u_r = (const C *)up + r * u_ld;
        C *y_r = (C *)y + r * y_ld;
        for (int64_t i = 0; i < n; i++) {
            const R g = FROM_C(g_r[i]);
            y_r[i] = TO_C(g * NAME(sigmoid)(g) * FROM_C(u_r[i]));
        }
    }
}

void NAME(swiglu_bwd)(void *dgate, int64_t dg_ld, void *dup, int64_t du_ld, const void *dy, int64_t dy_ld,
                      const void *gate, int64_t g_ld, const void *up, int64_t u_ld, int64_t rows, int64_t n,
                      int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const C *g_r = (const C *)gate + r * g_ld, *u_r = (const C *)up + r * u_ld, *dy_r = (const C *)dy + r * dy_ld;
        C *dg_r = (C *)dgate + r * dg_ld, *du_r = (C *)dup + r * du_ld;
        for (int64_t i = 0; i < n; i++) {
            const R g = FROM_C(g_r[i]), u = FROM_C(u_r[i]), d = FROM_C(dy_r[i]), s = NAME(sigmoid)(g);
            dg_r[i] = TO_C(d * u * (s * (1 + g * (1 - s))));
            du_r[i] = TO_C(d * (g * s));
        }
    }
}

/* sqrt(2/pi) and the cubic coefficient of Hendrycks & Gimpel 2016 */
#define GELU_C ((R)0.79788456080286535588)
#define GELU_A ((R)0.044715)

void NAME(gelu_fwd)(void *y, int64_t y_ld, const void *x, int64_t x_ld, int64_t rows, int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const C *x_r = (const C *)x + r * x_ld;
        C *y_r = (C *)y + r * y_ld;
        for (int64_t i = 0; i < n; i++) {
            const R v = FROM_C(x_r[i]);
            const R t = FN(tanh)(GELU_C * (v + GELU_A * v * v * v));
            y_r[i] = TO_C((R)0.5 * v * (1 + t));
        }
    }
}

void NAME(gelu_bwd)(void *dx, int64_t dx_ld, const void *dy, int64_t dy_ld, const void *x, int64_t x_ld, int64_t rows,
                    int64_t n, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const C *x_r = (const C *)x + r * x_ld, *dy_r = (const C *)dy + r * dy_ld;
        C *dx_r = (C *)dx + r * dx_ld;
        for (int64_t i = 0; i < n; i++) {
            const R v = FROM_C(x_r[i]);
            const R t = FN(tanh)(GELU_C * (v + GELU_A * v * v * v));
            const R du = GELU_C * (1 + 3 * GELU_A * v * v);
            dx_r[i] = TO_C(FROM_C(dy_r[i]) * ((R)0.5 * (1 + t) + (R)0.5 * v * (1 - t * t) * du));
        }
    }
}

#undef GELU_C
#undef GELU_A
