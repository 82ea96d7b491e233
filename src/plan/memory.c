/* memory.c — bytes of one rank by kind: what an account of memory holds, and what a run will hold, before it runs.
 *
 * The model's part, which is nearly all of it, is counted by the code that makes a model (weft_model_preview); the rest
 * are the arrays of the trainer, by their sizes. */
#include "plan/plan_impl.h"

#include <string.h>

static const char *const names[WEFT_MEMORY_KINDS] = {
    [WEFT_MEMORY_WEIGHTS] = "weights", [WEFT_MEMORY_GRADIENTS] = "gradients", [WEFT_MEMORY_MOMENTS] = "moments",
    [WEFT_MEMORY_ACTIVATIONS] = "activations", [WEFT_MEMORY_ATTENTION] = "attention",
    [WEFT_MEMORY_EXCHANGE] = "exchange", [WEFT_MEMORY_SCRATCH] = "scratch", [WEFT_MEMORY_LOGITS] = "logits",
    [WEFT_MEMORY_DATA] = "data", [WEFT_MEMORY_OFFLOADED] = "offloaded", [WEFT_MEMORY_CHECKPOINT] = "checkpoint",
    [WEFT_MEMORY_PRODUCTS] = "products", [WEFT_MEMORY_TABLES] = "tables",
};

const char *weft_memory_name(weft_memory_kind kind) { return names[kind]; }

weft_memory_kind weft_memory_kind_of(const char *label)
{
    static const struct { const char *label; weft_memory_kind kind; } of[] = {
        {"weights", WEFT_MEMORY_WEIGHTS}, {"weights for products", WEFT_MEMORY_WEIGHTS},
        {"gradients", WEFT_MEMORY_GRADIENTS},
        {"first moment", WEFT_MEMORY_MOMENTS}, {"second moment", WEFT_MEMORY_MOMENTS},
        {"residual", WEFT_MEMORY_ACTIVATIONS}, {"normed", WEFT_MEMORY_ACTIVATIONS},
        {"norm statistics", WEFT_MEMORY_ACTIVATIONS}, {"qkv", WEFT_MEMORY_ACTIVATIONS},
        {"qk before norm", WEFT_MEMORY_ACTIVATIONS}, {"attention out", WEFT_MEMORY_ACTIVATIONS},
        {"attention state", WEFT_MEMORY_ACTIVATIONS}, {"attention kept", WEFT_MEMORY_ACTIVATIONS},
        {"mlp", WEFT_MEMORY_ACTIVATIONS},
        {"tensor parallel", WEFT_MEMORY_EXCHANGE}, {"stage input", WEFT_MEMORY_EXCHANGE},
        {"stage output", WEFT_MEMORY_EXCHANGE}, {"stage gradient", WEFT_MEMORY_EXCHANGE},
        {"partial sums", WEFT_MEMORY_EXCHANGE}, {"sums over tp", WEFT_MEMORY_EXCHANGE},
        {"scratch", WEFT_MEMORY_SCRATCH},
        {"logits", WEFT_MEMORY_LOGITS}, {"loss", WEFT_MEMORY_LOGITS},
        {"positions", WEFT_MEMORY_DATA}, {"rotation", WEFT_MEMORY_DATA}, {"tokens", WEFT_MEMORY_DATA},
        {"targets", WEFT_MEMORY_DATA}, {"token index", WEFT_MEMORY_DATA}, {"step tokens", WEFT_MEMORY_DATA},
        {"step targets", WEFT_MEMORY_DATA},
        {"offloaded inputs", WEFT_MEMORY_OFFLOADED},
        {"snapshot", WEFT_MEMORY_CHECKPOINT},
        {"oneDNN scratchpad", WEFT_MEMORY_PRODUCTS}, {"packed operands", WEFT_MEMORY_PRODUCTS},
    };
    if (!strncmp(label, "cp ", 3)) return WEFT_MEMORY_ATTENTION;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!strcmp(label, of[i].label)) return of[i].kind;
    return WEFT_MEMORY_TABLES;
}

