/* cp.c — the door: planning on all ranks alike, binding a micro-batch, and handing over to the strategy. */
#include "cp/cp_impl.h"

#include <string.h>

/* ---- planning ---------------------------------------------------------------------------------------- */

/* Equal on all ranks iff min(x) == -min(-x). Finds a difference now, not as a hang an hour later. COLLECTIVE */
static weft_status check_same(weft_comm *comm, int64_t hash)
{
    int64_t x[2] = {hash, -hash};
    WEFT_TRY(weft_all_reduce(comm, x, 2, WEFT_I64, WEFT_MIN));
    if (x[0] != -x[1])
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention: the ranks of the context-parallel group ask for different shapes, "
                         "masks or strategies; give all ranks the same configuration");
    return WEFT_OK;
}

static weft_status alloc_slot(weft_cp_plan *plan, weft_arena *arena, weft__cp_slot *slot)
{
    WEFT_TRY(WEFT_NEW0(arena, plan->P, "cp slots", &slot->kv_rows));
    /* never all used: pages that are not cost nothing */
    WEFT_TRY(WEFT_NEW(arena, plan->pair_capacity, "cp slots", &slot->pairs));
    WEFT_TRY(WEFT_NEW(arena, plan->pair_capacity, "cp slots", &slot->wave));
    return WEFT_NEW0(arena, (int64_t)plan->P + 1, "cp slots", &slot->first);
}

weft_status weft__cp_buffers(weft_cp_plan *plan, int count, size_t bytes, const char *label, void **out,
                             size_t *bytes_all)
{
    size_t each;
    WEFT_TRY(weft_pool_alloc(plan->buffers, count, bytes, label, out, &each));
    plan->pool_bytes += (size_t)count * each;
    if (bytes_all) *bytes_all += (size_t)count * each;
    return WEFT_OK;
}

/* What a context strategy needs beside its own buffers. */
static weft_status alloc_blocks(weft_cp_plan *plan, weft_arena *arena)
{
    weft_dtype compute = weft__cp_c(plan);
    size_t row = (size_t)plan->wire.row_bytes / weft_dtype_size(plan->wire.type) * weft_dtype_size(compute);
    bool fp8 = plan->options.fp8;
    WEFT_TRY(WEFT_NEW(arena, plan->pair_capacity, "cp pairs of a portion", &plan->clipped));
    if (plan->P > 1 && plan->wire.type != compute)
        WEFT_TRY(weft_arena_alloc(plan->buffers, plan->kv_rows_max, row, "cp K,V decoded", &plan->decoded));
    if (fp8) WEFT_TRY(weft_arena_alloc(plan->buffers, plan->kv_rows_max, row, "cp own K,V decoded", &plan->own_kv));
    size_t coded = weft__cp_wire_bytes(&plan->wire, plan->kv_rows_max);
    if (fp8 && plan->problem.need_backward) plan->kept_bytes = coded;
    else if (fp8) WEFT_TRY(weft_arena_alloc(plan->buffers, 1, coded, "cp own K,V fp8", &plan->own_wire));
    return WEFT_OK;
}

/* What a plan needs that attends: one with a head stage has an inner plan that does. */
static weft_status alloc_attention(weft_cp_plan *plan, weft_arena *arena)
{
    const weft_cp_problem *p = &plan->problem;
    size_t real = weft_dtype_size(weft_prec_real(p->prec));
    int64_t heads = plan->q_rows_max * plan->desc.H;
    WEFT_TRY(weft_arena_alloc(plan->buffers, heads * weft_max_i64(p->D, p->Dv), real, "cp acc, dq", &plan->rows));
    WEFT_TRY(weft_arena_alloc(arena, (int64_t)plan->ops->attn.work_bytes(&plan->desc, plan->run.threads), 1,
                              "cp kernel work", &plan->run.work));
    if (p->need_backward) {
        WEFT_TRY(weft_arena_alloc(plan->buffers, heads, real, "cp delta", &plan->delta));
        WEFT_TRY(weft_arena_alloc(plan->buffers, plan->kv_rows_max, plan->part_row_bytes, "cp own dK,dV", &plan->own));
    }
    return alloc_blocks(plan, arena);
}

