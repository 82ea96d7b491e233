/* cmd_sim.c — `weft sim`: the attention of a model on simulated ranks, strategy by strategy. */
#include "cli/choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry { /* one strategy with one layout */
    const char *strategy;
    weft_layout layout;
    weft_sim_result result;
    weft_sim_result calm;  /* the same without what disturbs, when something does */
    weft_status status;
    char refusal[300];
} entry;

enum { RANKS_MAX = 4096 };

typedef struct request {
    const weft_cli *cli;
    weft_arena *arena;
    weft_profile profile;
    weft_sim_ask ask;      /* but for strategy and layout */
    weft_docs docs;
    int64_t first_layer, last_layer; /* of the model, that have this attention */
    entry *list;
    int n, best;           /* best: -1 none */
    weft_text disturbed;   /* in words; empty: nothing is */
} request;

/* ---- what is asked for ------------------------------------------------------------------------------------ */

static weft_status make_list(request *q)
{
    const char *name[WEFT_NAMES_MAX];
    weft_layout layout[WEFT_NAMES_MAX];
    int names, kinds;
    bool chosen;
    WEFT_TRY(weft_choose_strategies(q->cli, q->arena, name, &names, &chosen));
    WEFT_TRY(weft_choose_layouts(q->cli, q->arena, layout, &kinds));
    WEFT_TRY(WEFT_NEW0(q->arena, (int64_t)names * kinds, "simulations", &q->list));
    for (int s = 0; s < names; s++)
        for (int l = 0; l < kinds; l++) {
            /* Nobody who did not ask for it wants to read that one rank is not many. */
            if (!chosen && !strcmp(name[s], "none") && q->ask.cp > 1) continue;
            q->list[q->n++] = (entry){.strategy = name[s], .layout = layout[l]};
        }
    return WEFT_OK;
}

static weft_status traced_ranks(request *q)
{
    const weft_run_options *o = &q->cli->options;
    int *traced;
    if (!o->sim_trace && weft_opts_given(&q->cli->opts, "trace.ranks"))
        return weft_fail(WEFT_ERR_REFUSED, "--trace-ranks could not act without --trace FILE");
    if (!o->sim_trace) return WEFT_OK;
    WEFT_TRY(weft_writer_check(o->sim_trace));
    WEFT_TRY(weft_run_traced_ranks(&q->cli->opts, o, q->ask.cp * q->ask.groups, q->arena, &traced, &q->ask.n_traced));
    q->ask.traced = traced;
    return WEFT_OK;
}

/* The attention of the model's layers; where some have a window and some none, of those that are more. */
static weft_cp_problem most_layers(request *q, const weft_model_config *config)
{
    const weft_run_options *o = &q->cli->options;
    weft_model_options mo = {.prec = q->cli->run.prec, .B = o->micro_batch, .T = o->seq_length,
                             .max_docs = o->micro_batch,
                             .layout = q->cli->run.layout, .cp = q->cli->run.cp, .train = true, .slots = 1};
    weft_layer_attention kind[2];
    int n = weft_model_attention(config, &weft_model_all, &mo, kind), most = 0;
    for (int i = 1; i < n; i++)
        if (kind[i].last_layer - kind[i].first_layer > kind[most].last_layer - kind[most].first_layer) most = i;
    q->first_layer = kind[most].first_layer;
    q->last_layer = kind[most].last_layer;
    return kind[most].problem;
}

/* --rank-order: are neighbours in rank ranks of different groups? */
static bool dp_runs_faster(weft_mesh_shape m)
{
    return m.dp > 1 && weft_mesh_coords(m, 1).dp == 1;
}

