/* cp_heads.c — the head stage of the grid of U head ranks x R context ranks: dcp, dcp-ring, dcp-pairwise and ulysses.
 *
 * Attention is independent from head to head. So first an all-to-all among the U ranks of a head group trades rows for
 * heads: each ends up with the rows of all U ranks, for its own heads only. Then the context stage is an ordinary
 * strategy among the R ranks that have the same heads. The order cannot be turned round, and neither stage can be an
 * all-gather over all P ranks: docs/maths/two_stages.md.
 *
 * Heads are dealt without padding: with 30 heads on 8 ranks, six have 4 and two have 3. A rank holds the K,V heads that
 * its query heads read; a K,V head at a bound is held twice. Which query heads share one follows from their numbers in
 * the whole model: with tensor parallelism the heads here may begin anywhere in a group. */
#include "cp/cp_heads.h"

/* ---- choice of U ------------------------------------------------------------------------------------- */

static int largest_divisor(int P, int limit)
{
    int U = P < limit ? P : limit;
    while (P % U != 0) U--;
    return U;
}

/* Up to U = Hkv the head stage divides what moves by U; past it K,V heads are replicated and their part stays. So the
 * largest divisor of P that is at most Hkv is the best grid (docs/maths/context_parallel.md), and U = 1 where there is
 * none but 1: then the plan is its context strategy. */
int weft__heads_size(const weft_cp_strategy *strategy, const weft_cp_options *options, const weft_cp_problem *problem,
                     int P)
{
    if (strategy->context == &weft__cp_none) return P;
    return options->head_size ? options->head_size : largest_divisor(P, problem->Hkv);
}

static void add_divisors(weft_text *why, int P, int limit)
{
    const char *between = "";
    for (int U = 1; U <= P && U <= limit; U++)
        if (P % U == 0) {
            weft_text_add(why, "%s%d", between, U);
            between = ", ";
        }
}

/* Query heads of this rank, and which they are where tensor parallelism has taken the others elsewhere. */
static void add_heads(weft_text *why, const weft_cp_problem *p)
{
    weft_text_add(why, "there are %d", p->H);
    if (p->group) weft_text_add(why, " (heads %d to %d of the model are this part's)", p->head0, p->head0 + p->H - 1);
}

static bool grid_fits(const weft__cp_ask *ask, weft_text *why)
{
    int U = ask->options->head_size, H = ask->problem->H, P = ask->P;
    if (!weft__cp_ranks_fit(ask, why)) return false;
    if (U > H) {
        weft_text_add(why, "head groups of %d ranks need as many query heads, ", U);
        add_heads(why, ask->problem);
        weft_text_add(why, "; usable head sizes on %d ranks: ", P);
        add_divisors(why, P, H);
        return false;
    }
    if (U > 0 && P % U != 0) {
        weft_text_add(why, "head groups of %d ranks do not divide %d ranks; usable head sizes: ", U, P);
        add_divisors(why, P, H);
        return false;
    }
    return true;
}

static bool ulysses_fits(const weft__cp_ask *ask, weft_text *why)
{
    int U = ask->options->head_size, H = ask->problem->H, P = ask->P;
    if (!weft__cp_ranks_fit(ask, why)) return false;
    if (P > H) {
        weft_text_add(why, "one head group of all %d ranks needs as many query heads, ", P);
        add_heads(why, ask->problem);
        weft_text_add(why, "; use dcp, with one of the head sizes ");
        add_divisors(why, P, H);
        return false;
    }
    if (U && U != P) {
        weft_text_add(why, "its head group is all %d ranks, head size %d is not possible; leave it out, or use dcp", P,
                      U);
        return false;
    }
    return true;
}

/* What the context strategy says to its part of the grid. */
static bool context_fits(const weft__cp_ask *ask, const weft_cp_strategy *strategy, weft_text *why)
{
    weft__cp_ask inner = *ask;
    inner.U = weft__heads_size(strategy, ask->options, ask->problem, ask->P);
    inner.P = ask->P / inner.U;
    return strategy->context->applicable(&inner, why);
}

/* ---- cost -------------------------------------------------------------------------------------------- */

static weft__cp_cost cost_of(const weft__cp_ask *ask, const weft_cp_strategy *strategy)
{
    return weft__cp_cost_heads(ask, weft__heads_size(strategy, ask->options, ask->problem, ask->P), strategy->context);
}

/* ---- plan -------------------------------------------------------------------------------------------- */

static weft_status deal_heads(const weft_cp_plan *plan, weft_arena *arena, weft__heads *s)
{
    const weft_cp_problem *p = &plan->problem;
    int held = 0;
    WEFT_TRY(WEFT_NEW0(arena, s->U, "cp heads", &s->of));
    for (int j = 0; j < s->U; j++) {
        s->of[j] = weft__cp_heads_of(p, s->U, j);
        held += s->of[j].kv_heads;
    }
    s->shared = held > p->Hkv;
    return WEFT_OK;
}