static weft_status alloc_common(weft_cp_plan *plan, weft_arena *arena)
{
    if (!plan->strategy->context) WEFT_TRY(alloc_attention(plan, arena));
    WEFT_TRY(WEFT_NEW0(arena, plan->problem.slots, "cp slots", &plan->slots));
    for (int i = 0; i < plan->problem.slots; i++) WEFT_TRY(alloc_slot(plan, arena, &plan->slots[i]));
    return WEFT_OK;
}

static weft_status copy_alibi(weft_cp_plan *plan, weft_arena *arena)
{
    void *copy;
    size_t real = weft__cp_r_size(plan);
    if (!plan->problem.alibi) return WEFT_OK;
    WEFT_TRY(weft_arena_alloc(arena, plan->problem.H, real, "cp alibi", &copy));
    memcpy(copy, plan->problem.alibi, (size_t)plan->problem.H * real);
    plan->problem.alibi = plan->desc.alibi = copy;
    return WEFT_OK;
}

static void poll(void *world) { weft_progress(world); }

/* What follows from the draft. */
static void fill(weft_cp_plan *plan)
{
    const weft_cp_problem *p = &plan->problem;
    int64_t width = (int64_t)plan->desc.Hkv * (p->D + p->Dv);
    int all = plan->team.size * plan->group;
    plan->world = weft_comm_world(plan->team.comm);
    plan->ctx = weft_world_ctx(plan->world);
    plan->P = plan->team.size;
    plan->rank = plan->team.rank;
    plan->ops = &plan->kern->op[p->prec];
    plan->in_place = plan->P > 1 && weft_world_peer_memory(plan->world);
    plan->wire = weft__cp_wire_make(weft__cp_kv_type(p->prec, &plan->options), 2,
                                    (int[]){plan->desc.Hkv, plan->desc.Hkv}, (int[]){p->D, p->Dv});
    plan->grad_type = weft__cp_grad_type(p->prec, &plan->options);
    plan->grad_row_bytes = (size_t)width * weft_dtype_size(plan->grad_type);
    plan->part_row_bytes = (size_t)width * weft_dtype_size(weft_prec_real(p->prec));
    plan->q_rows_max = plan->group * weft_shard_max_rows(p->layout, p->B, p->Tq, all);
    plan->kv_rows_max = plan->group * weft_shard_max_rows(p->layout, p->B, p->T, all);
    plan->waves = (int)weft_layout_pieces(p->layout, plan->group);
    plan->pair_capacity = plan->strategy->context ? 0 : weft__cp_pair_capacity(plan);
    plan->run.threads = plan->ctx->threads;
    plan->run.charge = plan->kern->charge;
    if (plan->options.overlap && weft_world_size(plan->world) > 1) {
        plan->run.poll = poll;
        plan->run.poll_ud = plan->world;
    }
}

weft_status weft__cp_build(weft_cp_plan **out, weft_arena *arena, weft_arena *buffers, const weft_kern *kern,
                           const weft_cp_plan *draft)
{
    weft_cp_plan *plan;
    WEFT_TRY(WEFT_NEW(arena, 1, "cp plan", &plan));
    *plan = *draft;
    plan->buffers = buffers;
    plan->kern = kern;
    fill(plan);
    WEFT_TRY(copy_alibi(plan, arena));
    WEFT_TRY(alloc_common(plan, arena));
    WEFT_TRY(plan->strategy->plan(plan, arena));
    *out = plan;
    return WEFT_OK;
}

static weft_status draft_plan(weft_cp_plan *draft, weft_comm *comm, const weft_cp_problem *problem,
                              const weft_cp_options *options)
{
    int P = weft_comm_size(comm);
    weft_profile plain = weft_profile_default();
    *draft = (weft_cp_plan){.problem = *problem, .options = *options, .group = 1,
                            .team = {.comm = comm, .first = 0, .step = 1, .size = P, .rank = weft_comm_rank(comm)}};
    WEFT_TRY(weft__cp_check(problem, options, &draft->desc));
    weft__cp_ask ask = {&draft->problem, &draft->options, options->profile ? options->profile : &plain, P, 1};
    return weft__cp_choose(&ask, &draft->strategy);
}

