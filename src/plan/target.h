/* target.h — the systems for which a layout can be planned: what each of them runs and refuses, and how it is told.
 *
 * The search (layouts.c) makes choices and asks the target of each; what a target says no to is counted by its rule. A
 * target is data and a few pure functions: one more is a row in target.c. */
#ifndef WEFT_PLAN_TARGET_H
#define WEFT_PLAN_TARGET_H

#include "plan/plan.h"

struct weft_target {
    const char *name, *doc;
    int zero_most;              /* the highest ZeRO stage */
    bool fp8;                   /* has products in fp8 */
    const char *strategies;     /* names of weft_cp_names that it has, between '|' */
    const char *layouts;        /* of sequences, likewise */
    weft_plan_system (*system)(weft_prec prec); /* its widths */
    /* Does it run this? When not: *rule is the rule in a few words, the same for every choice that breaks it, and `why`
     * gets the value and one that works. LOCAL, pure */
    bool (*allowed)(const weft_plan_ask *ask, const weft_layout_choice *choice, const char **rule, weft_text *why);
    /* The bytes of the rank with most; NULL: what Weft's own code counts (weft_plan_most_memory). LOCAL, pure */
    weft_status (*memory)(const weft_plan_ask *ask, const weft_layout_choice *choice, weft_memory *out);
    /* Appends the options that ask for the choice, as this system takes them. LOCAL, pure */
    void (*flags)(const weft_plan_ask *ask, const weft_layout_choice *choice, weft_text *out);
};

extern const weft_target weft_target_weft, weft_target_megatron, weft_target_torchtitan, weft_target_deepspeed;
const weft_target *const *weft_targets(int *n);
/* Refuses a name that is none's, with those there are. LOCAL */
weft_status weft_target_find(const weft_target **out, const char *name);

#endif