/* The plan of the ranks with the same heads. */
static weft_status build_inner(weft_cp_plan *plan, weft_arena *arena, weft__heads *s)
{
    weft_cp_plan draft = {.strategy = plan->strategy->context, .problem = plan->problem, .options = plan->options,
                          .group = s->U, .desc = plan->desc};
    const weft__cp_heads *h = &s->of[s->u];
    size_t real = weft__cp_r_size(plan);
    draft.team = (weft__cp_team){.comm = plan->team.comm, .first = plan->team.first + s->u * plan->team.step,
                                 .step = s->U * plan->team.step, .size = plan->P / s->U, .rank = plan->rank / s->U};
    draft.problem.H = draft.desc.H = h->heads;
    draft.problem.Hkv = draft.desc.Hkv = h->kv_heads;
    draft.problem.alibi = weft__heads_at(plan->problem.alibi, (size_t)h->head0 * real);
    draft.problem.group = plan->desc.group;
    draft.problem.head0 = draft.desc.head0 = plan->desc.head0 + h->head0;
    draft.desc.kv_head0 = plan->desc.kv_head0 + h->kv_head0;
    WEFT_TRY(weft__cp_build(&s->inner, arena, plan->buffers, plan->kern, &draft));
    plan->kv_buffer_bytes = s->inner->kv_buffer_bytes;
    plan->pool_bytes = s->inner->pool_bytes;
    plan->kept_bytes = s->inner->kept_bytes;
    return WEFT_OK;
}

/* A place in io->kept. */
static size_t keep(weft_cp_plan *plan, int64_t rows, size_t row_bytes)
{
    size_t at = (plan->kept_bytes + 63) / 64 * 64;
    plan->kept_bytes = at + (size_t)rows * row_bytes;
    return at;
}

/* of the group; bytes of a row, own heads */
typedef struct sizes { int64_t q_rows, kv_rows; size_t q, o, kv, state; } sizes;

static sizes sizes_of(const weft_cp_plan *plan, const weft__heads *s)
{
    const weft_attn_desc *d = &s->inner->desc;
    size_t c = weft__cp_c_size(plan), r = weft__cp_r_size(plan);
    size_t H = (size_t)d->H, D = (size_t)d->D, Dv = (size_t)d->Dv;
    return (sizes){s->inner->q_rows_max, s->inner->kv_rows_max,         H * D * c,
                   H * Dv * c,           (size_t)d->Hkv * (D + Dv) * c, H * r};
}

static weft_status alloc_rows(weft_cp_plan *plan, int64_t rows, size_t row_bytes, void **out)
{
    return weft__cp_buffers(plan, 1, (size_t)rows * row_bytes, "cp head layout", out, NULL);
}

/* q, k, v, m, l in head layout: the plan's own, or the layer's. With fp8 the inner plan keeps K,V by itself. */
static weft_status alloc_held(weft_cp_plan *plan, weft__heads *s)
{
    const sizes z = sizes_of(plan, s);
    bool kv_here = !s->keep || plan->options.fp8;
    if (kv_here)
        WEFT_TRY(weft__cp_buffers(plan, 1, (size_t)z.kv_rows * z.kv, "cp head layout", &s->kv, &plan->kv_buffer_bytes));
    else s->kept_kv = keep(plan, z.kv_rows, z.kv);
    if (s->keep) {
        s->kept_q = keep(plan, z.q_rows, z.q);
        s->kept_m = keep(plan, z.q_rows, z.state);
        s->kept_l = keep(plan, z.q_rows, z.state);
        return WEFT_OK;
    }
    WEFT_TRY(alloc_rows(plan, z.q_rows, z.q, &s->q));
    WEFT_TRY(alloc_rows(plan, z.q_rows, z.state, &s->m));
    return alloc_rows(plan, z.q_rows, z.state, &s->l);
}

static weft_status alloc_heads(weft_cp_plan *plan, weft__heads *s)
{
    const sizes z = sizes_of(plan, s);
    WEFT_TRY(alloc_held(plan, s));
    WEFT_TRY(alloc_rows(plan, z.q_rows, plan->problem.need_backward ? weft_max_size(z.o, z.q) : z.o, &s->o));
    plan->rows = s->o; /* what a fault of the kind `nan` spoils */
    if (!plan->problem.need_backward) return WEFT_OK;
    WEFT_TRY(alloc_rows(plan, z.q_rows, z.o, &s->dout));
    WEFT_TRY(alloc_rows(plan, z.q_rows, z.state, &s->delta));
    s->inner->given_delta = s->delta;
    WEFT_TRY(weft_arena_alloc(plan->buffers, plan->q_rows_max * plan->desc.H,
                              weft__cp_r_size(plan), "cp delta", &plan->delta));
    if (plan->options.fp8)
        WEFT_TRY(weft_arena_alloc(plan->buffers, plan->q_rows_max * plan->desc.H * plan->desc.Dv, weft__cp_c_size(plan),
                                  "cp dO as received", &s->rounded));
    if (!s->shared) return alloc_rows(plan, z.kv_rows, z.kv, &s->dkv);
    return weft_arena_alloc(plan->buffers, plan->kv_rows_max, plan->part_row_bytes, "cp own dK,dV", &plan->own);
}

