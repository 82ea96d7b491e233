/* dropout.c — dropout of the residual stream: of the embedding, of what attention adds, and of what the feed-forward
 * adds. (Of probabilities it is inside attention.) A mask is a function of its address: seed, step, layer, site,
 * sample, token and channel. So nothing is kept for the backward pass, and masks are the same on any layout, with
 * rows cut over tp, when a layer is made again, and after a resume. */
#include "model/model_impl.h"


static double rate_of(const weft_model *m, weft_site site)
{
    return site == WEFT_SITE_DROP_EMBED ? m->embedding_dropout : m->residual_dropout;
}

bool weft__drops(const weft__pass *p, weft_site site) { return p->training && rate_of(p->m, site) > 0; }

static weft_drop address(const weft__pass *p, weft_site site)
{
    uint32_t layer = (uint32_t)weft_max_i64(p->layer, 0);
    return (weft_drop){.p = rate_of(p->m, site), .seed = p->m->seed, .T = p->shard->T, .sample0 = p->shard->sample0,
                       .word3 = weft_philox_word3(p->step, layer, site)};
}

/* Of the rows of the residual stream that are here, the first is row `begin` of the pass. */
static const int64_t *index_of(const weft__pass *p, int64_t first)
{
    return p->index + weft__stream_rows(p).begin + first;
}

void weft__drop_add(const weft__pass *p, weft_site site, void *to, const void *from, const void *y, int64_t first,
                    int64_t rows)
{
    const weft_model *m = p->m;
    const weft_drop d = address(p, site);
    weft_part outer = weft__part(p, WEFT_PART_RESIDUAL);
    m->op->drop_add(to, from, y, index_of(p, first), rows, m->config.C, &d, m->ctx->threads);
    weft__part_end(p, outer);
}

void weft__residual_gradient(const weft__pass *p, weft_site site)
{
    const weft_model *m = p->m;
    const weft__scratch *s = p->scratch;
    const int64_t rows = weft__stream_count(p), C = m->config.C;
    const bool drops = weft__drops(p, site);
    if (s->dxc == s->dx) return;
    weft_part outer = weft__part(p, WEFT_PART_RESIDUAL);
    if (drops) {
        const weft_drop d = address(p, site);
        m->op->drop_to_compute(s->dxc, s->dx, index_of(p, 0), rows, C, &d, m->ctx->threads);
    } else m->op->to_compute(s->dxc, s->dx, rows * C, m->ctx->threads);
    weft__part_end(p, outer);
}
