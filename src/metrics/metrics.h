/* metrics.h — the door of the room `metrics`: one record per step; the line, the JSONL, the table. */
#ifndef WEFT_METRICS_H
#define WEFT_METRICS_H

#include "ckpt/ckpt.h"

typedef struct weft_record {
    int64_t step, steps;          /* 1-based */
    double loss, grad_norm, lr;
    double seconds;               /* of this step */
    int64_t tokens;               /* of the whole job in this step (never divided by cp) */
    int64_t valid_tokens;
    double comm_share, exposed_share; /* time with a transfer in flight / blocked on one, over the step's */
    int64_t bytes_logical, messages;  /* of this rank */
    double memory_bytes;          /* held by Weft on this rank, peak */
    double resident_bytes;        /* of the process */
    double imbalance;             /* max / mean visible area over cp ranks */
    double eta_seconds;
    bool skipped;
} weft_record;

/* "step   120/2000 | loss 3.4412 | gnorm 0.91 | lr 2.90e-04 | 18,204 tok/s | comm 7% (2% exposed) | mem ... | eta 0:41:07" */
void weft_record_line(const weft_record *r, weft_text *out);

typedef struct weft_jsonl weft_jsonl; /* one object per line, flushed; values that are not finite become null + "nonfinite" */
weft_status weft_jsonl_open(weft_jsonl **out, const char *path);
weft_status weft_jsonl_write(weft_jsonl *j, const weft_record *r);
void weft_jsonl_close(weft_jsonl *j);

double weft_resident_bytes(void); /* VmRSS of this process; 0 when unknown */

#endif
