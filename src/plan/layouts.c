/* layouts.c — every cut of the ranks into tp x cp x dp x pp, with micro-batch, sequence parallelism and ZeRO, that the
 * target runs; for each the order of ranks and the way of keys and values that take least time.
 *
 * Those two are settled here and not tried against everything else, because they act on nothing else: a way's seconds
 * add to a step, whatever the rest of it is; an order moves exchanges between links. */
#include "plan/plan_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MICRO_MOST = 8, GROW = 256, TILE = 128, DIMENSION_MOST = 4096 };

/* ---- refusals ------------------------------------------------------------------------------------------------ */

void weft__count_refusal(weft_search_result *r, const char *rule, const char *example, int64_t count)
{
    int i = 0;
    while (i < r->refusals && strcmp(r->refusal[i].rule, rule) != 0) i++;
    if (i == WEFT_PLAN_REFUSALS) return; /* more rules than targets have */
    if (i == r->refusals) {
        r->refusal[r->refusals++] = (weft_plan_refusal){.rule = rule};
        weft_format(r->refusal[i].example, sizeof r->refusal[i].example, "%s", example);
    }
    r->refusal[i].count += count;
}

/* A way alone: with some stage of ZeRO, which is another question. */
static bool allowed(weft__search *s, weft_layout_choice c)
{
    const char *rule = "";
    weft_text why = {0};
    bool yes = false;
    for (c.zero = s->target->zero_most; c.zero >= 0 && !yes; c.zero--) {
        why.len = 0;
        yes = s->target->allowed(&s->step, &c, &rule, &why);
    }
    if (!yes) weft__count_refusal(s->out, rule, why.data ? why.data : "", 1);
    weft_text_free(&why);
    return yes;
}

/* ---- ways ---------------------------------------------------------------------------------------------------- */

bool weft__listed(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; at && *at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (!strncmp(at, word, n) && (at[n] == '|' || at[n] == 0)) return true;
    return false;
}

weft_layout_choice weft__with_way(const weft_layout_choice *c, const weft__way *way)
{
    weft_layout_choice x = *c;
    x.strategy = way->strategy;
    x.head_size = way->head_size;
    x.cp_layout = way->layout;
    return x;
}

/* Of all layers; refused: no such way. */
static weft_status way_seconds(weft__search *s, const weft_layout_choice *c, double *seconds)
{
    const weft_profile cp = weft__profile_of_cp(s->ask->profile, c);
    const weft_model_share share = {c->tp - 1, c->tp, 0, c->pp, c->sequence_parallel};
    weft_model_options o = weft_plan_options(&s->step, c);
    weft_layer_attention kind[2];
    const int n = weft_model_attention(s->step.config, &share, &o, kind);
    o.cp.profile = &cp;
    *seconds = 0;
    WEFT_TRY(weft__check_least_part(&cp, &s->step, c));
    for (int i = 0; i < n; i++) {
        weft_cp_cost x;
        WEFT_TRY(weft_cp_cost_of(&x, &kind[i].problem, &o.cp, c->cp));
        *seconds += (double)(kind[i].last_layer - kind[i].first_layer + 1) * weft_cp_cost_added(&x);
    }
    return WEFT_OK;
}

/* In the order of seconds; of ways that take the same the one that was offered first. */
static void insert_way(weft__ways *w, const weft__way *x)
{
    if (w->n == WEFT__WAYS_MAX) return; /* offered by a list that is shorter */
    int at = w->n++;
    for (; at > 0 && x->seconds < w->way[at - 1].seconds * (1 - 1e-9); at--) w->way[at] = w->way[at - 1];
    w->way[at] = *x;
}

static weft_status offer(weft__search *s, const weft_layout_choice *c, weft__ways *w, weft__way way)
{
    weft_layout_choice x = weft__with_way(c, &way);
    if (!allowed(s, x)) return WEFT_OK;
    weft_status st = way_seconds(s, &x, &way.seconds);
    if (st == WEFT_ERR_REFUSED) {
        const char *text = weft_last_error(), *reason = strstr(text, "\": ");
        weft__count_refusal(s->out, way.strategy, reason ? reason + 3 : text, 1);
        return WEFT_OK;
    }
    WEFT_TRY(st);
    insert_way(w, &way);
    return WEFT_OK;
}

