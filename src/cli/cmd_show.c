/* cmd_show.c — `weft show`: who computes which block of queries and keys at which step, and what travels. */
#include "cli/draw.h"

#include <stdlib.h>
#include <string.h>

enum { ALL_WORK = 8, CELLS_MAX = 64, PANEL_CELLS = 32, PANELS_MAX = 16, HEAD_DIM = 128 };

typedef struct request {
    const weft_cli *cli;
    weft_arena *arena;
    weft_run_options options; /* as given, and what a picture takes where nothing was */
    weft_run run;
    weft_show_ask ask;
    weft_docs docs;
    int64_t first_layer, last_layer, layers;
    int context_ranks;
    weft_text title;
} request;

/* ---- what is asked for ------------------------------------------------------------------------------------ */

/* "5,3,8" without a length of the sequence says how long it is. */
static void length_of_documents(request *q)
{
    const char *text = q->options.sim_docs;
    int64_t sum = 0;
    if (!text || weft_opts_given(&q->cli->opts, "train.seq_length")) return;
    if (strspn(text, "0123456789,") != strlen(text)) return;
    for (const char *s = text; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL) {
        int64_t n = strtoll(s, NULL, 10);
        if (n > INT32_MAX - sum) return; /* which the documents' own check refuses */
        sum += n;
    }
    if (sum > 0) q->options.seq_length = sum;
}

/* A model of which nothing is said has what the picture needs: 30 heads shall not ask for a width that they divide,
 * nor a window for a family that has one. */
static void complete_model(request *q)
{
    const weft_opts *o = &q->cli->opts;
    if (q->options.model_dir || q->options.model_config) return;
    if (!weft_opts_given(o, "model.hidden_size") && !weft_opts_given(o, "model.head_dim"))
        q->options.head_dim = HEAD_DIM;
    if (q->options.sliding_window && !weft_opts_given(o, "model.family")) q->options.family = "mistral";
}

static weft_status one_step(request *q)
{
    const char *text = q->options.show_step;
    int64_t step = -1;
    if (strcmp(text, "all")) {
        weft_status st = weft_parse_i64(text, &step);
        if (st < 0 || step < 0)
            return weft_fail(WEFT_ERR_REFUSED, "--step %s; give the number of a step, from 0, or all", text);
    }
    q->ask.only_step = (int)weft_min_i64(step, INT32_MAX);
    return WEFT_OK;
}

/* The attention of the model's layers; where some have a window and some none, of those that are more. */
static weft_status most_layers(request *q)
{
    weft_model_config config;
    weft_layer_attention kind[2];
    WEFT_TRY(weft_run_model_config(&q->run, &config));
    const weft_run_options *o = &q->options;
    weft_model_options mo = {.prec = q->run.prec,
                             .B = 1,
                             .T = o->seq_length,
                             .max_docs = 1,
                             .layout = q->run.layout,
                             .cp = q->run.cp,
                             .train = true,
                             .slots = 1};
    int n = weft_model_attention(&config, &weft_model_all, &mo, kind), most = 0;
    for (int i = 1; i < n; i++)
        if (kind[i].last_layer - kind[i].first_layer > kind[most].last_layer - kind[most].first_layer) most = i;
    q->first_layer = kind[most].first_layer, q->last_layer = kind[most].last_layer, q->layers = config.L;
    q->ask.problem = weft_info_part(kind[most].problem, q->run.mesh.tp, 0);
    return WEFT_OK;
}

static weft_status set_queries(request *q)
{
    weft_cp_problem *p = &q->ask.problem;
    if (!q->options.show_queries) return WEFT_OK;
    if (q->options.show_queries > p->T)
        return weft_fail(WEFT_ERR_REFUSED, "--queries %lld of a sequence of %lld tokens; at most all of them",
                         (long long)q->options.show_queries, (long long)p->T);
    p->Tq = q->options.show_queries;
    if (q->options.sim_docs && p->Tq < p->T)
        return weft_fail(WEFT_ERR_REFUSED,
                         "--queries with --docs: queries that are the last part of a sequence need one "
                         "document; leave one of them out");
    return WEFT_OK;
}

static weft_status set_documents(request *q)
{
    const weft_run_options *o = &q->options;
    if (!o->sim_docs) return WEFT_OK;
    WEFT_TRY(weft_docs_from_text(&q->docs, q->arena, o->sim_docs, 1, o->seq_length, (uint64_t)o->seed));
    q->ask.docs = &q->docs;
    return WEFT_OK;
}

static weft_status open_request(request *q, const weft_cli *cli)
{
    *q = (request){.cli = cli, .arena = cli->arena, .options = cli->options, .run = cli->run};
    q->run.o = &q->options;
    if (cli->run.cp.profile) q->run.cp.profile = &q->run.profile;
    if (q->run.layout.kind == WEFT_LAYOUT_BALANCED && q->options.micro_batch > 1)
        return weft_fail(WEFT_ERR_REFUSED,
                         "balanced deals the documents of all %lld sequences of a micro-batch "
                         "together, and a picture is of one; give --micro-batch-size 1",
                         (long long)q->options.micro_batch);
    length_of_documents(q);
    complete_model(q);
    q->ask = (weft_show_ask){.options = q->run.cp,
                             .cp = q->run.mesh.cp,
                             .only_rank = (int)q->options.show_rank,
                             .all_work = ALL_WORK,
                             .backward = q->options.show_backward};
    if (q->ask.only_rank >= q->ask.cp)
        return weft_fail(WEFT_ERR_REFUSED, "--rank %d; there are ranks 0 to %d", q->ask.only_rank, q->ask.cp - 1);
    WEFT_TRY(one_step(q));
    WEFT_TRY(most_layers(q));
    WEFT_TRY(set_queries(q));
    WEFT_TRY(set_documents(q));
    return q->options.show_svg ? weft_writer_check(q->options.show_svg) : WEFT_OK;
}

