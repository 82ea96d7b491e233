/* bench_step.c — `weft bench step`: training steps of a model given by options, on any ranks: how fast, how much of the
 * machine that is, and where the time and the memory go. */
#include "cli/bench_step.h"
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

static weft_status check(weft_cli *cli)
{
    weft_model_config config;
    int64_t micros;
    if (cli->options.bench_sweep) return weft_sweep_check(cli);
    WEFT_TRY(weft_run_accumulation(&cli->run, &micros));
    WEFT_TRY(weft_run_model_config(&cli->run, &config));
    return weft_run_check_offload(&cli->run, &config, micros);
}

double weft_step_mfu(const weft_step_bench *r) { return r->roof > 0 ? r->flops / r->seconds / r->roof : 0; }

double weft_step_spread(const weft_step_bench *r)
{
    const weft_memory_report *m = &r->memory;
    return m->mean_total > 0 ? (double)m->most_total / m->mean_total - 1 : 0;
}

static const char *bytes_text(double bytes, char buf[32]) { return weft_format_bytes(bytes, buf, 32); }

/* ---- text ------------------------------------------------------------------------------------------------- */

static void add_model(const weft_cli *cli, const weft_step_bench *r, weft_text *t)
{
    weft_text_add(t, "model     %s, %lld parameters, %s, %lld tokens a step, ", cli->options.family,
                  (long long)r->params, cli->options.precision, (long long)r->tokens);
    if (r->ranks > 1) {
        weft_text_add(t, "%d ranks: ", r->ranks);
        weft_mesh_describe(cli->run.mesh, t);
        weft_text_add(t, "%s, ", cli->run.sequence_parallel ? ", sequence parallel" : "");
    }
    weft_text_add(t, "%d thread%s%s, kernels %s\n", r->threads, r->threads > 1 ? "s" : "", r->ranks > 1 ? " each" : "",
                  weft_isa_name(cli->run.isa));
    weft_text_add_under(t, "attention ", r->plan.data ? r->plan.data : "\n");
}

static void add_speed(const weft_step_bench *r, weft_text *t)
{
    int threads = r->ranks * r->threads;
    double planned = r->planned_seconds;
    weft_text_add(t, "step      %.2f ms (spread %.1f %% of %lld), %.0f tokens/s, %.1f GFLOP/s\n", 1e3 * r->seconds,
                  1e2 * r->spread, (long long)r->repeats, (double)r->tokens / r->seconds, r->flops / r->seconds / 1e9);
    if (planned > 0)
        weft_text_add(t, "predicted %.2f ms by the profile: the step takes %.3f of it\n", 1e3 * planned,
                      r->seconds / planned);
    if (r->roof > 0)
        weft_text_add(t, "mfu       %.1f %% of the %.1f GFLOP/s that %d thread%s reach (%s)\n", 1e2 * weft_step_mfu(r),
                      r->roof / 1e9, threads, threads > 1 ? "s together" : "", r->roof_name);
    else weft_text_add(t, "mfu       unknown: kernels of this precision have no roof that is measured\n");
}

static void add_memory(const weft_step_bench *r, weft_text *t)
{
    const weft_memory_report *m = &r->memory;
    double planned = (double)weft_memory_total(&m->planned);
    char a[32], b[32], c[32];
    if (r->ranks == 1)
        weft_text_add(t, "memory    %s by account, %s planned, %s resident", bytes_text(r->peak_bytes, a),
                      bytes_text(planned, b), bytes_text((double)m->resident, c));
    else
        weft_text_add(t, "memory    %s on rank %d, which holds most (%s planned), %s at least",
                      bytes_text((double)m->most_total, a), m->rank, bytes_text(planned, b),
                      bytes_text((double)m->least_total, c));
    if (r->file_bytes > 0) weft_text_add(t, "; in a file %s", bytes_text(r->file_bytes, a));
    weft_text_add(t, "\n");
}

/* What only several ranks have. */
static void add_ranks(const weft_step_bench *r, weft_text *t)
{
    char buf[32];
    if (r->ranks == 1) return;
    weft_text_add(t, "exchange  %.1f %% of the step with a transfer in flight (at most %.1f %%), %.1f %% exposed (at "
                  "most %.1f %%)\n", 1e2 * r->flight, 1e2 * r->flight_most, 1e2 * r->exposed, 1e2 * r->exposed_most);
    weft_text_add(t, "sent      %s a step by the rank that sends most",
                  bytes_text((double)weft_bytes_total(&r->sent), buf));
    const char *before = ": ";
    for (int k = 0; k < WEFT_BYTES_KINDS; k++) {
        if (r->sent.of[k] == 0) continue;
        weft_text_add(t, "%s%s %s", before, weft_bytes_name((weft_bytes_kind)k),
                      bytes_text((double)r->sent.of[k], buf));
        before = ", ";
    }
    weft_text_add(t, "\nimbalance of attention, largest over mean: area %.3f, seconds %.3f\n", r->imbalance,
                  r->imbalance_time);
    if (r->crowded)
        weft_text_add(t, "crowded   %d threads share fewer cores: times are not those of ranks with cores of their "
                      "own\n", r->ranks * r->threads);
}

