/* cp_none.c — one rank holds everything: the case that all others are compared with. */
#include "cp/cp_impl.h"

static bool applicable(const weft__cp_ask *ask, weft_text *why)
{
    if (ask->P == 1) return true;
    weft_text_add(why, "needs one rank in the context-parallel group, there are %d; use pcp, ring or auto", ask->P);
    return false;
}

static weft_status plan_none(weft_cp_plan *plan, weft_arena *arena)
{
    (void)arena;
    plan->kv_buffer_bytes = 0;
    return WEFT_OK;
}

static weft_status bind(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q, const weft_shard *kv)
{
    (void)plan, (void)slot, (void)q, (void)kv;
    return WEFT_OK;
}

static void moves(const weft_cp_plan *plan, const weft__cp_slot *slot, bool backward, const weft_cp_view *view)
{
    (void)plan, (void)slot, (void)backward, (void)view;
}

static weft_status forward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    weft__cp_forward_begin(plan, slot, io, NULL);
    weft__cp_block block = weft__cp_block_of(plan, slot, io, "cp.none.forward", 0, NULL);
    WEFT_TRY(weft__cp_forward_block(plan, io, &block));
    weft__cp_forward_end(plan, slot, io);
    return WEFT_OK;
}

static weft_status backward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    weft__cp_backward_begin(plan, slot, io, NULL);
    weft__cp_block block = weft__cp_block_of(plan, slot, io, "cp.none.backward", 0, NULL);
    WEFT_TRY(weft__cp_backward_block(plan, io, &block, plan->own));
    weft__cp_backward_end(plan, slot, io);
    return WEFT_OK;
}

static void describe(const weft_cp_plan *plan, weft_text *out)
{
    weft_text_add(out, "(none (kernel %s))", plan->ops->attn.name);
}

const weft_cp_strategy weft__cp_none = {"none", "one rank, no exchange", applicable, weft__cp_cost_none, plan_none,
                                        bind, moves, forward, backward, describe, NULL};
