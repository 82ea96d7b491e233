/* model_impl.h — what the files of the room `model` share: the table of families, where each parameter
 * lies, the buffers of a pass, and the layers as pairs of functions (forward and backward).
 *
 * Letters as in model.h; S rows (tokens) of this rank. H, Hkv, F, V of buffers are what is here of them; Q =
 * (H + 2 Hkv) D, the width of the fused q,k,v. s: rows of the residual stream that are here, S without sequence
 * parallelism. */
#ifndef WEFT_MODEL_IMPL_H
#define WEFT_MODEL_IMPL_H

#include "model/model.h"

/* ---- families ------------------------------------------------------------------------------------- */

typedef struct weft__keys { /* how a family's config.json spells the sizes */
    const char *V, *C, *F, *L, *H, *Hkv, *D, *max_position, *eps, *act;
} weft__keys;

typedef struct weft__family { /* one row per family: everything that the code asks about it */
    const char *model_type, *architecture;
    const weft__keys *keys;
    const char *act;         /* the one activation function that works */
    bool layernorm;          /* LayerNorm with bias; otherwise RMSNorm */
    bool gated;              /* down(silu(gate) * up); otherwise proj(gelu(fc)) */
    bool learned_positions;  /* a table wpe; otherwise RoPE */
    bool conv1d;             /* matrices are [in, out] */
    bool qk_norm;            /* RMSNorm per head on q and k */
    bool always_qkv_bias, reads_attention_bias, reads_mlp_bias;
    bool window_switch;      /* use_sliding_window and max_window_layers govern the window */
    int64_t default_max_position, default_window;
    int default_Hkv, default_D; /* 0: H, C / H */
} weft__family;

const weft__family *weft__family_of(weft_family family);
bool weft__family_find(const char *model_type, weft_family *out);
/* "llama, qwen2, ..." for refusals; buf holds 128 bytes. */
const char *weft__family_names(char *buf, size_t n);

/* Rotation frequencies [D/2] in double, and the factor that multiplies cos and sin (rope.c). */
double weft__rope_frequencies(const weft_model_config *config, double *inv);

/* ---- parameters ----------------------------------------------------------------------------------- */

typedef struct weft__linear { /* y[S,out] = x[S,in] W (+ b): offsets in the array of parameters, b -1: none */
    int64_t in, out, w, b;
    bool in_out;              /* W lies as [in, out]; otherwise [out, in] */
} weft__linear;

typedef struct weft__norm { int64_t w, b; } weft__norm;

typedef struct weft__layer {
    weft__norm norm1, norm2;
    weft__linear qkv, o;      /* q, k, v lie one after the other: one product makes all three */
    weft__linear up, down;    /* gate and up likewise */
    int64_t q_norm, k_norm;   /* -1: none */
    int64_t first, count;     /* the layer's range */
} weft__layer;

typedef struct weft__cuts { /* what of the model is here, in whole heads, columns, entries (params.c) */
    weft_span head, kv, F, V;
    weft_span own_kv;         /* key/value heads that no lower rank has */
    weft_span shared_kv;      /* holds all that several ranks have; the same on every rank */
} weft__cuts;

typedef struct weft__params {
    weft__cuts cut;
    int n;
    int64_t count;            /* elements of the whole array */
    int64_t matrices;         /* elements of tensors with two or more dimensions */
    int64_t embedding_count;  /* wte and wpe: the array begins with them */
    int64_t wte, wpe;         /* wpe -1: none */
    int64_t tail_first;       /* the final norm and, if untied, the head: the array ends with them */
    weft__norm norm;
    weft__linear head;
} weft__params;

weft__cuts weft__cuts_of(const weft_model_config *config, const weft_model_share *share);
/* Walks a rank's parameters in the order of the array. spec and layer may be NULL: only counts. spec rows get
 * names from `arena`. Refuses a count that does not fit. */
weft_status weft__params_walk(const weft_model_config *config, const weft_model_share *share, weft_arena *arena,
                              weft_spec *spec, weft__layer *layer, weft__params *out);

/* ---- buffers -------------------------------------------------------------------------------------- */

