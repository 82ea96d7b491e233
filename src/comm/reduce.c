/* reduce.c — the element operations of reductions. A NaN wins in max and min: a rank's NaN must reach all. */
#include "comm/reduce.h"

#define REDUCE(name, type, expr) \
    static void name(void *acc, const void *other, int64_t n) \
    { \
        type *restrict a = acc; \
        const type *restrict x = other; \
        for (int64_t i = 0; i < n; i++) a[i] = (expr); \
    }

REDUCE(sum_f32, float, a[i] + x[i])
REDUCE(sum_f64, double, a[i] + x[i])
/* Wraps: signed overflow is undefined in C. */
REDUCE(sum_i64, int64_t, (int64_t)((uint64_t)a[i] + (uint64_t)x[i]))
REDUCE(max_f32, float, a[i] >= x[i] || a[i] != a[i] ? a[i] : x[i])
REDUCE(max_f64, double, a[i] >= x[i] || a[i] != a[i] ? a[i] : x[i])
REDUCE(max_i64, int64_t, a[i] >= x[i] ? a[i] : x[i])
REDUCE(min_f32, float, a[i] <= x[i] || a[i] != a[i] ? a[i] : x[i])
REDUCE(min_f64, double, a[i] <= x[i] || a[i] != a[i] ? a[i] : x[i])
REDUCE(min_i64, int64_t, a[i] <= x[i] ? a[i] : x[i])

weft_status weft_reduce_find(weft_reduce_fn **out, weft_dtype t, weft_op op, const char *what)
{
    static weft_reduce_fn *const f32[] = {sum_f32, max_f32, min_f32};
    static weft_reduce_fn *const f64[] = {sum_f64, max_f64, min_f64};
    static weft_reduce_fn *const i64[] = {sum_i64, max_i64, min_i64};
    weft_reduce_fn *const *row = t == WEFT_F32 ? f32 : t == WEFT_F64 ? f64 : t == WEFT_I64 ? i64 : NULL;
    if (!row)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is not added between ranks; convert to fp32, fp64 or i64", what,
                         weft_dtype_name(t));
    *out = row[op];
    return WEFT_OK;
}
