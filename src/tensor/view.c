/* view.c — shapes, tables of tensors, comparison. */
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int64_t weft_view_count(const weft_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->nd; i++) n *= v->shape[i];
    return n;
}

weft_status weft_count_of(const int64_t *shape, int nd, const char *name, int64_t *out)
{
    int64_t n = 1;
    for (int i = 0; i < nd; i++) {
        if (shape[i] < 0)
            return weft_fail(WEFT_ERR_REFUSED, "%s: dimension %d is %lld; it must not be negative", name, i,
                             (long long)shape[i]);
        if (!weft_mul_i64(n, shape[i], &n))
            return weft_fail(WEFT_ERR_REFUSED, "%s: the product of its dimensions does not fit into 64 bits", name);
    }
    *out = n;
    return WEFT_OK;
}

bool weft_same_shape(const weft_view *a, const weft_view *b)
{
    return a->nd == b->nd && !memcmp(a->shape, b->shape, (size_t)a->nd * sizeof a->shape[0]);
}

const char *weft_shape_text(const int64_t *shape, int nd, char *buf, size_t n)
{
    size_t used = (size_t)snprintf(buf, n, "[");
    for (int i = 0; i < nd && used < n; i++)
        used += (size_t)snprintf(buf + used, n - used, i ? ", %lld" : "%lld", (long long)shape[i]);
    if (used < n) snprintf(buf + used, n - used, "]");
    return buf;
}

const weft_spec *weft_spec_find(const weft_spec *table, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(table[i].name, name)) return &table[i];
    return NULL;
}

double weft_norm2(const void *x, weft_dtype t, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = weft_load(x, t, i);
        sum += v * v;
    }
    return sqrt(sum);
}

double weft_rel_l2(const void *x, weft_dtype xt, const void *ref, weft_dtype rt, int64_t n, double floor)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = weft_load(x, xt, i), b = weft_load(ref, rt, i);
        if (!isfinite(a) || !isfinite(b)) return INFINITY; /* NaN would pass "error > limit" */
        diff += (a - b) * (a - b);
        norm += b * b;
    }
    norm = fmax(sqrt(norm), floor);
    if (diff == 0) return 0;
    return norm > 0 ? sqrt(diff) / norm : INFINITY;
}

double weft_max_scaled(const void *x, weft_dtype xt, const void *ref, weft_dtype rt, int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = weft_load(x, xt, i), b = weft_load(ref, rt, i);
        double d = a == b ? 0 : fabs(a - b) / fmax(1.0, fabs(b));
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    return worst;
}
