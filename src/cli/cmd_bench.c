/* cmd_bench.c — `weft bench NAME`: measurements on this machine. One entry in the table per bench. */
#include "cli/cli.h"
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

static const weft_bench *const benches[] = {&weft_bench_attention_kernels, &weft_bench_gemm, &weft_bench_step,
                                            &weft_bench_profile, &weft_bench_comm, &weft_bench_cp};
enum { BENCHES = sizeof benches / sizeof *benches };

static const weft_bench *find(const char *name)
{
    for (int i = 0; i < BENCHES; i++)
        if (!strcmp(name, benches[i]->name)) return benches[i];
    return NULL;
}

static weft_status refuse_name(const char *name)
{
    const char *names[BENCHES];
    weft_text list = {0};
    for (int i = 0; i < BENCHES; i++) weft_text_add(&list, "%s%s", i ? ", " : "", names[i] = benches[i]->name);
    const char *all = list.data ? list.data : "", *near = name ? weft_suggest(name, names, BENCHES) : NULL;
    weft_status st = WEFT_OK;
    if (!name) st = weft_fail(WEFT_ERR_REFUSED, "bench: what is to be measured? There is: %s", all);
    else
        st = weft_fail(WEFT_ERR_REFUSED, "bench \"%s\" is unknown%s%s%s; there is: %s", name,
                       near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "", all);
    weft_text_free(&list);
    return st;
}

/* One rank is a size too, when somebody asks for it. */
static bool size_given(const weft_opts *opts)
{
    static const char *const keys[] = {"parallel.cp", "parallel.pcp_size", "parallel.dcp_size"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (weft_opts_given(opts, keys[i])) return true;
    return false;
}

static bool uses(const weft_bench *bench, const char *key)
{
    for (const char *const *u = bench->uses; *u; u++) {
        size_t len = strlen(*u);
        if ((*u)[len - 1] == '.' ? !strncmp(key, *u, len) : !strcmp(key, *u)) return true;
    }
    return false;
}

/* The command takes what any of its benches takes; nothing that was asked for is ignored. */
static weft_status check_options(const weft_cli *cli, const weft_bench *bench)
{
    int n = 0;
    const weft_opt *table = weft_run_table(&n);
    for (int i = 0; i < n; i++)
        if ((table[i].commands & WEFT_CMD_BENCH) && weft_opts_given(&cli->opts, table[i].key) &&
            !uses(bench, table[i].key))
            return weft_fail(WEFT_ERR_REFUSED, "bench %s has no use for the option %s; leave it out", bench->name,
                             table[i].key);
    return WEFT_OK;
}

static weft_status check(weft_cli *cli)
{
    const char *name = cli->n_positional ? cli->positional[0] : NULL;
    const weft_bench *bench = name ? find(name) : NULL;
    if (!bench) return refuse_name(name);
    if (cli->n_positional > 1 && !bench->words)
        return weft_fail(WEFT_ERR_REFUSED, "bench %s: \"%s\" is one word too many", name, cli->positional[1]);
    WEFT_TRY(check_options(cli, bench));
    if (!size_given(&cli->opts)) cli->run.mesh.cp = bench->ranks;
    return bench->check ? bench->check(cli) : WEFT_OK;
}

static weft_status body(weft_cli *cli, weft_world *world) { return find(cli->positional[0])->body(cli, world); }

const weft_command weft_cmd_bench =
    {"bench",
     "bench attention|gemm|step|profile|comm|cp [CASE ...] [options]",
     "measure this machine; attention, gemm: its kernels, its matrix products, as a share of the arithmetic units; "
     "step: a training step by parts; profile: the rates by which auto chooses; comm: messages between ranks by size "
     "and way; cp: one attention layer on its ranks",
     WEFT_CMD_BENCH,
     0,
     WEFT_POSITIONAL_MAX - 1,
     false,
     true,
     check,
     body};
