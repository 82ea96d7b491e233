/* cp_block.c — the parts of forward and backward that no strategy changes: running a block, packing, adding,
 * finishing.
 *
 * Forward keeps the running state (acc, m, l) in R over all blocks and divides once, at the
 * end: rounding each block's output to 16 bits would give an error that grows with P and that backward
 * amplifies through delta. Backward uses the final (m, l), so blocks add without rescaling.
 *
 * A block that arrives in pieces is computed in portions: as soon as a piece makes PORTION_ROWS rows complete that were
 * not computed yet, or the last row, all complete rows are. The ends of portions follow from sizes and pairs alone; so
 * neither the network nor the overlap changes a bit, but another size of pieces does (sums are rounded elsewhere). */
#include "cp/cp_impl.h"

#include <math.h>

enum { PORTION_ROWS = 128 }; /* at least a tile of keys of every kernel, so that few tiles are partly empty */

weft_status weft__cp_step(weft_cp_plan *plan, const weft_cp_io *io, const char *site, const char *op, int step)
{
    bool nan = false;
    weft_place(plan->world, op, io->layer, step);
    WEFT_TRY(weft_comm_fault(plan->team.comm, "cp.step", NULL)); /* every strategy alike */
    WEFT_TRY(weft_comm_fault(plan->team.comm, site, &nan));
    const double bad = NAN;
    const weft_rows from = {.type = WEFT_F64, .ld = 1}, to = {.type = weft__cp_r(plan), .ld = 1};
    if (nan) plan->ops->move.copy(plan->rows, &to, &bad, &from, 1, 1, &plan->run);
    return WEFT_OK;
}

/* ---- own rows ---------------------------------------------------------------------------------------- */

static int64_t k_width(const weft_cp_plan *plan) { return (int64_t)plan->desc.Hkv * plan->desc.D; }
static int64_t v_width(const weft_cp_plan *plan) { return (int64_t)plan->desc.Hkv * plan->desc.Dv; }

weft__cp_rows weft__cp_rows_in(const weft_cp_plan *plan, const void *buffer)
{
    int64_t ld = k_width(plan) + v_width(plan);
    return (weft__cp_rows){buffer, (const char *)buffer + (size_t)k_width(plan) * weft__cp_c_size(plan), ld, ld};
}

weft__cp_rows weft__cp_own_rows(const weft_cp_plan *plan, const weft_cp_io *io)
{
    return plan->options.fp8 ? weft__cp_rows_in(plan, plan->own_kv) : (weft__cp_rows){io->k, io->v, io->k_ld, io->v_ld};
}

static void encode_own(const weft_cp_plan *plan, const weft_cp_io *io, int64_t rows, void *wire)
{
    const weft_rows k = {.type = weft__cp_c(plan), .ld = io->k_ld}, v = {.type = weft__cp_c(plan), .ld = io->v_ld};
    weft__cp_encode(plan, &plan->wire, 0, wire, io->k, &k, rows);
    weft__cp_encode(plan, &plan->wire, 1, wire, io->v, &v, rows);
}

/* Rows [row0, row0 + rows) of a message to a buffer of rows [K | V] in C, where they lie `ahead` rows further on. */
static void decode_rows(const weft_cp_plan *plan, const void *wire, int64_t row0, int64_t rows, int64_t ahead,
                        void *buffer)
{
    const weft_rows to = {.type = weft__cp_c(plan), .ld = k_width(plan) + v_width(plan)};
    char *k = (char *)buffer + (size_t)((row0 + ahead) * to.ld) * weft__cp_c_size(plan);
    weft__cp_decode(plan, &plan->wire, 0, wire, row0, k, &to, rows);
    weft__cp_decode(plan, &plan->wire, 1, wire, row0, k + (size_t)k_width(plan) * weft__cp_c_size(plan), &to, rows);
}

static void copy_bytes(const weft_cp_plan *plan, void *to, const void *from, size_t bytes)
{
    const weft_rows byte = {.type = WEFT_F8_E4M3, .ld = (int64_t)bytes};
    if (to && to != from) plan->ops->move.copy(to, &byte, from, &byte, 1, (int64_t)bytes, &plan->run);
}

/* With options.fp8 a rank computes its own block, too, from what the others get: then every number of K and V is the
 * same on every rank, in forward and in backward, whatever P is. Encoded once, in forward. */
static void begin_own(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, void *packed, bool backward)
{
    int64_t rows = slot->kv_rows[plan->rank];
    if (!plan->options.fp8) {
        if (packed) encode_own(plan, io, rows, packed);
        return;
    }
    void *wire = plan->problem.need_backward ? io->kept : plan->own_wire;
    if (!backward) encode_own(plan, io, rows, wire);
    decode_rows(plan, wire, 0, rows, 0, plan->own_kv);
    copy_bytes(plan, packed, wire, weft__cp_wire_bytes(&plan->wire, rows));
}

