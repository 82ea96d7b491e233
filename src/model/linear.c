/* linear.c — y = x W + b, and its derivative.
 *
 *   forward   y = x W (+ b)
 *   so        dx = dy W^T,   dW += x^T dy,   db += column sums of dy
 * Matrices lie as Hugging Face stores them: [out, in] for nn.Linear, [in, out] for GPT-2's Conv1D. The
 * product reads either through its transpose flags; no copy is made at load, so checkpoints need no care. */
#include "model/model_impl.h"

weft_status weft__linear_fwd(weft__pass *p, const weft__linear *lin, void *y, int64_t y_ld, weft_dtype type, int beta,
                             const void *x, int64_t x_ld)
{
    weft_model *m = p->m;
    weft_gemm_args g = {
        .ab = m->ct, .c = type, .trans_b = !lin->in_out, .M = p->rows, .N = lin->out, .K = lin->in,
        .A = x, .lda = x_ld, .B = weft__operand(m, lin->w), .ldb = lin->in_out ? lin->out : lin->in,
        .C = y, .ldc = y_ld, .beta = beta, .bias = lin->b >= 0 ? weft__weight(m, lin->b) : NULL,
    };
    return weft_gemm_run(m->gemm, &g, NULL);
}

/* forward: y = x W   so   dW += x^T dy ([in, out]), or its transpose dy^T x ([out, in]) */
static weft_status weight_gradient(weft__pass *p, const weft__linear *lin, const void *dy, int64_t dy_ld, const void *x,
                                   int64_t x_ld)
{
    weft_model *m = p->m;
    weft_gemm_args g = {
        .ab = m->ct, .c = m->rt, .trans_a = true, .K = p->rows, .C = weft__grad(m, lin->w), .beta = 1,
        .M = lin->in_out ? lin->in : lin->out, .N = lin->in_out ? lin->out : lin->in,
        .A = lin->in_out ? x : dy, .lda = lin->in_out ? x_ld : dy_ld,
        .B = lin->in_out ? dy : x, .ldb = lin->in_out ? dy_ld : x_ld,
        .ldc = lin->in_out ? lin->out : lin->in,
    };
    return weft_gemm_run(m->gemm, &g, NULL);
}

weft_status weft__linear_bwd(weft__pass *p, const weft__linear *lin, void *dx, int64_t dx_ld, const void *dy,
                             int64_t dy_ld, const void *x, int64_t x_ld)
{
    weft_model *m = p->m;
    WEFT_TRY(weight_gradient(p, lin, dy, dy_ld, x, x_ld));
    if (lin->b >= 0) {
        weft_part outer = weft__part(p, WEFT_PART_BIAS);
        m->op->bias_bwd(weft__grad(m, lin->b), dy, dy_ld, p->rows, lin->out, p->scratch->work, m->ctx->threads);
        weft__part_end(p, outer);
    }
    if (!dx) return WEFT_OK;
    /* forward: y = x W   so   dx = dy W^T */
    weft_gemm_args g = {
        .ab = m->ct, .c = m->ct, .trans_b = lin->in_out, .M = p->rows, .N = lin->in, .K = lin->out,
        .A = dy, .lda = dy_ld, .B = weft__operand(m, lin->w), .ldb = lin->in_out ? lin->out : lin->in,
        .C = dx, .ldc = dx_ld,
    };
    return weft_gemm_run(m->gemm, &g, NULL);
}
