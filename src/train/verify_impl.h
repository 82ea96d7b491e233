/* verify_impl.h — what the files of verification share. */
#ifndef WEFT_VERIFY_IMPL_H
#define WEFT_VERIFY_IMPL_H

#include "train/pipeline.h"

typedef struct weft_case { /* tokens and targets of a case file, whole */
    const weft_st *file;
    int64_t B, T, valid;
    int32_t *token, *target; /* [B*T] */
    weft_docs docs;          /* the same offsets in every row */
} weft_case;
weft_status weft_case_read(weft_case *c, const weft_st *f, int64_t V, weft_arena *arena);

typedef struct weft_checker { /* a model that is run on a case */
    const weft_case *c;
    const weft_run *run;
    weft_engine e;
    weft_pipeline *pipeline;
    weft_optim *optim;     /* sums what a run leaves; NULL: nobody does */
    const weft_spec *spec; /* [n] of this rank */
    int n;
    weft_spec *whole;      /* [n_whole] of the model */
    int n_whole;
    int64_t micro_batch;   /* sequences to a forward pass */
    double scale;    /* of the loss whose gradients are taken */
    double loss;
    void *token_nll; /* (R) [B*T], of all ranks */
    void *mine;      /* (R) [rows of this rank] */
    const char *gradients; /* (R) as `whole` lays them out; rank 0's are, after weft_checker_gradients */
} weft_checker;
weft_status weft_checker_open(weft_checker *k, weft_world *world, const weft_run *run, const char *dir,
                              const weft_model_config *config, const weft_case *c);
/* Loss, nll per token, gradients (their sums over ranks have begun at most). COLLECTIVE */
weft_status weft_checker_run(weft_checker *k);
/* After the sums: makes them whole. COLLECTIVE */
weft_status weft_checker_gradients(weft_checker *k);

typedef struct weft_trajectory { /* trajectory.json beside a case; steps 0 when there is none */
    int64_t steps;
    double *loss, *norm;
    weft_optim_options options;
    weft_glance file;
} weft_trajectory;
weft_status weft_trajectory_read(weft_trajectory *t, weft_arena *arena, const char *case_path);

/* Document offsets inside a row, the same for all B rows; one document when the file has none. */
weft_status weft_read_cu_seqlens(const weft_st *f, weft_arena *arena, int64_t B, int64_t T, weft_docs *docs);

#endif
