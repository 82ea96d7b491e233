/* cp_cost.c — the model behind "auto": how long a rank stands still for the exchange of one layer, forward and
 * backward. docs/maths/cost.md derives it. Pure functions of problem, options, profile and P.
 *
 * Only differences between strategies count: the time of the attention itself is the same for all and is left out,
 * but for what a strategy adds to it (uneven head groups, an uneven cut of the visible area). An exchange that the
 * busiest rank computes under costs only what sticks out. */
#include "cp/cp_impl.h"

#include <math.h>

/* ---- what one sequence looks like to a context rank ----------------------------------------------------- */

enum { SAMPLES = 32 }; /* midpoints per chunk: exact where the number of visible keys is linear in the query */

typedef struct span { double begin, end; } span;

static double length(span s) { return fmax(0, s.end - s.begin); }
static span overlap(span a, span b) { return (span){fmax(a.begin, b.begin), fmin(a.end, b.end)}; }

/* The key positions that queries at positions [q.begin, q.end) see: one span, because a span of queries is one. */
static span visible_span(const weft_cp_problem *p, span q)
{
    const weft_mask *m = &p->mask;
    span k = {0, (double)p->T};
    if (length(q) == 0) return (span){0, 0};
    if (m->left >= 0) k.begin = fmax(k.begin, q.begin - (double)m->left);
    if (m->right >= 0) k.end = fmin(k.end, q.end + (double)m->right);
    if (m->causal) k.end = fmin(k.end, fmax(q.end, (double)m->prefix));
    return k;
}

/* Layouts come down to three: one chunk per rank, two that lie as mirror images (zigzag; and balanced, of which no more
 * is known before the documents are), or stripes. */
static int chunks_of(weft_layout layout) { return layout.kind == WEFT_LAYOUT_CONTIGUOUS ? 1 : 2; }

/* Chunk c of rank r of R, of a sequence of n tokens. */
static span chunk(weft_layout layout, double n, int R, int r, int c)
{
    if (chunks_of(layout) == 1) return (span){n * r / R, n * (r + 1) / R};
    int at = c == 0 ? r : 2 * R - 1 - r;
    return (span){n * at / (2 * R), n * (at + 1) / (2 * R)};
}

/* ... of the queries, in positions: they are the last part of the keys. */
static span query_chunk(const weft_cp_problem *p, int R, int r, int c)
{
    span s = chunk(p->layout, (double)p->Tq, R, r, c);
    double first = (double)(p->T - p->Tq);
    return (span){first + s.begin, first + s.end};
}

/* Visible (query, key) pairs of one head of one sequence, for the queries in q. */
static double area_of(const weft_cp_problem *p, span q)
{
    double sum = 0, width = length(q) / SAMPLES;
    for (int i = 0; i < SAMPLES; i++) {
        double at = q.begin + (i + 0.5) * width;
        /* a query is one token wide: half a token to both sides of its middle */
        sum += width * length(visible_span(p, (span){at - 0.5, at + 0.5}));
    }
    return sum;
}

typedef struct picture { /* of one sequence on R context ranks */
    double area;    /* visible pairs of one head, all ranks together */
    double busiest; /* largest share of it / mean share */
    double need;    /* rows of others that a rank needs, on average */
    double owners;  /* from how many others it needs any, at most */
} picture;

/* Rows that rank r needs of others, and from how many of the R - 1 they come. */
static double need_of(const weft_cp_problem *p, int R, int r, double *owners)
{
    int chunks = chunks_of(p->layout);
    double rows = 0, touched = 0, width = (double)p->T / (chunks * R);
    span seen[2] = {{0, 0}, {0, 0}};
    for (int c = 0; c < chunks; c++) {
        seen[c] = visible_span(p, query_chunk(p, R, r, c));
        rows += length(seen[c]);
        if (length(seen[c]) > 0) touched += ceil(seen[c].end / width - 1e-9) - floor(seen[c].begin / width + 1e-9);
    }
    if (chunks == 2) rows -= length(overlap(seen[0], seen[1]));
    for (int c = 0; c < chunks; c++) {
        span own = chunk(p->layout, (double)p->T, R, r, c);
        span a = overlap(own, seen[0]), b = overlap(own, seen[1]);
        rows -= length(a) + length(b) - length(overlap(a, b));
        if (length(a) + length(b) > 0) touched -= 1;
    }
    *owners = fmin(R - 1, touched);
    return rows;
}

static picture picture_of_chunks(const weft_cp_problem *p, int R)
{
    picture x = {0};
    double most = 0;
    for (int r = 0; r < R; r++) {
        double area = 0, owners;
        for (int c = 0; c < chunks_of(p->layout); c++) area += area_of(p, query_chunk(p, R, r, c));
        x.area += area;
        most = fmax(most, area);
        x.need += need_of(p, R, r, &owners) / R;
        x.owners = fmax(x.owners, owners);
    }
    x.busiest = x.area > 0 ? most * R / x.area : 1;
    return x;
}

