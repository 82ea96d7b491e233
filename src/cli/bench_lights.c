/* bench_lights.c — what `weft bench step` says of its figures: fine, to be looked at, or bad, and which option may
 * help. */
#include "cli/bench_step.h"

#include <stdlib.h>

static const double hidden = 0.05; /* share of the step: less of it exposed is not worth an option */

/* ---- advice ----------------------------------------------------------------------------------------------- */

static weft_bytes_kind most_sent(const weft_step_bench *r)
{
    int most = 0;
    for (int k = 1; k < WEFT_BYTES_KINDS; k++)
        if (r->sent.of[k] > r->sent.of[most]) most = k;
    return (weft_bytes_kind)most;
}

static const char *advise_communication(const weft_cli *cli, const weft_step_bench *r)
{
    const weft_run_options *o = &cli->options;
    if (!o->async_cp_comm && cli->run.mesh.cp > 1)
        return "leave --no-async-cp-comm out: exchange and compute overlap";
    if (r->exposed < hidden && cli->run.mesh.cp > 1)
        return "nearly all of it hides under computing, which --no-async-cp-comm would end";
    switch (most_sent(r)) {
    case WEFT_BYTES_TP:
        return "most of it is tensor parallelism's: a smaller --tp, and --cp or --dp instead";
    case WEFT_BYTES_CP:
        return "most of it is keys and values: weft bench cp compares --cp-strategy and --cp-layout; --cp-comm-dtype "
               "bf16 halves fp32";
    case WEFT_BYTES_DP:
        if (!o->overlap_grad_reduce) return "leave --no-overlap-grad-reduce out: sums travel under the backward pass";
        return "most of it is sums of gradients, once a step: a larger --global-batch-size or --seq-length spreads "
               "them";
    case WEFT_BYTES_PP: return "most of it travels between stages: fewer of them, with a smaller --pp";
    default: return "next to no bytes: ranks wait for each other; a longer --seq-length, or fewer ranks";
    }
}

static const char *advise_utilisation(const weft_cli *cli, const weft_step_bench *r)
{
    const weft_mesh_shape m = cli->run.mesh;
    double waits = r->mean[WEFT_PART_EXCHANGE], other = r->mean[WEFT_PART_OTHER], disk = r->mean[WEFT_PART_OFFLOAD];
    if (r->crowded) return "threads outnumber the cores: fewer ranks, or a smaller --threads";
    if (disk > waits && disk > other) return "ranks wait for offloaded blocks: --offload host, or --recompute instead";
    if (other > waits) return "much of it is between kernels: a longer --seq-length or a larger --micro-batch-size";
    if (m.pp > 1) return "stages wait for each other: more micro-batches, with a larger --global-batch-size";
    if (r->imbalance > 1.05) return "ranks wait for the one with most to see: --cp-layout zigzag, striped or balanced";
    return "ranks wait for exchanges: see communication; --threads and --cp may be dealt otherwise";
}

static const char *advise_memory(const weft_cli *cli, const weft_step_bench *r)
{
    const weft_mesh_shape m = cli->run.mesh;
    (void)r;
    if (m.pp > 1) return "stages differ: --recompute full makes what the first keeps of several micro-batches smaller";
    if (m.cp > 1) return "ranks hold unequal shares: a --seq-length that 2 x cp divides, or another --cp-layout";
    return "parts differ: a --tp that divides heads, width and vocabulary (--vocab-size)";
}

void weft_step_lights(const weft_cli *cli, const weft_step_bench *r, weft_step_light out[WEFT_LIGHTS])
{
    static const char *(*const advise[WEFT_LIGHTS])(const weft_cli *, const weft_step_bench *) = {
        [WEFT_LIGHT_COMMUNICATION] = advise_communication, [WEFT_LIGHT_UTILISATION] = advise_utilisation,
        [WEFT_LIGHT_MEMORY] = advise_memory};
    const double value[WEFT_LIGHTS] = {[WEFT_LIGHT_COMMUNICATION] = r->flight, [WEFT_LIGHT_UTILISATION] = r->kernels,
                                       [WEFT_LIGHT_MEMORY] = weft_step_spread(r)};
    for (int k = 0; k < WEFT_LIGHTS; k++) {
        weft_light light = weft_light_of((weft_light_kind)k, value[k]);
        out[k] = (weft_step_light){(weft_light_kind)k, light, value[k],
                                   light == WEFT_LIGHT_OK ? "" : advise[k](cli, r)};
    }
}

/* ---- printing --------------------------------------------------------------------------------------------- */

/* The word carries the meaning; the colour, on terminals only, helps the eye. */
static void add_word(weft_text *t, weft_light light, bool colour)
{
    static const char *const colours[] = {"\033[32m", "\033[33m", "\033[31m"};
    weft_text_add(t, "%s%-4s%s", colour ? colours[light] : "", weft_light_word(light), colour ? "\033[0m" : "");
}

void weft_print_lights(const weft_step_light lights[WEFT_LIGHTS])
{
    const bool colour = weft_in_colour(stdout);
    weft_text t = {0};
    weft_text_add(&t, "\n");
    for (int k = 0; k < WEFT_LIGHTS; k++) {
        const weft_step_light *l = &lights[k];
        weft_text_add(&t, "%-14s %6.1f %%  ", weft_light_name(l->kind), weft_unsigned_nan(1e2 * l->value));
        add_word(&t, l->light, colour);
        weft_text_add(&t, "%s%s\n", *l->advice ? "  " : "", l->advice);
    }
    weft_print_lines(t.data ? t.data : "", WEFT_FOLD_UNDER);
    weft_text_free(&t);
}
