/* plan_print.c — what `weft plan` found, for people. */
#include "cli/plan.h"

#include <stdio.h>
#include <string.h>

/* ---- pieces -------------------------------------------------------------------------------------------------- */

/* "12.3 ms", "117:46:20" */
static const char *time_of(double s, char buf[24])
{
    return s >= 1000 ? weft_format_duration(s, buf, 24) : weft_short_seconds(s, buf);
}

static const char *bytes_of(double b, char buf[32]) { return weft_format_bytes(b, buf, 32); }
static double percent(double part, double of) { return of > 0 ? 100 * part / of : 0; }

double weft_plan_mfu(const weft_plan_report *r, const weft_plan_found *x)
{
    const double rate = r->profile.product_flops_per_second[r->ask.step.options.prec];
    return x->time.step > 0 ? x->time.flops / (x->time.step * r->ask.ranks * rate) : 0;
}

/* Words that fit into their columns. */
static const char *recompute_of(const weft_layout_choice *c, char buf[32])
{
    const char *name = c->recompute == WEFT_RECOMPUTE_ATTENTION ? "attn" : weft_recompute_name(c->recompute);
    snprintf(buf, 32, "%s%s%s", name, c->keep_attention ? "+k" : "", c->offload ? "+o" : "");
    return buf;
}

static const char *way_of(const weft_plan_found *x, char buf[32])
{
    if (x->time.head_ranks > 1 && x->choice.cp != x->time.head_ranks)
        snprintf(buf, 32, "%s U%d", x->time.strategy, x->time.head_ranks);
    else snprintf(buf, 32, "%s", x->choice.cp > 1 ? x->time.strategy : "-");
    return buf;
}

static const char *layout_of(const weft_layout_choice *c, char buf[48])
{
    if (c->cp == 1) return "-";
    return c->cp_layout.kind == WEFT_LAYOUT_CONTIGUOUS ? "contig." : weft_layout_text(c->cp_layout, buf, 48);
}

/* ---- the head ------------------------------------------------------------------------------------------------ */

static void add_machine(const weft_plan_report *r, weft_text *t)
{
    char memory[32];
    const weft_profile *p = &r->profile;
    weft_text_add(t, "machine    %s",
                  r->machine ? p->name : "plain: rates that only rank layouts (--machine names one)");
    if (p->node_ranks) weft_text_add(t, "; nodes of %d ranks", p->node_ranks);
    if (r->ask.memory > 0) weft_text_add(t, "; %s for a rank", bytes_of(r->ask.memory, memory));
    else weft_text_add(t, "; memory is not limited (--mem limits it)");
    weft_text_add(t, "\n");
    if (r->ask.target != &weft_target_weft)
        weft_text_add(t, "target     %s: %s\n", r->ask.target->name, r->ask.target->doc);
}

static void add_step(const weft_plan_report *r, weft_text *t)
{
    const weft_plan_ask *s = &r->ask.step;
    const weft_model_config *c = &r->config;
    weft_text_add(t, "model      %.3g parameters: %lld layers, width %lld, heads %d/%d of %d\n",
                  (double)weft_model_params(c), (long long)c->L, (long long)c->C, c->H, c->Hkv, c->D);
    weft_text_add(t, "step       %lld sequence%s of %lld tokens, %s", (long long)s->global_batch,
                  s->global_batch > 1 ? "s" : "", (long long)s->options.T, weft_prec_name(s->options.prec));
    if (!r->cli->options.global_batch)
        weft_text_add(t, " (--global-batch-size says how many; dp has no more ranks than that)");
    weft_text_add(t, "\nlooked at  %lld layouts of %d ranks: %lld times predicted, %lld memories counted, %.1f s\n",
                  (long long)r->found.layouts, r->ask.ranks, (long long)r->found.choices, (long long)r->found.asked,
                  r->seconds);
}

/* ---- the list ------------------------------------------------------------------------------------------------ */

static void add_row(const weft_plan_report *r, const weft_plan_found *x, bool star, weft_text *t)
{
    char way[32], layout[48], recompute[32], step[24], memory[16], tp[16];
    const weft_layout_choice *c = &x->choice;
    snprintf(tp, sizeof tp, "%d%s", c->tp, c->sequence_parallel ? "s" : "");
    weft_text_add(t, "%c %4s%5d%5d%4d %-16s %-7s%3lld %-9s %8s%s%4.0f%%%6s\n", star ? '*' : ' ', tp, c->cp, c->dp,
                  c->pp, way_of(x, way), layout_of(c, layout), (long long)c->micro_batch, recompute_of(c, recompute),
                  time_of(x->time.step, step), x->simulated ? "~" : " ", 100 * weft_plan_mfu(r, x),
                  weft_short_bytes((double)weft_memory_total(&x->memory), memory));
}

