/* cp_heads_run.c — forward and backward of the head stage: outward exchange, the inner plan on the group's rows and own
 * heads, homeward exchange.
 *
 * The caller keeps o, m, l of its own rows and all heads, as without head groups. Backward repeats the exchange of q,
 * k, v, m, l, or finds them where forward left them (options.keep_heads), and gets dO and delta, which are complete at
 * their owner: the gradient of the sinks is summed there too, once, over all heads.
 *
 * dq is complete at the member that has the head. So are dk and dv, and they travel in C, unless some K,V head is used
 * by several members: then every one has a part of its sum, parts travel as sums, and the owner adds them in the order
 * of members and rounds once. */
#include "cp/cp_heads.h"


/* Elements of a row. */
typedef struct widths { int64_t q, o, k, v; } widths;

static widths widths_of(const weft_attn_desc *d)
{
    return (widths){(int64_t)d->H * d->D, (int64_t)d->H * d->Dv, (int64_t)d->Hkv * d->D, (int64_t)d->Hkv * d->Dv};
}

/* ---- head layout ------------------------------------------------------------------------------------------ */

/* What may lie in the caller's memory from forward to backward. */
typedef struct held { void *q, *kv, *m, *l; } held;

static held held_of(const weft_cp_plan *plan, const weft_cp_io *io)
{
    const weft__heads *s = plan->state;
    if (!s->keep) return (held){s->q, s->kv, s->m, s->l};
    return (held){weft__heads_at(io->kept, s->kept_q), s->kv ? s->kv : weft__heads_at(io->kept, s->kept_kv),
                  weft__heads_at(io->kept, s->kept_m), weft__heads_at(io->kept, s->kept_l)};
}

static void *v_of(const weft_cp_plan *plan, const void *kv)
{
    const weft__heads *s = plan->state;
    return weft__heads_at(kv, (size_t)widths_of(&s->inner->desc).k * weft__cp_c_size(plan));
}

/* The inner plan's view. With shared K,V heads its dk, dv stay sums, in inner->own. */
static weft_cp_io inner_io(const weft_cp_plan *plan, const weft_cp_io *io)
{
    const weft__heads *s = plan->state;
    const held h = held_of(plan, io);
    const widths w = widths_of(&s->inner->desc);
    return (weft_cp_io){
        .layer = io->layer, .step = io->step, .no_dropout = io->no_dropout, .q = h.q, .k = h.kv, .v = v_of(plan, h.kv),
        .q_ld = w.q, .k_ld = w.k + w.v,
        .v_ld = w.k + w.v, .sinks = weft__heads_at(io->sinks, (size_t)s->of[s->u].head0 * weft__cp_r_size(plan)),
        .o = s->o,
        .o_ld = w.o, .m = h.m, .l = h.l, .kept = io->kept, .dout = s->dout, .dout_ld = w.o, .dq = s->o, .dq_ld = w.q,
        .dk = s->shared ? NULL : s->dkv, .dv = s->shared ? NULL : v_of(plan, s->dkv), .dk_ld = w.k + w.v,
        .dv_ld = w.k + w.v};
}

/* ---- the exchanges ------------------------------------------------------------------------------------------ */

/* A tensor of the caller's, of one type in both layouts. */
static weft__heads_part part_of(bool keys, weft_dtype type, weft_dtype wire, int dim, const void *from, int64_t from_ld,
                                void *to, int64_t to_ld)
{
    return (weft__heads_part){.keys = keys, .dim = dim, .wire = wire, .from_type = type, .to_type = type, .from = from,
                              .to = to, .from_ld = from_ld, .to_ld = to_ld};
}

static void add_queries(const weft_cp_plan *plan, weft__heads_parts *parts, int dim, const void *from, int64_t from_ld,
                        void *to, int64_t to_ld)
{
    weft__heads_add(parts, part_of(false, weft__cp_c(plan), weft__cp_c(plan), dim, from, from_ld, to, to_ld));
}

static void add_keys(const weft_cp_plan *plan, weft__heads_parts *parts, weft_dtype wire, int dim, const void *from,
                     int64_t from_ld, void *to, int64_t to_ld)
{
    weft__heads_add(parts, part_of(true, weft__cp_c(plan), wire, dim, from, from_ld, to, to_ld));
}

/* One number per row and head. */
static void add_state(const weft_cp_plan *plan, weft__heads_parts *parts, const void *from, void *to)
{
    const weft__heads *s = plan->state;
    int64_t all = plan->desc.H, own = s->inner->desc.H;
    weft__heads_add(parts, part_of(false, weft__cp_r(plan), weft__cp_r(plan), 1, from, parts->homeward ? own : all, to,
                                   parts->homeward ? all : own));
}

