/* train.h — the door of the room `train`: what a run is asked to do, the trainer and its step, evaluation,
 * verification against outside numbers, generation. Prints nothing: progress goes through callbacks. */
#ifndef WEFT_TRAIN_H
#define WEFT_TRAIN_H

#include "data/data.h"
#include "plan/plan.h"

/* ---- options -------------------------------------------------------------------------------------- */

enum { /* commands, as bits in the option table */
    WEFT_CMD_TRAIN = 1, WEFT_CMD_EVAL = 2, WEFT_CMD_VERIFY = 4, WEFT_CMD_ATTENTION = 8, WEFT_CMD_GENERATE = 16,
    WEFT_CMD_SHOW = 2048,
    WEFT_CMD_INFO = 32, WEFT_CMD_BENCH = 64, WEFT_CMD_SIM = 128, WEFT_CMD_CHECKPOINT = 256,
    WEFT_CMD_DOCTOR = 1 << 15,
    WEFT_CMD_PLAN = 4096
};

typedef struct weft_run_options { /* filled by the table in options.c, which documents every field */
    int64_t cp, dp, tp, pp;
    const char *rank_order;
    bool sequence_parallel;
    int64_t pcp_size, dcp_size, cp_head_size, cp_buffer;
    const char *cp_strategy, *cp_comm_type, *cp_layout, *cp_comm_dtype, *cp_grad_dtype;
    bool async_cp_comm, cp_keep_heads, fp8, peer_memory;
    const char *profile;
    bool plan, groups, memory;

    const char *model_dir, *model_config, *family;
    int64_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, sliding_window;
    double rope_theta, norm_eps, attention_dropout, embedding_dropout, residual_dropout;
    const char *recompute;
    bool keep_attention;
    int64_t mlp_rows;
    const char *offload;
    bool tied;

    const char *data_path, *separator;
    bool document_mask;
    double valid_fraction;

    int64_t steps, seq_length, micro_batch, global_batch, compare_steps;
    double lr, min_lr, beta1, beta2, adam_eps, weight_decay, clip;
    int64_t warmup_steps, decay_steps, zero_stage;
    bool overlap_grad_reduce;
    const char *loss_scale, *guard, *spike_policy;
    double guard_limit, spike_zscore;
    int64_t loss_scale_interval, spike_window, spike_warmup;
    int64_t eval_interval, eval_sequences, save_interval, save_shard, save_buffer, keep_last, keep_every;
    const char *save_dtype, *save_writers, *save_failure, *resume;
    bool save_background, verify_checkpoint;

    const char *precision, *isa;
    int64_t seed, threads;
    double timeout;
    const char *mpi_progress;
    const char *run_name, *run_root;
    bool overwrite;

    const char *make, *bench_format, *bench_against, *bench_sweep, *bench_sizes;
    int64_t bench_repeats, spot;
    double dropout;

    const char *sim_strategies, *sim_layouts, *sim_docs, *sim_trace, *sim_slow_rank, *sim_slow_link;
    const char *trace_ranks, *trace_steps, *tensorboard;
    double sim_jitter;
    int64_t sim_layers;
    bool sim_hardware_progress;

    const char *show_step, *show_svg, *color;
    int64_t show_rank, show_queries;
    bool show_backward;

    const char *search_machine, *search_target, *search_free; /* weft plan */
    int64_t search_ranks, search_memory, search_best;
    bool search_simulate, search_sources;

    const char *out, *prompt, *prompt_ids, *output;
    int64_t max_new_tokens, sample_tokens;
    double temperature, top_p;
} weft_run_options;

const weft_opt *weft_run_table(int *n);

typedef struct weft_run { /* the options, checked and resolved */
    const weft_run_options *o;
    weft_prec prec;
    weft_isa isa;
    weft_recompute recompute;
    weft_offload offload;
    const char *offload_folder;
    weft_layout layout;
    weft_mesh_shape mesh;
    double loss_scale;      /* to begin with */
    bool loss_scale_dynamic;
    weft_guard guard;       /* policy and limit */
    weft_spike spike;       /* before the first step */
    weft_guard_policy spike_policy; /* warn, skip or stop */
    bool sequence_parallel; /* never with tp 1 */
    bool dropout_given, seed_given; /* --dropout 0 and --seed 1 are asked for too, against what a case says */
    bool micro_batch_given;         /* weft verify: else all rows of a rank at once */
    weft_cp_options cp;
    weft_profile profile; /* cp.profile points here when a file was given: a copy must not outlive its original */
} weft_run;

