/* bytes.c — what the passes of a micro-batch send from a rank. Passes are followed here as run.c, block.c, linear.c,
 * mlp_tiles.c and loss.c run them, with the chunks that those cut (tp.c); attention's messages are its plans' own
 * lists.
 *
 * An all-reduce of a chunk sends what its rounding to shares gives, so chunks are walked through one by one. */
#include "model/model_impl.h"

typedef struct tally { /* one pass over a stage, with what it has sent over tp so far */
    weft__pass p;
    int64_t bytes;
} tally;

/* ---- chunks -------------------------------------------------------------------------------------------------- */

/* weft__tp_gather, weft__tp_sum of one chunk. */
static void gather_chunk(tally *t, const weft__chunk *c, size_t size)
{
    const weft_model *m = t->p.m;
    if (c->shares > 1) t->bytes += c->own * m->config.C * (int64_t)size * (m->share.tps - 1);
}

static void sum_chunk(tally *t, const weft__chunk *c)
{
    const weft_model *m = t->p.m;
    const int64_t C = m->config.C;
    if (c->shares > 1) t->bytes += (c->rows - c->own) * C * (int64_t)m->rs;
    else t->bytes += weft_all_reduce_bytes(m->share.tps, m->share.tp, c->rows * C, m->rs);
}

/* Of all rows of the pass, `most` of a share at a time. */
static void gather_rows(tally *t, int64_t most, size_t size)
{
    for (weft__chunk c = weft__chunk_first(&t->p, most); c.rows > 0; c = weft__chunk_next(&t->p, &c))
        gather_chunk(t, &c, size);
}

static void sum_rows(tally *t, int64_t most)
{
    for (weft__chunk c = weft__chunk_first(&t->p, most); c.rows > 0; c = weft__chunk_next(&t->p, &c)) sum_chunk(t, &c);
}

/* ---- products ------------------------------------------------------------------------------------------------ */

static void columns_fwd(tally *t) { gather_rows(t, t->p.m->tp.chunk, t->p.m->cs); }

static void columns_bwd(tally *t)
{
    gather_rows(t, t->p.m->tp.chunk, t->p.m->cs);
    sum_rows(t, t->p.m->tp.chunk);
}

static void rows_fwd(tally *t, weft_site site)
{
    bool everywhere = t->p.shares == 1 && !weft__drops(&t->p, site);
    if (t->p.rows > 0) sum_rows(t, everywhere ? t->p.rows : t->p.m->tp.chunk);
}

static void rows_bwd(tally *t) { gather_rows(t, t->p.m->tp.chunk, t->p.m->cs); }

/* ---- a layer's halves ---------------------------------------------------------------------------------------- */

/* The feed-forward, tile by tile: its rows are gathered once forward, three times backward, and added up once each. */
static void mlp_tiles(tally *t, int gathers, bool backward)
{
    for (weft__chunk c = weft__chunk_first(&t->p, t->p.tile / t->p.shares); c.rows > 0;
         c = weft__chunk_next(&t->p, &c)) {
        tally part = *t;
        for (int i = 0; i < gathers; i++) gather_chunk(t, &c, t->p.m->cs);
        part.p.rows = c.rows, part.bytes = 0;
        if (backward || c.shares > 1) sum_chunk(t, &c);
        else rows_fwd(&part, WEFT_SITE_DROP_MLP), t->bytes += part.bytes;
    }
}

static void mlp_again(tally *t)
{
    if (!t->p.tile) columns_fwd(t);
}

static void mlp_fwd(tally *t)
{
    mlp_again(t);
    if (t->p.tile) mlp_tiles(t, 1, false);
    else rows_fwd(t, WEFT_SITE_DROP_MLP);
}

static void mlp_bwd(tally *t)
{
    if (t->p.tile) mlp_tiles(t, 3, true);
    else rows_bwd(t), columns_bwd(t);
}

static void attention_inside(tally *t) { columns_fwd(t); }
static void attention_out(tally *t) { rows_fwd(t, WEFT_SITE_DROP_RESIDUAL); }

static void layer_fwd(tally *t)
{
    attention_inside(t);
    attention_out(t);
    mlp_fwd(t);
}

