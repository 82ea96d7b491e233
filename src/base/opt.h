/* opt.h — the option table: one row gives flag, YAML key, --help, the table printed at start, and the
 * record in the run's folder. Unknown flags, keys and values are refused with a suggestion.
 *
 * Order of strength: default < config file < --set key=value and flags, later ones winning. LOCAL. */
#ifndef WEFT_BASE_OPT_H
#define WEFT_BASE_OPT_H

#include "base/mem.h"
#include "base/text.h"

typedef enum {
    WEFT_OPT_BOOL,   /* bool;        flag alone sets it, --no-flag clears it, YAML true/false */
    WEFT_OPT_INT,    /* int64_t                                              */
    WEFT_OPT_SIZE,   /* int64_t, suffixes K M G                              */
    WEFT_OPT_REAL,   /* double                                               */
    WEFT_OPT_TEXT,   /* const char * (NULL when not given and no default)    */
    WEFT_OPT_ENUM    /* const char *, one of `choices` ("a|b|c")             */
} weft_opt_type;

typedef struct weft_opt {
    const char *key;      /* YAML path, "cp.strategy"; --set takes it too */
    const char *flag;     /* "cp-strategy" (first-class flag --cp-strategy), or NULL */
    const char *alias;    /* more flags, "cp|context-parallel", or NULL */
    weft_opt_type type;
    size_t offset;        /* in the options struct */
    const char *def;      /* default as text, or NULL: zero / not given */
    const char *choices;  /* ENUM: "none|pcp|ring|auto" */
    double min, max;      /* numbers; min > max: no limit */
    const char *doc;      /* one line for --help: what happens, with unit */
    uint32_t commands;    /* bit mask of the commands that take it */
} weft_opt;

typedef struct weft_opts { /* a filled options struct and where each value came from */
    const weft_opt *table;
    int n;
    uint32_t command;     /* rows without this bit are unknown here */
    void *values;
    weft_arena *arena;    /* texts */
    unsigned char *source;/* [n] 0 default, 1 file, 2 flag */
} weft_opts;

weft_status weft_opts_init(weft_opts *o, const weft_opt *table, int n, uint32_t command, void *values,
                           weft_arena *arena);
/* YAML file; messages carry file:line:column. Lists and unknown keys are refused. */
weft_status weft_opts_yaml(weft_opts *o, const char *path);
/* argv without the program's and the command's name. Words that are no flags go to positional[] (at most max). */
weft_status weft_opts_argv(weft_opts *o, int argc, char *const *argv, const char **positional, int max,
                           int *n_positional);
weft_status weft_opts_set(weft_opts *o, const char *key_or_flag, const char *value, int source);
/* Who asked for the value: 0 nobody, 1 a file, 2 a flag or --set. A file that names a default asks for nothing: the
 * record of a run names every option, and must not contradict itself when it is read back. */
int weft_opts_source(const weft_opts *o, const char *key);
bool weft_opts_given(const weft_opts *o, const char *key); /* somebody asked for it */
/* The value as text, as it would be given; NULL for a text that was not given, and for a key that the command does not
 * have. buf: for numbers. */
const char *weft_opts_value(const weft_opts *o, const char *key, char *buf, size_t n);
/* For a page of `width` columns, 40 or more. */
void weft_opts_help(const weft_opts *o, int width, weft_text *out);
/* All values as YAML that reads back to the same values. */
void weft_opts_yaml_text(const weft_opts *o, weft_text *out);
/* A line "key: value" for every option of the command, in the order of the table, given or not. */
void weft_opts_lines(const weft_opts *o, weft_text *out);
/* Two-column table of all values, those given by the user marked; with `given` of those only. Returns how many rows
 * were left out. */
int weft_opts_table(const weft_opts *o, bool given, weft_text *out);

#endif
