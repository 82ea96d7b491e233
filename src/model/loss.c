/* loss.c — head and cross-entropy, by chunks of rows, so that the logits of all tokens never exist at once.
 *
 * A chunk's logits are made, turned into their own gradient, and used up at once: dW += dlogits^T n and
 * dn = dlogits W, which replaces the chunk's rows of n. [S,V] in fp32 is the first wall at long context
 * (131,072 rows of 248,320 logits: 130 GB).
 *
 * The contract of the loss: the sum of nll over this rank's valid rows; gradients of sum * grad_scale,
 * where grad_scale is 1 / (valid rows of the whole step over all ranks). A row without a label, and a rank
 * without one, adds exactly 0: rows are selected, never multiplied by 0. */
#include <string.h>

#include "model/model_impl.h"

/* Bytes of one chunk of logits. Once per chunk the head [V,C] is read twice and its gradient read and written, which
 * costs as much as the arithmetic at some 60 rows. 64 MiB are 333 rows of V = 50,257, 130 of V = 128,256; a step of a
 * GPT-2 of one layer was 10 to 20 % faster than with 32 MiB, and no faster with 128. */
static const int64_t chunk_bytes = 64 << 20;
static const int64_t chunk_rows_min = 16;

int64_t weft__loss_chunk(int64_t V, size_t element, int64_t rows)
{
    int64_t n = weft_max_i64(chunk_bytes / (V * (int64_t)element), chunk_rows_min);
    return weft_max_i64(weft_min_i64(n, rows), 1);
}

static bool any_label(const int32_t *target, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        if (target[i] >= 0) return true;
    return false;
}

static double sum_of(const void *nll, weft_dtype type, int64_t rows)
{
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) sum += weft_load(nll, type, i);
    return sum;
}

/* p holds the chunk's rows; n (C) [rows, C] becomes its gradient when backward. */
static weft_status chunk_loss(weft__pass *p, void *n, void *nll, const int32_t *target, bool backward,
                              double grad_scale)
{
    weft_model *m = p->m;
    int64_t V = m->config.V, C = m->config.C;
    if (!any_label(target, p->rows)) {
        memset(nll, 0, (size_t)p->rows * m->rs);
        if (backward) memset(n, 0, (size_t)(p->rows * C) * m->cs);
        return WEFT_OK;
    }
    WEFT_TRY(weft__linear_fwd(p, &m->par.head, m->logits, V, m->rt, 0, n, C));
    weft_part outer = weft__part(p, WEFT_PART_LOSS);
    m->op->xent(nll, backward ? m->dlogits : NULL, V, m->logits, V, target, grad_scale, p->rows, V, m->ctx->threads);
    weft__part_end(p, outer);
    return backward ? weft__linear_bwd(p, &m->par.head, n, C, m->dlogits, V, n, C) : WEFT_OK;
}

weft_status weft__loss(weft__pass *p, const int32_t *target, bool backward, double grad_scale, double *nll_sum)
{
    weft_model *m = p->m;
    for (int64_t first = 0; first < p->rows; first += m->chunk) {
        weft__pass part = *p;
        part.rows = weft_min_i64(m->chunk, p->rows - first);
        WEFT_TRY(chunk_loss(&part, weft__at(m->n_out, first * m->config.C, m->cs), weft__at(m->nll, first, m->rs),
                            target + first, backward, grad_scale));
    }
    *nll_sum = sum_of(m->nll, m->rt, p->rows);
    return WEFT_OK;
}