/* Head groups of every size that is not all of the heads' or of the ranks'. */
static weft_status offer_grid(weft__search *s, const weft_layout_choice *c, weft__ways *w, weft__way way)
{
    const int most = (int)weft_min_i64(c->cp - 1, weft_ceil_div(s->step.config->H, c->tp));
    if (way.head_size > 0) return offer(s, c, w, way);
    for (int U = 2; U <= most; U++) {
        if (c->cp % U) continue;
        way.head_size = U;
        WEFT_TRY(offer(s, c, w, way));
    }
    return WEFT_OK;
}

static weft_status offer_strategies(weft__search *s, const weft_layout_choice *c, weft__ways *w, weft_layout layout)
{
    int n;
    const char *const *names = weft_cp_names(&n), *given = s->ask->fixed.strategy;
    const int U = c->cp > 1 ? (int)weft_max_i64(0, s->ask->fixed.head_size) : 0; /* refused by ways without groups */
    for (int i = 0; i < n; i++) {
        const weft__way way = {.strategy = names[i], .head_size = U, .layout = layout};
        const bool none = !strcmp(names[i], "none");
        if (given && c->cp > 1 && strcmp(given, names[i]) != 0) continue;
        if (none != (c->cp == 1)) continue;
        /* one that is given is refused by its rule */
        if (!given && !weft__listed(s->target->strategies, names[i])) continue;
        WEFT_TRY((strncmp(names[i], "dcp", 3) ? offer : offer_grid)(s, c, w, way));
    }
    return WEFT_OK;
}

/* What is asked of the target here is about the way alone: its cut of the ranks is asked about later. */
static weft_status make_ways(weft__search *s, const weft_layout_choice *cut, weft__ways *w)
{
    weft_layout_choice alone = *cut, *c = &alone;
    alone.dp = alone.pp = 1;
    alone.sequence_parallel = false;
    static const weft_layout layouts[] = {
        {WEFT_LAYOUT_ZIGZAG, 0}, {WEFT_LAYOUT_CONTIGUOUS, 0}, {WEFT_LAYOUT_STRIPED, 1}};
    char name[48];
    if (s->ask->fixed.layout_given) return offer_strategies(s, c, w, s->ask->fixed.layout);
    for (int i = 0; i < 3; i++) {
        if (i > 0 && c->cp == 1) break;
        weft_layout_text(layouts[i], name, sizeof name);
        name[strcspn(name, ":")] = 0;
        if (c->cp == 1 || weft__listed(s->target->layouts, name)) WEFT_TRY(offer_strategies(s, c, w, layouts[i]));
    }
    return WEFT_OK;
}

static weft_status add_to_cache(weft__search *s, weft__ways *w)
{
    if (s->n_cache == s->cache_room) {
        weft__ways **more;
        WEFT_TRY(WEFT_NEW(s->out->arena, s->cache_room + GROW, "ways", &more));
        if (s->n_cache) memcpy(more, s->cache, (size_t)s->n_cache * sizeof *more);
        s->cache = more;
        s->cache_room += GROW;
    }
    s->cache[s->n_cache++] = w;
    return WEFT_OK;
}

weft_status weft__ways_of(weft__search *s, const weft_layout_choice *c, const weft__ways **out)
{
    const int near = weft__profile_of_cp(s->ask->profile, c).node_ranks;
    for (int i = 0; i < s->n_cache; i++) {
        weft__ways *w = s->cache[i];
        if (w->tp != c->tp || w->cp != c->cp || w->near != near || w->micro_batch != c->micro_batch) continue;
        *out = w;
        return WEFT_OK;
    }
    weft__ways *w;
    WEFT_TRY(WEFT_NEW0(s->out->arena, 1, "ways", &w));
    w->tp = c->tp, w->cp = c->cp, w->near = near, w->micro_batch = c->micro_batch;
    WEFT_TRY(make_ways(s, c, w));
    *out = w;
    return add_to_cache(s, w);
}

/* ---- orders of ranks ----------------------------------------------------------------------------------------- */

typedef struct neighbours { weft__peers of[WEFT_LINKS]; int near; } neighbours;

