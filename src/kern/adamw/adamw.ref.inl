/* adamw.ref.inl — template, see ref_each.inl. Loshchilov & Hutter 2019: the decay acts on the weight, not
 * through the moments. 1 - beta is formed in double: in float 1 - 0.999f is wrong in the fifth digit. */

void NAME(adamw)(void *p, const void *g, void *m, void *v, int64_t n, const weft_adamw_args *args, int threads)
{
    (void)threads;
    const R b1 = (R)args->beta1, b2 = (R)args->beta2, one_b1 = (R)(1 - args->beta1), one_b2 = (R)(1 - args->beta2);
    const R inv_c1 = (R)(1 / args->c1), inv_c2 = (R)(1 / args->c2), eps = (R)args->eps, scale = (R)args->gscale;
    const R lr = (R)args->lr, decay = (R)args->weight_decay;
    R *p_ = p, *m_ = m, *v_ = v;
    const R *g_ = g;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const R g_i = g_[i] * scale;
        m_[i] = b1 * m_[i] + one_b1 * g_i;
        v_[i] = b2 * v_[i] + one_b2 * (g_i * g_i);
        p_[i] -= lr * (m_[i] * inv_c1 / (FN(sqrt)(v_[i] * inv_c2) + eps) + decay * p_[i]);
    }
}
