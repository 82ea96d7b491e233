/* params.c — the table of parameters: Hugging Face names and shapes over one array of R, as one rank has them.
 *
 * The order of the array serves three readers: embeddings come first (they need no C copy unless tied),
 * q, k, v and gate, up lie one after the other (one product each makes them), and a layer is one range
 * (handed to the gradient reduction as soon as its backward is done). There is no padding: a sum over the
 * whole array is a sum over parameters.
 *
 * Ranks of tp have parts of the matrices: query heads, columns of the feed-forward and entries of the vocabulary are
 * cut evenly, shares differ by one and may be empty. Key/value heads follow the query heads that read them, so two
 * neighbours may have the same one; each then has a part of its gradient. Norms and biases behind a sum over ranks
 * are on all ranks. Each element of the model is counted by one rank only (own_first, own_count): the lowest that
 * has it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model_impl.h"

/* ---- what is cut, and where ------------------------------------------------------------------------- */

weft_span weft_model_cut(int64_t n, int parts, int i)
{
    /* floor(i n / parts) without the product, which may not fit */
    int64_t whole = n / parts, rest = n % parts;
    return (weft_span){whole * i + rest * i / parts, whole * (i + 1) + rest * (i + 1) / parts};
}

/* Key/value heads that query heads [h.begin, h.end) read. */
static weft_span kv_of(weft_span h, int64_t group)
{
    weft_span kv = {h.begin / group, h.begin / group};
    if (h.end > h.begin) kv.end = weft_ceil_div(h.end, group);
    return kv;
}

/* The range of key/value heads that holds all those which several ranks have: their query heads are cut apart. From
 * both ends, since it is asked for each of thousands of ranks. */
static weft_span shared_kv(int64_t H, int64_t group, int tps)
{
    int first = 1, last = tps - 1;
    if (group == 1) return (weft_span){0, 0}; /* no two query heads read the same */
    while (first < tps && weft_model_cut(H, tps, first).begin % group == 0) first++;
    if (first >= tps) return (weft_span){0, 0};
    while (weft_model_cut(H, tps, last).begin % group == 0) last--;
    return (weft_span){weft_model_cut(H, tps, first).begin / group, weft_model_cut(H, tps, last).begin / group + 1};
}

weft__cuts weft__cuts_of(const weft_model_config *c, const weft_model_share *share)
{
    int64_t group = c->H / c->Hkv;
    weft__cuts x = {
        .head = weft_model_cut(c->H, share->tps, share->tp), .F = weft_model_cut(c->F, share->tps, share->tp),
        .V = weft_model_cut(c->V, share->tps, share->tp), .shared_kv = shared_kv(c->H, group, share->tps),
    };
    x.kv = x.own_kv = kv_of(x.head, group);
    /* Who has the query head before this rank's first one, has the key/value head that both read. */
    if (x.kv.end > x.kv.begin && x.head.begin % group) x.own_kv.begin++;
    return x;
}

/* ---- one tensor after the other --------------------------------------------------------------------- */

typedef struct walk { /* state of one walk over the parameters */
    const weft_model_config *c;
    const weft__family *f;
    const weft_model_share *share;
    weft_arena *arena;
    weft_spec *spec;      /* NULL: only counts */
    weft__params *out;
    char prefix[64];      /* "model.layers.3." */
    int64_t number;       /* of the next tensor in the whole model */
    bool elsewhere;       /* the next tensors are on other stages */
    bool copy;            /* they are, too, and count there */
    bool ends;            /* both ends of a pipeline have them */
    bool overflow;
    weft_status st;
} walk;

typedef struct tensor { /* as the whole model has it, and what of it is here */
    int64_t rows, cols;   /* cols 0: one dimension */
    int dim, cuts;        /* cuts 0: all is here */
    weft_span cut[WEFT_SPEC_CUTS];
    weft_span own;        /* where dim is 0: what counts as this rank's of cut[0] */
    weft_spec_sum sum;
    weft_span shared;
} tensor;

static int64_t length(weft_span s) { return s.end - s.begin; }
static weft_span times(weft_span s, int64_t n) { return (weft_span){s.begin * n, s.end * n}; }

