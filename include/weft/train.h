/* weft/train.h — the trainer is an opaque machine: it owns the model, the optimizer, the place in the data.
 *
 * The boundary: the caller says what to train by options as text, drives steps, and reads reports; nothing
 * here exposes a tensor, prints, or ends the program. Options are those of the program `weft train`, by the
 * same keys ("optim.lr"); they are the run's whole description.
 *
 *   weft_train_options_create(&o);
 *   weft_train_options_set(o, "data.path", "text.txt"); weft_train_options_set(o, "parallel.cp", "4");
 *   in every rank of a group of four:
 *     weft_train_create(&t, group, o);
 *     for (…) weft_train_step(t, &report);
 *     weft_train_save(t, "model"); weft_train_destroy(t);
 *
 * COLLECTIVE functions are called by every rank of the group in the same order. */
#ifndef WEFT_TRAIN_API_H
#define WEFT_TRAIN_API_H

#include "weft/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- options: filled before the ranks start, then only read (by all of them, if they are threads) -------- */

typedef struct weft_train_options weft_train_options;
/* Every option at its default. LOCAL */
WEFT_API weft_status weft_train_options_create(weft_train_options **out);
WEFT_API void weft_train_options_destroy(weft_train_options *options); /* NULL is fine. LOCAL */
/* key: "optim.lr", or the flag's name, "lr". An unknown key or a value that is not possible is refused, with
 * the nearest key or the values that are. LOCAL */
WEFT_API weft_status weft_train_options_set(weft_train_options *options, const char *key, const char *value);
/* A YAML file of options, as `weft train FILE` takes it; what was set by weft_train_options_set stays. LOCAL */
WEFT_API weft_status weft_train_options_file(weft_train_options *options, const char *path);
/* All options as YAML that reads back to the same values, cut to `size` bytes with the closing NUL; returns the bytes
 * that the whole text needs. LOCAL */
WEFT_API size_t weft_train_options_text(const weft_train_options *options, char *text, size_t size);

/* ---- training -------------------------------------------------------------------------------------------- */

typedef struct weft_train weft_train;

/* Opens data, model and optimizer; with run.resume, goes on from that checkpoint (a path), whatever layout wrote it.
 * The group has parallel.cp x parallel.dp ranks; other sizes, and what is not
 * possible, are refused on every rank. Options and group must outlive the trainer. COLLECTIVE */
WEFT_API weft_status weft_train_create(weft_train **out, weft_group *group, const weft_train_options *options);
WEFT_API void weft_train_destroy(weft_train *train); /* NULL is fine. LOCAL */

typedef struct weft_train_report {
    size_t size;             /* set by weft_train_report_init */
    int64_t step;            /* 1 for the first */
    double loss;             /* nats per valid token, before the update */
    double grad_norm;        /* before clipping */
    double lr;
    double seconds;
    int64_t tokens;          /* of the whole job */
    int64_t valid_tokens;    /* those with a label */
    double comm_share;       /* time with a transfer in flight / seconds, of this rank, as the three below */
    double exposed_share;    /* time blocked on a transfer / seconds */
    int64_t bytes_logical;   /* payload that peers got from this rank */
    double memory_bytes;     /* that Weft holds, at most so far */
    bool skipped;            /* nothing was updated: no token had a label, gradients overflowed, ... */
} weft_train_report;
WEFT_API void weft_train_report_init(weft_train_report *report, size_t size); /* size: sizeof *report. LOCAL */

/* One optimizer step over parallel.dp x accumulated micro-batches. COLLECTIVE */
WEFT_API weft_status weft_train_step(weft_train *train, weft_train_report *report);
/* Mean loss over the first `sequences` held-out sequences. COLLECTIVE */
WEFT_API weft_status weft_train_eval(weft_train *train, int64_t sequences, double *loss);
/* A checkpoint to go on from, and a Hugging Face directory; complete when it has its name; an existing one is never
 * overwritten. All ranks write, so they need to see the folder (save.writers one: rank 0 does). COLLECTIVE */
WEFT_API weft_status weft_train_save(weft_train *train, const char *dir);

WEFT_API int64_t weft_train_parameters(const weft_train *train); /* of the model. LOCAL */
/* The plan of the model's attention in words, cut to `size` bytes with the closing NUL. LOCAL */
WEFT_API void weft_train_describe(const weft_train *train, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
