/* pipeline.h — a step's micro-batches through the stages of the model: the execution of a list of `sched`. */
#ifndef WEFT_TRAIN_PIPELINE_H
#define WEFT_TRAIN_PIPELINE_H

#include "sched/sched.h"
#include "train/train.h"

typedef struct weft_batch { /* a micro-batch as whole sequences */
    const int32_t *token, *target; /* [B*T] */
    weft_docs docs;
    int64_t sequence;              /* its first sequence within the step: dropout's address */
} weft_batch;

typedef struct weft_pipeline_job {
    int64_t sequences, B;          /* B to a micro-batch; the last one has what is left */
    bool backward;                 /* otherwise forward passes only */
    double grad_scale;
    /* Micro-batch `micro`, on every stage, just before its forward pass; what it points to must stay until the end. */
    weft_status (*batch)(void *ud, int64_t micro, weft_batch *out);
    /* Told after a forward pass, on every stage: e->slot[slot] is cut for it, token_nll holds its own. Or NULL */
    void (*done)(void *ud, int64_t micro, int slot);
    /* Told by the thread that computes, when a layer of a pass begins (layer L: the head), and before waiting for
     * another stage (layer -1). Work of a micro-batch of B sequences, as weft_model_pass_work counts it: done, of the
     * whole list; ahead, of what begins. Or NULL */
    void (*at)(void *ud, const weft_sched_op *op, int64_t layer, double done, double ahead);
    void *ud;
    void *token_nll;               /* (R) [rows of this rank at most]: of the forward pass that ran last, or NULL */
    weft_optim *optim;             /* begins its sums during the last backward pass; or NULL */
} weft_pipeline_job;

typedef struct weft_pipeline weft_pipeline;

/* Buffers for what travels and room for a list of `micros` micro-batches, in the engine's arena. LOCAL */
weft_status weft_pipeline_create(weft_pipeline **out, weft_engine *engine, int64_t micros);
/* Runs the list of this rank's stage; a longer one than there is room for allocates. *nll: the sum over this rank's
 * valid tokens; the same on all stages. COLLECTIVE over tp x cp x pp */
weft_status weft_pipeline_run(weft_pipeline *p, const weft_pipeline_job *job, double *nll);

#endif
