/* launch_mpi.c — a command's body on the ranks that an MPI launcher has started.
 *
 * The launcher has made the processes before a word of the command line was read, so whatever one of them refuses is
 * agreed on by all before it is printed: one line, by one rank, and the same exit code on all. A failure in the body
 * ends the job by MPI_Abort after the message of the rank that failed first. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#define FORWARD_SECONDS 0.25

static void nap(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

void weft_launch_forward(void)
{
    weft_mpi_launch l;
    weft_mpi_launched(&l); /* a refusal has been reported */
    if (l.by) nap(FORWARD_SECONDS);
}

/* ---- what fits ---------------------------------------------------------------------------------------------- */

static weft_status check_ranks(const weft_cli *cli, const weft_mpi_launch *l, const weft_world *world)
{
    weft_mesh_shape m = cli->run.mesh;
    int ranks = weft_launch_ranks(cli);
    if (weft_world_size(world) != l->size)
        return weft_fail(WEFT_ERR_REFUSED, "%s started %d ranks, but their MPI has %d: the plugin belongs to another MPI than the launcher; "
                         "use its mpirun, or set WEFT_MPI", l->by, l->size, weft_world_size(world));
    if (ranks == l->size) return WEFT_OK;
    if (!cli->command->ranks)
        return weft_fail(WEFT_ERR_REFUSED, "%s started %d ranks; weft %s runs as one: leave mpirun out", l->by, l->size, cli->command->name);
    return weft_fail(WEFT_ERR_REFUSED, "%s started %d rank%s, the options ask for tp %d x cp %d x dp %d x pp %d = %d: mpirun -n %d, or other sizes",
                     l->by, l->size, l->size > 1 ? "s" : "", m.tp, m.cp, m.dp, m.pp, ranks, ranks);
}

static int omp_choice(void)
{
    int64_t n;
    const char *omp = getenv("OMP_NUM_THREADS");
    return omp && weft_parse_i64(omp, &n) == WEFT_OK && n > 0 && n <= 1024 ? (int)n : 0;
}

/* Threads: what was asked for, else this rank's share of the processors that the launcher left it (field report G36). */
static void set_threads(const weft_cli *cli, weft_world *world)
{
    int cpus, sharers, threads = cli->options.threads > 0 ? (int)cli->options.threads : omp_choice();
    weft_ctx *ctx = weft_world_ctx(world);
    weft_world_cpus(world, &cpus, &sharers);
    if (threads == 0) threads = cpus / sharers > 1 ? cpus / sharers : 1;
    ctx->threads = threads;
#ifdef _OPENMP
    omp_set_num_threads(threads);
#endif
    if (weft_is_root(world) && threads > 1 && (int64_t)threads * sharers > cpus)
        fprintf(stderr,
                "weft: warning: rank 0 has %d threads and may use %d processor%s, which %d rank%s share%s; --threads %d fits, or more processors "
                "per rank (Open MPI: --bind-to none or --map-by slot:PE=%d; MPICH: -bind-to none)\n",
                threads, cpus, cpus > 1 ? "s" : "", sharers, sharers > 1 ? "s" : "", sharers > 1 ? "" : "s",
                cpus / sharers > 1 ? cpus / sharers : 1, threads);
}

static weft_status set_progress(const weft_cli *cli, weft_world *world)
{
    const char *name = cli->options.mpi_progress;
    if (!cli->command->ranks) return WEFT_OK;
    return weft_world_set_progress(world, !strcmp(name, "callback") ? WEFT_MPI_CALLBACK : !strcmp(name, "thread") ? WEFT_MPI_THREAD : WEFT_MPI_AUTO);
}

/* ---- the end of a job ------------------------------------------------------------------------------------------ */

