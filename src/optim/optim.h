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

/* ---- loss scaling for fp16 --------------------------------------------------------------------------- */

/* Gradients are taken of scale x loss, so that small ones do not vanish in 16 bits. A step whose norm is not finite is
 * left out by all ranks alike and halves the scale; `interval` good steps in a row double it. */
typedef struct weft_scaler {
    double scale, least, most; /* powers of two */
    int64_t interval, good;    /* good: steps since the scale last changed */
    int64_t skipped;           /* steps that were left out so far */
} weft_scaler;
weft_scaler weft_scaler_start(double scale, int64_t interval); /* scale 0: the usual start, 65536 */
/* After a step: whether its norm was finite. Returns whether the step is to be taken. LOCAL, pure in *s */
bool weft_scaler_update(weft_scaler *s, bool finite);

#endif
