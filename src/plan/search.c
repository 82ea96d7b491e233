/* search.c — the fastest layouts that fit, the front of time and memory, and what was refused on the way.
 *
 * Frames (layouts.c) come in the order of their time without recomputation, which is the least that they can take. So
 * the search can stop where that is beyond what is still of interest, and memory, which is counted by the code that
 * makes a model, is asked for choices in the order of their time, until one fits. */
#include "plan/plan_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Slower than that many times the fastest that fits is of no interest, however small it is. */
static const double interesting = 2;
/* Closer than this two times are one: the smaller choice is the better one. */
static const double tie = 1.002;

weft_plan_fixed weft_plan_all_free(void)
{
    enum { F = WEFT_PLAN_FREE };
    return (weft_plan_fixed){F, F, F, F, F, F, F, F, F, F, F, .fp8 = 0, .micro_batch = F};
}

/* ---- one choice ---------------------------------------------------------------------------------------------- */

weft_status weft__time_of(weft__search *s, const weft_layout_choice *c, weft_plan_time *out)
{
    s->out->choices++;
    return weft_plan_time_of(out, s->ask->profile, &s->step, c);
}

weft_status weft__memory_of(weft__search *s, const weft_layout_choice *c, weft_memory *out)
{
    s->out->asked++;
    if (s->target->memory) WEFT_TRY(s->target->memory(&s->step, c, out));
    else WEFT_TRY(weft_plan_most_memory(out, s->kern, s->any, &s->step, c));
    if (weft_plan_has_host(s->ask->profile)) /* another memory than the rank's */
        out->file += out->bytes[WEFT_MEMORY_OFFLOADED], out->bytes[WEFT_MEMORY_OFFLOADED] = 0;
    return WEFT_OK;
}

bool weft__fits(const weft__search *s, const weft_memory *m)
{
    const weft_profile *p = s->ask->profile;
    if (weft_plan_has_host(p) && (double)m->file > p->host_bytes) return false;
    return !(s->ask->memory > 0) || (double)weft_memory_total(m) <= s->ask->memory;
}

int weft__ladder(const weft__search *s, const weft_layout_choice *c, weft_layout_choice out[WEFT__LADDER_MAX])
{
    const weft_plan_fixed *f = &s->ask->fixed;
    int n = 0;
    for (int mode = 0; mode < WEFT_RECOMPUTE_MODES; mode++)
        for (int keep = 0; keep < 2; keep++)
            for (int offload = 0; offload < 2; offload++) {
                if (f->recompute != WEFT_PLAN_FREE && f->recompute != mode) continue;
                if (f->keep_attention != WEFT_PLAN_FREE && f->keep_attention != keep && mode > 0) continue;
                if (f->offload != WEFT_PLAN_FREE && f->offload != offload) continue;
                if (keep && mode == WEFT_RECOMPUTE_NONE) continue;
                /* within one memory it saves nothing: only where it is asked for */
                if (offload && f->offload == WEFT_PLAN_FREE && !weft_plan_has_host(s->ask->profile)) continue;
                out[n] = *c;
                out[n].recompute = (weft_recompute)mode, out[n].keep_attention = keep, out[n].offload = offload;
                n++;
            }
    return n;
}

/* ---- candidates of a frame ----------------------------------------------------------------------------------- */

enum { FAST_WAYS = 3, WAYS_TRIED = FAST_WAYS + 1, CANDIDATES = WAYS_TRIED * WEFT__LADDER_MAX };
typedef struct candidate { weft_layout_choice choice; weft_plan_time time; } candidate;

static int by_step(const void *a, const void *b)
{
    const double x = ((const candidate *)a)->time.step, y = ((const candidate *)b)->time.step;
    return (x > y) - (x < y);
}

static bool has_strategy(const weft_layout_choice *c, int n, const char *strategy)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(c[i].strategy, strategy)) return true;
    return false;
}

/* The frame's way first, then the fastest of other strategies: what differs inside of one is time alone. And the ring,
 * however slow: it holds two blocks, whatever the number of ranks. */
static int ways_to_try(const weft__frame *f, weft_layout_choice out[WAYS_TRIED])
{
    int n = 0;
    out[n++] = f->choice;
    for (int i = 0; i < f->ways->n; i++) {
        const weft__way *w = &f->ways->way[i];
        if (has_strategy(out, n, w->strategy)) continue;
        if (n < FAST_WAYS || (n < WAYS_TRIED && !strcmp(w->strategy, "ring"))) out[n++] = weft__with_way(&f->choice, w);
    }
    return n;
}