/* The rank that failed first prints and ends the job; the others give it time, so that its line is the first. */
static int end_job(const weft_mpi *mpi, const weft_world *world, weft_status st, const char *message)
{
    int code = weft_exit_code(st), first = weft_world_failed_rank(world), rank = weft_world_rank(world);
    if (first < 0 || first == rank) {
        char name[32] = "";
        if (strncmp(message, "rank ", 5)) snprintf(name, sizeof name, "rank %d: ", rank);
        fprintf(stderr, "weft: %s%s\n", name, message);
        nap(FORWARD_SECONDS);
    } else {
        nap(5);
    }
    weft_mpi_abort_job(mpi, code);
    return code;
}

/* What all ranks know alike leaves the world good: everybody leaves in order. A failed comparison has been reported. */
static int leave(weft_mpi *mpi, weft_world *world, weft_status st)
{
    if (st < 0 && st != WEFT_ERR_COMPARE && weft_is_root(world))
        fprintf(stderr, "weft: %s\n", weft_last_error());
    weft_world_close(world);
    weft_mpi_stop(mpi);
    return weft_exit_code(st);
}

static int run_in_world(weft_cli *cli, const weft_mpi_launch *l, weft_mpi *mpi, weft_world *world, weft_status st)
{
    char message[600];
    if (st >= 0) st = check_ranks(cli, l, world);
    st = weft_agree(weft_world_all(world), st);
    if (st == WEFT_ERR_REFUSED || st == WEFT_ERR_IO) return leave(mpi, world, st);
    if (st >= 0) {
        if (cli->options.timeout > 0) weft_world_set_timeout(world, cli->options.timeout);
        set_threads(cli, world);
        st = set_progress(cli, world);
    }
    if (st >= 0) st = cli->command->body(cli, world);
    if (st >= 0 || st == WEFT_ERR_COMPARE) return leave(mpi, world, st);
    snprintf(message, sizeof message, "%s", weft_last_error());
    weft_world_abort(world, st, message);
    return end_job(mpi, world, st, message);
}

/* ---- the door ---------------------------------------------------------------------------------------------------- */

/* A limit for tests; results do not depend on it. */
static weft_status message_limit(size_t *out)
{
    const char *text = getenv("WEFT_MPI_MAX_MESSAGE");
    int64_t n = 0;
    if (text && (weft_parse_size(text, &n) != WEFT_OK || n < 1))
        return weft_fail(WEFT_ERR_REFUSED, "WEFT_MPI_MAX_MESSAGE=%s; give the bytes of the longest MPI message, 1 to 1G", text);
    *out = (size_t)n;
    return WEFT_OK;
}

static weft_status open_world(weft_world **world, weft_mpi **mpi, weft_ctx *ctx, const weft_mpi_launch *l)
{
    weft_mpi_options options = {0};
    WEFT_TRY(message_limit(&options.max_message));
    WEFT_TRY(weft_launch_ctx(ctx, l->rank, l->size, 1));
    WEFT_TRY(weft_mpi_load(mpi, l->mpi));
    WEFT_TRY(weft_mpi_start(*mpi));
    return weft_world_mpi(world, ctx, *mpi, &options);
}

int weft_launch_mpi(weft_cli *cli, const weft_mpi_launch *l, weft_status so_far)
{
    weft_ctx ctx;
    weft_mpi *mpi = NULL;
    weft_world *world = NULL;
    char message[600];
    snprintf(message, sizeof message, "%s", so_far < 0 ? weft_last_error() : "");
    weft_status st = open_world(&world, &mpi, &ctx, l);
    int code;
    if (st >= 0) {
        code = run_in_world(cli, l, mpi, world, so_far < 0 ? weft_fail(so_far, "%s", message) : WEFT_OK);
    } else {
        /* Without MPI the ranks cannot agree; what is missing here is missing everywhere, as a rule. */
        if (l->rank == 0) fprintf(stderr, "weft: %s started %d ranks: %s\n", l->by, l->size, weft_last_error());
        code = weft_exit_code(st);
    }
    weft_mpi_unload(mpi);
    return code;
}
