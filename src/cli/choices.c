/* choices.c — lists of strategies and layouts, from words. */
#include "cli/choices.h"

#include <string.h>

weft_status weft_split_names(weft_arena *arena, const char *text, const char *flag, const char *word[WEFT_NAMES_MAX],
                             int *n)
{
    for (*n = 0;; text++) {
        size_t len = strcspn(text, ",");
        if (len == 0) return weft_fail(WEFT_ERR_REFUSED, "%s: a name is empty; give names separated by commas", flag);
        if (*n == WEFT_NAMES_MAX) return weft_fail(WEFT_ERR_REFUSED, "%s: more than %d names", flag, WEFT_NAMES_MAX);
        char *copy;
        WEFT_TRY(WEFT_NEW0(arena, (int64_t)len + 1, "names", &copy));
        memcpy(copy, text, len);
        for (int i = 0; i < *n; i++)
            if (!strcmp(word[i], copy)) return weft_fail(WEFT_ERR_REFUSED, "%s: %s is named twice", flag, copy);
        word[(*n)++] = copy;
        text += len;
        if (!*text) return WEFT_OK;
    }
}

weft_status weft_choose_strategies(const weft_cli *cli, weft_arena *arena, const char *name[WEFT_NAMES_MAX], int *n,
                                   bool *chosen)
{
    const weft_run *run = &cli->run;
    const weft_run_options *o = &cli->options;
    bool one = strcmp(run->cp.strategy, "auto") != 0;
    *chosen = one || o->sim_strategies;
    if (one && o->sim_strategies &&
        weft_run_names_strategy(&cli->opts) >= weft_opts_source(&cli->opts, "sim.strategies"))
        return weft_fail(WEFT_ERR_REFUSED, "--strategies %s and strategy %s; give one of them", o->sim_strategies,
                         run->cp.strategy);
    if (o->sim_strategies) {
        WEFT_TRY(weft_split_names(arena, o->sim_strategies, "--strategies", name, n));
        for (int i = 0; i < *n; i++) WEFT_TRY(weft_cp_known(name[i]));
        return WEFT_OK;
    }
    if (one) {
        name[0] = run->cp.strategy;
        *n = 1;
        return WEFT_OK;
    }
    const char *const *all = weft_cp_names(n);
    for (int i = 0; i < *n; i++) name[i] = all[i];
    return WEFT_OK;
}

weft_status weft_choose_layouts(const weft_cli *cli, weft_arena *arena, weft_layout layout[WEFT_NAMES_MAX], int *n)
{
    const weft_run_options *o = &cli->options;
    const char *name[WEFT_NAMES_MAX];
    *n = 1;
    layout[0] = cli->run.layout;
    if (!o->sim_layouts) return WEFT_OK;
    if (weft_opts_source(&cli->opts, "parallel.cp_layout") >= weft_opts_source(&cli->opts, "sim.layouts"))
        return weft_fail(WEFT_ERR_REFUSED, "--layouts %s and --cp-layout %s; give one of them", o->sim_layouts,
                         o->cp_layout);
    WEFT_TRY(weft_split_names(arena, o->sim_layouts, "--layouts", name, n));
    for (int i = 0; i < *n; i++) WEFT_TRY(weft_layout_parse(name[i], &layout[i]));
    return WEFT_OK;
}
