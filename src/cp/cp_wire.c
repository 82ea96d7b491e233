/* cp_wire.c — how rows lie on the wire: in which type, and where each tensor of a row is.
 *
 * Moving bits loses nothing, so a type as wide as the one that computes, or wider, changes no bit; a narrower one
 * rounds each number once, at its owner, so every reader gets the same numbers whatever way they take. Sums are another
 * matter: a gradient sum that is rounded to bf16 and added to again loses a little at every hop (README.md). */
#include "cp/cp_impl.h"

/* ---- types ------------------------------------------------------------------------------------------------ */

static weft_dtype dtype_of(weft_cp_wire wire, weft_dtype same)
{
    switch (wire) {
    case WEFT_CP_WIRE_FP32: return WEFT_F32;
    case WEFT_CP_WIRE_BF16: return WEFT_BF16;
    case WEFT_CP_WIRE_FP16: return WEFT_F16;
    case WEFT_CP_WIRE_FP8: return WEFT_F8_E4M3;
    case WEFT_CP_WIRE_SAME: break;
    }
    return same;
}

weft_dtype weft__cp_kv_type(weft_prec prec, const weft_cp_options *o)
{
    return o->fp8 ? WEFT_F8_E4M3 : dtype_of(o->comm_dtype, weft_prec_compute(prec));
}

weft_dtype weft__cp_grad_type(weft_prec prec, const weft_cp_options *o)
{
    return dtype_of(o->grad_dtype, weft_prec_real(prec));
}

weft_dtype weft__cp_dout_type(weft_prec prec, const weft_cp_options *o)
{
    return o->fp8 ? WEFT_F8_E5M2 : weft_prec_compute(prec);
}

/* Two 16-bit types in each other's place would lose range or digits and save nothing. */
static weft_status check_kv(weft_prec prec, const weft_cp_options *o)
{
    bool bf16_as_fp16 = prec == WEFT_PREC_BF16 && o->comm_dtype == WEFT_CP_WIRE_FP16;
    bool fp16_as_bf16 = prec == WEFT_PREC_F16 && o->comm_dtype == WEFT_CP_WIRE_BF16;
    if (bf16_as_fp16 || fp16_as_bf16)
        return weft_fail(
            WEFT_ERR_REFUSED,
            "attention: K,V are %s; sent as %s they take as many bytes and lose %s; use %s, fp8, or fp32, which "
            "changes no bit",
            weft_prec_name(prec), bf16_as_fp16 ? "fp16" : "bf16", bf16_as_fp16 ? "all above 65504" : "3 digits of 11",
            weft_prec_name(prec));
    if (o->fp8 && o->comm_dtype != WEFT_CP_WIRE_SAME && o->comm_dtype != WEFT_CP_WIRE_FP8)
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention: fp8 is enabled, so K,V travel as fp8; leave the type of K,V on the wire "
                         "out, or set that type alone");
    return WEFT_OK;
}

static weft_status check_grad(const weft_cp_options *o)
{
    if (o->grad_dtype == WEFT_CP_WIRE_FP16 || o->grad_dtype == WEFT_CP_WIRE_FP8)
        return weft_fail(WEFT_ERR_REFUSED, "attention: gradient sums as %s would overflow or vanish; use fp32 or bf16",
                         o->grad_dtype == WEFT_CP_WIRE_FP16 ? "fp16" : "fp8");
    return WEFT_OK;
}

weft_status weft__cp_wire_check(weft_prec prec, const weft_cp_options *o)
{
    WEFT_TRY(check_kv(prec, o));
    return check_grad(o);
}

/* ---- where rows and tensors lie ----------------------------------------------------------------------------- */

static bool is_f8(weft_dtype t) { return weft_dtype_size(t) == 1; }

weft__cp_wire weft__cp_wire_make(weft_dtype type, int tensors, const int *heads, const int *widths)
{
    weft__cp_wire w = {.type = type, .tensors = tensors};
    int64_t size = (int64_t)weft_dtype_size(type);
    for (int t = 0; t < tensors; t++) {
        w.place[t] = (weft_f8){.type = type, .heads = heads[t], .width = widths[t], .scale_at = w.scale_bytes,
                               .row_at = w.row_bytes};
        w.row_bytes += (int64_t)heads[t] * widths[t] * size;
        if (is_f8(type)) w.scale_bytes += heads[t];
    }
    for (int t = 0; t < tensors; t++) {
        w.place[t].scale_bytes = w.scale_bytes;
        w.place[t].row_bytes = w.row_bytes;
    }
    return w;
}

size_t weft__cp_wire_bytes(const weft__cp_wire *w, int64_t rows) { return (size_t)weft_f8_bytes(&w->place[0], rows); }

int64_t weft__cp_wire_rows(const weft__cp_wire *w, size_t bytes)
{
    int64_t n = (int64_t)bytes, group = w->scale_bytes + WEFT_F8_ROWS * w->row_bytes;
    if (w->row_bytes == 0) return 0;
    return n / group * WEFT_F8_ROWS + weft_max_i64(0, n % group - w->scale_bytes) / w->row_bytes;
}

void weft__cp_encode(const weft_cp_plan *plan, const weft__cp_wire *w, int t, void *wire, const void *src,
                     const weft_rows *from, int64_t rows)
{
    const weft_f8 *p = &w->place[t];
    if (is_f8(w->type)) {
        plan->ops->move.f8_encode(wire, p, src, from, rows, &plan->run);
        return;
    }
    const weft_rows to = {.type = w->type, .ld = p->row_bytes / (int64_t)weft_dtype_size(w->type)};
    plan->ops->move.copy((char *)wire + p->row_at, &to, src, from, rows, (int64_t)p->heads * p->width, &plan->run);
}

void weft__cp_decode(const weft_cp_plan *plan, const weft__cp_wire *w, int t, const void *wire, int64_t row0, void *dst,
                     const weft_rows *to, int64_t rows)
{
    const weft_f8 *p = &w->place[t];
    if (is_f8(w->type)) {
        plan->ops->move.f8_decode(dst, to, wire, p, row0, rows, &plan->run);
        return;
    }
    const weft_rows from = {.type = w->type, .ld = p->row_bytes / (int64_t)weft_dtype_size(w->type)};
    plan->ops->move.copy(dst, to, (const char *)wire + p->row_at + row0 * p->row_bytes, &from, rows,
                         (int64_t)p->heads * p->width, &plan->run);
}
