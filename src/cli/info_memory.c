/* info_memory.c — `weft info --memory`: what each rank of a training run would hold, without running it.
 *
 * Ranks of one stage and one part of tp hold the same (but for the last elements of ZeRO's slices): one of them speaks
 * for all. Its process has no other ranks, so blocks of keys and values count as where they are copied; ranks of one
 * machine that read each other's in place (--peer-memory) need less of "attention". */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct place { int stage, part; weft_memory memory; } place;

/* As a start on this machine would choose. */
static int threads_of(const weft_cli *cli)
{
    if (cli->options.threads) return (int)cli->options.threads;
    return (int)weft_max_i64(1, sysconf(_SC_NPROCESSORS_ONLN) / weft_mesh_ranks(cli->run.mesh));
}

/* What each rank of the world copies of a checkpoint; all are taken to be on one node. */
static weft_status plan_checkpoints(const weft_cli *cli, const weft_model_config *config, weft_arena *arena,
                                    int64_t **bytes)
{
    int ranks = weft_mesh_ranks(cli->run.mesh), writers = strcmp(cli->options.save_writers, "all") ? 1 : ranks;
    int *writer = NULL;
    WEFT_TRY(WEFT_NEW(arena, writers, "ranks that write", &writer));
    WEFT_TRY(WEFT_NEW(arena, ranks, "ranks that write", bytes));
    for (int r = 0; r < writers; r++) writer[r] = r;
    return weft_run_checkpoint_bytes(&cli->run, config, arena, writer, writers, ranks, *bytes);
}

/* Ranks of one place write different files: the one with most speaks for them. */
static void take_checkpoint(const weft_cli *cli, const int64_t *bytes, place *x)
{
    int64_t *most = &x->memory.bytes[WEFT_MEMORY_CHECKPOINT];
    for (int r = 0; r < weft_mesh_ranks(cli->run.mesh); r++) {
        const weft_mesh_shape at = weft_mesh_coords(cli->run.mesh, r);
        if (at.pp == x->stage && at.tp == x->part) *most = weft_max_i64(*most, bytes[r]);
    }
}

static weft_status plan_place(const weft_cli *cli, const weft_model_config *config, const weft_kern *kern,
                              weft_comm *any, place *x)
{
    const weft_run *run = &cli->run;
    const weft_mesh_shape m = run->mesh;
    const weft_run_options *o = &cli->options;
    int64_t micros;
    WEFT_TRY(weft_run_accumulation(run, &micros));
    WEFT_TRY(weft_run_check_offload(run, config, micros));
    const weft_engine_options eo = {.B = o->micro_batch, .T = o->seq_length, .max_docs = o->micro_batch,
                                    .micros = micros, .train = true};
    const weft_memory_ask ask = {
        .config = config, .options = weft_engine_model_options(run, &eo), .cp = m.cp,
        .cp_rank = WEFT_CP_FULLEST,
        .at = {.share = {x->part, m.tp, x->stage, m.pp, run->sequence_parallel},
               .ranks = m.dp * m.cp, .rank = 0, .zero = (int)o->zero_stage},
        .threads = threads_of(cli), .micros = micros,
    };
    return weft_plan_memory(&x->memory, kern, any, &ask);
}

static void add_jsonl(weft_text *t, const place *x)
{
    weft_text_add(t, "{\"stage\":%d,\"part\":%d", x->stage, x->part);
    for (int k = 0; k < WEFT_MEMORY_KINDS; k++)
        weft_text_add(t, ",\"%s\":%lld", weft_memory_name((weft_memory_kind)k), (long long)x->memory.bytes[k]);
    weft_text_add(t, ",\"sum\":%lld,\"file\":%lld}\n", (long long)weft_memory_total(&x->memory),
                  (long long)x->memory.file);
}

static void add_row(weft_text *t, const char *name, int64_t most, int64_t least, bool both)
{
    char buf[32];
    weft_text_add(t, "%-13s%16s", name, weft_format_bytes((double)most, buf, sizeof buf));
    if (both) weft_text_add(t, "%16s", weft_format_bytes((double)least, buf, sizeof buf));
    weft_text_add(t, "\n");
}