void weft_memory_count(const weft_mem *mem, weft_memory *out)
{
    *out = (weft_memory){0};
    for (int i = 0; i < mem->rows; i++)
        out->bytes[weft_memory_kind_of(mem->row[i].label)] += (int64_t)mem->row[i].peak;
}

int64_t weft_memory_total(const weft_memory *m)
{
    int64_t sum = 0;
    for (int i = 0; i < WEFT_MEMORY_KINDS; i++) sum += m->bytes[i];
    return sum;
}

/* ---- the estimate -------------------------------------------------------------------------------------- */

/* `n` arrays of so many elements; arenas hand out multiples of 64 bytes. */
static weft_status add(weft_memory *out, weft_memory_kind kind, int64_t n, int64_t count, int64_t size)
{
    int64_t bytes, all;
    if (!weft_mul_i64(count, size, &bytes) || bytes > INT64_MAX - 64 ||
        !weft_mul_i64(n, weft_max_i64((bytes + 63) / 64 * 64, 64), &all) || all > INT64_MAX - out->bytes[kind])
        return weft_fail(WEFT_ERR_REFUSED, "%s do not fit into 63 bits of bytes; use smaller sizes", names[kind]);
    out->bytes[kind] += all;
    return WEFT_OK;
}

/* Tokens of the step, of the micro-batches that are alive, and where their rows stand. */
static weft_status add_data(weft_memory *out, const weft_memory_ask *a, int64_t rows, int slots)
{
    int64_t tokens;
    if (!weft_mul_i64(a->options.B * a->options.T, a->micros, &tokens))
        return weft_fail(WEFT_ERR_REFUSED, "the tokens of a step do not fit into 63 bits; use smaller sizes");
    WEFT_TRY(add(out, WEFT_MEMORY_DATA, 2, tokens, sizeof(int32_t)));
    WEFT_TRY(add(out, WEFT_MEMORY_DATA, slots, rows, sizeof(int64_t)));
    WEFT_TRY(add(out, WEFT_MEMORY_DATA, 2 * slots, rows, sizeof(int32_t)));
    return add(out, WEFT_MEMORY_DATA, 1, rows, sizeof(int64_t));
}

/* Rows of the residual stream between stages. */
static weft_status add_stages(weft_memory *out, const weft_memory_ask *a, int64_t rows, int slots)
{
    const weft_model_share *s = &a->at.share;
    const weft_span part = s->sequence_parallel ? weft_model_cut(rows, s->tps, s->tp) : (weft_span){0, rows};
    const int64_t stream = part.end - part.begin;
    int64_t row = 0;
    if (!weft_mul_i64(a->config->C, (int64_t)weft_dtype_size(weft_prec_real(a->options.prec)), &row))
        return weft_fail(WEFT_ERR_REFUSED, "a row of the residual stream does not fit into 63 bits of bytes");
    const bool copied = weft_model_offloads(a->config, s, &a->options);
    const int inputs = s->stage > 0 ? weft_sched_inputs(slots, copied) : 0;
    const int outputs = s->stage + 1 < s->stages ? WEFT_SCHED_OUTPUTS : 0;
    const int gradients = s->stages > 1 && a->options.train ? WEFT_SCHED_GRADIENTS : 0;
    WEFT_TRY(add(out, WEFT_MEMORY_EXCHANGE, inputs, stream, row));
    WEFT_TRY(add(out, WEFT_MEMORY_EXCHANGE, outputs, stream, row));
    return add(out, WEFT_MEMORY_EXCHANGE, gradients, stream, row);
}

/* Room for other ranks' parts of the longest sums: over tp, of the rows of the residual stream; over the ends of a
 * pipeline, of the gradients of a tied embedding. */
static int64_t sums_room(const weft_memory_ask *a, int64_t rows, size_t size)
{
    const weft_model_share *s = &a->at.share;
    const weft_model_config *c = a->config;
    const bool ends = s->stages > 1 && c->tied && a->options.train && (s->stage == 0 || s->stage + 1 == s->stages);
    const weft_span V = weft_model_cut(c->V, s->tps, s->tp);
    const int64_t over_tp = weft_all_reduce_room(s->tps, s->tp, rows * c->C, size);
    return ends ? weft_max_i64(over_tp, weft_all_reduce_room(2, s->stage > 0, (V.end - V.begin) * c->C, size))
                : over_tp;
}

