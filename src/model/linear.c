/* linear.c — y = x W + b, and its derivative.
 *
 *   forward   y = x W (+ b)
 *   so        dx = dy W^T,   dW += x^T dy,   db += column sums of dy
 * Matrices lie as Hugging Face stores them: [out, in] for nn.Linear, [in, out] for GPT-2's Conv1D. The
 * product reads either through its transpose flags; no copy is made at load, so checkpoints need no care.
 *
 * Over ranks of tp (docs/maths/tensor_parallel.md):
 *   columns of W here   y's columns here = x W + b;   dx = sum over ranks of dy W^T
 *   rows of W here      y = sum over ranks of x W, + b once;   dx's columns here = dy W^T */
#include "model/model_impl.h"

#include <string.h>

static weft_status forward_rows(weft_model *m, const weft__linear *lin, int64_t rows, void *y, int64_t y_ld,
                                weft_dtype type, int beta, bool bias, const void *x, int64_t x_ld)
{
    weft_gemm_args g = {
        .ab = m->ct, .c = type, .trans_b = !lin->in_out, .M = rows, .N = lin->out, .K = lin->in,
        .A = x, .lda = x_ld, .B = weft__operand(m, lin->w), .ldb = lin->in_out ? lin->out : lin->in,
        .C = y, .ldc = y_ld, .beta = beta, .bias = bias && lin->b >= 0 ? weft__weight(m, lin->b) : NULL,
    };
    return weft_gemm_run(m->gemm, &g, NULL);
}

/* forward: y = x W   so   dW += x^T dy ([in, out]), or its transpose dy^T x ([out, in]) */
static weft_status weight_gradient(weft_model *m, const weft__linear *lin, int64_t rows, const void *dy, int64_t dy_ld,
                                   const void *x, int64_t x_ld)
{
    weft_gemm_args g = {
        .ab = m->ct, .c = m->rt, .trans_a = true, .K = rows, .C = weft__grad(m, lin->w), .beta = 1,
        .M = lin->in_out ? lin->in : lin->out, .N = lin->in_out ? lin->out : lin->in,
        .A = lin->in_out ? x : dy, .lda = lin->in_out ? x_ld : dy_ld,
        .B = lin->in_out ? dy : x, .ldb = lin->in_out ? dy_ld : x_ld,
        .ldc = lin->in_out ? lin->out : lin->in,
    };
    return weft_gemm_run(m->gemm, &g, NULL);
}

static void bias_of_rows(weft__pass *p, const weft__linear *lin, int64_t rows, const void *dy, int64_t dy_ld)
{
    weft_model *m = p->m;
    if (lin->b < 0) return;
    weft_part outer = weft__part(p, WEFT_PART_BIAS);
    m->op->bias_bwd(weft__grad(m, lin->b), dy, dy_ld, rows, lin->out, p->scratch->work, m->ctx->threads);
    weft__part_end(p, outer);
}

/* forward: y = x W   so   dx = dy W^T */
static weft_status input_gradient(weft_model *m, const weft__linear *lin, int64_t rows, void *dx, int64_t dx_ld,
                                  weft_dtype type, const void *dy, int64_t dy_ld)
{
    weft_gemm_args g = {
        .ab = m->ct, .c = type, .trans_b = lin->in_out, .M = rows, .N = lin->in, .K = lin->out,
        .A = dy, .lda = dy_ld, .B = weft__operand(m, lin->w), .ldb = lin->in_out ? lin->out : lin->in,
        .C = dx, .ldc = dx_ld,
    };
    return weft_gemm_run(m->gemm, &g, NULL);
}

weft_status weft__linear_fwd(weft__pass *p, const weft__linear *lin, void *y, int64_t y_ld, weft_dtype type, int beta,
                             const void *x, int64_t x_ld)
{
    return forward_rows(p->m, lin, p->rows, y, y_ld, type, beta, true, x, x_ld);
}

weft_status weft__linear_bwd(weft__pass *p, const weft__linear *lin, void *dx, int64_t dx_ld, const void *dy,
                             int64_t dy_ld, const void *x, int64_t x_ld)
{
    WEFT_TRY(weight_gradient(p->m, lin, p->rows, dy, dy_ld, x, x_ld));
    bias_of_rows(p, lin, p->rows, dy, dy_ld);
    return dx ? input_gradient(p->m, lin, p->rows, dx, dx_ld, p->m->ct, dy, dy_ld) : WEFT_OK;
}

void weft__bias_gradient(weft__pass *p, const weft__linear *lin, const void *dy)
{
    bias_of_rows(p, lin, p->rows, dy, lin->out);
}

weft_status weft__products_bwd(weft__pass *p, const weft__linear *lin, void *dx, const void *dy, const void *x)
{
    WEFT_TRY(weight_gradient(p->m, lin, p->rows, dy, lin->out, x, lin->in));
    return input_gradient(p->m, lin, p->rows, dx, lin->in, p->m->ct, dy, lin->out);
}