static weft_status make_ask(request *q)
{
    const weft_cli *cli = q->cli;
    const weft_run_options *o = &cli->options;
    weft_model_config config;
    WEFT_TRY(weft_run_model_config(&cli->run, &config));
    if (cli->run.mesh.tp > 1 || cli->run.mesh.pp > 1)
        return weft_fail(WEFT_ERR_REFUSED, "weft sim runs attention layers of all heads; leave --tp and --pp out, and "
                         "for one part of tp give --num-attention-heads and --num-query-groups of that part");
    if (o->dp > RANKS_MAX / cli->run.mesh.cp)
        return weft_fail(WEFT_ERR_REFUSED, "cp %d x dp %lld are more than %d ranks, which is as many as are simulated",
                         cli->run.mesh.cp, (long long)o->dp, RANKS_MAX);
    q->profile = cli->run.cp.profile ? *cli->run.cp.profile : weft_profile_default();
    q->ask = (weft_sim_ask){.problem = most_layers(q, &config), .options = cli->run.cp, .cp = cli->run.mesh.cp,
                            .groups = cli->run.mesh.dp, .interleaved = dp_runs_faster(cli->run.mesh),
                            .layers = (int)o->sim_layers,
                            .needs_poll = !o->sim_hardware_progress};
    q->ask.options.profile = &q->profile;
    if (o->sim_docs) {
        WEFT_TRY(weft_docs_from_text(&q->docs, q->arena, o->sim_docs, o->micro_batch, o->seq_length,
                                     (uint64_t)o->seed));
        q->ask.docs = &q->docs;
        q->ask.problem.max_docs = q->docs.first[q->docs.B] - q->docs.B;
    }
    return traced_ranks(q);
}

static weft_status disturb(request *q)
{
    const weft_run_options *o = &q->cli->options;
    const int ranks = q->ask.cp * q->ask.groups;
    const bool one_node = q->profile.node_ranks == 0 || q->profile.node_ranks >= ranks;
    weft_sim_disturb *d = &q->ask.disturb;
    WEFT_TRY(weft_sim_disturb_parse(d, q->arena, o->sim_slow_rank, o->sim_slow_link, ranks, one_node));
    d->jitter = o->sim_jitter;
    d->seed = (uint64_t)o->seed;
    weft_sim_disturb_text(d, ranks, &q->disturbed);
    return WEFT_OK;
}

static weft_status open_request(request *q, const weft_cli *cli, weft_arena *arena)
{
    q->cli = cli;
    q->arena = arena;
    q->best = -1;
    WEFT_TRY(make_ask(q));
    WEFT_TRY(disturb(q));
    return make_list(q);
}

/* ---- running ------------------------------------------------------------------------------------------------ */

static double total(const entry *e) { return e->result.forward_seconds + e->result.backward_seconds; }

static weft_status run_entry(request *q, entry *e, weft_text *trace)
{
    weft_sim_ask ask = q->ask;
    ask.options.strategy = e->strategy;
    ask.problem.layout = e->layout;
    ask.trace = trace;
    return weft_simulate(&e->result, &ask);
}

static weft_status run_calm(request *q, entry *e)
{
    weft_sim_ask ask = q->ask;
    ask.options.strategy = e->strategy;
    ask.problem.layout = e->layout;
    ask.disturb = (weft_sim_disturb){0};
    return weft_simulate(&e->calm, &ask);
}

/* A refusal is a line of the table, unless there is nothing else to say; any other failure ends the command. */
static weft_status run_list(request *q)
{
    for (int i = 0; i < q->n; i++) {
        entry *e = &q->list[i];
        e->status = run_entry(q, e, NULL);
        if (e->status == WEFT_OK && q->disturbed.len) WEFT_TRY(run_calm(q, e));
        if (e->status != WEFT_OK && (e->status != WEFT_ERR_REFUSED || q->n == 1)) return e->status;
        if (e->status != WEFT_OK) snprintf(e->refusal, sizeof e->refusal, "%s", weft_last_error());
        else if (q->best < 0 || total(e) < total(&q->list[q->best])) q->best = i;
    }
    return q->best >= 0
               ? WEFT_OK
               : weft_fail(WEFT_ERR_REFUSED, "none of the strategies can do this; the first: %s", q->list[0].refusal);
}

