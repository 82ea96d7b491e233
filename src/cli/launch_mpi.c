/* launch_mpi.c — a command's body on the ranks that an MPI launcher has started.
 *
 * The launcher has made the processes before a word of the command line was read, so whatever one of them refuses is
 * agreed on by all before it is printed: one line, by one rank, and the same exit code on all. A rank that cannot even
 * start MPI, or finds no agreement, prints its own line and makes the launcher end the job. A failure in the body ends
 * the job by MPI_Abort after the message of the rank that failed first. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FORWARD_SECONDS 0.25
#define TURN_SECONDS 0.6 /* rank 0 prints first: where all ranks have the same to say, a launcher may have ended the
                            others by then */

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
        return weft_fail(
            WEFT_ERR_REFUSED,
            "%s started %d ranks, but their MPI has %d: the plugin belongs to another MPI than the launcher; "
            "use its mpirun, or set WEFT_MPI",
            l->by, l->size, weft_world_size(world));
    if (ranks == l->size) return WEFT_OK;
    if (!cli->command->ranks)
        return weft_fail(WEFT_ERR_REFUSED, "%s started %d ranks; weft %s runs as one: leave mpirun out", l->by, l->size,
                         cli->command->name);
    return weft_fail(
        WEFT_ERR_REFUSED,
        "%s started %d rank%s, the options ask for tp %d x cp %d x dp %d x pp %d = %d: mpirun -n %d, or other sizes",
        l->by, l->size, l->size > 1 ? "s" : "", m.tp, m.cp, m.dp, m.pp, ranks, ranks);
}

static int omp_choice(void)
{
    int64_t n;
    const char *omp = getenv("OMP_NUM_THREADS");
    return omp && weft_parse_i64(omp, &n) == WEFT_OK && n > 0 && n <= 1024 ? (int)n : 0;
}

/* Threads: what was asked for, else this rank's share of the processors that the launcher left it (field report
 * G36). */
static weft_status set_threads(const weft_cli *cli, weft_world *world)
{
    int cpus, sharers, threads = cli->options.threads > 0 ? (int)cli->options.threads : omp_choice();
    weft_world_cpus(world, &cpus, &sharers);
    if (threads == 0) threads = cpus / sharers > 1 ? cpus / sharers : 1;
    weft_world_ctx(world)->threads = threads;
    return weft_launch_threads(threads, 1);
}

static void warn_of_crowding(weft_world *world)
{
    int cpus, sharers, threads = weft_world_ctx(world)->threads;
    weft_world_cpus(world, &cpus, &sharers);
    if (!weft_is_root(world) || threads == 1 || (int64_t)threads * sharers <= cpus) return;
    fprintf(stderr,
            "weft: warning: rank 0 has %d threads and may use %d processor%s, which %d rank%s share%s; --threads %d "
            "fits, or more processors "
            "per rank (Open MPI: --bind-to none or --map-by slot:PE=%d; MPICH: -bind-to none)\n",
            threads, cpus, cpus > 1 ? "s" : "", sharers, sharers > 1 ? "s" : "", sharers > 1 ? "" : "s",
            cpus / sharers > 1 ? cpus / sharers : 1, threads);
}

static weft_status set_progress(const weft_cli *cli, weft_world *world)
{
    const char *name = cli->options.mpi_progress;
    if (!cli->command->ranks) return WEFT_OK;
    return weft_world_set_progress(world, !strcmp(name, "callback") ? WEFT_MPI_CALLBACK
                                          : !strcmp(name, "thread") ? WEFT_MPI_THREAD
                                                                    : WEFT_MPI_AUTO);
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

/* The launcher kills the others as soon as it hears that a rank has died, this one among them. */
static void print_lost(void *ud, const char *message)
{
    (void)ud;
    fprintf(stderr, "weft: %s\n", message);
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

void weft_launch_print_alone(const weft_mpi_launch *l)
{
    char host[64] = "?", message[1200];
    snprintf(message, sizeof message, "%s", weft_last_error());
    gethostname(host, sizeof host - 1);
    if (l->rank > 0) nap(TURN_SECONDS);
    fprintf(stderr, "weft: %s started %d ranks; rank %d on %s: %s\n", l->by, l->size, l->rank, host, message);
    nap(FORWARD_SECONDS);
}

static int leave_alone(const weft_mpi_launch *l, const weft_mpi *mpi, bool started, weft_status st)
{
    int code = weft_exit_code(st);
    weft_launch_print_alone(l);
    if (started) weft_mpi_abort_job(mpi, code);
    else weft_mpi_leave_job(code);
    return code;
}

/* ---- the body ---------------------------------------------------------------------------------------------------- */

/* Which bench is no option. Words that are files are compared by what these hold, where they are read. */
static weft_status same_words(const weft_cli *cli, weft_world *world)
{
    char command[64];
    bool which = cli->command == &weft_cmd_bench && cli->n_positional;
    snprintf(command, sizeof command, "%s%s%s", cli->command->name, which ? " " : "", which ? cli->positional[0] : "");
    return weft_run_same_options(weft_world_all(world), command, &cli->opts);
}

static int run_in_world(weft_cli *cli, const weft_mpi_launch *l, weft_mpi *mpi, weft_world *world, weft_status st)
{
    char message[600];
    if (st >= 0) st = check_ranks(cli, l, world);
    if (st >= 0) st = set_threads(cli, world);
    st = weft_agree(weft_world_all(world), st);
    if (st >= 0) st = same_words(cli, world);
    if (st == WEFT_ERR_REFUSED || st == WEFT_ERR_IO) return leave(mpi, world, st);
    if (st >= 0) {
        warn_of_crowding(world);
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
    if (text && (weft_parse_size(text, &n) != WEFT_OK || n < 1 || n > INT32_MAX))
        return weft_fail(WEFT_ERR_REFUSED,
                         "WEFT_MPI_MAX_MESSAGE=%s; give the bytes of the longest MPI message, 1 to 1G", text);
    *out = (size_t)n;
    return WEFT_OK;
}

/* What this rank alone may refuse: told to the others in a world that does not need it. */
static weft_status prepare(weft_ctx *ctx, const weft_mpi_launch *l, weft_mpi_options *options)
{
    weft_status st = weft_launch_ctx(ctx, l->rank, l->size, 1);
    return st < 0 ? st : message_limit(&options->max_message);
}

int weft_launch_mpi(weft_cli *cli, const weft_mpi_launch *l, weft_status so_far)
{
    weft_ctx ctx;
    weft_mpi *mpi = NULL;
    weft_world *world = NULL;
    weft_mpi_options options = {.timeout = cli->options.timeout, .lost = print_lost};
    char message[1200];
    int code;
    weft_interrupt_block(cli->command);
    if (so_far >= 0) so_far = prepare(&ctx, l, &options);
    else weft_ctx_init(&ctx);
    snprintf(message, sizeof message, "%s", so_far < 0 ? weft_last_error() : "");
    weft_status st = weft_mpi_load(&mpi, l->mpi);
    if (st >= 0)
        st = weft_launch_start_mpi(l, mpi, cli->options.timeout > 0 ? cli->options.timeout : WEFT_DEFAULT_TIMEOUT);
    bool started = st >= 0;
    if (st >= 0) st = weft_world_mpi(&world, &ctx, mpi, &options);
    if (st >= 0) code = run_in_world(cli, l, mpi, world, so_far < 0 ? weft_fail(so_far, "%s", message) : WEFT_OK);
    else code = leave_alone(l, mpi, started, st);
    weft_mpi_unload(mpi);
    return code;
}
