/* transport.h — what a way of moving bytes between ranks has to provide (private to this room).
 *
 * A transport is one const struct of functions over its own endpoint; world.c and p2p.c do everything that
 * is the same for all: checks, deadlines, counters, messages. Requests are completed by the transport with
 * weft_req_finish. Calls take a queue handle (NULL on the CPU) so that a device transport fits in.
 *
 * After a failure only abort, failure, failed_rank, place, waiting and close are called: the callers' requests and
 * buffers may be gone by then, so none of these follows a request.
 *
 * A send completes only after the peer posted the matching receive, in every transport. */
#ifndef WEFT_COMM_TRANSPORT_H
#define WEFT_COMM_TRANSPORT_H

#include "comm/comm.h"

enum { WEFT_CAP_PEER_MEMORY = 1 }; /* a rank can read a neighbour's buffers in place */

/* States of weft_req. A zeroed request counts as complete. */
enum { WEFT_REQ_IDLE = 0, WEFT_REQ_POSTED, WEFT_REQ_DONE, WEFT_REQ_MISMATCH };
static inline bool weft_req_complete(const weft_req *r)
{
    return r->state == WEFT_REQ_IDLE || r->state == WEFT_REQ_DONE;
}

/* In weft_req.flags. */
enum {
    WEFT_REQ_MAY_VIEW = 1, /* a receive may be answered in place; a send's peer and its place allow that */
    WEFT_REQ_IN_PLACE = 2  /* a receive was, and is not released yet; a send's bytes are being read by the peer */
};

/* What is in weft_req.priv. The first two are set before a request is posted. */
enum {
    WEFT_REQ_PEER,        /* world rank of the other end */
    WEFT_REQ_COMM,        /* number of the group, the same on all ranks */
    WEFT_REQ_TOKEN,       /* the transport's */
    WEFT_REQ_OTHER_BYTES  /* size at the other end; set with WEFT_REQ_MISMATCH */
};

typedef struct weft_transport {
    const char *name, *desc;
    uint32_t caps;
    uint32_t mem_kinds; /* bit mask over weft_mem_kind: what post_* accepts; others are refused before */

    /* Never called with 0 bytes, nor for this rank itself. NULL where a world has one rank only. */
    weft_status (*post_send)(void *ep, weft_req *req, weft_queue *queue);
    weft_status (*post_recv)(void *ep, weft_req *req, weft_queue *queue);

    /* The rest may be NULL: then there is nothing to do. */
    void (*settle)(void *ep);              /* finishes requests that ended before; called before a new flight begins */
    bool (*progress)(void *ep);            /* moves what can move; true when something did */
    void (*idle)(void *ep, int round);     /* nothing moved for `round` calls: gives the core away for up to 20 ms */
    weft_status (*failure)(void *ep);      /* WEFT_ERR_PEER with its message once any rank has failed */
    void (*abort)(void *ep, weft_status st, const char *message); /* tells all; the first one wins */
    void (*place)(void *ep, const char *op, int layer, int step);
    void (*waiting)(void *ep, int peer);   /* -1: not waiting */
    void (*peer_state)(void *ep, int peer, char *text, size_t n); /* "rank 3 is in ..., layer 1, step 2" */
    const weft_mem_provider *(*buffers)(void *ep); /* memory for what travels; NULL: host memory */
    void (*release)(void *ep, weft_req *req); /* of a receive that was answered in place; with WEFT_CAP_PEER_MEMORY */
    void (*close)(void *ep, bool orderly); /* orderly: every rank has reached this point */
    void (*describe)(void *ep, char *text, size_t n);     /* NULL: its name */
    int (*failed_rank)(void *ep);                         /* whose failure ends the world; -1: none; NULL: not known */
    void (*cpus)(void *ep, int *cpus, int *sharers);      /* NULL: all ranks share this process' processors */
} weft_transport;

/* Called by transports: the request is complete (or its size was wrong); counts and closes its flight. */
void weft_req_finish(weft_req *req, int state);
/* Called by transports: the peer has been told where the bytes of this send lie. Nothing moves any more, but the
 * request is complete only when they are released. */
void weft_req_lent(weft_req *req);
/* The same for what ended at an earlier time: a helper thread has moved it. */
void weft_req_finish_at(weft_req *req, int state, double at);
/* Called by transports: bytes went through a buffer of the transport on behalf of this request. */
void weft_req_copied(weft_req *req, size_t bytes);

/* A world over an endpoint. On failure the endpoint is closed. LOCAL */
weft_status weft_world_open(weft_world **out, weft_ctx *ctx, const weft_transport *tp, void *ep, int rank, int size);

#endif
