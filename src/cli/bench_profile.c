/* bench_profile.c — `weft bench profile`: the rates of this machine as its ranks see them, all of them at work at once.
 *
 * Every figure is the median of a few repetitions on a rank, and then the worst of all ranks, because ranks wait for
 * the slowest. */
#include "cli/bench.h"
#include "cli/profile_rates.h"
#include "cli/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { REPEATS = 5 };
static const size_t bulk = (size_t)32 << 20; /* bytes: more than a rank's share of most caches */

/* ---- memory and messages ------------------------------------------------------------------------------------- */

static weft_status measure_memory(weft_rates *b, const char *from, char *to, weft_profile *p)
{
    weft_series took = {0};
    for (int i = 0; i < b->repeats; i++) {
        WEFT_TRY(weft_barrier(b->comm));
        double begin = weft_rates_now(b);
        memcpy(to, from, bulk);
        weft_rates_took(&took, weft_rates_now(b) - begin);
    }
    p->memory_bytes_per_second = (double)bulk / weft_rates_median(&took);
    return WEFT_OK;
}

/* To each of the next `peers` ranks, and as much from others, all at once. */
static weft_status measure_link(weft_rates *b, int peers, size_t bytes, const char *from, char *to, weft_req *req,
                                double *rate)
{
    weft_series took = {0};
    for (int i = 0; i < b->repeats; i++) {
        WEFT_TRY(weft_barrier(b->comm));
        double begin = weft_rates_now(b);
        WEFT_TRY(weft_rates_exchange(b, peers, bytes, from, to, req));
        weft_rates_took(&took, weft_rates_now(b) - begin);
    }
    *rate = (double)bytes * peers / weft_rates_median(&took);
    return WEFT_OK;
}

static weft_status measure_exchange(weft_rates *b, weft_profile *p)
{
    int peers = weft_comm_size(b->comm) - 1;
    char *from, *to;
    weft_req *req;
    weft_status st = WEFT_NEW0(b->arena, (int64_t)bulk, "bench buffers", &from);
    if (st >= 0) st = WEFT_NEW0(b->arena, (int64_t)bulk, "bench buffers", &to);
    if (st >= 0) st = WEFT_NEW0(b->arena, 2 * (peers + 1), "bench requests", &req);
    WEFT_TRY(weft_agree(b->comm, st));
    WEFT_TRY(measure_memory(b, from, to, p));
    if (peers == 0) return WEFT_OK; /* messages are assumed */
    WEFT_TRY(weft_rates_latency(b, &p->latency_seconds));
    WEFT_TRY(measure_link(b, 1, bulk, from, to, req, &p->link_bytes_per_second));
    WEFT_TRY(measure_link(b, peers, bulk / (size_t)peers, from, to, req, &p->rank_bytes_per_second));
    p->in_place_share = weft_world_peer_memory(weft_comm_world(b->comm)); /* of all blocks, or of none */
    return weft_rates_unhidden(b, bulk / 4, from, to, req, &p->unhidden_share);
}

/* ---- all of it ---------------------------------------------------------------------------------------------- */

/* What this rank may hold, when the ranks of its machine share what is free. */
static double share_of_memory(const weft_world *world)
{
    int cpus, sharers;
    size_t room = weft_machine_room();
    weft_world_cpus(world, &cpus, &sharers);
    return room == SIZE_MAX ? 0 : (double)room / sharers;
}

/* Of a rate where 0 says that the work is hidden, and anything else is slower. */
static weft_status worst_hidden(weft_rates *b, double *rate)
{
    if (*rate == 0) *rate = INFINITY;
    WEFT_TRY(weft_all_reduce(b->comm, rate, 1, WEFT_F64, WEFT_MIN));
    if (isinf(*rate)) *rate = 0;
    return WEFT_OK;
}

/* Keys that a kernel computes are the same ones on every rank: what differs is noise. */
static weft_status mean_of_all(weft_rates *b, double *keys)
{
    WEFT_TRY(weft_all_reduce(b->comm, keys, 1, WEFT_F64, WEFT_SUM));
    *keys /= weft_comm_size(b->comm);
    return WEFT_OK;
}

