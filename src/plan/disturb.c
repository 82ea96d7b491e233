/* disturb.c — what is not as it should be on simulated ranks, as text: kernels of a rank that take longer, links that
 * are slower. */
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 64 };

typedef struct list { const char *flag, *text, *at; } list; /* at: what is not read yet */

/* The next "WHAT:FACTOR" of a list, into `what` and *factor. */
static weft_status next_entry(list *l, char what[WORD], double *factor)
{
    size_t n = strcspn(l->at, ",");
    char *colon;
    if (n >= WORD)
        return weft_fail(WEFT_ERR_REFUSED, "%s %s: an entry of %zu letters; at most %d", l->flag, l->text, n,
                         WORD - 1);
    memcpy(what, l->at, n);
    what[n] = 0;
    l->at += n;
    if (*l->at == ',' && !*++l->at) return weft_fail(WEFT_ERR_REFUSED, "%s %s ends with a comma", l->flag, l->text);
    colon = strchr(what, ':');
    if (!colon || colon == what)
        return weft_fail(WEFT_ERR_REFUSED, "%s %s: \"%s\" has no factor; give entries as 3:1.5", l->flag, l->text,
                         what);
    *colon = 0;
    weft_status st = weft_parse_f64(colon + 1, factor);
    if (st < 0) return weft_fail_at(st, "%s %s: ", l->flag, l->text);
    if (*factor >= 1 && *factor <= 1e6) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s %s: %s is no factor by which something is slower; give 1 to 1e6", l->flag,
                     l->text, colon + 1);
}

static bool ends(const list *l) { return !*l->at; }

/* "3", "4-7" */
static weft_status ranks_of(const list *l, const char *what, int ranks, weft_numbers *r)
{
    int n;
    weft_status st = weft_parse_numbers(what, r, 1, &n);
    if (st < 0) return weft_fail_at(st, "%s %s: ", l->flag, l->text);
    if (r->first >= 0 && r->last < ranks) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s %s: there are ranks 0 to %d", l->flag, l->text, ranks - 1);
}

static weft_status slow_ranks(weft_sim_disturb *d, weft_arena *arena, const char *text, int ranks)
{
    list l = {"--slow-rank", text, text};
    double *kernels, factor;
    char what[WORD];
    weft_numbers r;
    WEFT_TRY(WEFT_NEW(arena, ranks, "slow ranks", &kernels));
    for (int i = 0; i < ranks; i++) kernels[i] = 0; /* not named */
    do {
        WEFT_TRY(next_entry(&l, what, &factor));
        WEFT_TRY(ranks_of(&l, what, ranks, &r));
        for (int64_t i = r.first; i <= r.last; i++) {
            if (kernels[i] > 0) return weft_fail(WEFT_ERR_REFUSED, "--slow-rank %s: rank %lld is named twice", text,
                                                  (long long)i);
            kernels[i] = factor;
        }
    } while (!ends(&l));
    for (int i = 0; i < ranks; i++) kernels[i] = fmax(1, kernels[i]);
    d->kernels = kernels;
    return WEFT_OK;
}

static weft_status one_link(const list *l, const char *what, int ranks, double factor, weft_sim_slow_link *out)
{
    weft_numbers r;
    WEFT_TRY(ranks_of(l, what, ranks, &r));
    if (strchr(what, '-') && r.first == r.last)
        return weft_fail(WEFT_ERR_REFUSED, "%s %s: %s is no link; name two ranks, or one for all of its links", l->flag,
                         l->text, what);
    *out = (weft_sim_slow_link){(int)r.first, r.first == r.last ? -1 : (int)r.last, factor};
    return WEFT_OK;
}

static weft_status add_link(weft_sim_disturb *d, const list *l, weft_sim_slow_link *link, weft_sim_slow_link x)
{
    for (int i = 0; i < d->links; i++)
        if (link[i].a == x.a && link[i].b == x.b)
            return weft_fail(WEFT_ERR_REFUSED, "%s %s: a link is named twice", l->flag, l->text);
    link[d->links++] = x;
    return WEFT_OK;
}

