/* knobs.c — what one change of the best choice would gain: every single option that the search could have taken, and a
 * few that it leaves to the user, since they change numbers or the code's path. What gains most time and fits; what
 * would gain more but does not fit; what gains most memory. */
#include "plan/plan_impl.h"

#include <stdarg.h>
#include <string.h>

typedef struct change { /* of the best */
    weft_layout_choice choice;
    weft_plan_ask step;
    bool rounds;
    char text[96];
} change;

/* step: of the best by formulas, as all changes are; what the simulator says is added to all alike. */
typedef struct tuning { weft__search *s; const weft_plan_found *best; double step; } tuning;

static change change_of(const tuning *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static change change_of(const tuning *t, const char *fmt, ...)
{
    change x = {.choice = t->best->choice, .step = t->s->step};
    va_list ap;
    va_start(ap, fmt);
    weft_vformat(x.text, sizeof x.text, fmt, ap);
    va_end(ap);
    return x;
}

static void note(weft_plan_knob *k, const change *x, double step, double memory)
{
    *k = (weft_plan_knob){.there = true, .step = step, .memory = memory, .rounds = x->rounds};
    weft_format(k->change, sizeof k->change, "%s", x->text);
}

/* Less than a thousandth is no gain. */
static bool less(double a, double b) { return a < b * 0.999; }

static void judge(tuning *t, const change *x, double step, const weft_memory *m)
{
    weft_plan_knob *k = t->s->out->knob, *time = &k[WEFT_GAIN_TIME], *more = &k[WEFT_GAIN_TIME_MORE];
    weft_plan_knob *memory = &k[WEFT_GAIN_MEMORY];
    const double bytes = (double)weft_memory_total(m), now = (double)weft_memory_total(&t->best->memory);
    const bool fits = weft__fits(t->s, m);
    const double shown = t->best->time.step + step - t->step;
    weft_plan_knob *gain = fits ? time : more;
    if (less(step, t->step) && (!gain->there || shown < gain->step)) note(gain, x, shown, bytes);
    if (fits && less(bytes, now) && (!memory->there || bytes < memory->memory)) note(memory, x, shown, bytes);
}

/* What is refused is no change that could be made. */
static weft_status turn(tuning *t, const change *x)
{
    weft__search *s = t->s;
    weft_plan_time time;
    weft_memory m;
    const weft_plan_ask step = s->step;
    if (!weft__taken(s, &x->choice)) return WEFT_OK;
    s->step = x->step;
    weft_status st = weft__time_of(s, &x->choice, &time);
    if (st == WEFT_OK) st = weft__memory_of(s, &x->choice, &m);
    s->step = step;
    if (st == WEFT_OK) judge(t, x, time.step, &m);
    return st == WEFT_ERR_REFUSED ? WEFT_OK : st;
}

/* ---- the changes --------------------------------------------------------------------------------------------- */

static weft_status turn_recompute(tuning *t)
{
    weft_layout_choice rung[WEFT__LADDER_MAX];
    const weft_layout_choice *b = &t->best->choice;
    weft__search any = *t->s;
    weft_search_ask ask = *t->s->ask;
    ask.fixed.recompute = ask.fixed.keep_attention = ask.fixed.offload = WEFT_PLAN_FREE;
    any.ask = &ask;
    const int n = weft__ladder(&any, b, rung);
    for (int i = 0; i < n; i++) {
        const weft_layout_choice *c = &rung[i];
        const int differs = (c->recompute != b->recompute) + (c->keep_attention != b->keep_attention) +
                            (c->offload != b->offload);
        if (differs != 1) continue;
        change x = c->recompute != b->recompute ? change_of(t, "--recompute %s", weft_recompute_name(c->recompute))
                   : c->offload != b->offload
                       ? change_of(t, "--offload %s", c->offload ? "host" : "none")
                       : change_of(t, "--%srecompute-keep-attention", c->keep_attention ? "" : "no-");
        x.choice = *c;
        WEFT_TRY(turn(t, &x));
    }
    return WEFT_OK;
}

static weft_status turn_sharing(tuning *t)
{
    const weft_layout_choice *b = &t->best->choice;
    change x = change_of(t, "--%ssequence-parallel", b->sequence_parallel ? "no-" : "");
    x.choice.sequence_parallel = !b->sequence_parallel;
    WEFT_TRY(turn(t, &x));
    for (int zero = 0; zero <= t->s->target->zero_most; zero++) {
        x = change_of(t, "--zero-stage %d", zero);
        x.choice.zero = zero;
        if (zero != b->zero) WEFT_TRY(turn(t, &x));
    }
    for (int half = 0; half < 2; half++) {
        const int64_t micro = half ? b->micro_batch / 2 : b->micro_batch * 2;
        x = change_of(t, "--micro-batch-size %lld", (long long)micro);
        x.choice.micro_batch = micro;
        if (micro >= 1) WEFT_TRY(turn(t, &x));
    }
    return WEFT_OK;
}

static weft_status turn_ways(tuning *t)
{
    const weft_layout_choice *b = &t->best->choice;
    const weft__ways *w;
    weft_search_ask ask = *t->s->ask;
    weft__search any = *t->s;
    ask.fixed.strategy = NULL, ask.fixed.layout_given = false, ask.fixed.head_size = WEFT_PLAN_FREE;
    any.ask = &ask, any.cache = NULL, any.n_cache = any.cache_room = 0;
    weft_search_result *out = t->s->out, counted = *out; /* its refusals are no part of the search */
    weft_status st = b->cp > 1 ? weft__ways_of(&any, b, &w) : WEFT_OK;
    memcpy(out->refusal, counted.refusal, sizeof out->refusal);
    out->refusals = counted.refusals;
    for (int i = 0; st == WEFT_OK && b->cp > 1 && i < w->n; i++) {
        const weft__way *y = &w->way[i];
        char layout[48];
        weft_layout_text(y->layout, layout, sizeof layout);
        change x = strcmp(y->strategy, b->strategy) ? change_of(t, "--cp-strategy %s", y->strategy)
                   : y->head_size != b->head_size   ? change_of(t, "--cp-head-size %d", y->head_size)
                                                    : change_of(t, "--cp-layout %s", layout);
        const int differs = (strcmp(y->strategy, b->strategy) != 0) + (y->layout.kind != b->cp_layout.kind);
        if (differs > 1) continue;
        x.choice = weft__with_way(b, y);
        st = turn(t, &x);
    }
    return st;
}

/* Twice as many ranks for one dimension, half as many for another. */
static weft_status turn_cut(tuning *t)
{
    static const char *const name[] = {"tp", "cp", "dp", "pp"};
    for (int up = 0; up < 4; up++)
        for (int down = 0; down < 4; down++) {
            change x = change_of(t, "%s", "");
            int *size[] = {&x.choice.tp, &x.choice.cp, &x.choice.dp, &x.choice.pp};
            if (up == down || *size[down] % 2) continue;
            *size[up] *= 2, *size[down] /= 2;
            weft_format(x.text, sizeof x.text, "--%s %d --%s %d", name[up], *size[up], name[down], *size[down]);
            if (x.choice.cp > 1 && t->best->choice.cp == 1) x.choice.strategy = "ring";
            if (x.choice.cp == 1) x.choice.strategy = "none", x.choice.head_size = 0;
            if (x.choice.tp == 1) x.choice.sequence_parallel = false;
            WEFT_TRY(turn(t, &x));
        }
    return WEFT_OK;
}

/* Options of Weft that no search takes by itself. */
static weft_status turn_others(tuning *t)
{
    const weft_layout_choice *b = &t->best->choice;
    const int64_t rows = weft_shard_max_rows(b->cp_layout, b->micro_batch, t->s->step.options.T, b->cp);
    if (t->s->target != &weft_target_weft) return WEFT_OK;
    change x = change_of(t, "--mlp-rows %lld", (long long)weft_max_i64(rows / 8, 1));
    x.step.options.mlp_rows = weft_max_i64(rows / 8, 1);
    if (t->s->step.options.mlp_rows == 0 && rows >= 2048) WEFT_TRY(turn(t, &x));
    if (b->cp == 1) return WEFT_OK;
    x = change_of(t, "--cp-grad-dtype bf16");
    x.step.options.cp.grad_dtype = WEFT_CP_WIRE_BF16, x.rounds = true;
    if (t->s->step.options.cp.grad_dtype != WEFT_CP_WIRE_BF16) WEFT_TRY(turn(t, &x));
    x = change_of(t, "--cp-comm-dtype fp8");
    x.step.options.cp.comm_dtype = WEFT_CP_WIRE_FP8, x.rounds = true;
    return t->s->step.options.cp.comm_dtype == WEFT_CP_WIRE_SAME ? turn(t, &x) : WEFT_OK;
}

weft_status weft__search_knobs(weft__search *s)
{
    tuning t = {s, &s->out->best[0], 0};
    weft_plan_time own;
    WEFT_TRY(weft__time_of(s, &t.best->choice, &own));
    t.step = own.step;
    WEFT_TRY(turn_recompute(&t));
    WEFT_TRY(turn_sharing(&t));
    WEFT_TRY(turn_ways(&t));
    WEFT_TRY(turn_cut(&t));
    return turn_others(&t);
}
