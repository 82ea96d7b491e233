/* bench_gemm.c — `weft bench gemm ['bf16 M4096 N4096 K4096 nt' ...]`: matrix products on one rank as the model calls
 * them, and their share of what the arithmetic units do. Without words: the products of a training step of the model
 * that the options give, at --micro-batch-size x --seq-length rows. */
#include "cli/bench.h"
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

enum { CASES = WEFT_POSITIONAL_MAX }; /* more than a model has products */
_Static_assert((int)CASES >= (int)WEFT_MODEL_PRODUCTS, "the products of a model fit");

typedef struct product {
    const char *name; /* the words, or a product of the model */
    weft_product_case of;
    int64_t calls;    /* of a step; 0: not of a model */
} product;

static weft_status given_products(const weft_cli *cli, product *list, int *n)
{
    *n = cli->n_positional - 1;
    for (int i = 0; i < *n; i++) {
        list[i] = (product){.name = cli->positional[1 + i]};
        WEFT_TRY(weft_product_of_text(&list[i].of, cli->run.prec, list[i].name));
    }
    return WEFT_OK;
}

static weft_status model_products(const weft_cli *cli, weft_model_product model[WEFT_MODEL_PRODUCTS], product *list)
{
    weft_model_config config;
    int64_t rows = 0;
    WEFT_TRY(weft_run_model_config(&cli->run, &config));
    if (!weft_mul_i64(cli->options.micro_batch, cli->options.seq_length, &rows))
        return weft_fail(WEFT_ERR_REFUSED, "%lld sequences of %lld tokens are too many to count",
                         (long long)cli->options.micro_batch, (long long)cli->options.seq_length);
    WEFT_TRY(weft_model_products(&config, cli->run.prec, rows, model));
    for (int i = 0; i < WEFT_MODEL_PRODUCTS; i++)
        list[i] = (product){model[i].name, {cli->run.prec, model[i].args}, model[i].calls};
    return WEFT_OK;
}

static weft_status list_products(const weft_cli *cli, weft_model_product model[WEFT_MODEL_PRODUCTS], product *list,
                                 int *n)
{
    *n = WEFT_MODEL_PRODUCTS;
    return cli->n_positional > 1 ? given_products(cli, list, n) : model_products(cli, model, list);
}

/* A list takes minutes: its last product is refused before the first is measured. */
static weft_status check(weft_cli *cli)
{
    product list[CASES];
    weft_model_product model[WEFT_MODEL_PRODUCTS];
    int n;
    if (cli->run.mesh.cp > 1)
        return weft_fail(WEFT_ERR_REFUSED, "bench gemm --cp %d: it measures the products of one rank; leave --cp out",
                         cli->run.mesh.cp);
    WEFT_TRY(list_products(cli, model, list, &n));
    for (int i = 0; i < n; i++) WEFT_TRY(weft_bench_product_check(&list[i].of));
    return WEFT_OK;
}

/* ---- lines -------------------------------------------------------------------------------------------------- */