static weft_status build_root(weft_cp_plan **out, weft_arena *arena, const weft_kern *kern, const weft_cp_plan *draft)
{
    weft_world *world = weft_comm_world(draft->team.comm);
    weft_arena *buffers = NULL;
    WEFT_TRY(weft_arena_create(&buffers, &weft_world_ctx(world)->mem, "cp buffers", weft_world_buffers(world)));
    weft_status st = weft__cp_build(out, arena, buffers, kern, draft);
    if (st < 0) weft_arena_destroy(buffers);
    return st;
}

weft_status weft_cp_plan_create(weft_cp_plan **out, weft_arena *arena, const weft_kern *kern, weft_comm *comm,
                                const weft_cp_problem *problem, const weft_cp_options *options)
{
    weft_cp_plan draft, *plan = NULL;
    WEFT_TRY(weft_agree(comm, draft_plan(&draft, comm, problem, options)));
    WEFT_TRY(check_same(comm, weft__cp_hash(problem, options, draft.strategy->name)));
    weft_mark mark = weft_arena_mark(arena);
    weft_status st = weft_agree(comm, build_root(&plan, arena, kern, &draft));
    if (st < 0) {
        weft_cp_plan_destroy(plan); /* built here, refused elsewhere */
        weft_arena_release(arena, mark);
    } else *out = plan;
    return st;
}

void weft_cp_plan_destroy(weft_cp_plan *plan)
{
    if (!plan) return;
    weft_arena_destroy(plan->buffers);
    plan->strategy = NULL; /* the rest of the memory is the arena's; a use after this fails at once */
}

/* ---- binding ----------------------------------------------------------------------------------------- */

static weft_status check_shards(const weft_cp_plan *plan, const weft_shard *q, const weft_shard *kv)
{
    if (q->P != plan->P || kv->P != plan->P)
        return weft_fail(WEFT_ERR_REFUSED, "bind: shards for %d and %d ranks, the plan is for %d", q->P, kv->P,
                         plan->P);
    if (q->B != kv->B)
        return weft_fail(WEFT_ERR_REFUSED, "bind: %lld sequences of queries and %lld of keys", (long long)q->B,
                         (long long)kv->B);
    /* Of all ranks, not of this one alone: a rank that refuses by itself would leave the others waiting. For the
     * same reason segments are counted here and not pairs later: what passes here fits (cp_pairs.c). */
    int64_t most = weft__cp_segments(plan);
    if (q->first[plan->P] > most || kv->first[plan->P] > most)
        return weft_fail(
            WEFT_ERR_REFUSED,
            "bind: %lld segments; the plan was made for %lld documents per micro-batch, at most %lld segments",
            (long long)weft_max_i64(q->first[plan->P], kv->first[plan->P]), (long long)plan->problem.max_docs,
            (long long)most);
    for (int r = 0; r < plan->P; r++) {
        if (q->rows[r] > plan->q_rows_max)
            return weft_fail(WEFT_ERR_REFUSED, "bind: rank %d has %lld query rows, the plan's largest case is %lld", r,
                             (long long)q->rows[r], (long long)plan->q_rows_max);
        if (kv->rows[r] > plan->kv_rows_max)
            return weft_fail(WEFT_ERR_REFUSED, "bind: rank %d has %lld key rows, the plan's largest case is %lld", r,
                             (long long)kv->rows[r], (long long)plan->kv_rows_max);
    }
    return WEFT_OK;
}

static weft_status check_slot(const weft_cp_plan *plan, int slot)
{
    if (slot < 0 || slot >= plan->problem.slots)
        return weft_fail(WEFT_ERR_REFUSED, "attention: slot %d; the plan has 0..%d", slot, plan->problem.slots - 1);
    return WEFT_OK;
}

