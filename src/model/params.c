/* params.c — the table of parameters: Hugging Face names and shapes over one array of R.
 *
 * The order of the array serves three readers: embeddings come first (they need no C copy unless tied),
 * q, k, v and gate, up lie one after the other (one product each makes them), and a layer is one range
 * (handed to the gradient reduction as soon as its backward is done). There is no padding: a sum over the
 * whole array is a sum over parameters. */
#include <math.h>
#include <stdio.h>

#include "model/model_impl.h"

typedef struct walk { /* state of one walk over the parameters */
    const weft_model_config *c;
    const weft__family *f;
    weft_arena *arena;
    weft_spec *spec;      /* NULL: only counts */
    weft__params *out;
    char prefix[64];      /* "model.layers.3." */
    bool overflow;
    weft_status st;
} walk;

/* Appends tensor prefix + name of shape [rows, cols] ([rows] when cols is 0) and returns its offset. */
static int64_t add(walk *w, int64_t rows, int64_t cols, const char *name)
{
    int64_t count = rows, offset = w->out->count;
    if (cols && !weft_mul_i64(rows, cols, &count)) w->overflow = true;
    if (__builtin_add_overflow(offset, count, &w->out->count)) w->overflow = true;
    if (w->overflow) return 0;
    if (cols) w->out->matrices += count;
    if (w->spec) {
        weft_spec *s = &w->spec[w->out->n];
        char full[128];
        snprintf(full, sizeof full, "%s%s", w->prefix, name);
        *s =
            (weft_spec){.nd = cols ? 2 : 1, .shape = {rows, cols}, .offset = offset, .count = count, .decay = cols > 0};
        s->number = w->out->n;
        weft_spec_uncut(s);
        weft_status st = weft_arena_strdup(w->arena, full, &s->name);
        if (st < 0) w->st = st;
    }
    w->out->n++;
    return offset;
}

static int64_t add_matrix(walk *w, int64_t in, int64_t out, const char *name)
{
    return w->f->conv1d ? add(w, in, out, name) : add(w, out, in, name);
}

static void llama_layer(walk *w, weft__layer *l)
{
    const weft_model_config *c = w->c;
    int64_t q = (int64_t)c->H * c->D, kv = (int64_t)c->Hkv * c->D;
    l->norm1.w = add(w, c->C, 0, "input_layernorm.weight");
    l->qkv.w = add_matrix(w, c->C, q, "self_attn.q_proj.weight");
    add_matrix(w, c->C, kv, "self_attn.k_proj.weight");
    add_matrix(w, c->C, kv, "self_attn.v_proj.weight");
    if (c->qkv_bias) {
        l->qkv.b = add(w, q, 0, "self_attn.q_proj.bias");
        add(w, kv, 0, "self_attn.k_proj.bias");
        add(w, kv, 0, "self_attn.v_proj.bias");
    }
    if (w->f->qk_norm) {
        l->q_norm = add(w, c->D, 0, "self_attn.q_norm.weight");
        l->k_norm = add(w, c->D, 0, "self_attn.k_norm.weight");
    }
    l->o.w = add_matrix(w, q, c->C, "self_attn.o_proj.weight");
    if (c->o_bias) l->o.b = add(w, c->C, 0, "self_attn.o_proj.bias");
    l->norm2.w = add(w, c->C, 0, "post_attention_layernorm.weight");
    l->up.w = add_matrix(w, c->C, c->F, "mlp.gate_proj.weight");
    add_matrix(w, c->C, c->F, "mlp.up_proj.weight");
    if (c->mlp_bias) {
        l->up.b = add(w, c->F, 0, "mlp.gate_proj.bias");
        add(w, c->F, 0, "mlp.up_proj.bias");
    }
    l->down.w = add_matrix(w, c->F, c->C, "mlp.down_proj.weight");
    if (c->mlp_bias) l->down.b = add(w, c->C, 0, "mlp.down_proj.bias");
}

static void gpt2_layer(walk *w, weft__layer *l)
{
    const weft_model_config *c = w->c;
    l->norm1.w = add(w, c->C, 0, "ln_1.weight");
    l->norm1.b = add(w, c->C, 0, "ln_1.bias");
    l->qkv.w = add_matrix(w, c->C, 3 * c->C, "attn.c_attn.weight");
    l->qkv.b = add(w, 3 * c->C, 0, "attn.c_attn.bias");
    l->o.w = add_matrix(w, c->C, c->C, "attn.c_proj.weight");
    l->o.b = add(w, c->C, 0, "attn.c_proj.bias");
    l->norm2.w = add(w, c->C, 0, "ln_2.weight");
    l->norm2.b = add(w, c->C, 0, "ln_2.bias");
    l->up.w = add_matrix(w, c->C, c->F, "mlp.c_fc.weight");
    l->up.b = add(w, c->F, 0, "mlp.c_fc.bias");
    l->down.w = add_matrix(w, c->F, c->C, "mlp.c_proj.weight");
    l->down.b = add(w, c->C, 0, "mlp.c_proj.bias");
}

static weft__layer empty_layer(const weft_model_config *c, const weft__family *f)
{
    int64_t q = (int64_t)c->H * c->D;
    return (weft__layer){
        .norm1 = {-1, -1}, .norm2 = {-1, -1}, .q_norm = -1, .k_norm = -1,
        .qkv = {c->C, weft__qkv_width(c), -1, -1, f->conv1d},
        .o = {q, c->C, -1, -1, f->conv1d},
        .up = {c->C, f->gated ? 2 * c->F : c->F, -1, -1, f->conv1d},
        .down = {c->F, c->C, -1, -1, f->conv1d},
    };
}

