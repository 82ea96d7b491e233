/* target_deepspeed.c — DeepSpeed's Ulysses for Hugging Face models (ALST): its limits as of DeepSpeed edaa722
 * (2026-08-22), its JSON and the calls in Python.
 *
 * Weft's ulysses in the contiguous layout is its exchange: sequences are cut in order, an all-to-all gives every rank
 * whole sequences of some heads, and any attention of the library runs on them. */
#include "plan/target_impl.h"

typedef weft__target_case kase;

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static bool no_exchange(const kase *c) { return weft__target_cut(c) && !weft__target_is(c, "ulysses"); }
static bool no_layout(const kase *c)
{
    return weft__target_cut(c) && c->choice.cp_layout.kind != WEFT_LAYOUT_CONTIGUOUS;
}
static bool key_heads(const kase *c)
{
    return weft__target_cut(c) && c->ask.config->Hkv % c->choice.cp && c->choice.cp % c->ask.config->Hkv;
}
static bool tensor_parts(const kase *c) { return c->choice.tp > 1; }
static bool stages(const kase *c) { return c->choice.pp > 1; }
static bool padding(const kase *c) { return weft__target_cut(c) && c->ask.padding; }
static bool sinks(const kase *c) { return weft__target_cut(c) && c->ask.sinks; }
static bool needs_flash(const kase *c) { return weft__target_docs(c) || weft__target_window(c); }
static bool flash_precision(const kase *c)
{
    return weft__target_cut(c) && needs_flash(c) && !weft__target_sixteen_bits(c);
}
static bool fp64(const kase *c) { return c->ask.options.prec == WEFT_PREC_F64; }
static bool fp8(const kase *c) { return c->choice.fp8; }
static bool no_mode(const kase *c)
{
    bool full = c->choice.recompute == WEFT_RECOMPUTE_FULL && !c->choice.keep_attention;
    return c->choice.recompute != WEFT_RECOMPUTE_NONE && !full;
}
static bool offload_of_nothing(const kase *c)
{
    return c->choice.offload && c->choice.recompute != WEFT_RECOMPUTE_FULL;
}

/* ---- the rules -------------------------------------------------------------------------------------------------- */

#define MULTIPLE(n, n_name, d, d_name) .number = (n), .number_name = n_name, .divisor = (d), .divisor_name = d_name
static const weft__target_rule rules[] = {
    {"exchange", "sequence parallelism is Ulysses' all-to-all",
     "DeepSpeed runtime/sequence_parallel/ulysses_sp.py UlyssesSPAttentionHF", .breaks = no_exchange,
     .shows = WEFT__SHOW_CP | WEFT__SHOW_STRATEGY, .instead = "ulysses works"},
    {"layout", "sequences are cut in order", "DeepSpeed runtime/sequence_parallel/ulysses_sp.py "
     "UlyssesSPDataLoaderAdapter", .breaks = no_layout, .shows = WEFT__SHOW_CP | WEFT__SHOW_LAYOUT,
     .instead = "contiguous works, and is balanced: every rank has whole sequences of its heads"},
    {"tensor", "groups are sequence and data parallel only",
     "DeepSpeed runtime/sequence_parallel/parallel_state_sp.py initialize_sequence_parallel", .breaks = tensor_parts,
     .shows = WEFT__SHOW_TP, .knob = WEFT__KNOB_TP},
    {"stages", "groups are sequence and data parallel only",
     "DeepSpeed runtime/sequence_parallel/parallel_state_sp.py initialize_sequence_parallel", .breaks = stages,
     .shows = WEFT__SHOW_PP, .knob = WEFT__KNOB_PP},
    {"order", "the ranks of a sequence are neighbours",
     "DeepSpeed runtime/sequence_parallel/parallel_state_sp.py initialize_sequence_parallel",
     .breaks = weft__target_order_differs, .shows = WEFT__SHOW_ORDER, .instead = "--rank-order tp-cp-dp-pp works"},
    {"length", "the sequence length is a multiple of the ranks of a sequence",
     "DeepSpeed runtime/sequence_parallel/ulysses_sp.py UlyssesSPDataLoaderAdapter", .applies = weft__target_cut,
     MULTIPLE(weft__target_T, "T", weft__target_cp, "cp"), .knob = WEFT__KNOB_T},
    {"heads", "query heads are a multiple of the ranks of a sequence",
     "DeepSpeed runtime/sequence_parallel/ulysses_sp.py UlyssesSPAttentionHF.__init__", .applies = weft__target_cut,
     MULTIPLE(weft__target_H, "heads", weft__target_cp, "cp"), .knob = WEFT__KNOB_CP},
    {"key heads", "key/value heads are a multiple of the ranks of a sequence, or these of those",
     "DeepSpeed runtime/sequence_parallel/ulysses_sp.py UlyssesSPAttentionHF.__init__", .breaks = key_heads,
     .shows = WEFT__SHOW_CP, .knob = WEFT__KNOB_CP},
    {"batch", "the global batch is a multiple of micro-batch times dp", "DeepSpeed runtime/config.py "
     "_batch_assertion", .applies = weft__target_batch_said,
     MULTIPLE(weft__target_batch, "sequences", weft__target_micro_dp, "micro-batch x dp"), .knob = WEFT__KNOB_DP},
    {"padding", "attention masks are discarded; positions alone tell documents apart",
     "DeepSpeed runtime/sequence_parallel/ulysses_sp.py register_with_transformers", .breaks = padding,
     .shows = WEFT__SHOW_CP | WEFT__SHOW_PADDING, .instead = "pack the sequences; positions restart at documents"},
    {"sinks", "no attention with sinks and their gradients is known to run under it",
     "DeepSpeed runtime/sequence_parallel/ulysses_sp.py", .breaks = sinks, .shows = WEFT__SHOW_CP | WEFT__SHOW_SINKS,
     .instead = "cp 1 works"},
    {"flash", "documents and windows need FlashAttention: SDPA would make a quadratic mask, and is refused",
     "DeepSpeed runtime/sequence_parallel/ulysses_sp.py UlyssesSPAttentionHF.forward", .breaks = flash_precision,
     .shows = WEFT__SHOW_CP | WEFT__SHOW_PREC, .instead = "--precision bf16 works"},
    {"precision", "training is in bf16, fp16 or fp32", "DeepSpeed runtime/config.py", .breaks = fp64,
     .shows = WEFT__SHOW_PREC, .instead = "--precision bf16 works"},
    {"fp8", "products are not in fp8", "DeepSpeed runtime/config.py", .breaks = fp8, .shows = WEFT__SHOW_FP8,
     .instead = "bf16 works"},
    {"recompute", "gradient checkpointing is of whole layers, or none", "Hugging Face Transformers "
     "gradient_checkpointing_enable", .breaks = no_mode, .shows = WEFT__SHOW_RECOMPUTE,
     .instead = "recompute full (without keeping attention) and none are these"},
    {"offload", "what is offloaded are the inputs of checkpointed layers", "ArcticTraining "
     "activation_checkpoint_cpu_offload", .breaks = offload_of_nothing,
     .shows = WEFT__SHOW_RECOMPUTE | WEFT__SHOW_OFFLOAD, .instead = "--recompute full works with it"},
};
#undef MULTIPLE
const weft__target_rules weft__deepspeed_rules = {rules, sizeof rules / sizeof *rules};

