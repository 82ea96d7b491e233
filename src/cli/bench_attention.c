/* bench_attention.c — `weft bench attention 'bf16 B1 H16/4 D128 T16K causal fwd+bwd' ...`: time of attention on one
 * rank and its share of what the arithmetic units do, as a table for people or for programs. */
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

static const char *const default_cases[] = {"fp32 H2 D128 T4K causal", "bf16 H2 D128 T4K causal"};
static const char *const directions[WEFT_BENCH_DIRECTIONS] = {"fwd", "bwd", "fwd+bwd"};

static weft_status check(weft_cli *cli)
{
    if (cli->run.mesh.cp > 1)
        return weft_fail(
            WEFT_ERR_REFUSED,
            "bench attention --cp %d: it measures the kernels of one rank; weft bench cp measures a layer on ranks",
            cli->run.mesh.cp);
    /* a list takes minutes: its last case is refused before the first is measured */
    for (int i = 1; i < cli->n_positional; i++)
        WEFT_TRY(weft_bench_kernels_check(&cli->ctx, &cli->run, cli->positional[i]));
    return WEFT_OK;
}

/* ---- one line per direction -------------------------------------------------------------------------------- */

typedef struct line {
    const char *text, *direction;
    const weft_kernel_bench *b;
    const weft_kernel_figures *f;
} line;

typedef struct format {
    const char *name, *head;
    void (*print)(const line *l);
} format;

typedef struct beside_roof {
    char roof[24], share[16]; /* GFLOP/s, per cent */
} beside_roof;

static beside_roof roof_of(const weft_kernel_figures *f)
{
    beside_roof x = {"-", "-"};
    if (f->roof > 0) {
        snprintf(x.roof, sizeof x.roof, "%.1f", f->roof / 1e9);
        snprintf(x.share, sizeof x.share, "%.1f", 1e2 * f->share);
    }
    return x;
}

static void print_text(const line *l)
{
    const beside_roof x = roof_of(l->f);
    printf("  %-8s %12.3f %7.1f %% %12.1f %12s %7s%s\n", l->direction, 1e3 * l->f->seconds, 1e2 * l->f->spread,
           l->f->flops / 1e9, x.roof, x.share, l->f->roof > 0 ? " %" : "");
}

static void print_md(const line *l)
{
    const beside_roof x = roof_of(l->f);
    printf("| `%s` | %s | %d | %.3f | %.1f | %.1f | %s | %s |\n", l->text, l->direction, l->b->threads,
           1e3 * l->f->seconds, 1e2 * l->f->spread, l->f->flops / 1e9, x.roof, x.share);
}

static void print_csv(const line *l)
{
    printf("\"%s\",%s,%s,%d,%d,%.9g,%.4g,%.6g,%.6g,%.4g\n", l->text, l->direction, weft_prec_name(l->b->prec),
           l->b->threads, l->b->repeats, l->f->seconds, l->f->spread, l->f->flops, l->f->roof, l->f->share);
}

static void print_jsonl(const line *l)
{
    printf("{\"case\": ");
    weft_print_json_text(l->text);
    printf(", \"direction\": \"%s\", \"precision\": \"%s\", \"threads\": %d, \"repeats\": %d", l->direction,
           weft_prec_name(l->b->prec), l->b->threads, l->b->repeats);
    weft_print_json_real("seconds", l->f->seconds, 9);
    weft_print_json_real("spread", l->f->spread, 4);
    weft_print_json_real("flops", l->f->flops, 6);
    weft_print_json_real("roof", l->f->roof, 6);
    weft_print_json_real("share", l->f->share, 4);
    weft_print_json_real("best", l->f->best, 4);
    printf(", \"area\": %lld, \"resident_peak\": %.0f}\n", (long long)l->b->area, weft_resident_peak_bytes());
}

static const format formats[] = {
    {"text", "", print_text},
    {"md",
     "| case | direction | threads | ms | spread % | GFLOP/s | roof | share % |\n|---|---|---|---|---|---|---|---|\n",
     print_md},
    {"csv", "case,direction,precision,threads,repeats,seconds,spread,flops,roof,share\n", print_csv},
    {"jsonl", "", print_jsonl},
};

static const format *format_of(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(formats[i].name, name)) return &formats[i];
    return &formats[0];
}

/* ---- the bench --------------------------------------------------------------------------------------------- */

static void print_case(const char *text, const weft_kernel_bench *r, const format *to)
{
    if (to == formats)
        weft_say("\n%s\n  %s, %d thread%s, %d repeat%s; roof: %s\n  %-8s %12s %9s %12s %12s %9s\n", text,
                 r->plan.data ? r->plan.data : "", r->threads, r->threads > 1 ? "s" : "", r->repeats,
                 r->repeats > 1 ? "s" : "",
                 r->roof_name ? r->roof_name : "none", "", "ms", "spread", "GFLOP/s", "roof", "share");
    for (int i = 0; i < WEFT_BENCH_DIRECTIONS; i++)
        if (r->measured[i]) to->print(&(line){text, directions[i], r, &r->of[i]});
    fflush(stdout); /* a list of cases takes minutes: each is seen when it is done */
}

static weft_status body(weft_cli *cli, weft_world *world)
{
    int given = cli->n_positional - 1, n = given ? given : (int)(sizeof default_cases / sizeof *default_cases);
    const format *to = format_of(cli->options.bench_format);
    printf("%s", to->head);
    for (int i = 0; i < n; i++) {
        const char *text = given ? cli->positional[1 + i] : default_cases[i];
        weft_kernel_bench r;
        weft_status st = weft_bench_kernels(world, &cli->run, text, &r);
        if (st >= 0) print_case(text, &r, to);
        weft_text_free(&r.plan);
        WEFT_TRY(st);
    }
    return WEFT_OK;
}

static const char *const uses[] = {"parallel.cp", "attention.dropout", "bench.format", "bench.repeats",
                                   "run.isa",     "run.threads",       "run.timeout",  NULL};

const weft_bench weft_bench_attention_kernels = {"attention", 1, true, uses, check, body};