/* What sums over ranks go through: the optimizer's streams and packs; and room for other ranks' parts. */
static weft_status add_sums(weft_memory *out, const weft_memory_ask *a, int64_t rows, const weft_model_sizes *sizes)
{
    const weft_model_share *s = &a->at.share;
    const size_t size = weft_dtype_size(weft_prec_real(a->options.prec));
    const weft_optim_room room = weft_optim_room_of(sizes->bucket, sizes->summed, size);
    if (a->at.ranks * s->tps * s->stages == 1) return WEFT_OK;
    WEFT_TRY(add(out, WEFT_MEMORY_EXCHANGE, 1, sums_room(a, rows, size), 1));
    if (!a->options.train) return WEFT_OK;
    if (s->tps > 1 && sizes->summed > 0)
        WEFT_TRY(add(out, WEFT_MEMORY_EXCHANGE, 1, room.pack_count, (int64_t)size));
    if (a->at.ranks == 1) return WEFT_OK;
    return add(out, WEFT_MEMORY_EXCHANGE, 1, (int64_t)weft_stream_bytes(a->at.ranks, room.stream_bytes), 1);
}

weft_status weft_plan_memory(weft_memory *out, const weft_kern *kern, weft_comm *any, const weft_memory_ask *ask)
{
    const weft_model_options *o = &ask->options;
    weft_memory_ask a = *ask;
    weft_model_sizes sizes;
    weft_plan_state state;
    a.options.slots = o->train ? weft_sched_slots(ask->at.share.stages, ask->at.share.stage, ask->micros) : 1;
    WEFT_TRY(weft_model_preview(&sizes, kern, any, ask->threads, ask->config, &ask->at.share, &a.options, ask->cp,
                                ask->cp_rank));
    weft_memory_count(&sizes.account, out);
    out->file = sizes.file;
    out->bytes[WEFT_MEMORY_TABLES] = 0; /* those of the model are a small part of them */
    out->bytes[WEFT_MEMORY_ATTENTION] += (int64_t)sizes.attention;
    out->bytes[WEFT_MEMORY_PRODUCTS] = (int64_t)sizes.products;
    const int64_t most = weft_shard_max_rows(o->layout, o->B, o->T, ask->cp);
    const int64_t own = ask->cp_rank == WEFT_CP_FULLEST ? most
                                                        : weft_shard_rows(o->layout, o->B, o->T, ask->cp, ask->cp_rank);
    WEFT_TRY(add_data(out, &a, most, a.options.slots));
    WEFT_TRY(add_stages(out, &a, own, a.options.slots));
    WEFT_TRY(add_sums(out, &a, own, &sizes));
    WEFT_TRY(weft_plan_state_bytes(ask->config, o->prec, &ask->at, o->train, &state));
    return add(out, WEFT_MEMORY_MOMENTS, 2, state.moments / 2, 1);
}

/* ---- of the rank with most ------------------------------------------------------------------------------------- */

typedef struct search {
    const weft_kern *kern;
    weft_comm *any;
    const weft_plan_ask *ask;
    const weft_layout_choice *choice;
    weft_memory_ask a;
    weft_memory most;
} search;

static weft_mesh_shape shape_of(const weft_layout_choice *c)
{
    return (weft_mesh_shape){.tp = c->tp, .cp = c->cp, .dp = c->dp, .pp = c->pp, .order = c->order};
}

/* What a rank of this place keeps of checkpoints, at most; of another number of ranks only the most is known. */
static int64_t checkpoint_at(const search *s, int stage, int part)
{
    const weft_mesh_shape size = shape_of(s->choice);
    const int ranks = s->ask->checkpoint_ranks;
    const bool known = weft_mesh_ranks(size) == ranks;
    int64_t most = 0;
    for (int r = 0; r < ranks; r++) {
        const weft_mesh_shape at = known ? weft_mesh_coords(size, r) : size;
        if (!known || (at.pp == stage && at.tp == part)) most = weft_max_i64(most, s->ask->checkpoint[r]);
    }
    return most;
}