/* Settles aliases (--pcp-size, --cp-comm-type), parses names, refuses what contradicts. LOCAL */
weft_status weft_run_resolve(weft_run *run, const weft_opts *opts, const weft_run_options *o);
/* The ranks of --trace-ranks, ascending; of its default those that there are. LOCAL */
weft_status weft_run_traced_ranks(const weft_opts *opts, const weft_run_options *o, int ranks, weft_arena *arena,
                                  int **list, int *n);
/* The strongest source that names a strategy in any of the four ways: 0 none, 1 a file, 2 a flag. LOCAL */
int weft_run_names_strategy(const weft_opts *opts);
/* Bytes of the pieces in which blocks travel: those that are asked for, else those that weft bench comm found fastest
 * on this machine (--profile, --machine). Pieces change no bit. LOCAL */
size_t weft_run_buffer_bytes(const weft_opts *opts, const weft_run_options *o, const weft_profile *machine);
/* The same run on one rank: without strategy, and without what only acts with one. LOCAL */
void weft_run_one_rank(weft_run *run);

/* The model's config: of a directory, of a config.json, or from the option table. LOCAL */
weft_status weft_run_model_config(const weft_run *run, weft_model_config *out);
/* Refuses on all ranks when one has another command or other options than rank 0, and names the first (how many threads
 * and where a file lies may differ). COLLECTIVE over `all` */
weft_status weft_run_same_options(weft_comm *all, const char *command, const weft_opts *opts);
/* The same of the model that each rank has read or put together for itself. COLLECTIVE over `all` */
weft_status weft_run_same_model(weft_comm *all, const weft_model_config *config);
/* The same of the data's tokens, documents and bytes (weft_tokens_glance). COLLECTIVE over `all` */
weft_status weft_run_same_data(weft_comm *all, const weft_tokens *tokens, const char *path);
/* The same of any file that every rank reads for itself, wherever it lies; what: its contents, in the plural, for the
 * message ("case values"); a rank without such a file has 0 bytes. COLLECTIVE over `all` */
weft_status weft_run_same_file(weft_comm *all, const char *what, const char *path, weft_glance file);

/* Micro-batches of a step on a rank; refuses a batch that they do not divide. LOCAL, pure */
weft_status weft_run_accumulation(const weft_run *run, int64_t *out);
/* Refuses offloading that would act on no stage; so many micro-batches of a step on a rank. LOCAL, pure */
weft_status weft_run_check_offload(const weft_run *run, const weft_model_config *config, int64_t micros);

/* "100,0,*,7": lengths in order, one of them * for what is left; "random:8": so many, cut at random tokens; "each:1K":
 * of that length, the last as long as is left. The same in every row. LOCAL */
weft_status weft_docs_from_text(weft_docs *out, weft_arena *arena, const char *text, int64_t B, int64_t T,
                                uint64_t seed);

/* ---- one rank's machinery for a run --------------------------------------------------------------- */

typedef struct weft_engine_slot { /* this rank's rows of a micro-batch that is alive */
    weft_shard shard;
    int64_t *index;          /* [rows] token index in [0, B*T) of local rows */
    int32_t *token, *target; /* [rows] */
    double area;             /* visible pairs of this rank's queries, in one layer and head */
} weft_engine_slot;

typedef struct weft_engine { /* what every command that runs a model needs, opened in order */
    weft_ctx *ctx;
    const weft_run *run;
    weft_kern kern;
    weft_gemm *gemm;
    weft_mesh mesh;
    weft_arena *arena;       /* lives as long as the engine */
    weft_model_config config;
    weft_model *model;
    int64_t B, T, rows;      /* largest micro-batch; rows: of this rank, at most */
    int slots;
    weft_engine_slot *slot;
    int64_t *pos;            /* [rows] scratch */
    int64_t step;            /* optimizer step, for addresses */
    weft_text plan;          /* attention in words, of all stages of this rank's pipeline; a line each */
} weft_engine;

