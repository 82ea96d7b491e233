/* cmd_info.c — `weft info`: the machine, the kernels, and the resolved options. */
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
    printf("transports   self, local, sim\nstrategies   ");
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

static weft_status info_body(weft_cli *cli, weft_world *world)
{
    (void)world;
    weft_text t = {0};
    print_machine();
    print_kernels();
    weft_opts_table(&cli->opts, &t);
    printf("\noptions (* given)\n%s", t.data ? t.data : "");
    weft_text_free(&t);
    return WEFT_OK;
}

const weft_command weft_cmd_info = {"info",
                                    "info [CONFIG.yaml] [options]",
                                    "the machine, the kernels, the resolved options",
                                    WEFT_CMD_INFO,
                                    0,
                                    1,
                                    true,
                                    false,
                                    NULL,
                                    info_body};