typedef struct weft__acts { /* what forward leaves for backward, per layer */
    void *x_in, *x_mid;     /* (R) [s,C] residual stream before the attention and before the MLP */
    void *n1, *n2;          /* (C) [s,C] normed */
    void *rstd1, *rstd2, *mean1, *mean2; /* (R) [s]; means for LayerNorm only */
    void *qkv;              /* (C) [S,Q] after the q,k norm and the rotation */
    void *keep_q, *keep_k;  /* (C) [S,H,D], [S,Hkv,D] before the q,k norm; NULL without */
    void *rstd_q, *rstd_k;  /* (R) [S,H], [S,Hkv] */
    void *o;                /* (C) [S,H,D] */
    void *m, *l;            /* (R) [S,H] running state of the attention */
    void *kept;             /* what the layer's plan keeps (weft_cp_kept_bytes), or NULL */
    void *up;               /* (C) [S,2F] gate and up, or [S,F], or a tile's rows; overwritten by its gradient */
} weft__acts;

/* Groups of these buffers that are kept, or made again, together. */
enum {
    WEFT__IN = 1,           /* x_in */
    WEFT__QKV = 2,          /* n1 and its statistics, qkv, and what the q,k norm keeps */
    WEFT__O = 4,            /* o, m, l, kept */
    WEFT__MID = 8,          /* x_mid */
    WEFT__N2 = 16,          /* n2 and its statistics */
    WEFT__UP = 32,          /* up */
    WEFT__ALL = 63
};

typedef struct weft__tp { /* what a tensor-parallel group needs (tp.c) */
    weft_comm *comm;         /* NULL, and so are all pointers: one rank */
    int shares;              /* of the rows of the residual stream: TP with sequence parallelism, else 1 */
    int64_t chunk;           /* rows of a share that travel at once */
    void *buffer;            /* [shares chunk, C] in R or in C */
    int32_t *id;             /* [shares chunk] targets, or ids of tokens */
    size_t *bytes;           /* [TP] of one exchange */
    int64_t *counts;
    double *stats;           /* [TP + 1][rows of a chunk of the loss][3]; the last stage's */
} weft__tp;

typedef struct weft__scratch { /* one set for all layers */
    void *act;   /* (C) [S,F], or a tile's rows */
    void *dx;    /* (R) [s,C] gradient of the residual stream */
    void *dxc;   /* (C) [s,C] its copy for products; the same array as dx when R and C are one type and nothing drops */
    void *branch; /* (R) [some rows,C] what is added to the residual stream, before dropout; NULL without, or with tp */
    int64_t branch_rows;
    void *dn;    /* (C) [s,C] */
    void *dout;  /* (C) [S,H,D] */
    void *dqkv;  /* (C) [S,Q] */
    void *work;  /* of the kernels */
} weft__scratch;

typedef struct weft__offload weft__offload; /* offload.c */

typedef struct weft__pass weft__pass;
struct weft__pass { /* one walk through the layers over `rows` rows: a micro-batch, or a decoder's chunk */
    weft_model *m;
    int64_t rows;
    int shares;              /* of the rows of the residual stream, as in weft__tp: 1 in a decoder */
    int layer;               /* for messages about a stuck rank; -1: before or after all */
    int slot;
    int64_t tile;            /* rows of the feed-forward at a time; 0: all */
    const weft_shard *shard; /* whose rows they are; NULL in a decoder */
    uint32_t step;           /* optimizer step, and whether dropout acts */
    bool training;
    const int32_t *token;
    const int64_t *pos;      /* [S] in the document */
    const int64_t *index;    /* [S] in the micro-batch, for dropout's addresses */
    const void *cos, *sin;   /* (R) [S, D/2] */
    weft__scratch *scratch;
    /* qkv -> o, and m, l: over ranks in a training pass, over the cache in a decoder. */
    weft_status (*attend)(weft__pass *p, int layer, weft__acts *a);
    void *attend_ud;
};

typedef struct weft__slot { /* a micro-batch from its forward to its backward pass */
    weft__acts *acts;        /* one per layer of the stage (weft__acts_of); what is not kept is the model's `again` */
    int64_t *pos;            /* [S] */
    int64_t *table_pos, table_rows; /* the positions that cos, sin are for */
    void *cos, *sin;
    bool pending;            /* its backward pass is to come */
} weft__slot;

enum { WEFT__MAX_PLANS = 2 }; /* full and windowed */