/* micros: micro-batches of a step, of which the stage has as many alive as its schedule asks for; 0: 1. */
typedef struct weft_engine_options { int64_t B, T, max_docs, micros; bool train; } weft_engine_options;

/* What a model of the run is created with; slots are left to the schedule. LOCAL */
weft_model_options weft_engine_model_options(const weft_run *run, const weft_engine_options *o);
/* Refused on all ranks where one has another config than rank 0. COLLECTIVE over the world. */
weft_status weft_engine_open(weft_engine *e, weft_world *world, const weft_run *run, const weft_model_config *config,
                             const weft_engine_options *o);
void weft_engine_close(weft_engine *e);
/* Warns of what the config.json at `path` asks for and Weft does not do. LOCAL */
void weft_engine_warn(const weft_engine *e, const char *path);
/* An array that lies as the model's table says (weights, gradients: what dp x cp holds copies of) as parts to be
 * gathered or loaded; they live as long as the engine. LOCAL */
weft_status weft_engine_held(weft_engine *e, void *array, weft_held *out);
/* Weights from a Hugging Face directory: what this rank has of them. Refused on all ranks where one cannot read them,
 * or reads others than rank 0. COLLECTIVE over the world */
weft_status weft_engine_load(weft_engine *e, const char *dir);

typedef struct weft_engine_pass {
    int slot;
    int64_t sequence;        /* first sequence of the micro-batch within the step: dropout's address */
    void *input, *output;    /* what travels between stages (weft_micro) */
    bool for_backward;
    double grad_scale;
    void *token_nll;         /* [rows] (R) or NULL */
    void *stream;            /* backward: the gradient that travels (weft_model_backward) */
    weft_model_watch watch;
    weft_optim *optim;       /* backward: the last of a step, so each range of gradients goes on to the sum over ranks
                                as soon as it is final, past the numerics guard; or NULL */
} weft_engine_pass;

/* Cuts docs->B whole sequences (token, target [B*T]) over the cp ranks and runs this rank's part. COLLECTIVE over
 * tp x cp. */
weft_status weft_engine_forward(weft_engine *e, const weft_engine_pass *pass, const int32_t *token,
                                const int32_t *target, const weft_docs *docs, double *nll_sum);
/* The backward pass of the micro-batch in pass->slot: adds to the gradients. COLLECTIVE over tp x cp. */
weft_status weft_engine_backward(weft_engine *e, const weft_engine_pass *pass);

/* The optimizer of the model's weights over the mesh; ZeRO stage and overlap are the run's. COLLECTIVE over the
 * world */
weft_status weft_engine_optimizer(weft_engine *e, const weft_optim_options *options, weft_optim **out);

/* ---- trainer -------------------------------------------------------------------------------------- */

typedef struct weft_trainer weft_trainer;

/* Opens data, model, optimizer; weights from model_dir or random by address. COLLECTIVE over the world. */
weft_status weft_trainer_create(weft_trainer **out, weft_world *world, const weft_run *run);
/* The same without gradients and optimizer: evaluation only. COLLECTIVE over the world. */
weft_status weft_evaluator_create(weft_trainer **out, weft_world *world, const weft_run *run);
void weft_trainer_destroy(weft_trainer *t);
/* One optimizer step: fills the record. COLLECTIVE over the world. */
weft_status weft_trainer_step(weft_trainer *t, weft_record *record);
/* From now on `call` is told where this rank is within a step, by the thread that computes: once a layer and phase, and
 * at the end of the step with done = 1. It should be quick: the ranks of the step wait for it. Evaluation tells
 * nothing. NULL: nobody is told. LOCAL */
