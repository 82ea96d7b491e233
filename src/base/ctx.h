/* ctx.h — what one rank carries around: its account of memory, clock, log hook, trace, faults, threads.
 * There is no global mutable state: ranks may be threads of one process, each with its own ctx. */
#ifndef WEFT_BASE_CTX_H
#define WEFT_BASE_CTX_H

#include "base/clock.h"
#include "base/fault.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/part.h"
#include "base/trace.h"

typedef struct weft_ctx {
    int rank, world;
    int threads;      /* OpenMP threads that this rank's kernels use, >= 1 */
    weft_log log;
    weft_mem mem;
    weft_clock clock;
    weft_trace trace; /* capacity 0: off */
    weft_fault fault;
    weft_guard guard; /* off unless a trainer sets it */
    weft_parts parts; /* off unless somebody asks where the time goes */
    double attention_seconds; /* in attention kernels so far: its spread over ranks is the imbalance as time */
} weft_ctx;

/* A mute ctx with the real clock, one rank and one thread. */
void weft_ctx_init(weft_ctx *ctx);

#endif
