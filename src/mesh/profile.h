/* profile.h — the machine's profile: the rates by which `auto` chooses, the simulator charges and `plan`
 * predicts. Numbers are measured (weft bench profile) or plain defaults; a profile is data, never state. */
#ifndef WEFT_MESH_PROFILE_H
#define WEFT_MESH_PROFILE_H

#include "comm/comm.h"

typedef struct weft_profile {
    double latency_seconds;          /* of one message, and what starting it costs its rank */
    double link_bytes_per_second;    /* one way, one rank to one rank */
    double rank_bytes_per_second;    /* what one rank can send in all at once (its port) */
    double memory_bytes_per_second;  /* copying and adding in a rank's memory */
    double flops_per_second[WEFT_PREC_COUNT]; /* attention, forward, of one rank */
    double backward_factor;          /* seconds of backward per second of forward for the same area */
    int node_ranks;                  /* ranks that share a node; 0: all of them */
    double node_latency_seconds, node_bytes_per_second; /* between ranks of one node */
} weft_profile;

/* A plain machine: good enough to rank strategies, said to be so where it is printed. */
weft_profile weft_profile_default(void);
/* JSON with the fields' names (flops_per_second: an object with a rate per precision). Missing and unknown keys, and
 * values that are not positive or of no machine, are refused with file and key. LOCAL */
weft_status weft_profile_read(weft_profile *out, const char *path);
weft_status weft_profile_write(const weft_profile *profile, const char *path);

#endif
