/* plan.h — the door of the room `plan`: what a run will need, before it runs. LOCAL; results depend on the arguments
 * alone. */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include "sched/sched.h"
#include "plan/show.h"

typedef struct weft_plan_state { /* bytes on one rank that stay from step to step; exact */
    int64_t weights;   /* masters, R                                       */
    int64_t copies;    /* matrices in C, when C is not R                   */
    int64_t gradients; /* R                                                */
    int64_t moments;   /* AdamW's two, R                                   */
} weft_plan_state;

/* Where a rank stands: its share of the model, and which of the ranks of dp x cp it is, which have the same share. */
typedef struct weft_plan_rank {
    weft_model_share share;
    int ranks, rank;
    int zero;          /* ZeRO stage: with 1 the moments are those of its slices */
} weft_plan_rank;
weft_plan_rank weft_plan_rank_of(const weft_mesh *mesh, bool sequence_parallel, int zero); /* LOCAL */
/* R is 8 bytes for fp64 and 4 otherwise. train false: no gradients, no moments. Refuses sizes that do not fit into 64
 * bits. LOCAL, pure */
weft_status weft_plan_state_bytes(const weft_model_config *config, weft_prec prec, const weft_plan_rank *rank,
                                  bool train, weft_plan_state *out);
int64_t weft_plan_state_total(const weft_plan_state *s);

/* ---- memory of a rank, by kind --------------------------------------------------------------------------- */

typedef enum weft_memory_kind {
    WEFT_MEMORY_WEIGHTS,     /* masters, and copies for products */
    WEFT_MEMORY_GRADIENTS,
    WEFT_MEMORY_MOMENTS,
    WEFT_MEMORY_ACTIVATIONS, /* what passes of layers leave behind */
    WEFT_MEMORY_ATTENTION,   /* of its plans: travelling blocks, sums, work of the kernels */
    WEFT_MEMORY_EXCHANGE,    /* of tp, stages of a pipeline, sums over ranks */
    WEFT_MEMORY_SCRATCH,     /* of backward passes, one layer's at a time */
    WEFT_MEMORY_LOGITS,
    WEFT_MEMORY_DATA,        /* tokens, positions, angles */
    WEFT_MEMORY_OFFLOADED,   /* inputs of layers in a pool of the host */
    WEFT_MEMORY_CHECKPOINT,  /* what a writer copies, so that training goes on; planned by weft_run_checkpoint_bytes */
    WEFT_MEMORY_PRODUCTS,    /* packed operands; and work of a library of products, of which nothing is planned */
    WEFT_MEMORY_TABLES,      /* all else, of which nothing is planned */
    WEFT_MEMORY_KINDS
} weft_memory_kind;
const char *weft_memory_name(weft_memory_kind kind); /* "activations" */
weft_memory_kind weft_memory_kind_of(const char *label); /* of an allocation in an account */

typedef struct weft_memory {
    int64_t bytes[WEFT_MEMORY_KINDS];
    int64_t file;            /* inputs of layers in a file: on a disk, and in no sum */
} weft_memory;
int64_t weft_memory_total(const weft_memory *m);
/* The peaks of an account's rows; file 0. LOCAL */
void weft_memory_count(const weft_mem *mem, weft_memory *out);

typedef struct weft_memory_ask {
    const weft_model_config *config;
    weft_model_options options; /* slots are ignored: they come from the schedule */
    weft_plan_rank at;
    int cp, cp_rank, threads;   /* cp_rank: within its group of cp; WEFT_CP_FULLEST: of the one that holds most */
    int64_t micros;             /* micro-batches of a step on a rank */
} weft_memory_ask;
/* What a trainer of this rank's place will hold. `any` is any communicator of this process. LOCAL */
weft_status weft_plan_memory(weft_memory *out, const weft_kern *kern, weft_comm *any, const weft_memory_ask *ask);

/* ---- time of a step ----------------------------------------------------------------------------------------- */

typedef struct weft_layout_choice { /* one way to lay a training step over ranks */
    int tp, cp, dp, pp;
    bool sequence_parallel;
    int zero;                  /* 0..3; Weft itself runs 0 and 1 */
    const char *strategy;      /* of weft_cp_names, or "auto" */
    int head_size;             /* 0: chosen */
    weft_layout cp_layout;
    int order;                 /* of ranks (weft_mesh_order_parse) */
    weft_recompute recompute;
    bool keep_attention, offload;
    bool fp8;                  /* products in fp8, of systems that have them; Weft's own exchange in fp8 is an option */
    int64_t micro_batch;
} weft_layout_choice;

/* Bytes of an element where systems differ that train the same model, and how much element-wise work they leave. */
typedef struct weft_plan_system {
    double stream;             /* of the residual stream: what travels between the stages of a pipeline */
    double tp_rows, tp_sums;   /* of gathered rows and of partial sums in tensor parallelism */
    double tp_piece;           /* bytes of sums that travel together in tensor parallelism; 0: all */
    double gradients, weights; /* of what is summed over ranks with the same weights, and of weights given back */
    double elements;           /* read and written element by element, as a share of what Weft does: some fuse more */
} weft_plan_system;
weft_plan_system weft_plan_system_weft(weft_prec prec); /* LOCAL, pure */

