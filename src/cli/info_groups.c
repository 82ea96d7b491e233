/* info_groups.c — `weft info --groups`: who is in a group with whom, as the ranks of a run would make them. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

/* ---- lists of ranks ------------------------------------------------------------------------------------------- */

/* "[0-3,8-11]": a run of three or more by its ends. */
static void add_members(weft_text *out, const int *rank, int n)
{
    const char *between = "[";
    for (int i = 0; i < n;) {
        int last = i;
        while (last + 1 < n && rank[last + 1] == rank[last] + 1) last++;
        if (last - i < 2) last = i;
        weft_text_add(out, last > i ? "%s%d-%d" : "%s%d", between, rank[i], rank[last]);
        between = ",";
        i = last + 1;
    }
    weft_text_add(out, "]");
}

typedef struct table { /* one kind of groups */
    const char *name, *text;
    int least;        /* groups of fewer ranks are left out */
} table;

typedef struct lists { /* room for a table, and its form */
    int world;
    int *group;       /* [world] number of each rank's group, below `world` */
    int *first;       /* [world + 1] ranks of group g: rank[first[g]] .. rank[first[g + 1] - 1] */
    int *rank;        /* [world] */
    bool jsonl;       /* a line per group, for programs */
} lists;

/* Ranks by group, ascending in each. */
static void sort_ranks(const lists *x)
{
    for (int g = 0; g <= x->world; g++) x->first[g] = 0;
    for (int r = 0; r < x->world; r++) x->first[x->group[r] + 1]++;
    for (int g = 0; g < x->world; g++) x->first[g + 1] += x->first[g];
    for (int r = 0; r < x->world; r++) x->rank[x->first[x->group[r]]++] = r;
    for (int g = x->world; g > 0; g--) x->first[g] = x->first[g - 1]; /* filling has moved each to its end */
    x->first[0] = 0;
}

static void add_heading(weft_text *out, const table *t, const lists *x, int *most)
{
    int groups = 0, least = x->world;
    *most = 0;
    for (int g = 0; g < x->world; g++) {
        int n = x->first[g + 1] - x->first[g];
        if (n == 0 || n < t->least) continue;
        groups++;
        if (n < least) least = n;
        if (n > *most) *most = n;
    }
    weft_text_add(out, "\n%-8s%d group%s of ", t->name, groups, groups > 1 ? "s" : "");
    if (least < *most) weft_text_add(out, "%d to ", least);
    weft_text_add(out, "%d: %s\n", *most, t->text);
}

static void add_line(weft_text *out, const char *kind, int number, const int *rank, int n)
{
    weft_text_add(out, "{\"kind\":\"%s\",\"group\":%d,\"ranks\":[", kind, number);
    for (int i = 0; i < n; i++) weft_text_add(out, i ? ",%d" : "%d", rank[i]);
    weft_text_add(out, "]}\n");
}

/* Groups in the order of their first ranks. */
static void add_table(weft_text *out, const table *t, const lists *x)
{
    int most = 0, number = 0;
    sort_ranks(x);
    if (!x->jsonl) add_heading(out, t, x, &most);
    if (most == 1) return;
    weft_text_add(out, x->jsonl ? "" : "       ");
    for (int r = 0; r < x->world; r++) {
        int g = x->group[r], n = x->first[g + 1] - x->first[g];
        const int *rank = x->rank + x->first[g];
        if (rank[0] != r || n < t->least) continue;
        if (x->jsonl) add_line(out, t->name, number++, rank, n);
        else {
            weft_text_add(out, " ");
            add_members(out, rank, n);
        }
    }
    weft_text_add(out, x->jsonl ? "" : "\n");
}

/* ---- the grid inside cp ----------------------------------------------------------------------------------------- */

/* Ranks per head group of each part of tp: parts choose by their own heads. A part without heads has no attention. */
static weft_status fill_grid(const weft_cli *cli, weft_world *world, int *U, weft_text *plan)
{
    const weft_mesh_shape m = cli->run.mesh;
    weft_layer_attention kind[2];
    int n;
    weft_kern kern;
    weft_comm *comm;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_info_attention(cli, kind, &n));
    WEFT_TRY(weft_kern_init(&kern, cli->run.isa));
    WEFT_TRY(weft_comm_create(&comm, world, (int[]){0}, 1, "grid"));
    for (int t = 0; t < m.tp && st == WEFT_OK; t++) {
        weft_cp_sizes sizes = {.head_ranks = 1};
        const weft_cp_problem part = weft_info_part(kind[0].problem, m.tp, t);
        plan->len = 0;
        if (part.H) st = weft_cp_preview(&kern, comm, &part, &cli->run.cp, m.cp, plan, &sizes);
        U[t] = sizes.head_ranks;
    }
    weft_comm_destroy(comm);
    return st;
}

