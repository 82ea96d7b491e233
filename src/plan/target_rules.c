/* target_rules.c — rules of targets, applied; and refusals that name a way out, which is tried before it is named. */
#include "plan/target_impl.h"

static bool holds(const weft__target_rule *r, const weft__target_case *c)
{
    if (r->applies && !r->applies(c)) return true;
    if (r->breaks) return !r->breaks(c);
    int64_t divisor = r->divisor(c);
    return divisor > 0 && r->number(c) % divisor == 0;
}

static int first_broken(const weft__target_rules *rules, const weft__target_case *c)
{
    for (int i = 0; i < rules->n; i++)
        if (!holds(&rules->rule[i], c)) return i;
    return rules->n;
}

int weft__target_broken(const weft__target_rules *rules, const weft_plan_ask *ask, const weft_layout_choice *choice)
{
    const weft__target_case c = {*ask, *choice};
    return first_broken(rules, &c);
}

/* ---- a value that keeps the rule -------------------------------------------------------------------------------- */

static const char *const knob_name[WEFT__KNOBS] = {"", "T", "cp", "tp", "pp", "dp", "a head group of"};

static int64_t knob_value(const weft__target_case *c, weft__target_knob knob)
{
    switch (knob) {
    case WEFT__KNOB_T: return c->ask.options.T;
    case WEFT__KNOB_CP: return c->choice.cp;
    case WEFT__KNOB_TP: return c->choice.tp;
    case WEFT__KNOB_PP: return c->choice.pp;
    case WEFT__KNOB_DP: return c->choice.dp;
    case WEFT__KNOB_HEADS: return c->choice.head_size;
    default: return 0;
    }
}

static weft__target_case with(const weft__target_case *c, weft__target_knob knob, int64_t value)
{
    weft__target_case other = *c;
    switch (knob) {
    case WEFT__KNOB_T: other.ask.options.T = value; break;
    case WEFT__KNOB_CP: other.choice.cp = (int)value; break;
    case WEFT__KNOB_TP: other.choice.tp = (int)value; break;
    case WEFT__KNOB_PP: other.choice.pp = (int)value; break;
    case WEFT__KNOB_DP: other.choice.dp = (int)value; break;
    case WEFT__KNOB_HEADS: other.choice.head_size = (int)value; break;
    default: break;
    }
    return other;
}

typedef struct question { /* of the rule of that number, which is broken */
    const weft__target_rules *rules;
    const weft__target_rule *r;
    const weft__target_case *c;
} question;

/* A length goes in multiples of the rule's divisor, any other number by ones. */
static int64_t stride_of(const question *q)
{
    return q->r->knob == WEFT__KNOB_T && q->r->divisor ? weft_max_i64(1, q->r->divisor(q->c)) : 1;
}

/* The nearest value below, or above, that keeps the rule, or with `all` every rule; 0: none within reach. */
static int64_t nearest(const question *q, bool above, bool all)
{
    enum { MULTIPLES = 32, NUMBERS = 1024 }; /* a search asks this of many choices */
    const weft__target_knob knob = q->r->knob;
    const int64_t stride = stride_of(q), value = knob_value(q->c, knob);
    const int reach = knob == WEFT__KNOB_T ? MULTIPLES : NUMBERS;
    int64_t x = above ? value / stride * stride + stride : (value - 1) / stride * stride;
    for (int i = 0; i < reach && x > 0; i++, x += above ? stride : -stride) {
        const weft__target_case other = with(q->c, knob, x);
        if (all ? first_broken(q->rules, &other) == q->rules->n : holds(q->r, &other)) return x;
    }
    return 0;
}