struct weft_model {
    weft_ctx *ctx;
    const weft_kern *kern;
    const weft_kern_ops *op;
    weft_gemm *gemm;
    weft_comm *cp;
    weft_model_config config;
    weft_model_share share;
    int H, Hkv;              /* of this rank, as all that follow */
    int64_t F;
    weft__tp tp;
    const weft__family *family;
    weft_prec prec;
    weft_dtype rt, ct;       /* R and C */
    size_t rs, cs;           /* their bytes */
    bool train;
    double embedding_dropout, residual_dropout;
    uint64_t seed;           /* of dropout */
    weft_recompute recompute;
    bool keep_attention;
    int64_t tile;            /* rows of the feed-forward at a time; 0: all */
    weft_span layers;        /* of this stage of the pipeline */
    bool first_stage, last_stage;
    weft_layout layout;
    int64_t T;               /* tokens of a whole sequence */

    weft_arena *arena;       /* tables and plans */
    weft_arena *buffers;     /* what grows with the model or the batch; of a preview, addresses that nobody owns */
    weft_arena *pool;        /* offloaded inputs, if they lie in memory; of a preview likewise */
    weft_spec *spec;
    weft__layer *layer;
    weft__params par;
    int64_t *bucket;         /* [buckets + 1] bounds of the ranges that backward announces */
    int buckets;
    char *weights, *grads;   /* (R) */
    char *copies;            /* (C) of the parameters from copies_from on; NULL when R and C are one type */
    int64_t copies_from;

    int64_t rows_max, chunk; /* rows of this rank at most; rows of logits alive at once */
    int slots;
    weft__slot *slot;
    weft__acts again;        /* one set for all layers and slots: what no layer keeps */
    weft__offload *offload;  /* NULL: inputs stay in memory */
    weft__scratch scratch;   /* dx only without a pipeline: there it is what travels */
    int64_t *index;          /* [S] */

    /* the last stage's, of one micro-batch */
    void *x_out;             /* (R) [s,C] after the last layer; of any stage: where its last x_mid is made again */
    void *n_out, *rstd_out, *mean_out;
    void *logits, *dlogits, *nll;
    int head_slot;           /* the slot whose gradient n_out holds; -1: none */

    int plans;
    weft_cp_plan *plan[WEFT__MAX_PLANS];
    weft_span plan_layers[WEFT__MAX_PLANS];
    size_t plan_keeps[WEFT__MAX_PLANS]; /* weft_cp_kept_bytes */
    int plan_of[2];          /* of full layers, of windowed layers */
};

/* `p->m->ctx` counts what follows as this part, until the returned one goes back to weft__part_end. */
static inline weft_part weft__part(const weft__pass *p, weft_part part)
{
    return weft_part_begin(&p->m->ctx->parts, part);
}
static inline void weft__part_end(const weft__pass *p, weft_part outer) { weft_part_end(&p->m->ctx->parts, outer); }
/* Element i of an array of `size`-byte elements. */
static inline void *weft__at(void *base, int64_t i, size_t size) { return (char *)base + i * (int64_t)size; }
static inline const void *weft__from(const void *base, int64_t i, size_t size)
{
    return (const char *)base + i * (int64_t)size;
}
static inline void *weft__weight(const weft_model *m, int64_t offset) { return weft__at(m->weights, offset, m->rs); }
static inline void *weft__grad(const weft_model *m, int64_t offset) { return weft__at(m->grads, offset, m->rs); }
/* The first parameter that is an operand of products. */
int64_t weft__operands_from(const weft_model_config *config, const weft__params *par);
/* The operand of products. */
static inline const void *weft__operand(const weft_model *m, int64_t offset)
{
    return m->copies ? weft__at(m->copies, offset - m->copies_from, m->cs) : weft__weight(m, offset);
}
static inline int64_t weft__qkv_width(const weft_model *m) { return (int64_t)(m->H + 2 * m->Hkv) * m->config.D; }
static inline int64_t weft__up_width(const weft_model *m) { return m->F * (m->family->gated ? 2 : 1); }
static inline bool weft__windowed(const weft_model_config *c, int layer)
{
    return c->window > 0 && layer >= c->window_from_layer;
}
static inline int weft__plan_number(const weft_model *m, int64_t layer)
{
    return m->plan_of[weft__windowed(&m->config, (int)layer)];
}
static inline weft_cp_plan *weft__plan_of(const weft_model *m, int64_t layer)
{
    return m->plan[weft__plan_number(m, layer)];
}
static inline weft__acts *weft__acts_of(const weft_model *m, int slot, int64_t layer)
{
    return &m->slot[slot].acts[layer - m->layers.begin];
}
/* The widest row of C elements that a layer has. */
static inline int64_t weft__widest(const weft_model *m)
{
    return weft_max_i64(weft_max_i64(m->config.C, weft__qkv_width(m)), weft__up_width(m));
}
/* All numbers, and all buffers but what plans keep (model.c). */
weft_status weft__model_size(weft_model *m, const weft_model_config *config, const weft_model_share *share,
                             const weft_model_options *o, int cp_ranks);