/* ---- portions ------------------------------------------------------------------------------------------ */

weft__cp_block weft__cp_block_of(const weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io,
                                 const char *op, int step, weft__cp_message *message)
{
    int pairs_of = WEFT_PLANTED(kv_swapped) && plan->P > 2 && (step == 1 || step == 2) ? 3 - step : step;
    const int64_t first = slot->first[pairs_of];
    weft__cp_block b = {.op = op, .step = step, .rows = slot->kv_rows[weft__cp_owner(plan, step)],
                        .pairs = slot->pairs + first, .wave = slot->wave + first,
                        .n = slot->first[pairs_of + 1] - first, .message = message};
    b.count = b.rows;
    if (message) b.bytes = weft__cp_wire_bytes(&plan->wire, b.rows);
    else b.at = weft__cp_own_rows(plan, io);
    return b;
}

/* Keys in runs can be cut between runs only: the rest of a run and what follows are no range of the kernel's. The
 * largest row <= end at which no pair is cut inside a run. */
static int64_t between_runs(const weft__cp_block *b, int64_t end)
{
    for (bool again = true; again;) {
        again = false;
        for (int64_t i = 0; i < b->n; i++) {
            const weft_attn_pair *p = &b->pairs[i];
            if (p->k_run == p->k_step || p->k_row >= end || p->k_row + p->nk <= end) continue;
            int64_t into = (end - p->k_row) % p->k_run;
            end -= into;
            again |= into != 0;
        }
    }
    return end;
}

/* Where the portion that starts at row `begin` ends. Counted in rows and bytes of the whole block, so that strategies
 * which send parts of it compute in the same portions. */
static int64_t portion_end(const weft_cp_plan *plan, const weft__cp_block *b, int64_t begin)
{
    size_t all = b->bytes, piece = plan->options.buffer_bytes;
    if (piece == 0 || piece > all) piece = all;
    size_t least = weft__cp_wire_bytes(&plan->wire, weft_min_i64(b->rows, begin + PORTION_ROWS));
    for (size_t bytes = piece ? (least + piece - 1) / piece * piece : 0; bytes < all; bytes += piece) {
        int64_t end = between_runs(b, weft__cp_wire_rows(&plan->wire, bytes));
        if (end - begin >= PORTION_ROWS) return end;
    }
    return b->rows;
}

typedef struct portion { /* rows [begin, end) of a block, and where the block's rows lie (C) */
    int64_t begin, end;
    bool seen;           /* false: no query sees any of them */
    weft__cp_rows at;
} portion;

/* Rows [begin, end) of the message, waited for and decoded to their places in the block. */
static weft_status bring(weft_cp_plan *plan, const weft_cp_io *io, const weft__cp_block *b, int64_t begin, int64_t end,
                         weft__cp_rows *at)
{
    weft__cp_message *m = b->message;
    WEFT_TRY(weft__cp_arrive(plan, io, b->op, b->step, m,
                             plan->options.overlap ? weft__cp_wire_bytes(&plan->wire, end) : m->bytes));
    if (plan->wire.type == weft__cp_c(plan)) {
        *at = weft__cp_rows_in(plan, m->data - b->row0 * plan->wire.row_bytes);
        return WEFT_OK;
    }
    if (b->n > 0) decode_rows(plan, m->data, begin, end - begin, b->row0, plan->decoded);
    *at = weft__cp_rows_in(plan, plan->decoded);
    return WEFT_OK;
}

/* The portion after p->end, here and in C. */
static weft_status next_portion(weft_cp_plan *plan, const weft_cp_io *io, const weft__cp_block *b, portion *p)
{
    p->begin = p->end;
    p->end = b->bytes ? portion_end(plan, b, p->begin) : b->rows;
    p->at = b->at;
    p->seen = true;
    if (!b->message) return WEFT_OK;
    int64_t begin = weft_max_i64(0, p->begin - b->row0), end = weft_min_i64(b->count, p->end - b->row0);
    p->seen = begin < end;
    return p->seen ? bring(plan, io, b, begin, end, &p->at) : WEFT_OK;
}

enum { ALL_WAVES = -1 };

