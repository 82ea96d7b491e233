/* adamw.inl — the update of adamw.ref.inl on a SIMD vocabulary; all arrays are float in every precision.
 * Full and partial vectors run the same instructions, so an element's result does not depend on where a
 * shard begins. Denormals are flushed: the moments of a rare token's row decay into them and, rounded to
 * nearest, would stay there for ever, at more than twenty times the cost of an update. */

enum { ADAMW_CHUNK = 8192 }; /* elements per piece of work for a thread */

typedef struct adamw_v { V b1, b2, one_b1, one_b2, inv_c1, inv_c2, eps, scale, lr, decay; } adamw_v;

static void adamw_range(float *p, const float *g, float *m, float *v, int64_t n, const adamw_v *a)
{
    const simd_mode mode = simd_enter();
    for (int64_t i = 0; i < n; i += VLEN) {
        const int64_t left = n - i;
        const V g_i = vmul(vld(g + i, left), a->scale), p_i = vld(p + i, left);
        const V m_i = vfma(a->b1, vld(m + i, left), vmul(a->one_b1, g_i));
        const V v_i = vfma(a->b2, vld(v + i, left), vmul(a->one_b2, vmul(g_i, g_i)));
        const V step = vdiv(vmul(m_i, a->inv_c1), vadd(vsqrt(vmul(v_i, a->inv_c2)), a->eps));
        vst(m + i, m_i, left);
        vst(v + i, v_i, left);
        vst(p + i, vfnma(a->lr, vfma(a->decay, p_i, step), p_i), left);
    }
    simd_leave(mode);
}

void SIMD_NAME(weft_adamw_f32)(void *p, const void *g, void *m, void *v, int64_t n, const weft_adamw_args *args,
                               int threads)
{
    (void)threads;
    const adamw_v a = {.b1 = vset((float)args->beta1), .b2 = vset((float)args->beta2),
                       .one_b1 = vset((float)(1 - args->beta1)),
                       .one_b2 = vset((float)(1 - args->beta2)), .inv_c1 = vset((float)(1 / args->c1)),
                       .inv_c2 = vset((float)(1 / args->c2)), .eps = vset((float)args->eps),
                       .scale = vset((float)args->gscale),
                       .lr = vset((float)args->lr), .decay = vset((float)args->weight_decay)};
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i += ADAMW_CHUNK)
        adamw_range((float *)p + i, (const float *)g + i, (float *)m + i, (float *)v + i,
                    weft_min_i64(ADAMW_CHUNK, n - i), &a);
}