weft_status weft__cp_bind_slot(weft_cp_plan *plan, int slot, const weft_shard *q, const weft_shard *kv)
{
    weft__cp_slot *s = &plan->slots[slot];
    s->bound = false;
    WEFT_TRY(check_shards(plan, q, kv));
    s->q_rows = q->rows[plan->rank];
    s->kv_total = 0;
    for (int r = 0; r < plan->P; r++) s->kv_total += s->kv_rows[r] = kv->rows[r];
    if (!plan->strategy->context) WEFT_TRY(weft__cp_bind_pairs(plan, s, q, kv));
    WEFT_TRY(plan->strategy->bind(plan, s, q, kv));
    s->traffic = weft__cp_count_moves(plan, s);
    s->bound = true;
    return WEFT_OK;
}

weft_status weft_cp_bind(weft_cp_plan *plan, int slot, const weft_shard *q, const weft_shard *kv)
{
    WEFT_TRY(check_slot(plan, slot));
    return weft__cp_bind_slot(plan, slot, q, kv);
}

/* ---- running ----------------------------------------------------------------------------------------- */

weft_status weft__cp_check_bound(const weft_cp_plan *plan, int slot)
{
    WEFT_TRY(check_slot(plan, slot));
    if (!plan->slots[slot].bound)
        return weft_fail(WEFT_ERR_REFUSED, "attention: slot %d is not bound to a micro-batch", slot);
    return WEFT_OK;
}

static weft_status check_io(const weft_cp_plan *plan, const weft_cp_io *io)
{
    if (plan->problem.sinks && !io->sinks)
        return weft_fail(WEFT_ERR_REFUSED, "attention: the plan has sinks, the call has none");
    if (plan->kept_bytes && !io->kept)
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention: the plan keeps %zu bytes from forward to backward, the call gives no "
                         "place for them",
                         plan->kept_bytes);
    return WEFT_OK;
}

/* A failure in the middle of an exchange, of a kernel or injected, leaves transfers open whose buffers are the plan's:
 * the world ends now and not when its caller tells, which may have destroyed the plan by then. */
static weft_status ended(const weft_cp_plan *plan, weft_status st)
{
    if (st < 0) weft_world_abort(plan->world, st, weft_last_error());
    return st;
}

weft_status weft_cp_forward(weft_cp_plan *plan, int slot, const weft_cp_io *io)
{
    WEFT_TRY(weft__cp_check_bound(plan, slot));
    WEFT_TRY(check_io(plan, io));
    weft_part outer = weft_part_begin(&plan->ctx->parts, WEFT_PART_ATTENTION);
    weft_status st = ended(plan, plan->strategy->forward(plan, &plan->slots[slot], io));
    weft_part_end(&plan->ctx->parts, outer);
    return st;
}

weft_status weft_cp_backward(weft_cp_plan *plan, int slot, const weft_cp_io *io)
{
    WEFT_TRY(weft__cp_check_bound(plan, slot));
    if (!plan->problem.need_backward)
        return weft_fail(WEFT_ERR_REFUSED, "attention: backward was not planned; set need_backward");
    WEFT_TRY(check_io(plan, io));
    weft_part outer = weft_part_begin(&plan->ctx->parts, WEFT_PART_ATTENTION);
    weft_status st = ended(plan, plan->strategy->backward(plan, &plan->slots[slot], io));
    weft_part_end(&plan->ctx->parts, outer);
    return st;
}

void weft_cp_describe(const weft_cp_plan *plan, weft_text *out) { plan->strategy->describe(plan, out); }

size_t weft_cp_kv_buffer_bytes(const weft_cp_plan *plan) { return plan->kv_buffer_bytes; }

size_t weft_cp_pool_bytes(const weft_cp_plan *plan) { return plan->pool_bytes; }
size_t weft_cp_kept_bytes(const weft_cp_plan *plan) { return plan->kept_bytes; }
weft_cp_traffic weft_cp_planned(const weft_cp_plan *plan, int slot) { return plan->slots[slot].traffic; }