static weft_status write_trace(request *q, weft_chrome_told *told)
{
    const char *path = q->cli->options.sim_trace;
    weft_text text = {0};
    entry again = q->list[q->best];
    weft_writer w;
    weft_status st = run_entry(q, &again, &text);
    *told = again.result.trace;
    weft_sim_result_free(&again.result);
    if (st == WEFT_OK && text.failed) st = weft_fail(WEFT_ERR_MEMORY, "%s: no memory for the time line", path);
    if (st == WEFT_OK) st = weft_writer_open(&w, path);
    if (st == WEFT_OK) {
        st = weft_writer_put(&w, text.data, text.len);
        if (st == WEFT_OK) st = weft_writer_commit(&w);
        else weft_writer_abandon(&w);
    }
    weft_text_free(&text);
    return st;
}

/* ---- the table ---------------------------------------------------------------------------------------------- */

typedef struct summary { double compute, exposed, sent, messages, memory, imbalance; } summary;

/* Shares are means over ranks of the whole time; bytes, messages and memory those of the busiest rank. */
static summary summarise(const entry *e)
{
    summary s = {0};
    double most = 0, sum = 0;
    for (int r = 0; r < e->result.ranks; r++) {
        const weft_sim_rank_result *x = &e->result.rank[r];
        double sent = (double)(x->forward_bytes + x->backward_bytes),
               messages = (double)(x->forward_messages + x->backward_messages);
        s.exposed += x->exposed_seconds / e->result.ranks / total(e);
        if (sent > s.sent) s.sent = sent;
        if (messages > s.messages) s.messages = messages;
        if (x->memory_bytes > s.memory) s.memory = x->memory_bytes;
        if (x->compute_seconds > most) most = x->compute_seconds;
        sum += x->compute_seconds;
    }
    s.compute = sum / e->result.ranks / total(e);
    s.imbalance = sum > 0 ? most * e->result.ranks / sum : 1;
    return s;
}

static void print_entry(const request *q, const entry *e)
{
    char layout[48], forward[16], backward[16], sent[16], memory[16];
    int layers = q->ask.layers;
    summary s = summarise(e);
    printf("%c %-12s %-10s %7s %7s %4.0f%% %4.1f%% %6s %6.0f %6s %5.2f\n", e == &q->list[q->best] ? '*' : ' ',
           e->strategy, weft_layout_text(e->layout, layout, sizeof layout),
           weft_short_seconds(e->result.forward_seconds / layers, forward),
           weft_short_seconds(e->result.backward_seconds / layers, backward), 100 * s.compute, 100 * s.exposed,
           weft_short_bytes(s.sent / layers, sent), s.messages / layers, weft_short_bytes(s.memory, memory),
           s.imbalance);
}

static void print_head(const request *q)
{
    const weft_cp_problem *p = &q->ask.problem;
    char rate[32];
    printf("attention  B %lld, T %lld, H %d/%d, D %d, %s, causal", (long long)p->B, (long long)p->T, p->H, p->Hkv, p->D,
           weft_prec_name(p->prec));
    if (p->mask.left >= 0) printf(", window %lld", (long long)p->mask.left + 1);
    if (q->ask.docs) printf(", %lld documents", (long long)(q->docs.first[1] - 1));
    printf("\nlayers     %lld-%lld of the model are like this; simulated: %d", (long long)q->first_layer,
           (long long)q->last_layer, q->ask.layers);
    printf("\nranks      cp %d x dp %d%s", q->ask.cp, q->ask.groups,
           q->ask.interleaved ? ", dp runs faster" : "");
    if (q->profile.node_ranks) printf(", nodes of %d", q->profile.node_ranks);
    printf("\nrates      %s; attention %.3g Tflop/s, backward x%.3g,\n",
           q->cli->run.cp.profile ? "of the profile" : "of a plain machine",
           q->profile.flops_per_second[p->prec] * 1e-12, q->profile.backward_factor);
    printf("           links %s/s, %s\n", weft_format_bytes(q->profile.link_bytes_per_second, rate, sizeof rate),
           q->ask.needs_poll ? "transfers begin when both ranks look" : "transfers need no rank");
    if (q->disturbed.len) {
        weft_text t = {0};
        weft_text_add_under(&t, "disturbed  ", q->disturbed.data);
        weft_print_prose(stdout, t.data ? t.data : "", 11);
        weft_text_free(&t);
    }
    printf("\n");
}

