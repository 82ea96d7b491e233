/* cp_cost.c — the model behind "auto": how long a rank stands still for the exchange of one layer, forward and
 * backward. docs/maths/cost.md derives it. Pure functions of problem, options, profile and P.
 *
 * Only differences between strategies count: the time of the attention itself is the same for all and is left out,
 * but for what a strategy adds to it (uneven head groups, an uneven cut of the visible area, more edges of it, calls
 * of its kernels). An exchange that the busiest rank computes under costs only what sticks out. */
#include "cp/cp_impl.h"

#include <math.h>

/* ---- the sizes of a grid ---------------------------------------------------------------------------------- */

static double size_of(weft_dtype type) { return (double)weft_dtype_size(type); }

/* Bytes of rows of `values` numbers in `heads` heads: 8-bit types have a scale per head and group of rows. Rows are
 * means, so a last group that is not full counts as the part that it is. */
static double rows_bytes(weft_dtype type, double rows, double heads, double values)
{
    return rows * (values * size_of(type) + (weft_dtype_size(type) == 1 ? heads / WEFT_F8_ROWS : 0));
}

typedef struct grid {
    const weft__cp_ask *ask;
    int U, R;
    double rows, q_rows;     /* of one of the P ranks, on average */
    int heads, kv_heads;     /* of the head rank with most */
    weft_dtype kv_type, grad_type, dout_type; /* on the wire */
    double c, r;             /* bytes of an element: operands, sums */
    double forward, backward; /* seconds of a rank's attention, mean over ranks */
    double sent;              /* of the bytes of a K,V block: the others are read where they lie */
    weft__cp_picture seq;
    weft__cp_link one, all;  /* between context ranks: one message at a time, all at once */
} grid;

static bool near(const weft_profile *p, int ranks) { return p->node_ranks == 0 || ranks <= p->node_ranks; }

weft__cp_link weft__cp_link_of(const weft_profile *p, int ranks, bool at_once)
{
    if (near(p, ranks))
        return (weft__cp_link){p->node_latency_seconds, p->node_bytes_per_second};
    return (weft__cp_link){p->latency_seconds, at_once ? p->rank_bytes_per_second
                                                       : fmin(p->link_bytes_per_second, p->rank_bytes_per_second)};
}

/* A rank's share of one head of a sequence, in seconds of forward. */
static double attention_seconds(const weft__cp_ask *ask, double pairs, double edges, double rows)
{
    const weft_cp_problem *p = ask->problem;
    const double heads = (double)p->B * p->H / ask->P;
    const weft_attention_amount all = {heads * pairs, heads * edges, heads * rows};
    return weft_profile_attention(ask->profile, p->prec, all, p->D, p->Dv);
}

static grid grid_of(const weft__cp_ask *ask)
{
    const weft_cp_problem *p = ask->problem;
    const weft_cp_options *o = ask->options;
    int U = ask->U > 1 ? ask->U : 1;
    grid g = {.ask = ask, .U = U, .R = ask->P / U, .rows = (double)p->B * (double)p->T / ask->P,
              .q_rows = (double)p->B * (double)p->Tq / ask->P};
    for (int u = 0; u < U; u++) {
        weft__cp_heads h = weft__cp_heads_of(p, U, u);
        if (h.heads > g.heads) g.heads = h.heads;
        if (h.kv_heads > g.kv_heads) g.kv_heads = h.kv_heads;
    }
    g.c = size_of(weft_prec_compute(p->prec)), g.r = size_of(weft_prec_real(p->prec));
    g.kv_type = weft__cp_kv_type(p->prec, o);
    g.grad_type = weft__cp_grad_type(p->prec, o);
    g.dout_type = weft__cp_dout_type(p->prec, o);
    g.seq = weft__cp_picture_of(p, g.R, U);
    const double rows = (double)p->Tq, edges = rows * weft__cp_mask_edges(&p->mask);
    g.forward = attention_seconds(ask, g.seq.area, edges, rows * g.seq.blocks);
    if (p->need_backward)
        g.backward = ask->profile->backward_factor * attention_seconds(ask, g.seq.area, edges, rows * g.seq.spans);
    g.sent = near(ask->profile, ask->P) ? 1 - ask->profile->in_place_share : 1;
    g.one = weft__cp_link_of(ask->profile, ask->P, false);
    g.all = weft__cp_link_of(ask->profile, ask->P, true);
    return g;
}

