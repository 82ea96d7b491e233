/* optim.h — the door of the room `optim`: reduce gradients, clip, update; learning-rate schedule. */
#ifndef WEFT_OPTIM_H
#define WEFT_OPTIM_H

#include "model/model.h"

typedef struct weft_optim_options {
    double lr, min_lr, beta1, beta2, eps, weight_decay, clip; /* clip 0: none */
    int64_t warmup_steps, decay_steps; /* linear warm-up, then cosine to min_lr at decay_steps; 0: constant */
} weft_optim_options;
weft_status weft_optim_check(const weft_optim_options *o);
double weft_lr_at(const weft_optim_options *o, int64_t step); /* step 0 is the first */

typedef struct weft_optim weft_optim;
weft_status weft_optim_create(weft_optim **out, weft_ctx *ctx, const weft_kern *kern, weft_prec prec,
                              const weft_spec *spec, int n, int64_t count, const weft_optim_options *o);
void weft_optim_destroy(weft_optim *o);
/* Sums gradients over dp x cp (COLLECTIVE), the same bits on every rank. */
weft_status weft_optim_reduce(weft_optim *o, weft_comm *dp_cp, void *gradients);
/* Norm of the reduced gradient, each parameter once (LOCAL: every rank holds all of it). */
double weft_optim_norm(const weft_optim *o, const void *gradients);
/* Clips by min(1, clip / (norm + 1e-6)) and updates; `step` counts from 1. LOCAL */
weft_status weft_optim_update(weft_optim *o, void *weights, const void *gradients, double norm, double lr,
                              int64_t step);
void *weft_optim_state(weft_optim *o, int which); /* (R) 0: first moment, 1: second */

#endif
