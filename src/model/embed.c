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

void weft__embed_fwd(weft__pass *p, void *x)
{
    const weft_model *m = p->m;
    const void *wpe = m->par.wpe >= 0 ? weft__weight(m, m->par.wpe) : NULL;
    weft_part outer = weft__part(p, WEFT_PART_EMBED);
    m->op->embed_fwd(x, p->token, p->pos, weft__weight(m, m->par.wte), wpe, p->rows, m->config.C, m->ctx->threads);
    weft__part_end(p, outer);
}

/* forward: x_i = wte[token_i] + wpe[pos_i]   so   dwte[token_i] += dx_i. With tied embeddings the head has
 * already put its part there. */
void weft__embed_bwd(weft__pass *p, const void *dx)
{
    const weft_model *m = p->m;
    void *dwpe = m->par.wpe >= 0 ? weft__grad(m, m->par.wpe) : NULL;
    weft_part outer = weft__part(p, WEFT_PART_EMBED);
    m->op->embed_bwd(weft__grad(m, m->par.wte), dwpe, p->token, p->pos, dx, p->rows, m->config.C, m->ctx->threads);
    weft__part_end(p, outer);
}
