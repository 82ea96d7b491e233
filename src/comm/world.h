/* world.h — the structs behind worlds and comms (private to this room). */
#ifndef WEFT_COMM_WORLD_H
#define WEFT_COMM_WORLD_H

#include "comm/transport.h"

enum { WEFT_COMM_NAME = 32, WEFT_MESSAGE = 1024 };

/* Room for partial sums of one round of a reduction; larger sums take more rounds. It fits the second-level
 * cache, so partial sums are added while they are still near. Taken when the first sum needs more than the small one
 * that every world has: thousands of simulated ranks only ever need that. */
enum { WEFT_SCRATCH_BYTES = 1 << 20, WEFT_SCRATCH_SMALL = 4096 };

/* Steps of an exchange with everybody that are under way at once, each with a send and a receive. */
enum { WEFT_COLL_WINDOW = 32 };

/* Tags of collectives, above the caller's. One tag per kind is enough: messages of one pair, comm and tag
 * arrive in order, and collectives of one comm follow one another on every rank. */
enum {
    WEFT_TAG_GATHER = WEFT_TAG_USER_MAX, WEFT_TAG_REDUCE, WEFT_TAG_A2A, WEFT_TAG_BROADCAST, WEFT_TAG_BARRIER,
    WEFT_TAG_STREAM /* and above: one for each stream of a comm, as two may be under way at once */
};
const char *weft_tag_name(int tag, char *buf, size_t n);

typedef struct weft_flight { /* time with at least one transfer in flight */
    int64_t open;
    double since, seconds;
} weft_flight;

struct weft_comm {
    weft_world *world;
    uint32_t id;
    int rank, size;
    int first, step; /* group rank i is world rank first + i * step, as in every mesh, */
    int *ranks;      /* unless this says otherwise: nothing grows with the group then */
    char name[WEFT_COMM_NAME];
    weft_counters counters; /* flight_seconds lives in `flight` */
    weft_flight flight;
    int streams; /* created so far */
    weft_comm *next, *prev; /* the world's list */
};

/* World rank of a group rank. */
static inline int weft_comm_member(const weft_comm *c, int i)
{
    return c->ranks ? c->ranks[i] : c->first + i * c->step;
}

struct weft_world {
    const weft_transport *tp;
    void *ep;
    weft_ctx *ctx;
    weft_arena *arena; /* this struct and all comms: they live until the world is closed */
    int rank, size;
    double timeout;
    bool copy_only;     /* nothing is received in place */
    weft_status failed; /* sticky: a world that failed stays failed, so no half-done exchange is read */
    char message[WEFT_MESSAGE];
    uint32_t next_comm;
    uint64_t groups_hash; /* of all groups so far; equal on all ranks */
    weft_comm *comms, *all;
    weft_stream *streams; /* go on in every look at the world */
    weft_counters dead; /* of destroyed comms */
    weft_flight flight;
    /* Of collectives, which follow one another on a rank whatever their groups: none allocates in every step. */
    weft_req *reqs;    /* [2 WEFT_COLL_WINDOW], fewer with few ranks */
    char *scratch;
    size_t scratch_bytes;
    uint8_t *listed;   /* bit per rank; clear between calls that look for ranks listed twice */
    const weft_req *mismatched; /* the first request whose two ends differ in size: ends any wait */
    const weft_req *waits_on;   /* during a wait: the request that it has come to */
    const char *op; /* this rank's place */
    int layer, step;
};

/* Posts of collectives: as weft_isend and weft_irecv, with any tag. */
weft_status weft__isend(weft_comm *c, const void *buf, size_t bytes, int peer, int tag, weft_req *req);
weft_status weft__irecv(weft_comm *c, void *buf, size_t bytes, int peer, int tag, weft_req *req);

/* "cp.ring.forward, layer 1, step 2"; negative numbers are left out. Returns text. */
const char *weft__place_text(char *text, size_t n, const char *op, int layer, int step);
/* `message`, or the status's own text where there is none: a rank may fail without telling. */
const char *weft__message_of(const char *message, weft_status st);
/* `message`, with "rank N: " in front unless it names a rank there. Returns text. */
const char *weft__with_rank(char *text, size_t n, int rank, const char *message);

/* Marks the world failed with the calling thread's last error, and tells the other ranks; from then on
 * no request is touched. Returns st. */
weft_status weft_world_fail(weft_world *w, weft_status st);
/* WEFT_OK, or the sticky failure with its message. */
weft_status weft_world_good(const weft_world *w);
/* At least so many bytes, at most WEFT_SCRATCH_BYTES, until the next call. */
weft_status weft_world_scratch(weft_world *w, size_t bytes, char **out);
/* Lets all streams do what they can without waiting; true when something moved. */
bool weft_streams_advance(weft_world *w);
void weft_flight_begin(weft_flight *f, double now);
void weft_flight_end(weft_flight *f, double now);
double weft_flight_seconds(const weft_flight *f, double now);

#endif
