/* bench_step.c — `weft bench step`: a training step of a model given by options, and where its time goes. */
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

static weft_status check(weft_cli *cli)
{
    if (cli->run.mesh.cp > 1)
        return weft_fail(WEFT_ERR_REFUSED,
                         "bench step --cp %d: it measures one rank; weft train shows what more ranks take",
                         cli->run.mesh.cp);
    const char *format = cli->options.bench_format;
    if (strcmp(format, "text") && strcmp(format, "jsonl"))
        return weft_fail(WEFT_ERR_REFUSED, "bench step --format %s: it prints text or jsonl", format);
    return WEFT_OK;
}

static void print_parts(const weft_step_bench *r)
{
    double sum = 0;
    weft_say("\n%-12s %10s %8s\n", "part", "ms", "share");
    for (int i = 1; i <= WEFT_PARTS; i++) { /* what nobody claimed comes last */
        weft_part part = (weft_part)(i % WEFT_PARTS);
        sum += r->part[part];
        if (r->part[part] > 0)
            weft_say("%-12s %10.2f %7.1f %%\n", weft_part_name(part), 1e3 * r->part[part],
                     1e2 * r->part[part] / r->seconds);
    }
    weft_say("%-12s %10.2f %7.1f %%\n", "sum", 1e3 * sum, 1e2 * sum / r->seconds);
}

static void print_text(const weft_cli *cli, const weft_step_bench *r)
{
    char memory[32], resident[32], file[32];
    double rest = r->seconds - r->part[WEFT_PART_PRODUCTS] - r->part[WEFT_PART_ATTENTION];
    weft_say("model     %s, %lld parameters, %s, %lld tokens a step, %d thread%s, kernels %s\n", cli->options.family,
             (long long)r->params, cli->options.precision, (long long)r->tokens, r->threads, r->threads > 1 ? "s" : "",
             weft_isa_name(cli->run.isa));
    weft_text plan = {0};
    weft_text_add_under(&plan, "attention ", r->plan.data ? r->plan.data : "\n");
    weft_print_lines(plan.data ? plan.data : "", WEFT_FOLD_UNDER);
    weft_text_free(&plan);
    weft_say("step      %.2f ms (spread %.1f %% of %lld), %.0f tokens/s, %.1f GFLOP/s\n", 1e3 * r->seconds,
             1e2 * r->spread, (long long)r->repeats, (double)r->tokens / r->seconds, r->flops / r->seconds / 1e9);
    weft_say("memory    %s by account, %s resident%s%s\n", weft_format_bytes(r->memory_bytes, memory, sizeof memory),
             weft_format_bytes(r->resident_bytes, resident, sizeof resident), r->file_bytes > 0 ? "; in a file " : "",
             r->file_bytes > 0 ? weft_format_bytes(r->file_bytes, file, sizeof file) : "");
    print_parts(r);
    weft_say("\nproducts  %lld a step; alone %.2f ms, which is %.3f of their time in the step\n",
             (long long)r->products, 1e3 * r->products_alone,
             weft_unsigned_nan(r->products_alone / r->part[WEFT_PART_PRODUCTS]));
    weft_say("outside   products and attention: %.1f %% of the step\n", 1e2 * rest / r->seconds);
}

static void print_jsonl(const weft_cli *cli, const weft_step_bench *r)
{
    char number[40];
    printf("{\"family\": \"%s\", \"precision\": \"%s\", \"threads\": %d, \"params\": %lld, \"tokens\": %lld",
           cli->options.family, cli->options.precision, r->threads, (long long)r->params, (long long)r->tokens);
    weft_print_json_real("seconds", r->seconds, 9);
    weft_print_json_real("spread", r->spread, 4);
    weft_print_json_real("flops", r->flops, 6);
    printf(", \"memory\": %.0f, \"resident\": %.0f, \"file\": %.0f", r->memory_bytes, r->resident_bytes,
           r->file_bytes);
    weft_print_json_real("products_alone", r->products_alone, 9);
    weft_print_json_real("loss", r->loss, 9);
    printf(", \"parts\": {");
    for (int i = 0; i < WEFT_PARTS; i++)
        printf("%s\"%s\": %s", i ? ", " : "", weft_part_name((weft_part)i),
               weft_format_json(number, sizeof number, r->part[i], 9));
    printf("}}\n");
}

static weft_status body(weft_cli *cli, weft_world *world)
{
    weft_step_bench r;
    weft_status st = weft_bench_step_run(world, &cli->run, &r);
    if (st >= 0) (strcmp(cli->options.bench_format, "jsonl") ? print_text : print_jsonl)(cli, &r);
    weft_text_free(&r.plan);
    return st;
}

static const char *const uses[] = {"parallel.cp",   "model.",  "train.",      "guard.", "memory.",      "bench.format",
                                   "bench.repeats", "run.isa", "run.threads", "run.timeout",
                                   "run.precision", NULL};

const weft_bench weft_bench_step = {"step", 1, false, uses, check, body};
