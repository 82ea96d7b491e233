/* reason.c — why the best choice is the best, in words: what hides and what shows, which groups share a node, and why
 * nothing less is recomputed. A line for each dimension that has more than one rank. */
#include "plan/plan_impl.h"

#include <math.h>
#include <string.h>

static double percent(double part, double of) { return of > 0 ? 100 * part / of : 0; }

static const char *bytes(double n, char buf[32]) { return weft_format_bytes(n, buf, 32); }

/* "stays inside a node of 8 ranks", "3 of its 16 ranks share a node" */
static void add_place(const weft__search *s, const weft_layout_choice *c, weft_plan_link link, weft_text *t)
{
    const weft__peers g = weft__peers_of(s->ask->profile, c, link);
    const int node = s->ask->profile->node_ranks;
    if (node == 0 || s->ask->ranks <= node) return;
    if (g.in_node == g.size) weft_text_add(t, "; stays inside a node of %d ranks", node);
    else if (g.in_node > 1) weft_text_add(t, "; %d of its ranks share a node", g.in_node);
    else weft_text_add(t, "; across nodes");
}

/* What hides is a question to the formulas, of both: the simulator counts what its messages cost besides, too. */
static weft_status add_cp(weft__search *s, const weft_plan_found *x, weft_text *t)
{
    const weft_layout_choice *c = &x->choice;
    weft_plan_time own;
    if (c->cp == 1) return WEFT_OK;
    WEFT_TRY(weft__time_of(s, c, &own));
    const double moving = own.moving[WEFT_LINK_CP], shown = own.seconds[WEFT_TIME_CP];
    weft_text_add(t, "cp %d  %s", c->cp, x->time.strategy);
    if (x->time.head_ranks > 1) weft_text_add(t, ", head groups of %d", x->time.head_ranks);
    if (moving > 0)
        weft_text_add(t, ": %.0f %% of its exchange hides under attention", fmax(0, 100 - percent(shown, moving)));
    weft_text_add(t, "; %.1f %% of the step shows%s", percent(x->time.seconds[WEFT_TIME_CP], x->time.step),
                  x->simulated ? " (simulated)" : "");
    add_place(s, c, WEFT_LINK_CP, t);
    weft_text_add(t, "\n");
    return WEFT_OK;
}

static void add_no_cp(const weft__search *s, const weft_plan_found *x, weft_text *t)
{
    const weft_search_result *r = s->out;
    if (x->choice.cp > 1 || !r->has_cp[1] || !r->has_cp[0]) return;
    weft_text_add(t, "cp 1  whole sequences fit on a rank of tp and pp; the best with cp (%d) takes %.1f %% longer\n",
                  r->of_cp[1].choice.cp, percent(r->of_cp[1].time.step, r->of_cp[0].time.step) - 100);
}

static void add_tp(const weft__search *s, const weft_plan_found *x, weft_text *t)
{
    if (x->choice.tp == 1) return;
    weft_text_add(t, "tp %d  %s%.1f %% of the step is its exchange, which nothing hides", x->choice.tp,
                  x->choice.sequence_parallel ? "rows shared; " : "",
                  percent(x->time.seconds[WEFT_TIME_TP], x->time.step));
    add_place(s, &x->choice, WEFT_LINK_TP, t);
    weft_text_add(t, "\n");
}

static void add_pp(const weft__search *s, const weft_plan_found *x, weft_text *t)
{
    int64_t micros = 1;
    if (x->choice.pp == 1 || weft_plan_micros(&s->step, &x->choice, &micros) < 0) return;
    weft_text_add(t, "pp %d  %.1f %% of the step the busiest stage has nothing to do, with %lld micro-batch%s",
                  x->choice.pp, percent(x->time.seconds[WEFT_TIME_BUBBLE], x->time.step), (long long)micros,
                  micros == 1 ? "" : "es");
    add_place(s, &x->choice, WEFT_LINK_PP, t);
    weft_text_add(t, "\n");
}

