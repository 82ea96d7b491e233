/* rules.c — the rules of thumb by which layouts are chosen elsewhere: what each would have said here, what Weft says by
 * its own arithmetic, and whether the two agree. A rule that says nothing of a case is silent, never right. */
#include "plan/plan_impl.h"

#include <math.h>
#include <string.h>

typedef struct judging { weft__search *s; const weft_plan_found *best; } judging;

static weft_plan_verdict *add(judging *j, const char *rule, const char *source)
{
    weft_search_result *r = j->s->out;
    weft_plan_verdict *v = &r->verdict[r->verdicts < WEFT_PLAN_VERDICTS - 1 ? r->verdicts++ : WEFT_PLAN_VERDICTS - 1];
    *v = (weft_plan_verdict){.rule = rule, .source = source, .verdict = WEFT_RULE_SILENT};
    return v;
}

static void agrees_if(weft_plan_verdict *v, bool same) { v->verdict = same ? WEFT_RULE_AGREES : WEFT_RULE_DIFFERS; }

#define SAY(field, ...) weft_format((field), sizeof (field), __VA_ARGS__)

/* ---- whether, and which -------------------------------------------------------------------------------------- */

/* Why no other cp was looked at; NULL: all were. */
static const char *settled_cp(const judging *j)
{
    const weft_plan_fixed *f = &j->s->ask->fixed;
    if (f->cp != WEFT_PLAN_FREE) return "cp was asked for";
    const bool rest = f->tp != WEFT_PLAN_FREE && f->dp != WEFT_PLAN_FREE && f->pp != WEFT_PLAN_FREE;
    return rest ? "tp, dp and pp were asked for, and leave one cp" : NULL;
}

/* What the other side takes, or that it does not fit, or that nobody wanted to know. */
static void compare_cp(judging *j, weft_plan_verdict *v, bool with)
{
    const weft_search_result *r = j->s->out;
    const char *how = with ? "with" : "without", *settled = settled_cp(j);
    if (settled) SAY(v->because, "%s: nothing %s cp was looked at", settled, how);
    else if (!r->has_cp[with] || !r->has_cp[!with]) SAY(v->because, "nothing %s cp fits, or comes near the best", how);
    else
        SAY(v->because, "the best %s cp takes %.1f %% longer", how,
            100 * (r->of_cp[with].time.step / r->of_cp[!with].time.step - 1));
}

static void own_cp(judging *j, weft_plan_verdict *v)
{
    const weft_layout_choice *c = &j->best->choice;
    if (c->cp == 1) SAY(v->own, "cp 1");
    else if (j->best->time.head_ranks > 1)
        SAY(v->own, "cp %d, %s, U %d", c->cp, j->best->time.strategy, j->best->time.head_ranks);
    else SAY(v->own, "cp %d, %s", c->cp, j->best->time.strategy);
}

static void whether_cp(judging *j)
{
    weft_plan_verdict *v = add(j, "context parallelism from 16K tokens on; below 4K none, but TP and DP", "theory c0");
    const int64_t T = j->s->step.options.T;
    const bool with = j->best->choice.cp > 1;
    own_cp(j, v);
    if (T >= 4096 && T < 16384) {
        SAY(v->value, "nothing at %lld tokens", (long long)T);
        return;
    }
    SAY(v->value, "%s at %lld tokens", T >= 16384 ? "cp" : "no cp", (long long)T);
    agrees_if(v, with == (T >= 16384));
    if (v->verdict == WEFT_RULE_DIFFERS) compare_cp(j, v, !with);
}

static bool is_grid(const char *strategy) { return !strncmp(strategy, "dcp", 3) || !strcmp(strategy, "ulysses"); }

/* The best choice with another strategy, or -1 where that cannot run. */
static double with_strategy(judging *j, const char *strategy)
{
    weft_layout_choice c = j->best->choice;
    weft_plan_time t;
    c.strategy = strategy;
    c.head_size = 0;
    return weft__time_of(j->s, &c, &t) == WEFT_OK ? t.step : -1;
}

