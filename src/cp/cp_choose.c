/* cp_choose.c — which strategy runs: the one that was named, or the cheapest by the model of cp_cost.c; and why.
 * Pure. */
#include "cp/cp_heads.h"

#include <string.h>

/* ---- choice ---------------------------------------------------------------------------------------- */

bool weft__cp_can(const weft_cp_strategy *s, const weft__cp_ask *ask, weft_text *why)
{
    const weft_cp_options *o = ask->options;
    if (s->context || (!o->head_size && !o->keep_heads)) return s->applicable(ask, why);
    weft_text_add(why, "has no head groups; %s asks for dcp, dcp-ring, dcp-pairwise or ulysses",
                  o->head_size ? "a head size" : "keeping the head layout");
    return false;
}

weft_status weft_cp_known(const char *name)
{
    int n;
    const char *const *names = weft_cp_names(&n);
    bool known = !strcmp(name, "auto");
    for (int i = 0; i < n; i++) known |= !strcmp(name, names[i]);
    if (known) return WEFT_OK;
    const char *near = weft_suggest(name, names, n);
    weft_text list = {0};
    for (int i = 0; i < n; i++) weft_text_add(&list, "%s, ", names[i]);
    weft_status st =
        weft_fail(WEFT_ERR_REFUSED, "context-parallel strategy \"%s\" is unknown%s%s%s; there are %sauto", name,
                  near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "", list.data ? list.data : "");
    weft_text_free(&list);
    return st;
}

static weft_status choose_cheapest(const weft__cp_ask *ask, const weft_cp_strategy **out)
{
    weft_text why = {0};
    double least = 0;
    *out = NULL;
    for (int i = 0; i < weft__cp_strategy_count; i++) {
        const weft_cp_strategy *s = weft__cp_strategies[i];
        if (!weft__cp_can(s, ask, &why)) continue;
        double cost = s->cost(ask).seconds;
        if (*out && cost >= least * (1 - 1e-9)) continue; /* a tie but for rounding is a tie */
        *out = s;
        least = cost;
    }
    weft_status st = *out ? WEFT_OK
                          : weft_fail(WEFT_ERR_REFUSED, "no context-parallel strategy is applicable on %d ranks: %s",
                                      ask->P, why.data ? why.data : "");
    weft_text_free(&why);
    return st;
}

weft_status weft__cp_choose(const weft__cp_ask *ask, const weft_cp_strategy **out)
{
    const char *name = ask->options->strategy;
    if (!name || strcmp(name, "auto") == 0) return choose_cheapest(ask, out);
    for (int i = 0; i < weft__cp_strategy_count; i++) {
        const weft_cp_strategy *s = weft__cp_strategies[i];
        if (strcmp(name, s->name) != 0) continue;
        weft_text why = {0};
        weft_status st = WEFT_OK;
        if (weft__cp_can(s, ask, &why)) *out = s;
        else
            st = weft_fail(WEFT_ERR_REFUSED, "context-parallel strategy \"%s\": %s", name,
                           why.data ? why.data : "not applicable");
        weft_text_free(&why);
        return st;
    }
    return weft_cp_known(name);
}

weft_status weft_cp_cost_of(weft_cp_cost *out, const weft_cp_problem *problem, const weft_cp_options *options, int P)
{
    const weft_cp_strategy *chosen;
    weft_attn_desc desc;
    weft_profile plain = weft_profile_default();
    weft__cp_ask ask = {problem, options, options->profile ? options->profile : &plain, P, 1};
    WEFT_TRY(weft__cp_check(problem, options, &desc));
    WEFT_TRY(weft__cp_choose(&ask, &chosen));
    *out = chosen->cost(&ask).parts;
    out->strategy = chosen->name;
    out->head_ranks = chosen->context ? weft__heads_size(chosen, options, problem, P) : 1;
    return WEFT_OK;
}

/* ---- explanation ----------------------------------------------------------------------------------- */

enum { INDENT = 16, COLUMNS = 80 };

