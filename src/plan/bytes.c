/* bytes.c — bytes that one rank sends in a step, by the groups over which they go: as counted. */
#include "plan/plan.h"

const char *weft_bytes_name(weft_bytes_kind kind)
{
    static const char *const names[WEFT_BYTES_KINDS] = {"tp", "cp", "pp", "dp", "all"};
    return names[kind];
}

int64_t weft_bytes_total(const weft_bytes *b)
{
    int64_t sum = 0;
    for (int k = 0; k < WEFT_BYTES_KINDS; k++) sum += b->of[k];
    return sum;
}

static int64_t sent_over(const weft_comm *c)
{
    weft_counters x = {0};
    if (c) weft_comm_counters(c, &x);
    return x.bytes_logical;
}

void weft_bytes_count(const weft_mesh *mesh, weft_bytes *out)
{
    *out = (weft_bytes){.of = {[WEFT_BYTES_TP] = sent_over(mesh->tp),
                               [WEFT_BYTES_CP] = sent_over(mesh->cp),
                               [WEFT_BYTES_PP] = sent_over(mesh->pp) + sent_over(mesh->ends),
                               [WEFT_BYTES_DP] = sent_over(mesh->dp) + sent_over(mesh->dp_cp),
                               [WEFT_BYTES_ALL] = sent_over(mesh->all)}};
}
