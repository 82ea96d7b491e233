/* profile_rates.h — what `weft bench profile` and `weft bench comm` measure: a rank's own work (profile_rates.c), and
 * exchanges (exchange_rates.c). */
#ifndef WEFT_CLI_PROFILE_RATES_H
#define WEFT_CLI_PROFILE_RATES_H

#include "cli/cli.h"

typedef struct weft_rates { /* one rank's */
    weft_ctx *ctx;
    weft_comm *comm;        /* all ranks work at once: they share the machine in a real run, too */
    weft_arena *arena;
    weft_kern kern;
    weft_gemm *gemm;
    int64_t repeats;
} weft_rates;

static inline double weft_rates_now(const weft_rates *b) { return weft_now(&b->ctx->clock); }
/* One figure, measured again and again: at most WEFT_BENCH_REPEATS_MAX times. */
typedef struct weft_series { double seconds[WEFT_BENCH_REPEATS_MAX]; int n; } weft_series;
void weft_rates_took(weft_series *s, double seconds);
double weft_rates_median(weft_series *s); /* 0: none yet */

/* Rates and times of this rank: attention, products, element-wise kernels, and what a call costs. COLLECTIVE */
weft_status weft_rates_kernels(weft_rates *b, weft_profile *p);

/* Of a small message between ranks 0 and 1: half of there and back, the median of b->repeats; the others get the
 * number, too. COLLECTIVE */
weft_status weft_rates_latency(weft_rates *b, double *seconds);
/* The share of the time of an exchange of from[bytes] with the next rank that attention, which runs meanwhile, does not
 * hide. req[2]. COLLECTIVE */
weft_status weft_rates_unhidden(weft_rates *b, size_t bytes, const char *from, char *to, weft_req *req, double *share);
/* Once: sends from[bytes] to each of the next `peers` ranks and gets as much into to[peers x bytes], all at once.
 * req[2 x peers]. COLLECTIVE */
weft_status weft_rates_start(weft_rates *b, int peers, size_t bytes, const char *from, char *to, weft_req *req);
/* ... and waits. COLLECTIVE */
weft_status weft_rates_exchange(weft_rates *b, int peers, size_t bytes, const char *from, char *to, weft_req *req);
/* The same with the next rank, as messages of `piece` bytes that are all under way at once. req[2 x bytes / piece,
 * rounded up]. COLLECTIVE */
weft_status weft_rates_pieces(weft_rates *b, size_t bytes, size_t piece, const char *from, char *to, weft_req *req);

#endif
