/* links.c — which ranks of a group share a node, and what an exchange among them takes. Nodes hold ranks that follow
 * one another; groups are those of the mesh, in the order of ranks that was chosen. */
#include "plan/plan_impl.h"

#include <math.h>

static weft_mesh_shape mesh_of(const weft_layout_choice *c)
{
    return (weft_mesh_shape){.tp = c->tp, .cp = c->cp, .dp = c->dp, .pp = c->pp, .order = c->order};
}

/* How far apart neighbours of a dimension lie. */
typedef struct line { int size, stride; } line;

static line line_of(const weft_layout_choice *c, weft_plan_link which)
{
    const weft_mesh_shape m = mesh_of(c);
    weft_mesh_shape at = {.order = c->order};
    const struct { int size, *at; } of[WEFT_LINKS] = {[WEFT_LINK_TP] = {m.tp, &at.tp}, [WEFT_LINK_CP] = {m.cp, &at.cp},
                                                      [WEFT_LINK_PP] = {m.pp, &at.pp}, [WEFT_LINK_DP] = {m.dp, &at.dp}};
    *of[which].at = 1;
    return (line){of[which].size, of[which].size > 1 ? weft_mesh_rank(m, at) : 1};
}

/* Ranks i a.stride + k b.stride below n. */
static int below(line a, line b, int n)
{
    int64_t sum = 0;
    for (int64_t k = 0; k < b.size && k * b.stride < n; k++)
        sum += weft_min_i64(a.size, weft_ceil_div(n - k * b.stride, a.stride));
    return (int)sum;
}

/* Copies of the weights lie on all ranks of dp x cp. */
weft__peers weft__peers_of(const weft_profile *profile, const weft_layout_choice *c, weft_plan_link which)
{
    const line one = {1, 1}, a = line_of(c, which), b = which == WEFT_LINK_DP ? line_of(c, WEFT_LINK_CP) : one;
    const int size = a.size * b.size;
    return (weft__peers){size, profile->node_ranks == 0 ? size : below(a, b, profile->node_ranks)};
}

/* Inside the node and out of it at the same time; a rank's port is shared by all that leaves the node. What a
 * collective of the library does not reach of the link's rate, it does not reach anywhere. */
weft__exchange weft__exchange_of(const weft_profile *p, weft__peers g, double bytes, double calls)
{
    if (g.size < 2) return (weft__exchange){0};
    const double others = g.size - 1, away = (g.size - g.in_node) / others;
    const double reached = p->collective_factor > 0 ? p->collective_factor : 1;
    const double node = bytes * (1 - away), link = bytes * away;
    const double port = fmin(p->rank_bytes_per_second, p->link_bytes_per_second * others);
    const double latency = away > 0 ? fmax(p->latency_seconds, p->node_latency_seconds) : p->node_latency_seconds;
    return (weft__exchange){node, link, calls * latency + fmax(node / p->node_bytes_per_second, link / port) / reached};
}

weft_profile weft__profile_of_cp(const weft_profile *profile, const weft_layout_choice *c)
{
    weft_profile p = *profile;
    if (p.node_ranks == 0) return p;
    const line cp = line_of(c, WEFT_LINK_CP);
    /* of a group that does not begin with its node, none may be a neighbour of all others: the first node decides */
    p.node_ranks = (int)weft_max_i64(1, weft_ceil_div(p.node_ranks, cp.stride));
    return p;
}