/* By the same formulas for both: the best's seconds may be the simulator's. */
static void compare_strategy(judging *j, weft_plan_verdict *v, const char *strategy)
{
    weft_plan_time own;
    const double step = with_strategy(j, strategy);
    if (step < 0 || weft__time_of(j->s, &j->best->choice, &own) != WEFT_OK)
        SAY(v->because, "%s cannot run here", strategy);
    else SAY(v->because, "%s in the same layout takes %.1f %% longer", strategy, 100 * (step / own.step - 1));
}

static void which_strategy(judging *j)
{
    weft_plan_verdict *v = add(j, "PCP for 8K to 32K tokens and up to 32 heads, DCP above 64K or from 64 heads",
                               "theory c0");
    const int64_t T = j->s->step.options.T;
    const int H = j->s->step.config->H;
    const bool dcp = T > 65536 || H >= 64, pcp = T >= 8192 && T <= 32768 && H <= 32;
    own_cp(j, v);
    SAY(v->value, "%s at %lld tokens, %d heads", dcp ? "dcp" : pcp ? "pcp" : "nothing", (long long)T, H);
    if ((!dcp && !pcp) || j->best->choice.cp == 1) return;
    agrees_if(v, dcp ? is_grid(j->best->time.strategy) : !strcmp(j->best->time.strategy, "pcp"));
    if (v->verdict == WEFT_RULE_DIFFERS) compare_strategy(j, v, dcp ? "dcp" : "pcp");
}

static void which_by_node(judging *j)
{
    weft_plan_verdict *v = add(j, "PCP inside a node, DCP across nodes", "theory c0");
    const weft__peers g = weft__peers_of(j->s->ask->profile, &j->best->choice, WEFT_LINK_CP);
    const bool inside = g.in_node == g.size;
    own_cp(j, v);
    if (g.size == 1) {
        SAY(v->value, "nothing without cp");
        return;
    }
    SAY(v->value, "%s: cp %s", inside ? "pcp" : "dcp", inside ? "is inside a node" : "crosses nodes");
    agrees_if(v, inside ? !strcmp(j->best->time.strategy, "pcp") : is_grid(j->best->time.strategy));
    if (v->verdict == WEFT_RULE_DIFFERS) compare_strategy(j, v, inside ? "pcp" : "dcp");
}

/* ---- how many ------------------------------------------------------------------------------------------------ */

/* Printed as CP <= S/8, with 8K -> 8 and 16K -> 16 beside it, which is S/1024. */
static void how_many(judging *j)
{
    weft_plan_verdict *v = add(j, "cp at most T/8; the examples beside it (8K: 8, 16K: 16) are T/1024", "theory c0");
    const int64_t T = j->s->step.options.T, cp = j->best->choice.cp;
    SAY(v->value, "%lld, or %lld", (long long)(T / 8), (long long)(T / 1024));
    SAY(v->own, "cp %lld", (long long)cp);
    agrees_if(v, cp <= weft_max_i64(T / 1024, 1));
    const char *settled = settled_cp(j);
    if (v->verdict == WEFT_RULE_DIFFERS)
        SAY(v->because, "%s", settled ? settled : "shorter shares still pay on this machine");
    else if (T / 8 >= j->s->ask->ranks) SAY(v->because, "T/8 is no limit: there are %d ranks", j->s->ask->ranks);
}

static void memory_rule(judging *j)
{
    weft_plan_verdict *v = add(j, "memory about params/(TP PP) + T hidden/CP", "theory c0");
    const weft_model_config *c = j->s->step.config;
    const weft_layout_choice *b = &j->best->choice;
    const double size = (double)weft_dtype_size(weft_prec_compute(j->s->step.options.prec));
    const double says = size * ((double)weft_model_params(c) / (b->tp * b->pp) +
                                (double)j->s->step.options.T * (double)c->C / b->cp);
    const double own = (double)weft_memory_total(&j->best->memory);
    char buf[32];
    SAY(v->value, "%s", weft_format_bytes(says, buf, sizeof buf));
    SAY(v->own, "%s", weft_format_bytes(own, buf, sizeof buf));
    agrees_if(v, fabs(says / own - 1) < 0.1);
    if (v->verdict == WEFT_RULE_DIFFERS)
        SAY(v->because, "it leaves out gradients and moments (%s here), and all activations but one layer's",
            weft_format_bytes((double)(j->best->memory.bytes[WEFT_MEMORY_GRADIENTS] +
                                       j->best->memory.bytes[WEFT_MEMORY_MOMENTS]), buf, sizeof buf));
}

