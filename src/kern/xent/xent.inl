/* xent.inl — template, see simd_each.inl. The formulas and what an ignored row does are in xent.ref.inl.
 * Denormals are flushed: a sharp distribution over a large vocabulary is made of them. */

static float NAME(xent_max)(const float *x, int64_t V_)
{
    V m = vset(-INFINITY);
    /* vmax(x, m) is m where x is NaN: the sum meets that NaN later and shows it */
    for (int64_t j = 0; j < V_; j += VLEN)
        m = vmax(vsel(vmask_n(V_ - j), vld(x + j, V_ - j), m), m);
    return vhmax(m);
}

/* sum exp(x - max); float sums are short, as in rows.h. With keep, x becomes the exponentials. */
static double NAME(xent_sum)(float *x, float max, bool keep, int64_t V_)
{
    const V m = vset(max);
    double sum = 0;
    for (int64_t c = 0; c < V_; c += SUM_CHUNK) {
        const int64_t end = c + SUM_CHUNK < V_ ? c + SUM_CHUNK : V_;
        V acc = vzero();
        for (int64_t j = c; j < end; j += VLEN) {
            const V e = vexp(vsub(vld(x + j, end - j), m));
            acc = vadd(acc, vsel(vmask_n(end - j), e, vzero()));
            if (keep) vst(x + j, e, end - j);
        }
        sum += (double)vsum(acc);
    }
    return sum;
}

/* d may be e, the exponentials: element by element. */
static void NAME(xent_gradient)(C *d, const float *e, float max, float x_target, int64_t target, float inv, float scale,
                                int64_t V_)
{
    const V f = vset(inv * scale);
    const simd_mode mode = simd_enter();
    for (int64_t j = 0; j < V_; j += VLEN)
        ST(d + j, vmul(vld(e + j, V_ - j), f), V_ - j);
    simd_leave(mode);
    ST(d + target, vset((expf(x_target - max) * inv - 1) * scale), 1);
}

static void NAME(xent_row)(float *nll, C *d, float *x, int64_t target, float scale, int64_t V_)
{
    const simd_mode mode = simd_enter();
    const float max = NAME(xent_max)(x, V_), x_target = x[target];
    const double sum = NAME(xent_sum)(x, max, d, V_);
    simd_leave(mode);
    *nll = (float)(log(sum) - ((double)x_target - (double)max));
    if (d) NAME(xent_gradient)(d, x, max, x_target, target, (float)(1 / sum), scale, V_);
}

void NAME(xent)(void *nll, void *dlogits, int64_t d_ld, void *logits, int64_t l_ld, const int32_t *target,
                double scale, int64_t rows, int64_t V_, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        C *d = dlogits ? (C *)dlogits + r * d_ld : NULL;
        if (target[r] >= 0) {
            NAME(xent_row)((float *)nll + r, d, (float *)logits + r * l_ld, target[r], (float)scale, V_);
            continue;
        }
        ((float *)nll)[r] = 0;
        for (int64_t j = 0; d && j < V_; j += VLEN) ST(d + j, vzero(), V_ - j);
    }
}

/* Nothing in it has type C: one copy serves the three precisions. */
#ifndef XENT_PART
#define XENT_PART
static void xent_part_row(double *stats, bool keep, float *x, int64_t target, int64_t V_)
{
    const simd_mode mode = simd_enter();
    const float max = NAME(xent_max)(x, V_);
    stats[0] = (double)max;
    stats[2] = target >= 0 && target < V_ ? (double)x[target] : 0;
    stats[1] = NAME(xent_sum)(x, max > -INFINITY ? max : 0, keep, V_);
    simd_leave(mode);
}

void NAME(xent_part)(double *stats, bool keep, void *logits, int64_t l_ld, const int32_t *target, int64_t first,
                     int64_t rows, int64_t V_, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        double *s = stats + 3 * r;
        s[0] = s[1] = s[2] = 0;
        if (target[r] >= 0) xent_part_row(s, keep, (float *)logits + r * l_ld, target[r] - first, V_);
    }
}
#endif

void NAME(xent_part_bwd)(void *dlogits, int64_t d_ld, const void *exps, int64_t e_ld, const int32_t *target,
                         int64_t first, const double *part, const double *whole, double scale, int64_t rows, int64_t V_,
                         int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        C *d = (C *)dlogits + r * d_ld;
        const float *e = (const float *)exps + r * e_ld;
        const double *p = part + 3 * r, *w = whole + 3 * r;
        const int64_t t = target[r] - first;
        if (target[r] < 0) {
            for (int64_t j = 0; j < V_; j += VLEN) ST(d + j, vzero(), V_ - j);
            continue;
        }
        const V f = vset((float)(exp(p[0] - w[0]) / w[1] * scale));
        const simd_mode mode = simd_enter();
        for (int64_t j = 0; j < V_; j += VLEN) ST(d + j, vmul(vld(e + j, V_ - j), f), V_ - j);
        simd_leave(mode);
        if (t >= 0 && t < V_) ST(d + t, vset((float)((exp(w[2] - w[0]) / w[1] - 1) * scale)), 1);
    }
}
