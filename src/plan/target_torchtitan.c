/* target_torchtitan.c — torchtitan on PyTorch's context parallelism: its limits as of torchtitan b5bcd76 (2026-08-21)
 * and the PyTorch files of that time, and the lines of its configuration.
 *
 * Weft's pcp is the exchange "allgather", ring is "alltoall"; zigzag is the balancer "headtail", contiguous is none.
 * Weights are sharded by FSDP over dp x cp as soon as cp or dp is above 1 (ZeRO 3, or 2 where they are kept between
 * forward and backward); copies (DDP, ZeRO 0) exist on ranks of dp alone. */
#include "plan/target_impl.h"

typedef weft__target_case kase;

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static bool gathers(const kase *c) { return weft__target_is(c, "pcp"); }
static bool no_exchange(const kase *c)
{
    return weft__target_cut(c) && !gathers(c) && !weft__target_is(c, "ring");
}
static bool no_layout(const kase *c)
{
    weft_layout_kind kind = c->choice.cp_layout.kind;
    return weft__target_cut(c) && kind != WEFT_LAYOUT_ZIGZAG && kind != WEFT_LAYOUT_CONTIGUOUS;
}
static int64_t length_divisor(const kase *c) { return weft__target_two_cp(c) * c->choice.tp; }
static bool documents(const kase *c) { return weft__target_cut(c) && weft__target_docs(c) && !gathers(c); }
static bool window(const kase *c) { return weft__target_cut(c) && weft__target_window(c) && !gathers(c); }
static bool padding(const kase *c) { return weft__target_cut(c) && c->ask.padding; }
static bool sinks(const kase *c) { return weft__target_cut(c) && c->ask.sinks; }
static bool dropout(const kase *c) { return c->ask.options.dropout > 0; }
static bool hidden_dropout(const kase *c)
{
    return c->ask.options.embedding_dropout > 0 || c->ask.options.residual_dropout > 0;
}
static bool precision(const kase *c)
{
    return c->ask.options.prec != WEFT_PREC_BF16 && c->ask.options.prec != WEFT_PREC_F32;
}
static bool no_sharding(const kase *c)
{
    bool alone = c->choice.cp == 1 && c->choice.dp == 1;
    return !alone && (c->choice.zero == 1 || (c->choice.zero == 0 && c->choice.cp > 1));
}
static bool copies_among_others(const kase *c)
{
    return c->choice.zero == 0 && c->choice.dp > 1 && (c->choice.tp > 1 || c->choice.pp > 1);
}
static bool no_mode(const kase *c)
{
    weft_recompute mode = c->choice.recompute;
    bool selective = mode == WEFT_RECOMPUTE_BLOCK && c->choice.keep_attention;
    bool full = mode == WEFT_RECOMPUTE_FULL && !c->choice.keep_attention;
    return mode != WEFT_RECOMPUTE_NONE && !selective && !full;
}
static bool offload(const kase *c) { return c->choice.offload; }

/* ---- the rules -------------------------------------------------------------------------------------------------- */