weft_status weft__model_check(const weft_model_config *config, const weft_model_share *share,
                              const weft_model_options *o);
/* The layers of this stage that a plan of a problem for layers [first, last] would have; false: none. */
bool weft__plan_layers(const weft_model *m, const weft_layer_attention *kind, weft_span *here);

/* A model without memory behind its buffers, for who asks what it would do (model_preview.c). *x must not move between
 * the two; to be closed whatever the first returned. LOCAL */
typedef struct weft__preview {
    weft_ctx ctx;
    weft_nowhere space;
    weft_mem_provider provider;
    weft_model m;
} weft__preview;
weft_status weft__preview_open(weft__preview *x, const weft_kern *kern, int threads, const weft_model_config *config,
                               const weft_model_share *share, const weft_model_options *o, int cp_ranks);
void weft__preview_close(weft__preview *x);

/* Of a model that has its sizes: what its largest product packs (weft_gemm_work_bytes). */
size_t weft__packed_bytes(const weft_model *m);

/* Work of layer l of this stage, and of final norm, head and loss, as weft_model_pass_work counts it (flops.c). */
double weft__layer_work(const weft_model *m, int64_t l, bool backward);
double weft__head_work(const weft_model *m);

weft_mask weft__mask(const weft_model_config *c, bool windowed);
double weft__scale(const weft_model_config *c); /* of the scores: 1 / sqrt(D) */

/* Makes the buffers of the groups `what` (WEFT__IN ...); the others stay as they are in `a`. tile 0: all rows. */
typedef struct weft__act_rows { int64_t rows, stream, tile; } weft__act_rows;
weft_status weft__acts_alloc(const weft_model *m, weft_arena *arena, const weft__act_rows *rows, int what,
                             weft__acts *a);
/* One buffer for the residual stream, to which both halves add, and one for both normed copies of it: no backward pass
 * follows. */
void weft__acts_join(weft__acts *a);
weft_status weft__scratch_alloc(const weft_model *m, weft_arena *arena, const weft__act_rows *rows, bool backward,
                                weft__scratch *s);
/* What each layer keeps from its forward to its backward pass, as a sum of groups. */
int weft__kept_groups(const weft_model *m);
/* Everything that a pass needs on this stage, for m->slots micro-batches (slots.c). */
weft_status weft__slots_alloc(weft_model *m);
/* What plans keep; their size is theirs to say, so it comes after them. */
weft_status weft__slots_alloc_kept(weft_model *m);

/* ---- offloaded inputs (offload.c); all but the first three do nothing without them ------------------------- */

weft_status weft__offload_alloc(weft_model *m, const weft_model_options *o);
weft_status weft__offload_open(weft_model *m); /* the thread, and the file: not of a preview */
void weft__offload_close(weft_model *m);
/* Before a forward pass: a buffer for the first layer's input. */
weft_status weft__offload_begin(const weft__pass *p);
/* Before a layer's pass: its input is on its way out, and has a buffer for its output; or it is here. Sets x_in, and
 * x_mid where that is made again. */
weft_status weft__offload_fwd(weft__pass *p, int64_t layer);
weft_status weft__offload_bwd(weft__pass *p, int64_t layer);
weft_status weft__offload_end(const weft__pass *p, bool backward);

/* ---- tensor parallelism (tp.c) ---------------------------------------------------------------------- */

weft_status weft__tp_alloc(weft_model *m, int64_t rows); /* after tp.comm is set */
/* Rows of the residual stream that are here, of a pass, and of `rows` at most. */
weft_span weft__stream_rows(const weft__pass *p);
static inline int64_t weft__stream_count(const weft__pass *p)
{
    weft_span s = weft__stream_rows(p);
    return s.end - s.begin;
}
int64_t weft__stream_rows_max(const weft_model *m, int64_t rows);

/* Rows that travel together: of each share those from `first` to `end` that it has, in the order of ranks. */
typedef struct weft__chunk {
    int64_t S, first, end;   /* rows of the pass; of a share */
    int shares;
    int64_t rows;            /* in all; 0: none are left */
    int64_t own, own_at;     /* this rank's: how many, and where in the chunk */
    bool whole;              /* they follow one another in the pass, too */
} weft__chunk;
weft__chunk weft__chunk_first(const weft__pass *p, int64_t most); /* at most so many of a share */
weft__chunk weft__chunk_next(const weft__pass *p, const weft__chunk *c);
/* Rows of a chunk that follow one another in the pass. Starts with zeros. */
typedef struct weft__block {
    int64_t row, at, rows;   /* the pass's row `row` is the chunk's row `at` */
    int share, next;         /* whose; iteration's */
} weft__block;
bool weft__block_next(const weft__chunk *c, weft__block *b);