/* The largest messages: every member has the most rows that a rank can have. */
static weft_status alloc_messages(weft_cp_plan *plan, weft_arena *arena, weft__heads *s)
{
    static const weft_cp_io none = {0};
    weft__heads_slot most = {0};
    WEFT_TRY(WEFT_NEW0(arena, s->U, "cp head rows", &most.q.rows));
    WEFT_TRY(WEFT_NEW0(arena, s->U, "cp head rows", &most.kv.rows));
    WEFT_TRY(WEFT_NEW0(arena, s->U, "cp heads", &s->send));
    WEFT_TRY(WEFT_NEW0(arena, s->U, "cp heads", &s->recv));
    for (int j = 0; j < s->U; j++) most.q.rows[j] = plan->q_rows_max, most.kv.rows[j] = plan->kv_rows_max;
    const weft__heads_parts all[] = {weft__heads_forward_out(plan, &none), weft__heads_forward_home(plan, &none),
                                     weft__heads_backward_out(plan, &none),
                                     weft__heads_backward_home(plan, &none, plan->slots)};
    int n = plan->problem.need_backward ? 4 : 2;
    size_t *to, *from;
    WEFT_TRY(WEFT_NEW0(arena, s->U, "cp heads", &to));
    WEFT_TRY(WEFT_NEW0(arena, s->U, "cp heads", &from));
    for (int i = 0; i < n; i++) {
        size_t out = 0, in = 0;
        for (int j = 0; j < s->U; j++) {
            size_t a = weft__heads_bytes_to(plan, &most, &all[i], j),
                   b = weft__heads_bytes_from(plan, &most, &all[i], j);
            to[j] = weft_max_size(to[j], a), from[j] = weft_max_size(from[j], b);
            out += a, in += b;
        }
        s->out_bytes = weft_max_size(s->out_bytes, out), s->in_bytes = weft_max_size(s->in_bytes, in);
    }
    for (int j = 0; j < s->U; j++) {
        WEFT_TRY(weft__cp_message_alloc(plan, arena, to[j], &s->send[j]));
        WEFT_TRY(weft__cp_message_alloc(plan, arena, from[j], &s->recv[j]));
    }
    WEFT_TRY(weft__cp_buffers(plan, 1, s->out_bytes, "cp head messages", (void **)&s->out, NULL));
    if (plan->in_place) return WEFT_OK; /* what comes is read where it was sent from */
    return weft__cp_buffers(plan, 1, s->in_bytes, "cp head messages", (void **)&s->in, NULL);
}

static weft_status alloc_slots(weft_cp_plan *plan, weft_arena *arena, const weft__heads *s)
{
    for (int i = 0; i < plan->problem.slots; i++) {
        weft__heads_slot *slot;
        WEFT_TRY(WEFT_NEW0(arena, 1, "cp head rows", &slot));
        WEFT_TRY(weft__heads_rows_alloc(plan, arena, s->inner->q_rows_max, &slot->q));
        WEFT_TRY(weft__heads_rows_alloc(plan, arena, s->inner->kv_rows_max, &slot->kv));
        plan->slots[i].state = slot;
    }
    return WEFT_OK;
}

static weft_status plan_heads(weft_cp_plan *plan, weft_arena *arena)
{
    weft__heads *s;
    const weft_cp_problem *p = &plan->problem;
    WEFT_TRY(WEFT_NEW0(arena, 1, "cp heads", &s));
    plan->state = s;
    s->U = plan->options.head_size = weft__heads_size(plan->strategy, &plan->options, p, plan->P);
    s->u = plan->rank % s->U;
    s->keep = plan->options.keep_heads && p->need_backward && s->U > 1;
    WEFT_TRY(deal_heads(plan, arena, s));
    WEFT_TRY(build_inner(plan, arena, s));
    WEFT_TRY(weft_shard_alloc(&s->q_groups, arena, plan->P / s->U, weft__cp_segments(plan)));
    WEFT_TRY(weft_shard_alloc(&s->kv_groups, arena, plan->P / s->U, weft__cp_segments(plan)));
    if (s->U == 1) return WEFT_OK; /* the caller's rows are the group's: nothing is exchanged here */
    WEFT_TRY(alloc_slots(plan, arena, s));
    WEFT_TRY(alloc_heads(plan, s));
    return alloc_messages(plan, arena, s);
}