static void add_seconds(weft_text *out, double seconds)
{
    if (seconds < 1e-3) weft_text_add(out, "%9.1f us", seconds * 1e6);
    else if (seconds < 1) weft_text_add(out, "%9.2f ms", seconds * 1e3);
    else weft_text_add(out, "%9.2f s ", seconds);
}

typedef struct candidate { const weft_cp_strategy *strategy; weft__cp_cost cost; size_t buffers; } candidate;

static void add_row(weft_text *out, const candidate *x, bool chosen)
{
    char buf[3][32];
    const weft__cp_cost cost = x->cost;
    weft_text_add(out, "%c %-13s", chosen ? '*' : ' ', x->strategy->name);
    add_seconds(out, cost.seconds);
    weft_text_add(out, "  %13s  %13s  %13s\n", weft_format_bytes(cost.forward_bytes, buf[0], sizeof buf[0]),
                  weft_format_bytes(cost.backward_bytes, buf[1], sizeof buf[1]),
                  weft_format_bytes((double)x->buffers, buf[2], sizeof buf[2]));
}

static void add_reason(weft_text *out, const weft_cp_strategy *s, const weft__cp_ask *ask)
{
    weft_text why = {0}, row = {0};
    if (weft__cp_can(s, ask, &why)) return;
    weft_text_add(&row, "  %-13s %s", s->name, why.data ? why.data : "not applicable");
    weft_text_fold(out, row.data ? row.data : "", INDENT, COLUMNS);
    weft_text_free(&row);
    weft_text_free(&why);
}

/* Those that can run, the chosen one first and then by seconds, ties as in the table; returns how many. */
static int ranking(const weft__cp_ask *ask, const weft_cp_strategy *chosen, candidate *order)
{
    int n = 0;
    for (int i = 0; i < weft__cp_strategy_count; i++) {
        const weft_cp_strategy *s = weft__cp_strategies[i];
        weft_text why = {0};
        bool can = weft__cp_can(s, ask, &why);
        weft_text_free(&why);
        if (!can) continue;
        weft__cp_cost c = s->cost(ask);
        int at = n++;
        for (; at > 0; at--) {
            const candidate *before = &order[at - 1];
            if (s != chosen && (before->strategy == chosen || before->cost.seconds <= c.seconds)) break;
            order[at] = *before;
        }
        order[at] = (candidate){s, c, 0};
    }
    return n;
}

/* By the code that makes plans, so that the table says what a run takes. */
static weft_status preview_buffers(const weft_kern *kern, weft_comm *any, const weft__cp_ask *ask, candidate *x)
{
    weft_text plan = {0};
    weft_cp_sizes sizes = {0};
    weft_cp_options options = *ask->options;
    options.strategy = x->strategy->name;
    weft_status st = weft_cp_preview(kern, any, ask->problem, &options, ask->P, &plan, &sizes);
    x->buffers = sizes.pool;
    weft_text_free(&plan);
    return st;
}

weft_status weft_cp_explain(const weft_kern *kern, weft_comm *any, const weft_cp_problem *problem,
                            const weft_cp_options *options, int P, weft_text *out)
{
    const weft_cp_strategy *chosen;
    candidate order[WEFT__CP_MAX_STRATEGIES];
    weft_attn_desc desc;
    weft_profile plain = weft_profile_default();
    weft__cp_ask ask = {problem, options, options->profile ? options->profile : &plain, P, 1};
    WEFT_TRY(weft__cp_check(problem, options, &desc));
    WEFT_TRY(weft__cp_choose(&ask, &chosen));
    int n = ranking(&ask, chosen, order);
    for (int i = 0; i < n; i++) WEFT_TRY(preview_buffers(kern, any, &ask, &order[i]));
    weft_text_add(out, "  %-13s%12s  %13s  %13s  %13s\n", "strategy", "exposed", "sent forward", "sent backward",
                  "buffers");
    for (int i = 0; i < n; i++) add_row(out, &order[i], order[i].strategy == chosen);
    for (int i = 0; i < weft__cp_strategy_count; i++) add_reason(out, weft__cp_strategies[i], &ask);
    return WEFT_OK;
}