static neighbours neighbours_of(const weft_profile *p, const weft_layout_choice *c)
{
    neighbours x = {.near = weft__profile_of_cp(p, c).node_ranks};
    for (int i = 0; i < WEFT_LINKS; i++) x.of[i] = weft__peers_of(p, c, (weft_plan_link)i);
    return x;
}

static bool same(const neighbours *a, const neighbours *b)
{
    for (int i = 0; i < WEFT_LINKS; i++)
        if (a->of[i].in_node != b->of[i].in_node) return false;
    return a->near == b->near;
}

/* Orders that put the same ranks into a node are one. */
static int orders_of(const weft__search *s, const weft_layout_choice *c, int order[WEFT_MESH_ORDERS])
{
    const weft_profile *p = s->ask->profile;
    neighbours seen[WEFT_MESH_ORDERS];
    int n = 0;
    order[0] = s->ask->fixed.order > 0 ? s->ask->fixed.order : 0;
    if (s->ask->fixed.order != WEFT_PLAN_FREE || p->node_ranks == 0 || s->ask->ranks <= p->node_ranks) return 1;
    for (int i = 0; i < WEFT_MESH_ORDERS; i++) {
        weft_layout_choice x = *c;
        x.order = i;
        seen[n] = neighbours_of(p, &x);
        int k = 0;
        while (k < n && !same(&seen[k], &seen[n])) k++;
        if (k == n) order[n++] = i;
    }
    return n;
}

/* ---- frames -------------------------------------------------------------------------------------------------- */

static weft_status add_frame(weft__search *s, const weft__frame *f)
{
    if (s->frames == s->frame_room) {
        weft__frame *more;
        WEFT_TRY(WEFT_NEW(s->out->arena, 2 * s->frame_room + GROW, "layouts", &more));
        if (s->frames) memcpy(more, s->frame, (size_t)s->frames * sizeof *more);
        s->frame = more;
        s->frame_room = 2 * s->frame_room + GROW;
    }
    s->frame[s->frames++] = *f;
    return WEFT_OK;
}

/* The first way that the target takes in this cut, or the rule by which it does not take the last one. */
static bool first_way(weft__search *s, const weft_layout_choice *c, const weft__ways *ways, weft_layout_choice *out,
                      weft_plan_refusal *no)
{
    for (int i = 0; i < ways->n; i++) {
        weft_text why = {0};
        *out = weft__with_way(c, &ways->way[i]);
        const bool yes = s->target->allowed(&s->step, out, &no->rule, &why);
        if (!yes) weft_format(no->example, sizeof no->example, "%s", why.data ? why.data : "");
        weft_text_free(&why);
        if (yes) return true;
    }
    return false;
}

/* The best order of those that the target takes. Without a way there is nothing to add: its strategies are counted. */
static weft_status settle(weft__search *s, weft_layout_choice c)
{
    int order[WEFT_MESH_ORDERS];
    const int n = orders_of(s, &c, order);
    weft__frame best = {.seconds = -1};
    weft_plan_refusal no = {0};
    for (int i = 0; i < n; i++) {
        weft__frame f = {.choice = c};
        weft_plan_time t;
        f.choice.order = order[i];
        WEFT_TRY(weft__ways_of(s, &f.choice, &f.ways));
        if (!first_way(s, &f.choice, f.ways, &f.choice, &no)) continue;
        weft_status st = weft__time_of(s, &f.choice, &t);
        if (st == WEFT_ERR_REFUSED) {
            no.rule = "no step can be laid out so";
            weft_format(no.example, sizeof no.example, "%s", weft_last_error());
            continue;
        }
        WEFT_TRY(st);
        f.seconds = t.step;
        if (best.seconds < 0 || f.seconds < best.seconds * (1 - 1e-9)) best = f;
    }
    if (best.seconds >= 0) return add_frame(s, &best);
    if (no.rule) weft__count_refusal(s->out, no.rule, no.example, 1);
    return WEFT_OK;
}

static bool free_or(int fixed, int value) { return fixed == WEFT_PLAN_FREE || fixed == value; }