/* ---- context stages ------------------------------------------------------------------------------------------ */

static double backward_of(const grid *g, double forward)
{
    return g->backward > 0 ? forward * g->ask->profile->backward_factor : 0;
}

/* What the cut adds to the time of the attention: the busiest rank against the mean, and further edges of the mask. */
static void add_uneven(const grid *g, weft_cp_cost *x)
{
    const weft__cp_picture *s = &g->seq;
    const double rows = (double)g->ask->problem->Tq, area = s->area * (s->busiest - 1), edges = rows * s->edges;
    x->uneven_forward += attention_seconds(g->ask, area, edges, rows * (s->most_blocks - s->blocks));
    x->uneven_backward +=
        backward_of(g, attention_seconds(g->ask, area, edges, rows * (s->most_spans - s->spans)));
}

/* What R blocks take beside their pairs: a call for each, and for each but the first the running state of the rank's
 * rows (backward: the sums of dq) passes through memory once more, unless the profile says what a row takes. */
static double calls_of(const grid *g)
{
    const weft_profile *f = g->ask->profile;
    const weft_cp_problem *p = g->ask->problem;
    if (f->attention_row_keys > 0) return g->R * f->attention_seconds;
    const double state = g->q_rows * g->U * g->heads * (double)weft_max_i64(p->D, p->Dv) * g->r;
    return g->R * f->attention_seconds + (g->R - 1) * state / f->memory_bytes_per_second;
}

/* The attention of a cut of the sequence: its mean share, its blocks, what is uneven, and the edges that it adds. */
static void add_attention(const grid *g, weft_cp_cost *x)
{
    x->attention_forward = g->forward, x->attention_backward = g->backward;
    x->calls = calls_of(g);
    add_uneven(g, x);
}

double weft_cp_cost_added(const weft_cp_cost *x)
{
    const double directions = x->attention_backward > 0 ? 2 : 1;
    return x->exposed_forward + x->exposed_backward + x->uneven_forward + x->uneven_backward + directions * x->calls;
}

static weft__cp_cost sum_of(const weft_cp_cost *x)
{
    return (weft__cp_cost){
        .seconds = weft_cp_cost_added(x), .parts = *x,
        .forward_bytes = x->context_forward + x->heads_forward,
        .backward_bytes = x->context_backward + x->heads_backward};
}

/* `steps` messages of `bytes`, one under each step of a computation of `seconds` in busy + 1 steps (the first is the
 * own block's). Steps past `busy` have nothing to hide under. */
static double exposed_steps(const grid *g, double steps, double bytes, double busy, double seconds)
{
    if (steps <= 0) return 0;
    double turn = g->one.latency + bytes / g->one.bytes_per_second, under = seconds / (busy + 1);
    if (!g->ask->options->overlap) return steps * turn;
    busy = fmin(busy, steps);
    return weft_profile_shown(g->ask->profile, busy * fmax(0, turn - under) + (steps - busy) * turn, steps * turn);
}

/* All messages at once: block i = 1 .. blocks is there after latency + i bytes / rate and wanted after i steps of
 * computing. Both are linear in i, but for the bend at `busy`: the worst is at an end or there. */
