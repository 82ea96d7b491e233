/* comm_ways.h — the exchanges of `weft bench comm`, and how one of them is timed (comm_ways.c), for bench_comm.c. */
#ifndef WEFT_CLI_COMM_WAYS_H
#define WEFT_CLI_COMM_WAYS_H

#include "cli/profile_rates.h"

typedef enum { /* COPY in memory comes first: the others are judged by it */
    WEFT_WAY_COPY, WEFT_WAY_NEXT, WEFT_WAY_ALL, WEFT_WAY_PIECES, WEFT_WAY_RING_GATHER, WEFT_WAY_GATHER,
    WEFT_WAY_SCATTER, WEFT_WAY_DEAL, WEFT_WAYS
} weft_way;

typedef struct weft_ways { /* one rank's */
    weft_rates r;
    int P, repeats;
    size_t largest;    /* message, of which PIECES are pieces */
    char *from, *to;   /* [P x largest] */
    size_t *each;      /* [P] bytes of every rank's part, */
    int64_t *elements; /* [P] and the same as fp32 */
    weft_req *req;
} weft_ways;

typedef struct weft_way_figures {
    double seconds, spread; /* of one, on the slowest rank: the median of the repeats, and between their quartiles */
    double rate;            /* bytes that a rank sends a second */
    double exposed;         /* share of the time that a rank stood still for a transfer; of the rank with most */
    double copies;          /* by the transport, of a byte that is sent; 0: none */
} weft_way_figures;

const char *weft_way_path(weft_way way); /* "ring", "direct", "memory" */
const char *weft_way_name(weft_way way);
/* False for pieces so small that their requests would fill the memory. LOCAL, pure */
bool weft_way_measured(const weft_ways *b, weft_way way, size_t bytes);
/* Buffers for messages up to b->largest, in b->r.arena. LOCAL */
weft_status weft_ways_buffers(weft_ways *b);
/* COLLECTIVE */
weft_status weft_way_measure(weft_ways *b, weft_way way, size_t bytes, weft_way_figures *out);

#endif