static void add_parts(const weft_step_bench *r, weft_text *t)
{
    double sum = 0, mean = 0;
    const bool several = r->ranks > 1;
    char slowest[32];
    snprintf(slowest, sizeof slowest, "rank %d, ms", r->slowest);
    weft_text_add(t, "\n%-12s %10s %8s", "part", several ? slowest : "ms", "share");
    weft_text_add(t, several ? " %10s\n" : "%s\n", several ? "mean, ms" : "");
    for (int i = 1; i <= WEFT_PARTS; i++) { /* what nobody claimed comes last */
        weft_part part = (weft_part)(i % WEFT_PARTS);
        sum += r->part[part], mean += r->mean[part];
        if (r->mean[part] <= 0) continue;
        weft_text_add(t, "%-12s %10.2f %7.1f %%", weft_part_name(part), 1e3 * r->part[part],
                      1e2 * r->part[part] / r->seconds);
        if (several) weft_text_add(t, " %10.2f", 1e3 * r->mean[part]);
        weft_text_add(t, "\n");
    }
    weft_text_add(t, "%-12s %10.2f %7.1f %%", "sum", 1e3 * sum, 1e2 * sum / r->seconds);
    if (several) weft_text_add(t, " %10.2f", 1e3 * mean);
    weft_text_add(t, "\n");
    if (several) weft_text_add(t, "\nRank %d waited least for others.\n", r->slowest);
}

static void add_products(const weft_step_bench *r, weft_text *t)
{
    double rest = r->seconds - r->part[WEFT_PART_PRODUCTS] - r->part[WEFT_PART_ATTENTION];
    if (r->products)
        weft_text_add(t, "\nproducts  %lld a step; alone %.2f ms, which is %.3f of their time in the step\n",
                      (long long)r->products, 1e3 * r->products_alone,
                      weft_unsigned_nan(r->products_alone / r->part[WEFT_PART_PRODUCTS]));
    weft_text_add(t, "outside   products and attention: %.1f %% of the step\n", 1e2 * rest / r->seconds);
}

static void print_text(const weft_cli *cli, const weft_step_bench *r)
{
    weft_text t = {0};
    weft_step_light lights[WEFT_LIGHTS];
    add_model(cli, r, &t);
    add_speed(r, &t);
    add_memory(r, &t);
    add_ranks(r, &t);
    add_parts(r, &t);
    add_products(r, &t);
    weft_print_lines(t.data ? t.data : "", WEFT_FOLD_UNDER);
    weft_text_free(&t);
    weft_step_lights(cli, r, lights);
    weft_print_lights(lights);
}

/* ---- for programs ----------------------------------------------------------------------------------------- */

typedef struct figure { const char *name; double value; int digits; } figure;
enum { FIGURES_MAX = 32 };

static int figures_of(const weft_step_bench *r, figure *out)
{
    const weft_memory_report *m = &r->memory;
    const figure all[] = {
        {"seconds", r->seconds, 9}, {"planned_seconds", r->planned_seconds, 9}, {"spread", r->spread, 4},
        {"tokens_per_second", (double)r->tokens / r->seconds, 6}, {"flops", r->flops, 6}, {"roof", r->roof, 6},
        {"mfu", weft_step_mfu(r), 4}, {"comm_share", r->flight, 4}, {"comm_share_most", r->flight_most, 4},
        {"exposed_share", r->exposed, 4}, {"exposed_share_most", r->exposed_most, 4}, {"utilisation", r->kernels, 4},
        {"imbalance", r->imbalance, 6}, {"imbalance_time", r->imbalance_time, 4},
        {"bytes_sent", (double)weft_bytes_total(&r->sent), 15}, {"memory", r->peak_bytes, 15},
        {"memory_held", (double)m->most_total, 15}, {"memory_least", (double)m->least_total, 15},
        {"memory_mean", m->mean_total, 15}, {"memory_planned", (double)weft_memory_total(&m->planned), 15},
        {"memory_spread", weft_step_spread(r), 4}, {"resident", (double)m->resident, 15}, {"file", r->file_bytes, 15},
        {"products_alone", r->products_alone, 9}, {"loss", r->loss, 9},
    };
    _Static_assert(sizeof all / sizeof *all <= FIGURES_MAX, "room for all figures");
    memcpy(out, all, sizeof all);
    return (int)(sizeof all / sizeof *all);
}