/* The pairs of a wave, or of all, with their keys inside the portion. */
static const weft_attn_pair *pairs_in(const weft_cp_plan *plan, const weft__cp_block *b, int wave, const portion *p,
                                      int64_t *n)
{
    *n = b->n;
    if (p->begin == 0 && p->end == b->rows && (wave == ALL_WAVES || plan->waves == 1)) return b->pairs;
    int64_t kept = 0;
    for (int64_t i = 0; i < b->n; i++) {
        if (wave != ALL_WAVES && b->wave[i] != wave) continue;
        weft_attn_pair x = b->pairs[i];
        int64_t begin = weft_max_i64(p->begin, x.k_row), end = weft_min_i64(p->end, x.k_row + x.nk),
                ahead = begin - x.k_row;
        if (begin >= end) continue;
        x.k_row = begin;
        x.nk = end - begin;
        x.k_pos += ahead / x.k_run * x.k_step + ahead % x.k_run;
        plan->clipped[kept++] = x;
    }
    *n = kept;
    return plan->clipped;
}

/* ---- forward ----------------------------------------------------------------------------------------- */

void weft__cp_forward_begin(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, void *packed)
{
    begin_own(plan, slot, io, packed, false);
    plan->ops->attn.start(&plan->desc, plan->rows, io->m, io->l, slot->q_rows);
}

/* The address of this call's dropout. */
static uint32_t drop_word3(const weft_cp_io *io)
{
    return weft_philox_word3(io->step, (uint32_t)io->layer, WEFT_SITE_DROP_ATTENTION);
}

/* What kernels are told: the plan's description, without dropout where the call asks for none. */
static weft_attn_desc desc_of(const weft_cp_plan *plan, const weft_cp_io *io)
{
    weft_attn_desc d = plan->desc;
    if (io->no_dropout) d.dropout = 0;
    return d;
}

static void record(weft_cp_plan *plan, const weft_cp_io *io, const char *name, double begin, int step)
{
    double end = weft_now(&plan->ctx->clock);
    plan->ctx->attention_seconds += end - begin;
    weft_trace_emit(&plan->ctx->trace, WEFT_TRACK_COMPUTE, name, begin, end, io->layer, step);
}

static void forward_portion(weft_cp_plan *plan, const weft_cp_io *io, const weft__cp_block *b, const portion *p)
{
    const weft_attn_fwd_io a = {.q = io->q, .k = p->at.k, .v = p->at.v, .q_ld = io->q_ld, .k_ld = p->at.k_ld,
                                .v_ld = p->at.v_ld, .acc = plan->rows, .m = io->m, .l = io->l,
                                .drop_word3 = drop_word3(io)};
    const weft_attn_desc desc = desc_of(plan, io);
    double begin = weft_now(&plan->ctx->clock);
    int64_t n;
    const weft_attn_pair *pairs = pairs_in(plan, b, ALL_WAVES, p, &n);
    if (n > 0) plan->ops->attn.forward(&desc, &a, pairs, n, &plan->run);
    record(plan, io, "cp.forward.block", begin, b->step);
}

/* The planted fault of partial outputs in 16 bits. */
static void round_partials(weft_cp_plan *plan)
{
    int64_t n = plan->q_rows_max * plan->desc.H * plan->desc.Dv;
    for (int64_t i = 0; i < n; i++) {
        weft_bf16 narrow = weft_f32_to_bf16((float)weft_load(plan->rows, weft__cp_r(plan), i));
        weft_store(plan->rows, weft__cp_r(plan), i, weft_bf16_to_f32(narrow));
    }
}

weft_status weft__cp_forward_block(weft_cp_plan *plan, const weft_cp_io *io, const weft__cp_block *block)
{
    portion p = {0};
    do {
        WEFT_TRY(next_portion(plan, io, block, &p));
        if (p.seen) forward_portion(plan, io, block, &p);
    } while (p.end < block->rows);
    if (WEFT_PLANTED(partials_to_bf16)) round_partials(plan);
    return WEFT_OK;
}

void weft__cp_forward_end(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    plan->ops->attn.finish(&plan->desc, io->o, io->o_ld, io->lse, plan->rows, io->m, io->l,
                           plan->problem.sinks ? io->sinks : NULL, slot->q_rows, plan->run.threads);
    if (WEFT_PLANTED(log2_lse) && io->lse)
        for (int64_t i = 0; i < slot->q_rows * plan->desc.H; i++)
            weft_store(io->lse, weft__cp_r(plan), i, weft_load(io->lse, weft__cp_r(plan), i) / log(2));
}

/* ---- backward ---------------------------------------------------------------------------------------- */

void weft__cp_backward_begin(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io, void *packed)
{
    bool sinks = plan->problem.sinks;
    begin_own(plan, slot, io, packed, true);
    if (!plan->given_delta)
        plan->ops->attn.delta(&plan->desc, plan->delta, sinks ? io->dsinks : NULL, sinks ? io->sinks : NULL, io->dout,
                              io->dout_ld, io->o, io->o_ld, io->m, io->l, slot->q_rows, plan->run.threads);
    plan->ops->move.zero(plan->rows, (size_t)(slot->q_rows * plan->desc.H * plan->desc.D) * weft__cp_r_size(plan),
                         &plan->run);
}

