/* tensor.h — the door of the room `tensor`: element types, views, tables of tensors, comparison. LOCAL. */
#ifndef WEFT_TENSOR_H
#define WEFT_TENSOR_H

#include "base/base.h"

/* ---- element types ------------------------------------------------------------------------------ */

/*        name      text     bits  safetensors */
#define WEFT_DTYPE_MAP(X) \
    X(F64,     "fp64",  64, "F64") \
    X(F32,     "fp32",  32, "F32") \
    X(BF16,    "bf16",  16, "BF16") \
    X(F16,     "fp16",  16, "F16") \
    X(F8_E4M3, "fp8_e4m3", 8, "F8_E4M3") \
    X(F8_E5M2, "fp8_e5m2", 8, "F8_E5M2") \
    X(I64,     "i64",   64, "I64") \
    X(I32,     "i32",   32, "I32") \
    X(U16,     "u16",   16, "U16") \
    X(U8,      "u8",     8, "U8")

typedef enum weft_dtype {
#define X(name, text, bits, st) WEFT_##name,
    WEFT_DTYPE_MAP(X)
#undef X
    WEFT_DTYPE_COUNT
} weft_dtype;

size_t weft_dtype_size(weft_dtype t);      /* bytes of one element */
const char *weft_dtype_name(weft_dtype t); /* "bf16" */
const char *weft_dtype_safetensors(weft_dtype t); /* "BF16" */
bool weft_dtype_from_safetensors(const char *s, weft_dtype *out);

typedef uint16_t weft_bf16;
typedef uint16_t weft_f16;

static inline float weft_bf16_to_f32(weft_bf16 h)
{
    union { uint32_t u; float f; } x = {(uint32_t)h << 16};
    return x.f;
}
/* Round to nearest even; NaN stays NaN (quiet), never turns into an infinity. */
static inline weft_bf16 weft_f32_to_bf16(float f)
{
    union { float f; uint32_t u; } x = {f};
    if ((x.u & 0x7fffffffu) > 0x7f800000u) return (weft_bf16)((x.u >> 16) | 0x40u);
    return (weft_bf16)((x.u + 0x7fffu + ((x.u >> 16) & 1u)) >> 16);
}
float weft_f16_to_f32(weft_f16 h);
weft_f16 weft_f32_to_f16(float f);
float weft_f8_to_f32(uint8_t b, weft_dtype t);   /* t: F8_E4M3 (no infinities, NaN 0x7f) or F8_E5M2 */
uint8_t weft_f32_to_f8(float f, weft_dtype t);   /* e4m3 saturates at 448, e5m2 at 57344 */

/* dst[i] = (ddt) src[i] for n elements, any pair of floating types or any pair of integer types.
 * Arrays must not overlap unless they are the same array of the same type. */
void weft_convert(void *dst, weft_dtype ddt, const void *src, weft_dtype sdt, int64_t n);
/* One element as double (integers converted), and back. */
double weft_load(const void *src, weft_dtype t, int64_t i);
void weft_store(void *dst, weft_dtype t, int64_t i, double x);

/* ---- precision of a run -------------------------------------------------------------------------- */

/* A run has two types: R, in which sums, residuals, norms' statistics and master weights live, and C, in
 * which matrix products and attention take their inputs. */
typedef enum weft_prec { WEFT_PREC_F64, WEFT_PREC_F32, WEFT_PREC_BF16, WEFT_PREC_F16, WEFT_PREC_COUNT } weft_prec;

static inline weft_dtype weft_prec_real(weft_prec p) { return p == WEFT_PREC_F64 ? WEFT_F64 : WEFT_F32; }
static inline weft_dtype weft_prec_compute(weft_prec p)
{
    static const weft_dtype t[WEFT_PREC_COUNT] = {WEFT_F64, WEFT_F32, WEFT_BF16, WEFT_F16};
    return t[p];
}
const char *weft_prec_name(weft_prec p); /* "fp64" "fp32" "bf16" "fp16" */
bool weft_prec_parse(const char *s, weft_prec *out);

/* ---- views and tables of tensors ------------------------------------------------------------------ */

enum { WEFT_MAX_DIMS = 6 };

typedef struct weft_view { /* a dense row-major tensor; does not own its data */
    void *data;
    weft_dtype dtype;
    weft_mem_kind kind;
    int nd;
    int64_t shape[WEFT_MAX_DIMS];
} weft_view;