typedef struct weft_plan_ask { /* a training step, however it will be laid over ranks */
    const weft_model_config *config;
    weft_model_options options;  /* B, layout, cp.strategy, cp.head_size, recompute, keep_attention, slots are the
                                    choice's; offload says where to, when a choice offloads (none: to the host) */
    int64_t global_batch;        /* sequences of a step, of all ranks */
    int threads;                 /* of a rank */
    bool overlap_gradients;      /* sums of gradients travel while backward goes on */
    const int64_t *checkpoint;   /* [checkpoint_ranks] bytes that each rank of a job of so many keeps of checkpoints, */
    int checkpoint_ranks;        /* however it is laid out; 0: they lie elsewhere */
    const weft_plan_system *system; /* NULL: Weft itself */
    bool all_options;            /* Weft's are written with those that are defaults: a configuration says otherwise */
    /* what rules of other systems are about (target.h); nothing here changes memory or time */
    const weft_docs *docs;       /* packed into the sequences; NULL: one document each */
    bool padding;                /* sequences end in tokens that a mask hides */
    bool sinks;                  /* attention has learned sinks */
} weft_plan_ask;

/* Seconds in which the busiest rank does, or waits for, each of these; what is hidden behind something else counts as
 * nothing. They add up to the step. */
typedef enum weft_time_part {
    WEFT_TIME_PRODUCTS, WEFT_TIME_ATTENTION, WEFT_TIME_ELEMENTS,
    WEFT_TIME_LOSS,      /* cross-entropy, without the head's products */
    WEFT_TIME_OPTIMIZER,
    WEFT_TIME_RECOMPUTE, /* computing of the forward pass that the backward pass does again */
    WEFT_TIME_TP, WEFT_TIME_CP, WEFT_TIME_PP, WEFT_TIME_DP, /* standing still for exchanges */
    WEFT_TIME_BUBBLE,    /* of a pipeline: other stages compute, this one has nothing to do */
    WEFT_TIME_IMBALANCE, /* attention of the busiest rank of cp, over the mean */
    WEFT_TIME_OFFLOAD,
    WEFT_TIMES
} weft_time_part;
const char *weft_time_name(weft_time_part part); /* "products" */

typedef enum weft_plan_link { WEFT_LINK_TP, WEFT_LINK_CP, WEFT_LINK_PP, WEFT_LINK_DP, WEFT_LINKS } weft_plan_link;

typedef struct weft_plan_time {
    double seconds[WEFT_TIMES];
    double step;                 /* their sum */
    double bytes_node[WEFT_LINKS], bytes_link[WEFT_LINKS]; /* that a rank of the busiest stage sends in a step, inside
                                                               its node and out of it; of cp the mean over ranks */
    double moving[WEFT_LINKS];   /* seconds in which those are under way, hidden or not */
    double flops;                /* of the model, all ranks together (weft_model_step_flops) */
    int head_ranks;              /* U that cp.head_size 0 comes to */
    const char *strategy;        /* that "auto" comes to; "none" without heads on this rank */
} weft_plan_time;
/* docs/maths/plan.md derives it. Refuses what cannot run: strategies that are not applicable, a batch that does not
 * divide, more stages than layers, offloading or fp8 without rates. LOCAL, pure */
weft_status weft_plan_time_of(weft_plan_time *out, const weft_profile *profile, const weft_plan_ask *ask,
                              const weft_layout_choice *choice);
/* The options that a model of this choice is made with. LOCAL, pure */
weft_model_options weft_plan_options(const weft_plan_ask *ask, const weft_layout_choice *choice);
/* Micro-batches of a step on a rank; refuses a batch that they do not divide. LOCAL, pure */
weft_status weft_plan_micros(const weft_plan_ask *ask, const weft_layout_choice *choice, int64_t *out);

/* Of the rank that holds most, by weft_plan_memory. `any` is any communicator of this process. LOCAL */
weft_status weft_plan_most_memory(weft_memory *out, const weft_kern *kern, weft_comm *any, const weft_plan_ask *ask,
                                  const weft_layout_choice *choice);

/* ---- bytes that a rank sends in a step --------------------------------------------------------------------- */

typedef enum weft_bytes_kind { /* by the groups over which they go */
    WEFT_BYTES_TP,  /* rows and partial sums of layers, statistics of the loss, gradients that tp adds up */
    WEFT_BYTES_CP,  /* keys, values and their gradients */
    WEFT_BYTES_PP,  /* rows between stages, a tied embedding on both ends */
    WEFT_BYTES_DP,  /* sums of gradients, and weights that others updated: over dp x cp */
    WEFT_BYTES_ALL, /* numbers that all ranks share: the norm, imbalance */
    WEFT_BYTES_KINDS
} weft_bytes_kind;
typedef struct weft_bytes { int64_t of[WEFT_BYTES_KINDS]; } weft_bytes;
const char *weft_bytes_name(weft_bytes_kind kind); /* "tp" */
int64_t weft_bytes_total(const weft_bytes *b);
/* What this rank has sent so far over the groups of its mesh, as counted. LOCAL */
void weft_bytes_count(const weft_mesh *mesh, weft_bytes *out);

