/* doctor.h — what a check of `weft doctor` is: a function that looks at one thing and adds lines. Each subject has a
 * file doctor_*.c; the table is in cmd_doctor.c. */
#ifndef WEFT_CLI_DOCTOR_H
#define WEFT_CLI_DOCTOR_H

#include "cli/cli.h"

typedef enum {
    WEFT_DOCTOR_OK,
    WEFT_DOCTOR_NOTE, /* good to know */
    WEFT_DOCTOR_LOOK, /* works, but slower or with less than could be */
    WEFT_DOCTOR_BAD,  /* a run would fail, or compute something wrong */
    WEFT_DOCTOR_VERDICTS
} weft_doctor_verdict;

typedef struct weft_doctor {
    const weft_cli *cli;
    int ranks;              /* of the run that is meant */
    bool launched;          /* an MPI launcher started this process, and says where its ranks run */
    weft_local_share share; /* what the ranks get that this process would start; of a launcher's, this one */
    const char *folder;     /* whose disk is looked at */
    bool jsonl;
    int to;                 /* the pipe to the process that prints; -1: it is this one */
    int64_t lines[WEFT_DOCTOR_VERDICTS];
} weft_doctor;

typedef struct weft_doctor_check {
    const char *name;
    void (*run)(weft_doctor *d);
    double seconds;   /* above 0: it could hang, crash or start threads, so it gets a process of its own, for so long */
    const char *mend; /* what to do when that process ends otherwise */
} weft_doctor_check;

/* Adds a line. `mend`: the command that mends it; NULL for what is fine, and for notes that nothing is to be done
 * about. */
void weft_doctor_add(weft_doctor *d, weft_doctor_verdict verdict, const char *subject, const char *mend,
                     const char *fmt, ...) __attribute__((format(printf, 5, 6)));

void weft_doctor_processor(weft_doctor *d); /* doctor_processor.c */
void weft_doctor_cores(weft_doctor *d);
void weft_doctor_numa(weft_doctor *d);
void weft_doctor_clock(weft_doctor *d);
void weft_doctor_memory(weft_doctor *d); /* doctor_memory.c */
void weft_doctor_limits(weft_doctor *d);
void weft_doctor_shared(weft_doctor *d);
void weft_doctor_pages(weft_doctor *d);
bool weft_doctor_binds(void);               /* whether OMP_PROC_BIND has OpenMP bind this process as it starts */
void weft_doctor_variables(weft_doctor *d); /* doctor_variables.c */
void weft_doctor_library(weft_doctor *d); /* doctor_kernels.c */
void weft_doctor_kernels(weft_doctor *d);
void weft_doctor_ranks(weft_doctor *d); /* doctor_ranks.c */
void weft_doctor_openmpi(weft_doctor *d); /* doctor_mpi.c */
void weft_doctor_mpich(weft_doctor *d);
void weft_doctor_gpu(weft_doctor *d); /* doctor_gpu.c */
void weft_doctor_folder(weft_doctor *d); /* doctor_folder.c */

/* Of a process that weft_doctor_ranks has started: its part of the exchange. Returns its exit code. */
int weft_doctor_rank(const weft_cli *cli, weft_local *local, int rank);
/* The name that weft_doctor_folder writes to in the folder; removed also when that check was ended. */
void weft_doctor_folder_file(const weft_doctor *d, int pid, char *path, size_t n);
void weft_doctor_folder_clean(const weft_doctor *d, int pid);

/* The whole command, in a process without threads. Returns the exit code. */
int weft_doctor_run(weft_cli *cli);

#endif