int64_t weft_view_count(const weft_view *v);
weft_status weft_count_of(const int64_t *shape, int nd, const char *name, int64_t *out); /* checked product */
bool weft_same_shape(const weft_view *a, const weft_view *b);
/* "[2, 96, 4]" into buf */
const char *weft_shape_text(const int64_t *shape, int nd, char *buf, size_t n);

/* What the gradient of a tensor is on one rank of a tensor-parallel group. */
typedef enum weft_spec_sum {
    WEFT_SUM_NOT,  /* that of the elements here, complete */
    WEFT_SUM_TP,   /* every rank has the same elements and a part of their gradient: the parts are added */
    WEFT_SUM_SHARED /* so it is for the elements in `shared` only: key/value heads that several ranks read */
} weft_spec_sum;

enum { WEFT_SPEC_CUTS = 3 };
typedef struct weft_span { int64_t begin, end; } weft_span; /* [begin, end) */

/* A row of a table of tensors that live in one array: what model, checkpoint, optimizer and memory report share.
 * Offsets count elements of the array's type. A rank may hold a part of a tensor only, some ranges along one
 * dimension; `name`, `number` and `whole` are then those of the whole. */
typedef struct weft_spec {
    const char *name;   /* Hugging Face name; owned by the table's arena */
    int nd;
    int64_t shape[WEFT_MAX_DIMS]; /* of what lies here */
    int64_t offset, count;
    bool decay;         /* weight decay applies (two or more dimensions) */
    int64_t number;     /* which tensor of the whole model, on every rank: the address of its initial values */
    int64_t whole[WEFT_MAX_DIMS];
    int cut_dim;        /* the dimension that is cut; -1: all of the tensor is here */
    int cuts;           /* ranges of it that lie here, one after the other: three for a fused q,k,v */
    weft_span cut[WEFT_SPEC_CUTS];
    /* Elements [own_first, own_first + own_count) count as this rank's, the others are copies that another one counts:
     * norms and checkpoints take each element of the model once. */
    int64_t own_first, own_count;
    weft_spec_sum sum;
    weft_span shared;   /* WEFT_SUM_SHARED: a range of the cut dimension of the whole that holds all those heads, the
                           same on every rank, whatever it has of it: who has not adds 0 */
    bool ends;          /* first and last stage of a pipeline have it (a tied embedding): their gradients are added, and
                           the first counts it */
} weft_spec;

/* Fills in what says that all of the tensor is here and this rank's: whole, cut_dim, own, sum. LOCAL, pure */
void weft_spec_uncut(weft_spec *s);
/* Elements of the whole tensor. LOCAL, pure */
int64_t weft_spec_whole_count(const weft_spec *s);
/* Elements of `s`'s dense array whose gradients the ranks of tp add up: all of the tensor, or of its shared part that
 * whole rows hold; 0: nothing. LOCAL, pure */
int64_t weft_spec_summed(const weft_spec *s);
/* Walks elements [first, first + count) of what lies here, in order, as stretches that are also consecutive in the
 * whole tensor, row-major: `at`, `n` elements from element `whole` on. LOCAL */
typedef struct weft_stretch { int64_t at, whole, n; } weft_stretch;
typedef struct weft_spec_walk { const weft_spec *s; int64_t at, end; } weft_spec_walk;
weft_spec_walk weft_spec_walk_of(const weft_spec *s, int64_t first, int64_t count);
bool weft_spec_walk_next(weft_spec_walk *w, weft_stretch *out);

/* Elements [first, first + count) of tensor `spec` of a table, at `data`: a rank's slice of an array that is cut over
 * ranks, such as moments. */
typedef struct weft_piece {
    int spec;
    int64_t first, count;
    void *data;
} weft_piece;

const weft_spec *weft_spec_find(const weft_spec *table, int n, const char *name); /* NULL when absent */

/* ---- comparison ----------------------------------------------------------------------------------- */

/* |x - ref| in the 2-norm over max(|ref|, floor); computed in double. Any NaN or infinity in x or ref
 * gives infinity. floor 0: plain relative error, and 0/0 = 0. */
double weft_rel_l2(const void *x, weft_dtype xt, const void *ref, weft_dtype rt, int64_t n, double floor);
double weft_norm2(const void *x, weft_dtype t, int64_t n);
/* max_i |x_i - ref_i| / max(1, |ref_i|), where equal infinities differ by 0; for lse. */
double weft_max_scaled(const void *x, weft_dtype xt, const void *ref, weft_dtype rt, int64_t n);

#endif
