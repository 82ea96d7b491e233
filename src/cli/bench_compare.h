/* bench_compare.h — between `weft bench cp` of one strategy and of all that apply. */
#ifndef WEFT_CLI_BENCH_COMPARE_H
#define WEFT_CLI_BENCH_COMPARE_H

#include "cli/bench.h"

weft_status weft_compare_check(const weft_cli *cli);                   /* refusals before any rank is started */
weft_status weft_compare_run(weft_cli *cli, weft_world *world);        /* COLLECTIVE */

#endif
