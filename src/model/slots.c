/* slots.c — the buffers of passes: per micro-batch that is alive its activations and positions, and once what only one
 * micro-batch at a time uses (scratch; final norm, logits and loss, which the last stage alone has). */
#include "model/model_impl.h"

int weft__kept_groups(const weft_model *m)
{
    static const int made_again[WEFT_RECOMPUTE_MODES] = {
        [WEFT_RECOMPUTE_ATTENTION] = WEFT__QKV | WEFT__O,
        [WEFT_RECOMPUTE_BLOCK] = WEFT__QKV | WEFT__O | WEFT__N2 | WEFT__UP,
        [WEFT_RECOMPUTE_FULL] = WEFT__QKV | WEFT__O | WEFT__MID | WEFT__N2 | WEFT__UP,
    };
    if (!m->train) return 0;
    int again = made_again[m->recompute];
    if (m->keep_attention) again &= ~WEFT__O;
    if (m->tile) again |= WEFT__UP;
    return WEFT__ALL & ~again;
}

static weft__act_rows rows_of(const weft_model *m)
{
    return (weft__act_rows){m->rows_max, weft__stream_rows_max(m, m->rows_max), m->tile};
}

/* What no layer keeps exists once. Of two normed copies of the residual stream one is needed at a time, but where
 * attention runs again before the feed-forward (weft__block_bwd). */
static weft_status alloc_again(weft_model *m)
{
    const weft__act_rows rows = rows_of(m);
    int again = WEFT__ALL & ~weft__kept_groups(m);
    bool both = (again & WEFT__QKV) && (again & WEFT__N2) && (m->keep_attention || m->recompute != WEFT_RECOMPUTE_FULL);
    if (!m->train) again &= ~(WEFT__MID | WEFT__N2 | (m->first_stage ? 0 : WEFT__IN));
    else again &= ~(WEFT__MID | (both ? WEFT__N2 : 0));
    WEFT_TRY(weft__acts_alloc(m, m->buffers, &rows, again, &m->again));
    if (!m->train || both) weft__acts_join(&m->again);
    return WEFT_OK;
}

/* An x_mid that is not kept lies where the layer's output goes: in the forward pass the feed-forward adds to it there,
 * and in the backward pass that is used up when x_mid is made again. */
static weft_status alloc_layers(weft_model *m, weft__slot *slot)
{
    const weft__act_rows rows = rows_of(m);
    int64_t layers = m->layers.end - m->layers.begin;
    int kept = weft__kept_groups(m);
    WEFT_TRY(WEFT_NEW0(m->arena, layers, "tables", &slot->acts));
    for (int64_t i = 0; i < layers; i++) {
        bool elsewhere = m->offload || (i == 0 && !m->first_stage); /* a buffer before each pass; the caller's */
        slot->acts[i] = m->again;
        WEFT_TRY(weft__acts_alloc(m, m->buffers, &rows, kept & ~(elsewhere ? WEFT__IN : 0), &slot->acts[i]));
        if (m->train && !(kept & WEFT__MID) && i > 0) slot->acts[i - 1].x_mid = slot->acts[i].x_in;
    }
    if (m->train && !(kept & WEFT__MID)) slot->acts[layers - 1].x_mid = m->x_out;
    return WEFT_OK;
}

static weft_status alloc_positions(weft_model *m, weft__slot *slot)
{
    int64_t S = m->rows_max, half = m->config.D / 2;
    WEFT_TRY(WEFT_NEW(m->buffers, S, "positions", &slot->pos));
    if (m->config.rope.type == WEFT_ROPE_NONE) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(m->buffers, S, "positions", &slot->table_pos));
    WEFT_TRY(weft_arena_alloc(m->buffers, S * half, m->rs, "rotation", &slot->cos));
    return weft_arena_alloc(m->buffers, S * half, m->rs, "rotation", &slot->sin);
}

static weft_status alloc_head(weft_model *m)
{
    int64_t s = weft__stream_rows_max(m, m->rows_max);
    WEFT_TRY(weft_arena_alloc(m->buffers, s * m->config.C, m->cs, "normed", &m->n_out));
    WEFT_TRY(weft_arena_alloc(m->buffers, s, m->rs, "norm statistics", &m->rstd_out));
    WEFT_TRY(weft_arena_alloc(m->buffers, s, m->rs, "norm statistics", &m->mean_out));
    return weft__loss_alloc(m);
}

static weft_status alloc_last(weft_model *m)
{
    const weft__act_rows rows = rows_of(m);
    if (!m->train || !(m->last_stage || m->recompute == WEFT_RECOMPUTE_FULL)) return WEFT_OK;
    return weft_arena_alloc(m->buffers, rows.stream * m->config.C, m->rs, "residual", &m->x_out);
}

weft_status weft__slots_alloc(weft_model *m)
{
    const weft__act_rows rows = rows_of(m);
    WEFT_TRY(WEFT_NEW0(m->arena, m->slots, "tables", &m->slot));
    WEFT_TRY(alloc_last(m));
    WEFT_TRY(alloc_again(m));
    for (int i = 0; i < m->slots; i++) {
        WEFT_TRY(alloc_layers(m, &m->slot[i]));
        WEFT_TRY(alloc_positions(m, &m->slot[i]));
    }
    WEFT_TRY(WEFT_NEW(m->buffers, m->rows_max, "positions", &m->index));
    WEFT_TRY(weft__scratch_alloc(m, m->buffers, &rows, m->train, &m->scratch));
    return m->last_stage ? alloc_head(m) : WEFT_OK;
}

weft_status weft__slots_alloc_kept(weft_model *m)
{
    const bool kept = weft__kept_groups(m) & WEFT__O;
    size_t most = 0;
    for (int i = 0; i < m->plans; i++) most = weft_max_size(most, m->plan_keeps[i]);
    if (most == 0) return WEFT_OK;
    if (!kept) WEFT_TRY(weft_arena_alloc(m->buffers, (int64_t)most, 1, "attention kept", &m->again.kept));
    for (int i = 0; i < m->slots; i++)
        for (int64_t l = m->layers.begin; l < m->layers.end; l++) {
            weft__acts *a = weft__acts_of(m, i, l);
            int64_t bytes = (int64_t)m->plan_keeps[weft__plan_number(m, l)];
            a->kept = m->again.kept;
            if (kept) WEFT_TRY(weft_arena_alloc(m->buffers, bytes, 1, "attention kept", &a->kept));
        }
    return WEFT_OK;
}
