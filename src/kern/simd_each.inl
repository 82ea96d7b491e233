/* simd_each.inl — includes the template SIMD_TEMPLATE once per precision with R = float, after one of the
 * vocabularies in simd/ and simd/rows.h:
 *   C                              the compute type
 *   NAME(op)                       the kernel's symbol
 *   LD(p, left), ST(p, v, left)    the first min(left, VLEN) elements of type C */

#define LD(p, left) NAME(ld)(p, left)
#define ST(p, v, left) NAME(st)(p, v, left)

#define C float
#define NAME(op) SIMD_NAME(weft_##op##_f32)
static inline V NAME(ld)(const C *p, int64_t left) { return vld(p, left); }
static inline void NAME(st)(C *p, V v, int64_t left) { vst(p, v, left); }
#include SIMD_TEMPLATE
#undef C
#undef NAME

#define C weft_bf16
#define NAME(op) SIMD_NAME(weft_##op##_bf16)
static inline V NAME(ld)(const C *p, int64_t left) { return left >= VLEN ? vload_bf16(p) : vload_bf16n(p, left); }
static inline void NAME(st)(C *p, V v, int64_t left)
{
    if (left >= VLEN) vstore_bf16(p, v);
    else vstore_bf16n(p, v, left);
}
#include SIMD_TEMPLATE
#undef C
#undef NAME

#define C weft_f16
#define NAME(op) SIMD_NAME(weft_##op##_f16)
static inline V NAME(ld)(const C *p, int64_t left) { return left >= VLEN ? vload_f16(p) : vload_f16n(p, left); }
static inline void NAME(st)(C *p, V v, int64_t left)
{
    if (left >= VLEN) vstore_f16(p, v);
    else vstore_f16n(p, v, left);
}
#include SIMD_TEMPLATE
#undef C
#undef NAME

#undef LD
#undef ST
#undef SIMD_TEMPLATE