static void fill_spec(const walk *w, const tensor *t, weft_spec *s)
{
    s->number = w->number;
    weft_spec_uncut(s);
    s->whole[0] = t->rows;
    if (t->cols) s->whole[1] = t->cols;
    s->sum = t->sum;
    s->shared = t->shared;
    s->ends = w->ends;
    if (t->cuts == 0) {
        s->own_count = w->share->tp == 0 && !w->copy ? s->count : 0;
        return;
    }
    s->cut_dim = t->dim;
    s->cuts = t->cuts;
    memcpy(s->cut, t->cut, sizeof s->cut);
    if (w->copy) s->own_count = 0;
    if (w->copy || length(t->own) == length(t->cut[0])) return;
    int64_t inner = t->cols ? t->cols : 1;
    s->own_first = (t->own.begin - t->cut[0].begin) * inner;
    s->own_count = length(t->own) * inner;
}

/* Appends tensor prefix + name and returns its offset. */
static int64_t add(walk *w, tensor t, const char *name)
{
    int64_t shape[2] = {t.rows, t.cols}, offset = w->out->count;
    if (w->elsewhere) {
        w->number++;
        return -1;
    }
    if (w->share->tps == 1) t.cuts = 0, t.sum = WEFT_SUM_NOT;
    if (t.cuts) shape[t.dim] = 0;
    for (int i = 0; i < t.cuts; i++) shape[t.dim] += length(t.cut[i]);
    int64_t count = shape[0], end = 0;
    if (t.cols && !weft_mul_i64(shape[0], shape[1], &count)) w->overflow = true;
    if (w->overflow || __builtin_add_overflow(offset, count, &end)) w->overflow = true;
    if (w->overflow) return 0;
    w->out->count = end;
    if (t.cols) w->out->matrices += count;
    if (w->spec) {
        weft_spec *s = &w->spec[w->out->n];
        char full[128];
        snprintf(full, sizeof full, "%s%s", w->prefix, name);
        *s = (weft_spec){.nd = t.cols ? 2 : 1, .shape = {shape[0], shape[1]}, .offset = offset, .count = count,
                         .decay = t.cols > 0};
        fill_spec(w, &t, s);
        weft_status st = weft_arena_strdup(w->arena, full, &s->name);
        if (st < 0) w->st = st;
    }
    w->number++;
    w->out->n++;
    return offset;
}

/* All of it on every rank. Its gradient is complete there, unless `parts` says that every rank sees a part of what it
 * acts on. */
static int64_t add_copy(walk *w, int64_t rows, int64_t cols, bool parts, const char *name)
{
    tensor t = {.rows = rows, .cols = cols, .sum = parts ? WEFT_SUM_TP : WEFT_SUM_NOT};
    return add(w, t, name);
}

/* What acts on rows of the residual stream: those of the rank alone with sequence parallelism. */
static int64_t add_vector(walk *w, int64_t n, const char *name)
{
    return add_copy(w, n, 0, w->share->sequence_parallel && !WEFT_PLANTED(tp_norms), name);
}

/* A tensor cut along `dim`, [rows, cols] the whole. */
static int64_t add_cut(walk *w, int64_t rows, int64_t cols, int dim, weft_span cut, const char *name)
{
    return add(w, (tensor){.rows = rows, .cols = cols, .dim = dim, .cuts = 1, .cut = {cut}, .own = cut}, name);
}

/* Matrix whose outputs (columns of y = x W) are cut; out of its inputs. */
static int64_t add_columns(walk *w, int64_t in, int64_t out, weft_span cut, const char *name)
{
    return w->f->conv1d ? add_cut(w, in, out, 1, cut, name) : add_cut(w, out, in, 0, cut, name);
}

/* Matrix whose inputs are cut: ranks have partial sums of all outputs. */
static int64_t add_rows(walk *w, int64_t in, int64_t out, weft_span cut, const char *name)
{
    return w->f->conv1d ? add_cut(w, in, out, 0, cut, name) : add_cut(w, out, in, 1, cut, name);
}

/* Weights (cols C) or biases (cols 0) of key/value heads, [Hkv D, cols]. */
static int64_t add_kv(walk *w, int64_t cols, const char *name)
{
    const weft__cuts *x = &w->out->cut;
    int64_t D = w->c->D;
    tensor t = {.rows = w->c->Hkv * D, .cols = cols, .cuts = 1, .cut = {times(x->kv, D)}, .own = times(x->own_kv, D)};
    t.shared = times(x->shared_kv, D);
    t.sum = length(t.shared) && !WEFT_PLANTED(tp_shared_heads) ? WEFT_SUM_SHARED : WEFT_SUM_NOT;
    return add(w, t, name);
}

