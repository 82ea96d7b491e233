/* choices.h — which strategies and layouts of context parallelism a command compares: --strategies and --layouts, or
 * what was asked for otherwise. */
#ifndef WEFT_CLI_CHOICES_H
#define WEFT_CLI_CHOICES_H

#include "cli/cli.h"

enum { WEFT_NAMES_MAX = 64 };

/* The words of "a,b,c", copied into the arena; flag: for messages. */
weft_status weft_split_names(weft_arena *arena, const char *text, const char *flag, const char *word[WEFT_NAMES_MAX],
                             int *n);
/* The strategies in question: those of --strategies, the one that was named otherwise, or all. *chosen: the user named
 * them, and a refusal of one is the command's. */
weft_status weft_choose_strategies(const weft_cli *cli, weft_arena *arena, const char *name[WEFT_NAMES_MAX], int *n,
                                   bool *chosen);
/* Those of --layouts, or the one of --cp-layout. */
weft_status weft_choose_layouts(const weft_cli *cli, weft_arena *arena, weft_layout layout[WEFT_NAMES_MAX], int *n);

#endif
