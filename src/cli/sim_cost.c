/* sim_cost.c — what a disturbance costs each strategy of `weft sim`, and which ranks stand still for it. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

enum { WHO = 11 }; /* columns for the ranks that wait */

static double total(const weft_sim_result *r) { return r->forward_seconds + r->backward_seconds; }

/* What rank r does not work: waits inside, and for the last rank at the end. */
static double idle(const weft_sim_result *x, int r)
{
    const weft_sim_rank_result *k = &x->rank[r];
    return k->exposed_seconds + total(x) - k->forward_seconds - k->backward_seconds;
}

static double more_idle(const weft_sim_cost *c, int r) { return idle(c->disturbed, r) - idle(c->calm, r); }

/* Less than a hundredth of the whole is nothing to look at. */
static bool waits(const weft_sim_cost *c, int r) { return more_idle(c, r) > total(c->calm) / 100; }

/* "0-2,4-7", or how many there are where that is too long; longest: the rank that waits most, -1 none does. */
static void waiting(const weft_sim_cost *c, char text[WHO + 1], int *longest)
{
    weft_line l = {text, WHO + 1, 0};
    const int ranks = c->calm->ranks;
    int n = 0;
    *text = 0;
    *longest = -1;
    for (int r = 0, last; r < ranks; r = last + 1) {
        for (last = r; last < ranks && waits(c, last); last++)
            if (*longest < 0 || more_idle(c, last) > more_idle(c, *longest)) *longest = last;
        if (last == r) continue;
        n += last - r;
        weft_line_add(&l, last - r > 1 ? "%s%d-%d" : "%s%d", l.used ? "," : "", r, last - 1);
    }
    if (l.used > WHO || n == 0) l.used = 0;
    if (l.used == 0) weft_line_add(&l, n ? "%d ranks" : "none", n);
}

static void print_cost(const weft_sim_cost *c, int layers)
{
    char layout[48], before[16], after[16], most[16], who[WHO + 1];
    const double calm = total(c->calm), disturbed = total(c->disturbed);
    int longest;
    waiting(c, who, &longest);
    printf("  %-12s %-10s %7s %7s %+6.1f%%  %-*s", c->strategy, weft_layout_text(c->layout, layout, sizeof layout),
           weft_short_seconds(calm / layers, before), weft_short_seconds(disturbed / layers, after),
           100 * (disturbed / calm - 1), WHO, who);
    if (longest >= 0)
        printf(" rank %d %s", longest, weft_short_seconds(more_idle(c, longest) / layers, most));
    printf("\n");
}

void weft_print_sim_costs(const weft_sim_cost *list, int n, int layers)
{
    printf("\nWhat that costs:\n  %-12s %-10s %7s %7s %7s  %-*s %s\n", "strategy", "layout", "calm", "now",
           "cost", WHO, "wait more", "most");
    for (int i = 0; i < n; i++) print_cost(&list[i], layers);
    printf("\nOf one layer, forward and backward; calm: without what disturbs; now: with.\n"
           "wait more: ranks that stand still longer, by more than a hundredth of the calm\n"
           "time; and which of them waits most, how much more.\n");
}
