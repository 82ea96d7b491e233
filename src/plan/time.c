/* time.c — seconds of a training step, from what it computes and moves (work.c) and the machine's rates.
 * docs/maths/plan.md derives every term.
 *
 * The busiest rank of the busiest stage counts. A part is what sticks out: what travels under something else costs
 * nothing, so that the parts add up to the step. */
#include "plan/plan_impl.h"

#include <math.h>

static const char *const names[WEFT_TIMES] = {
    [WEFT_TIME_PRODUCTS] = "products", [WEFT_TIME_ATTENTION] = "attention", [WEFT_TIME_ELEMENTS] = "elements",
    [WEFT_TIME_LOSS] = "loss", [WEFT_TIME_OPTIMIZER] = "optimizer", [WEFT_TIME_RECOMPUTE] = "recompute",
    [WEFT_TIME_TP] = "tp", [WEFT_TIME_CP] = "cp", [WEFT_TIME_PP] = "pp", [WEFT_TIME_DP] = "dp",
    [WEFT_TIME_BUBBLE] = "bubble", [WEFT_TIME_IMBALANCE] = "imbalance", [WEFT_TIME_OFFLOAD] = "offload",
};

const char *weft_time_name(weft_time_part part) { return names[part]; }

weft_plan_system weft_plan_system_weft(weft_prec prec)
{
    const double c = (double)weft_dtype_size(weft_prec_compute(prec));
    const double r = (double)weft_dtype_size(weft_prec_real(prec));
    return (weft_plan_system){.stream = r, .tp_rows = c, .tp_sums = r, .tp_piece = 16 << 20,
                              .gradients = r, .weights = r, .elements = 1};
}

weft_model_options weft_plan_options(const weft_plan_ask *ask, const weft_layout_choice *c)
{
    weft_model_options o = ask->options;
    o.train = true;
    o.slots = 1; /* of a pipeline: the schedule says (weft_plan_memory) */
    o.B = c->micro_batch;
    o.max_docs = weft_max_i64(o.max_docs, o.B);
    o.layout = c->cp_layout;
    o.cp.strategy = c->strategy;
    o.cp.head_size = c->head_size;
    o.recompute = c->recompute;
    o.keep_attention = c->keep_attention;
    if (!c->offload) o.offload = WEFT_OFFLOAD_NONE;
    else if (o.offload == WEFT_OFFLOAD_NONE) o.offload = WEFT_OFFLOAD_HOST;
    return o;
}

weft_status weft_plan_micros(const weft_plan_ask *ask, const weft_layout_choice *c, int64_t *out)
{
    int64_t unit;
    if (c->micro_batch < 1 || c->dp < 1 || !weft_mul_i64(c->micro_batch, c->dp, &unit) || ask->global_batch % unit ||
        ask->global_batch < 1)
        return weft_fail(WEFT_ERR_REFUSED, "%lld sequences of a step are no multiple of micro-batch %lld x dp %d",
                         (long long)ask->global_batch, (long long)c->micro_batch, c->dp);
    *out = ask->global_batch / unit;
    return WEFT_OK;
}

bool weft__offloads(const weft_plan_ask *ask, const weft_layout_choice *c, int stage, int64_t micros)
{
    const weft_model_share share = {0, c->tp, stage, c->pp, c->sequence_parallel};
    weft_model_options o = weft_plan_options(ask, c);
    o.slots = weft_sched_slots(c->pp, stage, micros);
    return weft_model_offloads(ask->config, &share, &o);
}

/* ---- one kind of layer --------------------------------------------------------------------------------------- */

typedef struct parts { /* seconds of one pass over a micro-batch, by part; bytes and seconds on the way */
    double seconds[WEFT_TIMES];
    weft__exchange moved[WEFT_LINKS];
} parts;

typedef struct kind { /* layers with one mask */
    int64_t first, last;
    double attention[2];  /* seconds forward and backward, mean over the ranks of cp */
    weft_cp_cost cp;
} kind;

