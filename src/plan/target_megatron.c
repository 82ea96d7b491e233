/* target_megatron.c — Megatron-LM with TransformerEngine: its limits as of Megatron-LM d98e8a64 and TransformerEngine
 * d0067d0d (2026-08-22), where the lines below are counted, and its command line.
 *
 * Weft's ring is its p2p, pcp its all_gather, ulysses its a2a, dcp-ring its a2a+p2p with the head group below. */
#include "plan/target_impl.h"

/* ---- tests --------------------------------------------------------------------------------------------------- */

typedef weft__target_case kase;

static bool p2p(const kase *c) { return weft__target_cut(c) && weft__target_is(c, "ring"); }
static bool gathers(const kase *c) { return weft__target_cut(c) && weft__target_is(c, "pcp"); }
static bool a2a(const kase *c) { return weft__target_cut(c) && weft__target_is(c, "ulysses"); }
static bool both(const kase *c) { return weft__target_cut(c) && weft__target_is(c, "dcp-ring"); }

static bool no_exchange(const kase *c)
{
    return weft__target_cut(c) && !p2p(c) && !gathers(c) && !a2a(c) && !both(c);
}

static bool not_zigzag(const kase *c)
{
    return weft__target_cut(c) && c->choice.cp_layout.kind != WEFT_LAYOUT_ZIGZAG;
}

static bool rows_are_cut(const kase *c) { return c->choice.sequence_parallel && c->choice.tp > 1; }
static int64_t rows_divisor(const kase *c)
{
    return (c->choice.cp > 1 ? weft__target_two_cp(c) : 1) * c->choice.tp;
}

static int64_t head_ranks(const kase *c) { return c->choice.head_size; }
static int64_t heads_of_rank(const kase *c) { return c->ask.config->H / c->choice.tp; }
static int64_t kv_heads_of_rank(const kase *c) { return c->ask.config->Hkv / c->choice.tp; }

static bool window_in_ring(const kase *c) { return (p2p(c) || both(c)) && weft__target_window(c); }
static bool window_docs_dropout(const kase *c)
{
    return gathers(c) && weft__target_window(c) && weft__target_docs(c) && c->ask.options.dropout > 0;
}
static bool hidden_dropout(const kase *c)
{
    return c->ask.options.embedding_dropout != c->ask.options.residual_dropout;
}
static bool padding(const kase *c) { return weft__target_cut(c) && c->ask.padding; }
static bool sinks(const kase *c) { return weft__target_cut(c) && c->ask.sinks && !a2a(c); }
static bool documents(const kase *c)
{
    return weft__target_cut(c) && weft__target_docs(c) && weft__target_bad_doc(c, weft__target_two_cp(c));
}
static bool precision(const kase *c)
{
    return weft__target_cut(c) && !weft__target_sixteen_bits(c);
}
static bool no_fp64(const kase *c) { return c->ask.options.prec == WEFT_PREC_F64; }
static bool head_size(const kase *c)
{
    return weft__target_cut(c) && (c->ask.config->D > 256 || c->ask.config->D % 8);
}
static bool keeps_in_full(const kase *c)
{
    return c->choice.recompute == WEFT_RECOMPUTE_FULL && c->choice.keep_attention;
}
static bool offload_in_full(const kase *c)
{
    return c->choice.offload && c->choice.recompute != WEFT_RECOMPUTE_NONE;
}
static bool order(const kase *c)
{
    int pipeline_first;
    if (!weft__target_order_differs(c)) return false;
    return weft_mesh_order_parse("tp-cp-pp-dp", &pipeline_first) != WEFT_OK ||
           !weft__target_order_is(c, pipeline_first);
}
static bool fp8(const kase *c) { return c->choice.fp8; }
/* So that the rows of a micro-batch on a rank are a multiple of 8. */
static int64_t eight_rows(const kase *c)
{
    const int64_t micro = c->choice.micro_batch;
    const int64_t common = micro % 8 == 0 ? 8 : micro % 4 == 0 ? 4 : micro % 2 == 0 ? 2 : 1;
    return 8 / common * c->choice.cp * (rows_are_cut(c) ? c->choice.tp : 1);
}

/* ---- the rules ----------------------------------------------------------------------------------------------- */