static void add_q(const weft_cp_plan *plan, weft__heads_parts *parts, const weft_cp_io *io)
{
    const weft__heads *s = plan->state;
    add_queries(plan, parts, plan->desc.D, io->q, io->q_ld, held_of(plan, io).q, widths_of(&s->inner->desc).q);
}

static void add_kv(const weft_cp_plan *plan, weft__heads_parts *parts, const weft_cp_io *io)
{
    const weft__heads *s = plan->state;
    const widths w = widths_of(&s->inner->desc);
    void *kv = held_of(plan, io).kv;
    add_keys(plan, parts, plan->wire.type, plan->desc.D, io->k, io->k_ld, kv, w.k + w.v);
    add_keys(plan, parts, plan->wire.type, plan->desc.Dv, io->v, io->v_ld, v_of(plan, kv), w.k + w.v);
}

weft__heads_parts weft__heads_forward_out(const weft_cp_plan *plan, const weft_cp_io *io)
{
    weft__heads_parts parts = {0};
    add_q(plan, &parts, io);
    add_kv(plan, &parts, io);
    return parts;
}

weft__heads_parts weft__heads_forward_home(const weft_cp_plan *plan, const weft_cp_io *io)
{
    const weft__heads *s = plan->state;
    const held h = held_of(plan, io);
    weft__heads_parts parts = {.homeward = true};
    add_state(plan, &parts, h.m, io->m);
    add_state(plan, &parts, h.l, io->l);
    add_queries(plan, &parts, plan->desc.Dv, s->o, widths_of(&s->inner->desc).o, io->o, io->o_ld);
    return parts;
}

static weft__heads_part dout_part(const weft_cp_plan *plan, const weft_cp_io *io)
{
    const weft__heads *s = plan->state;
    return part_of(false, weft__cp_c(plan), weft__cp_dout_type(plan->problem.prec, &plan->options), plan->desc.Dv,
                   io->dout, io->dout_ld, s->dout, widths_of(&s->inner->desc).o);
}

weft__heads_parts weft__heads_backward_out(const weft_cp_plan *plan, const weft_cp_io *io)
{
    const weft__heads *s = plan->state;
    weft__heads_parts parts = {0};
    add_state(plan, &parts, plan->delta, s->delta);
    weft__heads_add(&parts, dout_part(plan, io));
    if (s->keep) return parts;
    add_state(plan, &parts, io->m, s->m);
    add_state(plan, &parts, io->l, s->l);
    add_q(plan, &parts, io);
    if (!plan->options.fp8) add_kv(plan, &parts, io); /* then the inner plan has kept them */
    return parts;
}

/* Sums of dk, then of dv, as inner->own holds them after its backward, to where this rank sums up. */
static void add_sums(const weft_cp_plan *plan, weft__heads_parts *parts, int64_t group_rows, int64_t rows)
{
    const weft__heads *s = plan->state;
    const widths all = widths_of(&plan->desc), own = widths_of(&s->inner->desc);
    weft__heads_part k = {.keys = true, .sum = true, .dim = plan->desc.D, .wire = plan->grad_type,
                          .from_type = weft__cp_r(plan),
                          .to_type = weft__cp_r(plan), .from = s->inner->own, .from_ld = own.k, .to = plan->own,
                          .to_ld = all.k};
    weft__heads_part v = k;
    v.dim = plan->desc.Dv;
    v.from = weft__heads_at(s->inner->own, (size_t)(group_rows * own.k) * weft__cp_r_size(plan));
    v.to = weft__heads_at(plan->own, (size_t)(rows * all.k) * weft__cp_r_size(plan));
    v.from_ld = own.v, v.to_ld = all.v;
    weft__heads_add(parts, k);
    weft__heads_add(parts, v);
}

weft__heads_parts weft__heads_backward_home(const weft_cp_plan *plan, const weft_cp_io *io, const weft__cp_slot *slot)
{
    const weft__heads *s = plan->state;
    const widths w = widths_of(&s->inner->desc);
    weft__heads_parts parts = {.homeward = true};
    add_queries(plan, &parts, plan->desc.D, s->o, w.q, io->dq, io->dq_ld);
    if (s->shared) {
        add_sums(plan, &parts, s->inner->slots[slot - plan->slots].kv_rows[s->inner->rank], slot->kv_rows[plan->rank]);
        return parts;
    }
    add_keys(plan, &parts, weft__cp_c(plan), plan->desc.D, s->dkv, w.k + w.v, io->dk, io->dk_ld);
    add_keys(plan, &parts, weft__cp_c(plan), plan->desc.Dv, v_of(plan, s->dkv), w.k + w.v, io->dv, io->dv_ld);
    return parts;
}