/* Ranks wait for the slowest: rates are the least of all ranks, times the largest. Latency is the same on all. */
static weft_status worst_of_all(weft_rates *b, weft_profile *p)
{
    double *const least[] = {&p->link_bytes_per_second, &p->rank_bytes_per_second, &p->memory_bytes_per_second,
                             &p->element_bytes_per_second, &p->memory_bytes};
    double *const most[] = {&p->backward_factor, &p->product_seconds, &p->attention_seconds, &p->unhidden_share};
    for (size_t i = 0; i < sizeof least / sizeof *least; i++)
        WEFT_TRY(weft_all_reduce(b->comm, least[i], 1, WEFT_F64, WEFT_MIN));
    for (size_t i = 0; i < sizeof most / sizeof *most; i++)
        WEFT_TRY(weft_all_reduce(b->comm, most[i], 1, WEFT_F64, WEFT_MAX));
    WEFT_TRY(worst_hidden(b, &p->product_bytes_per_second));
    WEFT_TRY(mean_of_all(b, &p->attention_row_keys));
    WEFT_TRY(mean_of_all(b, &p->attention_edge_keys));
    WEFT_TRY(weft_all_reduce(b->comm, p->flops_per_second, WEFT_PREC_COUNT, WEFT_F64, WEFT_MIN));
    WEFT_TRY(weft_all_reduce(b->comm, p->attention_pair_seconds, WEFT_PREC_COUNT, WEFT_F64, WEFT_MAX));
    return weft_all_reduce(b->comm, p->product_flops_per_second, WEFT_PREC_COUNT, WEFT_F64, WEFT_MIN);
}

/* One kind of link was there to be measured: ranks on all sides of it count as one node. */
static void one_node(weft_profile *p)
{
    p->node_ranks = 0;
    p->node_latency_seconds = p->latency_seconds;
    p->node_bytes_per_second = fmin(p->rank_bytes_per_second, p->link_bytes_per_second);
}

/* One rank has nobody to send to: a plain machine's messages stand in the profile, which is not whole without. */
static void assume_messages(weft_profile *p)
{
    const weft_profile plain = weft_profile_default();
    p->latency_seconds = plain.latency_seconds;
    p->link_bytes_per_second = plain.link_bytes_per_second;
    p->rank_bytes_per_second = plain.rank_bytes_per_second;
}

static weft_status measure(weft_rates *b, weft_profile *p)
{
    *p = (weft_profile){.name = "this machine", .collective_factor = 1,
                        .memory_bytes = share_of_memory(weft_comm_world(b->comm))};
    assume_messages(p);
    WEFT_TRY(weft_rates_kernels(b, p));
    WEFT_TRY(measure_exchange(b, p));
    WEFT_TRY(worst_of_all(b, p));
    p->host_bytes_per_second = p->memory_bytes_per_second;
    one_node(p);
    return WEFT_OK;
}

/* ---- what is printed ---------------------------------------------------------------------------------------- */

