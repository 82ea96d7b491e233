/* plan_json.c — what `weft plan` found, for programs: a line each, "kind" says of what. */
#include "cli/plan.h"

#include <stdio.h>

static void text(const char *key, const char *s)
{
    printf(", \"%s\": ", key);
    weft_print_json_text(s);
}

static void count(const char *key, int64_t n) { printf(", \"%s\": %lld", key, (long long)n); }
static void flag(const char *key, bool yes) { printf(", \"%s\": %s", key, yes ? "true" : "false"); }
static void real(const char *key, double x) { weft_print_json_real(key, x, 8); }

static void print_ask(const weft_plan_report *r)
{
    const weft_plan_ask *s = &r->ask.step;
    printf("{\"kind\": \"plan\"");
    text("machine", r->machine ? r->profile.name : "plain");
    text("target", r->ask.target->name);
    count("ranks", r->ask.ranks);
    real("memory", r->ask.memory);
    count("tokens", s->options.T);
    count("sequences", s->global_batch);
    text("precision", weft_prec_name(s->options.prec));
    count("parameters", weft_model_params(&r->config));
    count("layouts", r->found.layouts);
    count("times", r->found.choices);
    count("memories", r->found.asked);
    real("seconds", r->seconds);
    printf("}\n");
}

static void print_choice(const weft_plan_report *r, const weft_layout_choice *c)
{
    char layout[48], order[12];
    weft_text flags = {0};
    count("tp", c->tp), count("cp", c->cp), count("dp", c->dp), count("pp", c->pp);
    flag("sequence_parallel", c->sequence_parallel);
    count("zero", c->zero);
    text("cp_layout", weft_layout_text(c->cp_layout, layout, sizeof layout));
    text("rank_order", weft_mesh_order_text(c->order, order));
    text("recompute", weft_recompute_name(c->recompute));
    flag("keep_attention", c->keep_attention);
    flag("offload", c->offload);
    flag("fp8", c->fp8);
    count("micro_batch", c->micro_batch);
    r->ask.target->flags(&r->ask.step, c, &flags);
    text("options", flags.data ? flags.data : "");
    weft_text_free(&flags);
}

/* The parts that follow add up to `all`. */
static void open_object(const char *key, double all)
{
    char number[40];
    printf(", \"%s\": {\"all\": %s", key, weft_format_json(number, sizeof number, all, 12));
}

static double sum_of(const double x[WEFT_LINKS])
{
    double sum = 0;
    for (int i = 0; i < WEFT_LINKS; i++) sum += x[i];
    return sum;
}

static void print_found(const weft_plan_report *r, const char *kind, const weft_plan_found *x)
{
    static const char *const node[WEFT_LINKS] = {"tp_node", "cp_node", "pp_node", "dp_node"};
    static const char *const link[WEFT_LINKS] = {"tp_link", "cp_link", "pp_link", "dp_link"};
    printf("{\"kind\": \"%s\"", kind);
    print_choice(r, &x->choice);
    text("strategy", x->time.strategy);
    count("head_ranks", x->time.head_ranks);
    real("step", x->time.step);
    flag("simulated", x->simulated);
    real("mfu", weft_plan_mfu(r, x));
    real("flops", x->time.flops);
    count("memory", weft_memory_total(&x->memory));
    count("outside", x->memory.file);
    open_object("seconds", x->time.step);
    for (int i = 0; i < WEFT_TIMES; i++) real(weft_time_name((weft_time_part)i), x->time.seconds[i]);
    printf("}");
    open_object("bytes", sum_of(x->time.bytes_node) + sum_of(x->time.bytes_link));
    for (int i = 0; i < WEFT_LINKS; i++) real(node[i], x->time.bytes_node[i]), real(link[i], x->time.bytes_link[i]);
    printf("}");
    open_object("held", (double)weft_memory_total(&x->memory));
    for (int k = 0; k < WEFT_MEMORY_KINDS; k++) count(weft_memory_name((weft_memory_kind)k), x->memory.bytes[k]);
    printf("}}\n");
}

static void print_knobs(const weft_plan_report *r)
{
    static const char *const names[WEFT_GAINS] = {"time", "time with more memory", "memory"};
    for (int i = 0; i < WEFT_GAINS; i++) {
        const weft_plan_knob *k = &r->found.knob[i];
        if (!k->there) continue;
        printf("{\"kind\": \"knob\"");
        text("gains", names[i]);
        text("change", k->change);
        real("step", k->step);
        real("memory", k->memory);
        flag("rounds", k->rounds);
        printf("}\n");
    }
}

static void print_rules(const weft_plan_report *r)
{
    static const char *const verdict[] = {[WEFT_RULE_AGREES] = "agrees", [WEFT_RULE_DIFFERS] = "differs",
                                          [WEFT_RULE_SILENT] = "silent"};
    for (int i = 0; i < r->found.refusals; i++) {
        const weft_plan_refusal *x = &r->found.refusal[i];
        printf("{\"kind\": \"refused\"");
        text("rule", x->rule);
        count("layouts", x->count);
        text("example", x->example);
        printf("}\n");
    }
    for (int i = 0; i < r->found.verdicts; i++) {
        const weft_plan_verdict *v = &r->found.verdict[i];
        printf("{\"kind\": \"rule\"");
        text("rule", v->rule);
        text("source", v->source);
        text("says", v->value);
        text("here", v->own);
        text("verdict", verdict[v->verdict]);
        text("because", v->because);
        printf("}\n");
    }
}

void weft_plan_print_jsonl(const weft_plan_report *r)
{
    const weft_search_result *f = &r->found;
    print_ask(r);
    for (int i = 0; i < f->n; i++) print_found(r, "layout", &f->best[i]);
    for (int i = 0; i < f->n_front; i++) print_found(r, "front", &f->front[i]);
    print_knobs(r);
    print_rules(r);
    printf("{\"kind\": \"longest\"");
    count("tokens", f->longest);
    printf("}\n{\"kind\": \"reason\"");
    text("text", f->reason.data ? f->reason.data : "");
    printf("}\n");
}