/* ---- the configuration --------------------------------------------------------------------------------------- */

static void add_json(const kase *c, weft_text *out)
{
    const weft_layout_choice *x = &c->choice;
    weft_text_add(out, "{\n  \"train_micro_batch_size_per_gpu\": %lld,\n", (long long)x->micro_batch);
    if (c->ask.global_batch)
        weft_text_add(out, "  \"gradient_accumulation_steps\": %lld,\n", (long long)weft__target_accumulation(c));
    if (weft__target_sixteen_bits(c))
        weft_text_add(out, "  \"%s\": {\"enabled\": true},\n", weft_prec_name(c->ask.options.prec));
    if (x->cp > 1) weft_text_add(out, "  \"sequence_parallel_size\": %d,\n", x->cp);
    weft_text_add(out, "  \"zero_optimization\": {\"stage\": %d}\n}\n", x->zero);
}

static void flags(const weft_plan_ask *ask, const weft_layout_choice *x, weft_text *out)
{
    const kase whole = {*ask, *x}, *c = &whole;
    const char *attention = weft__target_sixteen_bits(c) ? "flash_attention_2" : "sdpa";
    add_json(c, out);
    weft_text_add(out, "# in Python\n");
    if (x->cp > 1)
        weft_text_add(out, "mpu = UlyssesSPAttentionHF.register_with_transformers(\n"
                           "    model_name_or_path=model, core_attn_implementation=\"%s\",\n"
                           "    sequence_parallel_size=%d, micro_batch_size=%lld, seq_length=%lld,\n"
                           "    seq_length_is_variable=False)\n"
                           "# deepspeed.initialize(..., mpu=mpu); UlyssesSPDataLoaderAdapter around the loader\n",
                      attention, x->cp, (long long)x->micro_batch, (long long)c->ask.options.T);
    else weft_text_add(out, "# attn_implementation=\"%s\"\n", attention);
    if (x->recompute == WEFT_RECOMPUTE_FULL) weft_text_add(out, "model.gradient_checkpointing_enable()\n");
    if (x->offload) weft_text_add(out, "# ArcticTraining: activation_checkpoint_cpu_offload: true\n");
    if (weft__target_docs(c)) weft_text_add(out, "# position_ids restart at every document\n");
    weft__target_end(out);
}

/* ---- the target ---------------------------------------------------------------------------------------------- */

static bool allowed(const weft_plan_ask *ask, const weft_layout_choice *choice, const char **rule, weft_text *why)
{
    return weft__target_allows(&weft__deepspeed_rules, ask, choice, rule, why);
}

/* 16 bits travel; gradients are added up in fp32 (seq_parallel_communication_data_type). */
static weft_plan_system widths(weft_prec prec)
{
    const double c = (double)weft_dtype_size(weft_prec_compute(prec));
    return (weft_plan_system){.stream = c, .tp_rows = c, .tp_sums = c, .gradients = 4, .weights = c, .elements = 1};
}

const weft_target weft_target_deepspeed = {
    .name = "deepspeed", .doc = "DeepSpeed edaa722, Ulysses for Hugging Face models (2026-08)",
    .zero_most = 3, .fp8 = false, .strategies = "none|ulysses", .layouts = "contiguous",
    .system = widths, .allowed = allowed, .memory = weft__target_memory, .flags = flags,
};
