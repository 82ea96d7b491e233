/* bytes.c — bytes that one rank sends in a step, by the groups over which they go: as counted, and as planned.
 *
 * Every room says what its own code sends (weft_model_preview_bytes, weft_optim_bytes_of, weft_all_reduce_bytes); what
 * a step shares beside that, a few numbers, stands here as train/step.c shares it. */
#include "plan/plan.h"

const char *weft_bytes_name(weft_bytes_kind kind)
{
    static const char *const names[WEFT_BYTES_KINDS] = {"tp", "cp", "pp", "dp", "all"};
    return names[kind];
}

int64_t weft_bytes_total(const weft_bytes *b)
{
    int64_t sum = 0;
    for (int k = 0; k < WEFT_BYTES_KINDS; k++) sum += b->of[k];
    return sum;
}

static int64_t sent_over(const weft_comm *c)
{
    weft_counters x = {0};
    if (c) weft_comm_counters(c, &x);
    return x.bytes_logical;
}

void weft_bytes_count(const weft_mesh *mesh, weft_bytes *out)
{
    *out = (weft_bytes){.of = {[WEFT_BYTES_TP] = sent_over(mesh->tp),
                               [WEFT_BYTES_CP] = sent_over(mesh->cp),
                               [WEFT_BYTES_PP] = sent_over(mesh->pp) + sent_over(mesh->ends),
                               [WEFT_BYTES_DP] = sent_over(mesh->dp) + sent_over(mesh->dp_cp),
                               [WEFT_BYTES_ALL] = sent_over(mesh->all)}};
}

/* ---- as planned ------------------------------------------------------------------------------------------- */

typedef struct seat { int ranks, rank; } seat; /* in a group */

static seat seat_in(const weft_bytes_ask *a, weft_mesh_kind kind)
{
    const int me = weft_mesh_rank(a->size, a->at), group = weft_mesh_group(a->size, kind, me);
    seat s = {0, 0};
    for (int r = 0, n = weft_mesh_ranks(a->size); r < n; r++) {
        if (weft_mesh_group(a->size, kind, r) != group) continue;
        s.ranks++;
        s.rank += r < me;
    }
    return s;
}

static int64_t shared(const weft_bytes_ask *a, weft_mesh_kind kind, int64_t numbers)
{
    const seat s = seat_in(a, kind);
    return weft_all_reduce_bytes(s.ranks, s.rank, numbers, sizeof(double)); /* or as many int64_t */
}

/* The numbers of labels; the loss, over stages and over ranks with the same weights; what the guard found, and the
 * norm; imbalance. */
static void add_numbers(const weft_bytes_ask *a, weft_bytes *out)
{
    out->of[WEFT_BYTES_DP] += shared(a, WEFT_MESH_DP, 1) + shared(a, WEFT_MESH_DP_CP, 1);
    out->of[WEFT_BYTES_PP] += shared(a, WEFT_MESH_PP, 1);
    out->of[WEFT_BYTES_CP] += shared(a, WEFT_MESH_CP, a->micros);
    out->of[WEFT_BYTES_ALL] += shared(a, WEFT_MESH_ALL, 1) * (1 + a->guard) + 2 * shared(a, WEFT_MESH_ALL, 2);
}

static weft_model_share share_of(const weft_bytes_ask *a)
{
    return (weft_model_share){a->at.tp, a->size.tp, a->at.pp, a->size.pp, a->sequence_parallel};
}

static weft_status add_optimizer(const weft_bytes_ask *a, weft_arena *arena, weft_bytes *out)
{
    const seat copies = seat_in(a, WEFT_MESH_DP_CP);
    const weft_model_share share = share_of(a);
    const bool first = share.stage == 0, last = share.stage + 1 == share.stages;
    weft_spec *spec = NULL;
    int64_t *bucket = NULL;
    weft_optim_share s = {.size = weft_dtype_size(weft_prec_real(a->options.prec)), .ranks = copies.ranks,
                          .rank = copies.rank, .tps = share.tps, .tp = share.tp,
                          .end = share.stages == 1 ? -1 : first ? 0 : last ? 1 : -1};
    WEFT_TRY(weft_model_share_spec(a->config, &share, arena, &spec, &s.n, &bucket, &s.buckets));
    s.spec = spec, s.bucket = bucket;
    const weft_optim_bytes b = weft_optim_bytes_of(&s);
    out->of[WEFT_BYTES_TP] += b.tp;
    out->of[WEFT_BYTES_PP] += b.ends;
    out->of[WEFT_BYTES_DP] += b.dp;
    return WEFT_OK;
}

