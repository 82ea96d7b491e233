/* cmd_plan.c — `weft plan`: the fastest layouts of a training step that fit, why, what was refused, and what the rules
 * of thumb would have said. Nothing runs but this process; no cluster is asked. */
#include "cli/plan.h"

#include <stdio.h>
#include <string.h>

/* ---- what is fixed ------------------------------------------------------------------------------------------- */

static const struct { const char *name, *key; } words[] = {
    {"tp", "parallel.tp"}, {"cp", "parallel.cp"}, {"dp", "parallel.dp"}, {"pp", "parallel.pp"},
    {"sequence-parallel", "parallel.sequence_parallel"}, {"zero", "optim.zero_stage"},
    {"strategy", "parallel.cp_strategy"}, {"head-size", "parallel.cp_head_size"}, {"layout", "parallel.cp_layout"},
    {"order", "parallel.rank_order"}, {"recompute", "memory.recompute"}, {"offload", "memory.offload"},
    {"micro-batch", "train.micro_batch_size"}, {"all", NULL}};
enum { WORDS = sizeof words / sizeof *words };

/* "tp,cp" holds the name, or "all". */
static bool has_word(const char *list, const char *name)
{
    for (const char *at = list; at && *at;) {
        const size_t n = strcspn(at, ",");
        if ((strlen(name) == n && !strncmp(at, name, n)) || (n == 3 && !strncmp(at, "all", 3))) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static weft_status check_free(const char *list)
{
    const char *names[WORDS];
    for (int i = 0; i < WORDS; i++) names[i] = words[i].name;
    for (const char *at = list; at && *at;) {
        const size_t n = strcspn(at, ",");
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)weft_min_size(n, sizeof word - 1), at);
        int i = 0;
        while (i < WORDS && strcmp(word, names[i]) != 0) i++;
        const char *near = i == WORDS ? weft_suggest(word, names, WORDS) : NULL;
        if (i == WORDS)
            return weft_fail(WEFT_ERR_REFUSED, "--free %s: \"%s\" is none of tp, cp, dp, pp, sequence-parallel, zero, "
                             "strategy, head-size, layout, order, recompute, offload, micro-batch, all%s%s%s", list,
                             word, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
        at += n + (at[n] == ',');
    }
    return WEFT_OK;
}

/* Somebody asked for it, and it was not set free. */
static bool holds(const weft_cli *cli, const char *name)
{
    const char *key = NULL;
    for (int i = 0; i < WORDS; i++)
        if (!strcmp(words[i].name, name)) key = words[i].key;
    if (cli->options.search_free && has_word(cli->options.search_free, name)) return false;
    if (!strcmp(name, "strategy") && weft_run_names_strategy(&cli->opts))
        return strcmp(cli->run.cp.strategy, "auto") != 0;
    if (!strcmp(name, "cp") &&
        (weft_opts_given(&cli->opts, "parallel.pcp_size") || weft_opts_given(&cli->opts, "parallel.dcp_size")))
        return true;
    return weft_opts_given(&cli->opts, key);
}

static int held(const weft_cli *cli, const char *name, int value)
{
    return holds(cli, name) ? value : WEFT_PLAN_FREE;
}

static weft_plan_fixed fixed_of(const weft_cli *cli)
{
    const weft_run *run = &cli->run;
    const weft_run_options *o = &cli->options;
    weft_plan_fixed f = weft_plan_all_free();
    f.tp = held(cli, "tp", run->mesh.tp), f.cp = held(cli, "cp", run->mesh.cp);
    f.dp = held(cli, "dp", run->mesh.dp), f.pp = held(cli, "pp", run->mesh.pp);
    f.sequence_parallel = held(cli, "sequence-parallel", run->sequence_parallel);
    f.zero = held(cli, "zero", (int)o->zero_stage);
    f.head_size = held(cli, "head-size", (int)o->cp_head_size);
    f.order = held(cli, "order", run->mesh.order);
    f.recompute = held(cli, "recompute", (int)run->recompute);
    if (f.recompute != WEFT_PLAN_FREE) f.keep_attention = o->keep_attention;
    f.offload = held(cli, "offload", run->offload != WEFT_OFFLOAD_NONE);
    f.micro_batch = held(cli, "micro-batch", (int)o->micro_batch);
    f.strategy = holds(cli, "strategy") ? run->cp.strategy : NULL;
    f.layout_given = holds(cli, "layout");
    f.layout = run->layout;
    f.fp8 = o->fp8;
    return f;
}

/* ---- what is asked ------------------------------------------------------------------------------------------- */

static int ranks_of(const weft_cli *cli, const weft_plan_fixed *f)
{
    const int size[] = {f->tp, f->cp, f->dp, f->pp};
    int64_t product = 1;
    bool any = false;
    if (cli->options.search_ranks) return (int)cli->options.search_ranks;
    for (int i = 0; i < 4; i++)
        if (size[i] != WEFT_PLAN_FREE) any = true, product *= size[i];
    return any ? (int)product : weft_launch_cpus();
}

static weft_status machine_of(weft_plan_report *r)
{
    const weft_run_options *o = &r->cli->options;
    if (o->search_machine && o->profile)
        return weft_fail(WEFT_ERR_REFUSED, "--machine %s and --profile %s both name a machine; give one of them",
                         o->search_machine, o->profile);
    r->machine = o->search_machine ? o->search_machine : o->profile;
    if (o->search_machine) return weft_profile_find(&r->profile, o->search_machine);
    r->profile = r->cli->run.cp.profile ? *r->cli->run.cp.profile : weft_profile_default();
    return WEFT_OK;
}

/* Copies for checkpoints lie in the host's memory where a rank has another one. */
static weft_status checkpoints_of(weft_plan_report *r, weft_arena *arena)
{
    const int ranks = r->ask.ranks, writers = strcmp(r->cli->options.save_writers, "all") ? 1 : ranks;
    int *writer = NULL;
    int64_t *bytes = NULL;
    if (weft_plan_has_host(&r->profile) || r->ask.target != &weft_target_weft) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(arena, writers, "ranks that write", &writer));
    WEFT_TRY(WEFT_NEW(arena, ranks, "ranks that write", &bytes));
    for (int i = 0; i < writers; i++) writer[i] = i;
    WEFT_TRY(weft_run_checkpoint_bytes(&r->cli->run, &r->config, arena, writer, writers, ranks, bytes));
    r->ask.step.checkpoint = bytes;
    r->ask.step.checkpoint_ranks = ranks;
    return WEFT_OK;
}