typedef struct machine { /* what all formulas need */
    const weft_profile *profile;
    const weft_plan_ask *ask;
    const weft_layout_choice *choice;
    weft_plan_system system;
    weft__peers peers[WEFT_LINKS];
    weft__step_work work;
    double product_rate;
    int64_t micros;
    kind kind[2];
    int kinds;
} machine;

/* Operations and memory: one under the other where the machine can, one after the other where the profile says so. */
static double product(const machine *m, const weft__product *x)
{
    const double operations = 2 * x->M * x->N * x->K / m->product_rate, apart = m->profile->product_bytes_per_second;
    if (apart > 0) return operations + x->bytes / apart;
    return fmax(operations, x->bytes / m->profile->element_bytes_per_second);
}

static double products(const machine *m, const weft__amount *a)
{
    double sum = 0;
    for (int i = 0; i < a->products; i++)
        sum += a->product[i].calls * m->profile->product_seconds + product(m, &a->product[i]);
    return sum;
}

static void add_moved(weft__exchange *to, weft__exchange x, double times)
{
    to->node += times * x.node;
    to->link += times * x.link;
    to->seconds += times * x.seconds;
}

/* What is gathered, or added up, leaves a rank but for its own part; what arrives to be added passes through memory. */
static void add_tp(const machine *m, const weft__amount *a, parts *out)
{
    const weft__peers g = m->peers[WEFT_LINK_TP];
    if (g.size < 2) return;
    const double most = (double)(g.size - 1) / g.size, sums = a->tp_sums * m->system.tp_sums * most;
    const weft__exchange x =
        weft__exchange_of(m->profile, g, a->tp_rows * m->system.tp_rows * most + sums, a->tp_calls);
    const double added = (m->choice->sequence_parallel ? 1 : 0.5) * sums / m->profile->memory_bytes_per_second;
    add_moved(&out->moved[WEFT_LINK_TP], x, 1);
    out->seconds[WEFT_TIME_TP] += x.seconds + added;
}

/* The bytes of context and head groups lie on the ranks of cp; how many of them leave the node follows from the grid: a
 * head group's ranks are neighbours. */
static void add_cp(const machine *m, const kind *k, bool backward, parts *out)
{
    const weft_cp_cost *x = &k->cp;
    const weft_profile p = weft__profile_of_cp(m->profile, m->choice);
    const int near = p.node_ranks == 0 ? m->choice->cp : (int)weft_min_i64(p.node_ranks, m->choice->cp);
    const int U = x->head_ranks, R = m->choice->cp / U;
    const double heads = backward ? x->heads_backward : x->heads_forward;
    const double context = backward ? x->context_backward : x->context_forward;
    const double heads_near = U > 1 ? (double)(weft_min_i64(near, U) - 1) / (U - 1) : 1;
    const double context_near = R > 1 ? fmax(0, (double)near / U - 1) / (R - 1) : 1;
    const weft__exchange e = {.node = heads * heads_near + context * context_near,
                              .link = heads * (1 - heads_near) + context * (1 - context_near),
                              .seconds = backward ? x->moving_backward : x->moving_forward};
    add_moved(&out->moved[WEFT_LINK_CP], e, 1);
    out->seconds[WEFT_TIME_CP] += backward ? x->exposed_backward : x->exposed_forward;
    out->seconds[WEFT_TIME_IMBALANCE] += backward ? x->uneven_backward : x->uneven_forward;
}

