/* longest.c — the longest sequence for which some layout of the ranks fits: by doubling, then by halving the gap. Only
 * memory is asked for, of the choice of each cut that needs least of it. */
#include "plan/plan_impl.h"

#include <string.h>

int64_t weft_plan_length_step(int64_t T) { return T < 1024 ? 1 : 1024; }

typedef struct cuts { /* those of which a longer sequence may still fit */
    weft_layout_choice *choice;
    int n, room;
} cuts;

static weft_status add_cut(weft__search *s, cuts *k, const weft_layout_choice *c)
{
    if (k->n == k->room) {
        weft_layout_choice *more;
        WEFT_TRY(WEFT_NEW(s->out->arena, 2 * k->room + 64, "lengths", &more));
        if (k->n) memcpy(more, k->choice, (size_t)k->n * sizeof *more);
        k->choice = more;
        k->room = 2 * k->room + 64;
    }
    k->choice[k->n++] = *c;
    return WEFT_OK;
}

static int or_else(int fixed, int value) { return fixed == WEFT_PLAN_FREE ? value : fixed; }

/* The ring holds two blocks, whatever the number of ranks; recomputing everything keeps one input per layer. */
static void make_small(const weft__search *s, weft_layout_choice *c)
{
    const weft_plan_fixed *f = &s->ask->fixed;
    const bool host = weft_plan_has_host(s->ask->profile);
    const bool zigzag = weft__listed(s->target->layouts, "zigzag");
    c->strategy = c->cp == 1 ? "none" : f->strategy ? f->strategy : "ring";
    c->head_size = c->cp > 1 && f->head_size > 0 ? f->head_size : 0;
    c->cp_layout =
        f->layout_given ? f->layout : (weft_layout){zigzag ? WEFT_LAYOUT_ZIGZAG : WEFT_LAYOUT_CONTIGUOUS, 0};
    c->order = or_else(f->order, 0);
    c->recompute = (weft_recompute)or_else(f->recompute, WEFT_RECOMPUTE_FULL);
    c->keep_attention = f->keep_attention > 0 && c->recompute != WEFT_RECOMPUTE_NONE;
    c->sequence_parallel = or_else(f->sequence_parallel, c->tp > 1);
    c->zero = or_else(f->zero, s->target->zero_most);
    c->offload = or_else(f->offload, host);
    c->fp8 = f->fp8 > 0;
    c->micro_batch = f->micro_batch > 0 ? f->micro_batch : 1;
}

/* Offloading is left out where it could not act. */
static weft_status offer_way(weft__search *s, cuts *k, weft_layout_choice c)
{
    if (c.offload && s->ask->fixed.offload == WEFT_PLAN_FREE && !weft__taken(s, &c)) c.offload = false;
    return add_cut(s, k, &c);
}

/* A ring; and where the target has none, or none for this mask or with head groups, every way that it has. */
static weft_status offer(weft__search *s, cuts *k, weft_layout_choice c)
{
    int n;
    const char *const *names = weft_cp_names(&n);
    make_small(s, &c);
    WEFT_TRY(offer_way(s, k, c));
    if (c.cp == 1 || s->ask->fixed.strategy || (c.head_size == 0 && weft__taken(s, &c))) return WEFT_OK;
    for (int i = 0; i < n; i++) {
        const bool grid = !strncmp(names[i], "dcp", 3);
        if (!weft__listed(s->target->strategies, names[i]) || grid != (c.head_size > 0)) continue;
        c.strategy = names[i];
        WEFT_TRY(offer_way(s, k, c));
    }
    return WEFT_OK;
}

static bool free_or(int fixed, int value) { return fixed == WEFT_PLAN_FREE || fixed == value; }

static weft_status all_cuts(weft__search *s, cuts *k)
{
    const weft_plan_fixed *f = &s->ask->fixed;
    const int n = s->ask->ranks;
    weft_layout_choice c = {0};
    for (c.tp = 1; c.tp <= n; c.tp++)
        for (c.cp = 1; n % c.tp == 0 && c.cp <= n / c.tp; c.cp++)
            for (c.dp = 1; (n / c.tp) % c.cp == 0 && c.dp <= n / c.tp / c.cp; c.dp++) {
                if ((n / c.tp / c.cp) % c.dp) continue;
                c.pp = n / c.tp / c.cp / c.dp;
                if (free_or(f->tp, c.tp) && free_or(f->cp, c.cp) && free_or(f->dp, c.dp) && free_or(f->pp, c.pp))
                    WEFT_TRY(offer(s, k, c));
            }
    return WEFT_OK;
}

