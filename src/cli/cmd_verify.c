/* cmd_verify.c — `weft attention` and `weft verify`: Weft against numbers that it did not make. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void print_findings(const weft_report *r)
{
    int width = 24;
    for (int i = 0; i < r->n; i++)
        if ((int)strlen(r->row[i].name) > width) width = (int)strlen(r->row[i].name);
    printf("%-*s  %9s  %9s\n", width, "tensor", "error", "limit");
    for (int i = 0; i < r->n; i++)
        printf("%-*s  %9.2e  %9.2e  %s\n", width, r->row[i].name, r->row[i].error, r->row[i].limit,
               r->row[i].error <= r->row[i].limit ? "ok" : "FAILED");
}

static void print_report(const weft_report *r, const char *what)
{
    if (r->note.data) weft_print_lines(r->note.data, WEFT_FOLD_UNDER);
    if (r->n) print_findings(r);
    if (!r->n) printf("%s: there are no expected values of this computation; nothing was compared\n", what);
    else if (r->failed) printf("%s: %d of %d comparisons FAILED\n", what, r->failed, r->n);
    else printf("%s: all %d comparisons hold\n", what, r->n);
    fflush(stdout);
}

/* On a terminal, what goes on now; the next line takes its place. */
static void show_stage(const char *text) { fprintf(stderr, "\r%s ...\x1b[K", text); }

static weft_status with_report(weft_cli *cli, weft_world *world, const char *what,
                               weft_status (*run)(weft_cli *, weft_world *, weft_report *))
{
    bool live = weft_is_root(world) && weft_on_terminal(stderr);
    weft_report report = {.stage = live ? show_stage : NULL};
    weft_ctx *ctx = weft_world_ctx(world);
    WEFT_TRY(weft_arena_create(&report.arena, &ctx->mem, "report", NULL));
    weft_status st = run(cli, world, &report);
    if (live) fprintf(stderr, "\r\x1b[K");
    if (st >= 0 && weft_is_root(world)) print_report(&report, what);
    if (st >= 0 && report.failed) st = weft_fail(WEFT_ERR_COMPARE, "%d comparisons failed", report.failed);
    weft_text_free(&report.note);
    weft_arena_destroy(report.arena);
    return st;
}

static weft_status attention_run(weft_cli *cli, weft_world *world, weft_report *report)
{
    return weft_verify_attention(world, &cli->run, cli->n_positional ? cli->positional[0] : NULL, report);
}

static weft_status attention_body(weft_cli *cli, weft_world *world)
{
    return with_report(cli, world, cli->n_positional ? cli->positional[0] : "--make", attention_run);
}

static weft_status check_out(const weft_cli *cli)
{
    weft_status st = cli->options.out ? weft_writer_check(cli->options.out) : WEFT_OK;
    return st < 0 ? weft_fail_at(st, "--out: ") : WEFT_OK;
}

/* The result's place is tried before the work, not after it. */
static weft_status check_files(const weft_cli *cli, const char *path)
{
    WEFT_TRY(weft_need_file(path, "case"));
    struct stat in, out;
    if (cli->options.out && !stat(path, &in) && !stat(cli->options.out, &out) && in.st_dev == out.st_dev &&
        in.st_ino == out.st_ino)
        return weft_fail(WEFT_ERR_REFUSED, "--out %s is the case itself; give another file", cli->options.out);
    return check_out(cli);
}

static weft_status attention_check(weft_cli *cli)
{
    const char *make = cli->options.make;
    if (!make && !cli->n_positional)
        return weft_fail(
            WEFT_ERR_REFUSED,
            "attention needs a case: a safetensors file, or --make; usage: weft attention CASE.safetensors, or "
            "weft attention --make \"T=1001 H=4/2 D=64 causal\"");
    if (make && cli->n_positional)
        return weft_fail(WEFT_ERR_REFUSED, "attention: the case is %s or made by --make, not both", cli->positional[0]);
    if (cli->options.spot && !make)
        return weft_fail(WEFT_ERR_REFUSED,
                         "--spot is for made cases: a file has output gradients and expected values of its "
                         "own; give --make instead of %s",
                         cli->positional[0]);
    return make ? check_out(cli) : check_files(cli, cli->positional[0]);
}

const weft_command weft_cmd_attention =
    {"attention",
     "attention CASE.safetensors | --make \"T=... H=... D=...\" [--cp N] [--out OUT.safetensors] [options]",
     "one attention problem, forward and backward, compared with the file's values or (--spot) with double precision",
     WEFT_CMD_ATTENTION,
     0,
     1,
     false,
     true,
     attention_check,
     attention_body};

static weft_status verify_run(weft_cli *cli, weft_world *world, weft_report *report)
{
    return weft_verify_model(world, &cli->run, cli->positional[0], cli->positional[1], report);
}

static weft_status verify_body(weft_cli *cli, weft_world *world)
{
    return with_report(cli, world, cli->positional[1], verify_run);
}

static weft_status verify_check(weft_cli *cli) { return check_files(cli, cli->positional[1]); }

const weft_command weft_cmd_verify =
    {"verify",
     "verify MODEL_DIR CASE.safetensors [--cp N] [--dp N] [--out OUT.safetensors] [options]",
     "a model's loss and gradients on given tokens, compared with the file's values or with one rank",
     WEFT_CMD_VERIFY,
     2,
     2,
     false,
     true,
     verify_check,
     verify_body};