static void add_pass(const machine *m, const kind *k, const weft__amount *a, weft__direction direction, parts *out)
{
    const bool again = direction == WEFT__AGAIN, backward = direction == WEFT__BACKWARD;
    const double attention = k && a->attention > 0 ? k->attention[backward] : 0;
    const double elements = a->elements / m->profile->element_bytes_per_second;
    out->seconds[again ? WEFT_TIME_RECOMPUTE : WEFT_TIME_PRODUCTS] += products(m, a);
    out->seconds[again ? WEFT_TIME_RECOMPUTE : WEFT_TIME_ATTENTION] += attention;
    out->seconds[again ? WEFT_TIME_RECOMPUTE : WEFT_TIME_ELEMENTS] += elements;
    out->seconds[WEFT_TIME_LOSS] += a->loss / m->profile->element_bytes_per_second;
    add_tp(m, a, out);
    if (k && a->attention > 0) add_cp(m, k, backward, out);
}

static double total(const parts *x)
{
    double sum = 0;
    for (int i = 0; i < WEFT_TIMES; i++) sum += x->seconds[i];
    return sum;
}

static void add_parts(parts *to, const parts *x, double times)
{
    for (int i = 0; i < WEFT_TIMES; i++) to->seconds[i] += times * x->seconds[i];
    for (int i = 0; i < WEFT_LINKS; i++) add_moved(&to->moved[i], x->moved[i], times);
}

static weft_status open_kind(machine *m, const weft_layer_attention *x, kind *out)
{
    const weft_profile cp = weft__profile_of_cp(m->profile, m->choice);
    weft_cp_options o = weft_plan_options(m->ask, m->choice).cp;
    o.profile = &cp;
    *out = (kind){.first = x->first_layer, .last = x->last_layer};
    WEFT_TRY(weft_cp_cost_of(&out->cp, &x->problem, &o, m->choice->cp));
    out->attention[0] = out->cp.attention_forward + out->cp.calls;
    out->attention[1] = out->cp.attention_backward + out->cp.calls;
    return WEFT_OK;
}

/* Where tp does not divide the heads, the first part has fewest of them, and a strategy that deals heads out may have
 * none for each rank there. */
weft_status weft__check_least_part(const weft_profile *profile, const weft_plan_ask *ask, const weft_layout_choice *c)
{
    const weft_model_share share = {0, c->tp, 0, c->pp, c->sequence_parallel};
    weft_model_options o = weft_plan_options(ask, c);
    weft_layer_attention x[2];
    weft_cp_cost cost;
    if (c->cp == 1 || ask->config->H % c->tp == 0) return WEFT_OK;
    o.cp.profile = profile;
    const int n = weft_model_attention(ask->config, &share, &o, x);
    for (int i = 0; i < n; i++) WEFT_TRY(weft_cp_cost_of(&cost, &x[i].problem, &o.cp, c->cp));
    return WEFT_OK;
}

static weft_status open_kinds(machine *m)
{
    const weft_model_options o = weft_plan_options(m->ask, m->choice);
    const weft_model_share share = {m->choice->tp - 1, m->choice->tp, 0, m->choice->pp, m->choice->sequence_parallel};
    weft_layer_attention x[2];
    WEFT_TRY(weft__check_least_part(m->profile, m->ask, m->choice));
    m->kinds = weft_model_attention(m->ask->config, &share, &o, x);
    for (int i = 0; i < m->kinds; i++) WEFT_TRY(open_kind(m, &x[i], &m->kind[i]));
    if (m->kinds > 0) return WEFT_OK;
    m->kind[m->kinds++] = (kind){.last = m->ask->config->L - 1, .cp = {.head_ranks = 1, .strategy = "none"}};
    return WEFT_OK;
}

/* ---- stages -------------------------------------------------------------------------------------------------- */

typedef struct passes { parts forward, backward; } passes; /* backward: with what it does again */

static passes passes_of(const machine *m, const kind *k, const weft__layer_work *w)
{
    passes x = {0};
    add_pass(m, k, &w->pass[WEFT__FORWARD], WEFT__FORWARD, &x.forward);
    add_pass(m, k, &w->pass[WEFT__BACKWARD], WEFT__BACKWARD, &x.backward);
    add_pass(m, k, &w->pass[WEFT__AGAIN], WEFT__AGAIN, &x.backward);
    return x;
}

