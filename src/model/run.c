/* run.c — one micro-batch on one stage: forward as a list, backward as the same list reversed. A stage begins with the
 * embedding or with what the stage before sent, and ends with the loss or with what the stage after receives. */
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
    if ((!m->first_stage && !u->input) || (!m->last_stage && !u->output))
        return weft_fail(WEFT_ERR_REFUSED, "model: a stage of a pipeline needs its input (but the first), and a place "
                         "for its output (but the last)");
    for (int64_t i = 0; i < u->shard->rows[rank]; i++)
        if (u->target[i] >= m->config.V)
            return weft_fail(WEFT_ERR_REFUSED,
                             "target %lld of rank %d is %d; ids below %lld (the vocabulary) or negative "
                             "ones (no label) work",
                             (long long)i, rank, (int)u->target[i], (long long)m->config.V);
    return WEFT_OK;
}

/* Without document masks every micro-batch has the same positions: the tables are made once. */
static void rotation_tables(weft_model *m, weft__slot *s, int64_t rows)
{
    size_t bytes = (size_t)rows * sizeof *s->pos;
    if (m->config.rope.type == WEFT_ROPE_NONE) return;
    if (s->table_rows == rows && memcmp(s->table_pos, s->pos, bytes) == 0) return;
    weft_part outer = weft_part_begin(&m->ctx->parts, WEFT_PART_ROPE);
    weft_rope_table(&m->config, m->prec, s->pos, rows, s->cos, s->sin);
    weft_part_end(&m->ctx->parts, outer);
    memcpy(s->table_pos, s->pos, bytes);
    s->table_rows = rows;
}

static weft__pass pass_of(weft_model *m, const weft_micro *u, bool training)
{
    const weft__slot *s = &m->slot[u->slot];
    return (weft__pass){
        .step = u->step, .training = training, .m = m, .rows = u->shard->rows[weft_comm_rank(m->cp)], .slot = u->slot,
        .shard = u->shard, .token = u->token, .pos = s->pos, .index = m->index, .cos = s->cos,
        .sin = s->sin, .scratch = &m->scratch,
        .attend = weft__attend_ranks, .shares = m->tp.shares, .layer = -1, .tile = m->tile,
    };
}

/* Where no backward pass follows anywhere, the input is the one buffer to which all layers add. */
static void take_input(const weft__pass *p, const weft_micro *u)
{
    weft_model *m = p->m;
    weft__acts *first = weft__acts_of(m, u->slot, m->layers.begin);
    if (m->first_stage) return;
    if (m->offload) {
        weft__residual_copy(p, first->x_in, u->input);
        return;
    }
    first->x_in = u->input;
    for (int64_t l = m->layers.begin; l < m->layers.end && !m->train; l++) {
        weft__acts *a = weft__acts_of(m, u->slot, l);
        a->x_in = a->x_mid = u->input;
    }
}

static weft_status prepare(weft_model *m, const weft_micro *u, bool training, weft__pass *p)
{
    int rank = weft_comm_rank(m->cp);
    *p = pass_of(m, u, training);
    WEFT_TRY(weft__positions_check(m, u->shard));
    WEFT_TRY(weft__tokens_check(m, u->token, p->rows));
    weft_shard_tokens(u->shard, rank, m->index, m->slot[u->slot].pos);
    for (int i = 0; i < m->plans; i++) WEFT_TRY(weft_cp_bind(m->plan[i], u->slot, u->shard, u->shard));
    rotation_tables(m, &m->slot[u->slot], p->rows);
    WEFT_TRY(weft__offload_begin(p));
    take_input(p, u);
    return WEFT_OK;
}

static void trace(const weft_model *m, const char *name, double begin, int64_t layer)
{
    weft_ctx *ctx = m->ctx;
    if (!weft_trace_on(&ctx->trace)) return;
    weft_trace_emit(&ctx->trace, WEFT_TRACK_COMPUTE, name, begin, weft_now(&ctx->clock), layer, -1);
}

/* A layer, or the head, begins. Returns the work of the pass that is over when it ends. */
static double begins(const weft_micro *u, int64_t layer, double done, double ahead)
{
    if (u->watch.begins) u->watch.begins(u->watch.ud, layer, done, ahead);
    return done + ahead;
}

/* The residual stream after the last layer of all; without train it is the one buffer of all layers. */
static void *last_stream(const weft__pass *p)
{
    const weft_model *m = p->m;
    return m->train ? m->x_out : weft__acts_of(m, p->slot, m->layers.end - 1)->x_in;
}

/* What goes into layer l + 1, or out of the stage. */
static void *after_layer(const weft__pass *p, const weft_micro *u, int64_t l)
{
    if (l + 1 < p->m->layers.end) return weft__acts_of(p->m, p->slot, l + 1)->x_in;
    return p->m->last_stage ? last_stream(p) : u->output;
}

static weft_status forward_layers(weft__pass *p, const weft_micro *u)
{
    weft_model *m = p->m;
    double done = 0;
    if (m->first_stage) WEFT_TRY(weft__embed_fwd(p, weft__acts_of(m, p->slot, 0)->x_in));
    for (int64_t l = m->layers.begin; l < m->layers.end; l++) {
        double begin = weft_now(&m->ctx->clock);
        done = begins(u, l, done, weft__layer_work(m, l, false));
        WEFT_TRY(weft__offload_fwd(p, l));
        WEFT_TRY(weft__block_fwd(p, (int)l, weft__acts_of(m, p->slot, l), after_layer(p, u, l)));
        trace(m, "layer forward", begin, l);
        weft_progress(weft_comm_world(m->cp)); /* what other stages and the sum of gradients have under way */
    }
    return weft__offload_end(p, false);
}

