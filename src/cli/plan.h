/* plan.h — between `weft plan` and what prints it. */
#ifndef WEFT_CLI_PLAN_H
#define WEFT_CLI_PLAN_H

#include "cli/cli.h"

typedef struct weft_plan_report { /* what was asked and found */
    const weft_cli *cli;
    weft_search_ask ask;
    weft_model_config config;
    weft_profile profile;
    const char *machine;      /* as it was named; NULL: a plain machine */
    weft_search_result found;
    double seconds;           /* that the search took */
} weft_plan_report;

void weft_plan_print_text(const weft_plan_report *r);
void weft_plan_print_jsonl(const weft_plan_report *r);
double weft_plan_mfu(const weft_plan_report *r, const weft_plan_found *x);

#endif