static weft_status print_costs(const request *q)
{
    weft_sim_cost *c;
    int n = 0;
    if (!q->disturbed.len) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(q->arena, q->n, "costs", &c));
    for (int i = 0; i < q->n; i++) {
        const entry *e = &q->list[i];
        if (e->status == WEFT_OK) c[n++] = (weft_sim_cost){e->strategy, e->layout, &e->calm, &e->result};
    }
    weft_print_sim_costs(c, n, q->ask.layers);
    return WEFT_OK;
}

static void print_plans(const request *q)
{
    char layout[48];
    weft_text t = {0};
    weft_text_add(&t, "\nplans\n");
    for (int i = 0; i < q->n; i++)
        if (q->list[i].status == WEFT_OK)
            weft_text_add(&t, "  %s\n", q->list[i].result.plan.data ? q->list[i].result.plan.data : "");
    for (int i = 0; i < q->n; i++)
        if (q->list[i].status != WEFT_OK)
            weft_text_add(&t, "  %s, %s: refused: %s\n", q->list[i].strategy,
                          weft_layout_text(q->list[i].layout, layout, sizeof layout), q->list[i].refusal);
    weft_print_prose(stdout, t.data ? t.data : "", 4);
    weft_text_free(&t);
}

static weft_status print_table(const request *q)
{
    print_head(q);
    printf("  %-12s %-10s %7s %7s %5s %5s %6s %6s %6s %5s\n", "strategy", "layout", "forward", "back", "comp.", "stand",
           "sent", "msgs", "memory", "imbal");
    for (int i = 0; i < q->n; i++)
        if (q->list[i].status == WEFT_OK) print_entry(q, &q->list[i]);
    printf("\nOf one layer: time until the last rank was done; shares of it in which ranks\n"
           "computed and stood still, on average; bytes and messages of the busiest rank.\n"
           "memory: the plan's buffers; imbal: largest compute time / mean; * the fastest.\n");
    WEFT_TRY(print_costs(q));
    print_plans(q);
    return WEFT_OK;
}

/* ---- the command -------------------------------------------------------------------------------------------- */

static weft_status sim_body(weft_cli *cli, weft_world *world)
{
    request *q;
    (void)world;
    WEFT_TRY(WEFT_NEW0(cli->arena, 1, "simulation", &q));
    WEFT_TRY(open_request(q, cli, cli->arena));
    weft_status st = run_list(q);
    if (st == WEFT_OK) st = print_table(q);
    if (st == WEFT_OK && cli->options.sim_trace) {
        weft_chrome_told told;
        st = write_trace(q, &told);
        if (st == WEFT_OK)
            printf("\ntime line of %s written to %s\n", q->list[q->best].strategy, cli->options.sim_trace);
        if (st == WEFT_OK && told.lost)
            printf("its first %lld events did not fit: a rank keeps its last %d\n", (long long)told.lost,
                   WEFT_TRACE_EVENTS);
    }
    for (int i = 0; i < q->n; i++) {
        weft_sim_result_free(&q->list[i].result);
        weft_sim_result_free(&q->list[i].calm);
    }
    weft_text_free(&q->disturbed);
    return st;
}

const weft_command weft_cmd_sim = {"sim",
                                   "sim [CONFIG.yaml] [options]",
                                   "attention on up to 4,096 simulated ranks: time, bytes, memory of each strategy",
                                   WEFT_CMD_SIM,
                                   0,
                                   1,
                                   true,
                                   false,
                                   NULL,
                                   sim_body};