/* ---- drawing ------------------------------------------------------------------------------------------------ */

static void make_title(request *q, const weft_show *s)
{
    const weft_cp_problem *p = &q->ask.problem;
    const weft_mesh_shape m = q->run.mesh;
    weft_text *t = &q->title;
    weft_text_add(t, "attention  T %lld, ", (long long)p->T);
    if (p->Tq < p->T) weft_text_add(t, "the last %lld ask, ", (long long)p->Tq);
    weft_text_add(t, "H %d/%d, D %d, %s, causal", p->H, p->Hkv, p->D, weft_prec_name(p->prec));
    if (p->mask.left >= 0) weft_text_add(t, ", window %lld", (long long)p->mask.left + 1);
    if (q->ask.docs) weft_text_add(t, ", %lld documents", (long long)(q->docs.first[1] - 1));
    if (q->last_layer - q->first_layer + 1 < q->layers)
        weft_text_add(t, "\nlayers     %lld-%lld of %lld are like this", (long long)q->first_layer,
                      (long long)q->last_layer, (long long)q->layers);
    weft_text_add(t, "\nplan       %s\n", s->plan.data ? s->plan.data : "");
    if (m.tp > 1 || m.dp > 1 || m.pp > 1)
        weft_text_add(t, "ranks      of one cp group, numbered in it; there are tp %d x dp %d x pp %d of them%s\n",
                      m.tp, m.dp, m.pp, m.tp > 1 ? ", this one with the first heads" : "");
    if (q->options.micro_batch > 1)
        weft_text_add(t, "batch      one of %lld sequences, which are all cut alike\n",
                      (long long)q->options.micro_batch);
}

static bool wants_color(const weft_run_options *o)
{
    return strcmp(o->color, "auto") ? !strcmp(o->color, "always") : weft_in_colour(stdout);
}

static weft_status make(request *q, weft_show *s, weft_comm *any, int cells)
{
    weft_kern kern;
    WEFT_TRY(weft_kern_init(&kern, q->run.isa));
    q->ask.cells = cells;
    return weft_show_make(s, q->arena, &kern, any, &q->ask);
}

static weft_status draw_terminal(request *q, weft_comm *any)
{
    weft_show s;
    int64_t documents = q->ask.docs ? q->docs.first[1] - 1 : 0;
    int cells = weft_draw_cells_fit(weft_columns(stdout), q->ask.problem.T, documents);
    WEFT_TRY(make(q, &s, any, (int)weft_min_i64(CELLS_MAX, cells)));
    make_title(q, &s);
    q->context_ranks = s.R;
    weft_drawing d = {&s, &q->ask, q->ask.docs, q->title.data ? q->title.data : "", wants_color(&q->options)};
    weft_print_lines(d.title, (int)strlen("attention  "));
    weft_say("\n");
    weft_draw_grid(&d);
    weft_draw_tables(&d);
    weft_text_free(&s.plan);
    return WEFT_OK;
}

/* One small picture for each step, unless one was asked for or there are too many to be read. */
static weft_status make_panels(request *q, weft_comm *any, weft_show *main, weft_show **panel, int *n)
{
    *n = q->ask.only_step < 0 && main->R > 1 && main->R <= PANELS_MAX ? main->R : 0;
    WEFT_TRY(WEFT_NEW0(q->arena, *n, "pictures", panel));
    for (int i = 0; i < *n; i++) {
        q->ask.only_step = i;
        weft_status st = make(q, &(*panel)[i], any, PANEL_CELLS);
        q->ask.only_step = -1;
        if (st < 0) return st;
        weft_text_free(&(*panel)[i].plan);
    }
    return WEFT_OK;
}

static weft_status draw_file(request *q, weft_comm *any)
{
    weft_show s, *panel;
    int n;
    const char *path = q->options.show_svg;
    int cells = q->context_ranks > PANELS_MAX ? PANEL_CELLS : CELLS_MAX; /* letters want room */
    WEFT_TRY(make(q, &s, any, cells));
    weft_status st = make_panels(q, any, &s, &panel, &n);
    q->ask.cells = cells;
    weft_drawing d = {&s, &q->ask, q->ask.docs, q->title.data ? q->title.data : "", false};
    if (st == WEFT_OK) st = weft_draw_svg(&d, panel, n, q->arena, path);
    weft_text_free(&s.plan);
    if (st == WEFT_OK) weft_say("\npicture written to %s\n", path);
    return st;
}

static weft_status show_body(weft_cli *cli, weft_world *world)
{
    request *q;
    weft_comm *any;
    WEFT_TRY(WEFT_NEW0(cli->arena, 1, "picture", &q));
    WEFT_TRY(open_request(q, cli));
    WEFT_TRY(weft_comm_create(&any, world, (int[]){0}, 1, "show"));
    weft_status st = draw_terminal(q, any);
    if (st == WEFT_OK && q->options.show_svg) st = draw_file(q, any);
    weft_comm_destroy(any);
    weft_text_free(&q->title);
    return st;
}

const weft_command weft_cmd_show = {"show",
                                    "show [CONFIG.yaml] [options]",
                                    "a picture of one exchange: who computes which block at which step, and what "
                                    "travels",
                                    WEFT_CMD_SHOW,
                                    0,
                                    1,
                                    true,
                                    false,
                                    NULL,
                                    show_body};
