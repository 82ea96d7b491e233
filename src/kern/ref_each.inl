/* ref_each.inl — includes the template REF_TEMPLATE once per precision, with
 *   R, C          the two element types              FROM_C(c), TO_C(r)  conversions between them
 *   NAME(op)      the kernel's symbol                FN(f)               the libm function for R (sqrt, sqrtf) */

#define R double
#define C double
#define FROM_C(c) (c)
#define TO_C(r) (r)
#define NAME(op) weft_##op##_f64_ref
#define FN(name) name
#include REF_TEMPLATE
#undef R
#undef C
#undef FROM_C
#undef TO_C
#undef NAME
#undef FN

#define R float
#define FN(name) name##f

#define C float
#define FROM_C(c) (c)
#define TO_C(r) (r)
#define NAME(op) weft_##op##_f32_ref
#include REF_TEMPLATE
#undef C
#undef FROM_C
#undef TO_C
#undef NAME

#define C weft_bf16
#define FROM_C(c) weft_bf16_to_f32(c)
#define TO_C(r) weft_f32_to_bf16(r)
#define NAME(op) weft_##op##_bf16_ref
#include REF_TEMPLATE
#undef C
#undef FROM_C
#undef TO_C
#undef NAME

#define C weft_f16
#define FROM_C(c) weft_f16_to_f32(c)
#define TO_C(r) weft_f32_to_f16(r)
#define NAME(op) weft_##op##_f16_ref
#include REF_TEMPLATE
#undef C
#undef FROM_C
#undef TO_C
#undef NAME

#undef R
#undef FN
#undef REF_TEMPLATE