/* ---- bind -------------------------------------------------------------------------------------------- */

static weft_status bind(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q, const weft_shard *kv)
{
    weft__heads *s = plan->state;
    weft__heads_slot *rows = slot->state;
    int at = (int)(slot - plan->slots);
    const weft_shard *q_groups = q == kv ? &s->kv_groups : &s->q_groups;
    WEFT_TRY(weft_shard_group(&s->kv_groups, kv, s->U));
    if (q != kv) WEFT_TRY(weft_shard_group(&s->q_groups, q, s->U));
    WEFT_TRY(weft__cp_bind_slot(s->inner, at, q_groups, &s->kv_groups));
    if (s->U == 1) return WEFT_OK;
    WEFT_TRY(weft__heads_rows_bind(plan, q, q_groups, &rows->q));
    return weft__heads_rows_bind(plan, kv, &s->kv_groups, &rows->kv);
}

/* ---- what moves -------------------------------------------------------------------------------------- */

static void tell_exchange(const weft_cp_plan *plan, const weft__cp_slot *slot, const weft__heads_parts *parts,
                          const weft_cp_view *view)
{
    const weft__heads *s = plan->state;
    for (int j = 0; j < s->U && view->move; j++)
        for (int received = 0; received < 2; received++) {
            size_t bytes = received ? weft__heads_bytes_from(plan, slot->state, parts, j)
                                    : weft__heads_bytes_to(plan, slot->state, parts, j);
            int peer = weft__cp_peer(plan, plan->rank - s->u + j);
            weft_cp_move m = {.kind = parts->homeward ? WEFT_CP_MOVE_HEADS_BACK : WEFT_CP_MOVE_HEADS,
                              .received = received, .peer = peer,
                              .owner = received ? peer : weft__cp_peer(plan, plan->rank), .bytes = (int64_t)bytes,
                              .pieces = weft__cp_pieces(plan, bytes)};
            if (bytes) view->move(view->ud, &m);
        }
}

static void moves(const weft_cp_plan *plan, const weft__cp_slot *slot, bool backward, const weft_cp_view *view)
{
    static const weft_cp_io none = {0};
    const weft__heads *s = plan->state;
    const weft__cp_slot *inner_slot = &s->inner->slots[slot - plan->slots];
    if (s->U == 1) {
        s->inner->strategy->moves(s->inner, inner_slot, backward, view);
        return;
    }
    const weft__heads_parts
        out = backward ? weft__heads_backward_out(plan, &none) : weft__heads_forward_out(plan, &none),
        home = backward ? weft__heads_backward_home(plan, &none, slot) : weft__heads_forward_home(plan, &none);
    tell_exchange(plan, slot, &out, view);
    s->inner->strategy->moves(s->inner, inner_slot, backward, view);
    tell_exchange(plan, slot, &home, view);
}

const weft_cp_plan *weft__cp_attending(const weft_cp_plan *plan)
{
    const weft__heads *s = plan->state;
    return plan->strategy->context ? s->inner : plan;
}

static void describe(const weft_cp_plan *plan, weft_text *out)
{
    const weft__heads *s = plan->state;
    weft_text_add(out, "(heads U=%d%s ", s->U, s->keep ? " kept" : "");
    s->inner->strategy->describe(s->inner, out);
    weft_text_add(out, ")");
}

/* ---- the strategies ---------------------------------------------------------------------------------- */

#define GRID(id, name, desc, fits, context) \
    static bool can_##id(const weft__cp_ask *ask, weft_text *why) \
    { \
        return fits(ask, why) && context_fits(ask, &weft__cp_##id, why); \
    } \
    static weft__cp_cost cost_##id(const weft__cp_ask *ask) { return cost_of(ask, &weft__cp_##id); } \
    const weft_cp_strategy weft__cp_##id = {name, desc, can_##id, cost_##id, plan_heads, bind, moves, \
                                            weft__heads_forward, weft__heads_backward, describe, &weft__cp_##context};
GRID(dcp, "dcp", "heads are traded for rows in head groups, then K,V gathered", grid_fits, pcp)
GRID(ulysses, "ulysses", "heads are traded for all rows: one head group of all ranks", ulysses_fits, none)
GRID(dcp_ring, "dcp-ring", "heads are traded for rows in head groups, then K,V travel round rings", grid_fits, ring)
GRID(dcp_pairwise, "dcp-pairwise", "heads are traded for rows in head groups, then K,V that are seen sent directly",
     grid_fits, pairwise)
#undef GRID
