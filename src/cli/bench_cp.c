/* bench_cp.c — `weft bench cp`: what one attention layer costs on its ranks, forward and backward, and how much of it
 * they stand still for the exchange; under mpirun for both ways of progress. Without a strategy all of them are
 * compared (bench_compare.c). With --against own or whole: how much of
 * it the same work takes where nothing is exchanged. */
#include "cli/bench_compare.h"

#include <stdio.h>
#include <string.h>

static const char *const default_case = "T=2048 H=8/2 D=64 causal";

static weft_layer_against against(const weft_cli *cli);

/* Nobody has said how keys and values travel, and there is more than one way. */
static bool compares(const weft_cli *cli)
{
    return cli->run.mesh.cp > 1 && against(cli) == WEFT_AGAINST_NOTHING && !weft_run_names_strategy(&cli->opts);
}

static weft_status check(weft_cli *cli)
{
    const char *format = cli->options.bench_format;
    if (!cli->options.make) cli->options.make = default_case;
    if (compares(cli)) return weft_compare_check(cli);
    if (cli->options.sim_strategies || cli->options.sim_layouts)
        return weft_fail(WEFT_ERR_REFUSED, "bench cp: --strategies and --layouts are compared where no strategy is "
                         "named, without --against and on more than one rank; leave them out, or those");
    if (strcmp(format, "text") && strcmp(format, "jsonl"))
        return weft_fail(WEFT_ERR_REFUSED, "bench cp --format %s: of one strategy it prints text or jsonl; without "
                         "--cp-strategy and --against it compares all, in any format", format);
    return WEFT_OK;
}

static weft_layer_against against(const weft_cli *cli)
{
    const char *word = cli->options.bench_against;
    return !strcmp(word, "own") ? WEFT_AGAINST_OWN
           : !strcmp(word, "whole") ? WEFT_AGAINST_WHOLE
                                    : WEFT_AGAINST_NOTHING;
}

/* ---- text ------------------------------------------------------------------------------------------------- */

/* One way under the other; the ratio says something only where there are two. */
static void print_ways(const weft_layer_bench *r)
{
    bool several = r->ways > 1;
    printf("\n%-16s %13s %13s %14s%s\n", "", "time, ms", "exposed, ms", "in flight, ms", several ? "    ratio" : "");
    for (int i = 0; i < r->ways; i++) {
        const weft_layer_way *w = &r->way[i];
        printf("%-16s %13.3f %13.4f %14.3f", w->name, 1e3 * w->seconds, 1e3 * w->exposed, 1e3 * w->flight);
        if (several) printf(" %8.2f", weft_unsigned_nan(w->seconds / r->way[0].seconds));
        printf("\n");
    }
    printf("\nOf one layer, forward and backward, on the slowest rank; the median of %d\n"
           "repeats. exposed: it stood still for the exchange; in flight: a transfer was\n"
           "under way%s.\n",
           r->repeats, several ? "; ratio: time over that of the first line" : "");
}

static void print_own(const weft_layer_bench *r)
{
    printf("\n%-16s %13s %13s %9s %9s %9s\n", "own work", "time, ms", "cpu, ms", "share", "cpu share", "steps");
    for (int i = 0; i < r->ways; i++) {
        const weft_layer_way *w = &r->way[i];
        printf("%-16s %13.3f %13.3f %9.4f %9.4f %9.4f\n", w->name, 1e3 * w->alone, 1e3 * w->alone_cpu, w->share,
               w->cpu_share, w->steps);
    }
    printf("\nEvery rank's own queries with all keys at hand, all ranks at once. share: that\n"
           "over the layer's time, of the rank where it is lowest; steps: seconds in\n"
           "kernels, step by step, over those in one piece.\n");
}

static void print_whole(const weft_layer_bench *r)
{
    printf("\n%-16s %11s %11s %11s %11s %9s\n", "on one rank", "time, ms", "cpu, ms", "busiest, ms", "mean, ms",
           "cpu share");
    for (int i = 0; i < r->ways; i++) {
        const weft_layer_way *w = &r->way[i];
        printf("%-16s %11.3f %11.3f %11.3f %11.3f %9.4f\n", w->name, 1e3 * w->alone, 1e3 * w->alone_cpu, 1e3 * w->cpu,
               1e3 * w->cpu_mean, w->cpu_share);
    }
    printf("\nAll of it on one rank: time and processor time; beside it the processor time of\n"
           "the layer on the busiest rank and on average. cpu share: that of one rank,\n"
           "divided by the number of ranks, over that of the busiest.\n");
}