static void add_dp(const weft__search *s, const weft_plan_found *x, weft_text *t)
{
    const double moving = x->time.moving[WEFT_LINK_DP], shown = x->time.seconds[WEFT_TIME_DP];
    if (x->choice.dp * x->choice.cp == 1) return;
    weft_text_add(t, "dp %d  gradients are summed over %d ranks (dp x cp), ZeRO %d", x->choice.dp,
                  x->choice.dp * x->choice.cp, x->choice.zero);
    if (moving > 0) weft_text_add(t, "; %.0f %% of that hides", fmax(0, 100 - percent(shown, moving)));
    weft_text_add(t, "; %.1f %% of the step shows", percent(shown, x->time.step));
    add_place(s, &x->choice, WEFT_LINK_DP, t);
    weft_text_add(t, "\n");
}

static void add_name(const weft_layout_choice *c, weft_text *t)
{
    weft_text_add(t, "%s%s", weft_recompute_name(c->recompute), c->keep_attention ? " (attention kept)" : "");
    if (c->offload) weft_text_add(t, ", inputs of layers offloaded");
}

/* The rung that is next faster, of those that do not fit. */
static weft_status faster_rung(weft__search *s, const weft_plan_found *x, weft_plan_found *out, bool *there)
{
    weft_layout_choice rung[WEFT__LADDER_MAX];
    const int n = weft__ladder(s, &x->choice, rung);
    *there = false;
    for (int i = 0; i < n; i++) {
        weft_plan_found f = {.choice = rung[i]};
        weft_status st = weft__time_of(s, &rung[i], &f.time);
        if (st == WEFT_ERR_REFUSED) continue;
        WEFT_TRY(st);
        double cp = x->simulated ? f.time.seconds[WEFT_TIME_CP] + f.time.seconds[WEFT_TIME_IMBALANCE] : 0;
        double own = x->simulated ? x->time.seconds[WEFT_TIME_CP] + x->time.seconds[WEFT_TIME_IMBALANCE] : 0;
        if (f.time.step - cp >= x->time.step - own) continue; /* what the simulator changed is the same for both */
        if (*there && f.time.step <= out->time.step) continue;
        WEFT_TRY(weft__memory_of(s, &rung[i], &f.memory));
        if (weft__fits(s, &f.memory)) continue;
        *out = f;
        *there = true;
    }
    return WEFT_OK;
}

static weft_status add_recompute(weft__search *s, const weft_plan_found *x, weft_text *t)
{
    char need[32], have[32];
    weft_plan_found next;
    bool there;
    const double most = s->ask->memory;
    WEFT_TRY(faster_rung(s, x, &next, &there));
    weft_text_add(t, "recompute  ");
    add_name(&x->choice, t);
    if (there) {
        weft_text_add(t, ", because ");
        add_name(&next.choice, t);
        weft_text_add(t, " would need %s of %s", bytes((double)weft_memory_total(&next.memory), need),
                      bytes(most, have));
    } else if (x->choice.recompute == WEFT_RECOMPUTE_NONE && most > 0)
        weft_text_add(t, ": all that is kept fits, %s of %s", bytes((double)weft_memory_total(&x->memory), need),
                      bytes(most, have));
    else if (s->ask->fixed.recompute != WEFT_PLAN_FREE) weft_text_add(t, ", as asked for");
    else if (x->choice.recompute == WEFT_RECOMPUTE_NONE) weft_text_add(t, ": memory has no limit");
    weft_text_add(t, "\n");
    return WEFT_OK;
}

weft_status weft__search_reason(weft__search *s)
{
    const weft_plan_found *x = &s->out->best[0];
    weft_text *t = &s->out->reason;
    WEFT_TRY(add_cp(s, x, t));
    add_no_cp(s, x, t);
    add_tp(s, x, t);
    add_pp(s, x, t);
    add_dp(s, x, t);
    WEFT_TRY(add_recompute(s, x, t));
    return t->failed ? weft_fail(WEFT_ERR_MEMORY, "no memory for the reasons of a plan") : WEFT_OK;
}
