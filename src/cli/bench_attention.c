/* bench_attention.c — `weft bench attention 'bf16 B1 H16/4 D128 T16K causal fwd+bwd' ...`: time of attention on one
 * rank and its share of what the arithmetic units do, as a table for people or for programs. */
#include "cli/bench.h"
#include "cli/table.h"

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

#define TABLES (WEFT_IN_MD | WEFT_FOR_PROGRAMS) /* what a text's heading says once for all lines of a case */
static const weft_column columns[] = {
    {"case", NULL, "case", WEFT_CELL_CODE, TABLES, 0, 0, 0, 0, false},
    {"direction", NULL, "direction", WEFT_CELL_TEXT, TABLES, 0, 0, 0, 0, false},
    {"", NULL, NULL, WEFT_CELL_TEXT, WEFT_IN_TEXT, -10, 0, 0, 0, false},
    {"precision", NULL, "precision", WEFT_CELL_TEXT, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
    {"threads", NULL, "threads", WEFT_CELL_COUNT, TABLES, 0, 0, 0, 0, false},
    {"repeats", NULL, "repeats", WEFT_CELL_COUNT, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
    {"ms", NULL, "seconds", WEFT_CELL_REAL, WEFT_FOR_ALL, 12, 1e3, 3, 9, false},
    {"spread", " %", "spread", WEFT_CELL_REAL, WEFT_FOR_ALL, 7, 1e2, 1, 4, false},
    {"GFLOP/s", NULL, "flops", WEFT_CELL_REAL, WEFT_FOR_ALL, 12, 1e-9, 1, 6, false},
    {"roof", NULL, "roof", WEFT_CELL_REAL, WEFT_FOR_ALL, 12, 1e-9, 1, 6, true},
    {"share", " %", "share", WEFT_CELL_REAL, WEFT_FOR_ALL, 7, 1e2, 1, 4, true},
    {"best", NULL, "best", WEFT_CELL_REAL, WEFT_IN_JSONL, 0, 0, 0, 4, false},
    {"area", NULL, "area", WEFT_CELL_COUNT, WEFT_IN_JSONL, 0, 0, 0, 0, false},
    {"resident", NULL, "resident_peak", WEFT_CELL_COUNT, WEFT_IN_JSONL, 0, 0, 0, 0, false},
};
#undef TABLES
enum { COLUMNS = sizeof columns / sizeof *columns };

static void print_direction(const weft_table *t, const char *text, const weft_kernel_bench *b, int direction)
{
    const weft_kernel_figures *f = &b->of[direction];
    weft_table_row(t, (const weft_cell[COLUMNS]){{.text = text},
                                                 {.text = directions[direction]},
                                                 {.text = directions[direction]},
                                                 {.text = weft_prec_name(b->prec)},
                                                 {.count = b->threads},
                                                 {.count = b->repeats},
                                                 {.real = f->seconds},
                                                 {.real = f->spread},
                                                 {.real = f->flops},
                                                 {.real = f->roof},
                                                 {.real = f->share},
                                                 {.real = f->best},
                                                 {.count = b->area},
                                                 {.count = (int64_t)weft_resident_peak_bytes()}});
}

/* ---- the bench --------------------------------------------------------------------------------------------- */

static void print_case(const weft_table *t, const char *text, const weft_kernel_bench *r)
{
    if (weft_table_is_text(t)) {
        weft_say("\n%s\n  %s, %d thread%s, %d repeat%s; roof: %s\n", text, r->plan.data ? r->plan.data : "", r->threads,
                 r->threads > 1 ? "s" : "", r->repeats, r->repeats > 1 ? "s" : "",
                 r->roof_name ? r->roof_name : "none");
        weft_table_head(t);
    }
    for (int i = 0; i < WEFT_BENCH_DIRECTIONS; i++)
        if (r->measured[i]) print_direction(t, text, r, i);
}

static weft_status body(weft_cli *cli, weft_world *world)
{
    int given = cli->n_positional - 1, n = given ? given : (int)(sizeof default_cases / sizeof *default_cases);
    weft_table t = weft_table_of(cli->options.bench_format, columns, COLUMNS);
    t.left = 2;
    if (!weft_table_is_text(&t)) weft_table_head(&t);
    for (int i = 0; i < n; i++) {
        const char *text = given ? cli->positional[1 + i] : default_cases[i];
        weft_kernel_bench r;
        weft_status st = weft_bench_kernels(world, &cli->run, text, &r);
        if (st >= 0) print_case(&t, text, &r);
        weft_text_free(&r.plan);
        WEFT_TRY(st);
    }
    return WEFT_OK;
}

static const char *const uses[] = {"parallel.cp", "attention.dropout", "bench.format", "bench.repeats",
                                   "run.isa",     "run.threads",       "run.timeout",  NULL};

const weft_bench weft_bench_attention_kernels = {"attention", 1, true, uses, check, body};
