/* model.h — the door of the room `model`: config, parameters, forward and backward of one rank's rows.
 *
 * Families by Hugging Face config.json: llama, qwen2, qwen3, mistral, gpt2. The residual stream, master
 * weights and gradients are R; operands of products and attention are C (tensor.h). Attention goes through
 * a cp plan, one per distinct mask; everything else works on rows and knows nothing of ranks. */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include "cp/cp.h"

typedef enum { WEFT_LLAMA, WEFT_QWEN2, WEFT_QWEN3, WEFT_MISTRAL, WEFT_GPT2 } weft_family;
typedef enum { WEFT_ROPE_NONE, WEFT_ROPE_PLAIN, WEFT_ROPE_LINEAR, WEFT_ROPE_LLAMA3, WEFT_ROPE_YARN } weft_rope_type;

typedef struct weft_rope_config {
    weft_rope_type type;
    double theta, factor;
    double low_freq_factor, high_freq_factor;          /* llama3 */
    double beta_fast, beta_slow, attention_factor;     /* yarn; attention_factor 0: 0.1 ln(factor) + 1 */
    int64_t original_max_position;
} weft_rope_config;

typedef struct weft_model_config {
    weft_family family;
    int64_t V, C, F, L, max_position;
    int H, Hkv, D;
    double norm_eps;
    weft_rope_config rope;
    double dropout_asked;    /* the largest dropout that the file names; callers say what is applied */
    bool tied;
    bool qkv_bias, o_bias, mlp_bias; /* attention_bias / mlp_bias of llama, always q,k,v of qwen2, all of gpt2 */
    int64_t window;          /* Hugging Face's sliding_window W: self and W-1 keys before; 0: none */
    int64_t window_from_layer; /* layers below it are full (qwen2's max_window_layers) */
    int64_t bos, eos;        /* -1: none */
} weft_model_config;

/* Reads and checks a config.json; messages name file and key. Both spellings of the RoPE keys. */
weft_status weft_model_config_read(weft_model_config *out, const char *path);
/* Appends "key, key" to `out`: keys that are neither read nor known to be harmless, and tokens that the vocabulary does
 * not have. Callers warn of them. LOCAL */
weft_status weft_model_config_unknown(const char *path, weft_text *out);
/* config.json as Hugging Face reads it; reading it back gives the same config. */
weft_status weft_model_config_text(const weft_model_config *config, const char *torch_dtype, weft_text *out);
weft_status weft_model_config_check(const weft_model_config *config, const char *where);
/* The same, and that a config.json of the family can say all of it. */
weft_status weft_model_config_check_file(const weft_model_config *config, const char *where);
/* cos, sin tables [rows, D/2] (R) for positions. */
void weft_rope_table(const weft_model_config *config, weft_prec prec, const int64_t *pos, int64_t rows, void *cos,
                     void *sin);
/* Parameters; -1 when they do not fit 63 bits. */
int64_t weft_model_params(const weft_model_config *config);
/* Parameters that have a copy in C when C is not R: the operands of products, in one stretch of the array. */
int64_t weft_model_operand_params(const weft_model_config *config);
/* Visible (query, key) pairs of a whole micro-batch, all ranks: the mean over layers, since layers may
 * have different windows. What weft_model_step_flops takes as `area`. */
double weft_model_area(const weft_model_config *config, const weft_shard *shard);
/* FLOPs of forward + backward over n tokens: 6 per token and element of a matrix (2 forward, 4 backward;
 * the head counts, look-ups of embeddings do not), and 12 area H D per layer (q.k and p.v: 4 area H D
 * forward; twice that backward by convention, without the recomputed scores). */
double weft_model_step_flops(const weft_model_config *config, int64_t tokens, double area);
/* Visible pairs of a sequence of T tokens that is one document: of a layer that sees all before it, and of one with the
 * model's window. LOCAL, pure */
double weft_model_sequence_area(const weft_model_config *config, int64_t T, bool windowed);

/* What is computed with on one rank of tp, as the tables of parameters have it: matrices as products read them, and
 * what a family has. With an uneven cut the last rank of tp has most. LOCAL, pure */
typedef struct weft_model_matrix { int64_t in, out; } weft_model_matrix;
typedef struct weft_model_widths {
    weft_model_matrix qkv, o, up, down; /* of a layer; q, k, v side by side, gate and up too */
    weft_model_matrix head;
    int H, Hkv;
    bool rotates, qk_norm;              /* q and k turn by their positions, have norms of their own */
} weft_model_widths;

