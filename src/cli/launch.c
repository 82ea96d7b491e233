/* launch.c — puts a command's body on its ranks. Without a launcher, the first process becomes the supervisor
 * and starts the ranks by executing itself again, before any thread exists. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rank 0 speaks for all; what another one finds bears its number, unless the line names it. */
static void write_log(void *ud, weft_log_level level, const char *line)
{
    const weft_ctx *ctx = ud;
    char who[32] = "", named[24];
    snprintf(named, sizeof named, "rank %d", ctx->rank);
    if (ctx->rank > 0 && !strstr(line, named)) snprintf(who, sizeof who, "%s: ", named);
    fprintf(stderr, "weft: %s%s%s\n", level == WEFT_LOG_WARN ? "warning: " : "", who, line);
}

int weft_launch_ranks(const weft_cli *cli)
{
    return cli->command->ranks ? weft_mesh_ranks(cli->run.mesh) : 1;
}

weft_status weft_launch_ctx(weft_ctx *ctx, int rank, int ranks, int threads)
{
    weft_ctx_init(ctx);
    ctx->rank = rank;
    ctx->world = ranks;
    ctx->threads = threads;
    ctx->log = (weft_log){write_log, ctx, WEFT_LOG_WARN};
    WEFT_TRY(weft_launch_threads(threads, 1));
    return weft_fault_parse(&ctx->fault, getenv("WEFT_FAULT"));
}

/* A failed comparison is a result, not an accident: every rank has it, and nobody is aborted for it. */
static weft_status run_body(weft_cli *cli, weft_world *world)
{
    if (cli->options.timeout > 0) weft_world_set_timeout(world, cli->options.timeout);
    if (cli->command->ranks && !cli->options.peer_memory) weft_world_copy_only(world);
    weft_status st = cli->command->body(cli, world);
    if (st < 0 && st != WEFT_ERR_COMPARE) weft_world_abort(world, st, weft_last_error());
    weft_world_close(world);
    return st;
}

static int run_alone(weft_cli *cli)
{
    weft_ctx ctx;
    weft_world *world = NULL;
    int threads = cli->options.threads > 0 ? (int)cli->options.threads : weft_launch_cpus();
    weft_interrupt_block(cli->command);
    weft_status st = weft_launch_ctx(&ctx, 0, 1, threads);
    if (st >= 0) st = weft_world_self(&world, &ctx);
    if (st >= 0) st = run_body(cli, world);
    if (st < 0 && st != WEFT_ERR_COMPARE) fprintf(stderr, "weft: %s\n", weft_last_error());
    return weft_exit_code(st);
}

/* In a child the supervisor prints the message of the first rank that failed. */
static int run_as_child(weft_cli *cli, weft_local *local, int rank)
{
    weft_ctx ctx;
    weft_world *world = NULL;
    weft_interrupt_block(cli->command);
    weft_status st = weft_launch_ctx(&ctx, rank, weft_launch_ranks(cli), weft_local_threads(local));
    if (st >= 0) st = weft_world_local(&world, &ctx, local, rank);
    if (st >= 0) st = run_body(cli, world);
    else weft_local_abort(local, rank, st, weft_last_error());
    weft_local_destroy(local);
    return weft_exit_code(st);
}

/* The commonest reason for a run that is many times too slow (field report G36). Ranks alone may outnumber the
 * cores: they share them fairly. */
static void warn_of_crowding(const weft_cli *cli, int ranks)
{
    int64_t threads = cli->options.threads * ranks;
    int cpus = weft_launch_cpus();
    if (cli->options.threads > 1 && threads > cpus)
        fprintf(
            stderr,
            "weft: warning: %d rank%s x %lld threads on %d core%s that this process may use; --threads %d would fit\n",
            ranks, ranks > 1 ? "s" : "", (long long)cli->options.threads, cpus, cpus > 1 ? "s" : "",
            cpus / ranks > 1 ? cpus / ranks : 1);
}

static void tell(void *told, const char *message)
{
    *(bool *)told = true;
    fprintf(stderr, "weft: %s\n", message);
}

/* Without a launcher of MPI. */
static int launch_here(weft_cli *cli)
{
    int ranks = weft_launch_ranks(cli), rank = 0, code;
    weft_local *local = NULL;
    bool told = false;
    weft_status st = weft_local_from_env(&local, &rank);
    if (st >= 0 && local) return run_as_child(cli, local, rank);
    if (st >= 0 && weft_opts_given(&cli->opts, "run.mpi_progress") && strcmp(cli->options.mpi_progress, "auto"))
        st = weft_fail(WEFT_ERR_REFUSED, "--mpi-progress is for ranks that mpirun starts; weft starts its own here");
    if (st >= 0) warn_of_crowding(cli, ranks);
    if (st >= 0 && ranks == 1) return run_alone(cli);
    if (st >= 0) {
        weft_spawn spawn = {.ranks = ranks,
                            .threads_per_rank = (int)cli->options.threads,
                            .argv = cli->argv,
                            .grace_seconds = 3,
                            .timeout_seconds = cli->options.timeout,
                            .told = tell,
                            .ud = &told};
        st = weft_local_supervise(&spawn, &code);
    } else {
        code = weft_exit_code(st);
    }
    if (st < 0 && st != WEFT_ERR_COMPARE && !told) fprintf(stderr, "weft: %s\n", weft_last_error());
    return code;
}

int weft_launch(weft_cli *cli, weft_status so_far)
{
    weft_mpi_launch launch = {0};
    weft_status st = so_far;
    if (!getenv("WEFT_LOCAL_RANK")) {
        char message[1024];
        snprintf(message, sizeof message, "%s", weft_last_error());
        st = weft_mpi_launched(&launch);
        if (st >= 0 && launch.size > 0)
            return weft_launch_mpi(cli, &launch, so_far < 0 ? weft_fail(so_far, "%s", message) : so_far);
        if (st >= 0 && so_far < 0) st = weft_fail(so_far, "%s", message);
    }
    if (st >= 0) return launch_here(cli);
    int code = weft_exit_code(st);
    if (launch.size == 0) {
        fprintf(stderr, "weft: %s\n", weft_last_error());
        return code;
    }
    weft_launch_print_alone(&launch);
    weft_mpi_leave_job(code);
    return code;
}

bool weft_is_root(const weft_world *world) { return weft_world_rank(world) == 0; }

weft_status weft_need_file(const char *path, const char *what)
{
    weft_map map = {0};
    weft_status st = weft_map_open(&map, path);
    weft_map_close(&map);
    return st < 0 ? weft_fail_at(st, "%s: ", what) : WEFT_OK;
}