static double exposed_gather(const grid *g, double blocks, double bytes, double busy, double seconds)
{
    if (blocks <= 0) return 0;
    double under = seconds / (busy + 1), per = bytes / g->all.bytes_per_second, most = 0;
    if (!g->ask->options->overlap) return g->all.latency + blocks * per;
    const double at[] = {1, fmin(busy, blocks), blocks};
    for (int i = 0; i < 3; i++)
        if (at[i] > 0) most = fmax(most, g->all.latency + at[i] * per - fmin(at[i], busy + 1) * under);
    return weft_profile_shown(g->ask->profile, most, g->all.latency + blocks * per);
}

/* Bytes of one of n messages of backward: n - 1 of the n parts of dK,dV travel under a computation ... */
static double both(double n, double kv, double dkv) { return n > 0 ? kv + dkv * (n - 1) / n : 0; }

/* ... and the last one when everything is computed. */
static double exposed_last(const grid *g, double bytes)
{
    return g->R > 1 && g->backward > 0 ? g->one.latency + bytes / g->one.bytes_per_second : 0;
}

/* Bytes of K,V and of dK,dV of so many rows of the group with most heads. */
static double kv_bytes(const grid *g, double rows)
{
    const weft_cp_problem *p = g->ask->problem;
    return rows_bytes(g->kv_type, rows, 2 * g->kv_heads, g->kv_heads * (p->D + p->Dv));
}

static double dkv_bytes(const grid *g, double rows)
{
    const weft_cp_problem *p = g->ask->problem;
    return rows_bytes(g->grad_type, rows, 0, g->kv_heads * (p->D + p->Dv));
}

weft__cp_cost weft__cp_cost_gather(const weft__cp_ask *ask)
{
    grid g = grid_of(ask);
    double n = g.R - 1, kv = kv_bytes(&g, g.rows * g.U), dkv = dkv_bytes(&g, g.rows * g.U), with = g.backward > 0;
    /* blocks that wait in memory for their turn are written and read once more */
    double sent = g.sent * kv, held = fmax(0, n - 1) * sent / ask->profile->memory_bytes_per_second;
    double turn = n > 0 ? g.all.latency : 0, per = 1 / g.all.bytes_per_second, last = exposed_last(&g, dkv);
    weft_cp_cost x = {
        .exposed_forward = exposed_gather(&g, n, sent, g.seq.owners, g.forward) + held,
        .exposed_backward = with * (exposed_gather(&g, n, both(n, sent, dkv), g.seq.owners, g.backward) + held) + last,
        .moving_forward = turn + n * sent * per, .moving_backward = with * (2 * turn + n * (sent + dkv) * per),
        .context_forward = n * kv, .context_backward = with * n * (kv + dkv)};
    add_attention(&g, &x);
    return sum_of(&x);
}

/* n messages of each direction, one after the other, and the last part of dK,dV. */
static weft__cp_cost cost_steps(const grid *g, double n, double kv, double dkv, double busy)
{
    const double with = g->backward > 0, turn = n * g->one.latency, per = n / g->one.bytes_per_second;
    const double sent = g->sent * kv;
    weft_cp_cost x = {.exposed_forward = exposed_steps(g, n, sent, busy, g->forward),
                      .exposed_backward = with * exposed_steps(g, n, both(n, sent, dkv), busy, g->backward) +
                                          (n > 0 ? exposed_last(g, dkv) : 0),
                      .moving_forward = turn + sent * per, .moving_backward = with * (2 * turn + (sent + dkv) * per),
                      .context_forward = n * kv, .context_backward = with * n * (kv + dkv)};
    add_attention(g, &x);
    return sum_of(&x);
}

weft__cp_cost weft__cp_cost_ring(const weft__cp_ask *ask)
{
    grid g = grid_of(ask);
    return cost_steps(&g, g.R - 1, kv_bytes(&g, g.rows * g.U), dkv_bytes(&g, g.rows * g.U), g.seq.owners);
}

weft__cp_cost weft__cp_cost_pairwise(const weft__cp_ask *ask)
{
    grid g = grid_of(ask);
    double n = g.seq.owners, rows = (double)ask->problem->B * g.seq.need;
    return cost_steps(&g, n, n > 0 ? kv_bytes(&g, rows / n) : 0, n > 0 ? dkv_bytes(&g, rows / n) : 0, n);
}