static void print_seconds(const char *key, const double *part)
{
    char number[40];
    printf(", \"%s\": {", key);
    for (int i = 0; i < WEFT_PARTS; i++)
        printf("%s\"%s\": %s", i ? ", " : "", weft_part_name((weft_part)i),
               weft_format_json(number, sizeof number, part[i], 9));
    printf("}");
}

static void print_planned(const weft_step_bench *r)
{
    char number[40];
    printf(", \"planned_parts\": {");
    for (int i = 0; i < WEFT_TIMES; i++)
        printf("%s\"%s\": %s", i ? ", " : "", weft_time_name((weft_time_part)i),
               weft_format_json(number, sizeof number, r->planned.seconds[i], 9));
    printf("}");
}

static void print_jsonl(const weft_cli *cli, const weft_step_bench *r)
{
    const weft_mesh_shape m = cli->run.mesh;
    figure f[FIGURES_MAX];
    weft_step_light lights[WEFT_LIGHTS];
    printf("{\"family\": \"%s\", \"precision\": \"%s\", \"ranks\": %d, \"tp\": %d, \"cp\": %d, \"dp\": %d, \"pp\": %d, "
           "\"threads\": %d, \"params\": %lld, \"tokens\": %lld, \"repeats\": %lld",
           cli->options.family, cli->options.precision, r->ranks, m.tp, m.cp, m.dp, m.pp, r->threads,
           (long long)r->params, (long long)r->tokens, (long long)r->repeats);
    for (int i = 0, n = figures_of(r, f); i < n; i++) weft_print_json_real(f[i].name, f[i].value, f[i].digits);
    printf(", \"sent\": {");
    for (int k = 0; k < WEFT_BYTES_KINDS; k++)
        printf("%s\"%s\": %lld", k ? ", " : "", weft_bytes_name((weft_bytes_kind)k), (long long)r->sent.of[k]);
    printf("}, \"slowest\": %d", r->slowest);
    print_seconds("parts", r->part);
    print_seconds("parts_mean", r->mean);
    if (r->planned_seconds > 0) print_planned(r);
    printf(", \"lights\": {");
    weft_step_lights(cli, r, lights);
    for (int k = 0; k < WEFT_LIGHTS; k++)
        printf("%s\"%s\": \"%s\"", k ? ", " : "", weft_light_name(lights[k].kind), weft_light_word(lights[k].light));
    printf("}}\n");
}

static void print_figure(const weft_table *t, const char *name, double value)
{
    weft_table_row(t, (const weft_cell[]){{.text = name}, {.real = value}});
}

/* A row per figure: so few of them fit beside each other on a page. */
static void print_rows(const weft_step_bench *r, const char *format)
{
    static const weft_column columns[] = {
        {"figure", NULL, "figure", WEFT_CELL_TEXT, WEFT_FOR_ALL, -30, 0, 0, 0, false},
        {"value", NULL, "value", WEFT_CELL_REAL, WEFT_FOR_ALL, 16, 0, 4, 12, false}};
    const weft_table t = weft_table_of(format, columns, sizeof columns / sizeof *columns);
    figure f[FIGURES_MAX];
    char name[40];
    weft_table_head(&t);
    for (int i = 0, n = figures_of(r, f); i < n; i++) print_figure(&t, f[i].name, f[i].value);
    for (int i = 0; i < WEFT_PARTS; i++) {
        if (r->mean[i] <= 0) continue;
        snprintf(name, sizeof name, "seconds in %s", weft_part_name((weft_part)i));
        print_figure(&t, name, r->part[i]);
    }
}

static void print(const weft_cli *cli, const weft_step_bench *r)
{
    const char *format = cli->options.bench_format;
    if (!strcmp(format, "jsonl")) print_jsonl(cli, r);
    else if (!strcmp(format, "text")) print_text(cli, r);
    else print_rows(r, format);
}

static weft_status body(weft_cli *cli, weft_world *world)
{
    weft_step_bench r;
    if (cli->options.bench_sweep) return weft_sweep_run(cli);
    weft_status st = weft_bench_step_run(world, &cli->run, &r);
    if (st >= 0 && weft_is_root(world)) print(cli, &r);
    weft_text_free(&r.plan);
    return st;
}

static const char *const uses[] = {"parallel.", "model.", "train.", "guard.", "memory.", "optim.",
                                   "bench.format", "bench.repeats", "bench.sweep", "run.", NULL};

const weft_bench weft_bench_step = {"step", 1, false, uses, check, body};
