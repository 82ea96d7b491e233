/* options.c — the one table of options: flag, YAML key, help, start table and record all come from it. */
#include "train/options_impl.h"

#include <string.h>
#include <unistd.h>

#define OFF(field) offsetof(weft_run_options, field)
/* weft info, sim, plan and show take whatever a run takes */
#define T (WEFT_CMD_TRAIN | WEFT_CMD_INFO | WEFT_CMD_SIM | WEFT_CMD_PLAN | WEFT_CMD_SHOW)
#define E WEFT_CMD_EVAL
#define V WEFT_CMD_VERIFY
#define A WEFT_CMD_ATTENTION
#define G WEFT_CMD_GENERATE
#define B WEFT_CMD_BENCH
#define MODEL (T | E | V | G)
#define RANKS (T | E | V | A)
#define CUT (RANKS | B) /* how one sequence is cut: bench cp times it, bench profile refuses what it does not use */
#define S WEFT_CMD_SIM
#define C WEFT_CMD_CHECKPOINT
#define D WEFT_CMD_DOCTOR
#define L WEFT_CMD_PLAN
#define NO_LIMIT 1, 0
enum { RANKS_MAX = 1 << 16 };

/* clang-format off */
static const weft_opt table[] = {
    /* key, flag, alias, type, offset, default, choices, min, max, doc, commands */
    {"parallel.cp", "context-parallel-size", "cp|context_parallel_size", WEFT_OPT_INT, OFF(cp), "1", NULL, 1, 4096,
     "ranks over which each sequence is cut", CUT | D},
    {"parallel.cp_strategy", "cp-strategy", NULL, WEFT_OPT_ENUM, OFF(cp_strategy), "auto",
     "auto|none|pcp|dcp|ring|pairwise|ulysses|dcp-ring|dcp-pairwise", NO_LIMIT,
     "how keys and values travel (weft info --plan shows what auto takes, and why)", CUT},
    {"parallel.cp_comm_type", "cp-comm-type", NULL, WEFT_OPT_ENUM, OFF(cp_comm_type), NULL,
     "p2p|all_gather|allgather|a2a|a2a+p2p", NO_LIMIT,
     "Megatron's name of a strategy: p2p is ring, all_gather pcp, a2a ulysses, a2a+p2p dcp-ring", CUT},
    {"parallel.pcp_size", "pcp-size", NULL, WEFT_OPT_INT, OFF(pcp_size), "0", NULL, 0, 4096,
     "sets strategy pcp and its size in one (0: not used)", CUT},
    {"parallel.dcp_size", "dcp-size", NULL, WEFT_OPT_INT, OFF(dcp_size), "0", NULL, 0, 4096,
     "sets strategy dcp and its size in one (0: not used)", CUT},
    {"parallel.cp_head_size", "cp-head-size", NULL, WEFT_OPT_INT, OFF(cp_head_size), "0", NULL, 0, 4096,
     "ranks U over which the heads are dealt, for dcp and its kin (0: chosen)", CUT},
    {"parallel.cp_keep_heads", "cp-keep-heads", NULL, WEFT_OPT_BOOL, OFF(cp_keep_heads), "false", NULL, NO_LIMIT,
     "keep q, k, v by heads between forward and backward, instead of dealing them out again", CUT},
    {"parallel.cp_layout", "cp-layout", NULL, WEFT_OPT_TEXT, OFF(cp_layout), "zigzag", NULL, NO_LIMIT,
     "which tokens a rank holds: contiguous, zigzag, striped[:k], balanced (by documents)", CUT},
    {"parallel.async_cp_comm", "async-cp-comm", NULL, WEFT_OPT_BOOL, OFF(async_cp_comm), "true", NULL, NO_LIMIT,
     "overlap exchange and compute (--no-async-cp-comm: wait first, same bits)", CUT},
    {"parallel.cp_aggregation_buffer_size", "cp-aggregation-buffer-size", NULL, WEFT_OPT_SIZE, OFF(cp_buffer),
     "0", NULL, 0, 1LL << 40,
     "bytes of the pieces in which blocks travel, from 64K (0: whole blocks; default: what --profile says)", CUT},
    {"parallel.cp_comm_dtype", "cp-comm-dtype", NULL, WEFT_OPT_ENUM, OFF(cp_comm_dtype),
     "same", "same|fp32|bf16|fp16|fp8", NO_LIMIT,
     "type of keys and values while they travel (same: that of the computation)", CUT},
    {"parallel.cp_grad_dtype", "cp-grad-dtype", NULL, WEFT_OPT_ENUM, OFF(cp_grad_dtype),
     "same", "same|fp32|bf16", NO_LIMIT,
     "type of travelling sums of their gradients (same: fp32, with --precision fp64 fp64)", CUT},
    {"parallel.fp8", "fp8-enabled", NULL, WEFT_OPT_BOOL, OFF(fp8), "false", NULL, NO_LIMIT,
     "keys and values travel and are kept as fp8 e4m3, travelling output gradients as e5m2", CUT},
    {"parallel.peer_memory", "peer-memory", NULL, WEFT_OPT_BOOL, OFF(peer_memory), "true", NULL, NO_LIMIT,
     "ranks of one machine read each other's blocks in place (--no-peer-memory: copies, same bits)", CUT},
    {"parallel.profile", "profile", NULL, WEFT_OPT_TEXT, OFF(profile), NULL, NULL, NO_LIMIT,
     "rates of the machine, for auto: a name (h100-ib) or a file of weft bench profile (default: plain ones)", CUT},
    {"parallel.dp", "data-parallel-size", "dp", WEFT_OPT_INT, OFF(dp), "1", NULL, 1, 4096,
     "groups of ranks that work on different sequences", T | E | V | B | D},
    {"parallel.tp", "tensor-model-parallel-size", "tp", WEFT_OPT_INT, OFF(tp), "1", NULL, 1, 4096,
     "ranks over which the heads, columns and vocabulary of each layer are dealt", T | E | V | B | D},
    {"parallel.pp", "pipeline-model-parallel-size", "pp", WEFT_OPT_INT, OFF(pp), "1", NULL, 1, 4096,
     "stages of a pipeline, each with a part of the layers", T | E | V | B | D},
    {"parallel.sequence_parallel", "sequence-parallel", NULL, WEFT_OPT_BOOL, OFF(sequence_parallel), "false", NULL,
     NO_LIMIT, "with --tp: the ranks of a layer share norms and residual stream, too, each with some of the rows",
     T | E | V | B},
    {"parallel.rank_order", "rank-order", NULL, WEFT_OPT_TEXT, OFF(rank_order), "tp-cp-dp-pp", NULL, NO_LIMIT,
     "which ranks are neighbours: tp, cp, dp and pp, the fastest first (weft info --groups shows what comes of it)",
     T | E | V | B},

    {"model.dir", "model", NULL, WEFT_OPT_TEXT, OFF(model_dir), NULL, NULL, NO_LIMIT,
     "start from the weights of this Hugging Face directory", T},
    {"model.config", "model-config", NULL, WEFT_OPT_TEXT, OFF(model_config), NULL, NULL, NO_LIMIT,
     "take the shape from this config.json, with random weights", T | B},
    {"model.family", "family", NULL, WEFT_OPT_ENUM, OFF(family), "llama", "llama|qwen2|qwen3|mistral|gpt2", NO_LIMIT,
     "family of a model given by the sizes below", T | B},
    {"model.hidden_size", "hidden-size", NULL, WEFT_OPT_INT, OFF(hidden), "256", NULL, 1, 1 << 20, "width C", T | B},
    {"model.intermediate_size", "ffn-hidden-size", NULL, WEFT_OPT_INT, OFF(intermediate), "0", NULL, 0, 1 << 24,
     "feed-forward width F (0: 8/3 of the width, to a multiple of 16)", T | B},
    {"model.layers", "num-layers", NULL, WEFT_OPT_INT, OFF(layers), "4", NULL, 1, 1 << 16, "layers L", T | B},
    {"model.heads", "num-attention-heads", NULL, WEFT_OPT_INT, OFF(heads), "4", NULL, 1, 1 << 16,
     "query heads H", T | B},
    {"model.kv_heads", "num-query-groups", NULL, WEFT_OPT_INT, OFF(kv_heads), "0", NULL, 0, 1 << 16,
     "key/value heads (0: as many as query heads)", T | B},
    {"model.head_dim", "kv-channels", NULL, WEFT_OPT_INT, OFF(head_dim), "0", NULL, 0, 256,
     "head size D (0: width / heads)", T | B},
    {"model.vocab_size", "vocab-size", NULL, WEFT_OPT_INT, OFF(vocab), "259", NULL, 2, INT32_MAX,
     "vocabulary V (259: bytes and three marks)", T | B},
    {"model.rope_theta", "rotary-base", NULL, WEFT_OPT_REAL, OFF(rope_theta), "10000", NULL, 1, 1e12,
     "base of the rotary angles", T | B},
    {"model.norm_eps", "norm-epsilon", NULL, WEFT_OPT_REAL, OFF(norm_eps), "1e-5", NULL, 1e-12, 1,
     "epsilon of the norms", T | B},
    {"model.tied", "tied", NULL, WEFT_OPT_BOOL, OFF(tied), "true", NULL, NO_LIMIT,
     "head and embedding share one weight", T | B},
    {"model.sliding_window", "sliding-window", NULL, WEFT_OPT_INT, OFF(sliding_window), "0", NULL,
     0, (double)(1LL << 40),
     "tokens a query sees, itself included (0: all before it)", T | B},

    {"data.path", "data", "data-path", WEFT_OPT_TEXT, OFF(data_path), NULL, NULL, NO_LIMIT,
     "text file or token file", T | E},
    {"data.separator", "separator", NULL, WEFT_OPT_TEXT, OFF(separator), NULL, NULL, NO_LIMIT,
     "text that ends a document (default: the file is one document)", T | E},
    {"data.document_mask", "document-mask", NULL, WEFT_OPT_BOOL, OFF(document_mask), "false", NULL, NO_LIMIT,
     "documents in one sequence do not see each other; positions restart", T | E},
    {"data.valid_fraction", "valid-fraction", NULL, WEFT_OPT_REAL, OFF(valid_fraction), "0.05", NULL, 0, 0.9,
     "last part of the tokens, kept for evaluation", T | E},

    {"train.steps", "steps", "train-iters|max-steps", WEFT_OPT_INT, OFF(steps), "100", NULL, 1, 1e12,
     "optimizer steps", T},
    {"train.seq_length", "seq-length", "seq-len|sequence-len", WEFT_OPT_SIZE, OFF(seq_length), "1024", NULL,
     1, INT32_MAX,
     "tokens of a whole sequence T", T | E | B},
    {"train.micro_batch_size", "micro-batch-size", NULL, WEFT_OPT_INT, OFF(micro_batch), "1", NULL, 1, 1 << 20,
     "sequences per forward pass B (weft verify: all of a rank unless given)", T | E | V | B},
    {"train.global_batch_size", "global-batch-size", NULL, WEFT_OPT_INT, OFF(global_batch), "0", NULL, 0, 1 << 24,
     "sequences per step (0: micro-batch x dp)", T | B},
    {"train.attention_dropout", "attention-dropout", NULL, WEFT_OPT_REAL, OFF(attention_dropout),
     "0", NULL, 0, 0.999999,
     "dropout of attention probabilities in training, by address: the same on any number of ranks", T | B},
    {"train.embedding_dropout", "embedding-dropout", NULL, WEFT_OPT_REAL, OFF(embedding_dropout),
     "0", NULL, 0, 0.999999, "dropout of the embedding in training, by address, too", T | B},
    {"train.residual_dropout", "residual-dropout", "hidden-dropout", WEFT_OPT_REAL, OFF(residual_dropout),
     "0", NULL, 0, 0.999999, "dropout of what attention and feed-forward add to the residual stream, by address",
     T | B},
    {"train.compare_steps", "compare-one-rank", NULL, WEFT_OPT_INT, OFF(compare_steps), "0", NULL, 0, 1e12,
     "afterwards run this many first steps on one rank and compare the losses", T},

    {"memory.recompute", "recompute", NULL, WEFT_OPT_ENUM, OFF(recompute), "none", "none|attention|block|full",
     NO_LIMIT, "what the backward pass makes again instead of keeping it: the inside of attention, of both halves of a "
     "layer, all but a layer's input", T | V | B},
    {"memory.keep_attention", "recompute-keep-attention", NULL, WEFT_OPT_BOOL, OFF(keep_attention),
     "false", NULL, NO_LIMIT, "with --recompute: keep attention's output, so that it and its exchange run once",
     T | V | B},
    {"memory.mlp_rows", "mlp-rows", NULL, WEFT_OPT_SIZE, OFF(mlp_rows), "0", NULL, 0, (double)(1LL << 40),
     "rows of the feed-forward at a time, so that its width exists for so many only (0: all)", T | E | V | B},
    {"memory.offload", "offload", NULL, WEFT_OPT_TEXT, OFF(offload), "none", NULL, NO_LIMIT,
     "where the inputs of layers wait for the backward pass: none (with the activations), host (a pool), file[:FOLDER] "
     "(one without a name; default: in $TMPDIR, else /var/tmp)", T | V | B},

    {"optim.lr", "lr", NULL, WEFT_OPT_REAL, OFF(lr), "1e-3", NULL, 0, 1e3, "learning rate after warm-up", T},
    {"optim.min_lr", "min-lr", NULL, WEFT_OPT_REAL, OFF(min_lr),
     "0", NULL, 0, 1e3, "learning rate at the end of decay", T},
    {"optim.beta1", "adam-beta1", NULL, WEFT_OPT_REAL, OFF(beta1),
     "0.9", NULL, 0, 0.999999999, "AdamW, first moment", T},
    {"optim.beta2", "adam-beta2", NULL, WEFT_OPT_REAL, OFF(beta2),
     "0.95", NULL, 0, 0.999999999, "AdamW, second moment", T},
    {"optim.eps", "adam-eps", NULL, WEFT_OPT_REAL, OFF(adam_eps), "1e-8", NULL, 0, 1, "AdamW, added to the root", T},
    {"optim.weight_decay", "weight-decay", NULL, WEFT_OPT_REAL, OFF(weight_decay), "0.1", NULL, 0, 1e3,
     "decoupled decay of tensors with two or more dimensions", T},
    {"optim.clip", "clip-grad", NULL, WEFT_OPT_REAL, OFF(clip),
     "1.0", NULL, 0, 1e12, "largest gradient norm (0: no clipping)", T},
    {"optim.warmup_steps", "lr-warmup-iters", "warmup-steps", WEFT_OPT_INT, OFF(warmup_steps), "-1", NULL, -1, 1e12,
     "linear warm-up (-1: a tenth of the steps, at most 200)", T},
    {"optim.decay_steps", "lr-decay-iters", NULL, WEFT_OPT_INT, OFF(decay_steps), "0", NULL, 0, 1e12,
     "cosine decay ends here (0: with the last step)", T},

    {"optim.loss_scale", "loss-scale", NULL, WEFT_OPT_TEXT, OFF(loss_scale), "auto", NULL, NO_LIMIT,
     "gradients of so much times the loss: dynamic, or a power of two (auto: dynamic with fp16, else 1)", T | V},
    {"optim.loss_scale_interval", "loss-scale-interval", NULL, WEFT_OPT_INT, OFF(loss_scale_interval),
     "2000", NULL, 1, 1e12, "steps without overflow after which a dynamic loss scale doubles", T},

    {"guard.policy", "guard", NULL, WEFT_OPT_ENUM, OFF(guard), "warn", "off|warn|skip|stop", NO_LIMIT,
     "on NaN, infinity or a too large number in what leaves a rank: name it, leave the step out, end the run", T | B},
    {"guard.limit", "guard-limit", NULL, WEFT_OPT_REAL, OFF(guard_limit), "1e4", NULL, 1e-30, 1e300,
     "larger magnitudes are too large for --guard (of gradients: as they are without loss scale)", T | B},
    {"spike.zscore", "spike-zscore", NULL, WEFT_OPT_REAL, OFF(spike_zscore), "6", NULL, 0, 1e12,
     "a loss so many standard deviations above its running mean is a spike (0: none is)", T},
    {"spike.window", "spike-window", NULL, WEFT_OPT_INT, OFF(spike_window), "64", NULL, 2, 1e12,
     "steps that the running mean and deviation remember", T},
    {"spike.warmup", "spike-warmup", NULL, WEFT_OPT_INT, OFF(spike_warmup), "32", NULL, 2, 1e12,
     "no spike before so many steps", T},
    {"spike.policy", "spike-policy", NULL, WEFT_OPT_ENUM, OFF(spike_policy), "warn", "warn|skip|stop", NO_LIMIT,
     "on a spike: say so, leave the step's update out, or end the run", T},

    {"optim.zero_stage", "zero-stage", "zero", WEFT_OPT_INT, OFF(zero_stage), "1", NULL, 0, 1,
     "ZeRO: 1 keeps moments of a slice on each rank of dp x cp, which updates it; 0 all on every rank (same bits)",
     T | V | B},
    {"optim.overlap_grad_reduce", "overlap-grad-reduce", NULL, WEFT_OPT_BOOL, OFF(overlap_grad_reduce), "true", NULL,
     NO_LIMIT, "sum gradients over ranks while backward goes on (--no-overlap-grad-reduce: afterwards, same bits)",
     T | V | B},

    {"eval.interval", "eval-interval", NULL, WEFT_OPT_INT, OFF(eval_interval), "0", NULL, 0, 1e12,
     "evaluate every so many steps (0: at the end only)", T},
    {"eval.sequences", "eval-sequences", NULL, WEFT_OPT_INT, OFF(eval_sequences), "8", NULL, 0, 1e12,
     "held-out sequences per evaluation (0: none)", T | E},
    {"save.interval", "save-interval", NULL, WEFT_OPT_INT, OFF(save_interval), "0", NULL, 0, 1e12,
     "checkpoint every so many steps (0: at the end only)", T},
    {"save.dtype", "save-dtype", NULL, WEFT_OPT_ENUM, OFF(save_dtype), "fp32", "fp32|bf16|fp16", NO_LIMIT,
     "element type of saved weights (masters are kept beside them where it rounds)", T | C},
    {"save.shard_size", "save-shard-size", NULL, WEFT_OPT_SIZE, OFF(save_shard), "4G", NULL, 0, (double)(1LL << 60),
     "largest file of a saved model, in bytes (0: one file)", T | C},
    {"save.background", "save-background", NULL, WEFT_OPT_BOOL, OFF(save_background), "true", NULL, NO_LIMIT,
     "write checkpoints while training goes on (--no-save-background: wait for the disk)", T},
    {"save.buffer", "save-buffer", NULL, WEFT_OPT_SIZE, OFF(save_buffer), "0", NULL, 0, (double)(1LL << 60),
     "memory per rank for what is being written, in bytes (0: room for all of it)", T},
    {"save.writers", "save-writers", NULL, WEFT_OPT_ENUM, OFF(save_writers), "all", "all|node|one", NO_LIMIT,
     "ranks that write: all, the first of each node, rank 0 alone", T},
    {"save.failure", "save-failure", NULL, WEFT_OPT_ENUM, OFF(save_failure), "stop", "stop|warn", NO_LIMIT,
     "when a checkpoint, or a line of metrics, cannot be written (a full disk): end the run, or warn and go on", T},
    {"save.keep_last", "keep-last", NULL, WEFT_OPT_INT, OFF(keep_last), "0", NULL, 0, 1e12,
     "keep only the newest N checkpoints (0: all)", T},
    {"save.keep_every", "keep-every", NULL, WEFT_OPT_INT, OFF(keep_every), "0", NULL, 0, 1e12,
     "with --keep-last, also keep those of every so many steps (0: none)", T},

    {"run.precision", "precision", NULL, WEFT_OPT_ENUM, OFF(precision), "fp32", "fp64|fp32|bf16|fp16", NO_LIMIT,
     "fp64: reference kernels; bf16, fp16: operands of products and attention, all else stays fp32",
     MODEL | A | B},
    {"run.isa", "isa", NULL, WEFT_OPT_ENUM, OFF(isa), "best", "best|ref|avx2|avx512|amx", NO_LIMIT,
     "instruction set of the kernels (also WEFT_ISA)", MODEL | A | B | D},
    {"run.seed", "seed", NULL, WEFT_OPT_INT, OFF(seed),
     "1", NULL, 0, 9e15, "seed of weights, data order, sampling, dropout, made cases", T | G | A},
    {"run.threads", "threads", NULL, WEFT_OPT_INT, OFF(threads),
     "0", NULL, 0, 1024, "threads per rank (0: cores / ranks)", MODEL | A | B | D},
    {"run.timeout", "timeout", NULL, WEFT_OPT_REAL, OFF(timeout), "120", NULL, 0.1, 1e7,
     "seconds that a rank waits for another before the job ends", CUT},
    {"run.mpi_progress", "mpi-progress", NULL, WEFT_OPT_ENUM, OFF(mpi_progress),
     "auto", "auto|callback|thread", NO_LIMIT,
     "under mpirun, who moves messages during compute (auto: measured at the start)", CUT},
    {"run.name", "name", NULL, WEFT_OPT_TEXT, OFF(run_name), NULL, NULL, NO_LIMIT,
     "folder of the run (default: date and time)", T},
    {"run.root", "runs", NULL, WEFT_OPT_TEXT, OFF(run_root), "runs", NULL, NO_LIMIT, "where run folders are made", T},
    {"run.overwrite", "overwrite", NULL, WEFT_OPT_BOOL, OFF(overwrite), "false", NULL, NO_LIMIT,
     "clear a run folder that exists of the run before", T},
    {"run.resume", "resume", NULL, WEFT_OPT_TEXT, OFF(resume), "none", NULL, NO_LIMIT,
     "go on from a checkpoint: auto (the newest complete one of this run), none, or a path", T},
    {"run.verify_checkpoint", "verify-checkpoint", NULL, WEFT_OPT_BOOL, OFF(verify_checkpoint), "true", NULL, NO_LIMIT,
     "compare checksums of all of a checkpoint before going on from it", T},
    {"run.sample_tokens", "sample-tokens", NULL, WEFT_OPT_INT, OFF(sample_tokens), "0", NULL, 0, 1 << 20,
     "print so many generated tokens at the end", T},

    {"attention.make", "make", NULL, WEFT_OPT_TEXT, OFF(make), NULL, NULL, NO_LIMIT,
     "make a random case instead of reading one: \"T=1001 H=4/2 D=64 causal docs=100,0,* window=255 sinks ...\"",
     A | B},
    {"attention.spot", "spot", NULL, WEFT_OPT_INT, OFF(spot), "0", NULL, 0, 1 << 16,
     "with --make: output gradients on so many random rows only, and everything checked in double precision", A},
    {"attention.dropout", "dropout", NULL, WEFT_OPT_REAL, OFF(dropout), "0", NULL, 0, 0.999999,
     "dropout of the attention probabilities, by address; --out also writes dropout_mask", A | B},
    {"bench.format", "format", NULL, WEFT_OPT_ENUM, OFF(bench_format), "text", "text|md|csv|jsonl", NO_LIMIT,
     "how benches, doctor and plan (text or jsonl), and info --groups and --memory, print their table",
     B | D | L | WEFT_CMD_INFO},
    {"bench.repeats", "repeats", NULL, WEFT_OPT_INT, OFF(bench_repeats), "0", NULL, 0, WEFT_BENCH_REPEATS_MAX,
     "measure so many times (0: by the time that it takes)", B},
    {"bench.sweep", "sweep", NULL, WEFT_OPT_TEXT, OFF(bench_sweep), NULL, NULL, NO_LIMIT,
     "bench step: one job after the other with these sizes, as cp=1,2,4 (or tp=, dp=, pp=): how a step scales", B},
    {"bench.sizes", "sizes", NULL, WEFT_OPT_TEXT, OFF(bench_sizes), NULL, NULL, NO_LIMIT,
     "bench comm: bytes of messages, separated by commas (default: 64K to 64M, as far as memory goes)", B},
    {"bench.against", "against", NULL, WEFT_OPT_ENUM, OFF(bench_against), "none", "none|own|whole", NO_LIMIT,
     "bench cp: beside the layer, each rank's own queries with all keys at hand (own), or all of it on one rank "
     "(whole)", B},

    {"sim.strategies", "strategies", NULL, WEFT_OPT_TEXT, OFF(sim_strategies), NULL, NULL, NO_LIMIT,
     "strategies to simulate, or to compare, separated by commas (default: all that are applicable)", S | B},
    {"sim.layouts", "layouts", NULL, WEFT_OPT_TEXT, OFF(sim_layouts), NULL, NULL, NO_LIMIT,
     "layouts to simulate, or to compare, separated by commas (default: --cp-layout)", S | B},
    {"sim.docs", "docs", NULL, WEFT_OPT_TEXT, OFF(sim_docs), NULL, NULL, NO_LIMIT,
     "documents of each sequence: \"100,0,*\" lengths, or \"random:8\" (default: one)", S | WEFT_CMD_SHOW},
    {"sim.layers", "sim-layers", NULL, WEFT_OPT_INT, OFF(sim_layers), "1", NULL, 1, 1 << 16,
     "attention layers, one after the other, forward and then backward", S},
    {"sim.hardware_progress", "hardware-progress", NULL, WEFT_OPT_BOOL, OFF(sim_hardware_progress),
     "true", NULL, NO_LIMIT,
     "transfers begin without the ranks (--no-hardware-progress: only when both look)", S},
    {"sim.trace", "trace", NULL, WEFT_OPT_TEXT, OFF(sim_trace), NULL, NULL, NO_LIMIT,
     "write the time line of the fastest to this file, for Perfetto or chrome://tracing", S},
    {"sim.slow_rank", "slow-rank", NULL, WEFT_OPT_TEXT, OFF(sim_slow_rank), NULL, NULL, NO_LIMIT,
     "ranks whose kernels take longer, and how many times: \"3:1.5,8-15:1.2\"; the table shows what it costs", S},
    {"sim.slow_link", "slow-link", NULL, WEFT_OPT_TEXT, OFF(sim_slow_link), NULL, NULL, NO_LIMIT,
     "links whose bytes take longer: \"2-3:4\" of two ranks, \"5:2\" all of rank 5, \"node:2\" all inside nodes, "
     "\"net:2\" all between them", S},
    {"sim.jitter", "jitter", NULL, WEFT_OPT_REAL, OFF(sim_jitter), "0", NULL, 0, 1e3,
     "every kernel takes longer by a share of its time, drawn from 0 to this (by --seed)", S},
    {"trace.ranks", "trace-ranks", NULL, WEFT_OPT_TEXT, OFF(trace_ranks), "0-3", NULL, NO_LIMIT,
     "ranks in the time line: numbers and ranges, separated by commas", T},
    {"trace.steps", "trace-steps", NULL, WEFT_OPT_TEXT, OFF(trace_steps), NULL, NULL, NO_LIMIT,
     "steps whose time line is written into the run's folder: numbers and ranges, separated by commas", T},
    {"run.tensorboard", "tensorboard", NULL, WEFT_OPT_ENUM, OFF(tensorboard), "auto", "auto|on|off", NO_LIMIT,
     "numbers of each step for TensorBoard, in the run's folder: of all ranks (on), of rank 0 (auto), none", T},

    {"show.step", "step", NULL, WEFT_OPT_TEXT, OFF(show_step), "all", NULL, NO_LIMIT,
     "the step of the exchange to draw: its number, or all", WEFT_CMD_SHOW},
    {"show.rank", "rank", NULL, WEFT_OPT_INT, OFF(show_rank), "-1", NULL, -1, 4095,
     "draw what this rank computes, and list its steps (-1: all of a context group)", WEFT_CMD_SHOW},
    {"show.backward", "backward", NULL, WEFT_OPT_BOOL, OFF(show_backward), "false", NULL, NO_LIMIT,
     "list the messages of the backward pass: keys and values again, and their gradients", WEFT_CMD_SHOW},
    {"show.queries", "queries", NULL, WEFT_OPT_SIZE, OFF(show_queries), "0", NULL, 0, INT32_MAX,
     "only the last N tokens of the sequence ask (0: all)", WEFT_CMD_SHOW},
    {"show.svg", "svg", NULL, WEFT_OPT_TEXT, OFF(show_svg), NULL, NULL, NO_LIMIT,
     "also write the picture to this file, with a panel for each step", WEFT_CMD_SHOW},
    {"color", "color", NULL, WEFT_OPT_ENUM, OFF(color), "auto", "auto|always|never", NO_LIMIT,
     "colours on the terminal (auto: where the output is one and NO_COLOR is not set)", WEFT_CMD_SHOW},

    {"search.machine", "machine", NULL, WEFT_OPT_TEXT, OFF(search_machine), NULL, NULL, NO_LIMIT,
     "machine to plan for: a name (h100-ib) or a file of weft bench profile (default: plain rates)", L},
    {"search.ranks", "ranks", NULL, WEFT_OPT_INT, OFF(search_ranks), "0", NULL, 0, RANKS_MAX,
     "ranks to lay the step over (0: tp x cp x dp x pp where any is given, else this machine's cores); doctor: of the "
     "run that is meant", L | D},
    {"search.memory", "mem", NULL, WEFT_OPT_SIZE, OFF(search_memory), "0", NULL, 0, (double)(1LL << 60),
     "bytes that a rank may hold, as 24G (0: the machine's memory_bytes, where it has any)", L},
    {"search.target", "target", NULL, WEFT_OPT_TEXT, OFF(search_target), "weft", NULL, NO_LIMIT,
     "the system that will run it: its limits, its options", L},
    {"search.free", "free", NULL, WEFT_OPT_TEXT, OFF(search_free), NULL, NULL, NO_LIMIT,
     "what the configuration gives and the search may change all the same: names such as tp,cp,recompute, or all", L},
    {"search.best", "best", NULL, WEFT_OPT_INT, OFF(search_best), "8", NULL, 1, WEFT_PLAN_BEST_MAX,
     "layouts to list", L},
    {"search.simulate", "simulate", NULL, WEFT_OPT_BOOL, OFF(search_simulate), "true", NULL, NO_LIMIT,
     "run the exchange of those that are listed on the simulator (--no-simulate: formulas only)", L},
    {"search.sources", "sources", NULL, WEFT_OPT_BOOL, OFF(search_sources), "false", NULL, NO_LIMIT,
     "print where each number of the machine is from, and nothing else", L},

    {"info.plan", "plan", NULL, WEFT_OPT_BOOL, OFF(plan), "false", NULL, NO_LIMIT,
     "print the plan of these options and why other strategies lost, instead of the machine", WEFT_CMD_INFO},
    {"info.groups", "groups", NULL, WEFT_OPT_BOOL, OFF(groups), "false", NULL, NO_LIMIT,
     "print who is in a group with whom, instead of the machine", WEFT_CMD_INFO},
    {"info.memory", "memory", NULL, WEFT_OPT_BOOL, OFF(memory), "false", NULL, NO_LIMIT,
     "print what a rank of such a run would hold, instead of the machine", WEFT_CMD_INFO},
    {"out", "out", NULL, WEFT_OPT_TEXT, OFF(out), NULL, NULL, NO_LIMIT,
     "write what was computed to this file: tensors (safetensors), a profile (JSON)", V | A | B},
    {"generate.prompt", "prompt", NULL, WEFT_OPT_TEXT, OFF(prompt), NULL, NULL, NO_LIMIT,
     "text to continue (byte vocabulary)", G},
    {"generate.prompt_ids", "prompt-ids", NULL, WEFT_OPT_TEXT, OFF(prompt_ids), NULL, NULL, NO_LIMIT,
     "token ids to continue, separated by commas or spaces", G},
    {"generate.max_new_tokens", "max-new-tokens", NULL, WEFT_OPT_INT, OFF(max_new_tokens),
     "200", NULL, 1, 1e9, "tokens to add at most (default: fewer where the model has no more positions)", G},
    {"generate.temperature", "temperature", NULL, WEFT_OPT_REAL, OFF(temperature), "0", NULL, 0, 100, "0: greedy", G},
    {"generate.top_p", "top-p", NULL, WEFT_OPT_REAL, OFF(top_p),
     "1", NULL, 1e-6, 1, "sample from the likeliest tokens of this total probability", G},
    {"generate.output", "output", NULL, WEFT_OPT_ENUM, OFF(output), "auto", "auto|text|ids", NO_LIMIT,
     "auto: text for the byte vocabulary, else ids", G},
};
/* clang-format on */