static void llama_layer(walk *w, weft__layer *l)
{
    const weft_model_config *c = w->c;
    int64_t q = (int64_t)c->H * c->D;
    weft_span head = times(w->out->cut.head, c->D), F = w->out->cut.F;
    l->norm1.w = add_vector(w, c->C, "input_layernorm.weight");
    l->qkv.w = add_columns(w, c->C, q, head, "self_attn.q_proj.weight");
    add_kv(w, c->C, "self_attn.k_proj.weight");
    add_kv(w, c->C, "self_attn.v_proj.weight");
    if (c->qkv_bias) {
        l->qkv.b = add_cut(w, q, 0, 0, head, "self_attn.q_proj.bias");
        add_kv(w, 0, "self_attn.k_proj.bias");
        add_kv(w, 0, "self_attn.v_proj.bias");
    }
    if (w->f->qk_norm) {
        l->q_norm = add_copy(w, c->D, 0, true, "self_attn.q_norm.weight");
        l->k_norm = add_copy(w, c->D, 0, true, "self_attn.k_norm.weight");
    }
    l->o.w = add_rows(w, q, c->C, head, "self_attn.o_proj.weight");
    if (c->o_bias) l->o.b = add_vector(w, c->C, "self_attn.o_proj.bias");
    l->norm2.w = add_vector(w, c->C, "post_attention_layernorm.weight");
    l->up.w = add_columns(w, c->C, c->F, F, "mlp.gate_proj.weight");
    add_columns(w, c->C, c->F, F, "mlp.up_proj.weight");
    if (c->mlp_bias) {
        l->up.b = add_cut(w, c->F, 0, 0, F, "mlp.gate_proj.bias");
        add_cut(w, c->F, 0, 0, F, "mlp.up_proj.bias");
    }
    l->down.w = add_rows(w, c->F, c->C, F, "mlp.down_proj.weight");
    if (c->mlp_bias) l->down.b = add_vector(w, c->C, "mlp.down_proj.bias");
}

/* q, k and v in one tensor: a rank has three ranges of it. Every query head has its own key/value head there. */
static tensor fused_qkv(const walk *w, int64_t rows, int64_t cols, int dim)
{
    int64_t C = w->c->C;
    weft_span q = times(w->out->cut.head, w->c->D);
    return (tensor){.rows = rows, .cols = cols, .dim = dim, .cuts = 3, .own = q,
                    .cut = {q, {C + q.begin, C + q.end}, {2 * C + q.begin, 2 * C + q.end}}};
}

static void gpt2_layer(walk *w, weft__layer *l)
{
    const weft_model_config *c = w->c;
    weft_span head = times(w->out->cut.head, c->D), F = w->out->cut.F;
    l->norm1.w = add_vector(w, c->C, "ln_1.weight");
    l->norm1.b = add_vector(w, c->C, "ln_1.bias");
    l->qkv.w = add(w, fused_qkv(w, c->C, 3 * c->C, 1), "attn.c_attn.weight");
    l->qkv.b = add(w, fused_qkv(w, 3 * c->C, 0, 0), "attn.c_attn.bias");
    l->o.w = add_rows(w, c->C, c->C, head, "attn.c_proj.weight");
    l->o.b = add_vector(w, c->C, "attn.c_proj.bias");
    l->norm2.w = add_vector(w, c->C, "ln_2.weight");
    l->norm2.b = add_vector(w, c->C, "ln_2.bias");
    l->up.w = add_columns(w, c->C, c->F, F, "mlp.c_fc.weight");
    l->up.b = add_cut(w, c->F, 0, 0, F, "mlp.c_fc.bias");
    l->down.w = add_rows(w, c->F, c->C, F, "mlp.c_proj.weight");
    l->down.b = add_vector(w, c->C, "mlp.c_proj.bias");
}

static weft__layer empty_layer(const walk *w)
{
    const weft_model_config *c = w->c;
    const weft__cuts *x = &w->out->cut;
    bool in_out = w->f->conv1d;
    int64_t q = length(x->head) * c->D, kv = length(x->kv) * c->D, F = length(x->F);
    return (weft__layer){
        .norm1 = {-1, -1}, .norm2 = {-1, -1}, .q_norm = -1, .k_norm = -1,
        .qkv = {c->C, q + 2 * kv, -1, -1, in_out},
        .o = {q, c->C, -1, -1, in_out},
        .up = {c->C, w->f->gated ? 2 * F : F, -1, -1, in_out},
        .down = {F, c->C, -1, -1, in_out},
    };
}

