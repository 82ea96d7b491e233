/* mlp_tiles.c — the feed-forward half for some rows at a time: what is as wide as F exists for a tile only, and is
 * made again in the backward pass, tile by tile. At C = 4096, F = 14336 and 131,072 rows gate and up alone are 7.5
 * GB in bf16.
 *
 * A tile is a chunk of rows that travel together (tp.c): with sequence parallelism some of every share, gathered,
 * and in the order of ranks, so that everything between gathering and adding up is dense. Rows of results are those
 * of the product over all rows, as far as the product's arithmetic for a row does not depend on how many there are;
 * gradients of weights are added up tile by tile, and differ from one long sum by rounding. */
#include "model/model_impl.h"

static weft__chunk first_tile(const weft__pass *p) { return weft__chunk_first(p, p->tile / p->shares); }

/* n2 of a tile's rows -> up -> act. */
static weft_status make(weft__pass *p, const weft__layer *y, const weft__chunk *c, weft__acts *a)
{
    const void *rows;
    weft__pass part = *p;
    part.rows = c->rows;
    WEFT_TRY(weft__tp_gather(p, c, a->n2, p->m->ct, &rows));
    WEFT_TRY(weft__linear_fwd(&part, &y->up, a->up, y->up.out, p->m->ct, 0, rows, y->up.in));
    weft__act_fwd(p, p->scratch->act, a->up, c->rows);
    return WEFT_OK;
}

weft_status weft__mlp_tiles_fwd(weft__pass *p, const weft__layer *y, weft__acts *a, void *x_out)
{
    for (weft__chunk c = first_tile(p); c.rows > 0; c = weft__chunk_next(p, &c)) {
        WEFT_TRY(make(p, y, &c, a));
        WEFT_TRY(weft__rows_fwd_chunk(p, &y->down, WEFT_SITE_DROP_MLP, &c, x_out, a->x_mid, p->scratch->act));
    }
    return WEFT_OK;
}

static weft_status tile_bwd(weft__pass *p, const weft__layer *y, const weft__chunk *c, weft__acts *a)
{
    weft__scratch *s = p->scratch;
    const void *rows;
    weft__pass part = *p;
    part.rows = c->rows;
    WEFT_TRY(make(p, y, c, a));
    WEFT_TRY(weft__tp_gather(p, c, s->dxc, p->m->ct, &rows));
    WEFT_TRY(weft__products_bwd(&part, &y->down, s->act, rows, s->act));
    const void *dup = weft__act_bwd(p, s->act, a->up, c->rows);
    WEFT_TRY(weft__tp_gather(p, c, a->n2, p->m->ct, &rows));
    weft__bias_gradient(&part, &y->up, dup);
    if (p->m->share.tps > 1) return weft__columns_bwd_chunk(p, &y->up, c, s->dn, dup, true, rows);
    return weft__products_bwd(&part, &y->up, weft__at(s->dn, c->first * y->up.in, p->m->cs), dup, rows);
}

weft_status weft__mlp_tiles_bwd(weft__pass *p, const weft__layer *y, weft__acts *a)
{
    weft__pass stream = *p;
    stream.rows = weft__stream_count(p);
    weft__bias_gradient(&stream, &y->down, p->scratch->dxc);
    for (weft__chunk c = first_tile(p); c.rows > 0; c = weft__chunk_next(p, &c)) WEFT_TRY(tile_bwd(p, y, &c, a));
    return WEFT_OK;
}