weft__cp_cost weft__cp_cost_none(const weft__cp_ask *ask)
{
    grid g = grid_of(ask);
    weft_cp_cost x = {0};
    add_attention(&g, &x);
    return sum_of(&x);
}

/* ---- head stage -------------------------------------------------------------------------------------------------- */

typedef struct stage { double forward, backward; } stage;

/* Bytes that member u of a head group sends: q and the K,V heads of every other member out of its own rows, and o of
 * its own heads back to theirs; the same in backward for dO and the gradients. */
static stage head_bytes(const grid *g, int u)
{
    const weft_cp_problem *p = g->ask->problem;
    int others = 0, kv_others = 0, kv_all = 0;
    for (int x = 0; x < g->U; x++) {
        weft__cp_heads h = weft__cp_heads_of(p, g->U, x);
        others += x != u ? h.heads : 0;
        kv_others += x != u ? h.kv_heads : 0;
        kv_all += h.kv_heads;
    }
    const weft__cp_heads own = weft__cp_heads_of(p, g->U, u);
    double elsewhere = g->q_rows * (g->U - 1), kv_elsewhere = g->rows * (g->U - 1);
    const weft_cp_options *o = g->ask->options;
    double dkv = kv_all > p->Hkv ? size_of(g->grad_type) : g->c; /* parts of shared K,V heads travel as sums */
    double q = g->q_rows * others * p->D * g->c, state = g->q_rows * others * g->r;
    double kv = rows_bytes(g->kv_type, g->rows, 2 * kv_others, kv_others * (p->D + p->Dv));
    double dout = rows_bytes(g->dout_type, g->q_rows, others, others * p->Dv);
    double again = o->fp8 ? 0 : kv; /* kept as fp8 from forward on */
    stage s = {.forward = q + kv + elsewhere * own.heads * (p->Dv * g->c + 2 * g->r)};
    s.backward = (o->keep_heads ? dout + state : q + again + dout + 3 * state) +
                 elsewhere * own.heads * p->D * g->c + kv_elsewhere * own.kv_heads * (p->D + p->Dv) * dkv;
    return s;
}

weft__cp_cost weft__cp_cost_heads(const weft__cp_ask *ask, int U, const weft_cp_strategy *context)
{
    weft__cp_ask inner = *ask;
    inner.U = U;
    grid g = grid_of(&inner);
    weft_cp_cost x = context->cost(&inner).parts;
    weft__cp_link link = weft__cp_link_of(ask->profile, U, true);
    stage most = {0}, sum = {0};
    for (int u = 0; u < U; u++) {
        stage s = head_bytes(&g, u);
        most = (stage){fmax(most.forward, s.forward), fmax(most.backward, s.backward)};
        sum = (stage){sum.forward + s.forward, sum.backward + s.backward};
    }
    /* There and back; attention needs whole inputs and gives whole outputs, so nothing hides. What arrives is laid out
     * by rows of the group: written and read once more. */
    double with = g.backward > 0, turns = U > 1 ? 2 * link.latency : 0;
    double per = U > 1 ? 1 / link.bytes_per_second + 1 / ask->profile->memory_bytes_per_second : 0;
    const stage moving = {turns + most.forward * per, with * (turns + most.backward * per)};
    x.exposed_forward += moving.forward, x.exposed_backward += moving.backward;
    x.moving_forward += moving.forward, x.moving_backward += moving.backward;
    x.heads_forward += sum.forward / U, x.heads_backward += with * sum.backward / U;
    /* the group with one head more than the mean computes longer than the mean */
    const double longer = g.seq.busiest * ((double)g.heads * g.U / ask->problem->H - 1);
    x.uneven_forward += longer * g.forward, x.uneven_backward += longer * g.backward;
    return sum_of(&x);
}