static void walk_layer(walk *w, weft__layer *l)
{
    *l = empty_layer(w);
    l->first = w->out->count;
    if (w->f->conv1d) gpt2_layer(w, l);
    else llama_layer(w, l);
    l->count = w->out->count - l->first;
}

/* *to becomes from + n (*to - from). */
static bool repeat(int64_t *to, int64_t from, int64_t n)
{
    int64_t all;
    return weft_mul_i64(*to - from, n, &all) && !__builtin_add_overflow(from, all, to);
}

/* All are alike: where nothing is written down, one of them counts for all. */
static void count_layers(walk *w, int64_t n)
{
    weft__params *out = w->out;
    const weft__params before = *out;
    weft__layer l;
    w->elsewhere = false;
    if (n == 0) return;
    walk_layer(w, &l);
    if (!repeat(&out->count, before.count, n) || !repeat(&out->matrices, before.matrices, n)) w->overflow = true;
    out->n = before.n + (int)n * (out->n - before.n);
}

static void walk_layers(walk *w, weft__layer *layer)
{
    weft_span here = weft_model_cut(w->c->L, w->share->stages, w->share->stage);
    if (!w->spec && !layer) {
        count_layers(w, length(here));
        return;
    }
    for (int64_t i = 0; i < w->c->L && !w->overflow; i++) {
        weft__layer l;
        w->elsewhere = i < here.begin || i >= here.end;
        snprintf(w->prefix, sizeof w->prefix, w->f->conv1d ? "transformer.h.%lld." : "model.layers.%lld.",
                 (long long)i);
        walk_layer(w, &l);
        if (layer) layer[i] = l;
    }
}

/* The last stage has a tied embedding too, as its head; it counts on the first. */
static void add_embeddings(walk *w)
{
    const weft_model_config *c = w->c;
    bool first = w->share->stage == 0, last = w->share->stage + 1 == w->share->stages;
    w->copy = !first;
    w->ends = c->tied && !(first && last);
    w->elsewhere = !first && !(last && c->tied);
    w->out->wte = add_cut(w, c->V, c->C, 0, w->out->cut.V,
                          w->f->conv1d ? "transformer.wte.weight" : "model.embed_tokens.weight");
    w->copy = w->ends = false;
    w->elsewhere = !first;
    if (w->f->learned_positions)
        w->out->wpe = add_copy(w, c->max_position, c->C, false, "transformer.wpe.weight");
    w->out->embedding_count = w->out->count;
}

static void add_tail(walk *w)
{
    const weft_model_config *c = w->c;
    weft__params *out = w->out;
    bool last = w->share->stage + 1 == w->share->stages;
    w->elsewhere = !last;
    w->prefix[0] = 0;
    out->tail_first = out->count;
    out->norm.w = add_vector(w, c->C, w->f->conv1d ? "transformer.ln_f.weight" : "model.norm.weight");
    if (w->f->layernorm) out->norm.b = add_vector(w, c->C, "transformer.ln_f.bias");
    /* The head is [V, C] in every family: GPT-2 transposes its other matrices only. */
    if (last) out->head = (weft__linear){c->C, length(out->cut.V), out->wte, -1, false};
    if (!c->tied) out->head.w = add_cut(w, c->V, c->C, 0, out->cut.V, "lm_head.weight");
}

weft_status weft__params_walk(const weft_model_config *c, const weft_model_share *share, weft_arena *arena,
                              weft_spec *spec, weft__layer *layer, weft__params *out)
{
    const weft__family *f = weft__family_of(c->family);
    walk w = {.c = c, .f = f, .share = share, .arena = arena, .spec = spec, .out = out, .st = WEFT_OK};
    *out = (weft__params){.wpe = -1, .norm = {-1, -1}, .cut = weft__cuts_of(c, share)};
    add_embeddings(&w);
    walk_layers(&w, layer);
    add_tail(&w);
    if (w.overflow) return weft_fail(WEFT_ERR_REFUSED, "the model's sizes give more parameters than 63 bits count");
    return w.st;
}

/* ---- counts ----------------------------------------------------------------------------------------- */

int64_t weft_model_share_params(const weft_model_config *config, const weft_model_share *share)
{
    weft__params par;
    return weft__params_walk(config, share, NULL, NULL, NULL, &par) == WEFT_OK ? par.count : -1;
}

/* Embeddings are looked up in R; only a tied one is an operand too, where the head is. */
int64_t weft__operands_from(const weft_model_config *config, const weft__params *par)
{
    return config->tied && par->head.in > 0 ? 0 : par->embedding_count;
}