/* The matrix products of a step of the whole model on one rank with `rows` tokens at a time: each of four in a layer
 * and the head, forward, for the gradients of what went in (data) and of weights. */
enum { WEFT_MODEL_PRODUCTS = 15 };
typedef struct weft_model_product {
    char name[16];       /* "qkv forward" */
    weft_gemm_args args; /* without operands; the head's first chunk of rows */
    int64_t calls;       /* a step */
} weft_model_product;
/* Without dropout of the residual stream, where the sum is made apart. LOCAL, pure */
weft_status weft_model_products(const weft_model_config *config, weft_prec prec, int64_t rows,
                                weft_model_product out[WEFT_MODEL_PRODUCTS]);

typedef struct weft_model weft_model;

/* What a layer's backward pass makes again instead of keeping it from the forward pass (docs/maths/memory.md): the
 * inside of attention (n1, q, k, v and, unless they are kept, o, m, l); that of both halves of a layer; all but a
 * layer's input. */
typedef enum { WEFT_RECOMPUTE_NONE, WEFT_RECOMPUTE_ATTENTION, WEFT_RECOMPUTE_BLOCK, WEFT_RECOMPUTE_FULL,
              WEFT_RECOMPUTE_MODES } weft_recompute;
const char *weft_recompute_name(weft_recompute mode);
bool weft_recompute_parse(const char *s, weft_recompute *out);

/* Where the inputs of layers lie from their forward to their backward passes: with the rest of the activations; in a
 * pool of the host; in a file without a name. */
typedef enum { WEFT_OFFLOAD_NONE, WEFT_OFFLOAD_HOST, WEFT_OFFLOAD_FILE, WEFT_OFFLOADS } weft_offload;
const char *weft_offload_name(weft_offload where);

typedef struct weft_model_options {
    weft_prec prec;
    int64_t B, T, max_docs;  /* of one micro-batch, whole sequences */
    weft_layout layout;
    weft_cp_options cp;
    double dropout;          /* of attention probabilities in training passes; 0: none */
    double embedding_dropout, residual_dropout; /* of the embedding; of what both halves of a layer add; likewise */
    uint64_t seed;           /* of dropout */
    bool train;              /* keeps activations and gradients */
    weft_recompute recompute;
    bool keep_attention;     /* with recompute: o, m, l (and what the plan keeps) stay, and attention runs once */
    int64_t mlp_rows;        /* rows for which what is as wide as F exists at once; 0: all */
    int slots;               /* micro-batches alive at once: each has its activations of the layers of the stage */
    weft_offload offload;    /* with train; acts where weft_model_offloads says so */
    const char *offload_folder; /* of the file */
} weft_model_options;

/* Where this rank's part of the model stands: which layers (its stage of the pipeline), which heads, columns of the
 * feed-forward and entries of the vocabulary (its rank in tp), which rows (its rank in cp).
 *
 * Layers [floor(s L / stages), floor((s + 1) L / stages)) are those of stage s; the embedding is the first's, final
 * norm and head are the last's, which has the embedding too where the two are tied. Of n heads, columns or entries,
 * rank t of tp has [floor(t n / TP), floor((t + 1) n / TP)); key/value heads are those that its query heads read, so
 * several ranks may have the same. With sequence_parallel the residual stream between products, and the norms on it,
 * are cut over tp along the rows, too, in the same way. */
typedef struct weft_model_place {
    weft_comm *cp;
    weft_comm *tp;           /* NULL: one rank */
    int stage, stages;       /* stages 0: one */
    bool sequence_parallel;
} weft_model_place;
/* Part i of n cut by `parts`: [floor(i n / parts), floor((i + 1) n / parts)). LOCAL, pure */
weft_span weft_model_cut(int64_t n, int parts, int i);

/* The same as numbers: rank tp of tps, stage of stages. */
typedef struct weft_model_share { int tp, tps, stage, stages; bool sequence_parallel; } weft_model_share;
static const weft_model_share weft_model_all = {0, 1, 0, 1, false}; /* the whole model */
weft_model_share weft_model_share_of(const weft_model_place *place); /* LOCAL */
/* As weft_model_params and weft_model_operand_params, of what is on one rank. LOCAL, pure */
int64_t weft_model_share_params(const weft_model_config *config, const weft_model_share *share);
int64_t weft_model_share_operand_params(const weft_model_config *config, const weft_model_share *share);
weft_model_widths weft_model_share_widths(const weft_model_config *config, const weft_model_share *share);
/* Elements of the ranges that backward announces there (weft_model_buckets). LOCAL, pure */
typedef struct weft_model_ranges { int64_t embedding, layer, layers, tail; } weft_model_ranges; /* layers x layer */
weft_status weft_model_share_ranges(const weft_model_config *config, const weft_model_share *share,
                                    weft_model_ranges *out);

