/* main.c — the table of commands, and the way from words to a resolved run. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const weft_command *const commands[] = {&weft_cmd_train,     &weft_cmd_eval,     &weft_cmd_verify,
                                               &weft_cmd_attention, &weft_cmd_generate, &weft_cmd_info, &weft_cmd_sim,
                                               &weft_cmd_show,      &weft_cmd_plan,
                                               &weft_cmd_bench,     &weft_cmd_checkpoint, &weft_cmd_doctor};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_usage(FILE *to)
{
    weft_text t = {0};
    weft_text_add(&t, "weft %s: exact long-context training, one sequence cut over many ranks\n\n", weft_version());
    weft_text_add(&t, "usage: weft COMMAND [...]\n\n");
    for (int i = 0; i < COMMANDS; i++) weft_text_add(&t, "  %-10s  %s\n", commands[i]->name, commands[i]->doc);
    weft_text_add(&t, "\nweft COMMAND --help lists a command's options. Exit codes: 0 good, 1 a comparison failed, 2 "
                      "refused, 3 failed while running.\n");
    weft_print_prose(to, t.data ? t.data : "", WEFT_FOLD_UNDER);
    weft_text_free(&t);
}

static const weft_command *find_command(const char *word, FILE *to)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) {
        names[i] = commands[i]->name;
        if (!strcmp(word, names[i])) return commands[i];
    }
    const char *near = weft_suggest(word, names, COMMANDS);
    fprintf(to, "weft: unknown command '%s'%s%s%s (weft --help lists them)\n", word, near ? "; did you mean '" : "",
            near ? near : "", near ? "'?" : "");
    return NULL;
}

static weft_status init_options(weft_cli *cli)
{
    int n = 0;
    const weft_opt *table = weft_run_table(&n);
    return weft_opts_init(&cli->opts, table, n, cli->command->bit, &cli->options, cli->arena);
}

static int print_help(weft_cli *cli)
{
    static const char usage[] = "usage: weft ";
    weft_text t = {0};
    weft_text_add(&t, "%s%s", usage, cli->command->usage);
    weft_print_prose(stdout, t.data ? t.data : "", (int)strlen(usage));
    weft_print_prose(stdout, cli->command->doc, 0);
    t.len = 0;
    weft_opts_help(&cli->opts, (int)weft_min_i64(weft_columns(stdout), WEFT_PROSE_COLUMNS), &t);
    printf("\n%s", t.data ? t.data : "");
    weft_text_free(&t);
    return 0;
}

static weft_status check_positional(const weft_cli *cli)
{
    const weft_command *c = cli->command;
    if (cli->n_positional < c->positional_min)
        return weft_fail(WEFT_ERR_REFUSED, "%s needs a file or folder that is not given; usage: weft %s", c->name,
                         c->usage);
    for (int i = 0; i < cli->n_positional; i++)
        if (!cli->positional[i][strspn(cli->positional[i], " \t")])
            return weft_fail(WEFT_ERR_REFUSED, "%s: word %d is empty; usage: weft %s", c->name, i + 1, c->usage);
    if (cli->n_positional > c->positional_max)
        return weft_fail(WEFT_ERR_REFUSED, "%s: \"%s\" is one word too many; usage: weft %s", c->name,
                         cli->positional[c->positional_max], c->usage);
    return WEFT_OK;
}

/* defaults < config file < WEFT_ISA < flags. The file's name is among the words, so they come first; a weaker
 * source never overwrites a stronger one. */
static weft_status parse(weft_cli *cli, int argc, char *const *argv)
{
    WEFT_TRY(init_options(cli));
    WEFT_TRY(weft_opts_argv(&cli->opts, argc, argv, cli->positional, WEFT_POSITIONAL_MAX, &cli->n_positional));
    WEFT_TRY(check_positional(cli));
    if (cli->command->config_file && cli->n_positional) WEFT_TRY(weft_opts_yaml(&cli->opts, cli->positional[0]));
    const char *isa = getenv("WEFT_ISA");
    if (isa && *isa && !weft_opts_given(&cli->opts, "run.isa")) {
        weft_status st = weft_opts_set(&cli->opts, "run.isa", isa, 2);
        if (st < 0) return weft_fail_at(st, "WEFT_ISA: ");
    }
    return weft_run_resolve(&cli->run, &cli->opts, &cli->options);
}

static bool asks_for_help(int argc, char *const *argv)
{
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return true;
    return false;
}

static int run_command(weft_cli *cli, int argc, char *const *argv)
{
    weft_ctx_init(&cli->ctx);
    weft_status st = weft_arena_create(&cli->arena, &cli->ctx.mem, "options", NULL);
    if (st >= 0 && asks_for_help(argc, argv)) {
        st = init_options(cli);
        if (st >= 0) return print_help(cli);
    }
    if (st >= 0) st = parse(cli, argc, argv);
    if (st >= 0 && cli->command->check) st = cli->command->check(cli);
    return st >= 0 && !cli->command->body ? weft_doctor_run(cli) : weft_launch(cli, st);
}

/* A program started with a closed descriptor 1 would get that number for the next file it opens, and what it
 * prints would land inside: in the metrics, say. */
static bool hold_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd) return false;
    return true;
}

/* What was asked for and could not be printed is a failure, as on a full disk. */
static int close_output(int code)
{
    if (!fflush(stdout) && !ferror(stdout)) return code;
    fprintf(stderr, "weft: cannot write to the standard output: %s\n", strerror(errno));
    return code ? code : 3;
}

/* Of the processes that an MPI launcher starts, one speaks. A failure's message goes to the standard error of the rank
 * that has it (launch_mpi.c). */
static bool one_of_many(void)
{
    weft_mpi_launch launch;
    weft_mpi_launched(&launch); /* a refusal is weft_launch's to report */
    return launch.rank > 0;
}

int main(int argc, char **argv)
{
    if (!hold_standard_files()) return 3;
    bool mute = one_of_many();
    if (mute && !freopen("/dev/null", "w", stdout)) return 3;
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_usage(argc < 2 && !mute ? stderr : stdout);
        return argc < 2 ? 2 : close_output(0);
    }
    if (!strcmp(argv[1], "--version")) {
        printf("weft %s\n", weft_version());
        return close_output(0);
    }
    weft_cli cli = {.argv = argv, .command = find_command(argv[1], mute ? stdout : stderr)};
    int code = cli.command ? run_command(&cli, argc - 2, argv + 2) : 2;
    weft_arena_destroy(cli.arena);
    code = close_output(code);
    if (code) weft_launch_forward();
    return code;
}