bool weft__taken(const weft__search *s, const weft_layout_choice *c)
{
    const char *rule;
    weft_text why = {0};
    const bool yes = s->target->allowed(&s->step, c, &rule, &why);
    weft_text_free(&why);
    return yes;
}

static weft_status candidates_of(weft__search *s, const weft__frame *f, candidate *out, int *n)
{
    weft_layout_choice way[WAYS_TRIED], rung[WEFT__LADDER_MAX];
    const int ways = ways_to_try(f, way);
    *n = 0;
    for (int w = 0; w < ways; w++) {
        const int rungs = weft__ladder(s, &way[w], rung);
        for (int r = 0; r < rungs; r++) {
            if (!weft__taken(s, &rung[r])) continue;
            candidate *x = &out[*n];
            x->choice = rung[r];
            weft_status st = weft__time_of(s, &rung[r], &x->time);
            if (st == WEFT_ERR_REFUSED) continue;
            WEFT_TRY(st);
            ++*n;
        }
    }
    qsort(out, (size_t)*n, sizeof *out, by_step);
    return WEFT_OK;
}

/* ---- what is kept -------------------------------------------------------------------------------------------- */

typedef struct kept { weft_plan_found *x; int n, room; } kept;

static weft_status keep(weft__search *s, kept *k, const weft_plan_found *x)
{
    enum { GROW = 256 };
    if (k->n == k->room) {
        weft_plan_found *more;
        WEFT_TRY(WEFT_NEW(s->out->arena, 2 * k->room + GROW, "found", &more));
        if (k->n) memcpy(more, k->x, (size_t)k->n * sizeof *more);
        k->x = more;
        k->room = 2 * k->room + GROW;
    }
    k->x[k->n++] = *x;
    return WEFT_OK;
}

static void note_least(weft_search_result *out, const weft_plan_found *x)
{
    if (out->has_least && weft_memory_total(&x->memory) >= weft_memory_total(&out->least.memory)) return;
    out->least = *x;
    out->has_least = true;
}

/* The smallest choice of a frame decides whether any of its choices can fit. */
static int smallest(const candidate *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        const weft_layout_choice *a = &x[i].choice, *b = &x[best].choice;
        const int more = (int)a->recompute - (int)b->recompute;
        if (more > 0 || (more == 0 && b->keep_attention && !a->keep_attention) ||
            (more == 0 && a->keep_attention == b->keep_attention && a->offload && !b->offload))
            best = i;
    }
    return best;
}

/* *fits: there is room, and it can be counted at all. */
static weft_status found_of(weft__search *s, const candidate *x, weft_plan_found *out, bool *fits)
{
    *out = (weft_plan_found){.choice = x->choice, .time = x->time};
    *fits = false;
    weft_status st = weft__memory_of(s, &x->choice, &out->memory);
    if (st == WEFT_ERR_REFUSED) weft__count_refusal(s->out, "no rank can hold it", weft_last_error(), 1);
    if (st != WEFT_OK) return st == WEFT_ERR_REFUSED ? WEFT_OK : st;
    note_least(s->out, out);
    *fits = weft__fits(s, &out->memory);
    return WEFT_OK;
}

static void count_too_large(weft__search *s, const weft_plan_found *x)
{
    char need[64], have[64], example[160];
    const weft_layout_choice *c = &x->choice;
    if (weft_memory_total(&x->memory) == 0) return; /* it was not counted */
    weft_format(example, sizeof example, "tp %d x cp %d x dp %d x pp %d needs %s; there are %s", c->tp, c->cp, c->dp,
                c->pp, weft_format_bytes((double)weft_memory_total(&x->memory), need, sizeof need),
                weft_format_bytes(s->ask->memory, have, sizeof have));
    weft__count_refusal(s->out, "memory of a rank, with all that recomputation can save", example, 1);
}

static bool same_rung(const weft_layout_choice *a, const weft_layout_choice *b)
{
    return a->recompute == b->recompute && a->keep_attention == b->keep_attention && a->offload == b->offload;
}

/* The fastest way of those that recompute most; where there is no room for it, another one may hold less. */
static weft_status find_small(weft__search *s, const candidate *x, int n, int *least, weft_plan_found *small,
                              bool *fits)
{
    const int first = smallest(x, n);
    *least = first;
    WEFT_TRY(found_of(s, &x[first], small, fits));
    for (int i = 0; i < n && !*fits; i++) {
        weft_plan_found other;
        if (i == first || !same_rung(&x[i].choice, &x[first].choice)) continue;
        WEFT_TRY(found_of(s, &x[i], &other, fits));
        if (*fits) *least = i, *small = other;
    }
    return WEFT_OK;
}