/* ---- columns of W are here ------------------------------------------------------------------------------- */

weft_status weft__columns_fwd(weft__pass *p, const weft__linear *lin, void *y, const void *x)
{
    weft_model *m = p->m;
    int64_t C = lin->in, N = lin->out;
    if (p->shares == 1) return weft__linear_fwd(p, lin, y, N, m->ct, 0, x, C);
    for (weft__chunk c = weft__chunk_first(p, m->tp.chunk); c.rows > 0; c = weft__chunk_next(p, &c)) {
        const void *rows;
        WEFT_TRY(weft__guard_share(p, &c, x, m->ct, false));
        WEFT_TRY(weft__tp_gather(p, &c, x, m->ct, &rows));
        for (weft__block b = {0}; weft__block_next(&c, &b);)
            WEFT_TRY(forward_rows(m, lin, b.rows, weft__at(y, b.row * N, m->cs), N, m->ct, 0, true,
                                  weft__from(rows, b.at * C, m->cs), C));
    }
    return WEFT_OK;
}

/* Rows of dx of this rank's share are complete in R, wherever that is, and go to dx in C. */
static weft_status sum_inputs(weft__pass *p, const weft__chunk *c, void *dx, void *partial)
{
    weft_model *m = p->m;
    int64_t C = m->config.C;
    void *own = weft__at(dx, c->first * C, m->cs), *to = weft__at(partial, c->own_at * C, m->rs);
    if (m->rt == m->ct) return weft__tp_sum(p, c, partial, own, true);
    WEFT_TRY(weft__tp_sum(p, c, partial, to, true));
    weft_part outer = weft__part(p, WEFT_PART_RESIDUAL);
    m->op->to_compute(own, to, c->own * C, m->ctx->threads);
    weft__part_end(p, outer);
    return WEFT_OK;
}

weft_status weft__columns_bwd_chunk(weft__pass *p, const weft__linear *lin, const weft__chunk *c, void *dx,
                                    const void *dy, bool dy_in_chunk, const void *rows)
{
    weft_model *m = p->m;
    int64_t C = lin->in, N = lin->out;
    weft__chunk together = {.rows = c->rows, .whole = true};
    const weft__chunk *blocks = dy_in_chunk ? &together : c;
    /* Where dx is in R it can take the sum over all ranks in place; the gathered rows are used up by then. */
    void *partial = m->rt == m->ct && c->shares == 1 ? weft__at(dx, c->first * C, m->rs) : m->tp.buffer;
    for (weft__block b = {0}; weft__block_next(blocks, &b);)
        WEFT_TRY(weight_gradient(m, lin, b.rows, weft__from(dy, b.row * N, m->cs), N, weft__from(rows, b.at * C, m->cs),
                                 C));
    for (weft__block b = {0}; weft__block_next(blocks, &b);)
        WEFT_TRY(input_gradient(m, lin, b.rows, weft__at(partial, b.at * C, m->rs), C, m->rt,
                                weft__from(dy, b.row * N, m->cs), N));
    return sum_inputs(p, c, dx, partial);
}

weft_status weft__columns_bwd(weft__pass *p, const weft__linear *lin, void *dx, const void *dy, const void *x)
{
    weft_model *m = p->m;
    if (m->share.tps == 1) return weft__linear_bwd(p, lin, dx, lin->in, dy, lin->out, x, lin->in);
    bias_of_rows(p, lin, p->rows, dy, lin->out);
    for (weft__chunk c = weft__chunk_first(p, m->tp.chunk); c.rows > 0; c = weft__chunk_next(p, &c)) {
        const void *rows;
        WEFT_TRY(weft__tp_gather(p, &c, x, m->ct, &rows));
        WEFT_TRY(weft__columns_bwd_chunk(p, lin, &c, dx, dy, false, rows));
    }
    return WEFT_OK;
}

/* ---- rows of W are here ---------------------------------------------------------------------------------- */

/* What is added once, the stream itself and the bias, goes in with one rank's part of the sum. */
static weft_status add_everywhere(weft__pass *p, const weft__linear *lin, void *to, const void *from, const void *x)
{
    weft_model *m = p->m;
    bool once = m->share.tp == 0;
    weft__chunk all = weft__chunk_first(p, p->rows);
    if (once) weft__residual_copy(p, to, from);
    WEFT_TRY(forward_rows(m, lin, p->rows, to, lin->out, m->rt, once, once || WEFT_PLANTED(tp_bias_every_rank), x,
                          lin->in));
    return m->share.tps == 1 || p->rows == 0 ? WEFT_OK : weft__tp_sum(p, &all, to, to, false);
}