/* Only a length may grow: more ranks are not there. */
static bool add_values(const question *q, bool all, weft_text *why)
{
    const weft__target_knob knob = q->r->knob;
    int64_t below = nearest(q, false, all), above = knob == WEFT__KNOB_T ? nearest(q, true, all) : 0;
    if (!below && !above) return false;
    weft_text_add(why, "%s %lld", knob_name[knob], (long long)(below ? below : above));
    if (below && above) weft_text_add(why, " or %lld", (long long)above);
    weft_text_add(why, all ? " works" : " keeps this rule");
    return true;
}

static void add_way_out(const question *q, weft_text *why)
{
    if (q->r->knob == WEFT__KNOB_NONE) weft_text_add(why, "%s", q->r->instead);
    else if (!add_values(q, true, why) && !add_values(q, false, why))
        weft_text_add(why, "no smaller %s keeps it", knob_name[q->r->knob]);
}

/* ---- what a refusal shows ------------------------------------------------------------------------------------ */

static void show(const weft__target_rule *r, const weft__target_case *c, weft_text *why)
{
    const weft_layout_choice *x = &c->choice;
    const char *comma = "";
    char text[48];
#define SHOW(bit, ...) \
    if (r->shows & (bit)) weft_text_add(why, "%s", comma), weft_text_add(why, __VA_ARGS__), comma = ", "
    SHOW(WEFT__SHOW_CP, "cp %d", x->cp);
    SHOW(WEFT__SHOW_STRATEGY, "strategy %s", x->strategy ? x->strategy : "none");
    SHOW(WEFT__SHOW_LAYOUT, "layout %s", weft_layout_text(x->cp_layout, text, sizeof text));
    SHOW(WEFT__SHOW_WINDOW, "a window of %lld tokens", (long long)c->ask.config->window);
    SHOW(WEFT__SHOW_DOCS, "a document of %lld tokens",
         (long long)weft__target_bad_doc(c, weft__target_two_cp(c)));
    SHOW(WEFT__SHOW_SINKS, "attention sinks");
    SHOW(WEFT__SHOW_PADDING, "padded sequences");
    SHOW(WEFT__SHOW_DROPOUT, "attention dropout");
    SHOW(WEFT__SHOW_HIDDEN, "dropout %g of the embedding, %g of the residual stream",
         c->ask.options.embedding_dropout, c->ask.options.residual_dropout);
    SHOW(WEFT__SHOW_PREC, "precision %s", weft_prec_name(c->ask.options.prec));
    SHOW(WEFT__SHOW_ZERO, "ZeRO %d", x->zero);
    SHOW(WEFT__SHOW_TP, "tp %d", x->tp);
    SHOW(WEFT__SHOW_PP, "pp %d", x->pp);
    SHOW(WEFT__SHOW_DP, "dp %d", x->dp);
    SHOW(WEFT__SHOW_RECOMPUTE, "recompute %s%s", weft_recompute_name(x->recompute),
         x->keep_attention ? " that keeps attention" : "");
    SHOW(WEFT__SHOW_OFFLOAD, "offload");
    SHOW(WEFT__SHOW_ORDER, "rank order %s", weft_mesh_order_text(x->order, text));
    SHOW(WEFT__SHOW_HEAD, "head size %d", c->ask.config->D);
    SHOW(WEFT__SHOW_FP8, "fp8");
#undef SHOW
}

bool weft__target_allows(const weft__target_rules *rules, const weft_plan_ask *ask, const weft_layout_choice *choice,
                         const char **rule, weft_text *why)
{
    const weft__target_case c = {*ask, *choice};
    const int broken = first_broken(rules, &c);
    if (broken == rules->n) return true;
    const weft__target_rule *r = &rules->rule[broken];
    if (r->breaks) show(r, &c, why);
    else
        weft_text_add(why, "%s %lld, %s %lld", r->number_name, (long long)r->number(&c), r->divisor_name,
                      (long long)r->divisor(&c));
    weft_text_add(why, "; ");
    add_way_out(&(question){rules, r, &c}, why);
    weft_text_add(why, " [%s]", r->source);
    *rule = r->text;
    return false;
}