static void add_passes(passes *to, const passes *x, double times)
{
    add_parts(&to->forward, &x->forward, times);
    add_parts(&to->backward, &x->backward, times);
}

static double seconds_of(const passes *x) { return total(&x->forward) + total(&x->backward); }

/* Inputs of layers go out under the forward pass and come in under the backward pass: what takes longer sticks out. */
static void add_offload(const machine *m, int stage, weft_span layers, passes *x)
{
    if (!weft__offloads(m->ask, m->choice, stage, m->micros)) return;
    const double row = (double)m->ask->config->C * m->system.stream;
    const double seconds =
        (double)(layers.end - layers.begin) * m->work.stream * row / m->profile->host_bytes_per_second;
    x->forward.seconds[WEFT_TIME_OFFLOAD] += fmax(0, seconds - total(&x->forward));
    x->backward.seconds[WEFT_TIME_OFFLOAD] += fmax(0, seconds - total(&x->backward));
}

typedef struct ends { passes layer[2], embedding, head; } ends;

static passes stage_of(const machine *m, const ends *e, int stage)
{
    const int64_t L = m->ask->config->L;
    const weft_span here = weft_model_cut(L, m->choice->pp, stage);
    passes x = {0};
    for (int i = 0; i < m->kinds; i++) {
        const int64_t n = weft_min_i64(m->kind[i].last + 1, here.end) - weft_max_i64(m->kind[i].first, here.begin);
        if (n > 0) add_passes(&x, &e->layer[i], (double)n);
    }
    if (stage == 0) add_passes(&x, &e->embedding, 1);
    if (stage + 1 == m->choice->pp) add_passes(&x, &e->head, 1);
    add_offload(m, stage, here, &x);
    return x;
}

/* The stage that takes longest, and the seconds of a micro-batch on all others. */
typedef struct pipeline { passes busiest; int stage; double others; } pipeline;

static pipeline pipeline_of(const machine *m)
{
    ends e = {.embedding = passes_of(m, NULL, &m->work.embedding), .head = passes_of(m, NULL, &m->work.head)};
    pipeline p = {.stage = -1};
    double most = 0;
    for (int i = 0; i < m->kinds; i++) e.layer[i] = passes_of(m, &m->kind[i], &m->work.layer);
    for (int s = 0; s < m->choice->pp; s++) {
        const passes x = stage_of(m, &e, s);
        const double seconds = seconds_of(&x);
        p.others += seconds;
        if (p.stage >= 0 && seconds <= most) continue;
        p.busiest = x, p.stage = s, most = seconds;
    }
    p.others -= most;
    return p;
}

/* ---- the step ------------------------------------------------------------------------------------------------ */

static void take(weft_plan_time *out, const parts *x, double times)
{
    for (int i = 0; i < WEFT_TIMES; i++) out->seconds[i] += times * x->seconds[i];
    for (int i = 0; i < WEFT_LINKS; i++) {
        out->bytes_node[i] += times * x->moved[i].node;
        out->bytes_link[i] += times * x->moved[i].link;
        out->moving[i] += times * x->moved[i].seconds;
    }
}

/* Filling and draining goes through every other stage once. A period of two neighbours in 1F1B holds both of what they
 * send each other and has no slack, so a transfer shows once per micro-batch, and once per stage in each direction
 * while the pipeline fills and drains. */