typedef struct weft_bytes_micro {  /* a micro-batch as whole sequences */
    const weft_docs *docs;         /* NULL: a document a sequence */
    const int32_t *target;         /* [B*T]; negative: no label; NULL: all have one */
} weft_bytes_micro;

typedef struct weft_bytes_ask {
    const weft_model_config *config;
    weft_model_options options;    /* slots are ignored */
    weft_mesh_shape size, at;      /* of the mesh; this rank */
    bool sequence_parallel, guard; /* guard: the numerics guard is not off */
    int zero;
    int64_t micros;                /* micro-batches of a step on a rank */
    const weft_bytes_micro *micro; /* [micros]; NULL: all alike, a document a sequence, every token with a label */
} weft_bytes_ask;
/* What a step of the trainer that is not left out makes this rank send: to the byte what weft_bytes_count counts.
 * It is what a run is checked by, follows Weft's own code and walks through every segment of a micro-batch. Plans ask
 * weft_plan_time_of instead: of any system's layout, among thousands, in formulas of the mean rank; without the few
 * numbers that ranks share. Where work divides evenly both say the same of tp, cp, pp and dp, which a test holds.
 * `any` is any communicator of this process. LOCAL */
weft_status weft_plan_bytes(weft_bytes *out, const weft_kern *kern, weft_comm *any, const weft_bytes_ask *ask);

/* ---- the simulator ---------------------------------------------------------------------------------- */

typedef struct weft_sim_disturb { /* what is not as it should be; zeros: nothing */
    const double *kernels;        /* [ranks] factor by which a rank's kernels take longer; NULL: none do */
    const weft_sim_slow_link *link;
    int links;
    double node, net;             /* factor of the bytes on all links inside nodes, between them; 0: 1 */
    double jitter;                /* every kernel takes longer by a share of its time, drawn from 0 to this */
    uint64_t seed;
} weft_sim_disturb;
/* "3:1.5,8-15:1.2": kernels of rank 3, of ranks 8 to 15. "2-3:4,5:2,node:2,net:2": the link between ranks 2 and 3, all
 * of rank 5, all inside nodes, all between them. NULL: none. The arrays are the arena's. LOCAL */
weft_status weft_sim_disturb_parse(weft_sim_disturb *out, weft_arena *arena, const char *ranks_text,
                                   const char *links_text, int ranks, bool one_node);
/* As words: "kernels of rank 3 x1.5; link 2-3 x4; jitter 0.1". LOCAL, pure */
void weft_sim_disturb_text(const weft_sim_disturb *d, int ranks, weft_text *out);

typedef struct weft_sim_ask { /* attention, layer after layer, forward and then backward, on simulated ranks */
    weft_cp_problem problem;      /* slots are ignored: there is one micro-batch */
    weft_cp_options options;      /* profile NULL: weft_profile_default; its rates are charged */
    const weft_docs *docs;        /* of every row of keys; NULL: one document per row */
    int cp, groups;               /* ranks that share each sequence; such groups side by side */
    bool interleaved;             /* group g is ranks g, g + groups, ...; else neighbours */
    bool needs_poll;              /* transfers begin only when both ranks look (weft_sim_model) */
    int layers;
    weft_sim_disturb disturb;
    const int *traced;            /* [n_traced] ranks whose events go to `trace`, a whole Chrome trace */
    int n_traced;
    weft_text *trace;
} weft_sim_ask;

typedef struct weft_sim_rank_result { /* of one rank, all layers */
    double forward_seconds, backward_seconds; /* from the common start to its end; from there to its end */
    double compute_seconds;       /* charged by kernels */
    double exposed_seconds, flight_seconds;   /* as counted by comm, with those of the whole call */
    int64_t forward_bytes, backward_bytes, forward_messages, backward_messages; /* sent, as counted by comm */
    weft_cp_traffic planned;      /* of one layer */
    double memory_bytes;          /* of the plan's buffers, and what is kept for backward */
} weft_sim_rank_result;

typedef struct weft_sim_result {
    int ranks;
    weft_sim_rank_result *rank;   /* [ranks] */
    weft_text plan;               /* of rank 0, as it describes itself */
    double forward_seconds, backward_seconds; /* until the last rank had done it */
    weft_chrome_told trace;       /* of the trace that was asked for */
} weft_sim_result;

/* The real context-parallel code over the simulated transport (weft_run_sim), with kernels that charge time. Refuses
 * what planning refuses. Buffers have no memory, so any size is fine that fits into addresses. LOCAL */
weft_status weft_simulate(weft_sim_result *out, const weft_sim_ask *ask);
void weft_sim_result_free(weft_sim_result *r);
/* What a profile says of the network, for weft_run_sim. LOCAL, pure */
weft_sim_model weft_sim_model_of(const weft_profile *profile);

/* The search for layouts, and the systems that it can be made for. */
typedef struct weft_target weft_target;
#include "plan/search.h"
#include "plan/target.h"

#endif