/* Products in fp8 are other systems'; of Weft's own run the option means the exchange, which options.cp says. */
static weft_status target_of(weft_plan_report *r)
{
    WEFT_TRY(weft_target_find(&r->ask.target, r->cli->options.search_target));
    if (r->ask.target == &weft_target_weft) r->ask.fixed.fp8 = 0;
    else if (r->ask.fixed.fp8 && !r->ask.target->fp8)
        return weft_fail(WEFT_ERR_REFUSED, "--fp8-enabled: %s has no products in fp8; leave it out",
                         r->ask.target->name);
    return WEFT_OK;
}

static weft_status make_ask(weft_plan_report *r)
{
    const weft_cli *cli = r->cli;
    const weft_run_options *o = &cli->options;
    const weft_engine_options eo = {.B = 1, .T = o->seq_length, .max_docs = 1, .train = true};
    WEFT_TRY(check_free(o->search_free));
    WEFT_TRY(machine_of(r));
    WEFT_TRY(weft_run_model_config(&cli->run, &r->config));
    if (cli->run.offload == WEFT_OFFLOAD_FILE)
        return weft_fail(WEFT_ERR_REFUSED, "--offload file: profiles have no rate of a disk; plan with --offload host");
    r->ask = (weft_search_ask){
        .profile = &r->profile, .fixed = fixed_of(cli), .best = (int)o->search_best, .simulate = o->search_simulate,
        .memory = o->search_memory ? (double)o->search_memory : r->profile.memory_bytes,
        .step = {.config = &r->config, .options = weft_engine_model_options(&cli->run, &eo),
                 .global_batch = o->global_batch ? o->global_batch : o->micro_batch * cli->run.mesh.dp,
                 .overlap_gradients = o->overlap_grad_reduce,
                 .all_options = o->search_free != NULL}};
    r->ask.step.options.cp.buffer_bytes = weft_run_buffer_bytes(&cli->opts, o, &r->profile);
    r->ask.ranks = ranks_of(cli, &r->ask.fixed);
    r->ask.step.threads = o->threads ? (int)o->threads : (int)weft_max_i64(1, weft_launch_cpus() / r->ask.ranks);
    return target_of(r);
}