/* *out: a chunk's rows of x [s,C], which are here already or come into the buffer. COLLECTIVE over tp */
weft_status weft__tp_gather(const weft__pass *p, const weft__chunk *c, const void *x, weft_dtype type,
                            const void **out);
/* Adds up partial (R), a chunk's rows, which is used up. One share: in place, on all ranks. Else this rank's rows go to
 * `to`, which may be their place in `partial`. COLLECTIVE over tp */
weft_status weft__tp_sum(weft__pass *p, const weft__chunk *c, void *partial, void *to, bool gradient);
/* all[TP][rows][3] of own[rows][3]. COLLECTIVE over tp */
weft_status weft__tp_stats(const weft__pass *p, const double *own, double *all, int64_t rows);
/* logits[V] of one row, of which this rank's entries are there. COLLECTIVE over tp */
weft_status weft__tp_logits(const weft__pass *p, void *logits);

/* ---- layers: forward and backward ----------------------------------------------------------------- */

/* y (type) = x W + b, added to y when beta is 1; x (C). type is C's, or R's for the residual stream. */
weft_status weft__linear_fwd(weft__pass *p, const weft__linear *lin, void *y, int64_t y_ld, weft_dtype type, int beta,
                             const void *x, int64_t x_ld);
/* Gradients of W and b +=, then dx (C) = dy W^T unless dx is NULL; dx may be x. dy (C), x (C). */
weft_status weft__linear_bwd(weft__pass *p, const weft__linear *lin, void *dx, int64_t dx_ld, const void *dy,
                             int64_t dy_ld, const void *x, int64_t x_ld);

/* The same over tp. x and dx of columns, y and dy of rows are [s,C] of the residual stream; the others are [S, what
 * is here]. Columns: y (C) = x W + b. Rows: to (R) = from + drop(x W + b); `to` may be `from`. Backward as
 * weft__linear_bwd: dx and dy (C), and dx of rows may be x. */
weft_status weft__columns_fwd(weft__pass *p, const weft__linear *lin, void *y, const void *x);
weft_status weft__columns_bwd(weft__pass *p, const weft__linear *lin, void *dx, const void *dy, const void *x);
weft_status weft__rows_fwd(weft__pass *p, const weft__linear *lin, weft_site site, void *to, const void *from,
                           const void *x);
weft_status weft__rows_bwd(weft__pass *p, const weft__linear *lin, void *dx, const void *dy, const void *x);
/* One chunk of columns_bwd: `rows` is what weft__tp_gather gave of x. dy begins with the pass's first row, or with the
 * chunk's. Of the bias nothing. */
weft_status weft__columns_bwd_chunk(weft__pass *p, const weft__linear *lin, const weft__chunk *c, void *dx,
                                    const void *dy, bool dy_in_chunk, const void *rows);

/* Pieces for rows that lie dense. Of the bias, of rows p->rows, alone; and all but the bias. */
void weft__bias_gradient(weft__pass *p, const weft__linear *lin, const void *dy);
weft_status weft__products_bwd(weft__pass *p, const weft__linear *lin, void *dx, const void *dy, const void *x);
/* One chunk of rows_fwd; x begins with the chunk's first row. */
weft_status weft__rows_fwd_chunk(weft__pass *p, const weft__linear *lin, weft_site site, const weft__chunk *c,
                                 void *to, const void *from, const void *x);

void weft__norm_fwd(weft__pass *p, const weft__norm *norm, void *y, void *mean, void *rstd, const void *x);
void weft__norm_bwd(weft__pass *p, const weft__norm *norm, void *dx, const void *dy, const void *x, const void *mean,
                    const void *rstd);

/* x_in -> o, in two parts; o -> x_mid. `attend` false: o, m, l are there. */
weft_status weft__attention_inside(weft__pass *p, int layer, weft__acts *a, bool attend);
weft_status weft__attention_out(weft__pass *p, int layer, weft__acts *a);
weft_status weft__attention_bwd(weft__pass *p, int layer, weft__acts *a);
weft_status weft__attend_ranks(weft__pass *p, int layer, weft__acts *a);