/* Memory of a frame's choices in the order of their time, until one fits: the smallest first, since without it none
 * does. */
static weft_status try_frame(weft__search *s, const weft__frame *f, kept *k, double *fastest)
{
    candidate x[CANDIDATES];
    weft_plan_found small, found;
    bool fits = false;
    int n, least;
    WEFT_TRY(candidates_of(s, f, x, &n));
    if (n == 0) return WEFT_OK;
    WEFT_TRY(find_small(s, x, n, &least, &small, &fits));
    if (!fits) {
        count_too_large(s, &small);
        return WEFT_OK;
    }
    WEFT_TRY(keep(s, k, &small));
    found = small;
    fits = false;
    for (int i = 0; i < n && !fits; i++) {
        if (i == least) break; /* it is kept */
        WEFT_TRY(found_of(s, &x[i], &found, &fits));
        if (fits) WEFT_TRY(keep(s, k, &found));
    }
    const double step = fits ? found.time.step : small.time.step;
    if (*fastest < 0 || step < *fastest) *fastest = step;
    return WEFT_OK;
}

/* ---- what is listed ------------------------------------------------------------------------------------------ */

static int faster(const void *a, const void *b)
{
    const weft_plan_found *x = a, *y = b;
    if (x->time.step != y->time.step) return x->time.step < y->time.step ? -1 : 1;
    const int64_t m = weft_memory_total(&x->memory), n = weft_memory_total(&y->memory);
    return (m > n) - (m < n);
}

static bool same_cut(const weft_layout_choice *a, const weft_layout_choice *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->dp == b->dp && a->pp == b->pp;
}

/* Of those of one cut, from the fastest on, that take as long. */
static const weft_plan_found *smallest_tie(const kept *k, int first)
{
    const weft_plan_found *best = &k->x[first];
    for (int i = first + 1; i < k->n && k->x[i].time.step <= tie * k->x[first].time.step; i++)
        if (same_cut(&k->x[i].choice, &best->choice) &&
            weft_memory_total(&k->x[i].memory) < weft_memory_total(&best->memory))
            best = &k->x[i];
    return best;
}

static void note_cp(weft_search_result *out, const weft_plan_found *x)
{
    const bool with = x->choice.cp > 1;
    if (out->has_cp[with]) return; /* they come in the order of time */
    out->of_cp[with] = *x;
    out->has_cp[with] = true;
}

static weft_status list_best(weft__search *s, const kept *k)
{
    weft_search_result *out = s->out;
    for (int i = 0; i < k->n; i++) note_cp(out, &k->x[i]);
    const int most = (int)weft_min_i64(weft_max_i64(s->ask->best, 1), WEFT_PLAN_BEST_MAX);
    WEFT_TRY(WEFT_NEW(out->arena, most, "best", &out->best));
    for (int i = 0; i < k->n && out->n < most; i++) {
        bool seen = false;
        for (int j = 0; j < out->n; j++) seen |= same_cut(&out->best[j].choice, &k->x[i].choice);
        if (!seen) out->best[out->n++] = *smallest_tie(k, i);
    }
    qsort(out->best, (size_t)out->n, sizeof *out->best, faster);
    return WEFT_OK;
}

/* Of choices in the order of time those that are smaller than everything faster. Returns how many. */
static int thin(weft_plan_found *x, int n)
{
    int64_t least = INT64_MAX;
    int left = 0;
    for (int i = 0; i < n; i++) {
        const int64_t m = weft_memory_total(&x[i].memory);
        if (m < least) x[left++] = x[i], least = m;
    }
    return left;
}

static weft_status list_front(weft__search *s, const kept *k)
{
    weft_search_result *out = s->out;
    WEFT_TRY(WEFT_NEW(out->arena, k->n + WEFT_PLAN_BEST_MAX, "front", &out->front));
    if (k->n) memcpy(out->front, k->x, (size_t)k->n * sizeof *k->x);
    out->n_front = (int)weft_min_i64(thin(out->front, k->n), WEFT_PLAN_BEST_MAX);
    return WEFT_OK;
}

/* With the simulator's seconds the order may be another, and a choice of the one list belong into the other. */
static weft_status simulate_best(weft__search *s)
{
    weft_search_result *out = s->out;
    if (!s->ask->simulate || s->target != &weft_target_weft) return WEFT_OK;
    for (int i = 0; i < out->n; i++) WEFT_TRY(weft__simulate_cp(s, &out->best[i]));
    for (int i = 0; i < out->n_front; i++) WEFT_TRY(weft__simulate_cp(s, &out->front[i]));
    qsort(out->best, (size_t)out->n, sizeof *out->best, faster);
    memcpy(out->front + out->n_front, out->best, (size_t)out->n * sizeof *out->best);
    out->n_front += out->n;
    qsort(out->front, (size_t)out->n_front, sizeof *out->front, faster);
    out->n_front = thin(out->front, out->n_front);
    return WEFT_OK;
}