typedef void (*weft_step_watch)(void *ud, const weft_step_at *at);
void weft_trainer_watch(weft_trainer *t, weft_step_watch call, void *ud);
/* Mean loss over the first `sequences` held-out sequences. COLLECTIVE over the world. */
weft_status weft_trainer_eval(weft_trainer *t, int64_t sequences, double *loss);
/* A checkpoint, which is a Hugging Face directory, too; complete when it has its name. COLLECTIVE over the world */
weft_status weft_trainer_save(weft_trainer *t, const char *dir);
int64_t weft_trainer_skips(const weft_trainer *t); /* steps left out so far, but those without labels */
/* The same in two parts: after the first, what was saved is a copy, and a thread writes while training goes on; the
 * second waits for it, and tells what failed. One at a time. COLLECTIVE over the world */
weft_status weft_trainer_save_begin(weft_trainer *t, const char *dir);
weft_status weft_trainer_save_finish(weft_trainer *t);
/* Of this rank's part; when it is failed or written on all ranks, it is time to finish. LOCAL, cheap */
weft_ckpt_stage weft_trainer_save_stage(const weft_trainer *t);

/* The checkpoint that run.resume asks for: none, auto (the newest of run_dir that is complete and fits its checksums;
 * what is passed over is told through the log), or a path, of a checkpoint or of a run's folder. Into path[size], empty
 * when there is none to go on from. Ranks that see different folders refuse together. COLLECTIVE over the world */
weft_status weft_resume_find(weft_world *world, const weft_run *run, const char *run_dir, char *path, size_t size);
/* Weights, moments and place of a checkpoint that weft_resume_find found, whatever layout wrote it. Refuses another
 * model, other data and what would change the samples; `differs` gets in words what else does. COLLECTIVE over the
 * world */
weft_status weft_trainer_resume(weft_trainer *t, const char *dir, weft_text *differs);
int64_t weft_trainer_steps_done(const weft_trainer *t);

typedef struct weft_train_state { /* state.json, but for the options */
    int64_t step, updates, skips; /* steps done; those that were taken, and left out for their numbers */
    int64_t sequence, tokens;     /* the next sequence of the run; tokens trained on */
    double loss;                  /* of the last step that had one */
    int64_t data_tokens, data_docs;
    weft_hash data_hash;
    bool scale_dynamic;
    weft_scaler scaler;           /* scale, good, skipped: the rest is options */
    weft_spike spike;             /* seen, mean, variance */
} weft_train_state;
weft_status weft_train_state_text(const weft_train_state *s, const weft_run_options *o, weft_text *out);
/* Refuses what is not as it must be; `where` for messages. options: the record of the options, to be released by
 * json_decref; or NULL. LOCAL */
struct json_t;
weft_status weft_train_state_read(weft_train_state *out, struct json_t **options, const char *where, const char *text,
                                  size_t bytes);
/* Refuses options that change the samples; others that differ are appended to `differs`. LOCAL */
weft_status weft_train_state_compare(const struct json_t *saved, const weft_run_options *o, const char *where,
                                     weft_text *differs);

/* Makes the run's folder this run's own. What would stand in the way is refused before anything is removed. *lock: a
 * descriptor to close at the end; while it is open, and this process lives, another run is refused. LOCAL */
typedef enum weft_run_dir_how {
    WEFT_RUN_NEW,       /* must not be there */
    WEFT_RUN_OVERWRITE, /* cleared of what an earlier run wrote there (checkpoints, metrics, what a killed run left
                           half-written), and of nothing else */
    WEFT_RUN_CONTINUE   /* goes on after `step`: metrics of later steps go; later checkpoints, which must be damaged,
                           are moved aside */
} weft_run_dir_how;
weft_status weft_run_dir_open(const char *dir, weft_run_dir_how how, int64_t step, int *lock);

/* The ranks that write the checkpoints of a run, ascending, in memory of the arena. COLLECTIVE over `all` */
weft_status weft_run_writers(const weft_run *run, weft_comm *all, weft_arena *arena, int **writer, int *n);
/* bytes[ranks]: memory that each rank of the world keeps, from the first checkpoint on, for what it writes of them.
 * LOCAL */
weft_status weft_run_checkpoint_bytes(const weft_run *run, const weft_model_config *config, weft_arena *arena,
                                      const int *writer, int writers, int ranks, int64_t *bytes);