#define MULTIPLE(n, n_name, d, d_name) .number = (n), .number_name = n_name, .divisor = (d), .divisor_name = d_name
static const weft__target_rule rules[] = {
    {"exchange", "context parallelism passes keys and values on by allgather or alltoall",
     "torchtitan config/configs.py context_parallel_rotate_method", .breaks = no_exchange,
     .shows = WEFT__SHOW_CP | WEFT__SHOW_STRATEGY, .instead = "pcp is allgather, ring is alltoall"},
    {"layout", "the balancer is headtail or none", "torchtitan config/configs.py context_parallel_load_balancer",
     .breaks = no_layout, .shows = WEFT__SHOW_CP | WEFT__SHOW_LAYOUT, .instead = "zigzag and contiguous are these"},
    {"order", "ranks run in the order tp-cp-dp-pp", "torchtitan distributed/parallel_dims.py build_mesh",
     .breaks = weft__target_order_differs, .shows = WEFT__SHOW_ORDER, .instead = "--rank-order tp-cp-dp-pp works"},
    {"length", "the sequence length is a multiple of tp times 2 cp",
     "torchtitan distributed/parallel_dims.py seq_len_divisor",
     MULTIPLE(weft__target_T, "T", length_divisor, "2 cp tp"), .knob = WEFT__KNOB_T},
    {"heads", "query heads are a multiple of tp", "torchtitan models/llama3/infra/parallelize.py apply_tp",
     .applies = weft__target_split, MULTIPLE(weft__target_H, "heads", weft__target_tp, "tp"), .knob = WEFT__KNOB_TP},
    {"key heads", "key/value heads are a multiple of tp", "torchtitan models/llama3/infra/parallelize.py apply_tp",
     .applies = weft__target_split, MULTIPLE(weft__target_Hkv, "key/value heads", weft__target_tp, "tp"),
     .knob = WEFT__KNOB_TP},
    {"batch", "the global batch is a multiple of the local batch times dp",
     "torchtitan train.py (gradient accumulation)", .applies = weft__target_batch_said,
     MULTIPLE(weft__target_batch, "sequences", weft__target_micro_dp, "micro-batch x dp"), .knob = WEFT__KNOB_DP},
    {"documents", "attention by SDPA under context parallelism takes no mask; packed documents need FlexAttention, "
                  "which gathers keys and values",
     "PyTorch distributed/tensor/experimental/_attention.py (attn_bias)", .breaks = documents,
     .shows = WEFT__SHOW_CP | WEFT__SHOW_STRATEGY, .instead = "pcp works, with FlexAttention"},
    {"window", "attention by SDPA under context parallelism is causal or full; a window needs FlexAttention, which "
               "gathers keys and values",
     "PyTorch distributed/tensor/experimental/_attention.py (attn_bias)", .breaks = window,
     .shows = WEFT__SHOW_CP | WEFT__SHOW_STRATEGY | WEFT__SHOW_WINDOW, .instead = "pcp works, with FlexAttention"},
    {"padding", "attention under context parallelism takes no padding mask",
     "PyTorch distributed/tensor/experimental/_attention.py (attn_bias)", .breaks = padding,
     .shows = WEFT__SHOW_CP | WEFT__SHOW_PADDING, .instead = "give every sequence its whole length"},
    {"sinks", "attention sinks are not supported under context parallelism",
     "PyTorch distributed/tensor/experimental/_attention.py", .breaks = sinks,
     .shows = WEFT__SHOW_CP | WEFT__SHOW_SINKS, .instead = "cp 1 works"},
    {"dropout", "there is no dropout of attention", "torchtitan models/llama3; PyTorch _attention.py (dropout_p)",
     .breaks = dropout, .shows = WEFT__SHOW_DROPOUT, .instead = "--attention-dropout 0 works"},
    {"hidden dropout", "there is no dropout of embedding or residual stream", "torchtitan models/llama3",
     .breaks = hidden_dropout, .shows = WEFT__SHOW_HIDDEN,
     .instead = "--embedding-dropout 0 --residual-dropout 0 works"},
    {"precision", "weights pass through products as bfloat16 or float32",
     "torchtitan config/configs.py mixed_precision_param", .breaks = precision, .shows = WEFT__SHOW_PREC,
     .instead = "--precision bf16 works"},
    {"sharding", "ranks of dp x cp shard the weights (ZeRO 2 or 3); copies are for dp alone, and sharded moments alone "
                 "do not exist",
     "torchtitan distributed/parallel_dims.py fsdp_enabled", .breaks = no_sharding,
     .shows = WEFT__SHOW_ZERO | WEFT__SHOW_CP | WEFT__SHOW_DP, .instead = "ZeRO 3 and ZeRO 2 work"},
    {"copies", "copies of the weights (DDP) do not go with tp or pp",
     "torchtitan models/llama3/infra/parallelize.py apply_ddp", .breaks = copies_among_others,
     .shows = WEFT__SHOW_ZERO | WEFT__SHOW_TP | WEFT__SHOW_PP | WEFT__SHOW_DP, .instead = "ZeRO 3 and ZeRO 2 work"},
    {"recompute", "activation checkpointing is none, selective (keeps attention and every other product) or full",
     "torchtitan config/configs.py ActivationCheckpointConfig", .breaks = no_mode, .shows = WEFT__SHOW_RECOMPUTE,
     .instead = "recompute none, block that keeps attention (selective), and full are these"},
    {"offload", "activations are not offloaded", "torchtitan config/configs.py TrainingConfig (enable_cpu_offload is "
     "for weights)", .breaks = offload, .shows = WEFT__SHOW_OFFLOAD, .instead = "--offload none works"},
};
#undef MULTIPLE
const weft__target_rules weft__torchtitan_rules = {rules, sizeof rules / sizeof *rules};

