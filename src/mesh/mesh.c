/* mesh.c — coordinates of a rank and the groups along every dimension.
 *
 * Every rank numbers every group, those of other ranks too, in one order (dimension by dimension): group numbers and
 * ring neighbours are then the same everywhere (field report G24). */
#include "mesh/mesh.h"

#include <string.h>

enum { TP = 1, CP = 2, DP = 4, PP = 8 }; /* bit masks: the dimensions along which a group extends */
enum { DIMS = 4 };

static const char *const dim_names[DIMS] = {"tp", "cp", "dp", "pp"};

static int *dim_of(weft_mesh_shape *n, int dim)
{
    int *const at[DIMS] = {&n->tp, &n->cp, &n->dp, &n->pp};
    return at[dim];
}

/* dim[0..3] of order number `order`: the permutations of 0..3 in ascending order. */
static void dims_of(int order, int dim[DIMS])
{
    int left[DIMS] = {0, 1, 2, 3}, size = DIMS, block = WEFT_MESH_ORDERS;
    for (int i = 0; i < DIMS; i++, size--) {
        block /= size;
        int pick = order / block;
        order %= block;
        dim[i] = left[pick];
        memmove(left + pick, left + pick + 1, (size_t)(size - 1 - pick) * sizeof *left);
    }
}

const char *weft_mesh_order_text(int order, char *buf)
{
    int dim[DIMS];
    dims_of(order, dim);
    for (int i = 0; i < DIMS; i++) {
        memcpy(buf + 3 * i, dim_names[dim[i]], 2);
        buf[3 * i + 2] = i + 1 < DIMS ? '-' : 0;
    }
    return buf;
}

weft_status weft_mesh_order_parse(const char *text, int *order)
{
    char buf[3 * DIMS];
    for (int i = 0; i < WEFT_MESH_ORDERS; i++)
        if (!strcmp(text, weft_mesh_order_text(i, buf))) {
            *order = i;
            return WEFT_OK;
        }
    return weft_fail(WEFT_ERR_REFUSED, "rank order %s is none: tp, cp, dp and pp once each, the fastest first; "
                     "tp-cp-dp-pp keeps a tensor-parallel group on neighbouring ranks", text);
}

weft_mesh_shape weft_mesh_coords(weft_mesh_shape n, int rank)
{
    weft_mesh_shape at = {0};
    int dim[DIMS];
    dims_of(n.order, dim);
    for (int i = 0; i < DIMS; i++) {
        int size = *dim_of(&n, dim[i]);
        *dim_of(&at, dim[i]) = rank % size;
        rank /= size;
    }
    return at;
}

int weft_mesh_rank(weft_mesh_shape n, weft_mesh_shape at)
{
    int dim[DIMS], rank = 0;
    dims_of(n.order, dim);
    for (int i = DIMS - 1; i >= 0; i--) rank = rank * *dim_of(&n, dim[i]) + *dim_of(&at, dim[i]);
    return rank;
}

static weft_status check_shape(weft_mesh_shape n, int world)
{
    int64_t product = 1;
    for (int i = 0; i < DIMS; i++) {
        int size = *dim_of(&n, i);
        if (size < 1) return weft_fail(WEFT_ERR_REFUSED, "mesh: %s = %d; give 1 or more", dim_names[i], size);
        if (!weft_mul_i64(product, size, &product)) product = INT64_MAX;
    }
    if (product == world) return WEFT_OK;
    int64_t fixed = (int64_t)n.tp * n.cp * n.pp;
    if (n.tp <= world && n.cp <= world && n.pp <= world && fixed <= world && world % fixed == 0)
        return weft_fail(WEFT_ERR_REFUSED, "mesh: tp %d x cp %d x dp %d x pp %d needs %lld ranks, the world has %d; "
                         "with tp = %d, cp = %d, pp = %d give dp = %lld", n.tp, n.cp, n.dp, n.pp, (long long)product,
                         world, n.tp, n.cp, n.pp, (long long)(world / fixed));
    return weft_fail(WEFT_ERR_REFUSED, "mesh: tp %d x cp %d x dp %d x pp %d needs %lld ranks, the world has %d; "
                     "give sizes whose product is %d, such as cp = %d alone", n.tp, n.cp, n.dp, n.pp,
                     (long long)product, world, world, world);
}

/* The number of a rank's group: its coordinates outside `along`, mixed as in a rank. */
static int group_number(weft_mesh_shape n, int rank, unsigned along)
{
    weft_mesh_shape at = weft_mesh_coords(n, rank);
    if (along & TP) at.tp = 0, n.tp = 1;
    if (along & CP) at.cp = 0, n.cp = 1;
    if (along & DP) at.dp = 0, n.dp = 1;
    if (along & PP) at.pp = 0, n.pp = 1;
    return weft_mesh_rank(n, at); /* n keeps its order */
}

/* First and last stage; every stage between is a group of its own, which nobody keeps. */
static int ends_number(weft_mesh_shape n, int rank)
{
    weft_mesh_shape at = weft_mesh_coords(n, rank);
    if (at.pp == n.pp - 1) at.pp = 0;
    return weft_mesh_rank(n, at);
}

/* `group_of` has room for all ranks. */
static weft_status create_all(weft_mesh *m, int *group_of)
{
    const struct { weft_comm **comm; unsigned along; const char *name; } rows[] = {
        {&m->all, TP | CP | DP | PP, "all"}, {&m->cp, CP, "cp"}, {&m->dp, DP, "dp"},
        {&m->dp_cp, DP | CP, "dp_cp"},       {&m->tp, TP, "tp"}, {&m->pp, PP, "pp"},
        {&m->tp_pp, TP | PP, "tp_pp"},
    };
    const int world = weft_world_size(m->world);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int r = 0; r < world; r++) group_of[r] = group_number(m->size, r, rows[i].along);
        WEFT_TRY(weft_comm_split(rows[i].comm, m->world, group_of, rows[i].name));
    }
    if (m->size.pp == 1) return WEFT_OK;
    for (int r = 0; r < world; r++) group_of[r] = ends_number(m->size, r);
    WEFT_TRY(weft_comm_split(&m->ends, m->world, group_of, "ends"));
    if (weft_comm_size(m->ends) == 1) {
        weft_comm_destroy(m->ends);
        m->ends = NULL;
    }
    return WEFT_OK;
}

weft_status weft_mesh_create(weft_mesh *mesh, weft_world *world, weft_mesh_shape size)
{
    WEFT_TRY(check_shape(size, weft_world_size(world)));
    weft_mesh m = {.size = size, .at = weft_mesh_coords(size, weft_world_rank(world)), .world = world};
    weft_arena *arena;
    int *group_of;
    weft_status st;
    WEFT_TRY(weft_arena_create(&arena, &weft_world_ctx(world)->mem, "mesh", NULL));
    WEFT_TRY_OR(st, WEFT_NEW(arena, weft_world_size(world), "group numbers", &group_of), free_arena);
    WEFT_TRY_OR(st, create_all(&m, group_of), destroy_groups);
    weft_arena_destroy(arena);
    *mesh = m;
    return WEFT_OK;
destroy_groups:
    weft_mesh_destroy(&m);
free_arena:
    weft_arena_destroy(arena);
    return st;
}

void weft_mesh_destroy(weft_mesh *mesh)
{
    weft_comm *comms[] = {mesh->ends, mesh->tp_pp, mesh->pp, mesh->tp, mesh->dp_cp, mesh->dp, mesh->cp, mesh->all};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++) weft_comm_destroy(comms[i]);
    memset(mesh, 0, sizeof *mesh);
}