enum { WEFT_HOST_BYTES = 72 };
typedef struct weft_memory_machine { /* the ranks of one machine together */
    char host[WEFT_HOST_BYTES];
    int ranks;
    int64_t planned, room; /* room: what they hold by now, and what the machine or a control group can still give */
} weft_memory_machine;

typedef struct weft_memory_report {
    int ranks;
    weft_memory_machine tightest;  /* where least is left beyond what is planned, or most is missing */
    int needs;                     /* the rank for which most is planned */
    weft_memory needed;            /* that plan */
    int rank;                      /* the rank that holds most */
    weft_memory counted, planned;  /* peaks of its account so far; what weft_plan_memory says of it */
    weft_memory least, most;       /* of all ranks, kind by kind */
    int64_t least_total, most_total; /* of one rank, all kinds together */
    double mean_total;
    weft_memory own, own_planned;  /* of this rank; all else is the same on all ranks */
    int64_t resident, least_resident; /* of processes: the largest, the smallest; of threads, of all of them together */
} weft_memory_report;
/* COLLECTIVE over the world */
weft_status weft_trainer_memory(weft_trainer *t, weft_memory_report *out);

typedef struct weft_plan_check {   /* the last step, beside what was planned for it */
    weft_memory_report memory;
    int rank;                      /* the first whose bytes are not as planned, else the one that sends most */
    weft_bytes planned, sent;      /* of that rank */
    int differ;                    /* ranks whose bytes are not as planned */
    bool taken;                    /* false: the step was left out, and bytes and time say nothing */
    double planned_seconds, seconds; /* planned 0: no profile was given; seconds: of the slowest rank */
} weft_plan_check;
/* COLLECTIVE over the world */
weft_status weft_trainer_check(weft_trainer *t, weft_plan_check *out);
const weft_engine *weft_trainer_engine(const weft_trainer *t);
int64_t weft_trainer_windows(const weft_trainer *t, bool valid);
/* Entropy of single tokens over the whole text, in nats: what a model that knows frequencies only would reach. One
 * pass over the data. LOCAL */
weft_status weft_trainer_unigram_entropy(weft_trainer *t, double *nats);

/* The first `steps` steps of the run again, on one rank in this process; *worst: the largest difference to
 * losses[steps]. `progress` after every step. LOCAL */
weft_status weft_compare_one_rank(const weft_run *run, int threads, const weft_log *log, const double *losses,
                                  int64_t steps, double *worst, void (*progress)(void *ud, int64_t step), void *ud);
double weft_compare_limit(weft_prec prec);

/* ---- verification --------------------------------------------------------------------------------- */

typedef struct weft_finding { const char *name; double error, limit; } weft_finding;

typedef struct weft_report { /* rank 0 fills it; the others get the number of failures */
    weft_arena *arena;
    weft_finding *row;
    int n, capacity, failed;
    weft_text note;          /* lines for information */
    void (*stage)(const char *text); /* told what begins, as a long run shows where it is; or NULL */
} weft_report;
weft_status weft_report_add(weft_report *r, const char *name, double error, double limit);
/* LOCAL; only rank 0 of `weft` sets report.stage. */
void weft_report_stage(const weft_report *r, const char *text);
/* Rank 0's number of failures, on every rank. COLLECTIVE */
weft_status weft_report_share(weft_comm *comm, weft_report *r);

enum { WEFT_BENCH_REPEATS_MAX = 15 };
/* Puts x[n], n >= 1, into ascending order and gives the median, the upper of two. LOCAL */
double weft_sorted(double *x, int64_t n);