/* ---- the exchange -------------------------------------------------------------------------------------------- */

/* A layer's exchange by a strategy, in the best choice's cut. */
static bool cost_of(judging *j, const char *strategy, int U, weft_cp_cost *out)
{
    weft_layout_choice c = j->best->choice;
    weft_layer_attention kind[2];
    c.strategy = strategy, c.head_size = U, c.cp_layout = (weft_layout){WEFT_LAYOUT_ZIGZAG, 0};
    const weft_model_share share = {c.tp - 1, c.tp, 0, c.pp, c.sequence_parallel};
    const weft_profile p = weft__profile_of_cp(j->s->ask->profile, &c);
    weft_model_options o = weft_plan_options(&j->s->step, &c);
    o.cp.profile = &p;
    if (weft_model_attention(j->s->step.config, &share, &o, kind) == 0) return false;
    return weft_cp_cost_of(out, &kind[0].problem, &o.cp, c.cp) == WEFT_OK;
}

static double cp_bandwidth(const judging *j)
{
    const weft_profile p = weft__profile_of_cp(j->s->ask->profile, &j->best->choice);
    const bool inside = p.node_ranks == 0 || j->best->choice.cp <= p.node_ranks;
    return inside ? p.node_bytes_per_second : fmin(p.link_bytes_per_second, p.rank_bytes_per_second);
}

static void ring_hides(judging *j)
{
    weft_plan_verdict *v = add(j, "a causal zigzag ring hides its forward exchange from 2F/(gB) tokens a rank on",
                               "theory c3");
    const weft_model_config *c = j->s->step.config;
    const weft_prec prec = j->s->step.options.prec;
    const int cp = j->best->choice.cp;
    const double g = (double)c->H / c->Hkv, F = j->s->ask->profile->flops_per_second[prec], B = cp_bandwidth(j);
    const double least = 2 * F / (g * B) * (double)weft_dtype_size(weft_prec_compute(prec)) / 2;
    const double tokens = (double)j->s->step.options.T / cp * (double)j->best->choice.micro_batch;
    weft_cp_cost x;
    SAY(v->value, "%.0f tokens", least);
    if (cp == 1 || c->window > 0 || !cost_of(j, "ring", 0, &x) || !(x.moving_forward > 0)) {
        SAY(v->own, cp == 1 ? "no cp" : "a window, or no ring");
        return;
    }
    const double hidden = 1 - x.exposed_forward / x.moving_forward;
    SAY(v->own, "%.0f tokens, %.0f %% hides", tokens, 100 * hidden);
    agrees_if(v, (tokens >= least) == (hidden > 0.95));
    if (v->verdict == WEFT_RULE_DIFFERS)
        SAY(v->because, "latency: %d message%s of %.1f us a layer", cp - 1, cp > 2 ? "s" : "",
            1e6 * (j->s->ask->profile->node_latency_seconds));
}

static void ulysses_moves(judging *j)
{
    weft_plan_verdict *v = add(j, "Ulysses moves more than all-gather iff P < g + 1", "theory c3");
    const weft_model_config *c = j->s->step.config;
    const int P = j->best->choice.cp, g = c->H / c->Hkv;
    weft_cp_cost u, a;
    SAY(v->value, "P %d, g + 1 = %d: %s", P, g + 1, P < g + 1 ? "more" : P == g + 1 ? "as much" : "less");
    if (P == 1 || !cost_of(j, "ulysses", 0, &u) || !cost_of(j, "pcp", 0, &a)) {
        SAY(v->own, P == 1 ? "no cp" : "Ulysses cannot run here");
        return;
    }
    const double ratio = u.heads_forward / a.context_forward;
    SAY(v->own, "%.2f times as much", ratio);
    agrees_if(v, P == g + 1 ? fabs(ratio - 1) < 0.1 : (P < g + 1) == (ratio > 1));
    if (v->verdict == WEFT_RULE_DIFFERS) SAY(v->because, "maximum and sum of each row come home with the output, too");
}