static weft_status add_place(search *s, int stage, int part)
{
    weft_memory x;
    s->a.at.share.stage = stage;
    s->a.at.share.tp = part;
    WEFT_TRY(weft_plan_memory(&x, s->kern, s->any, &s->a));
    x.bytes[WEFT_MEMORY_CHECKPOINT] += checkpoint_at(s, stage, part);
    if (weft_memory_total(&x) > weft_memory_total(&s->most)) s->most = x;
    return WEFT_OK;
}

/* Of the stages between the ends, the first with as many layers as any of them: later ones have fewer micro-batches
 * alive. -1: there is none. */
static int fullest_between(const weft_model_config *c, int stages)
{
    int best = -1;
    int64_t layers = 0;
    for (int s = 1; s + 1 < stages; s++) {
        const weft_span here = weft_model_cut(c->L, stages, s);
        if (here.end - here.begin > layers) best = s, layers = here.end - here.begin;
    }
    return best;
}

/* Key/value heads that a run of n query heads can read, at most. */
static int64_t most_kv(int64_t n, int64_t group)
{
    return weft_min_i64(n, weft_ceil_div(n - 1, group) + 1);
}

/* The part of tp with most key/value heads, the last of those. They follow the query heads: a part in the middle may
 * have one more than the last one. */
static int fullest_part(const weft_model_config *c, int tp)
{
    const int64_t most = most_kv(weft_ceil_div(c->H, tp), c->H / c->Hkv);
    int best = tp - 1, Hkv = 0;
    for (int t = tp - 1; t >= 0 && Hkv < most; t--) {
        const weft_model_share share = {t, tp, 0, 1, false};
        const weft_model_widths w = weft_model_share_widths(c, &share);
        if (w.Hkv > Hkv) best = t, Hkv = w.Hkv;
    }
    return best;
}

/* The last part of tp has most of everything that is cut by its own number. */
static weft_status add_stage(search *s, int stage)
{
    const int last = s->choice->tp - 1, best = fullest_part(s->ask->config, s->choice->tp);
    WEFT_TRY(add_place(s, stage, last));
    return best == last ? WEFT_OK : add_place(s, stage, best);
}

/* The place of the rank that keeps most of checkpoints may hold more than those with most of the rest. */
static weft_status add_writer(search *s)
{
    const weft_mesh_shape size = shape_of(s->choice);
    const int ranks = s->ask->checkpoint_ranks;
    int most = 0;
    if (ranks == 0 || weft_mesh_ranks(size) != ranks) return WEFT_OK;
    for (int r = 1; r < ranks; r++)
        if (s->ask->checkpoint[r] > s->ask->checkpoint[most]) most = r;
    const weft_mesh_shape at = weft_mesh_coords(size, most);
    return add_place(s, at.pp, at.tp);
}

/* The last of the ranks with the same weights has the longest slice of the moments. */
weft_status weft_plan_most_memory(weft_memory *out, const weft_kern *kern, weft_comm *any, const weft_plan_ask *ask,
                                  const weft_layout_choice *c)
{
    search s = {.kern = kern, .any = any, .ask = ask, .choice = c, .most = {.bytes = {-1}},
                .a = {.config = ask->config, .options = weft_plan_options(ask, c), .cp = c->cp,
                      .cp_rank = WEFT_CP_FULLEST, .threads = ask->threads,
                      .at = {.share = {0, c->tp, 0, c->pp, c->sequence_parallel}, .ranks = c->dp * c->cp,
                             .rank = c->dp * c->cp - 1, .zero = c->zero}}};
    const int between = fullest_between(ask->config, c->pp);
    WEFT_TRY(weft_plan_micros(ask, c, &s.a.micros));
    WEFT_TRY(add_stage(&s, 0));
    if (between > 0) WEFT_TRY(add_stage(&s, between));
    if (c->pp > 1) WEFT_TRY(add_stage(&s, c->pp - 1));
    WEFT_TRY(add_writer(&s));
    *out = s.most;
    return WEFT_OK;
}