int64_t weft_model_share_operand_params(const weft_model_config *config, const weft_model_share *share)
{
    weft__params par;
    if (weft__params_walk(config, share, NULL, NULL, NULL, &par) != WEFT_OK) return -1;
    return par.count - weft__operands_from(config, &par);
}

weft_status weft_model_share_ranges(const weft_model_config *config, const weft_model_share *share,
                                    weft_model_ranges *out)
{
    weft__params par;
    weft_span here = weft_model_cut(config->L, share->stages, share->stage);
    WEFT_TRY(weft__params_walk(config, share, NULL, NULL, NULL, &par));
    *out = (weft_model_ranges){.embedding = par.embedding_count, .layers = length(here),
                               .tail = par.count - par.tail_first};
    if (out->layers > 0) out->layer = (par.tail_first - par.embedding_count) / out->layers; /* all are alike */
    return WEFT_OK;
}

int64_t weft_model_params(const weft_model_config *config) { return weft_model_share_params(config, &weft_model_all); }

int64_t weft_model_operand_params(const weft_model_config *config)
{
    return weft_model_share_operand_params(config, &weft_model_all);
}

/* ---- initial values ------------------------------------------------------------------------------- */

/* Elements [i, i + n) of whole tensor `number` into x. Element i is a function of (seed, number, i) alone, so any rank
 * can make any part. Four elements share one Philox block. */
static void fill_normal(void *x, weft_dtype type, int64_t at, int64_t i, int64_t n, int64_t number, uint64_t seed,
                        double sigma)
{
    uint32_t w2 = weft_philox_word2((uint32_t)number & 0xffffu, (uint32_t)number >> 16);
    uint32_t w3 = weft_philox_word3(0, 0, WEFT_SITE_INIT);
    for (int64_t end = i + n; i < end;) {
        uint64_t block = (uint64_t)i / 4;
        weft_philox_out r = weft_philox(seed, (uint32_t)block, (uint32_t)(block >> 32), w2, w3);
        double z[4];
        weft_normal_pair(r.w[0], r.w[1], z);
        weft_normal_pair(r.w[2], r.w[3], z + 2);
        for (int64_t j = i % 4; j < 4 && i < end; j++, i++, at++) weft_store(x, type, at, sigma * z[j]);
    }
}

static void fill_matrix(const weft_model *m, const weft_spec *s, uint64_t seed, double sigma)
{
    enum { PIECE = 1 << 14 };
    void *x = weft__weight(m, s->offset);
    int64_t pieces = weft_ceil_div(s->count, PIECE);
#pragma omp parallel for num_threads(m->ctx->threads) schedule(static)
    for (int64_t p = 0; p < pieces; p++) {
        weft_spec_walk w = weft_spec_walk_of(s, p * PIECE, weft_min_i64(PIECE, s->count - p * PIECE));
        for (weft_stretch t; weft_spec_walk_next(&w, &t);)
            fill_normal(x, m->rt, t.at, t.whole, t.n, s->number, seed, sigma);
    }
}

static bool ends_with(const char *name, const char *tail)
{
    size_t n = strlen(name), k = strlen(tail);
    return n >= k && strcmp(name + n - k, tail) == 0;
}

/* Does a projection write to the residual stream? */
static bool writes_residual(const weft_spec *s)
{
    return ends_with(s->name, ".o_proj.weight") || ends_with(s->name, ".down_proj.weight") ||
           ends_with(s->name, ".c_proj.weight");
}

void weft_model_init_weights(weft_model *m, uint64_t seed)
{
    /* 2L branches add to the residual stream; scaling each by 1/sqrt(2L) keeps its variance (GPT-2). */
    double sigma = 0.02, residual_sigma = 0.02 / sqrt(2.0 * (double)m->config.L);
    for (int t = 0; t < m->par.n; t++) {
        const weft_spec *s = &m->spec[t];
        if (s->nd >= 2) {
            fill_matrix(m, s, seed, writes_residual(s) ? residual_sigma : sigma);
            continue;
        }
        double value = ends_with(s->name, ".weight") ? 1 : 0; /* norms are weights of one dimension, the rest biases */
        for (int64_t i = 0; i < s->count; i++) weft_store(m->weights, m->rt, s->offset + i, value);
    }
    weft_model_weights_changed(m);
}

void weft_model_weights_changed(weft_model *m)
{
    if (!m->copies) return;
    m->op->to_compute(m->copies, weft__weight(m, m->copies_from), m->par.count - m->copies_from, m->ctx->threads);
}