/* What a part of a model asks of attention: one problem per distinct mask, at most 2, with the layers that have it,
 * which follow one another; of all stages. Returns how many: 0 where there are no heads. LOCAL, pure */
typedef struct weft_layer_attention { weft_cp_problem problem; int64_t first_layer, last_layer; } weft_layer_attention;
int weft_model_attention(const weft_model_config *config, const weft_model_share *share,
                         const weft_model_options *options, weft_layer_attention out[2]);

/* Whether inputs of a stage's layers are offloaded: of more than two, which are in use at once, some need no buffer.
 * LOCAL, pure */
bool weft_model_offloads(const weft_model_config *config, const weft_model_share *share,
                         const weft_model_options *options);

/* COLLECTIVE over tp x cp (plans agree). */
weft_status weft_model_create(weft_model **out, weft_ctx *ctx, const weft_kern *kern, weft_gemm *gemm,
                              const weft_model_place *place, const weft_model_config *config,
                              const weft_model_options *options);
void weft_model_destroy(weft_model *model);

/* What a model of this share, on rank cp_rank (or WEFT_CP_FULLEST) of cp_ranks, would allocate: the account after its
 * creation by the code that creates it, with no memory behind the buffers. Peaks of rows count; what plans of attention
 * hold is apart. `any` is any communicator of this process. LOCAL */
typedef struct weft_model_sizes {
    weft_mem account;
    size_t attention, products; /* products: of packed operands, which are taken at the first step */
    int64_t bucket, summed; /* elements of the largest range that backward announces; of gradients that tp adds up */
    int64_t file;           /* bytes of the file of offloaded inputs */
} weft_model_sizes;
weft_status weft_model_preview(weft_model_sizes *out, const weft_kern *kern, weft_comm *any, int threads,
                               const weft_model_config *config, const weft_model_share *share,
                               const weft_model_options *options, int cp_ranks, int cp_rank);

/* Where a rank sits in its context-parallel group, and what a micro-batch gives it. */
typedef struct weft_model_seat {
    int cps, cp;
    const weft_shard *shard;
    const int32_t *target; /* [rows] of this rank, as weft_micro's; NULL: all have labels */
} weft_model_seat;
/* Bytes that the forward and backward pass of one micro-batch make a rank send, by the code that cuts rows into what
 * travels together, and by the plans of attention; and what goes from stage to stage, in each direction. */
typedef struct weft_model_bytes { int64_t tp, cp, stage; } weft_model_bytes;
/* As weft_model_preview; seat[n]: so many micro-batches, out[n]. LOCAL */
weft_status weft_model_preview_bytes(weft_model_bytes *out, const weft_kern *kern, weft_comm *any,
                                     const weft_model_config *config, const weft_model_share *share,
                                     const weft_model_options *o, const weft_model_seat *seat, int n);

/* The table of parameters (Hugging Face names and shapes) over one array of R, and the arrays: the parts of this
 * rank. */
const weft_spec *weft_model_spec(const weft_model *model, int *n);
/* Bounds of the ranges of the array that backward announces (weft_grad_ready), ascending: [*n + 1] numbers. */
const int64_t *weft_model_buckets(const weft_model *model, int *n);
/* The table of the whole model as one rank has it; names from `arena`. LOCAL */
weft_status weft_model_whole_spec(const weft_model_config *config, weft_arena *arena, weft_spec **spec, int *n);
/* Table and bounds as a model of this share has them. LOCAL */
weft_status weft_model_share_spec(const weft_model_config *config, const weft_model_share *share, weft_arena *arena,
                                  weft_spec **spec, int *n, int64_t **bucket, int *buckets);
void *weft_model_weights(weft_model *model);   /* (R) */
void *weft_model_gradients(weft_model *model); /* (R); NULL without train */
int64_t weft_model_weight_count(const weft_model *model);
int64_t weft_model_file_bytes(const weft_model *model); /* of its file of offloaded inputs; 0: none */
bool weft_model_copies_input(const weft_model *model); /* micro->input is not needed after the forward pass */
/* Random weights by address: normal(0, 0.02), residual projections / sqrt(2L), norms 1, biases 0. LOCAL */
void weft_model_init_weights(weft_model *model, uint64_t seed);
/* After weights changed: makes the C copies. LOCAL */
void weft_model_weights_changed(weft_model *model);
void weft_model_zero_gradients(weft_model *model);
/* The numerics guard (ctx->guard) looks at a range of the gradients, before they are added over ranks. q, k, v, their
 * output's gradient and what travels inside a pass it looks at by itself. LOCAL */
