/* cmd_info.c — `weft info`: the machine, the kernels, the resolved options; with --plan, how attention would run
 * (--groups and --memory have files of their own). */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void print_machine(void)
{
    printf("weft         %s\ncores        %ld\nisa          ", weft_version(), sysconf(_SC_NPROCESSORS_ONLN));
    for (int i = 0; i < WEFT_ISA_COUNT; i++)
        printf("%s %s%s", weft_isa_name((weft_isa)i), weft_isa_available((weft_isa)i) ? "yes" : "no",
               i + 1 < WEFT_ISA_COUNT ? ", " : "");
    printf("; best is %s\n", weft_isa_name(weft_isa_best()));
    printf("transports   self, local, sim, mpi (under mpirun)\nstrategies   ");
    int n = 0;
    const char *const *names = weft_cp_names(&n);
    for (int i = 0; i < n; i++) printf("%s%s", names[i], i + 1 < n ? ", " : "\n");
}

/* One row per operation: which instruction sets have a kernel of their own, per precision. */
static void print_kernels(void)
{
    int n = 0;
    const weft_kern_entry *list = weft_kern_manifest(&n);
    printf("\nkernels\n");
    for (int i = 0; i < n; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++) seen |= !strcmp(list[k].op, list[i].op) && list[k].prec == list[i].prec;
        if (seen) continue;
        printf("  %-14s %-5s", list[i].op, weft_prec_name(list[i].prec));
        for (int k = i; k < n; k++)
            if (!strcmp(list[k].op, list[i].op) && list[k].prec == list[i].prec)
                printf(" %s", weft_isa_name(list[k].isa));
        printf("\n");
    }
}

static void print_options(weft_cli *cli)
{
    weft_text t = {0};
    weft_opts_table(&cli->opts, false, &t);
    printf("\noptions (* given)\n");
    weft_print_lines(t.data ? t.data : "", WEFT_FOLD_UNDER);
    weft_text_free(&t);
}

/* ---- --plan ------------------------------------------------------------------------------------------ */

static void print_mask(const weft_mask *m)
{
    if (m->left >= 0) printf("causal, %lld keys before each query", (long long)m->left);
    else printf("causal");
}

static weft_status print_kind(const weft_cli *cli, const weft_kern *kern, weft_comm *comm,
                              const weft_layer_attention *x)
{
    const weft_mesh_shape m = cli->run.mesh;
    const weft_cp_problem part = weft_info_part(x->problem, m.tp, m.tp - 1), *p = &part; /* no part has more heads */
    weft_text plan = {0}, table = {0};
    weft_cp_sizes sizes;
    char pool[32], kept[32];
    int P = m.cp;
    printf("\nlayers %lld-%lld: ", (long long)x->first_layer, (long long)x->last_layer);
    print_mask(&p->mask);
    printf("; B %lld, T %lld, H %d/%d, D %d, %s, P %d\n", (long long)p->B, (long long)p->T, p->H, p->Hkv, p->D,
           weft_prec_name(p->prec), P);
    if (m.tp > 1) printf("part %d of %d: heads %d-%d\n", m.tp - 1, m.tp, p->head0, p->head0 + p->H - 1);
    weft_status st = weft_cp_preview(kern, comm, p, &cli->run.cp, P, &plan, &sizes);
    if (st == WEFT_OK) st = weft_cp_explain(kern, comm, p, &cli->run.cp, P, &table);
    if (st == WEFT_OK) {
        weft_text head = {0};
        weft_text_add(&head, "plan    %s\nbuffers %s per rank, where blocks are copied; kept per layer %s\n",
                      plan.data ? plan.data : "", weft_format_bytes((double)sizes.pool, pool, sizeof pool),
                      weft_format_bytes((double)sizes.kept, kept, sizeof kept));
        weft_print_lines(head.data ? head.data : "", (int)strlen("buffers "));
        weft_text_free(&head);
        printf("\n%s", table.data ? table.data : "");
    }
    weft_text_free(&plan);
    weft_text_free(&table);
    return st;
}

/* Documents are not known before the data is. */
weft_status weft_info_attention(const weft_cli *cli, weft_layer_attention kind[2], int *n)
{
    const weft_run_options *o = &cli->options;
    weft_model_config config;
    WEFT_TRY(weft_run_model_config(&cli->run, &config));
    weft_model_options mo = {.prec = cli->run.prec, .B = o->micro_batch, .T = o->seq_length, .max_docs = o->micro_batch,
                             .layout = cli->run.layout, .cp = cli->run.cp, .train = true, .slots = 1};
    *n = weft_model_attention(&config, &weft_model_all, &mo, kind);
    return WEFT_OK;
}

weft_cp_problem weft_info_part(weft_cp_problem p, int tp, int t)
{
    weft_span heads = weft_model_cut(p.H, tp, t);
    if (tp == 1) return p;
    p.group = p.H / p.Hkv;
    p.head0 = (int)heads.begin;
    p.H = (int)(heads.end - heads.begin);
    p.Hkv = p.H ? (p.head0 + p.H - 1) / p.group - p.head0 / p.group + 1 : 0;
    return p;
}

/* The shape that training with these options would have. */
static weft_status print_plan(const weft_cli *cli, weft_world *world)
{
    const weft_run_options *o = &cli->options;
    weft_kern kern;
    weft_comm *comm;
    weft_layer_attention kind[2];
    int n;
    WEFT_TRY(weft_info_attention(cli, kind, &n));
    WEFT_TRY(weft_kern_init(&kern, cli->run.isa));
    WEFT_TRY(weft_comm_create(&comm, world, (int[]){0}, 1, "plan"));
    printf("rates   %s%s\n", o->profile ? "of " : "of a plain machine (weft bench profile measures this one)",
           o->profile ? o->profile : "");
    weft_status st = WEFT_OK;
    for (int i = 0; i < n && st == WEFT_OK; i++) st = print_kind(cli, &kern, comm, &kind[i]);
    weft_comm_destroy(comm);
    if (st == WEFT_OK)
        printf("\nexposed: how long a rank stands still per layer, forward and backward, and what\n"
               "uneven shares add to its computing (docs/maths/cost.md); sent: by a rank in a\n"
               "layer, on average; buffers: of rank 0, where blocks are copied; * runs\n");
    return st;
}

static weft_status info_body(weft_cli *cli, weft_world *world)
{
    const weft_run_options *o = &cli->options;
    if (o->plan + o->groups + o->memory > 1)
        return weft_fail(WEFT_ERR_REFUSED, "--plan, --groups and --memory are tables of their own; give one of them");
    if (weft_opts_given(&cli->opts, "bench.format") && !o->groups && !o->memory)
        return weft_fail(WEFT_ERR_REFUSED, "--format is for weft info --groups and --memory; leave it out");
    if (o->plan) return print_plan(cli, world);
    if (o->groups) return weft_info_groups(cli, world);
    if (o->memory) return weft_info_memory(cli, world);
    print_machine();
    print_kernels();
    print_options(cli);
    return WEFT_OK;
}

const weft_command weft_cmd_info = {"info",
                                    "info [CONFIG.yaml] [options]",
                                    "the machine, the kernels, the resolved options; --plan: how attention would run; "
                                    "--groups: which ranks work with which; --memory: what a rank holds",
                                    WEFT_CMD_INFO,
                                    0,
                                    1,
                                    true,
                                    false,
                                    NULL,
                                    info_body};