/* ---- the command --------------------------------------------------------------------------------------------- */

static weft_status print_sources(const weft_plan_report *r)
{
    weft_text t = {0};
    if (!r->machine)
        return weft_fail(WEFT_ERR_REFUSED, "--sources tells of a machine; name one with --machine (h100-ib)");
    weft_status st = weft_profile_source(&t, r->machine, NULL);
    if (st == WEFT_OK) weft_print_lines(t.data ? t.data : "no sources\n", WEFT_FOLD_UNDER);
    weft_text_free(&t);
    return st;
}

static weft_status search(weft_plan_report *r, weft_world *world)
{
    weft_kern kern;
    weft_comm *any;
    weft_arena *arena = NULL;
    const weft_clock *clock = &weft_world_ctx(world)->clock;
    const double begin = weft_now(clock);
    WEFT_TRY(weft_kern_init(&kern, r->cli->run.isa));
    weft_world_ctx(world)->threads = r->ask.step.threads; /* a rank's, not this process' */
    WEFT_TRY(weft_comm_create(&any, world, (int[]){0}, 1, "plan"));
    weft_status st = weft_arena_create(&arena, &weft_world_ctx(world)->mem, "checkpoints", NULL);
    if (st == WEFT_OK) st = checkpoints_of(r, arena);
    if (st == WEFT_OK) st = weft_plan_search(&r->found, &r->ask, &kern, any);
    r->seconds = weft_now(clock) - begin;
    weft_arena_destroy(arena);
    weft_comm_destroy(any);
    return st;
}

/* A way out: what is missing, and of what. */
static weft_status refuse_size(const weft_plan_report *r)
{
    const weft_plan_found *x = &r->found.least;
    char need[32], have[32], shorter[64] = "";
    if (r->found.longest) snprintf(shorter, sizeof shorter, ", or --seq-length %lld", (long long)r->found.longest);
    weft_format_bytes(r->ask.memory, have, sizeof have);
    if (!r->found.has_least)
        return weft_fail(WEFT_ERR_REFUSED, "no layout of %d ranks could be counted", r->ask.ranks);
    return weft_fail(WEFT_ERR_REFUSED, "no layout of %d rank%s fits into %s: the smallest, tp %d x cp %d x dp %d x pp "
                     "%d with recompute %s, needs %s; give more --ranks or --mem%s",
                     r->ask.ranks, r->ask.ranks > 1 ? "s" : "", have, x->choice.tp, x->choice.cp, x->choice.dp,
                     x->choice.pp, weft_recompute_name(x->choice.recompute),
                     weft_format_bytes((double)weft_memory_total(&x->memory), need, sizeof need),
                     shorter);
}

static weft_status plan_body(weft_cli *cli, weft_world *world)
{
    weft_plan_report r = {.cli = cli};
    const char *format = cli->options.bench_format;
    if (strcmp(format, "text") && strcmp(format, "jsonl"))
        return weft_fail(WEFT_ERR_REFUSED, "plan --format %s: there is text, and jsonl with a line per layout, rule "
                         "and refusal", format);
    WEFT_TRY(make_ask(&r));
    if (cli->options.search_sources) return print_sources(&r);
    WEFT_TRY(search(&r, world));
    weft_status st = r.found.n > 0 ? WEFT_OK : refuse_size(&r);
    if (st == WEFT_OK) (strcmp(format, "jsonl") ? weft_plan_print_text : weft_plan_print_jsonl)(&r);
    weft_search_result_free(&r.found);
    return st;
}

const weft_command weft_cmd_plan = {"plan",
                                    "plan [CONFIG.yaml] [options of weft train] [--machine NAME|FILE] [--ranks N] "
                                    "[--mem 24G]",
                                    "the fastest layouts of a training step over ranks, here or on another machine: "
                                    "time, memory, bytes, and why",
                                    WEFT_CMD_PLAN,
                                    0,
                                    1,
                                    true,
                                    false,
                                    NULL,
                                    plan_body};