static void add_list(const weft_plan_report *r, weft_text *t)
{
    bool simulated = false, shared = false;
    weft_text_add(t, "\n  %4s%5s%5s%4s %-16s %-7s%3s %-9s %8s %5s%6s\n", "tp", "cp", "dp", "pp", "strategy", "layout",
                  "mb", "recompute", "step", "MFU", "mem");
    for (int i = 0; i < r->found.n; i++) {
        add_row(r, &r->found.best[i], i == 0, t);
        simulated |= r->found.best[i].simulated;
        shared |= r->found.best[i].choice.sequence_parallel;
    }
    weft_text_add(t, "\nmb: sequences of a micro-batch; +k: attention kept, +o: inputs of layers offloaded; MFU: of "
                     "the rate of products");
    if (shared) weft_text_add(t, "; s: sequence parallelism");
    if (simulated) weft_text_add(t, "; ~: the exchange of cp is simulated, all else by formulas (docs/maths/plan.md)");
    weft_text_add(t, "\n");
}

/* ---- the best ------------------------------------------------------------------------------------------------ */

static void add_time(const weft_plan_found *x, weft_text *t)
{
    char buf[24];
    weft_text_add(t, "\ntime of the best, on its busiest rank\n");
    for (int i = 0; i < WEFT_TIMES; i++) {
        const double s = x->time.seconds[i];
        if (s < 1e-4 * x->time.step) continue;
        weft_text_add(t, "  %-12s%10s%6.1f %%\n", weft_time_name((weft_time_part)i), time_of(s, buf),
                      percent(s, x->time.step));
    }
    weft_text_add(t, "  %-12s%10s\n", "step", time_of(x->time.step, buf));
}

static void add_memory(const weft_plan_found *x, weft_text *t)
{
    char buf[32];
    weft_text_add(t, "\nmemory of the rank with most\n");
    for (int k = 0; k < WEFT_MEMORY_KINDS; k++)
        if (x->memory.bytes[k])
            weft_text_add(t, "  %-12s%12s\n", weft_memory_name((weft_memory_kind)k),
                          bytes_of((double)x->memory.bytes[k], buf));
    weft_text_add(t, "  %-12s%12s\n", "sum", bytes_of((double)weft_memory_total(&x->memory), buf));
    if (x->memory.file) weft_text_add(t, "  %-12s%12s\n", "on the host", bytes_of((double)x->memory.file, buf));
}

static void add_bytes(const weft_plan_found *x, weft_text *t)
{
    static const char *const names[WEFT_LINKS] = {"tp", "cp", "pp", "dp"};
    char node[32], link[32];
    weft_text_add(t, "\nsent by a rank in a step\n  %-12s%12s%12s\n", "", "in its node", "out of it");
    for (int i = 0; i < WEFT_LINKS; i++)
        if (x->time.bytes_node[i] + x->time.bytes_link[i] > 0)
            weft_text_add(t, "  %-12s%12s%12s\n", names[i], bytes_of(x->time.bytes_node[i], node),
                          bytes_of(x->time.bytes_link[i], link));
}

/* A target's options may be lines. */
static void add_flags(const weft_plan_report *r, int64_t T, const weft_layout_choice *c, weft_text *t)
{
    weft_text flags = {0};
    weft_plan_ask step = r->ask.step;
    step.options.T = T;
    r->ask.target->flags(&step, c, &flags);
    for (const char *at = flags.data; at && *at; at += strspn(at, "\n")) {
        const int n = (int)strcspn(at, "\n");
        weft_text_add(t, "  %.*s\n", n, at);
        at += n;
    }
    weft_text_free(&flags);
}

static void add_best(const weft_plan_report *r, weft_text *t)
{
    const weft_plan_found *x = &r->found.best[0];
    const double tokens = (double)r->ask.step.global_batch * (double)r->ask.step.options.T;
    weft_text_add(t, "\nthe best: %.0f tokens/s\n", tokens / x->time.step);
    add_flags(r, r->ask.step.options.T, &x->choice, t);
    add_time(x, t);
    add_memory(x, t);
    if (r->ask.ranks > 1) add_bytes(x, t);
}

/* ---- why, and what else -------------------------------------------------------------------------------------- */