static void layer_bwd(tally *t)
{
    const weft_model *m = t->p.m;
    const bool mid = m->recompute == WEFT_RECOMPUTE_FULL, first = mid && !m->keep_attention;
    if (first) attention_inside(t);
    if (mid) attention_out(t);
    if (m->recompute >= WEFT_RECOMPUTE_BLOCK) mlp_again(t);
    mlp_bwd(t);
    if (m->recompute >= WEFT_RECOMPUTE_ATTENTION && !first) attention_inside(t);
    rows_bwd(t);
    columns_bwd(t);
}

/* ---- both ends ----------------------------------------------------------------------------------------------- */

static bool any_label(const weft__chunk *c, const int32_t *target)
{
    for (weft__block b = {0}; weft__block_next(c, &b);)
        for (int64_t i = b.row; i < b.row + b.rows; i++)
            if (!target || target[i] >= 0) return true;
    return false;
}

/* A chunk without a label is left out, on all ranks of tp alike. */
static void loss(tally *t, const int32_t *target)
{
    const weft_model *m = t->p.m;
    for (weft__chunk c = weft__chunk_first(&t->p, m->chunk / t->p.shares); c.rows > 0;
         c = weft__chunk_next(&t->p, &c)) {
        if (!any_label(&c, target)) continue;
        gather_chunk(t, &c, m->cs);
        t->bytes += c.rows * 3 * (int64_t)sizeof(double) * (m->share.tps - 1);
        sum_chunk(t, &c);
    }
}

static int64_t tp_bytes(weft_model *m, const weft_model_seat *seat)
{
    tally t = {.p = {.m = m, .rows = seat->shard->rows[seat->cp], .shares = m->tp.shares, .tile = m->tile,
                     .training = true}};
    if (m->share.tps == 1) return 0;
    if (m->first_stage) sum_rows(&t, m->tp.chunk), gather_rows(&t, m->tp.chunk, m->rs);
    for (int64_t l = m->layers.begin; l < m->layers.end; l++) layer_fwd(&t), layer_bwd(&t);
    if (m->last_stage) loss(&t, seat->target);
    return t.bytes;
}

/* ---- attention ----------------------------------------------------------------------------------------------- */

static void add_move(void *ud, const weft_cp_move *move)
{
    if (!move->received) *(int64_t *)ud += move->bytes;
}

static weft_status cp_bytes(const weft_model *m, const weft_kern *kern, weft_comm *any, const weft_model_options *o,
                            const weft_model_seat *seat, int64_t *out)
{
    weft_layer_attention kind[WEFT__MAX_PLANS];
    const bool again = m->recompute >= WEFT_RECOMPUTE_ATTENTION && !m->keep_attention;
    const weft_cp_seat cp = {seat->cps, seat->cp, seat->shard, seat->shard};
    int n = weft_model_attention(&m->config, &m->share, o, kind);
    *out = 0;
    for (int i = 0; i < n && seat->cps > 1; i++) {
        weft_span here;
        int64_t way[2] = {0, 0};
        if (!weft__plan_layers(m, &kind[i], &here)) continue;
        for (int back = 0; back < 2; back++) {
            const weft_cp_view view = {.ud = &way[back], .move = add_move};
            WEFT_TRY(weft_cp_preview_steps(kern, any, &kind[i].problem, &o->cp, &cp, back, &view));
        }
        *out += (here.end - here.begin) * ((1 + again) * way[0] + way[1]);
    }
    return WEFT_OK;
}

/* ---- the door ------------------------------------------------------------------------------------------------ */

static weft_status fill(weft_model *m, weft_model_bytes *out, weft_comm *any, const weft_model_options *o,
                        const weft_model_seat *seat, int n)
{
    for (int i = 0; i < n; i++) {
        const weft__pass p = {.m = m, .shares = m->tp.shares, .rows = seat[i].shard->rows[seat[i].cp]};
        out[i] = (weft_model_bytes){.tp = tp_bytes(m, &seat[i]),
                                    .stage = weft__stream_count(&p) * m->config.C * (int64_t)m->rs};
        WEFT_TRY(cp_bytes(m, m->kern, any, o, &seat[i], &out[i].cp));
    }
    return WEFT_OK;
}

weft_status weft_model_preview_bytes(weft_model_bytes *out, const weft_kern *kern, weft_comm *any,
                                     const weft_model_config *config, const weft_model_share *share,
                                     const weft_model_options *o, const weft_model_seat *seat, int n)
{
    weft__preview x;
    weft_status st = weft__preview_open(&x, kern, 1, config, share, o, seat->cps);
    if (st >= 0) st = fill(&x.m, out, any, o, seat, n);
    weft__preview_close(&x);
    return st;
}
