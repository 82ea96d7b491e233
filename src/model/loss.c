/* loss.c — head and cross-entropy, by chunks of rows, so that the logits of all tokens never exist at once.
 *
 * A chunk's logits are made, turned into their own gradient, and used up at once: dW += dlogits^T n and
 * dn = dlogits W, which replaces the chunk's rows of n. [S,V] in fp32 is the first wall at long context
 * (131,072 rows of 248,320 logits: 130 GB).
 *
 * The contract of the loss: the sum of nll over this rank's valid rows; gradients of sum * grad_scale,
 * where grad_scale is 1 / (valid rows of the whole step over all ranks). A row without a label, and a rank
 * without one, adds exactly 0: rows are selected, never multiplied by 0. */
#include <math.h>
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

static weft_status loss_by_rows(weft__pass *p, const int32_t *target, bool backward, double grad_scale)
{
    weft_model *m = p->m;
    for (int64_t first = 0; first < p->rows; first += m->chunk) {
        weft__pass part = *p;
        part.rows = weft_min_i64(m->chunk, p->rows - first);
        WEFT_TRY(chunk_loss(&part, weft__at(m->n_out, first * m->config.C, m->cs), weft__at(m->nll, first, m->rs),
                            target + first, backward, grad_scale));
    }
    return WEFT_OK;
}

/* ---- the vocabulary is cut over ranks --------------------------------------------------------------------
 *
 * Each rank has the logits of its entries for all rows of a chunk, and their largest, the sum of their exponentials
 * and perhaps the target's. All ranks get those of all and merge them in the order of ranks: the same nll everywhere,
 * bit by bit. */

/* m = max m_r, l = sum l_r exp(m_r - m), target's logit = sum of what one rank has and others have as 0 */
static void merge(const double *all, int ranks, int64_t rows, int64_t row, double out[3])
{
    const double *s = all + 3 * row;
    out[0] = s[0];
    for (int r = 1; r < ranks; r++) out[0] = fmax(out[0], s[3 * rows * r]);
    out[1] = out[2] = 0;
    for (int r = 0; r < ranks; r++, s += 3 * rows) {
        if (s[0] > -INFINITY) out[1] += s[1] * exp(s[0] - out[0]);
        else out[1] += s[1]; /* nothing there but -inf, and NaN if there is one */
        out[2] += s[2];
    }
}

static void merge_rows(weft__pass *p, const weft__chunk *c)
{
    weft_model *m = p->m;
    double *all = m->tp.stats, *whole = all + 3 * c->rows * m->share.tps;
    for (weft__block b = {0}; weft__block_next(c, &b);)
        for (int64_t i = b.at; i < b.at + b.rows; i++) {
            double *w = whole + 3 * i;
            merge(all, m->share.tps, c->rows, i, w);
            weft_store(m->nll, m->rt, b.row + i - b.at, m->tp.id[i] < 0 ? 0 : log(w[1]) - (w[2] - w[0]));
        }
}

static void no_labels(weft__pass *p, const weft__chunk *c, bool backward)
{
    weft_model *m = p->m;
    int64_t C = m->config.C;
    for (weft__block b = {0}; weft__block_next(c, &b);)
        memset(weft__at(m->nll, b.row, m->rs), 0, (size_t)b.rows * m->rs);
    if (backward) memset(weft__at(m->n_out, c->first * C, m->cs), 0, (size_t)(c->own * C) * m->cs);
}

static weft_status chunk_loss_tp(weft__pass *p, const weft__chunk *c, const int32_t *target, bool backward,
                                 double grad_scale)
{
    weft_model *m = p->m;
    int64_t C = m->config.C, V = m->par.head.out, first = m->par.cut.V.begin, n = c->rows;
    double *own = m->tp.stats + 3 * n * m->share.tp, *whole = m->tp.stats + 3 * n * m->share.tps;
    const void *rows;
    for (weft__block b = {0}; weft__block_next(c, &b);)
        memcpy(m->tp.id + b.at, target + b.row, (size_t)b.rows * sizeof *target);
    if (!any_label(m->tp.id, n)) { /* on all ranks of tp alike */
        no_labels(p, c, backward);
        return WEFT_OK;
    }
    WEFT_TRY(weft__guard_share(p, c, m->n_out, m->ct, false));
    WEFT_TRY(weft__tp_gather(p, c, m->n_out, m->ct, &rows));
    weft__pass part = *p;
    part.rows = n;
    WEFT_TRY(weft__linear_fwd(&part, &m->par.head, m->logits, V, m->rt, 0, rows, C));
    weft_part outer = weft__part(p, WEFT_PART_LOSS);
    m->op->xent_part(own, backward, m->logits, V, m->tp.id, first, n, V, m->ctx->threads);
    weft_status st = weft__tp_stats(p, own, m->tp.stats, n);
    if (st >= 0) merge_rows(p, c);
    if (st >= 0 && backward)
        m->op->xent_part_bwd(m->dlogits, V, m->logits, V, m->tp.id, first, own, whole, grad_scale, n, V,
                             m->ctx->threads);
    weft__part_end(p, outer);
    if (st < 0 || !backward) return st;
    return weft__columns_bwd_chunk(p, &m->par.head, c, m->n_out, m->dlogits, true, rows);
}

static weft_status loss_tp(weft__pass *p, const int32_t *target, bool backward, double grad_scale)
{
    for (weft__chunk c = weft__chunk_first(p, p->m->chunk / p->shares); c.rows > 0; c = weft__chunk_next(p, &c))
        WEFT_TRY(chunk_loss_tp(p, &c, target, backward, grad_scale));
    return WEFT_OK;
}

/* ---- the loss ------------------------------------------------------------------------------------------------ */

weft_status weft__loss_alloc(weft_model *m)
{
    int64_t V = m->par.head.out;
    const int shares = m->tp.shares;
    m->chunk = weft__loss_chunk(weft_max_i64(V, 1), m->rs, m->rows_max);
    if (m->share.tps > 1) { /* rows of all shares alike, as many as travel at once at most */
        int64_t chunk = weft_min_i64(weft_ceil_div(m->chunk, shares), m->tp.chunk);
        m->chunk = chunk * shares;
        WEFT_TRY(WEFT_NEW(m->buffers, 3 * m->chunk * (m->share.tps + 1), "loss", &m->tp.stats));
    }
    WEFT_TRY(weft_arena_alloc(m->buffers, m->rows_max, m->rs, "loss", &m->nll));
    WEFT_TRY(weft_arena_alloc(m->buffers, m->chunk * V, m->rs, "logits", &m->logits));
    m->dlogits = m->logits;
    if (!m->train || m->rt == m->ct) return WEFT_OK;
    return weft_arena_alloc(m->buffers, m->chunk * V, m->cs, "logits", &m->dlogits);
}

weft_status weft__loss(weft__pass *p, const int32_t *target, bool backward, double grad_scale, double *nll_sum)
{
    weft_model *m = p->m;
    WEFT_TRY((m->share.tps > 1 ? loss_tp : loss_by_rows)(p, target, backward, grad_scale));
    *nll_sum = sum_of(m->nll, m->rt, p->rows);
    return WEFT_OK;
}