static void add_places(weft_text *t, const place *most, const place *least)
{
    char a[32], b[32];
    snprintf(a, sizeof a, "pp %d tp %d", most->stage, most->part);
    snprintf(b, sizeof b, "pp %d tp %d", least->stage, least->part);
    weft_text_add(t, "%-13s%16s%16s\n", "", a, b);
}

static void add_table(weft_text *t, const weft_cli *cli, const place *most, const place *least)
{
    const weft_mesh_shape m = cli->run.mesh;
    const bool both = m.tp * m.pp > 1;
    int ranks = weft_mesh_ranks(m);
    weft_text_add(t, "%d rank%s: ", ranks, ranks > 1 ? "s" : "");
    weft_mesh_describe(m, t);
    weft_text_add(t, "; %lld sequence%s of %lld tokens at a time, %s\n\n", (long long)cli->options.micro_batch,
                  cli->options.micro_batch > 1 ? "s" : "", (long long)cli->options.seq_length,
                  weft_prec_name(cli->run.prec));
    if (both) weft_text_add(t, "%-13s%16s%16s\n", "a rank holds", "most", "least");
    if (both) add_places(t, most, least);
    for (int k = 0; k < WEFT_MEMORY_KINDS; k++)
        if (most->memory.bytes[k] || least->memory.bytes[k])
            add_row(t, weft_memory_name((weft_memory_kind)k), most->memory.bytes[k], least->memory.bytes[k], both);
    add_row(t, "sum", weft_memory_total(&most->memory), weft_memory_total(&least->memory), both);
    if (most->memory.file || least->memory.file) add_row(t, "in a file", most->memory.file, least->memory.file, both);
}

static weft_status add_all(const weft_cli *cli, const weft_model_config *config, const weft_kern *kern, weft_comm *any,
                           const int64_t *checkpoint, weft_text *t)
{
    const bool jsonl = !strcmp(cli->options.bench_format, "jsonl");
    place most = {.memory.bytes = {-1}}, least = most;
    for (int stage = 0; stage < cli->run.mesh.pp; stage++)
        for (int part = 0; part < cli->run.mesh.tp; part++) {
            place x = {.stage = stage, .part = part};
            WEFT_TRY(plan_place(cli, config, kern, any, &x));
            take_checkpoint(cli, checkpoint, &x);
            int64_t sum = weft_memory_total(&x.memory);
            if (jsonl) add_jsonl(t, &x);
            if (sum > weft_memory_total(&most.memory)) most = x;
            if (least.memory.bytes[0] < 0 || sum < weft_memory_total(&least.memory)) least = x;
        }
    if (!jsonl) add_table(t, cli, &most, &least);
    return t->failed ? weft_fail(WEFT_ERR_MEMORY, "no memory for the table of memory") : WEFT_OK;
}

weft_status weft_info_memory(const weft_cli *cli, weft_world *world)
{
    const char *format = cli->options.bench_format;
    weft_kern kern;
    weft_model_config config;
    weft_comm *any;
    weft_text t = {0};
    weft_arena *arena = NULL;
    int64_t *checkpoint = NULL;
    if (strcmp(format, "text") && strcmp(format, "jsonl"))
        return weft_fail(WEFT_ERR_REFUSED, "info --memory --format %s: there is text, or jsonl with a line per stage "
                         "and part of tp", format);
    WEFT_TRY(weft_run_model_config(&cli->run, &config));
    WEFT_TRY(weft_kern_init(&kern, cli->run.isa));
    weft_world_ctx(world)->threads = threads_of(cli); /* a rank's, not this process' */
    WEFT_TRY(weft_comm_create(&any, world, (int[]){0}, 1, "memory"));
    weft_status st = weft_arena_create(&arena, &weft_world_ctx(world)->mem, "checkpoints", NULL);
    if (st >= 0) st = plan_checkpoints(cli, &config, arena, &checkpoint);
    if (st >= 0) st = add_all(cli, &config, &kern, any, checkpoint, &t);
    weft_arena_destroy(arena);
    weft_comm_destroy(any);
    if (st == WEFT_OK && *t.data == '{') fputs(t.data, stdout);
    else if (st == WEFT_OK) weft_print_lines(t.data, 0);
    weft_text_free(&t);
    return st;
}
