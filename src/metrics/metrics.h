/* metrics.h — the door of the room `metrics`: one record per step; the line, the JSONL, the table. */
#ifndef WEFT_METRICS_H
#define WEFT_METRICS_H

#include "ckpt/ckpt.h"

typedef enum weft_skip {
    WEFT_SKIP_NOT,
    WEFT_SKIP_LABELS,   /* no token has a label */
    WEFT_SKIP_OVERFLOW, /* gradients overflowed at this loss scale */
    WEFT_SKIP_GUARD,    /* the numerics guard found something, and skips */
    WEFT_SKIP_SPIKE,    /* the loss jumped, and spikes are skipped */
    WEFT_SKIPS
} weft_skip;
const char *weft_skip_name(weft_skip skip); /* "overflow" */

typedef struct weft_record {
    int64_t step, steps;          /* 1-based */
    double loss, grad_norm, lr;
    double seconds;               /* of this step */
    int64_t tokens;               /* of the whole job in this step (never divided by cp) */
    int64_t valid_tokens;
    double comm_share, exposed_share; /* time with a transfer in flight / blocked on one, over the step's */
    double idle_share;                /* of the time of this rank's processors: what no thread of it used */
    double reduce_exposed_share;      /* blocked on sums of gradients or on weights of other ranks */
    int64_t bytes_logical, messages;  /* of this rank */
    double memory_bytes;          /* held by Weft on this rank, peak */
    double resident_bytes;        /* of the process */
    double imbalance;             /* visible area of the busiest rank of every micro-batch, over the mean of all
                                     ranks */
    double imbalance_time;        /* max / mean seconds in attention kernels over all ranks */
    double eta_seconds;
    weft_skip skip;               /* why the step was left out, on all ranks alike */
    int64_t skips;                /* steps left out so far, but those without labels */
    double loss_scale;            /* of this step; 1: none */
    int64_t guard_ranks;          /* ranks whose numerics guard found something in this step */
    double loss_zscore;           /* how far the loss lies above its running mean, in standard deviations; 0: unknown */
    bool spike;                   /* further than it should */
    int64_t ranks;                /* of the job, for the figure per rank; 0: left out */
    double flops;                 /* of the model in this step, of the job (weft_model_step_flops); 0: not known */
    double mfu;                   /* them per second, over what the ranks' products could do; 0: not known */
    const char *plan;             /* of the step that is compared with its plan: both sides as a JSON object; or NULL */
} weft_record;

/* Jumps of the loss: its distance above a running mean, in running standard deviations. */
typedef struct weft_spike {
    double zscore;          /* further is a spike; 0: none is */
    int64_t window, warmup; /* steps that the running numbers remember; steps before the first can be a spike */
    int64_t seen;           /* steps taken in: with mean and variance the state to go on from */
    double mean, variance;
} weft_spike;
/* Whether the step's loss is a spike; *z: its score, 0 as long as it is unknown. Then takes the loss in, a spike as the
 * least loss that would be one: so a single spike leaves hardly a trace, and a new level is the new normal after a few
 * steps. A loss that is not finite is a spike of infinite score and is not taken in. LOCAL, pure in *s */
bool weft_spike_step(weft_spike *s, double loss, double *z);

/* Figures of a step as lights; a figure that is no number is bad. LOCAL, pure */
typedef enum weft_light { WEFT_LIGHT_OK, WEFT_LIGHT_LOOK, WEFT_LIGHT_BAD } weft_light;
typedef enum weft_light_kind {
    WEFT_LIGHT_COMMUNICATION, /* share of the step with a transfer in flight */
    WEFT_LIGHT_UTILISATION,   /* share of the step in kernels */
    WEFT_LIGHT_MEMORY,        /* of the rank that holds most over the mean, less 1 */
    WEFT_LIGHTS
} weft_light_kind;
weft_light weft_light_of(weft_light_kind kind, double x);
const char *weft_light_name(weft_light_kind kind); /* "communication" */
const char *weft_light_word(weft_light light);     /* "ok", "look", "bad" */
/* Fine up to `fine`, bad past `bad`; of utilisation, which should be large, down to. */
void weft_light_limits(weft_light_kind kind, double *fine, double *bad);

typedef enum weft_step_phase {
    WEFT_STEP_DATA,      /* reads its sequences */
    WEFT_STEP_FORWARD,   /* one layer, or final norm, head and loss */
    WEFT_STEP_BACKWARD,
    WEFT_STEP_WAIT,      /* for another stage of the pipeline */
    WEFT_STEP_GRADIENTS, /* sums of gradients that did not travel during the passes */
    WEFT_STEP_OPTIMIZER,
    WEFT_STEP_PHASES
} weft_step_phase;

/* Where a rank is within a step. */
typedef struct weft_step_at {
    int64_t step, steps;   /* 1-based, as what follows; 0: none */
    weft_step_phase phase;
    int64_t micro, micros; /* micro-batch of the step on this rank */
    int64_t layer, layers; /* of the whole model; layers + 1: final norm, head and loss */
    double done, next;     /* share of this rank's work in the step that is over, and that will be when what it does
                              now is: 0 to 1, never less than before */
} weft_step_at;
/* "backward layer 3/12 | micro-batch 1/4" */
void weft_step_at_text(const weft_step_at *at, weft_text *out);