/* All links inside nodes, or all between them. */
static weft_status set_kind(const list *l, const char *what, double *kind, double factor)
{
    if (*kind > 0) return weft_fail(WEFT_ERR_REFUSED, "%s %s: %s is named twice", l->flag, l->text, what);
    *kind = factor;
    return WEFT_OK;
}

static weft_status slow_links(weft_sim_disturb *d, weft_arena *arena, const char *text, int ranks, bool one_node)
{
    list l = {"--slow-link", text, text};
    weft_sim_slow_link *link, x = {0};
    double factor;
    char what[WORD];
    WEFT_TRY(WEFT_NEW(arena, (int64_t)strlen(text), "slow links", &link));
    d->node = d->net = 0; /* not named */
    do {
        WEFT_TRY(next_entry(&l, what, &factor));
        const bool node = !strcmp(what, "node"), net = !strcmp(what, "net");
        if (net && one_node)
            return weft_fail(WEFT_ERR_REFUSED,
                             "--slow-link %s: all ranks are on one node, so there is no link between nodes; "
                             "node:FACTOR slows those inside, and a --profile with node_ranks makes nodes",
                             text);
        if (node || net) WEFT_TRY(set_kind(&l, what, node ? &d->node : &d->net, factor));
        else {
            WEFT_TRY(one_link(&l, what, ranks, factor, &x));
            WEFT_TRY(add_link(d, &l, link, x));
        }
    } while (!ends(&l));
    d->node = fmax(1, d->node), d->net = fmax(1, d->net);
    d->link = link;
    return WEFT_OK;
}

weft_status weft_sim_disturb_parse(weft_sim_disturb *out, weft_arena *arena, const char *ranks_text,
                                   const char *links_text, int ranks, bool one_node)
{
    weft_sim_disturb d = {.node = 1, .net = 1};
    if (ranks_text) WEFT_TRY(slow_ranks(&d, arena, ranks_text, ranks));
    if (links_text) WEFT_TRY(slow_links(&d, arena, links_text, ranks, one_node));
    *out = d;
    return WEFT_OK;
}

/* ---- in words ---------------------------------------------------------------------------------------------- */

static const char *between(const weft_text *t, size_t before) { return t->len > before ? "; " : ""; }

/* Neighbours of one factor together. */
static void add_kernels(const weft_sim_disturb *d, int ranks, weft_text *out, size_t before)
{
    for (int i = 0, n; d->kernels && i < ranks; i += n) {
        for (n = 1; i + n < ranks && d->kernels[i + n] == d->kernels[i];) n++;
        if (d->kernels[i] == 1) continue;
        weft_text_add(out, n > 1 ? "%skernels of ranks %d" : "%skernels of rank %d", between(out, before), i);
        if (n > 1) weft_text_add(out, "-%d", i + n - 1);
        weft_text_add(out, " x%g", d->kernels[i]);
    }
}

void weft_sim_disturb_text(const weft_sim_disturb *d, int ranks, weft_text *out)
{
    const size_t before = out->len;
    add_kernels(d, ranks, out, before);
    for (int i = 0; i < d->links; i++) {
        const weft_sim_slow_link *l = &d->link[i];
        if (l->factor == 1) continue;
        if (l->b < 0) weft_text_add(out, "%slinks of rank %d x%g", between(out, before), l->a, l->factor);
        else weft_text_add(out, "%slink %d-%d x%g", between(out, before), l->a, l->b, l->factor);
    }
    if (d->node > 1) weft_text_add(out, "%slinks inside nodes x%g", between(out, before), d->node);
    if (d->net > 1) weft_text_add(out, "%slinks between nodes x%g", between(out, before), d->net);
    if (d->jitter > 0)
        weft_text_add(out, "%skernels of all ranks longer by up to %g of their time, seed %llu", between(out, before),
                      d->jitter, (unsigned long long)d->seed);
}