static void print_text(const weft_cli *cli, const weft_world *world, const weft_layer_bench *r)
{
    char transport[160], bytes[32], pool[32];
    const weft_ctx *ctx = weft_world_ctx(world);
    weft_world_describe(world, transport, sizeof transport);
    weft_say("%d rank%s (%s), %d thread%s each, kernels %s, %s\n", weft_world_size(world),
             weft_world_size(world) > 1 ? "s" : "", transport, ctx->threads, ctx->threads > 1 ? "s" : "",
             weft_isa_name(cli->run.isa), cli->options.precision);
    weft_say("case     %s\nplan     %s\nbuffers  %s per rank\n", cli->options.make, r->plan.data ? r->plan.data : "",
             weft_format_bytes((double)r->pool_bytes, pool, sizeof pool));
    weft_say("sent     %s in %lld messages by all ranks, forward and backward of one layer\n",
             weft_format_bytes((double)r->bytes, bytes, sizeof bytes), (long long)r->messages);
    print_ways(r);
    if (against(cli) == WEFT_AGAINST_OWN) print_own(r);
    if (against(cli) == WEFT_AGAINST_WHOLE) print_whole(r);
}

/* ---- for programs ----------------------------------------------------------------------------------------- */

static void print_jsonl(const weft_cli *cli, const weft_world *world, const weft_layer_bench *r)
{
    for (int i = 0; i < r->ways; i++) {
        const weft_layer_way *w = &r->way[i];
        printf("{\"case\": ");
        weft_print_json_text(cli->options.make);
        printf(", \"plan\": \"%s\", \"precision\": \"%s\", \"ranks\": %d, \"threads\": %d, "
               "\"way\": \"%s\", \"repeats\": %d, \"bytes\": %lld, \"messages\": %lld",
               r->plan.data ? r->plan.data : "", cli->options.precision, weft_world_size(world),
               weft_world_ctx(world)->threads, w->name, r->repeats, (long long)r->bytes, (long long)r->messages);
        const struct { const char *key; double x; } measured[] = {
            {"seconds", w->seconds}, {"exposed", w->exposed}, {"flight", w->flight}, {"cpu", w->cpu},
            {"cpu_mean", w->cpu_mean}, {"alone", w->alone}, {"alone_cpu", w->alone_cpu}, {"share", w->share},
            {"share_mean", w->share_mean}, {"cpu_share", w->cpu_share}, {"steps", w->steps}};
        for (size_t k = 0; k < sizeof measured / sizeof *measured; k++)
            weft_print_json_real(measured[k].key, measured[k].x, 9);
        printf(", \"against\": \"%s\"}\n", cli->options.bench_against);
    }
}

static weft_status body(weft_cli *cli, weft_world *world)
{
    weft_layer_bench r;
    if (compares(cli)) return weft_compare_run(cli, world);
    const char *progress = weft_opts_given(&cli->opts, "run.mpi_progress") ? cli->options.mpi_progress : NULL;
    weft_status st = weft_bench_attention(world, &cli->run, progress, against(cli), &r);
    if (st >= 0 && weft_is_root(world))
        (strcmp(cli->options.bench_format, "jsonl") ? print_text : print_jsonl)(cli, world, &r);
    weft_text_free(&r.plan);
    return st;
}

/* All that says how one sequence is cut; no other sizes of a mesh. */
static const char *const uses[] = {
    "parallel.cp", "parallel.cp_strategy", "parallel.cp_comm_type", "parallel.pcp_size", "parallel.dcp_size",
    "parallel.cp_head_size", "parallel.cp_keep_heads", "parallel.cp_layout", "parallel.async_cp_comm",
    "parallel.cp_aggregation_buffer_size", "parallel.cp_comm_dtype", "parallel.cp_grad_dtype", "parallel.fp8",
    "parallel.peer_memory", "parallel.profile", "attention.make", "attention.dropout", "bench.format",
    "bench.repeats", "bench.against", "sim.strategies", "sim.layouts", "run.", NULL};

const weft_bench weft_bench_cp = {"cp", 2, false, uses, check, body};