/* Tokens per second of the whole job: every token counts once, whatever cp is. 0 when the time is unknown. */
double weft_record_throughput(const weft_record *r);

/* "step   120/2000 | loss 3.4412 | gnorm 0.91 | 18,204 tok/s | eta 0:41:07 | lr 2.90e-04 | comm 7% (2% exposed) | mem
 * ..." */
void weft_record_line(const weft_record *r, weft_text *out);

/* One object per line, at once in the file; values that are not finite become null + "nonfinite":["loss"]. An existing
 * file is continued (a resumed run), after its last whole line. A line that cannot be written leaves nothing of itself,
 * and a later one may succeed. */
typedef struct weft_jsonl weft_jsonl;
weft_status weft_jsonl_open(weft_jsonl **out, const char *path);
weft_status weft_jsonl_write(weft_jsonl *j, const weft_record *r);
/* Whether the file was moved or removed since it was opened: lines still go to it, and nobody finds them. */
bool weft_jsonl_lost(const weft_jsonl *j);
void weft_jsonl_close(weft_jsonl *j);

/* Numbers of steps in TensorBoard's form, in a new file of a folder, which is made. after: steps that were done before;
 * from the next one on readers forget what earlier files of the folder have. wall: seconds since 1970. A record that
 * cannot be written leaves nothing of itself. LOCAL */
typedef struct weft_tensorboard weft_tensorboard;
typedef struct weft_tensorboard_value { const char *tag; double value; } weft_tensorboard_value; /* "train/loss" */
weft_status weft_tensorboard_open(weft_tensorboard **out, const char *dir, double wall, int64_t after);
weft_status weft_tensorboard_write(weft_tensorboard *t, double wall, int64_t step, const weft_tensorboard_value *v,
                                   int n);
void weft_tensorboard_close(weft_tensorboard *t); /* NULL is fine */
bool weft_tensorboard_is_name(const char *name);  /* of such a file */

/* The live line: written over in place on a terminal (at most ten times a second), plain lines elsewhere (at
 * most one a second). The first step, the last, and steps that are skipped or not finite are always shown
 * and stay. `write` gets the bytes; nothing else is printed.
 *
 * A step that takes long shows how far it is, below the line of the step before, which stays then: on a terminal from
 * WEFT_INSIDE_AFTER seconds after the last line on, once a second; elsewhere one line in WEFT_INSIDE_EVERY seconds, so
 * that a log of short steps is as it would be without. */
enum { WEFT_INSIDE_AFTER = 10, WEFT_INSIDE_EVERY = 600 };
typedef struct weft_progress_line {
    void (*write)(void *ud, const char *text, size_t n);
    void *ud;
    int width;              /* columns */
    bool terminal, colour;
    bool open;              /* a line is on the screen, without its end */
    bool inside;            /* and tells of a step that is not over */
    double shown_at;
} weft_progress_line;
/* width <= 0: 80. Colour is used on a terminal only. */
void weft_progress_init(weft_progress_line *p, void (*write)(void *ud, const char *text, size_t n), void *ud, int width,
                        bool terminal, bool colour);
void weft_progress_step(weft_progress_line *p, double now, const weft_record *r); /* now: seconds, any origin */
typedef struct weft_inside { /* times as `now` below */
    weft_step_at at;
    double begun, since;    /* the step; what it does now */
    double before;          /* seconds of the step before; 0: unknown */
} weft_inside;
/* To be called about once a second while a step goes on: shows what is due. */
void weft_progress_inside(weft_progress_line *p, double now, const weft_inside *x);
void weft_progress_note(weft_progress_line *p, const char *text); /* a line of its own: the live line makes way */
void weft_progress_done(weft_progress_line *p);                   /* ends an open line; call it before leaving */

/* Events of ranks as a Chrome trace (JSON; Perfetto and chrome://tracing open it): a process per rank, a row for each
 * kind of work, arrows from each message's start to its arrival. Times are microseconds since the rank's `origin`, a
 * time of its clock. */
typedef struct weft_chrome_rank {
    int rank;
    double origin;
    const weft_trace *trace;
} weft_chrome_rank;
typedef struct weft_chrome_told { /* what is not in the text */
    int64_t lost;       /* events that found no room in a ring; of all ranks */
    int64_t unpaired;   /* ends of messages between these ranks without an arrow: the other was lost, or clocks
                           differ */
} weft_chrome_told;
/* note: what a reader must know, or NULL. LOCAL */
weft_status weft_chrome_write(weft_text *out, const weft_chrome_rank *ranks, int n, const char *note,
                              weft_chrome_told *told);

double weft_resident_bytes(void); /* VmRSS of this process; 0 when unknown */
double weft_resident_peak_bytes(void); /* VmHWM: the most since it was started */

#endif
