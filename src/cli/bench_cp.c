/* bench_cp.c — `weft bench cp`: what one attention layer costs on its ranks, forward and backward, and how much of it
 * they stand still for the exchange; under mpirun for both ways of progress. */
#include "cli/bench.h"

#include <stdio.h>

static const char *const default_case = "T=2048 H=8/2 D=64 causal";

static weft_status check(weft_cli *cli)
{
    if (!cli->options.make) cli->options.make = default_case;
    return WEFT_OK;
}

/* One way under the other; the ratio says something only where there are two. */
static void print_ways(const weft_layer_bench *r)
{
    bool several = r->ways > 1;
    printf("\n%-16s %13s %13s %14s%s\n", "", "time, ms", "exposed, ms", "in flight, ms", several ? "    ratio" : "");
    for (int i = 0; i < r->ways; i++) {
        const weft_layer_way *w = &r->way[i];
        printf("%-16s %13.3f %13.4f %14.3f", w->name, 1e3 * w->seconds, 1e3 * w->exposed, 1e3 * w->flight);
        if (several) printf(" %8.2f", w->seconds / r->way[0].seconds);
        printf("\n");
    }
    printf("\nOf one layer, forward and backward, on the slowest rank; the median of nine\n"
           "repeats. exposed: it stood still for the exchange; in flight: a transfer was\n"
           "under way%s.\n",
           several ? "; ratio: time over that of the first line" : "");
}

static void print_result(const weft_cli *cli, const weft_world *world, const weft_layer_bench *r)
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
}

static weft_status body(weft_cli *cli, weft_world *world)
{
    weft_layer_bench r;
    const char *progress = weft_opts_given(&cli->opts, "run.mpi_progress") ? cli->options.mpi_progress : NULL;
    weft_status st = weft_bench_attention(world, &cli->run, progress, &r);
    if (st >= 0 && weft_is_root(world)) print_result(cli, world, &r);
    weft_text_free(&r.plan);
    return st;
}

static const char *const uses[] = {"parallel.", "attention.make", "run.", NULL};

const weft_bench weft_bench_cp = {"cp", 2, false, uses, check, body};
