/* xent.ref.inl — template, see ref_each.inl.
 *   nll = log(sum_j exp(x_j - m)) - (x_t - m),  m = max_j x_j;   dx_j = (exp(x_j - m) / sum - [j = t]) scale
 * Ignored rows select zeros and are not read: a NaN there must not survive as NaN x 0. The sum is taken in
 * double, because it has V terms. Gradients are written after the row's logits were read for the last time
 * element by element, so that dlogits may be logits. */

static void NAME(xent_ignored)(R *nll, C *d, int64_t V)
{
    *nll = 0;
    for (int64_t j = 0; d && j < V; j++) d[j] = TO_C(0);
}

static void NAME(xent_row)(R *nll, C *d, const R *x, int64_t target, R scale, int64_t V)
{
    R max = x[0];
    for (int64_t j = 1; j < V; j++)
        if (x[j] > max) max = x[j];
    double sum = 0;
    for (int64_t j = 0; j < V; j++) sum += (double)FN(exp)(x[j] - max);
    *nll = (R)(log(sum) - ((double)x[target] - (double)max));
    if (!d) return;
    const R inv = (R)(1 / sum), p_target = FN(exp)(x[target] - max) * inv;
    for (int64_t j = 0; j < V; j++) d[j] = TO_C(FN(exp)(x[j] - max) * inv * scale);
    d[target] = TO_C((p_target - 1) * scale);
}

void NAME(xent)(void *nll, void *dlogits, int64_t d_ld, void *logits, int64_t l_ld, const int32_t *target,
                double scale, int64_t rows, int64_t V, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        C *d = dlogits ? (C *)dlogits + r * d_ld : NULL;
        if (target[r] < 0) NAME(xent_ignored)((R *)nll + r, d, V);
        else NAME(xent_row)((R *)nll + r, d, (const R *)logits + r * l_ld, target[r], (R)scale, V);
    }
}

/* ---- columns [first, first + V) of rows that are cut over ranks ----------------------------------------------------
 *
 * With m_p, l_p of the columns here and m, l of all, exp(x_j - m) / l = exp(x_j - m_p) exp(m_p - m) / l: what was made
 * for the sum serves the gradient. Columns that are all -inf are shifted by 0, as exp(-inf - -inf) would be NaN; all
 * terms are 0 then, and so is exp(m_p - m). */

static void NAME(xent_part_row)(double *stats, bool keep, R *x, int64_t target, int64_t V)
{
    R max = -(R)INFINITY;
    for (int64_t j = 0; j < V; j++)
        if (x[j] > max) max = x[j];
    const R shift = max > -(R)INFINITY ? max : 0;
    stats[0] = (double)max;
    stats[1] = 0;
    stats[2] = target >= 0 && target < V ? (double)x[target] : 0;
    for (int64_t j = 0; j < V; j++) {
        const R e = FN(exp)(x[j] - shift);
        stats[1] += (double)e;
        if (keep) x[j] = e;
    }
}

void NAME(xent_part)(double *stats, bool keep, void *logits, int64_t l_ld, const int32_t *target, int64_t first,
                     int64_t rows, int64_t V, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        double *s = stats + 3 * r;
        s[0] = s[1] = s[2] = 0;
        if (target[r] >= 0) NAME(xent_part_row)(s, keep, (R *)logits + r * l_ld, target[r] - first, V);
    }
}

void NAME(xent_part_bwd)(void *dlogits, int64_t d_ld, const void *exps, int64_t e_ld, const int32_t *target,
                         int64_t first, const double *part, const double *whole, double scale, int64_t rows, int64_t V,
                         int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        C *d = (C *)dlogits + r * d_ld;
        const R *e = (const R *)exps + r * e_ld;
        const double *p = part + 3 * r, *w = whole + 3 * r;
        const int64_t t = target[r] - first;
        const R f = (R)(exp(p[0] - w[0]) / w[1] * scale);
        for (int64_t j = 0; j < V; j++) d[j] = TO_C(target[r] < 0 ? 0 : e[j] * f);
        if (target[r] >= 0 && t >= 0 && t < V) d[t] = TO_C((R)((exp(w[2] - w[0]) / w[1] - 1) * scale));
    }
}