weft_status weft_model_guard_gradients(weft_model *model, int64_t offset, int64_t count);

/* Told, by the thread that computes, when a layer of a pass begins (layer L: final norm, head and loss): `done`, the
 * work of this pass that is over, and `ahead`, that of what begins. Work is as weft_model_pass_work counts it. It
 * should be quick. */
typedef struct weft_model_watch {
    void (*begins)(void *ud, int64_t layer, double done, double ahead); /* NULL: nobody is told */
    void *ud;
} weft_model_watch;
/* Work of a training pass of this stage on this rank, in floating-point operations per row, to be compared with each
 * other only: a product is 2 in out forward and twice that backward; attention 4 H D per key that a query sees on
 * average (of a sequence that is one document), and 2.5 times that backward, since it makes the scores again; what
 * recomputation makes again counts once more. At long context all of it is attention, at short context next to nothing:
 * so neither a layer with a window, nor the head, whose both directions are in the forward pass, is a fixed number of
 * layers. LOCAL, pure */
double weft_model_pass_work(const weft_model *model, bool backward);

/* What this rank holds of one micro-batch. token, target: [rows] of its own rows, in shard order.
 *
 * Between the stages of a pipeline travel rows of the residual stream, [weft_model_stream_rows, C] (R): those of this
 * rank's shard; with sequence_parallel its part of them. They lie where the caller says. */
typedef struct weft_micro {
    int slot;
    const weft_shard *shard;
    const int32_t *token, *target; /* target < 0: no label */
    uint32_t step;                 /* optimizer step, for dropout's addresses */
    /* a stage but the first: its input, needed until the backward pass unless weft_model_copies_input;
     * overwritten if no backward pass follows */
    void *input;
    void *output;  /* a stage but the last: where its output goes */
    weft_model_watch watch;
} weft_micro;
/* Of a micro-batch of B sequences, whatever its documents. LOCAL */
int64_t weft_model_stream_rows(const weft_model *model, int64_t B);

/* Forward pass; on the last stage head and loss. nll_sum: sum over this rank's valid tokens (double);
 * token_nll[rows] (R) or NULL.
 * for_backward: the backward pass of this micro-batch follows. Head and loss go by chunks, so that the logits of
 * all tokens never exist at once; their gradients are taken in the same pass, which is why grad_scale is needed
 * here: 1 / (valid tokens of the whole step).
 * Token ids, targets and rows are checked on this rank only; positions past a table of learned positions
 * are refused on all ranks. Stages but the last give nll_sum 0 and write no token_nll. COLLECTIVE over tp x cp. */
weft_status weft_model_forward(weft_model *model, const weft_micro *micro, bool for_backward, double grad_scale,
                               double *nll_sum, void *token_nll);
/* gradients += d(sum of nll)/d(weights) * grad_scale, of the micro-batch in micro->slot, whose forward pass ran; other
 * slots may have run between, but not on the last stage. `stream` [stream rows, C] (R): on entry the gradient of this
 * stage's output (unless it is the last), on return that of its input; NULL with one stage. `ready` is called when a
 * range of the gradient array is final for this micro-batch (or NULL): ranges come from the end of the array to its
 * beginning, each once. COLLECTIVE over tp x cp. */
typedef void (*weft_grad_ready)(void *ud, int64_t offset, int64_t count);
weft_status weft_model_backward(weft_model *model, const weft_micro *micro, void *stream, weft_grad_ready ready,
                                void *ready_ud);
/* Both, one after the other. */
weft_status weft_model_run(weft_model *model, const weft_micro *micro, bool backward, double grad_scale,
                           double *nll_sum, void *token_nll, weft_grad_ready ready, void *ready_ud);

/* Cached generation, by one rank, or by the ranks of tp together (COLLECTIVE, with the same tokens): appends n tokens
 * at the next positions, logits[V] (R) of the last one. */
typedef struct weft_decoder weft_decoder;
weft_status weft_decoder_create(weft_decoder **out, weft_model *model, int64_t max_tokens);
void weft_decoder_destroy(weft_decoder *d);
weft_status weft_decoder_feed(weft_decoder *d, const int32_t *tokens, int64_t n, void *logits);

void weft_model_describe(const weft_model *model, weft_text *out); /* plans of its attention */

#endif