static int largest_divisor(int P, int most)
{
    int U = P < most ? P : most;
    while (P % U) U--;
    return U;
}

static void best_split(judging *j)
{
    weft_plan_verdict *v = add(j, "best head groups: the largest divisor of P that is at most Hkv", "theory c3");
    const weft_layout_choice *b = &j->best->choice;
    const int Hkv = (int)weft_ceil_div(j->s->step.config->Hkv, b->tp), P = b->cp, says = largest_divisor(P, Hkv);
    int best = 0;
    double least = 0;
    SAY(v->value, "U %d", says);
    for (int U = 1; P > 1 && U <= P; U++) {
        weft_cp_cost x;
        const char *way = U == 1 ? "ring" : U == P ? "ulysses" : "dcp-ring";
        if (P % U || !cost_of(j, way, U == 1 || U == P ? 0 : U, &x)) continue;
        const double seconds = x.exposed_forward + x.exposed_backward + x.uneven_forward + x.uneven_backward;
        if (best == 0 || seconds < least * (1 - 1e-9)) best = U, least = seconds;
    }
    if (best == 0) {
        SAY(v->own, "no cp");
        return;
    }
    SAY(v->own, "U %d shows least", best);
    agrees_if(v, best == says);
    if (v->verdict == WEFT_RULE_DIFFERS)
        SAY(v->because, "it counts bytes; what hides under attention costs nothing, and the head stage never hides");
}

/* ---- the whole ----------------------------------------------------------------------------------------------- */

static void share_of_communication(judging *j)
{
    weft_plan_verdict *v = add(j, "communication: 15 % of the step is good, 40 % a bottleneck", "theory c0");
    const weft_plan_time *t = &j->best->time;
    double moving = 0, shown = 0;
    for (int i = 0; i < WEFT_LINKS; i++) moving += t->moving[i];
    for (int i = WEFT_TIME_TP; i <= WEFT_TIME_DP; i++) shown += t->seconds[i];
    const double share = 100 * moving / t->step, stands = 100 * shown / t->step;
    SAY(v->value, "%.0f %%: %s", share, share < 15 ? "good" : share > 40 ? "a bottleneck" : "between");
    SAY(v->own, "%.1f %% shows", stands);
    agrees_if(v, share > 40 ? stands > 15 : share < 15 ? stands < 15 : true);
    if (v->verdict == WEFT_RULE_DIFFERS)
        SAY(v->because, "what hides costs nothing: without any exchange the step is %.1f %% shorter", stands);
}

static void sequence_parallelism(judging *j)
{
    weft_plan_verdict *v = add(j, "sequence parallelism must be on with context parallelism", "theory c0");
    const weft_layout_choice *b = &j->best->choice;
    SAY(v->value, "on with cp and tp");
    SAY(v->own, b->tp == 1 ? "no tp" : b->sequence_parallel ? "on" : "off");
    if (b->tp == 1 || b->cp == 1) return;
    agrees_if(v, b->sequence_parallel);
    if (v->verdict == WEFT_RULE_DIFFERS) SAY(v->because, "both work, alone and together");
}

weft_status weft__search_rules(weft__search *s)
{
    judging j = {s, &s->out->best[0]};
    whether_cp(&j);
    which_strategy(&j);
    which_by_node(&j);
    how_many(&j);
    memory_rule(&j);
    ring_hides(&j);
    ulysses_moves(&j);
    best_split(&j);
    share_of_communication(&j);
    sequence_parallelism(&j);
    return WEFT_OK;
}