#define MULTIPLE(n, n_name, d, d_name) .number = (n), .number_name = n_name, .divisor = (d), .divisor_name = d_name
static const weft__target_rule rules[] = {
    {"exchange", "context parallelism exchanges by p2p, all_gather, a2a or a2a+p2p",
     "TransformerEngine context_parallel.py:4924-5141", .breaks = no_exchange,
     .shows = WEFT__SHOW_CP | WEFT__SHOW_STRATEGY, .instead = "ring, pcp, ulysses and dcp-ring are these four"},
    {"layout", "a sequence is cut into 2 cp chunks, and rank r has chunks r and 2 cp - 1 - r",
     "Megatron-LM core/utils.py:2454-2714", .breaks = not_zigzag, .shows = WEFT__SHOW_CP | WEFT__SHOW_LAYOUT,
     .instead = "zigzag is this layout"},
    {"order", "ranks run in the order tp-cp-dp-pp, or tp-cp-pp-dp by --use-tp-pp-dp-mapping",
     "Megatron-LM core/parallel_state.py:617", .breaks = order, .shows = WEFT__SHOW_ORDER,
     .instead = "tp-cp-dp-pp is the order without a flag"},
    {"length", "the sequence length is a multiple of 2 cp", "Megatron-LM training/arguments.py:1335-1338",
     .applies = weft__target_cut, MULTIPLE(weft__target_T, "T", weft__target_two_cp, "2 cp"), .knob = WEFT__KNOB_T},
    {"rows", "with sequence parallelism the length is a multiple of tp, times 2 cp with context parallelism",
     "Megatron-LM core/models/multimodal/context_parallel.py:52-58", .applies = rows_are_cut,
     MULTIPLE(weft__target_T, "T", rows_divisor, "its divisor"), .knob = WEFT__KNOB_T},
    {"heads", "query heads are a multiple of tp", "Megatron-LM core/transformer/transformer_config.py __post_init__",
     .applies = weft__target_split, MULTIPLE(weft__target_H, "heads", weft__target_tp, "tp"), .knob = WEFT__KNOB_TP},
    {"key heads", "key/value heads (query groups) are a multiple of tp",
     "Megatron-LM core/transformer/transformer_config.py __post_init__", .applies = weft__target_split,
     MULTIPLE(weft__target_Hkv, "key/value heads", weft__target_tp, "tp"), .knob = WEFT__KNOB_TP},
    {"width", "the feed-forward width is a multiple of tp",
     "Megatron-LM core/tensor_parallel/layers.py ColumnParallelLinear", .applies = weft__target_split,
     MULTIPLE(weft__target_width, "F", weft__target_tp, "tp"), .knob = WEFT__KNOB_TP},
    {"layers", "layers are a multiple of the stages",
     "Megatron-LM core/transformer/transformer_block.py get_num_layers_to_build",
     MULTIPLE(weft__target_layers, "layers", weft__target_pp, "pp"), .knob = WEFT__KNOB_PP},
    {"batch", "the global batch is a multiple of micro-batch times dp",
     "Megatron-LM core/num_microbatches_calculator.py", .applies = weft__target_batch_said,
     MULTIPLE(weft__target_batch, "sequences", weft__target_micro_dp, "micro-batch x dp"), .knob = WEFT__KNOB_DP},
    {"a2a heads", "with a2a the query heads of a rank are a multiple of cp",
     "TransformerEngine context_parallel.py:4246", .applies = a2a,
     MULTIPLE(heads_of_rank, "heads / tp", weft__target_cp, "cp"), .knob = WEFT__KNOB_CP},
    {"a2a key heads", "with a2a the key/value heads of a rank are a multiple of cp; none is replicated",
     "TransformerEngine context_parallel.py:4246", .applies = a2a,
     MULTIPLE(kv_heads_of_rank, "key/value heads / tp", weft__target_cp, "cp"), .knob = WEFT__KNOB_CP},
    {"levels", "the two hierarchical sizes of a2a+p2p multiply to cp",
     "Megatron-LM core/parallel_state.py:1126", .applies = both,
     MULTIPLE(weft__target_cp, "cp", head_ranks, "head group"), .knob = WEFT__KNOB_HEADS},
    {"level heads", "with a2a+p2p the query heads of a rank are a multiple of the head group",
     "TransformerEngine utils.py:1272", .applies = both,
     MULTIPLE(heads_of_rank, "heads / tp", head_ranks, "head group"), .knob = WEFT__KNOB_HEADS},
    {"level key heads", "with a2a+p2p the key/value heads of a rank are a multiple of the head group",
     "TransformerEngine utils.py:1272", .applies = both,
     MULTIPLE(kv_heads_of_rank, "key/value heads / tp", head_ranks, "head group"), .knob = WEFT__KNOB_HEADS},
    {"window", "p2p and a2a+p2p have no sliding window", "TransformerEngine context_parallel.py:5057-5060",
     .breaks = window_in_ring, .shows = WEFT__SHOW_CP | WEFT__SHOW_STRATEGY | WEFT__SHOW_WINDOW,
     .instead = "pcp (all_gather) and ulysses (a2a) have one"},
    {"window and dropout", "packed documents with all_gather run on fused attention, which has no dropout in a window",
     "TransformerEngine utils.py:1355-1360", .breaks = window_docs_dropout,
     .shows = WEFT__SHOW_WINDOW | WEFT__SHOW_DROPOUT, .instead = "--attention-dropout 0 works"},
    {"hidden dropout", "embedding and residual stream have one probability of dropout, --hidden-dropout",
     "Megatron-LM core/models/common/embeddings/language_model_embedding.py", .breaks = hidden_dropout,
     .shows = WEFT__SHOW_HIDDEN, .instead = "the same for both works"},
    {"padding", "padding masks are not supported with context parallelism, but for packed documents",
     "TransformerEngine backends.py:986, 2172", .breaks = padding, .shows = WEFT__SHOW_CP | WEFT__SHOW_PADDING,
     .instead = "pack the sequences, or give every sequence its whole length"},
    {"sinks", "attention sinks exist with a2a only", "TransformerEngine context_parallel.py:5065", .breaks = sinks,
     .shows = WEFT__SHOW_CP | WEFT__SHOW_STRATEGY | WEFT__SHOW_SINKS, .instead = "ulysses (a2a) has them"},
    {"documents", "every packed document, with its padding, is a multiple of 2 cp", "TransformerEngine CP.cu:103",
     .breaks = documents, .shows = WEFT__SHOW_CP | WEFT__SHOW_DOCS, .knob = WEFT__KNOB_CP},
    {"precision", "attention under context parallelism is in bf16 or fp16",
     "TransformerEngine, backends of attention (feature matrix)", .breaks = precision, .shows = WEFT__SHOW_PREC,
     .instead = "--precision bf16 works"},
    {"fp64", "there is no training in fp64", "Megatron-LM training/arguments.py (params_dtype)", .breaks = no_fp64,
     .shows = WEFT__SHOW_PREC, .instead = "--precision bf16 works"},
    {"head size", "heads are at most 256 wide and a multiple of 8", "TransformerEngine, FlashAttention 2 and cuDNN",
     .breaks = head_size, .shows = WEFT__SHOW_HEAD, .instead = "64 and 128 work everywhere"},
    {"keep", "full recomputation repeats attention, and its exchange, in backward",
     "Megatron-LM core/transformer/transformer_config.py:532-580", .breaks = keeps_in_full,
     .shows = WEFT__SHOW_RECOMPUTE, .instead = "recompute block keeps attention; full does without keeping it"},
    {"offload", "layers are offloaded without recomputation only",
     "Megatron-LM core/transformer/transformer_config.py:532-580", .breaks = offload_in_full,
     .shows = WEFT__SHOW_RECOMPUTE | WEFT__SHOW_OFFLOAD, .instead = "--recompute none, or no offload"},
    {"fp8 rows", "products in fp8 have a multiple of 8 rows on every rank",
     "TransformerEngine utils.py assert_dim_for_fp8_exec", .applies = fp8,
     MULTIPLE(weft__target_T, "T", eight_rows, "its divisor"), .knob = WEFT__KNOB_T},
};
#undef MULTIPLE
const weft__target_rules weft__megatron_rules = {rules, sizeof rules / sizeof *rules};

