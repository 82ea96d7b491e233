/* A program with an MPI of its own, for test_mpi_callers.sh: communicators that cannot be opened, what opening leaves
 * of the caller's, and a rank that comes late. */
#include "comm/comm.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank;
static weft_mpi *mpi;
static weft_ctx ctx;

static void check(int good, const char *what)
{
    if (good) return;
    printf("FAILED: rank %d: %s: %s\n", rank, what, weft_last_error());
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

static weft_status open_world(weft_world **w, MPI_Comm comm, double timeout)
{
    return weft_world_mpi(w, &ctx, mpi,
                          &(weft_mpi_options){.comm = &comm, .comm_bytes = sizeof comm, .timeout = timeout});
}

static void refuses(MPI_Comm comm, const char *part)
{
    weft_world *w;
    check(open_world(&w, comm, 20) == WEFT_ERR_REFUSED && strstr(weft_last_error(), part), part);
}

static void on_error(MPI_Comm *comm, int *code, ...) { (void)comm, (void)code; }

/* The program's errors stay the program's: its handler is back after a world was opened, and after one was refused. */
static void handlers(void)
{
    MPI_Comm comm;
    MPI_Errhandler mine, now;
    weft_world *w;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(on_error, &mine);
    MPI_Comm_set_errhandler(comm, mine);
    check(open_world(&w, comm, 20) == WEFT_OK, "a copy of MPI_COMM_WORLD");
    weft_world_close(w);
    MPI_Comm_get_errhandler(comm, &now);
    check(now == mine, "the caller's error handler is kept");
    MPI_Errhandler_free(&now);
    MPI_Errhandler_free(&mine);
    MPI_Comm_free(&comm);
}

static void between_groups(void)
{
    MPI_Comm half, both;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 7, &both);
    refuses(both, "the communicator connects two groups");
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
}

static void late(void)
{
    weft_world *w;
    struct timespec nap = {.tv_sec = 2};
    double begin = weft_now(&weft_clock_real);
    if (rank == 1) nanosleep(&nap, NULL);
    weft_status st = open_world(&w, MPI_COMM_WORLD, 0.5);
    check(rank == 1 || weft_now(&weft_clock_real) - begin < 1.8, "waiting ends before the rank comes");
    check(st == WEFT_ERR_TIMEOUT && strstr(weft_last_error(), "not every rank of the communicator came within 0.5 s"),
          "late");
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    weft_ctx_init(&ctx);
    check(argc > 1 && weft_mpi_load(&mpi, argv[1]) == WEFT_OK, "the plugin");
    refuses(MPI_COMM_NULL, "the communicator is MPI_COMM_NULL");
    between_groups();
    handlers();
    late();
    printf("rank %d: all hold\n", rank);
    fflush(stdout);
    nanosleep(&(struct timespec){.tv_sec = rank == 1 ? 0 : 3}, NULL); /* the late rank has to get to its end */
    MPI_Abort(MPI_COMM_WORLD, 7);                                     /* as after every failed opening */
    return 0;
}
