/* cli.h — what the subcommands share. This is the only room that prints and exits. */
#ifndef WEFT_CLI_H
#define WEFT_CLI_H

#include "train/train.h"

enum { WEFT_POSITIONAL_MAX = 4 };

typedef struct weft_cli { /* one invocation, parsed */
    const struct weft_command *command;
    char *const *argv;        /* whole, for starting ranks */
    weft_ctx ctx;             /* of this process; memory of the options */
    weft_arena *arena;
    weft_run_options options;
    weft_opts opts;
    weft_run run;
    const char *positional[WEFT_POSITIONAL_MAX];
    int n_positional;
} weft_cli;

typedef struct weft_command {
    const char *name, *usage, *doc;
    uint32_t bit;
    int positional_min, positional_max;
    bool config_file;  /* the first positional is a YAML file */
    bool ranks;        /* runs on tp x cp x dp x pp ranks */
    weft_status (*check)(weft_cli *cli);                    /* refusals before any rank is started; or NULL */
    weft_status (*body)(weft_cli *cli, weft_world *world);  /* on every rank; COLLECTIVE */
} weft_command;

extern const weft_command weft_cmd_train, weft_cmd_eval, weft_cmd_verify, weft_cmd_attention, weft_cmd_generate, weft_cmd_info;

/* Runs cli->command->body on the ranks that the options ask for: in this process when it is one or was
 * started as one, else under the supervisor. Returns the exit code; the one message of a failure has been printed. */
int weft_launch(weft_cli *cli);

bool weft_is_root(const weft_world *world);
/* Refuses a file that cannot be read, naming it and what it was to be. */
weft_status weft_need_file(const char *path, const char *what);

#endif