static void walk_layers(walk *w, weft__layer *layer)
{
    for (int64_t i = 0; i < w->c->L && !w->overflow; i++) {
        weft__layer l = empty_layer(w->c, w->f);
        snprintf(w->prefix, sizeof w->prefix, w->f->conv1d ? "transformer.h.%lld." : "model.layers.%lld.",
                 (long long)i);
        l.first = w->out->count;
        if (w->f->conv1d) gpt2_layer(w, &l);
        else llama_layer(w, &l);
        l.count = w->out->count - l.first;
        if (layer) layer[i] = l;
    }
}

weft_status weft__params_walk(const weft_model_config *c, weft_arena *arena, weft_spec *spec, weft__layer *layer,
                              weft__params *out)
{
    const weft__family *f = weft__family_of(c->family);
    walk w = {.c = c, .f = f, .arena = arena, .spec = spec, .out = out, .st = WEFT_OK};
    *out = (weft__params){.wpe = -1, .norm = {-1, -1}};

    out->wte = add(&w, c->V, c->C, f->conv1d ? "transformer.wte.weight" : "model.embed_tokens.weight");
    if (f->learned_positions) out->wpe = add(&w, c->max_position, c->C, "transformer.wpe.weight");
    out->embedding_count = out->count;

    walk_layers(&w, layer);

    w.prefix[0] = 0;
    out->tail_first = out->count;
    out->norm.w = add(&w, c->C, 0, f->conv1d ? "transformer.ln_f.weight" : "model.norm.weight");
    if (f->layernorm) out->norm.b = add(&w, c->C, 0, "transformer.ln_f.bias");
    /* The head is [V, C] in every family: GPT-2 transposes its other matrices only. */
    out->head = (weft__linear){c->C, c->V, out->wte, -1, false};
    if (!c->tied) out->head.w = add(&w, c->V, c->C, "lm_head.weight");

    if (w.overflow) return weft_fail(WEFT_ERR_REFUSED, "the model's sizes give more parameters than 63 bits count");
    return w.st;
}

int64_t weft_model_params(const weft_model_config *config)
{
    weft__params par;
    return weft__params_walk(config, NULL, NULL, NULL, &par) == WEFT_OK ? par.count : -1;
}

/* Embeddings are looked up in R; only a tied one is an operand too. */
int64_t weft__operands_from(const weft_model_config *config, const weft__params *par)
{
    return config->tied ? 0 : par->embedding_count;
}

int64_t weft_model_operand_params(const weft_model_config *config)
{
    weft__params par;
    if (weft__params_walk(config, NULL, NULL, NULL, &par) != WEFT_OK) return -1;
    return par.count - weft__operands_from(config, &par);
}

/* ---- initial values ------------------------------------------------------------------------------- */

/* Element i of tensor t is a function of (seed, t, i) alone, so any rank can make any part. Four elements
 * share one Philox block. */
static void fill_normal(const weft_model *m, const weft_spec *s, int t, uint64_t seed, double sigma)
{
    uint32_t w2 = weft_philox_word2((uint32_t)t & 0xffffu, (uint32_t)t >> 16);
    uint32_t w3 = weft_philox_word3(0, 0, WEFT_SITE_INIT);
    void *x = weft__weight(m, s->offset);
#pragma omp parallel for num_threads(m->ctx->threads) schedule(static)
    for (int64_t i = 0; i < s->count; i += 4) {
        uint64_t block = (uint64_t)i / 4;
        weft_philox_out r = weft_philox(seed, (uint32_t)block, (uint32_t)(block >> 32), w2, w3);
        double z[4];
        weft_normal_pair(r.w[0], r.w[1], z);
        weft_normal_pair(r.w[2], r.w[3], z + 2);
        for (int64_t j = 0; j < 4 && i + j < s->count; j++) weft_store(x, m->rt, i + j, sigma * z[j]);
    }
}

static void fill_constant(const weft_model *m, const weft_spec *s, double value)
{
    void *x = weft__weight(m, s->offset);
    for (int64_t i = 0; i < s->count; i++) weft_store(x, m->rt, i, value);
}

/* Does a projection write to the residual stream? */
static bool writes_residual(const weft_model *m, int64_t offset)
{
    for (int64_t l = 0; l < m->config.L; l++)
        if (offset == m->layer[l].o.w || offset == m->layer[l].down.w) return true;
    return false;
}

static bool is_norm_weight(const weft_model *m, int64_t offset)
{
    if (offset == m->par.norm.w) return true;
    for (int64_t l = 0; l < m->config.L; l++) {
        const weft__layer *y = &m->layer[l];
        if (offset == y->norm1.w || offset == y->norm2.w || offset == y->q_norm || offset == y->k_norm) return true;
    }
    return false;
}

void weft_model_init_weights(weft_model *m, uint64_t seed)
{
    /* 2L branches add to the residual stream; scaling each by 1/sqrt(2L) keeps its variance (GPT-2). */
    double sigma = 0.02, residual_sigma = 0.02 / sqrt(2.0 * (double)m->config.L);
    for (int t = 0; t < m->par.n; t++) {
        const weft_spec *s = &m->spec[t];
        if (s->nd >= 2) fill_normal(m, s, t, seed, writes_residual(m, s->offset) ? residual_sigma : sigma);
        else fill_constant(m, s, is_norm_weight(m, s->offset) ? 1 : 0);
    }
    weft_model_weights_changed(m);
}

void weft_model_weights_changed(weft_model *m)
{
    if (!m->copies) return;
    m->op->to_compute(m->copies, weft__weight(m, m->copies_from), m->par.count - m->copies_from, m->ctx->threads);
}