static weft_status settle_sharing(weft__search *s, weft_layout_choice c)
{
    const weft_plan_fixed *f = &s->ask->fixed;
    for (int sp = 0; sp < 2; sp++)
        for (int zero = 0; zero <= s->target->zero_most; zero++) {
            c.sequence_parallel = sp;
            c.zero = zero;
            if (!free_or(f->sequence_parallel, sp) || !free_or(f->zero, zero)) continue;
            if (f->sequence_parallel == WEFT_PLAN_FREE && sp && c.tp == 1) continue;
            /* alone, a rank has all slices: ZeRO is no choice then, and the stage that stands is the default */
            if (f->zero == WEFT_PLAN_FREE && c.dp * c.cp == 1 && zero != 1) continue;
            s->out->layouts++;
            WEFT_TRY(settle(s, c));
        }
    return WEFT_OK;
}

/* Powers of two: what is between them changes nothing that is of interest here. */
static weft_status settle_micro(weft__search *s, weft_layout_choice c)
{
    const int64_t given = s->ask->fixed.micro_batch;
    if (given > 0) {
        c.micro_batch = given;
        return settle_sharing(s, c);
    }
    for (c.micro_batch = 1; c.micro_batch <= MICRO_MOST; c.micro_batch *= 2) {
        const bool fits = s->step.global_batch % (c.micro_batch * c.dp) == 0;
        if (fits || c.micro_batch == 1) WEFT_TRY(settle_sharing(s, c));
    }
    return WEFT_OK;
}

/* Cuts that the search leaves out by itself unless they are asked for, or nothing else is there: each would be slower
 * than its neighbour. */
static bool worth(weft__search *s, const weft_layout_choice *c)
{
    const weft_plan_fixed *f = &s->ask->fixed;
    const char *rule = NULL;
    const int most = (int)weft_max_i64(weft_max_i64(c->tp, c->cp), weft_max_i64(c->dp, c->pp));
    char example[120];
    weft_format(example, sizeof example, "tp %d x cp %d x dp %d x pp %d", c->tp, c->cp, c->dp, c->pp);
    if (most > DIMENSION_MOST) rule = "no dimension has more than 4096 ranks";
    else if (s->thorough) return true;
    else if (f->tp == WEFT_PLAN_FREE && c->tp > s->step.config->H) rule = "tp without a head for each rank";
    else if (f->cp == WEFT_PLAN_FREE && c->cp > weft_max_i64(1, s->step.options.T / TILE))
        rule = "cp with fewer than 128 tokens for each rank";
    if (!rule) return true;
    if (most <= DIMENSION_MOST) s->left_out = true;
    weft__count_refusal(s->out, rule, example, 1);
    return false;
}

static int by_seconds(const void *a, const void *b)
{
    const double x = ((const weft__frame *)a)->seconds, y = ((const weft__frame *)b)->seconds;
    return (x > y) - (x < y);
}

weft_status weft__search_frames(weft__search *s)
{
    const weft_plan_fixed *f = &s->ask->fixed;
    const int n = s->ask->ranks;
    weft_layout_choice c = {.strategy = "auto"};
    c.recompute = f->recompute == WEFT_PLAN_FREE ? WEFT_RECOMPUTE_NONE : (weft_recompute)f->recompute;
    c.keep_attention = f->keep_attention > 0 && c.recompute != WEFT_RECOMPUTE_NONE;
    c.offload = f->offload > 0;
    c.fp8 = f->fp8 > 0;
    for (c.tp = 1; c.tp <= n; c.tp++)
        for (c.cp = 1; n % c.tp == 0 && c.cp <= n / c.tp; c.cp++)
            for (c.dp = 1; (n / c.tp) % c.cp == 0 && c.dp <= n / c.tp / c.cp; c.dp++) {
                if ((n / c.tp / c.cp) % c.dp) continue;
                c.pp = n / c.tp / c.cp / c.dp;
                if (!free_or(f->tp, c.tp) || !free_or(f->cp, c.cp) || !free_or(f->dp, c.dp) || !free_or(f->pp, c.pp))
                    continue;
                if (worth(s, &c)) WEFT_TRY(settle_micro(s, c));
            }
    if (s->frames > 1) qsort(s->frame, (size_t)s->frames, sizeof *s->frame, by_seconds);
    return WEFT_OK;
}
