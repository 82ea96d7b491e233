/* embed.c — tokens to rows of the residual stream: a look-up, plus GPT-2's learned positions. */
#include "model/model_impl.h"

weft_status weft__tokens_check(const weft_model *m, const int32_t *token, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        if (token[i] < 0 || token[i] >= m->config.V)
            return weft_fail(WEFT_ERR_REFUSED, "token %lld of rank %d is %d; ids below %lld (the vocabulary) work",
                             (long long)i, m->ctx->rank, (int)token[i], (long long)m->config.V);
    return WEFT_OK;
}

/* Looks at the segments of all ranks, so that all ranks refuse alike. */
weft_status weft__positions_check(const weft_model *m, const weft_shard *shard)
{
    if (!m->family->learned_positions) return WEFT_OK;
    for (int64_t i = 0; i < shard->first[shard->P]; i++) {
        const weft_segment *s = &shard->seg[i];
        int64_t last = s->start + weft_segment_step(s, s->len - 1);
        if (s->len > 0 && last >= m->config.max_position)
            return weft_fail(WEFT_ERR_REFUSED,
                             "a document reaches position %lld; this model has learned positions below "
                             "%s = %lld only",
                             (long long)last, m->family->keys->max_position, (long long)m->config.max_position);
    }
    return WEFT_OK;
}

/* Ids of a block of rows as rows of the table's part here; negative where another rank has them. */
static const int32_t *ids_here(const weft__pass *p, const weft__block *b)
{
    const weft_model *m = p->m;
    const int32_t *token = p->token + b->row;
    weft_span V = m->par.cut.V;
    if (m->share.tps == 1) return token;
    for (int64_t i = 0; i < b->rows; i++)
        m->tp.id[i] = token[i] >= V.begin && token[i] < V.end ? token[i] - (int32_t)V.begin : -1;
    return m->tp.id;
}

/* x_i = wte[token_i] + wpe[pos_i], each part of the sum by the rank that has it. */
static void look_up(weft__pass *p, const weft__chunk *c, void *x)
{
    const weft_model *m = p->m;
    const void *wpe = m->par.wpe >= 0 && m->share.tp == 0 ? weft__weight(m, m->par.wpe) : NULL;
    weft_part outer = weft__part(p, WEFT_PART_EMBED);
    for (weft__block b = {0}; weft__block_next(c, &b);)
        m->op->embed_fwd(weft__at(x, b.at * m->config.C, m->rs), ids_here(p, &b), p->pos + b.row,
                         weft__weight(m, m->par.wte), wpe, b.rows, m->config.C, m->ctx->threads);
    weft__part_end(p, outer);
}

static int64_t rows_at_once(const weft__pass *p) { return p->m->share.tps == 1 ? p->rows : p->m->tp.chunk; }

weft_status weft__embed_fwd(weft__pass *p, void *x)
{
    weft_model *m = p->m;
    for (weft__chunk c = weft__chunk_first(p, rows_at_once(p)); c.rows > 0; c = weft__chunk_next(p, &c)) {
        void *to = weft__at(x, c.first * m->config.C, m->rs), *whole = p->shares == 1 ? to : m->tp.buffer;
        look_up(p, &c, whole);
        if (m->share.tps > 1) WEFT_TRY(weft__tp_sum(p, &c, whole, to, false));
    }
    if (weft__drops(p, WEFT_SITE_DROP_EMBED))
        weft__drop_add(p, WEFT_SITE_DROP_EMBED, x, NULL, x, 0, weft__stream_count(p));
    return WEFT_OK;
}

/* forward: x_i = wte[token_i] + wpe[pos_i]   so   dwte[token_i] += dx_i. With tied embeddings the head has
 * already put its part there. dx comes from all ranks' rows: dwte and dwpe are complete for what is here. */
weft_status weft__embed_bwd(weft__pass *p, void *dx)
{
    weft_model *m = p->m;
    void *dwpe = m->par.wpe >= 0 ? weft__grad(m, m->par.wpe) : NULL;
    if (weft__drops(p, WEFT_SITE_DROP_EMBED))
        weft__drop_add(p, WEFT_SITE_DROP_EMBED, dx, NULL, dx, 0, weft__stream_count(p));
    for (weft__chunk c = weft__chunk_first(p, rows_at_once(p)); c.rows > 0; c = weft__chunk_next(p, &c)) {
        const void *rows;
        WEFT_TRY(weft__guard_share(p, &c, dx, m->rt, true));
        WEFT_TRY(weft__tp_gather(p, &c, dx, m->rt, &rows));
        weft_part outer = weft__part(p, WEFT_PART_EMBED);
        for (weft__block b = {0}; weft__block_next(&c, &b);)
            m->op->embed_bwd(weft__grad(m, m->par.wte), dwpe, ids_here(p, &b), p->pos + b.row,
                             weft__from(rows, b.at * m->config.C, m->rs), b.rows, m->config.C, m->ctx->threads);
        weft__part_end(p, outer);
    }
    return WEFT_OK;
}
