/* cli.h — what the subcommands share. This is the only room that prints and exits. */
#ifndef WEFT_CLI_H
#define WEFT_CLI_H

#include "train/train.h"

#include <stdio.h>

enum { WEFT_POSITIONAL_MAX = 33, WEFT_PROSE_COLUMNS = 100 };

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
    /* On every rank; COLLECTIVE. NULL: weft doctor, which starts its own before this process has any thread. */
    weft_status (*body)(weft_cli *cli, weft_world *world);
} weft_command;

extern const weft_command weft_cmd_train, weft_cmd_eval, weft_cmd_verify, weft_cmd_attention, weft_cmd_generate,
    weft_cmd_info, weft_cmd_sim, weft_cmd_show, weft_cmd_bench, weft_cmd_checkpoint, weft_cmd_doctor,
    weft_cmd_plan;

/* Runs cli->command->body on the ranks that the options ask for: in this process when it is one or was
 * started as one (by the supervisor or by an MPI launcher), else under the supervisor. `so_far`: of reading words and
 * files, with its message; ranks of a launcher agree on it. Returns the exit code; the one message of a failure has
 * been printed. */
int weft_launch(weft_cli *cli, weft_status so_far);
/* The part of it under an MPI launcher (launch_mpi.c). */
int weft_launch_mpi(weft_cli *cli, const weft_mpi_launch *launch, weft_status so_far);
/* Before this process ends with a failure: gives an MPI launcher time to forward its message, so that it comes before
 * the launcher's own lines. */
void weft_launch_forward(void);
/* The last error as this rank's own line, and time to forward it: for a rank that cannot agree with the others. */
void weft_launch_print_alone(const weft_mpi_launch *launch);
/* weft_mpi_start; past the deadline the process says so and ends. COLLECTIVE over the job */
weft_status weft_launch_start_mpi(const weft_mpi_launch *launch, weft_mpi *mpi, double seconds);
/* Processors that this process may use. */
int weft_launch_cpus(void);
/* Starts this rank's OpenMP threads, of which `alive` run already (1: none but this one), or refuses what does not fit.
 * LOCAL */
weft_status weft_launch_threads(int threads, int alive);
/* With its threads started. */
weft_status weft_launch_ctx(weft_ctx *ctx, int rank, int ranks, int threads);
int weft_launch_ranks(const weft_cli *cli);

/* A terminal that has no width is none: Open MPI puts one before each rank, whatever the job's output goes to. */
bool weft_on_terminal(FILE *to);
/* On a terminal that knows colours, unless NO_COLOR says something. */
bool weft_in_colour(FILE *to);
/* Columns of what `to` goes to: COLUMNS, else the terminal's, else 80; 40 at least. */
int weft_columns(FILE *to);
/* Help and prose, folded (weft_text_fold) wherever they go, at WEFT_PROSE_COLUMNS at most: longer lines are hard to
 * read. */
void weft_print_prose(FILE *to, const char *lines, int left);
/* Results, folded on terminals only. */
void weft_print_lines(const char *lines, int left);
void weft_add_json_text(weft_text *t, const char *s); /* as a string of JSON */
/* "172M", in powers of 1024, at most 5 letters; returns buf. */
const char *weft_short_bytes(double bytes, char buf[16]);
/* "12.3 ms" into buf, which it returns. */
const char *weft_short_seconds(double s, char buf[16]);
void weft_print_json_text(const char *s);             /* the same, to the standard output */
void weft_print_json_real(const char *key, double x, int digits); /* , "key": number (weft_format_json) */
/* The same as weft_print_lines from a format; left is WEFT_FOLD_UNDER. */
void weft_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* print_memory.c: a line of what is planned, for the table at the start; a table of what was held. */
void weft_add_memory_plan(const weft_memory_report *r, weft_text *t);
void weft_print_memory(const weft_memory_report *r);

typedef struct weft_sim_cost { /* one line of weft sim, with and without what disturbs */
    const char *strategy;
    weft_layout layout;
    const weft_sim_result *calm, *disturbed;
} weft_sim_cost;
void weft_print_sim_costs(const weft_sim_cost *list, int n, int layers); /* sim_cost.c */

/* print_plan.c: the lines of a run's plan beside what a step came to; the same as a JSON object. */
void weft_add_plan_check(const weft_plan_check *c, int64_t step, weft_text *lines);
void weft_add_plan_json(const weft_plan_check *c, weft_text *object);

/* cmd_info.c: the attention of training with these options, and of part t of tp (weft_model_cut of the heads); H 0
 * where a part has none. LOCAL */
weft_status weft_info_attention(const weft_cli *cli, weft_layer_attention kind[2], int *n);
weft_cp_problem weft_info_part(weft_cp_problem whole, int tp, int t);
weft_status weft_info_groups(const weft_cli *cli, weft_world *world); /* info_groups.c */
weft_status weft_info_memory(const weft_cli *cli, weft_world *world); /* info_memory.c */

/* Signals that ask a run to end in good order: SIGINT, SIGTERM, SIGUSR1. They are blocked before the process has a
 * second thread, and a thread of their own waits for them: the first one is remembered, a SIGINT after it ends the
 * process at once. */
void weft_interrupt_block(const weft_command *command); /* of weft train; others end as usual. LOCAL */
typedef struct weft_interrupt weft_interrupt;
weft_status weft_interrupt_start(weft_interrupt **out, bool speak); /* speak: tells of it on the standard error */
bool weft_interrupted(const weft_interrupt *i);
void weft_interrupt_stop(weft_interrupt *i); /* NULL is fine */

/* The live line of a run on the standard output (weft_progress_line), of rank 0; safe with its own thread. LOCAL */
typedef struct weft_live weft_live;
weft_status weft_live_start(weft_live **out, const weft_clock *clock);
void weft_live_stop(weft_live *live);                    /* NULL is fine */
void weft_live_at(void *live, const weft_step_at *at);   /* a weft_step_watch: shown when it is due */
void weft_live_step(weft_live *live, const weft_record *r);
void weft_live_note(weft_live *live, const char *text);  /* a line of its own */
void weft_live_done(weft_live *live);                    /* before anything else is printed */

bool weft_is_root(const weft_world *world);
/* Refuses a file that cannot be read, naming it and what it was to be. */
weft_status weft_need_file(const char *path, const char *what);

#endif
