/* trainer_impl.h — what the files of the trainer share. */
#ifndef WEFT_TRAINER_IMPL_H
#define WEFT_TRAINER_IMPL_H

#include "train/pipeline.h"

typedef struct weft_numerics { /* what decides whether a step is taken; with the step, all of it is state of the run */
    weft_scaler scaler;
    weft_spike spike;
    int64_t updates;          /* steps taken: AdamW counts them */
    int64_t skips;            /* steps left out, but those without labels */
} weft_numerics;

typedef struct weft__watch { /* who is told where a step is */
    weft_step_watch call;     /* NULL: nobody */
    void *ud;
    double passes, all;       /* work of a step on this rank (weft_model_pass_work) */
} weft__watch;

struct weft_trainer {
    weft_ctx *ctx;
    weft_world *world;
    const weft_run *run;
    weft_model_config config;
    weft_arena *arena;
    weft_tokens *tokens;
    weft_batches *batches;
    weft_engine engine;
    weft_optim *optim;
    weft_optim_options optim_options;
    int64_t accumulation;     /* micro-batches per step and rank */
    int64_t max_docs;         /* of one sequence */
    int64_t step;             /* steps done, taken or left out */
    weft_numerics numerics;
    weft_train_state state;   /* where it stands besides; its step and data are filled in when it is saved */
    bool data_known;          /* the checksum of the data is in `state` */
    weft_ckpt_writer *writer; /* of checkpoints, from the first one on; or NULL */
    /* all sequences of this rank's part of a step */
    int32_t *token, *target;  /* [accumulation][B][T] */
    int64_t *cu;              /* [accumulation][...] document offsets, packed per micro-batch */
    int64_t *first;           /* [accumulation][B+1] */
    double *area;             /* [accumulation] visible area of this rank, per micro-batch of the step */
    weft_bytes sent;          /* in the last step */
    bool taken;               /* the last step was */
    double seconds;           /* of it */
    weft_pipeline *pipeline;
    weft__watch watch;
};

/* Reads micro-batch `a` (sequences first_sequence ...) into its place. LOCAL */
weft_status weft_trainer_load(weft_trainer *t, bool valid, int64_t a, int64_t first_sequence, weft_docs *docs);

/* numerics.c, in the order of a step. Before its passes. LOCAL */
void weft__numerics_open(weft_numerics *n, const weft_run *run);
void weft__numerics_begin(weft_trainer *t, weft_record *r);
/* With r->loss of all ranks, after the sums of the gradients: fails, or sets r->skip when the guard or the loss says
 * so. COLLECTIVE over the world */
weft_status weft__numerics_judge(weft_trainer *t, weft_record *r);
/* With r->grad_norm: a norm that is not finite leaves the step out (dynamic loss scale). LOCAL, alike on all ranks */
weft_status weft__numerics_norm(weft_trainer *t, weft_record *r);

/* memory.c: what the ranks of an engine hold, beside what is planned for such a run. COLLECTIVE over the world */
typedef struct weft__memory_of {
    const weft_engine *engine;
    int64_t max_docs, micros; /* documents of a micro-batch at most; micro-batches of a step on a rank */
    bool train, saves;        /* saves: keeps memory for checkpoints */
} weft__memory_of;
weft_status weft__memory_report(const weft__memory_of *x, weft_memory_report *out);

/* step.c: micro-batch `a` of the step, as it was read (`ud` is the trainer). LOCAL */
weft_status weft__batch_of_step(void *ud, int64_t a, weft_batch *out);

/* plan_check.c: seconds of a step of this engine by the model of time, with its parts; 0 without a profile. LOCAL */
double weft__plan_seconds(const weft_engine *e, int64_t max_docs, int64_t micros, weft_plan_time *time);

/* imbalance.c: the largest over the mean of what the ranks spent in attention kernels in a step, *in_time, and of the
 * visible area times the layers and heads that saw it, *in_area. area[micros]: this rank's, by micro-batch; used up.
 * *visible: the pairs of all sequences of the job. COLLECTIVE over the world */
weft_status weft__imbalance(const weft_engine *e, double *area, int64_t micros, double seconds, double *in_area,
                            double *in_time, double *visible);

/* watch.c: that a phase other than the passes begins; that a layer does, or a wait, as the `at` of a weft_pipeline_job;
 * that the step is over. LOCAL */
void weft__watch_at(const weft_trainer *t, weft_step_phase phase);
void weft__watch_pass(void *ud, const weft_sched_op *op, int64_t layer, double done, double ahead);
void weft__watch_end(const weft_trainer *t);

/* What a checkpoint calls its arrays beside the weights. */
#define WEFT__MOMENT_1 "exp_avg."
#define WEFT__MOMENT_2 "exp_avg_sq."
#define WEFT__MASTER "master."
/* The checksum of the data, in t->state: a pass over the file, the first time. LOCAL */
void weft__know_data(weft_trainer *t);
/* This rank's slices of a moment (0 first, 1 second), which live in the optimizer. LOCAL */
void weft__moments(weft_trainer *t, int which, weft_held *out);

#endif
