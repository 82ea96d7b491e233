/* mpi_abi.h — what a plugin for one MPI library gives to the core, and all that the core knows of MPI
 * (private to this room).
 *
 * MPI's handles differ between libraries (Open MPI: pointers, MPICH: numbers), so each library has a plugin of its
 * own, compiled from mpi/plugin.c against its mpi.h. A plugin is thin: requests, one private communicator, memory
 * that the ranks of a node share. The protocol over it (mpi.c) exists once, in the core, which links no MPI.
 * Rejected: the whole transport inside the plugin; it would need the core's internals as exported symbols, and a
 * program with libweft linked statically has none.
 *
 * Functions return 0, MPI's error code, or one of the codes below. One thread at a time calls into one end. */
#ifndef WEFT_COMM_MPI_ABI_H
#define WEFT_COMM_MPI_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_MPI_ABI = 3 }; /* goes up with every change below */
#define WEFT_MPI_ENTRY "weft_mpi_plugin" /* the symbol: const weft_mpi_abi *weft_mpi_plugin(void) */

/* Codes of the plugin's own; MPI's are above 0. */
enum {
    WEFT_MPI_LATE = -1,     /* not every rank came in time; the end is only good for being left alone */
    WEFT_MPI_NO_COMM = -2,  /* MPI_COMM_NULL */
    WEFT_MPI_INTERCOMM = -3,
    WEFT_MPI_NO_MEMORY = -4,
    WEFT_MPI_NOT_SHARED = -5
};

typedef struct weft_mpi_end weft_mpi_end; /* this rank's end of one private communicator; the plugin's */

enum { WEFT_MPI_LEAST = 4, WEFT_MPI_ALIGN = 64 };

typedef struct weft_mpi_info {
    int rank, size;
    int tag_max;
    bool threads; /* MPI_THREAD_MULTIPLE was granted */
} weft_mpi_info;

typedef struct weft_mpi_done { /* a request that is complete */
    uint64_t token;  /* the caller's */
    size_t bytes;    /* of a receive */
    int source;      /* of a receive */
    int error;       /* 0, or MPI's code */
    bool cancelled;
} weft_mpi_done;

typedef struct weft_mpi_abi {
    uint32_t version, bytes; /* WEFT_MPI_ABI, sizeof(weft_mpi_abi) */
    const char *mpi;         /* "openmpi", "mpich": as in the plugin's file name */
    size_t handle_bytes;     /* sizeof(MPI_Comm) */

    /* The process. start: initialises MPI with threads unless somebody has, *own tells which. stop: finalises. */
    int (*start)(bool *own);
    int (*stop)(void);
    bool (*running)(void); /* initialised and not finalised */
    void (*abort_job)(int code);
    void (*library)(char *text, size_t n); /* "Open MPI v4.1.4" */
    void (*error_text)(int code, char *text, size_t n);

    /* A private copy of a communicator (comm: address of an MPI_Comm; NULL: of the world), or with ranks > 0 of its
     * first `ranks` ranks; the others get *out NULL. Waits `seconds` for the others to come. COLLECTIVE over comm.
     * close: COLLECTIVE over the end, all requests are complete. */
    int (*open)(weft_mpi_end **out, const void *comm, int ranks, double seconds, weft_mpi_info *info);
    int (*close)(weft_mpi_end *end);
    /* v[i] becomes the least of all ranks; text becomes rank root's. For opening and before calls of MPI's that wait
     * without an end: none of the ranks is missing then. n: at most WEFT_MPI_LEAST. COLLECTIVE */
    int (*least)(weft_mpi_end *end, int64_t *v, int n, double seconds);
    int (*tell)(weft_mpi_end *end, char *text, size_t bytes, int root, double seconds);
    /* Zeroed memory that the ranks of one node share, at a multiple of WEFT_MPI_ALIGN on each, and how many they are:
     * on all ranks, or on none (WEFT_MPI_NOT_SHARED). COLLECTIVE; once per end. */
    int (*share)(weft_mpi_end *end, size_t bytes, double seconds, void **base, int *node_ranks);

    int (*send)(weft_mpi_end *end, const void *buf, int bytes, int peer, int tag, uint64_t token);
    int (*recv)(weft_mpi_end *end, void *buf, int bytes, int peer, int tag, uint64_t token); /* peer -1: any */
    /* Moves what can move; *done: the requests that became complete, valid until the next poll. */
    int (*poll)(weft_mpi_end *end, const weft_mpi_done **done, int *n);
    int (*cancel)(weft_mpi_end *end, uint64_t token); /* a receive; it completes through poll */
    int (*open_requests)(const weft_mpi_end *end);
} weft_mpi_abi;

#endif