/* One attention layer, forward and backward, timed for `weft bench cp`. */
typedef enum weft_layer_against { /* with what it is compared; the order of --against */
    WEFT_AGAINST_NOTHING,
    WEFT_AGAINST_OWN,   /* each rank's queries, with all keys at hand, on that rank alone; all ranks at once */
    WEFT_AGAINST_WHOLE, /* all queries, on one rank: on as many ranks at once as there are cores */
} weft_layer_against;
typedef struct weft_layer_way { /* one way of MPI progress, or the only way of another transport */
    const char *name;
    double seconds, exposed, flight; /* medians over the repeats, of the slowest rank; flight: a transfer under way */
    double cpu, cpu_mean;            /* processor time: of the busiest rank, of all ranks on average */
    double alone, alone_cpu;         /* OWN: of the slowest rank; WHOLE: of one rank, mean of those that did it */
    /* OWN: time alone over time in the layer, of the rank where that is lowest, and of all ranks together; WHOLE: 0 */
    double share, share_mean;
    double cpu_share;  /* processor time: OWN: as share; WHOLE: (alone / ranks) over the layer's on the busiest rank */
    double steps;      /* OWN: seconds in kernels, step by step, over those in one piece, of all ranks */
} weft_layer_way;
typedef struct weft_layer_bench {
    int ways, repeats;
    weft_layer_way way[2];
    int64_t bytes, messages; /* of all ranks, per layer */
    size_t pool_bytes;       /* of the rank with most */
    double planned_seconds;  /* by the run's profile (weft_cp_cost_of); 0: it has none */
    weft_text plan;          /* the caller frees it */
} weft_layer_bench;
/* The made case of run->o->make on the ranks of the world; under MPI by callback and by helper thread in turn, or only
 * in the way that `progress` names (NULL: both). COLLECTIVE */
weft_status weft_bench_attention(weft_world *world, const weft_run *run, const char *progress,
                                 weft_layer_against against, weft_layer_bench *out);

/* What attention reaches on one rank, beside what its arithmetic units do in the same seconds. Shares and rates are of
 * the operations that visible pairs ask for: 2 (D + Dv) forward and 2 (3 D + 2 Dv) backward per pair and query head. */
enum { WEFT_BENCH_FORWARD, WEFT_BENCH_BACKWARD, WEFT_BENCH_BOTH, WEFT_BENCH_DIRECTIONS };
typedef struct weft_kernel_figures { /* medians over the repeats */
    double seconds, flops;           /* of one run; per second */
    double roof, share;              /* of all threads, measured before and after each run; 0: the kernel has none */
    double best;                     /* the fastest run as a share of the highest roof: what a busy machine leaves */
    double spread;                   /* between the quartiles of the times, relative to their median */
} weft_kernel_figures;
typedef struct weft_kernel_bench {
    weft_prec prec;
    bool measured[WEFT_BENCH_DIRECTIONS];
    weft_kernel_figures of[WEFT_BENCH_DIRECTIONS];
    const char *roof_name;  /* NULL: none */
    int repeats, threads;
    int64_t area;           /* visible pairs of one head, all rows of the batch */
    weft_text plan;         /* the caller frees it */
} weft_kernel_bench;
/* Refuses a text that weft_bench_kernels would refuse. LOCAL */
weft_status weft_bench_kernels_check(weft_ctx *ctx, const weft_run *run, const char *text);
/* `text`: as --make takes it, and the words fp64 fp32 bf16 fp16 and fwd bwd fwd+bwd. The world has one rank.
 * COLLECTIVE */
weft_status weft_bench_kernels(weft_world *world, const weft_run *run, const char *text, weft_kernel_bench *out);

/* n numbers of the size of 1 for a kernel to work on, the same 1021 again and again: what they are does not change the
 * time, denormals would. LOCAL */
weft_status weft_bench_numbers(weft_arena *arena, weft_dtype t, int64_t n, const char *label, void **out);

/* A matrix product on one rank, beside the arithmetic units likewise. */
typedef struct weft_product_case { weft_prec prec; weft_gemm_args args; } weft_product_case; /* without operands */
/* "bf16 M4096 N4096 K1024 nt sum": sizes are needed; prec unless the text says another; nn nt tn tt: which operand is
 * read transposed (nt, as a forward pass does); sum: adds to a result of the type of sums, as gradients of weights
 * are. Refuses other words. LOCAL, pure */
weft_status weft_product_of_text(weft_product_case *out, weft_prec prec, const char *text);
typedef struct weft_product_bench {
    int repeats, threads;
    const char *roof_name; /* NULL: none */
    weft_kernel_figures of;
} weft_product_bench;
/* Refuses matrices that this machine's memory has no room for, now. LOCAL */
weft_status weft_bench_product_check(const weft_product_case *product);
/* The world has one rank. COLLECTIVE */
weft_status weft_bench_product(weft_world *world, const weft_run *run, const weft_product_case *product,
                               weft_product_bench *out);