static void add_pipeline(const machine *m, const pipeline *p, weft_plan_time *out)
{
    const int pp = m->choice->pp;
    if (pp == 1) return;
    const weft__peers g = m->peers[WEFT_LINK_PP];
    const bool away = g.in_node < g.size;
    const double bytes = m->work.stream * (double)m->ask->config->C * m->system.stream;
    const double once = weft__exchange_of(m->profile, (weft__peers){2, away ? 1 : 2}, bytes, 1).seconds;
    const double shown = (double)(m->micros - 1) + 2.0 * (pp - 1);
    const double sends = (p->stage + 1 < pp) + (p->stage > 0); /* outputs down, gradients up */
    out->seconds[WEFT_TIME_BUBBLE] += p->others;
    out->seconds[WEFT_TIME_PP] += shown * once;
    *(away ? &out->bytes_link[WEFT_LINK_PP] : &out->bytes_node[WEFT_LINK_PP]) += (double)m->micros * sends * bytes;
    out->moving[WEFT_LINK_PP] += (double)m->micros * sends * once;
}

/* A reduce-scatter, or an all-gather, of all parameters of the stage, of `size` bytes each. */
static weft__exchange all_of(const machine *m, double params, double size)
{
    const weft__peers g = m->peers[WEFT_LINK_DP];
    return weft__exchange_of(m->profile, g, params * size * (g.size - 1) / g.size, 1);
}

static void add_dp_moved(weft_plan_time *out, weft__exchange x, double times)
{
    out->bytes_node[WEFT_LINK_DP] += times * x.node;
    out->bytes_link[WEFT_LINK_DP] += times * x.link;
    out->moving[WEFT_LINK_DP] += times * x.seconds;
}

/* What shows of an exchange under computing: its last part at least, what takes longer, and of the rest what the rank's
 * own core moves. */
static double under(const machine *m, double seconds, double computing, double last)
{
    return weft_profile_shown(m->profile, fmax(last * seconds, seconds - computing), seconds);
}

/* Sums begin range by range while the backward pass of the last micro-batch goes on (with ZeRO 2 and 3 of each); the
 * last range, which on the first stage is the embedding's, has nothing to hide under. */
static void add_sums(const machine *m, const pipeline *p, double params, weft_plan_time *out)
{
    const weft_layout_choice *c = m->choice;
    const double backward = total(&p->busiest.backward), times = c->zero >= 2 ? (double)m->micros : 1;
    const double embedding = p->stage == 0 ? (double)m->ask->config->C * m->work.embedding_rows : 0;
    const double layers = (double)(m->ask->config->L / c->pp);
    const double ways = c->zero == 0 ? 2 : 1; /* all ranks get all sums: there and back */
    const double last = fmax(embedding, (params - embedding) / (layers + 1)) / params;
    const weft__exchange x = all_of(m, params, m->system.gradients);
    const double seconds = ways * x.seconds;
    const double shown = m->ask->overlap_gradients ? under(m, seconds, backward, last) : seconds;
    const double added = (x.node + x.link) / m->profile->memory_bytes_per_second;
    out->seconds[WEFT_TIME_DP] += times * (shown + added);
    add_dp_moved(out, x, times * ways);
}

/* New weights travel while the next range is updated. With ZeRO 3 they are gathered for each pass instead, under the
 * computing of the layer before. */
static void add_weights(const machine *m, const pipeline *p, double params, weft_plan_time *out)
{
    const weft__exchange x = all_of(m, params, m->system.weights);
    const double layers = fmax(1, (double)(m->ask->config->L / m->choice->pp));
    if (m->choice->zero == 3) {
        const double forward = under(m, x.seconds, total(&p->busiest.forward), 1 / layers);
        const double backward = under(m, x.seconds, total(&p->busiest.backward), 1 / layers);
        out->seconds[WEFT_TIME_DP] += (double)m->micros * (forward + backward);
        add_dp_moved(out, x, 2 * (double)m->micros);
    } else if (m->choice->zero > 0) {
        out->seconds[WEFT_TIME_DP] += under(m, x.seconds, out->seconds[WEFT_TIME_OPTIMIZER], 1 / layers);
        add_dp_moved(out, x, 1);
    }
}