/* ---- the configuration --------------------------------------------------------------------------------------- */

static void add_parallelism(const kase *c, weft_text *out)
{
    const weft_layout_choice *x = &c->choice;
    bool copies = x->zero == 0;
    weft_text_add(out, "\n[parallelism]\ndata_parallel_replicate_degree = %d\ndata_parallel_shard_degree = %d\n",
                  copies ? x->dp : 1, copies ? 1 : x->dp);
    if (!copies)
        weft_text_add(out, "fsdp_reshard_after_forward = \"%s\"\n", x->zero == 3 ? "always" : "never");
    weft_text_add(out, "tensor_parallel_degree = %d\n", x->tp);
    if (x->tp > 1 && !x->sequence_parallel) weft_text_add(out, "enable_sequence_parallel = false\n");
    weft_text_add(out, "pipeline_parallel_degree = %d\n", x->pp);
    if (x->pp > 1) weft_text_add(out, "pipeline_parallel_schedule = \"1F1B\"\n");
    weft_text_add(out, "context_parallel_degree = %d\n", x->cp);
    if (x->cp == 1) return;
    weft_text_add(out, "context_parallel_rotate_method = \"%s\"\n", gathers(c) ? "allgather" : "alltoall");
    if (x->cp_layout.kind == WEFT_LAYOUT_ZIGZAG)
        weft_text_add(out, "context_parallel_load_balancer = \"headtail\"\n");
    else weft_text_add(out, "# and --parallelism.context_parallel_load_balancer None: TOML has no word for it\n");
}

/* A step of a pipeline takes its micro-batches out of one local batch. */
static void add_batch(const kase *c, weft_text *out)
{
    const weft_layout_choice *x = &c->choice;
    int64_t micros = x->pp > 1 ? weft__target_accumulation(c) : 1;
    weft_text_add(out, "[training]\nlocal_batch_size = %lld\n", (long long)(x->micro_batch * (micros ? micros : 1)));
    if (c->ask.global_batch) weft_text_add(out, "global_batch_size = %lld\n", (long long)c->ask.global_batch);
    weft_text_add(out, "seq_len = %lld\nmixed_precision_param = \"%s\"\n", (long long)c->ask.options.T,
                  c->ask.options.prec == WEFT_PREC_BF16 ? "bfloat16" : "float32");
}

static void flags(const weft_plan_ask *ask, const weft_layout_choice *x, weft_text *out)
{
    const kase whole = {*ask, *x}, *c = &whole;
    static const char *const mode[WEFT_RECOMPUTE_MODES] = {"none", "selective", "selective", "full"};
    if (x->fp8) weft_text_add(out, "[model]\nconverters = [\"quantize.linear.float8\"]\n\n");
    add_batch(c, out);
    add_parallelism(c, out);
    if (x->pp > 1)
        weft_text_add(out, "pipeline_parallel_microbatch_size = %lld\n", (long long)x->micro_batch);
    weft_text_add(out, "\n[activation_checkpoint]\nmode = \"%s\"\n", mode[x->recompute]);
    if (weft__target_docs(c) || (weft__target_cut(c) && weft__target_window(c)))
        weft_text_add(out, "# with a model flavor whose attention is FlexAttention\n");
    weft__target_end(out);
}

/* ---- the target ---------------------------------------------------------------------------------------------- */

static bool allowed(const weft_plan_ask *ask, const weft_layout_choice *choice, const char **rule, weft_text *why)
{
    return weft__target_allows(&weft__torchtitan_rules, ask, choice, rule, why);
}

/* 16 bits travel; gradients are added up in fp32 (mixed_precision_reduce). */
static weft_plan_system widths(weft_prec prec)
{
    const double c = (double)weft_dtype_size(weft_prec_compute(prec));
    return (weft_plan_system){.stream = c, .tp_rows = c, .tp_sums = c, .gradients = 4, .weights = c, .elements = 0.5};
}

const weft_target weft_target_torchtitan = {
    .name = "torchtitan", .doc = "torchtitan b5bcd76 (2026-08); TOML of releases up to 0.2",
    .zero_most = 3, .fp8 = true, .strategies = "none|pcp|ring", .layouts = "zigzag|contiguous",
    .system = widths, .allowed = allowed, .memory = weft__target_memory, .flags = flags,
};