static void backward_portion(weft_cp_plan *plan, const weft_cp_io *io, const weft__cp_block *b, const portion *p,
                             void *dkv)
{
    char *dv = (char *)dkv + (size_t)(b->rows * k_width(plan)) * weft__cp_r_size(plan);
    const weft_attn_bwd_io a = {.q = io->q, .k = p->at.k, .v = p->at.v, .dout = io->dout, .q_ld = io->q_ld,
                                .k_ld = p->at.k_ld, .v_ld = p->at.v_ld, .dout_ld = io->dout_ld, .m = io->m, .l = io->l,
                                .delta = plan->given_delta ? plan->given_delta : plan->delta, .dq = plan->rows,
                                .dk = dkv,
                                .dv = dv, .drop_word3 = drop_word3(io)};
    const weft_attn_desc desc = desc_of(plan, io);
    double begin = weft_now(&plan->ctx->clock);
    for (int w = 0; w < plan->waves; w++) {
        int64_t n;
        const weft_attn_pair *pairs = pairs_in(plan, b, w, p, &n);
        if (n > 0) plan->ops->attn.backward(&desc, &a, pairs, n, &plan->run);
    }
    record(plan, io, "cp.backward.block", begin, b->step);
}

weft_status weft__cp_backward_block(weft_cp_plan *plan, const weft_cp_io *io, const weft__cp_block *block, void *dkv)
{
    portion p = {0};
    /* Also when nothing is visible: zeros travel then, and every strategy adds the same numbers. */
    plan->ops->move.zero(dkv, (size_t)block->rows * plan->part_row_bytes, &plan->run);
    do {
        WEFT_TRY(next_portion(plan, io, block, &p));
        if (p.seen) backward_portion(plan, io, block, &p, dkv);
    } while (p.end < block->rows);
    return WEFT_OK;
}

/* ---- gradients of K,V ---------------------------------------------------------------------------------- */

/* A block's gradient as rows, so that threads can share it. */
static weft_rows gradient(const weft_cp_plan *plan, weft_dtype type)
{
    return (weft_rows){.type = type, .ld = k_width(plan) + v_width(plan)};
}

const void *weft__cp_grad_encode(const weft_cp_plan *plan, int64_t rows, const void *part, void *wire)
{
    const weft_rows from = gradient(plan, weft__cp_r(plan)), to = gradient(plan, plan->grad_type);
    if (to.type == from.type) return part;
    plan->ops->move.copy(wire, &to, part, &from, rows, to.ld, &plan->run);
    return wire;
}

void weft__cp_grad_store(const weft_cp_plan *plan, int64_t rows, void *sum, const void *came)
{
    const weft_rows from = gradient(plan, plan->grad_type), to = gradient(plan, weft__cp_r(plan));
    if (WEFT_PLANTED(no_dkv_exchange)) plan->ops->move.zero(sum, (size_t)rows * plan->part_row_bytes, &plan->run);
    else plan->ops->move.copy(sum, &to, came, &from, rows, to.ld, &plan->run);
}

void weft__cp_grad_add(const weft_cp_plan *plan, int64_t rows, void *sum, const void *came)
{
    const weft_rows from = gradient(plan, plan->grad_type), to = gradient(plan, weft__cp_r(plan));
    if (WEFT_PLANTED(no_dkv_exchange)) return;
    plan->ops->move.add(sum, &to, came, &from, rows, to.ld, &plan->run);
}

void weft__cp_part_add(const weft_cp_plan *plan, int64_t rows, void *sum, const void *part)
{
    const weft_rows at = gradient(plan, weft__cp_r(plan));
    plan->ops->move.add(sum, &at, part, &at, rows, at.ld, &plan->run);
}

/* to (C) [rows, width] with `ld` = round(from), from (R) dense. */
static void store_rows(const weft_cp_plan *plan, void *dst, int64_t ld, const void *src, int64_t rows, int64_t width)
{
    const weft_rows to = {.type = weft__cp_c(plan), .ld = ld}, from = {.type = weft__cp_r(plan), .ld = width};
    plan->ops->move.copy(dst, &to, src, &from, rows, width, &plan->run);
}

void weft__cp_backward_end(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    int64_t rows = slot->kv_rows[plan->rank];
    const char *dv = (const char *)plan->own + (size_t)(rows * k_width(plan)) * weft__cp_r_size(plan);
    store_rows(plan, io->dq, io->dq_ld, plan->rows, slot->q_rows, (int64_t)plan->desc.H * plan->desc.D);
    if (!io->dk) return; /* the head stage goes on with the sums */
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
                  weft_layout_text(plan->problem.layout, layout, sizeof layout),
                  plan->options.overlap ? "" : " no-overlap", plan->ops->attn.name);
}