static const weft_column columns[] = {
    {"rate", NULL, NULL, WEFT_CELL_TEXT, WEFT_FOR_PEOPLE, -26, 0, 0, 0, false},
    {"value", NULL, NULL, WEFT_CELL_TEXT, WEFT_FOR_PEOPLE, 10, 0, 0, 0, false},
    {"unit", NULL, NULL, WEFT_CELL_TEXT, WEFT_FOR_PEOPLE, -7, 0, 0, 0, false},
    {"", NULL, "key", WEFT_CELL_TEXT, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
    {"", NULL, "precision", WEFT_CELL_TEXT, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
    {"", NULL, "value", WEFT_CELL_REAL, WEFT_FOR_PROGRAMS, 0, 0, 0, 9, false},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* prec: NULL where the rate has none. */
static void print_rate(const weft_table *t, const char *what, const char *key, const char *prec, double x,
                       double scale, const char *unit)
{
    char name[40], value[24];
    snprintf(name, sizeof name, "%s%s%s", what, prec ? ", " : "", prec ? prec : "");
    snprintf(value, sizeof value, "%.2f", x * scale);
    weft_table_row(t, (const weft_cell[COLUMNS]){{.text = name},
                                                 {.text = value},
                                                 {.text = unit},
                                                 {.text = key},
                                                 {.text = prec ? prec : ""},
                                                 {.real = x}});
}

static void describe(const weft_rates *b, char *text, size_t n)
{
    const weft_world *world = weft_comm_world(b->comm);
    snprintf(text, n, "%d rank%s (%s), %d thread%s each, kernels %s", weft_world_size(world),
             weft_world_size(world) > 1 ? "s" : "", weft_world_transport(world), b->ctx->threads,
             b->ctx->threads > 1 ? "s" : "", weft_isa_name(b->kern.isa));
}

static bool alone(const weft_rates *b) { return weft_comm_size(b->comm) == 1; }

static void print_profile(const weft_cli *cli, const weft_rates *b, const weft_profile *p)
{
    char heading[160];
    const weft_table t = weft_table_of(cli->options.bench_format, columns, COLUMNS);
    describe(b, heading, sizeof heading);
    if (weft_table_is_text(&t)) weft_say("%s; all at work at once, the slowest counts\n\n", heading);
    else weft_table_head(&t);
    for (int i = 0; i < WEFT_PREC_COUNT; i++)
        print_rate(&t, "attention, forward", "flops_per_second", weft_prec_name((weft_prec)i), p->flops_per_second[i],
                   1e-9, "GFLOP/s");
    for (int i = 0; i < WEFT_PREC_COUNT; i++)
        print_rate(&t, "a pair of a head besides", "attention_pair_seconds", weft_prec_name((weft_prec)i),
                   p->attention_pair_seconds[i], 1e9, "ns");
    print_rate(&t, "a row of a block, in keys", "attention_row_keys", NULL, p->attention_row_keys, 1, "");
    print_rate(&t, "keys in vain at an edge", "attention_edge_keys", NULL, p->attention_edge_keys, 1, "");
    print_rate(&t, "backward / forward", "backward_factor", NULL, p->backward_factor, 1, "");
    for (int i = 0; i < WEFT_PREC_COUNT; i++)
        print_rate(&t, "products", "product_flops_per_second", weft_prec_name((weft_prec)i),
                   p->product_flops_per_second[i], 1e-9, "GFLOP/s");
    print_rate(&t, "operands besides", "product_bytes_per_second", NULL, p->product_bytes_per_second, 1e-9, "GB/s");
    print_rate(&t, "a call of attention", "attention_seconds", NULL, p->attention_seconds, 1e6, "us");
    print_rate(&t, "a product", "product_seconds", NULL, p->product_seconds, 1e6, "us");
    print_rate(&t, "norms, gates, AdamW", "element_bytes_per_second", NULL, p->element_bytes_per_second, 1e-9, "GB/s");
    print_rate(&t, "copy in memory", "memory_bytes_per_second", NULL, p->memory_bytes_per_second, 1e-9, "GB/s");
    if (p->memory_bytes > 0) print_rate(&t, "memory of a rank", "memory_bytes", NULL, p->memory_bytes, 1e-9, "GB");
    if (alone(b)) return; /* what is assumed is not printed as measured */
    print_rate(&t, "latency of a message", "latency_seconds", NULL, p->latency_seconds, 1e6, "us");
    print_rate(&t, "to one rank", "link_bytes_per_second", NULL, p->link_bytes_per_second, 1e-9, "GB/s");
    print_rate(&t, "not hidden by computing", "unhidden_share", NULL, p->unhidden_share, 100, "%");
    print_rate(&t, "blocks read where they lie", "in_place_share", NULL, p->in_place_share, 100, "%");
    print_rate(&t, "to all ranks at once", "rank_bytes_per_second", NULL, p->rank_bytes_per_second, 1e-9, "GB/s");
}

static weft_status write_profile(const weft_cli *cli, const weft_rates *b, const weft_profile *p)
{
    static const char *const measured[] = {
        "memory_bytes_per_second", "backward_factor",    "flops_per_second", "attention_pair_seconds",
        "attention_edge_keys",     "attention_row_keys", "product_seconds",  "product_flops_per_second",
        "product_bytes_per_second", "attention_seconds", "element_bytes_per_second"};
    static const char *const messages[] = {"latency_seconds",       "link_bytes_per_second", "rank_bytes_per_second",
                                           "node_latency_seconds",  "node_bytes_per_second", "unhidden_share",
                                           "in_place_share"};
    enum {
        MEASURED = sizeof measured / sizeof *measured,
        MESSAGES = sizeof messages / sizeof *messages,
        SAID = 7,
        NOTES = SAID + MEASURED + MESSAGES
    };
    char heading[160];
    describe(b, heading, sizeof heading);
    weft_profile_note note[NOTES] = {
        {"name", heading},
        {"node_ranks", "all of the measured ranks count as one node"},
        {"memory_bytes", "what was free, shared by the ranks of the machine"},
        {"host_bytes_per_second", "as memory_bytes_per_second: what is offloaded is copied within the same memory"},
        {"host_bytes", "none beside a rank's own"},
        {"buffer_bytes", "not measured; weft bench comm does"},
        {"collective_factor", "not measured; weft bench comm does"}};
    for (int i = 0; i < MEASURED; i++)
        note[SAID + i] = (weft_profile_note){measured[i], "measured by weft bench profile"};
    for (int i = 0; i < MESSAGES; i++)
        note[SAID + MEASURED + i] = (weft_profile_note){
            messages[i], alone(b) ? "assumed, a plain machine's: one rank has nobody to send to; measure with --cp 2"
                                  : "measured by weft bench profile"};
    WEFT_TRY(weft_profile_write_noted(p, cli->options.out, NULL, note, NOTES));
    if (!strcmp(cli->options.bench_format, "text")) weft_say("\nwritten to %s\n", cli->options.out);
    return WEFT_OK;
}

/* ---- the bench ---------------------------------------------------------------------------------------------- */

static weft_status run(weft_rates *b, const weft_cli *cli, weft_profile *p)
{
    weft_status st;
    WEFT_TRY_OR(st, weft_agree(b->comm, weft_arena_create(&b->arena, &b->ctx->mem, "bench", NULL)), done);
    WEFT_TRY_OR(st, weft_agree(b->comm, weft_gemm_create(&b->gemm, b->ctx, (int)cli->run.isa)), free_arena);
    st = measure(b, p);
    weft_gemm_destroy(b->gemm);
free_arena:
    weft_arena_destroy(b->arena);
done:
    return st;
}

static weft_status body(weft_cli *cli, weft_world *world)
{
    const int64_t given = cli->options.bench_repeats;
    weft_rates b = {.ctx = weft_world_ctx(world), .repeats = given ? given : REPEATS};
    weft_profile p;
    weft_mesh mesh;
    WEFT_TRY(weft_kern_init(&b.kern, cli->run.isa));
    WEFT_TRY(weft_mesh_create(&mesh, world, cli->run.mesh));
    b.comm = mesh.cp;
    weft_status st = run(&b, cli, &p);
    if (st >= 0 && weft_is_root(world)) {
        print_profile(cli, &b, &p);
        if (cli->options.out) st = write_profile(cli, &b, &p);
    }
    weft_mesh_destroy(&mesh);
    return st;
}

static weft_status check(weft_cli *cli)
{
    return cli->options.out ? weft_writer_check(cli->options.out) : WEFT_OK;
}

/* It measures the machine, not a way to cut. */
static const char *const uses[] = {"parallel.cp", "parallel.peer_memory", "run.isa", "run.threads", "run.timeout",
                                   "run.mpi_progress", "out", "bench.format", "bench.repeats", NULL};

const weft_bench weft_bench_profile = {"profile", 2, false, uses, check, body};