#undef T
#undef E
#undef V
#undef A
#undef G
#undef S
#undef C
#undef D
#undef L
#undef B

const weft_opt *weft_run_table(int *n)
{
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* A size given beside a model that has its own could not act. */
static weft_status check_model_sizes(const weft_opts *opts, const weft_run_options *o)
{
    if (!o->model_dir && !o->model_config) return WEFT_OK;
    for (int i = 0; i < opts->n; i++) {
        const weft_opt *row = &opts->table[i];
        bool names_model = row->type == WEFT_OPT_TEXT; /* model.dir and model.config themselves */
        if (strncmp(row->key, "model.", 6) || names_model || !weft_opts_given(opts, row->key)) continue;
        return weft_fail(WEFT_ERR_REFUSED, "%s could not act: %s says what the model is; leave one of them out",
                         row->key, o->model_dir ? o->model_dir : o->model_config);
    }
    return WEFT_OK;
}

/* Ranks of the mesh and the order in which they are numbered. open: sizes that
 * are not given come later, from a sweep or a search. */
static weft_status resolve_mesh(weft_run *run, const weft_run_options *o, int64_t cp, bool open)
{
    const int64_t size[] = {weft_max_i64(o->tp, 1), weft_max_i64(cp, 1), weft_max_i64(o->dp, 1),
                            weft_max_i64(o->pp, 1)};
    int64_t ranks = 1;
    for (int i = 0; i < 4; i++) ranks *= size[i]; /* of at most 4096 each */
    if (ranks > RANKS_MAX)
        return weft_fail(WEFT_ERR_REFUSED, "tp %lld x cp %lld x dp %lld x pp %lld are %lld ranks; at most %d",
                         (long long)size[0], (long long)size[1], (long long)size[2], (long long)size[3],
                         (long long)ranks, RANKS_MAX);
    run->mesh = (weft_mesh_shape){.tp = (int)size[0], .cp = (int)size[1], .dp = (int)size[2], .pp = (int)size[3]};
    if (o->rank_order) WEFT_TRY(weft_mesh_order_parse(o->rank_order, &run->mesh.order));
    run->sequence_parallel = o->sequence_parallel;
    if (o->sequence_parallel && run->mesh.tp == 1 && !open)
        return weft_fail(WEFT_ERR_REFUSED, "--sequence-parallel deals rows over the tensor-parallel ranks, and there "
                         "is one; give --tp 2 or more, or leave it out (--cp cuts the sequence)");
    return WEFT_OK;
}

/* What a script makes of a variable that is not set: no text here has a meaning when it is empty. */
static weft_status refuse_empty(const weft_opts *opts, const weft_run_options *o)
{
    for (int i = 0; i < opts->n; i++) {
        const weft_opt *row = &opts->table[i];
        const char *text = NULL;
        if (row->type != WEFT_OPT_TEXT || !(row->commands & opts->command)) continue;
        memcpy(&text, (const char *)o + row->offset, sizeof text);
        if (text && !*text)
            return weft_fail(WEFT_ERR_REFUSED, "--%s is empty; give a value (weft COMMAND --help), or leave it out",
                             row->flag ? row->flag : row->key);
    }
    return WEFT_OK;
}

weft_status weft_run_resolve(weft_run *run, const weft_opts *opts, const weft_run_options *o)
{
    int64_t cp = o->cp;
    WEFT_TRY(refuse_empty(opts, o));
    *run = (weft_run){.o = o,
                      .dropout_given = weft_opts_given(opts, "attention.dropout"),
                      .seed_given = weft_opts_given(opts, "run.seed"),
                      .micro_batch_given = weft_opts_given(opts, "train.micro_batch_size")};
    WEFT_TRY(weft_run_resolve_cp(run, opts, o, &cp));
    WEFT_TRY(resolve_mesh(run, o, cp, opts->command == WEFT_CMD_PLAN || o->bench_sweep));
    if (run->mesh.pp > 1 && o->sample_tokens > 0)
        return weft_fail(WEFT_ERR_REFUSED, "run.sample_tokens with --pp %d: no rank has the whole model; leave it out, "
                         "and run weft generate on the checkpoint", run->mesh.pp);
    if (!weft_prec_parse(o->precision, &run->prec))
        return weft_fail(WEFT_ERR_REFUSED, "precision %s is unknown; use fp64, fp32, bf16 or fp16", o->precision);
    if (!strcmp(o->isa, "best")) run->isa = weft_isa_best();
    else if (!weft_isa_parse(o->isa, &run->isa))
        return weft_fail(WEFT_ERR_REFUSED, "isa %s is unknown; use best, ref, avx2, avx512 or amx", o->isa);
    if (run->prec == WEFT_PREC_F64) run->isa = WEFT_ISA_REF;
    if (o->cp_layout) WEFT_TRY(weft_layout_parse(o->cp_layout, &run->layout));
    WEFT_TRY(weft_run_resolve_numerics(run, opts, o));
    WEFT_TRY(weft_run_resolve_memory(run, o));
    return check_model_sizes(opts, o);
}

static weft_status config_from_table(const weft_run_options *o, weft_model_config *c)
{
    static const struct {
        const char *name;
        weft_family family;
    } families[] = {{"llama", WEFT_LLAMA},
                    {"qwen2", WEFT_QWEN2},
                    {"qwen3", WEFT_QWEN3},
                    {"mistral", WEFT_MISTRAL},
                    {"gpt2", WEFT_GPT2}};
    *c = (weft_model_config){.V = o->vocab,
                             .C = o->hidden,
                             .L = o->layers,
                             .H = (int)o->heads,
                             .norm_eps = o->norm_eps,
                             .tied = o->tied,
                             .window = o->sliding_window,
                             .max_position = o->seq_length,
                             .bos = -1,
                             .eos = -1};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(o->family, families[i].name)) c->family = families[i].family;
    bool gpt2 = c->family == WEFT_GPT2;
    c->F = o->intermediate ? o->intermediate : gpt2 ? 4 * c->C : (8 * c->C / 3 + 15) / 16 * 16;
    c->Hkv = (int)(o->kv_heads ? o->kv_heads : o->heads);
    if (!o->head_dim && o->hidden % o->heads)
        return weft_fail(WEFT_ERR_REFUSED,
                         "model.hidden_size %lld is no multiple of model.heads %lld; change one or give model.head_dim",
                         (long long)o->hidden, (long long)o->heads);
    c->D = (int)(o->head_dim ? o->head_dim : o->hidden / o->heads);
    c->qkv_bias = gpt2 || c->family == WEFT_QWEN2;
    c->o_bias = c->mlp_bias = gpt2;
    c->rope = (weft_rope_config){.type = gpt2 ? WEFT_ROPE_NONE : WEFT_ROPE_PLAIN, .theta = o->rope_theta, .factor = 1};
    if (c->V == WEFT_BYTE_VOCAB) c->bos = WEFT_BYTE_BOS, c->eos = WEFT_BYTE_EOD;
    return weft_model_config_check_file(c, "the options model.*");
}

weft_status weft_run_model_config(const weft_run *run, weft_model_config *out)
{
    const weft_run_options *o = run->o;
    if (o->model_dir && o->model_config)
        return weft_fail(WEFT_ERR_REFUSED, "model.dir and model.config both say what the model is; give one of them");
    if (o->model_config) return weft_model_config_read(out, o->model_config);
    if (!o->model_dir) return config_from_table(o, out);
    weft_text path = {0};
    weft_status st = WEFT_OK;
    weft_text_add(&path, "%s/config.json", o->model_dir);
    if (path.failed) st = weft_fail(WEFT_ERR_MEMORY, "no memory for a path");
    else if (access(path.data, F_OK) != 0)
        st = weft_fail(WEFT_ERR_REFUSED, "%s: there is no config.json in it; a model directory is needed (of a run: "
                                         "runs/NAME/step-NUMBER)", o->model_dir);
    else st = weft_model_config_read(out, path.data);
    weft_text_free(&path);
    return st;
}