/* Every stripe of k tokens sees its window; stripes of one rank lie R k apart, and what lies between them is needed as
 * far as windows reach. */
static picture picture_of_stripes(const weft_cp_problem *p, int R, double k)
{
    const weft_mask *m = &p->mask;
    span all = {(double)(p->T - p->Tq), (double)p->T};
    picture x = {.area = area_of(p, all), .owners = R - 1};
    double reach = INFINITY, hull = length(visible_span(p, all));
    if (m->left >= 0 && (m->causal || m->right >= 0))
        reach = (double)m->left + (m->causal ? 0 : (double)m->right);
    x.busiest = m->causal && reach == INFINITY ? 1 + k * (R - 1) / ((double)p->T + 1) : 1;
    double between = fmin(reach, (R - 1) * k); /* tokens of others per stripe */
    x.need = hull / R / k * between;
    x.owners = fmin(R - 1, ceil(between / k));
    return x;
}

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
    picture seq;
    weft__cp_link one, all;  /* between context ranks: one message at a time, all at once */
} grid;

weft__cp_link weft__cp_link_of(const weft_profile *p, int ranks, bool at_once)
{
    if (p->node_ranks == 0 || ranks <= p->node_ranks)
        return (weft__cp_link){p->node_latency_seconds, p->node_bytes_per_second};
    return (weft__cp_link){p->latency_seconds, at_once ? p->rank_bytes_per_second
                                                       : fmin(p->link_bytes_per_second, p->rank_bytes_per_second)};
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
    double stripe = (double)weft_max_i64(p->layout.block, 1) * U;
    g.seq = p->layout.kind == WEFT_LAYOUT_STRIPED ? picture_of_stripes(p, g.R, stripe) : picture_of_chunks(p, g.R);
    g.forward =
        g.seq.area * (double)p->B * p->H * 2 * (p->D + p->Dv) / ask->P / ask->profile->flops_per_second[p->prec];
    g.backward = p->need_backward ? g.forward * ask->profile->backward_factor : 0;
    g.one = weft__cp_link_of(ask->profile, ask->P, false);
    g.all = weft__cp_link_of(ask->profile, ask->P, true);
    return g;
}

/* ---- context stages ------------------------------------------------------------------------------------------ */

/* What the cut adds to the time of the attention: the busiest rank against the mean. */
static void add_uneven(const grid *g, double busiest, weft_cp_cost *x)
{
    x->uneven_forward += g->forward * (busiest - 1);
    x->uneven_backward += g->backward * (busiest - 1);
}

static weft__cp_cost sum_of(const weft_cp_cost *x)
{
    return (weft__cp_cost){
        .seconds = x->exposed_forward + x->exposed_backward + x->uneven_forward + x->uneven_backward, .parts = *x,
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
    return busy * fmax(0, turn - under) + (steps - busy) * turn;
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
    return most;
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
    double held = fmax(0, n - 1) * kv / ask->profile->memory_bytes_per_second, last = exposed_last(&g, dkv);
    double turn = n > 0 ? g.all.latency : 0, per = 1 / g.all.bytes_per_second;
    weft_cp_cost x = {
        .exposed_forward = exposed_gather(&g, n, kv, g.seq.owners, g.forward) + held,
        .exposed_backward = with * (exposed_gather(&g, n, both(n, kv, dkv), g.seq.owners, g.backward) + held) + last,
        .moving_forward = turn + n * kv * per, .moving_backward = with * (2 * turn + n * (kv + dkv) * per),
        .context_forward = n * kv, .context_backward = with * n * (kv + dkv)};
    add_uneven(&g, g.seq.busiest, &x);
    return sum_of(&x);
}

/* n messages of each direction, one after the other, and the last part of dK,dV. */
static weft__cp_cost cost_steps(const grid *g, double n, double kv, double dkv, double busy)
{
    const double with = g->backward > 0, turn = n * g->one.latency, per = n / g->one.bytes_per_second;
    weft_cp_cost x = {.exposed_forward = exposed_steps(g, n, kv, busy, g->forward),
                      .exposed_backward = with * exposed_steps(g, n, both(n, kv, dkv), busy, g->backward) +
                                          (n > 0 ? exposed_last(g, dkv) : 0),
                      .moving_forward = turn + kv * per, .moving_backward = with * (2 * turn + (kv + dkv) * per),
                      .context_forward = n * kv, .context_backward = with * n * (kv + dkv)};
    add_uneven(g, g->seq.busiest, &x);
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
    add_uneven(&g, g.seq.busiest, &x);
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
    add_uneven(&g, 1 + g.seq.busiest * ((double)g.heads * g.U / ask->problem->H - 1), &x);
    return sum_of(&x);
}
