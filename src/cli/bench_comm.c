/* bench_comm.c — `weft bench comm`: what messages between the ranks of a run reach, by their size and by their way,
 * beside what copies in memory reach in the same run, which is the limit where ranks share a machine. */
#include "cli/bench.h"
#include "cli/comm_ways.h"
#include "cli/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIZES_MAX = 24, REPEATS = 5 };
static const size_t size_min = 64;
static const int64_t size_max = (int64_t)1 << 36;
static const char default_sizes[] = "64K,256K,1M,4M,16M,64M";

typedef struct bench {
    weft_ways w;
    int sizes, left_out; /* left_out: of the usual ones, those that there is no memory for */
    size_t size[SIZES_MAX];
    double latency;
} bench;

/* ---- lines ----------------------------------------------------------------------------------------------------- */

static const weft_column columns[] = {
    {"path", NULL, "path", WEFT_CELL_TEXT, WEFT_FOR_ALL, -7, 0, 0, 0, false},
    {"exchange", NULL, "exchange", WEFT_CELL_TEXT, WEFT_FOR_ALL, -15, 0, 0, 0, false},
    {"message", NULL, NULL, WEFT_CELL_TEXT, WEFT_FOR_PEOPLE, 10, 0, 0, 0, false},
    {"", NULL, "bytes", WEFT_CELL_COUNT, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
    {"", NULL, "ranks", WEFT_CELL_COUNT, WEFT_FOR_PROGRAMS, 0, 0, 0, 0, false},
    {"us", NULL, "seconds", WEFT_CELL_REAL, WEFT_FOR_ALL, 11, 1e6, 1, 9, false},
    {"spread", " %", "spread", WEFT_CELL_REAL, WEFT_FOR_ALL, 6, 1e2, 1, 4, false},
    {"GB/s", NULL, "bytes_per_second", WEFT_CELL_REAL, WEFT_FOR_ALL, 8, 1e-9, 3, 6, false},
    {"exposed", " %", "exposed", WEFT_CELL_REAL, WEFT_FOR_ALL, 7, 1e2, 1, 4, false},
    {"of copies", " %", "share_of_copies", WEFT_CELL_REAL, WEFT_FOR_ALL, 9, 1e2, 1, 4, false},
    {"copies", NULL, "copies", WEFT_CELL_REAL, WEFT_FOR_PROGRAMS, 0, 0, 0, 3, false},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void print_line(const weft_table *t, const bench *b, weft_way way, size_t bytes, const weft_way_figures *f,
                       double copy_rate)
{
    char size[32];
    weft_table_row(t, (const weft_cell[COLUMNS]){
                          {.text = weft_way_path(way)},
                          {.text = weft_way_name(way)},
                          {.text = weft_format_bytes((double)bytes, size, sizeof size)},
                          {.count = (int64_t)bytes},
                          {.count = b->w.P},
                          {.real = f->seconds},
                          {.real = f->spread},
                          {.real = f->rate},
                          {.real = way == WEFT_WAY_COPY ? NAN : f->exposed},
                          {.real = way == WEFT_WAY_COPY ? NAN : f->rate / copy_rate},
                          {.real = f->copies}});
}

static void print_heading(const bench *b)
{
    char transport[160];
    int cpus, sharers;
    weft_world *world = weft_comm_world(b->w.r.comm);
    weft_world_describe(world, transport, sizeof transport);
    weft_world_cpus(world, &cpus, &sharers);
    weft_say("%d ranks (%s)%s\nlatency  %.2f us: 8 bytes between ranks 0 and 1, half of there and back\n", b->w.P,
             transport, sharers > cpus ? ", more than processors: times are also those of waiting for one" : "",
             1e6 * b->latency);
    if (b->left_out) weft_say("memory   has no room for the %d largest of the usual sizes\n", b->left_out);
    weft_say("\n");
}

/* ---- what goes into a profile ------------------------------------------------------------------------------------
 *
 * Rates of the largest message: small ones, sent again and again, stay in the caches, and those of a model do not. */

typedef struct found {
    double rate[WEFT_WAYS];
    double copies; /* by the transport, of a byte that is sent */
    double pieces; /* the best rate in pieces, and */
    size_t piece;  /* of how many bytes */
} found;

static void note(found *x, const bench *b, weft_way way, size_t bytes, const weft_way_figures *f)
{
    if (bytes == b->w.largest) x->rate[way] = f->rate;
    if (way == WEFT_WAY_NEXT) x->copies = f->copies;
    if (way == WEFT_WAY_PIECES && f->rate > x->pieces) x->pieces = f->rate, x->piece = bytes;
}

/* Pieces are worth something where they beat whole messages by more than the noise. */
static size_t best_piece(const found *x)
{
    static const double noise = 1.05;
    static const size_t least = 64 << 10; /* of --cp-aggregation-buffer-size */
    return x->piece >= least && x->pieces > noise * x->rate[WEFT_WAY_PIECES] ? x->piece : 0;
}

static double slowest_collective(const found *x)
{
    return fmin(x->rate[WEFT_WAY_GATHER], fmin(x->rate[WEFT_WAY_SCATTER], x->rate[WEFT_WAY_DEAL]));
}

/* The share of what a prediction takes for the links of a group: inside a node those between two ranks, out of it a
 * rank's port. Faster than they are measured is noise. */
static double collective_factor(const weft_profile *p, int P, double rate)
{
    const double port = fmin(p->rank_bytes_per_second, p->link_bytes_per_second * (P - 1));
    return fmax(fmin(rate / (p->node_ranks > 0 ? port : p->node_bytes_per_second), 1), 1e-3);
}

static void print_found(const bench *b, const found *x)
{
    char piece[32], largest[32];
    const size_t bytes = best_piece(x);
    const double memory = x->rate[WEFT_WAY_COPY];
    weft_say("\nof %s  ring %.3f GB/s, direct %.3f, the slowest collective %.3f; fastest in %s%s\n",
             weft_format_bytes((double)b->w.largest, largest, sizeof largest), x->rate[WEFT_WAY_NEXT] / 1e9,
             x->rate[WEFT_WAY_ALL] / 1e9, slowest_collective(x) / 1e9, bytes ? "pieces of " : "one piece",
             bytes ? weft_format_bytes((double)bytes, piece, sizeof piece) : "");
    if (x->copies > 0.01)
        weft_say("limit  copies in memory reach %.3f GB/s with all ranks at once, and a byte that is sent is copied "
                 "%.1f times: %.3f GB/s\n", memory / 1e9, x->copies, memory / x->copies / 1e9);
    else
        weft_say("limit  copies in memory reach %.3f GB/s with all ranks at once; the transport makes none of its "
                 "own\n", memory / 1e9);
}

static weft_status write_profile(const weft_cli *cli, const bench *b, const found *x)
{
    enum { NOTES = 7 };
    char how[160];
    weft_profile p = cli->run.profile;
    const bool nodes = p.node_ranks > 0; /* then these ranks say nothing of what is inside a node */
    p.latency_seconds = b->latency;
    p.link_bytes_per_second = x->rate[WEFT_WAY_NEXT];
    p.rank_bytes_per_second = x->rate[WEFT_WAY_ALL];
    p.buffer_bytes = best_piece(x);
    if (!nodes) p.node_latency_seconds = p.latency_seconds;
    if (!nodes) p.node_bytes_per_second = fmin(p.link_bytes_per_second, p.rank_bytes_per_second);
    p.collective_factor = collective_factor(&p, b->w.P, slowest_collective(x));
    snprintf(how, sizeof how, "measured by weft bench comm: %d ranks (%s)", b->w.P,
             weft_world_transport(weft_comm_world(b->w.r.comm)));
    const weft_profile_note notes[NOTES] = {
        {"latency_seconds", how}, {"link_bytes_per_second", how}, {"rank_bytes_per_second", how},
        {"buffer_bytes", how}, {"collective_factor", how}, {"node_latency_seconds", how},
        {"node_bytes_per_second", how}};
    WEFT_TRY(weft_profile_write_noted(&p, cli->options.out, cli->options.profile, notes, nodes ? NOTES - 2 : NOTES));
    if (!strcmp(cli->options.bench_format, "text")) weft_say("\nwritten to %s\n", cli->options.out);
    return WEFT_OK;
}

/* ---- the bench ------------------------------------------------------------------------------------------------ */

static weft_status add_size(const char *list, const char *word, size_t *size, int *n)
{
    int64_t bytes;
    if (weft_parse_size(word, &bytes) < 0 || bytes < (int64_t)size_min || bytes > size_max || bytes % 8)
        return weft_fail(WEFT_ERR_REFUSED, "--sizes %s: \"%s\" is no size of a message; give multiples of 8 from %zu "
                         "to 64G, as in 64K,1M", list, word, size_min);
    if (*n == SIZES_MAX) return weft_fail(WEFT_ERR_REFUSED, "--sizes %s: at most %d sizes", list, SIZES_MAX);
    size[(*n)++] = (size_t)bytes;
    return WEFT_OK;
}

static weft_status read_sizes(const weft_cli *cli, size_t size[SIZES_MAX], int *n)
{
    char copy[512], *next = copy;
    const char *list = cli->options.bench_sizes ? cli->options.bench_sizes : default_sizes;
    if (strlen(list) >= sizeof copy) return weft_fail(WEFT_ERR_REFUSED, "--sizes %.40s...: that is too long", list);
    strcpy(copy, list);
    *n = 0;
    for (char *word; (word = strsep(&next, ",")) != NULL;) WEFT_TRY(add_size(list, word, size, n));
    return WEFT_OK;
}

static size_t largest_of(const size_t *size, int n)
{
    size_t most = 0;
    for (int i = 0; i < n; i++) most = weft_max_size(most, size[i]);
    return most;
}

/* Two buffers of P messages on every rank of this machine. */
static bool fits(int P, int sharers, size_t bytes)
{
    return 2.0 * P * (double)bytes * sharers < 0.5 * (double)weft_machine_room();
}

/* Of the sizes that nobody asked for, those that there is memory for on all machines. */
static weft_status settle_sizes(bench *b, const weft_cli *cli)
{
    int cpus, sharers, fit = 0;
    double least;
    weft_world_cpus(weft_comm_world(b->w.r.comm), &cpus, &sharers);
    while (fit < b->sizes && fits(b->w.P, sharers, b->size[fit])) fit++;
    if (cli->options.bench_sizes && !fits(b->w.P, sharers, largest_of(b->size, b->sizes))) fit = 0;
    else if (cli->options.bench_sizes) fit = b->sizes;
    least = fit;
    WEFT_TRY(weft_all_reduce(b->w.r.comm, &least, 1, WEFT_F64, WEFT_MIN));
    if (least == 0)
        return weft_fail(WEFT_ERR_REFUSED, "bench comm: there is no memory for %d messages of the largest size in each "
                         "of two buffers on every rank; give smaller ones (--sizes)", b->w.P);
    b->left_out = b->sizes - (int)least;
    b->sizes = (int)least;
    b->w.largest = largest_of(b->size, b->sizes);
    return WEFT_OK;
}

static weft_status sweep(bench *b, const weft_cli *cli, found *x)
{
    const weft_table t = weft_table_of(cli->options.bench_format, columns, COLUMNS);
    const bool root = weft_is_root(weft_comm_world(b->w.r.comm));
    double copy_rate[SIZES_MAX];
    if (root && weft_table_is_text(&t)) print_heading(b);
    if (root) weft_table_head(&t);
    for (weft_way way = 0; way < WEFT_WAYS; way++)
        for (int i = 0; i < b->sizes; i++) {
            weft_way_figures f;
            if (!weft_way_measured(&b->w, way, b->size[i])) continue;
            WEFT_TRY(weft_way_measure(&b->w, way, b->size[i], &f));
            if (way == WEFT_WAY_COPY) copy_rate[i] = f.rate;
            note(x, b, way, b->size[i], &f);
            if (root) print_line(&t, b, way, b->size[i], &f, copy_rate[i]);
        }
    if (root && weft_table_is_text(&t)) print_found(b, x);
    return WEFT_OK;
}

static weft_status run(bench *b, const weft_cli *cli)
{
    found x = {0};
    WEFT_TRY(settle_sizes(b, cli));
    WEFT_TRY(weft_agree(b->w.r.comm, weft_arena_create(&b->w.r.arena, &b->w.r.ctx->mem, "bench", NULL)));
    weft_status st = weft_agree(b->w.r.comm, weft_ways_buffers(&b->w));
    if (st >= 0) st = weft_rates_latency(&b->w.r, &b->latency);
    if (st >= 0) st = sweep(b, cli, &x);
    if (st >= 0 && cli->options.out && weft_is_root(weft_comm_world(b->w.r.comm))) st = write_profile(cli, b, &x);
    weft_arena_destroy(b->w.r.arena);
    return st;
}

static weft_status body(weft_cli *cli, weft_world *world)
{
    const int64_t given = cli->options.bench_repeats;
    bench b = {.w = {.r = {.ctx = weft_world_ctx(world)}, .repeats = given ? (int)given : REPEATS}};
    weft_mesh mesh;
    b.w.r.repeats = b.w.repeats;
    WEFT_TRY(read_sizes(cli, b.size, &b.sizes));
    WEFT_TRY(weft_mesh_create(&mesh, world, cli->run.mesh));
    b.w.r.comm = mesh.cp;
    b.w.P = weft_comm_size(mesh.cp);
    weft_status st = run(&b, cli);
    weft_mesh_destroy(&mesh);
    return st;
}

static weft_status check(weft_cli *cli)
{
    size_t size[SIZES_MAX];
    int n;
    const weft_run_options *o = &cli->options;
    if (cli->run.mesh.cp < 2)
        return weft_fail(WEFT_ERR_REFUSED, "bench comm --cp %d: messages need two ranks; give --cp 2 or more",
                         cli->run.mesh.cp);
    if (!o->profile != !o->out)
        return weft_fail(WEFT_ERR_REFUSED, o->out ? "bench comm --out %s: into which profile do the rates go? Give "
                         "--profile NAME or FILE, too (weft bench profile --out FILE makes one)"
                         : "bench comm --profile %s could not act: give --out FILE, too, for the profile with what is "
                         "measured", o->out ? o->out : o->profile);
    WEFT_TRY(read_sizes(cli, size, &n));
    return o->out ? weft_writer_check(o->out) : WEFT_OK;
}

static const char *const uses[] = {"parallel.cp", "parallel.profile", "parallel.peer_memory", "run.timeout",
                                   "run.threads", "run.mpi_progress", "out", "bench.format", "bench.repeats",
                                   "bench.sizes", NULL};

const weft_bench weft_bench_comm = {"comm", 2, false, uses, check, body};
