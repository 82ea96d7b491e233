/* mesh.c — coordinates of a rank and the groups along every dimension.
 *
 * Every rank numbers every group, those of other ranks too, in one order (dimension by dimension): group numbers and
 * ring neighbours are then the same everywhere (field report G24). */
#include "mesh/mesh.h"

#include <string.h>

enum { TP = 1, CP = 2, DP = 4, PP = 8 }; /* bit masks: the dimensions along which a group extends */

weft_mesh_shape weft_mesh_coords(weft_mesh_shape n, int rank)
{
    return (weft_mesh_shape){.tp = rank % n.tp,
                             .cp = rank / n.tp % n.cp,
                             .dp = rank / n.tp / n.cp % n.dp,
                             .pp = rank / n.tp / n.cp / n.dp};
}

int weft_mesh_rank(weft_mesh_shape n, weft_mesh_shape at)
{
    return at.tp + n.tp * (at.cp + n.cp * (at.dp + n.dp * at.pp));
}

static weft_status check_shape(weft_mesh_shape n, int world)
{
    int64_t product = 1;
    const int sizes[] = {n.tp, n.cp, n.dp, n.pp};
    static const char *const names[] = {"tp", "cp", "dp", "pp"};
    for (int i = 0; i < 4; i++) {
        if (sizes[i] < 1) return weft_fail(WEFT_ERR_REFUSED, "mesh: %s = %d; give 1 or more", names[i], sizes[i]);
        if (!weft_mul_i64(product, sizes[i], &product)) product = INT64_MAX;
    }
    if (n.tp > 1 || n.pp > 1)
        return weft_fail(WEFT_ERR_REFUSED, "mesh: tp = %d, pp = %d: tensor and pipeline parallelism are not built; "
                         "give tp = 1, pp = 1 and use cp and dp", n.tp, n.pp);
    if (product == world) return WEFT_OK;
    if (world % n.cp == 0)
        return weft_fail(WEFT_ERR_REFUSED, "mesh: tp %d x cp %d x dp %d x pp %d needs %lld ranks, the world has %d; "
                         "with cp = %d give dp = %d", n.tp, n.cp, n.dp, n.pp, (long long)product, world, n.cp,
                         world / n.cp);
    return weft_fail(WEFT_ERR_REFUSED, "mesh: tp %d x cp %d x dp %d x pp %d needs %lld ranks, the world has %d; "
                     "give cp = %d and dp = 1, or another cp that divides %d", n.tp, n.cp, n.dp, n.pp,
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
    return weft_mesh_rank(n, at);
}

/* `group_of` has room for all ranks. */
static weft_status create_all(weft_mesh *m, int *group_of)
{
    const struct { weft_comm **comm; unsigned along; const char *name; } rows[] = {
        {&m->all, TP | CP | DP | PP, "all"}, {&m->cp, CP, "cp"}, {&m->dp, DP, "dp"},
        {&m->dp_cp, DP | CP, "dp_cp"},       {&m->tp, TP, "tp"}, {&m->pp, PP, "pp"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int r = 0; r < weft_world_size(m->world); r++) group_of[r] = group_number(m->size, r, rows[i].along);
        WEFT_TRY(weft_comm_split(rows[i].comm, m->world, group_of, rows[i].name));
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
    weft_comm *comms[] = {mesh->pp, mesh->tp, mesh->dp_cp, mesh->dp, mesh->cp, mesh->all};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++) weft_comm_destroy(comms[i]);
    memset(mesh, 0, sizeof *mesh);
}
