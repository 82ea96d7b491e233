/* cp_block.c — the parts of forward and backward that no strategy changes: running a block, packing, adding,
 * finishing.
 *
 * Forward keeps the running state (acc, m, l) in R over all blocks and divides once, at the
 * end: rounding each block's output to 16 bits would give an error that grows with P and that backward
 * amplifies through delta. Backward uses the final (m, l), so blocks add without rescaling. */
#include "cp/cp_impl.h"

#include <math.h>
#include <string.h>

weft_status weft__cp_step(weft_cp_plan *plan, const weft_cp_io *io, const char *site, const char *op, int step)
{
    bool nan = false;
    weft_place(plan->world, op, io->layer, step);
    WEFT_TRY(weft_fault_pass(&plan->ctx->fault, weft_world_rank(plan->world), site, &nan));
    if (nan) weft_store(plan->rows, weft_prec_real(plan->problem.prec), 0, NAN);
    return WEFT_OK;
}

/* ---- where a block lies ------------------------------------------------------------------------------ */

static size_t c_size(const weft_cp_plan *plan) { return weft_dtype_size(weft_prec_compute(plan->problem.prec)); }
static size_t r_size(const weft_cp_plan *plan) { return weft_dtype_size(weft_prec_real(plan->problem.prec)); }
static int64_t k_width(const weft_cp_plan *plan) { return (int64_t)plan->desc.Hkv * plan->desc.D; }
static int64_t v_width(const weft_cp_plan *plan) { return (int64_t)plan->desc.Hkv * plan->desc.Dv; }

weft__cp_block weft__cp_own_block(const weft_cp_io *io) { return (weft__cp_block){io->k, io->v, io->k_ld, io->v_ld}; }

weft__cp_block weft__cp_block_in(const weft_cp_plan *plan, const void *buffer)
{
    int64_t ld = k_width(plan) + v_width(plan);
    return (weft__cp_block){buffer, (const char *)buffer + (size_t)k_width(plan) * c_size(plan), ld, ld};
}

void weft__cp_pack(const weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, void *buffer)
{
    size_t size = c_size(plan), k = (size_t)k_width(plan) * size, v = (size_t)v_width(plan) * size;
    char *to = buffer;
    for (int64_t i = 0; i < slot->kv_rows[plan->rank]; i++, to += k + v) {
        memcpy(to, (const char *)io->k + (size_t)(i * io->k_ld) * size, k);
        memcpy(to + k, (const char *)io->v + (size_t)(i * io->v_ld) * size, v);
    }
}

/* ---- forward ----------------------------------------------------------------------------------------- */

void weft__cp_forward_begin(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    plan->ops->attn.start(&plan->desc, plan->rows, io->m, io->l, slot->q_rows);
}

/* The address of this call's dropout. */
static uint32_t drop_word3(const weft_cp_io *io)
{
    return weft_philox_word3(io->step, (uint32_t)io->layer, WEFT_SITE_DROP_ATTENTION);
}

void weft__cp_forward_block(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, int step,
                            weft__cp_block block)
{
    const weft_attn_fwd_io a = {.q = io->q, .k = block.k, .v = block.v, .q_ld = io->q_ld, .k_ld = block.k_ld,
                                .v_ld = block.v_ld, .acc = plan->rows, .m = io->m, .l = io->l,
                                .drop_word3 = drop_word3(io)};
    double begin = weft_now(&plan->ctx->clock);
    const int64_t *first = slot->first + (int64_t)step * plan->waves;
    for (int w = 0; w < plan->waves; w++)
        if (first[w + 1] > first[w])
            plan->ops->attn.forward(&plan->desc, &a, slot->pairs + first[w], first[w + 1] - first[w], &plan->run);
    weft_trace_emit(&plan->ctx->trace, "compute", "cp.forward.block", begin, weft_now(&plan->ctx->clock), io->layer, step);
}

void weft__cp_forward_end(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    plan->ops->attn.finish(&plan->desc, io->o, io->o_ld, io->lse, plan->rows, io->m, io->l,
                           plan->problem.sinks ? io->sinks : NULL, slot->q_rows, plan->run.threads);
}

