/* optim.h — the door of the room `optim`: gradients summed over ranks while backward goes on, one norm, clipping,
 * AdamW on this rank's slice of the weights, loss scaling; the learning-rate schedule.
 *
 * The array of weights is cut into the ranges that the model announces as ready (its buckets). With ZeRO stage 1 every
 * rank of dp x cp owns a slice of each bucket: it gets the sum of its slice (reduce-scatter), holds the moments for it,
 * updates it, and gives it to the others (all-gather). With stage 0 every rank gets all sums and updates everything.
 * An element's sum is taken in the order of the ranks, whoever owns it: so both stages give the same bits, and copies
 * of a parameter on other ranks of tp and pp never drift apart. */
#ifndef WEFT_OPTIM_H
#define WEFT_OPTIM_H

#include "model/model.h"

typedef struct weft_optim_options {
    double lr, min_lr, beta1, beta2, eps, weight_decay, clip; /* clip 0: none */
    int64_t warmup_steps, decay_steps; /* linear warm-up, then cosine to min_lr at decay_steps; 0: constant */
    int zero;                          /* ZeRO stage: 0 or 1 */
    bool overlap;                      /* sums travel while backward goes on; no bit changes */
} weft_optim_options;
weft_status weft_optim_check(const weft_optim_options *o);
double weft_lr_at(const weft_optim_options *o, int64_t step); /* step 0 is the first */

typedef struct weft_optim weft_optim;

/* What the optimizer works on: the array of the model on this rank, and the groups of the mesh. */
typedef struct weft_optim_parts {
    weft_prec prec;
    const weft_spec *spec;     /* [n] the table of the array, by offset; must outlive the optimizer */
    int n;
    int64_t count;             /* elements of the array */
    void *weights, *gradients; /* (R) */
    const int64_t *bucket;     /* [buckets + 1] ascending bounds, 0 to count, of the ranges that the model announces */
    int buckets;
    const weft_mesh *mesh;     /* dp_cp: gradients; tp: WEFT_SUM_TP and _SHARED; ends: tied ends; all: the norm. NULL:
                                  one rank */
} weft_optim_parts;

/* What sums travel through: work memory of the stream over dp x cp, with more than one rank; elements that are added
 * over tp at a time. `largest` bucket, and all elements that tp sums, of `size` bytes. LOCAL, pure */
typedef struct weft_optim_room { size_t stream_bytes; int64_t pack_count; } weft_optim_room;
weft_optim_room weft_optim_room_of(int64_t largest, int64_t summed, size_t size);
/* COLLECTIVE over the world. */
weft_status weft_optim_create(weft_optim **out, weft_ctx *ctx, const weft_kern *kern, const weft_optim_parts *parts,
                              const weft_optim_options *o);
/* With sums under way the world ends (weft_stream_destroy): call weft_optim_reduce before an error that all ranks
 * share is returned. LOCAL */
void weft_optim_destroy(weft_optim *o);

/* A range of the gradient array is final for this step: its sum over ranks begins, and goes on in every look at the
 * world (weft_progress, any wait). Ranges come in the order in which weft_model_backward announces them, from the end
 * to the beginning. The form of weft_grad_ready, ud = the optimizer. What fails shows in weft_optim_reduce. COLLECTIVE
 * over tp, whose sums are waited for */
void weft_optim_ready(void *optim, int64_t offset, int64_t count);
/* Begins what has not begun and waits for all of it: afterwards the sums of this rank's slices are in the gradient
 * array, with stage 0 those of all. The same bits with and without overlap. COLLECTIVE over the world */
weft_status weft_optim_reduce(weft_optim *o);
/* After weft_optim_reduce: the sums of all slices, as with stage 0. COLLECTIVE over dp x cp */
weft_status weft_optim_gather_gradients(weft_optim *o);
/* Norm of the sums, each parameter of the model once, divided by `scale`; not finite when any is not. The same bits on
 * every rank. COLLECTIVE over the world */
weft_status weft_optim_norm(weft_optim *o, double scale, double *norm);
/* Clips by min(1, clip / (norm + 1e-6)), divides by `scale`, and updates this rank's slices; the weights of all slices
 * are then on all ranks. `step` counts from 1. Refuses a norm that is not finite, with the first gradient that spoils
 * it, before any weight is changed. COLLECTIVE over the world */
weft_status weft_optim_update(weft_optim *o, double norm, double scale, double lr, int64_t step);
/* This rank's slices of the moments (R): which 0 first, 1 second; pieces in ascending order, each inside a tensor. They
 * live in the optimizer. With stage 0 all of the array. LOCAL */
const weft_piece *weft_optim_state(const weft_optim *o, int which, int *n);
/* Bytes that one step's sums and weights make a rank send: over tp, over the ends of a pipeline, over dp x cp. What
 * weft_optim_norm shares is 8 bytes of an all-reduce over all ranks beside it. LOCAL, pure */
typedef struct weft_optim_share {
    const weft_spec *spec;     /* as in weft_optim_parts, and so the next three */
    int n;
    const int64_t *bucket;
    int buckets;
    size_t size;               /* of an element of R */
    int ranks, rank;           /* of dp x cp */
    int tps, tp;
    int end;                   /* 0: the first stage of several, 1: the last; -1: neither */
} weft_optim_share;
typedef struct weft_optim_bytes { int64_t tp, ends, dp; } weft_optim_bytes;
weft_optim_bytes weft_optim_bytes_of(const weft_optim_share *share);
/* Seconds so far with sums or weights under way, and those in which this rank waited for them. LOCAL */
void weft_optim_seconds(const weft_optim *o, double *under_way, double *waited);

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