/* The rank whose rows they are brings them. x begins with the pass's first row, or with the chunk's. */
static weft_status add_to_shares(weft__pass *p, const weft__linear *lin, const weft__chunk *c, void *to,
                                 const void *from, const void *x, bool x_in_chunk)
{
    weft_model *m = p->m;
    int64_t C = lin->out, K = lin->in;
    weft__chunk apart = *c;
    apart.whole = false;
    for (weft__block b = {0}; weft__block_next(&apart, &b);) {
        bool own = b.share == m->share.tp;
        void *y = weft__at(m->tp.buffer, b.at * C, m->rs);
        if (own) memcpy(y, weft__from(from, c->first * C, m->rs), (size_t)(b.rows * C) * m->rs);
        WEFT_TRY(forward_rows(m, lin, b.rows, y, C, m->rt, own, own || WEFT_PLANTED(tp_bias_every_rank),
                              weft__from(x, (x_in_chunk ? b.at : b.row) * K, m->cs), K));
    }
    return weft__tp_sum(p, c, m->tp.buffer, weft__at(to, c->first * C, m->rs), false);
}

/* What is added has to be complete, over all ranks, before it is dropped. */
static weft_status add_dropped(weft__pass *p, const weft__linear *lin, weft_site site, const weft__chunk *c, void *to,
                               const void *from, const void *x, bool x_in_chunk)
{
    weft_model *m = p->m;
    int64_t C = lin->out, K = lin->in, at = c->first * C;
    bool once = m->share.tp == 0 || WEFT_PLANTED(tp_bias_every_rank);
    void *sum = m->share.tps > 1 ? m->tp.buffer : p->scratch->branch, *own = weft__at(sum, c->own_at * C, m->rs);
    for (weft__block b = {0}; weft__block_next(c, &b);)
        WEFT_TRY(forward_rows(m, lin, b.rows, weft__at(sum, b.at * C, m->rs), C, m->rt, 0, once,
                              weft__from(x, (x_in_chunk ? b.at : b.row) * K, m->cs), K));
    if (m->share.tps > 1) WEFT_TRY(weft__tp_sum(p, c, sum, own, false));
    weft__drop_add(p, site, weft__at(to, at, m->rs), weft__from(from, at, m->rs), own, c->first, c->own);
    return WEFT_OK;
}

static weft_status rows_dropped(weft__pass *p, const weft__linear *lin, weft_site site, void *to, const void *from,
                                const void *x)
{
    int64_t most = p->m->share.tps > 1 ? p->m->tp.chunk : p->scratch->branch_rows;
    for (weft__chunk c = weft__chunk_first(p, most); c.rows > 0; c = weft__chunk_next(p, &c))
        WEFT_TRY(add_dropped(p, lin, site, &c, to, from, x, false));
    return WEFT_OK;
}

weft_status weft__rows_fwd(weft__pass *p, const weft__linear *lin, weft_site site, void *to, const void *from,
                           const void *x)
{
    if (weft__drops(p, site)) return rows_dropped(p, lin, site, to, from, x);
    if (p->shares == 1) return add_everywhere(p, lin, to, from, x);
    for (weft__chunk c = weft__chunk_first(p, p->m->tp.chunk); c.rows > 0; c = weft__chunk_next(p, &c))
        WEFT_TRY(add_to_shares(p, lin, &c, to, from, x, false));
    return WEFT_OK;
}

weft_status weft__rows_fwd_chunk(weft__pass *p, const weft__linear *lin, weft_site site, const weft__chunk *c,
                                 void *to, const void *from, const void *x)
{
    if (c->shares > 1 && weft__drops(p, site)) return add_dropped(p, lin, site, c, to, from, x, true);
    if (c->shares > 1) return add_to_shares(p, lin, c, to, from, x, true);
    weft__pass part = *p;
    int64_t at = c->first * lin->out;
    part.rows = c->rows;
    if (part.index) part.index += c->first;
    return weft__rows_fwd(&part, lin, site, weft__at(to, at, p->m->rs), weft__from(from, at, p->m->rs), x);
}

weft_status weft__rows_bwd(weft__pass *p, const weft__linear *lin, void *dx, const void *dy, const void *x)
{
    weft_model *m = p->m;
    int64_t C = lin->out, K = lin->in;
    if (p->shares == 1) return weft__linear_bwd(p, lin, dx, K, dy, C, x, K);
    bias_of_rows(p, lin, weft__stream_count(p), dy, C);
    for (weft__chunk c = weft__chunk_first(p, m->tp.chunk); c.rows > 0; c = weft__chunk_next(p, &c)) {
        const void *rows;
        WEFT_TRY(weft__guard_share(p, &c, dy, m->ct, true));
        WEFT_TRY(weft__tp_gather(p, &c, dy, m->ct, &rows));
        for (weft__block b = {0}; weft__block_next(&c, &b);) {
            WEFT_TRY(weight_gradient(m, lin, b.rows, weft__from(rows, b.at * C, m->cs), C,
                                     weft__from(x, b.row * K, m->cs), K));
            WEFT_TRY(input_gradient(m, lin, b.rows, weft__at(dx, b.row * K, m->cs), K, m->ct,
                                    weft__from(rows, b.at * C, m->cs), C));
        }
    }
    return WEFT_OK;
}