/* Documents of every sequence, from end to end. */
static weft_status whole_docs(const weft_bytes_ask *a, weft_arena *arena, weft_docs *out)
{
    const int64_t B = a->options.B;
    int64_t *cu = NULL, *first = NULL;
    WEFT_TRY(WEFT_NEW0(arena, 2 * B, "documents", &cu));
    WEFT_TRY(WEFT_NEW0(arena, B + 1, "documents", &first));
    for (int64_t b = 0; b < B; b++) cu[2 * b + 1] = a->options.T, first[b + 1] = 2 * (b + 1);
    *out = (weft_docs){.B = B, .T = a->options.T, .cu = cu, .first = first};
    return WEFT_OK;
}

/* The shard of one micro-batch and this rank's labels in it. */
static weft_status cut_micro(const weft_bytes_ask *a, weft_arena *arena, const weft_bytes_micro *micro,
                             weft_shard *shard, weft_model_seat *out)
{
    weft_docs docs;
    int64_t *index = NULL, *pos = NULL;
    int32_t *target = NULL;
    const int cp = a->at.cp;
    if (micro && micro->docs) docs = *micro->docs;
    else WEFT_TRY(whole_docs(a, arena, &docs));
    const int64_t n = weft_max_i64(a->options.max_docs, docs.first[docs.B] - docs.B);
    WEFT_TRY(weft_shard_alloc(shard, arena, a->size.cp,
                              weft_shard_capacity(a->options.layout, docs.B, docs.T, n, a->size.cp)));
    WEFT_TRY(weft_shard_make(shard, a->options.layout, &docs, 0));
    *out = (weft_model_seat){.cps = a->size.cp, .cp = cp, .shard = shard};
    if (!micro || !micro->target) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(arena, shard->rows[cp], "labels", &target));
    WEFT_TRY(WEFT_NEW(arena, shard->rows[cp], "labels", &index));
    WEFT_TRY(WEFT_NEW(arena, shard->rows[cp], "labels", &pos));
    weft_shard_tokens(shard, cp, index, pos);
    for (int64_t i = 0; i < shard->rows[cp]; i++) target[i] = micro->target[index[i]];
    out->target = target;
    return WEFT_OK;
}

/* What goes to the stage after and to the stage before. */
static int64_t neighbours(const weft_bytes_ask *a) { return (a->at.pp > 0) + (a->at.pp + 1 < a->size.pp); }

/* Micro-batches that are all alike are looked at once. */
static weft_status add_passes(const weft_bytes_ask *a, const weft_kern *kern, weft_comm *any, weft_arena *arena,
                              weft_bytes *out)
{
    const int64_t n = a->micro ? a->micros : 1, times = a->micro ? 1 : a->micros;
    const weft_model_share share = share_of(a);
    weft_model_options options = a->options;
    options.slots = weft_sched_slots(a->size.pp, a->at.pp, a->micros);
    weft_shard *shard = NULL;
    weft_model_seat *seats = NULL;
    weft_model_bytes *bytes = NULL;
    WEFT_TRY(WEFT_NEW0(arena, n, "shards", &shard));
    WEFT_TRY(WEFT_NEW0(arena, n, "shards", &seats));
    WEFT_TRY(WEFT_NEW0(arena, n, "shards", &bytes));
    for (int64_t i = 0; i < n; i++)
        WEFT_TRY(cut_micro(a, arena, a->micro ? &a->micro[i] : NULL, &shard[i], &seats[i]));
    WEFT_TRY(weft_model_preview_bytes(bytes, kern, any, a->config, &share, &options, seats, (int)n));
    for (int64_t i = 0; i < n; i++) {
        out->of[WEFT_BYTES_TP] += times * bytes[i].tp;
        out->of[WEFT_BYTES_CP] += times * bytes[i].cp;
        out->of[WEFT_BYTES_PP] += times * bytes[i].stage * neighbours(a);
    }
    return WEFT_OK;
}

weft_status weft_plan_bytes(weft_bytes *out, const weft_kern *kern, weft_comm *any, const weft_bytes_ask *ask)
{
    weft_mem mem = {0};
    weft_arena *arena = NULL;
    weft_bytes sum = {0};
    WEFT_TRY(weft_arena_create(&arena, &mem, "bytes of a step", NULL));
    weft_status st = add_passes(ask, kern, any, arena, &sum);
    if (st >= 0) st = add_optimizer(ask, arena, &sum);
    weft_arena_destroy(arena);
    add_numbers(ask, &sum);
    if (st >= 0) *out = sum;
    return st;
}