static weft_status forward_head(weft__pass *p, const weft_micro *u, bool for_backward, double grad_scale,
                                double *nll_sum, void *token_nll)
{
    weft_model *m = p->m;
    p->layer = -1;
    begins(u, m->config.L, weft_model_pass_work(m, false) - weft__head_work(m), weft__head_work(m));
    weft__norm_fwd(p, &m->par.norm, m->n_out, m->mean_out, m->rstd_out, last_stream(p));
    double begin = weft_now(&m->ctx->clock);
    WEFT_TRY(weft__loss(p, u->target, for_backward, grad_scale, nll_sum));
    trace(m, "head and loss", begin, m->config.L);
    if (token_nll) memcpy(token_nll, m->nll, (size_t)p->rows * m->rs);
    return WEFT_OK;
}

typedef struct ready_hook { weft_grad_ready call; void *ud; } ready_hook;

static void tell(const ready_hook *hook, int64_t offset, int64_t count)
{
    if (hook->call && count > 0) hook->call(hook->ud, offset, count);
}

/* On entry n_out holds the gradient of the final norm's output. */
static void backward_head(weft__pass *p)
{
    weft_model *m = p->m;
    memset(p->scratch->dx, 0, (size_t)(weft__stream_count(p) * m->config.C) * m->rs);
    weft__norm_bwd(p, &m->par.norm, p->scratch->dx, m->n_out, m->x_out, m->mean_out, m->rstd_out);
}

static weft_status backward_layers(weft__pass *p, const weft_micro *u, const ready_hook *ready)
{
    weft_model *m = p->m;
    double done = 0;
    if (m->last_stage) backward_head(p);
    tell(ready, m->par.tail_first, m->par.count - m->par.tail_first);
    for (int64_t l = m->layers.end - 1; l >= m->layers.begin; l--) {
        double begin = weft_now(&m->ctx->clock);
        done = begins(u, l, done, weft__layer_work(m, l, true));
        WEFT_TRY(weft__offload_bwd(p, l));
        WEFT_TRY(weft__block_bwd(p, (int)l, weft__acts_of(m, p->slot, l)));
        trace(m, "layer backward", begin, l);
        weft_progress(weft_comm_world(m->cp));
        tell(ready, m->layer[l].first, m->layer[l].count);
    }
    p->layer = -1;
    WEFT_TRY(weft__offload_end(p, true));
    if (m->first_stage) WEFT_TRY(weft__embed_bwd(p, p->scratch->dx));
    else WEFT_TRY(weft__guard_stream(p, m->layers.begin, p->scratch->dx, true));
    tell(ready, 0, m->par.embedding_count);
    return WEFT_OK;
}

weft_status weft_model_forward(weft_model *m, const weft_micro *micro, bool for_backward, double grad_scale,
                               double *nll_sum, void *token_nll)
{
    weft__pass p;
    WEFT_TRY(check_micro(m, micro, for_backward));
    m->slot[micro->slot].pending = false;
    m->head_slot = -1;
    *nll_sum = 0;
    WEFT_TRY(prepare(m, micro, for_backward, &p));
    WEFT_TRY(forward_layers(&p, micro));
    if (m->last_stage) WEFT_TRY(forward_head(&p, micro, for_backward, grad_scale, nll_sum, token_nll));
    else WEFT_TRY(weft__guard_stream(&p, m->layers.end - 1, micro->output, false));
    m->slot[micro->slot].pending = for_backward;
    if (for_backward) m->head_slot = micro->slot;
    return WEFT_OK;
}

static weft_status check_backward(const weft_model *m, const weft_micro *u, const void *stream)
{
    if (u->slot < 0 || u->slot >= m->slots || !m->slot[u->slot].pending)
        return weft_fail(WEFT_ERR_REFUSED,
                         "model: backward without its forward; run weft_model_forward with for_backward first");
    if (m->last_stage && m->head_slot != u->slot)
        return weft_fail(WEFT_ERR_REFUSED, "model: backward of slot %d, but another forward pass ran since its own; "
                         "the last stage has room for one gradient of the head", u->slot);
    if (!stream && !(m->first_stage && m->last_stage))
        return weft_fail(WEFT_ERR_REFUSED, "model: backward of a stage of a pipeline needs the gradient that travels");
    return WEFT_OK;
}

weft_status weft_model_backward(weft_model *m, const weft_micro *micro, void *stream, weft_grad_ready ready,
                                void *ready_ud)
{
    WEFT_TRY(check_backward(m, micro, stream));
    weft__pass p = pass_of(m, micro, true);
    ready_hook hook = {ready, ready_ud};
    weft__scratch scratch = m->scratch;
    if (stream) scratch.dx = stream;
    if (m->scratch.dxc == m->scratch.dx) scratch.dxc = scratch.dx;
    p.scratch = &scratch;
    /* other micro-batches may have run since its forward pass */
    weft_shard_tokens(micro->shard, weft_comm_rank(m->cp), m->index, m->slot[micro->slot].pos);
    m->slot[micro->slot].pending = false;
    return backward_layers(&p, micro, &hook);
}

weft_status weft_model_run(weft_model *m, const weft_micro *micro, bool backward, double grad_scale, double *nll_sum,
                           void *token_nll, weft_grad_ready ready, void *ready_ud)
{
    WEFT_TRY(weft_model_forward(m, micro, backward, grad_scale, nll_sum, token_nll));
    return backward ? weft_model_backward(m, micro, NULL, ready, ready_ud) : WEFT_OK;
}