/* A training step on random tokens. Figures of steps are means over the steps that count, shares are of their time. */
typedef struct weft_step_bench {
    int ranks, threads;                  /* threads of each */
    bool crowded;                        /* more threads than processors */
    int64_t repeats, params, tokens;     /* steps that count; of the model; of the whole job in a step, each once */
    double planned_seconds;              /* by the model of time, when a profile was given; else 0 */
    weft_plan_time planned;
    double seconds, spread;              /* of the slowest rank of each step; between their quartiles, relative to it */
    int slowest;                         /* the rank that waited least for others */
    double part[WEFT_PARTS], mean[WEFT_PARTS]; /* seconds by part: of that rank, which add up to its step; of all */
    double flight, flight_most;          /* share with a transfer under way: of all ranks on average, at most */
    double exposed, exposed_most;        /* share that a rank stood still for one */
    double kernels;                      /* share in kernels: in all parts that are work */
    double flops, roof;                  /* of a step (weft_model_step_flops); per second, of all threads; 0: none */
    const char *roof_name;
    double imbalance, imbalance_time;    /* as in a weft_record */
    weft_bytes sent;                     /* by the rank that sent most, per step */
    weft_memory_report memory;
    double peak_bytes, file_bytes;       /* of the rank with most; file: of offloaded inputs */
    double loss;                         /* of the last step: nothing was optimised away */
    int64_t products;                    /* of one rank alone: of a step; */
    double products_alone;               /* seconds of the same products, in order, with nothing between them */
    weft_text plan;                      /* the caller frees it */
} weft_step_bench;
/* The model and batch of run->o, on the ranks of the world. Without run->o->bench_repeats ten steps, of which the last
 * five count. COLLECTIVE */
weft_status weft_bench_step_run(weft_world *world, const weft_run *run, weft_step_bench *out);

/* `weft attention CASE`: one attention problem, forward and backward, on the ranks of the world. COLLECTIVE */
weft_status weft_verify_attention(weft_world *world, const weft_run *run, const char *path, weft_report *report);
/* `weft verify DIR CASE`. COLLECTIVE */
weft_status weft_verify_model(weft_world *world, const weft_run *run, const char *dir, const char *path,
                              weft_report *report);

/* ---- generation ----------------------------------------------------------------------------------- */

typedef struct weft_sampling {
    double temperature, top_p;
    uint64_t seed;
    int64_t max_new, eos;
    void (*fed)(void *ud, int64_t done, int64_t n); /* told how much of a long prompt has been read; or NULL */
} weft_sampling;
/* Continues prompt[n]; `emit` gets every new token. Temperature 0: greedy. LOCAL */
weft_status weft_generate(weft_model *model, const weft_model_config *config, weft_prec prec, const int32_t *prompt,
                          int64_t n, const weft_sampling *s, void (*emit)(void *ud, int32_t token), void *ud);

/* ---- time lines of chosen steps -------------------------------------------------------------------------- */

/* Of the ranks of a list, ascending, for steps in `steps`; both are kept. Room for their events is made here, in the
 * trainer's arena. COLLECTIVE */
typedef struct weft_step_trace weft_step_trace;
weft_status weft_step_trace_open(weft_step_trace **out, weft_trainer *t, const int *ranks, int n,
                                 const weft_numbers *steps, int n_steps);
typedef struct weft_step_traced {
    bool written;             /* a step was recorded */
    weft_status file;         /* of rank 0: whether the file could be written; its message is the last error */
    weft_chrome_told told;    /* on rank 0 */
} weft_step_traced;
/* Around a step with all that follows it; s NULL, or another step: nothing happens. The file is complete when it has
 * its name. COLLECTIVE */
weft_status weft_step_trace_begin(weft_step_trace *s, int64_t step);
weft_status weft_step_trace_end(weft_step_trace *s, const char *path, weft_step_traced *out);
void weft_step_trace_close(weft_step_trace *s); /* before the trainer is destroyed; NULL is fine. LOCAL */

#endif
