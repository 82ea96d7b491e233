/* run.c — one micro-batch: forward as a list, backward as the same list reversed. */
#include <string.h>

#include "model/model_impl.h"

static weft_status check_micro(const weft_model *m, const weft_micro *u, bool backward)
{
    int P = weft_comm_size(m->cp), rank = weft_comm_rank(m->cp);
    if (backward && !m->train)
        return weft_fail(WEFT_ERR_REFUSED, "model: backward needs a model that was created with train");
    if (u->shard->P != P)
        return weft_fail(WEFT_ERR_REFUSED, "model: the shard is cut for %d ranks, the group has %d", u->shard->P, P);
    if (u->slot < 0 || u->slot >= m->slots)
        return weft_fail(WEFT_ERR_REFUSED, "model: slot %d; slots 0 to %d work", u->slot, m->slots - 1);
    if (u->shard->rows[rank] > m->rows_max)
        return weft_fail(WEFT_ERR_REFUSED, "model: %lld rows on rank %d; buffers hold %lld",
                         (long long)u->shard->rows[rank], rank, (long long)m->rows_max);
    for (int64_t i = 0; i < u->shard->rows[rank]; i++)
        if (u->target[i] >= m->config.V)
            return weft_fail(WEFT_ERR_REFUSED,
                             "target %lld of rank %d is %d; ids below %lld (the vocabulary) or negative "
                             "ones (no label) work",
                             (long long)i, rank, (int)u->target[i], (long long)m->config.V);
    return WEFT_OK;
}

/* Without document masks every micro-batch has the same positions: the tables are made once. */
static void rotation_tables(weft_model *m, int64_t rows)
{
    size_t bytes = (size_t)rows * sizeof *m->pos;
    if (m->config.rope.type == WEFT_ROPE_NONE) return;
    if (m->table_rows == rows && memcmp(m->table_pos, m->pos, bytes) == 0) return;
    weft_part outer = weft_part_begin(&m->ctx->parts, WEFT_PART_ROPE);
    weft_rope_table(&m->config, m->prec, m->pos, rows, m->cos, m->sin);
    weft_part_end(&m->ctx->parts, outer);
    memcpy(m->table_pos, m->pos, bytes);
    m->table_rows = rows;
}

static weft__pass pass_of(weft_model *m, const weft_micro *u, bool training)
{
    return (weft__pass){
        .step = u->step, .training = training, .m = m, .rows = u->shard->rows[weft_comm_rank(m->cp)], .slot = u->slot,
        .shard = u->shard,
        .token = u->token, .pos = m->pos,
        .cos = m->cos, .sin = m->sin, .scratch = &m->scratch, .attend = weft__attend_ranks,
    };
}

static weft_status prepare(weft_model *m, const weft_micro *u, bool training, weft__pass *p)
{
    int rank = weft_comm_rank(m->cp);
    *p = pass_of(m, u, training);
    WEFT_TRY(weft__positions_check(m, u->shard));
    WEFT_TRY(weft__tokens_check(m, u->token, p->rows));
    weft_shard_tokens(u->shard, rank, m->index, m->pos);
    for (int i = 0; i < m->plans; i++) WEFT_TRY(weft_cp_bind(m->plan[i], u->slot, u->shard, u->shard));
    rotation_tables(m, p->rows);
    return WEFT_OK;
}

static void trace(const weft_model *m, const char *name, double begin, int64_t layer)
{
    weft_ctx *ctx = m->ctx;
    if (ctx->trace.capacity) weft_trace_emit(&ctx->trace, "compute", name, begin, weft_now(&ctx->clock), layer, 0);
}

/* What goes into layer l + 1, or out of the last one. */
static void *after_layer(weft_model *m, int64_t l) { return l + 1 < m->config.L ? m->acts[l + 1].x_in : m->x_out; }

static weft_status forward(weft__pass *p)
{
    weft_model *m = p->m;
    weft__embed_fwd(p, m->acts[0].x_in);
    for (int64_t l = 0; l < m->config.L; l++) {
        double begin = weft_now(&m->ctx->clock);
        WEFT_TRY(weft__block_fwd(p, (int)l, &m->acts[l], after_layer(m, l)));
        trace(m, "layer forward", begin, l);
    }
    weft__norm_fwd(p, &m->par.norm, m->n_out, m->mean_out, m->rstd_out, m->x_out);
    return WEFT_OK;
}

typedef struct ready_hook { weft_grad_ready call; void *ud; } ready_hook;

static void tell(const ready_hook *hook, int64_t offset, int64_t count)
{
    if (hook->call) hook->call(hook->ud, offset, count);
}

/* On entry n_out holds the gradient of the final norm's output. */
static weft_status backward_layers(weft__pass *p, const ready_hook *ready)
{
    weft_model *m = p->m;
    void *dx = m->scratch.dx;
    memset(dx, 0, (size_t)(p->rows * m->config.C) * m->rs);
    weft__norm_bwd(p, &m->par.norm, dx, m->n_out, m->x_out, m->mean_out, m->rstd_out);
    tell(ready, m->par.tail_first, m->par.count - m->par.tail_first);
    for (int64_t l = m->config.L - 1; l >= 0; l--) {
        double begin = weft_now(&m->ctx->clock);
        WEFT_TRY(weft__block_bwd(p, (int)l, &m->acts[l]));
        trace(m, "layer backward", begin, l);
        tell(ready, m->layer[l].first, m->layer[l].count);
    }
    weft__embed_bwd(p, dx);
    tell(ready, 0, m->par.embedding_count);
    return WEFT_OK;
}

weft_status weft_model_forward(weft_model *m, const weft_micro *micro, bool for_backward, double grad_scale,
                               double *nll_sum, void *token_nll)
{
    weft__pass p;
    m->pending = false;
    WEFT_TRY(check_micro(m, micro, for_backward));
    WEFT_TRY(prepare(m, micro, for_backward, &p));
    WEFT_TRY(forward(&p));
    double begin = weft_now(&m->ctx->clock);
    WEFT_TRY(weft__loss(&p, micro->target, for_backward, grad_scale, nll_sum));
    trace(m, "head and loss", begin, m->config.L);
    if (token_nll) memcpy(token_nll, m->nll, (size_t)p.rows * m->rs);
    m->pending = for_backward;
    return WEFT_OK;
}

weft_status weft_model_backward(weft_model *m, const weft_micro *micro, void *stream, weft_grad_ready ready,
                                void *ready_ud)
{
    (void)stream; /* one stage */
    weft__pass p = pass_of(m, micro, true);
    ready_hook hook = {ready, ready_ud};
    if (!m->pending)
        return weft_fail(WEFT_ERR_REFUSED,
                         "model: backward without its forward; run weft_model_forward with for_backward first");
    m->pending = false;
    return backward_layers(&p, &hook);
}

weft_status weft_model_run(weft_model *m, const weft_micro *micro, bool backward, double grad_scale, double *nll_sum,
                           void *token_nll, weft_grad_ready ready, void *ready_ud)
{
    WEFT_TRY(weft_model_forward(m, micro, backward, grad_scale, nll_sum, token_nll));
    return backward ? weft_model_backward(m, micro, NULL, ready, ready_ud) : WEFT_OK;
}