/* ---- running --------------------------------------------------------------------------------------------------- */

weft_status weft__heads_forward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.heads.forward";
    weft__heads *s = plan->state;
    const weft__cp_slot *inner_slot = &s->inner->slots[slot - plan->slots];
    if (s->U == 1) return s->inner->strategy->forward(s->inner, inner_slot, io);

    weft__heads_parts out = weft__heads_forward_out(plan, io), home = weft__heads_forward_home(plan, io);
    weft_cp_io inner = inner_io(plan, io);
    WEFT_TRY(weft__cp_step(plan, io, "cp.heads", op, 0));
    WEFT_TRY(weft__heads_exchange(plan, slot->state, io, op, 0, &out));
    WEFT_TRY(s->inner->strategy->forward(s->inner, inner_slot, &inner));
    WEFT_TRY(weft__cp_step(plan, io, "cp.heads", op, 1));
    WEFT_TRY(weft__heads_exchange(plan, slot->state, io, op, 1, &home));
    if (io->lse) plan->ops->attn.lse(io->lse, io->m, io->l, slot->q_rows * plan->desc.H);
    return WEFT_OK;
}

/* The sums of shared heads, rounded once. */
static void store_sums(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    const widths w = widths_of(&plan->desc);
    int64_t rows = slot->kv_rows[plan->rank];
    const void *dv = weft__heads_at(plan->own, (size_t)(rows * w.k) * weft__cp_r_size(plan));
    plan->ops->move.copy(io->dk, &(weft_rows){.type = weft__cp_c(plan), .ld = io->dk_ld}, plan->own,
                         &(weft_rows){.type = weft__cp_r(plan), .ld = w.k}, rows, w.k, &plan->run);
    plan->ops->move.copy(io->dv, &(weft_rows){.type = weft__cp_c(plan), .ld = io->dv_ld}, dv,
                         &(weft_rows){.type = weft__cp_r(plan), .ld = w.v}, rows, w.v, &plan->run);
}

/* delta of the own rows, of the dO that the members have: it is subtracted from dP = dO V^T, and only of the same dO
 * does sum_k dS = 0 hold. The gradient of the sinks needs no more than the owner has, which is exact. */
static void own_delta(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    const weft__heads *s = plan->state;
    const void *sinks = plan->problem.sinks ? io->sinks : NULL;
    void *dsinks = sinks ? io->dsinks : NULL;
    if (!s->rounded || dsinks)
        plan->ops->attn.delta(&plan->desc, plan->delta, dsinks, sinks, io->dout, io->dout_ld, io->o, io->o_ld, io->m,
                              io->l, slot->q_rows, plan->run.threads);
    if (!s->rounded) return;
    const weft__heads_part dout = dout_part(plan, io);
    int64_t width = widths_of(&plan->desc).o;
    weft__heads_as_received(plan, slot->state, &dout, s->rounded, width);
    plan->ops->attn.delta(&plan->desc, plan->delta, NULL, NULL, s->rounded, width, io->o, io->o_ld, io->m, io->l,
                          slot->q_rows, plan->run.threads);
}

weft_status weft__heads_backward(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    static const char op[] = "cp.heads.backward";
    weft__heads *s = plan->state;
    const weft__cp_slot *inner_slot = &s->inner->slots[slot - plan->slots];
    if (s->U == 1) return s->inner->strategy->backward(s->inner, inner_slot, io);

    weft__heads_parts out = weft__heads_backward_out(plan, io), home = weft__heads_backward_home(plan, io, slot);
    weft_cp_io inner = inner_io(plan, io);
    WEFT_TRY(weft__cp_step(plan, io, "cp.heads", op, 0));
    own_delta(plan, slot, io);
    WEFT_TRY(weft__heads_exchange(plan, slot->state, io, op, 0, &out));
    WEFT_TRY(s->inner->strategy->backward(s->inner, inner_slot, &inner));
    WEFT_TRY(weft__cp_step(plan, io, "cp.heads", op, 1));
    WEFT_TRY(weft__heads_exchange(plan, slot->state, io, op, 1, &home));
    if (s->shared) store_sums(plan, slot, io);
    return WEFT_OK;
}
