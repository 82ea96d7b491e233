/* profile.h — the machine's profile: the rates by which `auto` chooses, the simulator charges and `plan`
 * predicts. Numbers are measured (weft bench profile, weft bench comm), taken from documents (profiles/NAME.json, built
 * in), or plain defaults; a profile is data, never state. Of one rank, where nothing else is said. */
#ifndef WEFT_MESH_PROFILE_H
#define WEFT_MESH_PROFILE_H

#include "comm/comm.h"

enum { WEFT_PROFILE_NAME = 64 };

typedef struct weft_profile {
    char name[WEFT_PROFILE_NAME];    /* "h100-ib"; "this machine" when measured */
    double latency_seconds;          /* of one message, and what starting it costs its rank */
    double link_bytes_per_second;    /* one way, one rank to one rank */
    double rank_bytes_per_second;    /* what one rank can send in all at once (its port) */
    double memory_bytes_per_second;  /* copying and adding in a rank's memory: bytes that arrive */
    double flops_per_second[WEFT_PREC_COUNT]; /* attention, forward: the operations of visible pairs */
    double attention_pair_seconds[WEFT_PREC_COUNT]; /* besides, of each pair of a head: mask, exponential; 0: hidden */
    double attention_edge_keys;      /* keys that a row computes in vain where the mask ends; 0: counted in the rate */
    double attention_row_keys;       /* what a row of a block takes besides its keys, in keys; 0: as its state moves */
    double backward_factor;          /* seconds of backward per second of forward for the same area */
    int node_ranks;                  /* ranks that share a node; 0: all of them */
    double node_latency_seconds, node_bytes_per_second; /* between ranks of one node */

    double product_flops_per_second[WEFT_PREC_COUNT]; /* large matrix products */
    double fp8_flops_per_second, fp8_attention_flops_per_second; /* the same two in fp8; 0: has none */
    double product_bytes_per_second; /* operands and results, besides the operations; 0: under them, as elements are */
    double product_seconds;          /* what one product costs whatever its size: call, launch, edges */
    double attention_seconds;        /* the same of one attention call */
    double element_bytes_per_second; /* read and written by norms, activations, residuals, rope, loss and AdamW */
    double memory_bytes;             /* a rank may hold; 0: unknown */
    double host_bytes_per_second;    /* of copies to the host's memory, one way (offload); 0: there are none */
    double host_bytes;               /* of it beside memory_bytes, for one rank; 0: none, or unknown */
    size_t buffer_bytes;             /* pieces in which exchanges are fastest; 0: whole */
    double in_place_share;           /* of K,V blocks that ranks of a node read where they lie; 0: all are sent */
    double unhidden_share;           /* of a transfer's time hides under nothing: a rank's own core moves it; 0: none */
    double collective_factor;        /* share of its links' rate that a collective reaches; 1: all of it */
} weft_profile;

/* Of all heads: visible pairs; rows that end at an edge of the mask (causal: each once; with a window twice); and rows,
 * once for each block of keys that they are computed with. */
typedef struct weft_attention_amount { double pairs, edges, rows; } weft_attention_amount;

/* Seconds of forward attention; D and Dv are those of a head. Backward: backward_factor times that. Without what a call
 * costs. LOCAL, pure */
double weft_profile_attention(const weft_profile *p, weft_prec prec, weft_attention_amount a, int64_t D, int64_t Dv);

/* Seconds that show of a transfer of `moving` seconds, of which `exposed` find nothing to hide under: of the rest what
 * the rank's own core moves (unhidden_share). LOCAL, pure */
double weft_profile_shown(const weft_profile *p, double exposed, double moving);

/* A plain machine: good enough to rank strategies, said to be so where it is printed. */
weft_profile weft_profile_default(void);

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* JSON with the fields' names (an object with a rate per precision for flops_per_second and product_flops_per_second),
 * and "sources": an object that says of any of them where its value is from. The fields up to node_bytes_per_second
 * are needed; of the others a missing one is
 *   name                      the file's, without folder and ending
 *   product_flops_per_second  flops_per_second
 *   element_bytes_per_second  twice memory_bytes_per_second: a copy reads and writes
 *   collective_factor         1
 *   any other                 0
 * Unknown keys, and values that are of no machine, are refused with file and key. LOCAL */
weft_status weft_profile_read(weft_profile *out, const char *path);
weft_status weft_profile_write(const weft_profile *profile, const char *path);

typedef struct weft_profile_note { const char *key, *text; } weft_profile_note; /* where a value is from */
/* The same with sources: those of the profile `from` (a name or a path; NULL: none), but for notes[n], which stand for
 * theirs. LOCAL */
weft_status weft_profile_write_noted(const weft_profile *profile, const char *path, const char *from,
                                     const weft_profile_note *notes, int n);

/* ---- built in --------------------------------------------------------------------------------------------------- */

/* The profile of that name, or the file. A file whose name is also a profile's is found as ./NAME. Refuses what is
 * neither, with the names there are. LOCAL */
weft_status weft_profile_find(weft_profile *out, const char *name_or_path);
/* Ascending; names[n] is not there. LOCAL */
const char *const *weft_profile_names(int *n);
/* Appends where the value of `key` is from, or nothing where the profile does not say; key NULL: all that it says, a
 * line "key  text" each. LOCAL */
weft_status weft_profile_source(weft_text *out, const char *name_or_path, const char *key);

#endif