static void add_refusals(const weft_plan_report *r, weft_text *t)
{
    const weft_search_result *f = &r->found;
    if (f->refusals) weft_text_add(t, "\nleft out\n");
    for (int i = 0; i < f->refusals; i++) {
        const weft_plan_refusal *x = &f->refusal[i];
        weft_text_add(t, "  %6lld  %s%s%s%s\n", (long long)x->count, x->rule, *x->example ? " (" : "", x->example,
                      *x->example ? ")" : "");
    }
}

static void add_verdicts(const weft_plan_report *r, weft_text *t)
{
    static const char *const says[] = {[WEFT_RULE_AGREES] = "agrees", [WEFT_RULE_DIFFERS] = "does not agree",
                                       [WEFT_RULE_SILENT] = "says nothing here"};
    weft_text_add(t, "\nrules of thumb\n");
    for (int i = 0; i < r->found.verdicts; i++) {
        const weft_plan_verdict *v = &r->found.verdict[i];
        weft_text_add(t, "  %s\n      %s: it says %s; here %s%s%s\n", v->rule, says[v->verdict], v->value, v->own,
                      *v->because ? "; " : "", v->because);
    }
}

static void add_front(const weft_plan_report *r, weft_text *t)
{
    enum { SHOWN = 6 };
    char step[24], memory[32];
    if (r->found.n_front < 2) return;
    weft_text_add(t, "\nless memory for more time\n");
    for (int i = 0; i < r->found.n_front && i < SHOWN; i++) {
        const weft_plan_found *x = &r->found.front[i];
        weft_text_add(t, "  %10s%12s  ", time_of(x->time.step, step),
                      bytes_of((double)weft_memory_total(&x->memory), memory));
        weft_target_weft.flags(&r->ask.step, &x->choice, t); /* in one line, whatever the target's own are */
        weft_text_add(t, "\n");
    }
}

static void add_longest(const weft_plan_report *r, weft_text *t)
{
    const weft_plan_found *x = &r->found.longest_choice;
    char step[24];
    if (!r->found.longest) return;
    const bool table = r->config.rope.type == WEFT_ROPE_NONE && r->found.longest == r->config.max_position;
    weft_text_add(t, "\nlongest sequence that fits: %lld tokens (%s a step)%s\n", (long long)r->found.longest,
                  time_of(x->time.step, step), table ? "; the model's table of positions has no more" : "");
    add_flags(r, r->found.longest, &x->choice, t);
}

static void add_knob(const weft_plan_report *r, weft_plan_gain which, const char *what, weft_text *t)
{
    const weft_plan_knob *k = &r->found.knob[which];
    const weft_plan_found *x = &r->found.best[0];
    const double memory = (double)weft_memory_total(&x->memory);
    char need[32];
    if (!k->there) return;
    weft_text_add(t, "  %-12s%s: %.1f %% %s, %s (%+.0f %%)%s\n", what, k->change,
                  percent(k->step < x->time.step ? x->time.step - k->step : k->step - x->time.step, x->time.step),
                  k->step < x->time.step ? "faster" : "slower", bytes_of(k->memory, need),
                  percent(k->memory, memory) - 100, k->rounds ? "; it rounds what travels" : "");
}

static void add_knobs(const weft_plan_report *r, weft_text *t)
{
    const weft_plan_knob *k = r->found.knob;
    if (!k[WEFT_GAIN_TIME].there && !k[WEFT_GAIN_TIME_MORE].there && !k[WEFT_GAIN_MEMORY].there) return;
    weft_text_add(t, "\none change of the best that gains most\n");
    if (!k[WEFT_GAIN_TIME].there) weft_text_add(t, "  %-12severy single change that fits is slower\n", "time");
    add_knob(r, WEFT_GAIN_TIME, "time", t);
    add_knob(r, WEFT_GAIN_TIME_MORE, "with more", t);
    add_knob(r, WEFT_GAIN_MEMORY, "memory", t);
}

static void add_reason(const weft_plan_report *r, weft_text *t)
{
    weft_text_add(t, "\nwhy\n");
    for (const char *at = r->found.reason.data; at && *at; at += strcspn(at, "\n") + 1)
        weft_text_add(t, "  %.*s\n", (int)strcspn(at, "\n"), at);
}

void weft_plan_print_text(const weft_plan_report *r)
{
    weft_text t = {0};
    add_machine(r, &t);
    add_step(r, &t);
    add_list(r, &t);
    add_best(r, &t);
    add_reason(r, &t);
    add_front(r, &t);
    add_knobs(r, &t);
    add_longest(r, &t);
    add_refusals(r, &t);
    add_verdicts(r, &t);
    weft_print_lines(t.data ? t.data : "", WEFT_FOLD_UNDER);
    weft_text_free(&t);
}