/* Of the cuts those that fit at T, in *fit; refusals of any kind are a no. */
static weft_status fitting(weft__search *s, const cuts *k, int64_t T, cuts *fit)
{
    fit->n = 0;
    s->step.options.T = T;
    for (int i = 0; i < k->n; i++) {
        weft_memory m;
        if (!weft__taken(s, &k->choice[i])) continue;
        weft_status st = weft__memory_of(s, &k->choice[i], &m);
        if (st == WEFT_ERR_REFUSED) continue;
        WEFT_TRY(st);
        if (weft__fits(s, &m)) WEFT_TRY(add_cut(s, fit, &k->choice[i]));
    }
    return WEFT_OK;
}

/* A table of positions ends somewhere; else what an option takes. */
static int64_t most_tokens(const weft_model_config *c)
{
    return c->rope.type == WEFT_ROPE_NONE ? c->max_position : INT32_MAX;
}

typedef struct gap { int64_t low, high; } gap; /* fits, does not */

static weft_status close_gap(weft__search *s, cuts *fit, gap g, int64_t *T)
{
    while (g.high - g.low > weft_plan_length_step(g.low)) {
        const int64_t step = weft_plan_length_step(g.low), middle = (g.low + (g.high - g.low) / 2) / step * step;
        cuts next = {0};
        WEFT_TRY(fitting(s, fit, middle, &next));
        if (next.n == 0) g.high = middle;
        else g.low = middle, *fit = next;
    }
    *T = g.low;
    return WEFT_OK;
}

/* From `begin` up to what does not fit, or down to what does. */
static weft_status open_gap(weft__search *s, const cuts *all, int64_t begin, cuts *fit, gap *g)
{
    const int64_t most = most_tokens(s->step.config);
    *g = (gap){0, begin};
    while (g->low < most) {
        cuts next = {0};
        WEFT_TRY(fitting(s, g->low ? fit : all, g->high, &next));
        if (next.n == 0) return WEFT_OK;
        *fit = next;
        g->low = g->high;
        g->high = weft_min_i64(g->low * 2, most);
        if (g->low == most) g->high = most + 1;
    }
    return WEFT_OK;
}

static weft_status longest(weft__search *s, int64_t *T, weft_plan_found *found)
{
    cuts all = {0}, fit = {0};
    gap g;
    *T = 0;
    WEFT_TRY(all_cuts(s, &all));
    /* steps of 1,024 tokens begin there: below, every token counts */
    WEFT_TRY(open_gap(s, &all, weft_min_i64(1024, most_tokens(s->step.config)), &fit, &g));
    if (fit.n == 0) fit = all;
    WEFT_TRY(close_gap(s, &fit, g, T));
    if (*T == 0 || fit.n == 0) return WEFT_OK;
    s->step.options.T = *T;
    *found = (weft_plan_found){.choice = fit.choice[0]};
    for (int i = 0; i < fit.n; i++) { /* of those that fit the fastest */
        weft_plan_time t;
        weft_status st = weft__time_of(s, &fit.choice[i], &t);
        if (st == WEFT_ERR_REFUSED) continue;
        WEFT_TRY(st);
        if (found->time.step > 0 && t.step >= found->time.step) continue;
        found->choice = fit.choice[i];
        found->time = t;
    }
    return weft__memory_of(s, &found->choice, &found->memory);
}

weft_status weft_plan_longest(int64_t *T, weft_plan_found *found, const weft_search_ask *ask, const weft_kern *kern,
                              weft_comm *any)
{
    weft_search_result own = {0};
    weft__search s = {.ask = ask, .target = ask->target ? ask->target : &weft_target_weft, .step = ask->step,
                      .kern = kern, .any = any, .out = &own};
    if (!(ask->memory > 0)) { /* no limit, no longest */
        *T = 0;
        return WEFT_OK;
    }
    s.system = s.target->system(ask->step.options.prec);
    s.step.system = &s.system;
    WEFT_TRY(weft_arena_create(&own.arena, &own.mem, "longest", NULL));
    weft_status st = longest(&s, T, found);
    weft_arena_destroy(own.arena);
    return st;
}