/* ---- backward ---------------------------------------------------------------------------------------- */

void weft__cp_backward_begin(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    bool sinks = plan->problem.sinks;
    if (!plan->given_delta)
        plan->ops->attn.delta(&plan->desc, plan->delta, sinks ? io->dsinks : NULL, sinks ? io->sinks : NULL, io->dout,
                              io->dout_ld, io->o, io->o_ld, io->m, io->l, slot->q_rows, plan->run.threads);
    memset(plan->rows, 0, (size_t)(slot->q_rows * plan->desc.H * plan->desc.D) * r_size(plan));
}

void weft__cp_backward_block(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, int step,
                             weft__cp_block block, void *dkv)
{
    int owner = weft__cp_owner(plan, step);
    char *dv = (char *)dkv + (size_t)(slot->kv_rows[owner] * k_width(plan)) * r_size(plan);
    const weft_attn_bwd_io a = {.q = io->q, .k = block.k, .v = block.v, .dout = io->dout, .q_ld = io->q_ld,
                                .k_ld = block.k_ld, .v_ld = block.v_ld, .dout_ld = io->dout_ld, .m = io->m, .l = io->l,
                                .delta = plan->given_delta ? plan->given_delta : plan->delta, .dq = plan->rows, .dk = dkv, .dv = dv,
                                .drop_word3 = drop_word3(io)};
    double begin = weft_now(&plan->ctx->clock);
    /* Also when nothing is visible: zeros travel then, and every strategy adds the same numbers. */
    memset(dkv, 0, weft__cp_dkv_bytes(plan, slot, owner));
    const int64_t *first = slot->first + (int64_t)step * plan->waves;
    for (int w = 0; w < plan->waves; w++)
        if (first[w + 1] > first[w])
            plan->ops->attn.backward(&plan->desc, &a, slot->pairs + first[w], first[w + 1] - first[w], &plan->run);
    weft_trace_emit(&plan->ctx->trace, "compute", "cp.backward.block", begin, weft_now(&plan->ctx->clock), io->layer, step);
}

void weft__cp_add(const weft_cp_plan *plan, const weft__cp_slot *slot, int owner, void *sum, const void *part)
{
    int64_t n = slot->kv_rows[owner] * (k_width(plan) + v_width(plan));
    plan->ops->axpy(sum, part, 1.0, n, plan->run.threads);
}

/* to (C) [rows, width] with `ld` = round(from), from (R) dense. */
static void store_rows(const weft_cp_plan *plan, void *to, int64_t ld, const void *from, int64_t rows, int64_t width)
{
    if (ld == width) {
        plan->ops->to_compute(to, from, rows * width, plan->run.threads);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        plan->ops->to_compute((char *)to + (size_t)(i * ld) * c_size(plan),
                              (const char *)from + (size_t)(i * width) * r_size(plan), width, 1);
}

void weft__cp_backward_end(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    int64_t rows = slot->kv_rows[plan->rank];
    const char *dv = (const char *)plan->own + (size_t)(rows * k_width(plan)) * r_size(plan);
    store_rows(plan, io->dq, io->dq_ld, plan->rows, slot->q_rows, (int64_t)plan->desc.H * plan->desc.D);
    store_rows(plan, io->dk, io->dk_ld, plan->own, rows, k_width(plan));
    store_rows(plan, io->dv, io->dv_ld, dv, rows, v_width(plan));
}

bool weft__cp_ranks_fit(const weft__cp_ask *ask, weft_text *why)
{
    if (ask->P <= WEFT__CP_MAX_RANKS) return true;
    weft_text_add(why, "%d ranks; at most %d", ask->P, WEFT__CP_MAX_RANKS);
    return false;
}

void weft__cp_describe_exchange(const weft_cp_plan *plan, weft_text *out)
{
    char layout[48];
    weft_text_add(out, "(%s %c=%d %s%s (kernel %s))", plan->strategy->name, plan->group > 1 ? 'R' : 'P', plan->P,
                  weft_layout_text(plan->problem.layout, layout, sizeof layout), plan->options.overlap ? "" : " no-overlap",
                  plan->ops->attn.name);
}