static const weft_column columns[] = {
    {"product", NULL, "product", WEFT_CELL_CODE, WEFT_FOR_ALL, 0, 0, 0, 0, false},
    {"calls", NULL, "calls", WEFT_CELL_COUNT, WEFT_FOR_PROGRAMS | WEFT_IN_MD, 5, 0, 0, 0, true},
    {"precision", NULL, "precision", WEFT_CELL_TEXT, WEFT_FOR_PROGRAMS | WEFT_IN_MD, 0, 0, 0, 0, false},
    {"M", NULL, "M", WEFT_CELL_COUNT, WEFT_FOR_ALL, 6, 0, 0, 0, false},
    {"N", NULL, "N", WEFT_CELL_COUNT, WEFT_FOR_ALL, 6, 0, 0, 0, false},
    {"K", NULL, "K", WEFT_CELL_COUNT, WEFT_FOR_ALL, 6, 0, 0, 0, false},
    {"op", NULL, "layout", WEFT_CELL_TEXT, WEFT_FOR_ALL, 2, 0, 0, 0, false},
    {"threads", NULL, "threads", WEFT_CELL_COUNT, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
    {"repeats", NULL, "repeats", WEFT_CELL_COUNT, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
    {"ms", NULL, "seconds", WEFT_CELL_REAL, WEFT_FOR_ALL, 9, 1e3, 3, 9, false},
    {"spread", " %", "spread", WEFT_CELL_REAL, WEFT_FOR_ALL, 6, 1e2, 1, 4, false},
    {"GFLOP/s", NULL, "flops", WEFT_CELL_REAL, WEFT_FOR_ALL, 8, 1e-9, 1, 6, false},
    {"roof", NULL, "roof", WEFT_CELL_REAL, WEFT_FOR_ALL, 8, 1e-9, 1, 6, true},
    {"share", " %", "share", WEFT_CELL_REAL, WEFT_FOR_ALL, 5, 1e2, 1, 4, true},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* The first column is as wide as what stands in it. */
static void fit_names(weft_column c[COLUMNS], const product *list, int n)
{
    memcpy(c, columns, sizeof columns);
    for (int i = 0; i < n; i++) c->width = (int)weft_min_i64(c->width, -(int64_t)strlen(list[i].name));
}

static void print_product(const weft_table *t, const product *p, const weft_product_bench *b)
{
    const weft_gemm_args *a = &p->of.args;
    const char layout[] = {a->trans_a ? 't' : 'n', a->trans_b ? 't' : 'n', '\0'};
    weft_table_row(t, (const weft_cell[COLUMNS]){{.text = p->name},
                                                 {.count = p->calls},
                                                 {.text = weft_prec_name(p->of.prec)},
                                                 {.count = a->M},
                                                 {.count = a->N},
                                                 {.count = a->K},
                                                 {.text = layout},
                                                 {.count = b->threads},
                                                 {.count = b->repeats},
                                                 {.real = b->of.seconds},
                                                 {.real = b->of.spread},
                                                 {.real = b->of.flops},
                                                 {.real = b->of.roof},
                                                 {.real = b->of.share}});
}

static void print_heading(const weft_cli *cli, const weft_world *world, const product *first, weft_prec prec)
{
    const int threads = weft_world_ctx(world)->threads;
    const char *config = cli->options.model_config;
    if (first->calls)
        weft_say("products of a step of %s, %lld layer%s, %lld x %lld tokens, %s\n",
                 config ? config : cli->options.family, (long long)first->calls, first->calls > 1 ? "s" : "",
                 (long long)cli->options.micro_batch, (long long)cli->options.seq_length, weft_prec_name(prec));
    weft_say("%d thread%s, kernels %s; roof and share: of the arithmetic units, beside each run\n\n", threads,
             threads > 1 ? "s" : "", weft_isa_name(cli->run.isa));
}

/* ---- the bench ---------------------------------------------------------------------------------------------- */

typedef struct sum { double seconds, flops, at_roof; } sum;

static void add(sum *s, const product *p, const weft_product_bench *b)
{
    const double seconds = (double)p->calls * b->of.seconds;
    s->seconds += seconds;
    s->flops += seconds * b->of.flops;
    s->at_roof += seconds * b->of.share;
}

static void print_sum(const sum *s)
{
    char share[40] = "";
    if (s->at_roof > 0) snprintf(share, sizeof share, ", %.1f %% of the roof", 1e2 * s->at_roof / s->seconds);
    weft_say("\nof a step: %.3f ms, %.1f GFLOP/s%s\n", 1e3 * s->seconds, s->flops / s->seconds / 1e9, share);
}

static weft_status body(weft_cli *cli, weft_world *world)
{
    product list[CASES];
    weft_model_product model[WEFT_MODEL_PRODUCTS];
    int n;
    weft_column c[COLUMNS];
    sum s = {0};
    WEFT_TRY(list_products(cli, model, list, &n));
    fit_names(c, list, n);
    const weft_table t = weft_table_of(cli->options.bench_format, c, COLUMNS);
    if (weft_table_is_text(&t)) print_heading(cli, world, list, cli->run.prec);
    weft_table_head(&t);
    for (int i = 0; i < n; i++) {
        weft_product_bench b;
        WEFT_TRY(weft_bench_product(world, &cli->run, &list[i].of, &b));
        print_product(&t, &list[i], &b);
        add(&s, &list[i], &b);
    }
    if (weft_table_is_text(&t) && list[0].calls) print_sum(&s);
    return WEFT_OK;
}

static const char *const uses[] = {"parallel.cp", "model.", "train.seq_length", "train.micro_batch_size",
                                   "bench.format", "bench.repeats", "run.isa", "run.threads", "run.timeout",
                                   "run.precision", NULL};

const weft_bench weft_bench_gemm = {"gemm", 1, true, uses, check, body};
