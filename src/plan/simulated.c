/* simulated.c — the exchange of cp of a choice by the simulator instead of by formulas: the real code, one layer of
 * each kind, forward and backward, with the machine's rates. */
#include "plan/plan_impl.h"

#include <math.h>
#include <string.h>

static weft_status run(const weft__search *s, const weft_layer_attention *kind, weft__stand *out)
{
    const weft_profile profile = weft__profile_of_cp(s->ask->profile, &out->choice);
    weft_sim_ask ask = {.problem = kind->problem, .options = weft_plan_options(&s->step, &out->choice).cp,
                        .cp = out->choice.cp, .groups = 1, .layers = 1};
    weft_sim_result r;
    weft_cp_cost cost;
    ask.options.profile = &profile;
    WEFT_TRY(weft_cp_cost_of(&cost, &ask.problem, &ask.options, ask.cp));
    WEFT_TRY(weft_simulate(&r, &ask));
    /* the simulator's ranks have adapters that move everything; a core hides less */
    const double forward = fmax(0, r.forward_seconds - cost.attention_forward);
    const double backward = fmax(0, r.backward_seconds - cost.attention_backward);
    out->forward = weft_profile_shown(&profile, forward, cost.moving_forward);
    out->backward = weft_profile_shown(&profile, backward, cost.moving_backward);
    weft_sim_result_free(&r);
    return WEFT_OK;
}

static bool same(const weft__stand *a, const weft__stand *b)
{
    const weft_layout_choice *x = &a->choice, *y = &b->choice;
    return a->near == b->near && a->layers == b->layers && x->tp == y->tp && x->cp == y->cp &&
           x->micro_batch == y->micro_batch && !strcmp(x->strategy, y->strategy) && x->head_size == y->head_size &&
           x->cp_layout.kind == y->cp_layout.kind && x->cp_layout.block == y->cp_layout.block;
}

/* Many choices have the same attention: it runs once. */
static weft_status stand_of(weft__search *s, const weft_layout_choice *c, const weft_layer_attention *kind, int number,
                            weft__stand *out)
{
    *out = (weft__stand){.choice = *c, .near = weft__profile_of_cp(s->ask->profile, c).node_ranks, .layers = number};
    for (int i = 0; i < s->n_stands; i++)
        if (same(&s->stand[i], out)) {
            *out = s->stand[i];
            return WEFT_OK;
        }
    if (!s->stand) WEFT_TRY(WEFT_NEW(s->out->arena, WEFT__STANDS_MAX, "simulated", &s->stand));
    WEFT_TRY(run(s, kind, out));
    if (s->n_stands < WEFT__STANDS_MAX) s->stand[s->n_stands++] = *out;
    return WEFT_OK;
}

/* Layers of the busiest stage with each kind of attention, as far as a mean goes: all stages have about as many. */
weft_status weft__simulate_cp(weft__search *s, weft_plan_found *x)
{
    const weft_layout_choice *c = &x->choice;
    const weft_model_share share = {c->tp - 1, c->tp, 0, c->pp, c->sequence_parallel};
    const weft_model_options o = weft_plan_options(&s->step, c);
    const bool again = c->recompute != WEFT_RECOMPUTE_NONE && !c->keep_attention;
    weft_layer_attention kind[2];
    const int n = weft_model_attention(s->step.config, &share, &o, kind);
    const weft_span last = weft_model_cut(s->step.config->L, c->pp, c->pp - 1);
    int64_t micros;
    double seconds = 0;
    if (c->cp == 1 || c->cp > WEFT_PLAN_SIMULATED_RANKS || n == 0) return WEFT_OK;
    WEFT_TRY(weft_plan_micros(&s->step, c, &micros));
    for (int i = 0; i < n; i++) {
        const double share_of = (double)(kind[i].last_layer - kind[i].first_layer + 1) / (double)s->step.config->L;
        weft__stand one;
        WEFT_TRY(stand_of(s, c, &kind[i], i, &one));
        seconds += share_of * ((1 + again) * one.forward + one.backward);
    }
    seconds *= (double)(last.end - last.begin) * (double)micros;
    double *cp = &x->time.seconds[WEFT_TIME_CP], *uneven = &x->time.seconds[WEFT_TIME_IMBALANCE];
    *uneven = fmin(*uneven, seconds);
    *cp = seconds - *uneven;
    x->time.step = 0;
    for (int i = 0; i < WEFT_TIMES; i++) x->time.step += x->time.seconds[i];
    x->simulated = true;
    return WEFT_OK;
}