/* ---- the search ---------------------------------------------------------------------------------------------- */

static weft_status try_frames(weft__search *s, kept *k)
{
    double fastest = -1;
    for (int64_t i = 0; i < s->frames; i++) {
        if (fastest >= 0 && s->frame[i].seconds > interesting * fastest) {
            weft__count_refusal(s->out, "more than twice as slow as the best, before anything is recomputed", "",
                                s->frames - i);
            break;
        }
        WEFT_TRY(try_frame(s, &s->frame[i], k, &fastest));
    }
    if (k->n > 1) qsort(k->x, (size_t)k->n, sizeof *k->x, faster);
    return WEFT_OK;
}

static weft_status open_search(weft__search *s, weft_search_result *out, const weft_search_ask *ask,
                               const weft_kern *kern, weft_comm *any)
{
    *s = (weft__search){.ask = ask, .target = ask->target ? ask->target : &weft_target_weft, .step = ask->step,
                        .kern = kern, .any = any, .out = out};
    s->system = s->target->system(ask->step.options.prec);
    s->step.system = &s->system;
    *out = (weft_search_result){0};
    if (ask->ranks < 1) return weft_fail(WEFT_ERR_REFUSED, "a plan for %d ranks; at least 1 is needed", ask->ranks);
    if (ask->fixed.offload > 0 && !(ask->profile->host_bytes_per_second > 0))
        return weft_fail(WEFT_ERR_REFUSED, "offloading was asked for, and the machine's profile has no "
                         "host_bytes_per_second: a machine with memory beside its ranks' has one (h100-ib)");
    return weft_arena_create(&out->arena, &out->mem, "search", NULL);
}

static weft_status refuse_sizes(const weft_search_ask *ask)
{
    const int size[] = {ask->fixed.tp, ask->fixed.cp, ask->fixed.dp, ask->fixed.pp};
    static const char *const name[] = {"tp", "cp", "dp", "pp"};
    weft_text t = {0};
    for (int i = 0; i < 4; i++)
        if (size[i] != WEFT_PLAN_FREE) weft_text_add(&t, "%s%s %d", t.len ? " x " : "", name[i], size[i]);
    weft_status st = weft_fail(WEFT_ERR_REFUSED, "%d ranks cannot be cut into %s; their product must divide the ranks, "
                               "and be all of them where all four are given", ask->ranks, t.data ? t.data : "parts");
    weft_text_free(&t);
    return st;
}

/* Nothing was even tried: what the user fixed fits no cut of the ranks, or the target takes none. */
static weft_status refuse_nothing(const weft__search *s)
{
    const weft_search_result *r = s->out;
    if (r->layouts > 0 && r->refusals > 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s runs none of %lld layouts; the first rule: %s (%s)", s->target->name,
                         (long long)r->layouts, r->refusal[0].rule, r->refusal[0].example);
    return refuse_sizes(s->ask);
}

static weft_status search(weft__search *s)
{
    kept k = {0};
    WEFT_TRY(weft__search_frames(s));
    if (s->frames == 0 && s->left_out) {
        s->thorough = true;
        s->out->refusals = 0, s->out->layouts = 0, s->n_cache = 0;
        WEFT_TRY(weft__search_frames(s));
    }
    if (s->frames == 0) return refuse_nothing(s);
    WEFT_TRY(try_frames(s, &k));
    WEFT_TRY(list_best(s, &k));
    WEFT_TRY(list_front(s, &k));
    WEFT_TRY(simulate_best(s));
    if (s->out->n > 0) WEFT_TRY(weft__search_knobs(s));
    if (s->out->n > 0) WEFT_TRY(weft__search_reason(s));
    if (s->out->n > 0) WEFT_TRY(weft__search_rules(s));
    return weft_plan_longest(&s->out->longest, &s->out->longest_choice, s->ask, s->kern, s->any);
}

weft_status weft_plan_search(weft_search_result *out, const weft_search_ask *ask, const weft_kern *kern,
                             weft_comm *any)
{
    weft__search s;
    weft_status st = open_search(&s, out, ask, kern, any);
    if (st == WEFT_OK) st = search(&s);
    if (st != WEFT_OK) weft_search_result_free(out);
    return st;
}

void weft_search_result_free(weft_search_result *r)
{
    weft_text_free(&r->reason);
    weft_arena_destroy(r->arena);
    *r = (weft_search_result){0};
}