static void add_optimizer(const machine *m, const pipeline *p, weft_plan_time *out)
{
    const double params = weft__stage_params(m->ask, m->choice, p->stage);
    out->seconds[WEFT_TIME_OPTIMIZER] =
        weft__optimizer_bytes(m->ask, m->choice, p->stage) / m->profile->element_bytes_per_second;
    if (m->peers[WEFT_LINK_DP].size == 1) return;
    add_sums(m, p, params, out);
    add_weights(m, p, params, out);
}

static double model_flops(const machine *m)
{
    const weft_model_config *c = m->ask->config;
    const int64_t T = m->ask->options.T, n = m->ask->global_batch;
    const int64_t windowed = c->window > 0 ? c->L - c->window_from_layer : 0;
    const double area = ((double)windowed * weft_model_sequence_area(c, T, true) +
                         (double)(c->L - windowed) * weft_model_sequence_area(c, T, false)) / (double)c->L;
    return (double)n * weft_model_step_flops(c, T, area);
}

/* ---- the door ------------------------------------------------------------------------------------------------ */

static weft_status check(const weft_profile *profile, const weft_plan_ask *ask, const weft_layout_choice *c)
{
    const int64_t L = ask->config->L;
    if (c->tp < 1 || c->cp < 1 || c->dp < 1 || c->pp < 1)
        return weft_fail(WEFT_ERR_REFUSED, "tp %d x cp %d x dp %d x pp %d: each must be at least 1", c->tp, c->cp,
                         c->dp, c->pp);
    if (c->pp > L)
        return weft_fail(WEFT_ERR_REFUSED, "pp %d: the model has %lld layers; a stage needs one", c->pp, (long long)L);
    if (c->sequence_parallel && c->tp == 1)
        return weft_fail(WEFT_ERR_REFUSED, "sequence parallelism deals rows over the ranks of tp, and there is one");
    if (c->keep_attention && c->recompute == WEFT_RECOMPUTE_NONE)
        return weft_fail(WEFT_ERR_REFUSED, "keeping attention's output could not act without recomputation");
    if (c->offload && !(profile->host_bytes_per_second > 0))
        return weft_fail(WEFT_ERR_REFUSED, "the profile has no host_bytes_per_second: offloading takes unknown time");
    if (c->fp8 && !(profile->fp8_flops_per_second > 0))
        return weft_fail(WEFT_ERR_REFUSED, "the profile has no fp8_flops_per_second: no products in fp8");
    return WEFT_OK;
}

static weft_status open_machine(machine *m)
{
    const weft_layout_choice *c = m->choice;
    WEFT_TRY(check(m->profile, m->ask, c));
    WEFT_TRY(weft_plan_micros(m->ask, c, &m->micros));
    m->system = m->ask->system ? *m->ask->system : weft_plan_system_weft(m->ask->options.prec);
    m->product_rate = c->fp8 ? m->profile->fp8_flops_per_second
                             : m->profile->product_flops_per_second[m->ask->options.prec];
    for (int i = 0; i < WEFT_LINKS; i++) m->peers[i] = weft__peers_of(m->profile, c, (weft_plan_link)i);
    m->work = weft__work_of(m->ask, c);
    return open_kinds(m);
}

weft_status weft_plan_time_of(weft_plan_time *out, const weft_profile *profile, const weft_plan_ask *ask,
                              const weft_layout_choice *choice)
{
    machine m = {.profile = profile, .ask = ask, .choice = choice};
    weft_plan_time t = {0};
    WEFT_TRY(open_machine(&m));
    const pipeline p = pipeline_of(&m);
    take(&t, &p.busiest.forward, (double)m.micros);
    take(&t, &p.busiest.backward, (double)m.micros);
    add_pipeline(&m, &p, &t);
    add_optimizer(&m, &p, &t);
    for (int i = 0; i < WEFT_TIMES; i++) t.step += t.seconds[i];
    t.flops = model_flops(&m);
    t.head_ranks = m.kind[0].cp.head_ranks;
    t.strategy = m.kind[0].cp.strategy;
    *out = t;
    return WEFT_OK;
}