weft_status weft__mlp_fwd(weft__pass *p, int layer, weft__acts *a, void *x_out);
/* x_mid -> n2, up again. */
weft_status weft__mlp_again(weft__pass *p, int layer, weft__acts *a);
weft_status weft__mlp_bwd(weft__pass *p, int layer, weft__acts *a);

/* Tile by tile (mlp_tiles.c): n2 and x_mid -> x_out; n2 and scratch->dxc -> scratch->dn, and gradients. */
weft_status weft__mlp_tiles_fwd(weft__pass *p, const weft__layer *y, weft__acts *a, void *x_out);
weft_status weft__mlp_tiles_bwd(weft__pass *p, const weft__layer *y, weft__acts *a);
/* act[rows,F] = silu(gate) * up, or gelu(fc), of up[rows]; and up, or with gelu dact itself, becomes the gradient.
 * Returns where that lies. */
void weft__act_fwd(weft__pass *p, void *act, const void *up, int64_t rows);
const void *weft__act_bwd(weft__pass *p, void *dact, void *up, int64_t rows);

/* The residual stream of a half block begins with what went in; nothing to do when it is one buffer. */
void weft__residual_copy(const weft__pass *p, void *to, const void *from);
/* Dropout at one of the sites WEFT_SITE_DROP_... of the residual stream (dropout.c). Of rows [first, first + rows)
 * of the stream, which begin at `to`, `from` and y: to (R) = from + dropped y (R); from NULL: 0. */
bool weft__drops(const weft__pass *p, weft_site site);
void weft__drop_add(const weft__pass *p, weft_site site, void *to, const void *from, const void *y, int64_t first,
                    int64_t rows);
/* scratch->dxc = scratch->dx, as products want it: dropped as what was added to the stream was. */
void weft__residual_gradient(const weft__pass *p, weft_site site);
weft_status weft__block_fwd(weft__pass *p, int layer, weft__acts *a, void *x_out);
weft_status weft__block_bwd(weft__pass *p, int layer, weft__acts *a);

/* x, dx (R) [s,C] */
weft_status weft__embed_fwd(weft__pass *p, void *x);
weft_status weft__embed_bwd(weft__pass *p, void *dx); /* dx is used up */
/* Refuses ids outside the vocabulary. */
weft_status weft__tokens_check(const weft_model *m, const int32_t *token, int64_t rows);
/* Refuses positions outside the table of learned positions, if there is one. */
weft_status weft__positions_check(const weft_model *m, const weft_shard *shard);

/* Head and loss by chunks of rows. With backward, n_out is overwritten by its gradient. */
weft_status weft__loss(weft__pass *p, const int32_t *target, bool backward, double grad_scale, double *nll_sum);
int64_t weft__loss_chunk(int64_t V, size_t element, int64_t rows);
weft_status weft__loss_alloc(weft_model *m);

/* ---- numerics guard (guard.c) ---------------------------------------------------------------------- */

typedef struct weft__watched { /* rows of numbers that are about to leave this rank */
    const char *tensor;     /* as messages name it: "q" */
    const char *site;       /* of injected faults, after "guard."; NULL: tensor */
    int layer;              /* -1: of none */
    void *x;                /* set to zeros when the step will be left out */
    weft_dtype type;        /* C or R */
    int64_t ld, rows, cols;
    int64_t row0;           /* the first is this one of the rank's rows in the shard */
    int D, head0;           /* columns are heads of D elements, the first is head0 of the model; D 0: no heads */
    bool gradient;          /* carries the loss scale */
} weft__watched;
/* Call it before what moves the rows; costs one pass over them in training, nothing else. Fails only when the run shall
 * stop. LOCAL */
weft_status weft__guard(weft__pass *p, const weft__watched *w);
weft_status weft__guard_qkv(weft__pass *p, int layer, void *qkv);
/* Rows of the residual stream (R), or of its gradient, that go to another stage. */
weft_status weft__guard_stream(weft__pass *p, int64_t layer, void *x, bool gradient);
/* A chunk's rows of what is about to be added over tp (R). */
weft_status weft__guard_partial(weft__pass *p, const weft__chunk *c, void *x, bool gradient);
/* This rank's rows of a chunk of x (C or R) that the others of tp gather; nothing to do when there is one share. */
weft_status weft__guard_share(weft__pass *p, const weft__chunk *c, const void *x, weft_dtype type, bool gradient);

#endif