/* ---- flags ---------------------------------------------------------------------------------------------------- */

static void add_exchange(const kase *c, weft_text *out)
{
    const weft_layout_choice *x = &c->choice;
    const char *type = p2p(c) ? "p2p" : gathers(c) ? "all_gather" : a2a(c) ? "a2a" : "a2a+p2p";
    weft_text_add(out, "--context-parallel-size %d --cp-comm-type %s", x->cp, type);
    if (both(c)) weft_text_add(out, " --hierarchical-context-parallel-sizes %d %d", x->head_size, x->cp / x->head_size);
    weft_text_add(out, "\n--calculate-per-token-loss\n"); /* else each part of a sequence divides by its own tokens */
}

static void add_memory(const kase *c, weft_text *out)
{
    static const char *const of_recompute[WEFT_RECOMPUTE_MODES] = {
        NULL, "--recompute-granularity selective --recompute-modules core_attn layernorm",
        "--recompute-granularity selective --recompute-modules core_attn layernorm mlp",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"};
    const weft_layout_choice *x = &c->choice;
    static const char sharding[] = "--use-distributed-optimizer --use-megatron-fsdp --ckpt-format fsdp_dtensor\n"
                                   "--no-gradient-accumulation-fusion --data-parallel-sharding-strategy";
    if (x->zero == 1) weft_text_add(out, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather\n");
    if (x->zero >= 2) weft_text_add(out, "%s %s\n", sharding, x->zero == 2 ? "optim_grads" : "optim_grads_params");
    if (x->recompute == WEFT_RECOMPUTE_BLOCK && x->keep_attention)
        weft_text_add(out, "--recompute-granularity selective --recompute-modules layernorm mlp\n");
    else if (x->recompute == WEFT_RECOMPUTE_ATTENTION && x->keep_attention)
        weft_text_add(out, "--recompute-granularity selective --recompute-modules layernorm\n");
    else if (of_recompute[x->recompute]) weft_text_add(out, "%s\n", of_recompute[x->recompute]);
    if (x->offload) weft_text_add(out, "--fine-grained-activation-offloading --offload-modules attn_norm\n");
}

static void flags(const weft_plan_ask *ask, const weft_layout_choice *x, weft_text *out)
{
    const kase whole = {*ask, *x}, *c = &whole;
    const long long T = (long long)c->ask.options.T;
    weft_text_add(out, "--seq-length %lld --max-position-embeddings %lld --micro-batch-size %lld", T, T,
                  (long long)x->micro_batch);
    if (c->ask.global_batch) weft_text_add(out, " --global-batch-size %lld", (long long)c->ask.global_batch);
    weft_text_add(out, "\n--transformer-impl transformer_engine");
    if (weft__target_sixteen_bits(c)) weft_text_add(out, " --%s", weft_prec_name(c->ask.options.prec));
    if (x->fp8) weft_text_add(out, " --fp8-format hybrid");
    weft_text_add(out, "\n--tensor-model-parallel-size %d", x->tp);
    if (rows_are_cut(c)) weft_text_add(out, " --sequence-parallel");
    weft_text_add(out, " --pipeline-model-parallel-size %d", x->pp);
    if (weft__target_order_differs(c)) weft_text_add(out, " --use-tp-pp-dp-mapping");
    weft_text_add(out, "\n");
    if (weft__target_cut(c)) add_exchange(c, out);
    if (weft__target_window(c)) weft_text_add(out, "--window-size %lld,0\n", (long long)c->ask.config->window - 1);
    /* its own defaults are 0.1 */
    weft_text_add(out, "--attention-dropout %g --hidden-dropout %g\n", c->ask.options.dropout,
                  c->ask.options.residual_dropout);
    add_memory(c, out);
    if (x->cp > 1 || x->tp > 1)
        weft_text_add(out, "# with CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment, on GPUs before Blackwell\n");
    if (weft__target_docs(c) && weft__target_cut(c))
        weft_text_add(out, "# documents: packed (thd), cu_seqlens with every document a multiple of %lld\n",
                      (long long)weft__target_two_cp(c));
    weft__target_end(out);
}

/* ---- the target ---------------------------------------------------------------------------------------------- */

static bool allowed(const weft_plan_ask *ask, const weft_layout_choice *choice, const char **rule, weft_text *why)
{
    return weft__target_allows(&weft__megatron_rules, ask, choice, rule, why);
}

/* 16 bits travel; gradients are added up in fp32 (--accumulate-allreduce-grads-in-fp32 comes with bf16). */
static weft_plan_system widths(weft_prec prec)
{
    const double c = (double)weft_dtype_size(weft_prec_compute(prec));
    return (weft_plan_system){.stream = c, .tp_rows = c, .tp_sums = c, .gradients = 4, .weights = c, .elements = 0.5};
}

const weft_target weft_target_megatron = {
    .name = "megatron", .doc = "Megatron-LM d98e8a64 with TransformerEngine d0067d0d (2026-08)",
    .zero_most = 3, .fp8 = true, .strategies = "none|ring|pcp|ulysses|dcp-ring", .layouts = "zigzag",
    .system = widths, .allowed = allowed, .memory = weft__target_memory, .flags = flags,
};
