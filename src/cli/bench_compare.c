/* bench_compare.c — `weft bench cp` without a strategy: all that apply, with each layout, with exchange and compute
 * overlapped and one after the other.
 *
 * They take turns: every round measures each of them once, so that whatever else the machine does meets all alike. Of
 * the rounds the median counts. */
#include "cli/bench_compare.h"
#include "cli/choices.h"
#include "cli/table.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 3, WAYS = 2 };

typedef struct entry { /* one strategy with one layout, overlapped or not */
    const char *strategy;
    weft_layout layout;
    bool overlap, refused;
    int ways;
    weft_layer_way way[WAYS][WEFT_BENCH_REPEATS_MAX];
    int64_t bytes, messages;
    size_t pool;
    double planned;
    char why[300];
} entry;

typedef struct comparison {
    const weft_cli *cli;
    weft_arena *arena;
    entry *list;
    int n, rounds;
} comparison;

/* ---- what is compared ------------------------------------------------------------------------------------------ */

static weft_status make_list(comparison *c)
{
    const weft_cli *cli = c->cli;
    const char *name[WEFT_NAMES_MAX];
    weft_layout layout[WEFT_NAMES_MAX];
    int names, kinds;
    bool chosen;
    const bool given = weft_opts_given(&cli->opts, "parallel.async_cp_comm");
    WEFT_TRY(weft_choose_strategies(cli, c->arena, name, &names, &chosen));
    WEFT_TRY(weft_choose_layouts(cli, c->arena, layout, &kinds));
    WEFT_TRY(WEFT_NEW0(c->arena, (int64_t)names * kinds * 2, "comparison", &c->list));
    for (int s = 0; s < names; s++)
        for (int l = 0; l < kinds; l++)
            for (int overlap = 1; overlap >= 0; overlap--) {
                if (!strcmp(name[s], "none") || (given && overlap != cli->run.cp.overlap)) continue;
                c->list[c->n++] = (entry){.strategy = name[s], .layout = layout[l], .overlap = overlap};
            }
    return c->n ? WEFT_OK : weft_fail(WEFT_ERR_REFUSED, "bench cp: none is no way to exchange anything; name others");
}