/* cp = u + U r: a head group has one r, a context group one u. */
static void grid_groups(weft_mesh_shape m, const int *U, bool heads, const lists *x)
{
    for (int r = 0; r < x->world; r++) {
        weft_mesh_shape at = weft_mesh_coords(m, r);
        at.cp = heads ? at.cp - at.cp % U[at.tp] : at.cp % U[at.tp];
        x->group[r] = weft_mesh_rank(m, at);
    }
}

static weft_status add_grid(const weft_cli *cli, weft_world *world, const lists *x, int *U, weft_text *out)
{
    static const table heads = {"heads", "in cp, trade rows for heads; u is a rank's place in it", 1};
    static const table context = {"context", "in cp, exchange keys and values of their heads; r is a rank's place", 1};
    const weft_mesh_shape m = cli->run.mesh;
    int least = m.cp, most = 1;
    weft_text plan = {0};
    weft_status st = fill_grid(cli, world, U, &plan);
    for (int t = 0; t < m.tp && st == WEFT_OK; t++) {
        if (U[t] < least) least = U[t];
        if (U[t] > most) most = U[t];
    }
    if (st == WEFT_OK && plan.data && !x->jsonl)
        weft_text_add(out, "\ninside cp: %s%s\n", plan.data, least < most ? "; other parts of tp by their heads" : "");
    weft_text_free(&plan);
    if (st < 0 || most == 1) return st;
    grid_groups(m, U, true, x);
    add_table(out, &heads, x);
    grid_groups(m, U, false, x);
    add_table(out, &context, x);
    return WEFT_OK;
}

/* ---- all of it -------------------------------------------------------------------------------------------------- */

static void add_kinds(weft_mesh_shape m, const lists *x, weft_text *out)
{
    static const weft_mesh_kind order[] = {WEFT_MESH_TP, WEFT_MESH_CP, WEFT_MESH_DP, WEFT_MESH_PP, WEFT_MESH_DP_CP,
                                           WEFT_MESH_TP_PP, WEFT_MESH_ENDS};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        weft_mesh_kind k = order[i];
        if (k == WEFT_MESH_ENDS && m.pp == 1) continue;
        for (int r = 0; r < x->world; r++) x->group[r] = weft_mesh_group(m, k, r);
        add_table(out, &(table){weft_mesh_kind_name(k), weft_mesh_kind_text(k), k == WEFT_MESH_ENDS ? 2 : 1}, x);
    }
}

static weft_status add_all(const weft_cli *cli, weft_world *world, weft_arena *arena, weft_text *out)
{
    const weft_mesh_shape m = cli->run.mesh;
    lists x = {.world = weft_mesh_ranks(m), .jsonl = !strcmp(cli->options.bench_format, "jsonl")};
    int *U;
    WEFT_TRY(WEFT_NEW(arena, x.world, "groups", &x.group));
    WEFT_TRY(WEFT_NEW(arena, x.world + 1, "groups", &x.first));
    WEFT_TRY(WEFT_NEW(arena, x.world, "groups", &x.rank));
    WEFT_TRY(WEFT_NEW(arena, m.tp, "head ranks", &U));
    if (!x.jsonl) {
        weft_text_add(out, "%d rank%s: ", x.world, x.world > 1 ? "s" : "");
        weft_mesh_describe(m, out);
        weft_text_add(out, "\n");
    }
    add_kinds(m, &x, out);
    return m.cp > 1 ? add_grid(cli, world, &x, U, out) : WEFT_OK;
}

weft_status weft_info_groups(const weft_cli *cli, weft_world *world)
{
    weft_arena *arena;
    weft_text t = {0};
    const char *format = cli->options.bench_format;
    if (strcmp(format, "text") && strcmp(format, "jsonl"))
        return weft_fail(WEFT_ERR_REFUSED, "info --groups --format %s: there is text, or jsonl with a line per group",
                         format);
    WEFT_TRY(weft_arena_create(&arena, &weft_world_ctx(world)->mem, "groups", NULL));
    weft_status st = add_all(cli, world, arena, &t);
    if (st == WEFT_OK && t.failed) st = weft_fail(WEFT_ERR_MEMORY, "no memory for the table of groups");
    if (st == WEFT_OK && *t.data == '{') fputs(t.data, stdout);
    else if (st == WEFT_OK) weft_print_prose(stdout, t.data, 8);
    weft_text_free(&t);
    weft_arena_destroy(arena);
    return st;
}
