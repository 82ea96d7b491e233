/* cp_steps.c — a bound plan tells what it will do: what is computed at which step, and every message.
 *
 * Pairs are those that forward and backward are given. Messages are the strategy's own list (`moves`), which stands
 * beside its code; weft_cp_planned is summed from the same list, and tests hold that sum against what the transport
 * counted. So a picture made from here cannot drift from what runs. */
#include "cp/cp_impl.h"

static void tell(const weft_cp_plan *plan, const weft_cp_view *view, weft_cp_move_kind kind, weft__cp_hop hop,
                 int64_t rows, size_t bytes)
{
    weft_cp_move m = {.kind = kind, .received = hop.received, .step = hop.step, .peer = weft__cp_peer(plan, hop.member),
                      .owner = weft__cp_peer(plan, hop.owner), .rows = rows, .bytes = (int64_t)bytes,
                      .pieces = weft__cp_pieces(plan, bytes)};
    if (view->move && bytes > 0) view->move(view->ud, &m);
}

void weft__cp_tell_kv(const weft_cp_plan *plan, const weft_cp_view *view, weft__cp_hop hop, int64_t rows)
{
    tell(plan, view, WEFT_CP_MOVE_KV, hop, rows, weft__cp_wire_bytes(&plan->wire, rows));
}

void weft__cp_tell_dkv(const weft_cp_plan *plan, const weft_cp_view *view, weft__cp_hop hop, int64_t rows)
{
    tell(plan, view, WEFT_CP_MOVE_DKV, hop, rows, (size_t)rows * plan->grad_row_bytes);
}

typedef struct sum { int64_t bytes, messages; } sum;

static void add_sent(void *ud, const weft_cp_move *m)
{
    sum *s = ud;
    if (m->received) return;
    s->bytes += m->bytes;
    s->messages += m->pieces;
}

weft_cp_traffic weft__cp_count_moves(const weft_cp_plan *plan, const weft__cp_slot *slot)
{
    sum s[2] = {{0, 0}, {0, 0}};
    for (int backward = 0; backward < 2; backward++)
        plan->strategy->moves(plan, slot, backward, &(weft_cp_view){&s[backward], NULL, add_sent});
    return (weft_cp_traffic){s[0].bytes, s[1].bytes, s[0].messages, s[1].messages};
}

static void tell_work(const weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_view *view)
{
    for (int i = 0; i < plan->P; i++) {
        int owner = weft__cp_owner(plan, i);
        weft_cp_work w = {.step = i, .owner = weft__cp_peer(plan, owner), .head0 = plan->desc.head0,
                          .heads = plan->desc.H, .kv_head0 = plan->desc.kv_head0, .kv_heads = plan->desc.Hkv,
                          .queries = slot->q_rows, .keys = slot->kv_rows[owner],
                          .pairs = slot->pairs + slot->first[i], .n = slot->first[i + 1] - slot->first[i]};
        view->work(view->ud, &w);
    }
}

weft_status weft_cp_steps(const weft_cp_plan *plan, int slot, bool backward, const weft_cp_view *view)
{
    WEFT_TRY(weft__cp_check_bound(plan, slot));
    if (backward && !plan->problem.need_backward)
        return weft_fail(WEFT_ERR_REFUSED, "attention: backward was not planned; set need_backward");
    const weft_cp_plan *inner = weft__cp_attending(plan);
    if (view->work) tell_work(inner, &inner->slots[slot], view);
    plan->strategy->moves(plan, &plan->slots[slot], backward, view);
    return WEFT_OK;
}