weft_status weft_compare_check(const weft_cli *cli)
{
    comparison c = {.cli = cli, .arena = cli->arena};
    return make_list(&c);
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

/* One round of one entry. What cannot run is refused on all ranks alike, before a byte moves. */
static weft_status measure(const comparison *c, entry *e, int round, weft_world *world)
{
    const weft_cli *cli = c->cli;
    weft_run_options options = cli->options;
    weft_run run = cli->run;
    weft_layer_bench r;
    const char *progress = weft_opts_given(&cli->opts, "run.mpi_progress") ? options.mpi_progress : NULL;
    if (e->refused) return WEFT_OK;
    options.bench_repeats = 1;
    run.o = &options;
    run.cp.strategy = e->strategy;
    run.cp.overlap = e->overlap;
    run.layout = e->layout;
    weft_status st = weft_bench_attention(world, &run, progress, WEFT_AGAINST_NOTHING, &r);
    weft_text_free(&r.plan);
    e->refused = st == WEFT_ERR_REFUSED;
    if (e->refused) weft_format(e->why, sizeof e->why, "%s", weft_last_error());
    if (st < 0) return e->refused ? WEFT_OK : st;
    e->ways = r.ways;
    e->bytes = r.bytes;
    e->messages = r.messages;
    e->pool = r.pool_bytes;
    e->planned = r.planned_seconds;
    for (int w = 0; w < r.ways; w++) e->way[w][round] = r.way[w];
    return WEFT_OK;
}

typedef enum { SECONDS, EXPOSED, FLIGHT } figure;

static double median(const comparison *c, const weft_layer_way *of, figure what)
{
    double x[WEFT_BENCH_REPEATS_MAX];
    for (int i = 0; i < c->rounds; i++)
        x[i] = what == SECONDS ? of[i].seconds : what == EXPOSED ? of[i].exposed : of[i].flight;
    return weft_sorted(x, c->rounds);
}

/* Of the round that others disturbed least. */
static double least_seconds(const comparison *c, const weft_layer_way *of)
{
    double least = of[0].seconds;
    for (int i = 1; i < c->rounds; i++) least = fmin(least, of[i].seconds);
    return least;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define REAL(head, unit, key, width, scale, decimals, digits) \
    {head, unit, key, WEFT_CELL_REAL, WEFT_FOR_ALL, width, scale, decimals, digits, false}
static const weft_column columns[] = {
    {"case", NULL, "case", WEFT_CELL_CODE, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
    {"precision", NULL, "precision", WEFT_CELL_TEXT, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
    {"ranks", NULL, "ranks", WEFT_CELL_COUNT, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
    {"threads", NULL, "threads", WEFT_CELL_COUNT, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
    {"", NULL, "best", WEFT_CELL_TEXT, WEFT_FOR_ALL, -1, 0, 0, 0, false},
    {"strategy", NULL, "strategy", WEFT_CELL_TEXT, WEFT_FOR_ALL, -12, 0, 0, 0, false},
    {"layout", NULL, "layout", WEFT_CELL_TEXT, WEFT_FOR_ALL, -10, 0, 0, 0, false},
    {"overlap", NULL, "overlap", WEFT_CELL_TEXT, WEFT_FOR_ALL, -7, 0, 0, 0, false},
    {"progress", NULL, "progress", WEFT_CELL_TEXT, WEFT_IN_MD | WEFT_FOR_PROGRAMS, -8, 0, 0, 0, false},
    REAL("ms", NULL, "seconds", 9, 1e3, 3, 9),
    {"least", NULL, "least_seconds", WEFT_CELL_REAL, WEFT_FOR_PROGRAMS, 0, 1e3, 3, 9, false},
    {"planned", NULL, "planned_seconds", WEFT_CELL_REAL, WEFT_FOR_ALL, 8, 1e3, 3, 9, true},
    REAL("x best", NULL, "ratio", 6, 0, 2, 6),
    REAL("exposed us", NULL, "exposed", 10, 1e6, 1, 9),
    REAL("share", " %", "exposed_share", 5, 100, 1, 6),
    REAL("in flight", " %", "flight_share", 9, 100, 1, 6),
    REAL("sent", " MiB", "bytes", 7, 1.0 / (1 << 20), 2, 15),
    {"messages", NULL, "messages", WEFT_CELL_COUNT, WEFT_FOR_ALL, 8, 0, 0, 0, false},
    {"buffers", NULL, "buffers", WEFT_CELL_COUNT, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
};
#undef REAL

typedef struct best { const entry *e; int way; double seconds; } best;

static best find_best(const comparison *c)
{
    best b = {NULL, 0, 0};
    for (int i = 0; i < c->n; i++)
        for (int w = 0; w < c->list[i].ways && !c->list[i].refused; w++) {
            double seconds = median(c, c->list[i].way[w], SECONDS);
            if (!b.e || seconds < b.seconds) b = (best){&c->list[i], w, seconds};
        }
    return b;
}

static void print_row(const comparison *c, const weft_table *t, const weft_world *world, const entry *e, int w,
                      const best *b)
{
    char layout[48];
    const weft_layer_way *of = e->way[w];
    double seconds = median(c, of, SECONDS), exposed = median(c, of, EXPOSED);
    const weft_cell cells[] = {
        {.text = c->cli->options.make}, {.text = c->cli->options.precision}, {.count = weft_world_size(world)},
        {.count = weft_world_ctx(world)->threads}, {.text = e == b->e && w == b->way ? "*" : ""}, {.text = e->strategy},
        {.text = weft_layout_text(e->layout, layout, sizeof layout)}, {.text = e->overlap ? "on" : "off"},
        {.text = of[0].name}, {.real = seconds}, {.real = least_seconds(c, of)}, {.real = e->planned},
        {.real = seconds / b->seconds}, {.real = exposed}, {.real = exposed / seconds},
        {.real = median(c, of, FLIGHT) / seconds}, {.real = (double)e->bytes}, {.count = e->messages},
        {.count = (int64_t)e->pool}};
    weft_table_row(t, cells);
}

static void print_head(const comparison *c, const weft_world *world)
{
    char transport[160];
    const weft_ctx *ctx = weft_world_ctx(world);
    weft_world_describe(world, transport, sizeof transport);
    weft_say("%d ranks (%s), %d thread%s each, kernels %s, %s\ncase     %s\n\n", weft_world_size(world), transport,
             ctx->threads, ctx->threads > 1 ? "s" : "", weft_isa_name(c->cli->run.isa), c->cli->options.precision,
             c->cli->options.make);
}

static bool same_but_overlap(const entry *a, const entry *b)
{
    return !strcmp(a->strategy, b->strategy) && a->layout.kind == b->layout.kind && a->layout.block == b->layout.block;
}

static void print_notes(const comparison *c)
{
    char layout[48];
    weft_text t = {0}, refused = {0};
    weft_text_add(&t, "\nOne layer, forward and backward, on the slowest rank; the median of %d round%s, in which all "
                  "took turns. planned: ms by --profile; exposed: microseconds in which it stood still for the "
                  "exchange, and their share of the time; in flight: a transfer was under way; sent: by all ranks; "
                  "* the fastest.\n", c->rounds, c->rounds > 1 ? "s" : "");
    for (int i = 0; i < c->n; i++) {
        const entry *e = &c->list[i];
        if (e->refused && (i == 0 || !same_but_overlap(e, &c->list[i - 1])))
            weft_text_add(&refused, "%s, %s: refused: %s\n", e->strategy,
                          weft_layout_text(e->layout, layout, sizeof layout), e->why);
    }
    weft_print_prose(stdout, t.data ? t.data : "", 0);
    if (refused.data) weft_print_prose(stdout, refused.data, 2);
    weft_text_free(&refused);
    weft_text_free(&t);
}

static weft_status print(const comparison *c, const weft_world *world)
{
    const weft_table t = weft_table_of(c->cli->options.bench_format, columns, sizeof columns / sizeof *columns);
    const best b = find_best(c);
    if (!b.e) return weft_fail(WEFT_ERR_REFUSED, "none of the strategies can do this; the first: %s", c->list[0].why);
    if (!weft_is_root(world)) return WEFT_OK;
    if (weft_table_is_text(&t)) print_head(c, world);
    weft_table_head(&t);
    for (int i = 0; i < c->n; i++)
        for (int w = 0; w < c->list[i].ways && !c->list[i].refused; w++) print_row(c, &t, world, &c->list[i], w, &b);
    if (weft_table_is_text(&t)) print_notes(c);
    return WEFT_OK;
}

weft_status weft_compare_run(weft_cli *cli, weft_world *world)
{
    comparison c = {.cli = cli, .arena = cli->arena};
    const int64_t given = cli->options.bench_repeats;
    c.rounds = given ? (int)given : ROUNDS;
    WEFT_TRY(make_list(&c));
    for (int round = 0; round < c.rounds; round++)
        for (int i = 0; i < c.n; i++) WEFT_TRY(measure(&c, &c.list[i], round, world));
    return print(&c, world);
}
