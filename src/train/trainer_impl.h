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
    /* all sequences of this rank's part of a step */
    int32_t *token, *target;  /* [accumulation][B][T] */
    int64_t *cu;              /* [accumulation][...] document offsets, packed per micro-batch */
    int64_t *first;           /* [accumulation][B+1] */
    double *area;             /* [accumulation] visible area of this rank, per micro-batch of the step */
    weft_pipeline *pipeline;
};

/* Reads micro-batch `a` (sequences first_sequence ...) into its place. LOCAL */
weft_status weft_trainer_load(weft_trainer *t, bool valid, int64_t a, int64_t first_sequence, weft_docs *docs);
/* Writes config.json and the weights into a folder that gets its name when it is complete. LOCAL */
weft_status weft_trainer_write(weft_trainer *t, const char *dir);

/* numerics.c, in the order of a step. Before its passes. LOCAL */
void weft__numerics_open(weft_numerics *n, const weft_run *run);
void weft__numerics_begin(weft_trainer *t, weft_record *r);
/* With r->loss of all ranks, after the sums of the gradients: fails, or sets r->skip when the guard or the loss says
 * so. COLLECTIVE over the world */
weft_status weft__numerics_judge(weft_trainer *t, weft_record *r);
/* With r->grad_norm: a norm that is not finite leaves the step out (dynamic loss scale). LOCAL, alike on all ranks */
weft_status weft__numerics_norm(weft_trainer *t, weft_record *r);

/* "step-00000012" or, of a run that was killed, "step-00000012.tmp-4711". LOCAL */
bool weft__is_checkpoint_name(const char *name);
/* ".tmp-4711" or ".tmp-4711-4712", which is where a name ends whose file was never complete. LOCAL */
bool weft__is_temporary_end(const char *text);
/* Refuses what is no folder, or holds anything but files of a checkpoint. LOCAL */
weft_status weft__check_checkpoint(const char *dir);
/* Removes the files and the folder; best after a check. LOCAL */
weft_status weft__remove_checkpoint(const char *dir);

#endif
