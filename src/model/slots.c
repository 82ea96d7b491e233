/* slots.c — the buffers of passes: per micro-batch that is alive its activations and positions, and once what only one
 * micro-batch at a time uses (scratch; final norm, logits and loss, which the last stage alone has). */
#include "model/model_impl.h"

/* With train each layer has its buffers; otherwise all share one set, and the residual stream is one buffer that every
 * layer adds to. */
static weft_status alloc_layers(weft_model *m, weft__slot *slot)
{
    int64_t layers = m->layers.end - m->layers.begin, stream = weft__stream_rows_max(m, m->rows_max);
    WEFT_TRY(WEFT_NEW0(m->arena, layers, "tables", &slot->acts));
    for (int64_t i = 0; i < layers; i++) {
        bool sent = i == 0 && !m->first_stage;
        if (m->train || i == 0)
            WEFT_TRY(weft__acts_alloc(m, m->arena, m->rows_max, stream, m->train, sent, &slot->acts[i]));
        else slot->acts[i] = slot->acts[0];
    }
    return WEFT_OK;
}

static weft_status alloc_positions(weft_model *m, weft__slot *slot)
{
    int64_t S = m->rows_max, half = m->config.D / 2;
    WEFT_TRY(WEFT_NEW(m->arena, S, "positions", &slot->pos));
    if (m->config.rope.type == WEFT_ROPE_NONE) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(m->arena, S, "positions", &slot->table_pos));
    WEFT_TRY(weft_arena_alloc(m->arena, S * half, m->rs, "rotation", &slot->cos));
    return weft_arena_alloc(m->arena, S * half, m->rs, "rotation", &slot->sin);
}

static weft_status alloc_head(weft_model *m)
{
    int64_t s = weft__stream_rows_max(m, m->rows_max);
    if (m->train) WEFT_TRY(weft_arena_alloc(m->arena, s * m->config.C, m->rs, "residual", &m->x_out));
    WEFT_TRY(weft_arena_alloc(m->arena, s * m->config.C, m->cs, "normed", &m->n_out));
    WEFT_TRY(weft_arena_alloc(m->arena, s, m->rs, "norm statistics", &m->rstd_out));
    WEFT_TRY(weft_arena_alloc(m->arena, s, m->rs, "norm statistics", &m->mean_out));
    return weft__loss_alloc(m);
}

weft_status weft__slots_alloc(weft_model *m)
{
    WEFT_TRY(WEFT_NEW0(m->arena, m->slots, "tables", &m->slot));
    for (int i = 0; i < m->slots; i++) {
        WEFT_TRY(alloc_layers(m, &m->slot[i]));
        WEFT_TRY(alloc_positions(m, &m->slot[i]));
    }
    WEFT_TRY(WEFT_NEW(m->arena, m->rows_max, "positions", &m->index));
    WEFT_TRY(weft__scratch_alloc(m, m->arena, m->rows_max, m->train, &m->scratch));
    return m->last_stage ? alloc_head(m) : WEFT_OK;
}

static weft_status alloc_kept(weft_model *m, int slot, size_t most)
{
    for (int64_t l = m->layers.begin; l < m->layers.end; l++) {
        weft__acts *a = weft__acts_of(m, slot, l);
        size_t bytes = m->train ? weft_cp_kept_bytes(weft__plan_of(m, l)) : most;
        a->kept = weft__acts_of(m, slot, m->layers.begin)->kept;
        if (m->train || l == m->layers.begin)
            WEFT_TRY(weft_arena_alloc(m->arena, (int64_t)bytes, 1, "attention kept", &a->kept));
    }
    return WEFT_OK;
}

weft_status weft__slots_alloc_kept(weft_model *m)
{
    size_t most = 0;
    for (int i = 0; i < m->plans; i++) most = weft_max_size(most, weft_cp_kept_bytes(m->plan[i]));
    for (int i = 0; i < m->slots && most > 0; i++) WEFT_TRY(alloc_kept(m, i, most));
    return WEFT_OK;
}
