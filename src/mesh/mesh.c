/* mesh.c — coordinates of a rank and the groups along every dimension.
 *
 * Every rank numbers every group, those of other ranks too, in one order (dimension by dimension): group numbers and
 * ring neighbours are then the same everywhere (field report G24). */
#include "mesh/mesh_impl.h"

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

static weft_status refuse_order(const char *text)
{
    char buf[WEFT_MESH_ORDERS][3 * DIMS];
    const char *names[WEFT_MESH_ORDERS];
    for (int i = 0; i < WEFT_MESH_ORDERS; i++) names[i] = weft_mesh_order_text(i, buf[i]);
    const char *near = weft_suggest(text, names, WEFT_MESH_ORDERS);
    return weft_fail(WEFT_ERR_REFUSED, "rank order \"%s\": tp, cp, dp and pp once each are needed, the fastest first; "
                     "%s%s%s", text, near ? "did you mean \"" : "tp-cp-dp-pp has tensor-parallel ranks side by side",
                     near ? near : "", near ? "\"?" : "");
}

weft_status weft_mesh_order_parse(const char *text, int *order)
{
    char buf[3 * DIMS];
    for (int i = 0; i < WEFT_MESH_ORDERS; i++)
        if (!strcmp(text, weft_mesh_order_text(i, buf))) {
            *order = i;
            return WEFT_OK;
        }
    return refuse_order(text);
}

void weft_mesh_describe(weft_mesh_shape n, weft_text *out)
{
    char order[3 * DIMS];
    for (int i = 0; i < DIMS; i++) weft_text_add(out, "%s%s %d", i ? " x " : "", dim_names[i], *dim_of(&n, i));
    if (n.order) weft_text_add(out, " in the order %s", weft_mesh_order_text(n.order, order));
}

int weft_mesh_ranks(weft_mesh_shape n) { return n.tp * n.cp * n.dp * n.pp; }

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

/* ---- groups ------------------------------------------------------------------------------------------------- */

typedef struct kind { /* a kind of groups */
    const char *name, *text;
    unsigned along;
} kind;
static const kind kinds[WEFT_MESH_KINDS] = {
    [WEFT_MESH_ALL] = {"all", "every rank", TP | CP | DP | PP},
    [WEFT_MESH_CP] = {"cp", "one sequence is cut over them", CP},
    [WEFT_MESH_DP] = {"dp", "the same part of other sequences", DP},
    [WEFT_MESH_DP_CP] = {"dp_cp", "copies of the same weights", DP | CP},
    [WEFT_MESH_TP] = {"tp", "parts of the same layers", TP},
    [WEFT_MESH_PP] = {"pp", "stages of one pipeline", PP},
    [WEFT_MESH_TP_PP] = {"tp_pp", "parts of one copy of the model", TP | PP},
    [WEFT_MESH_ENDS] = {"ends", "first and last stage, which share a tied embedding", 0},
};

const char *weft_mesh_kind_name(weft_mesh_kind k) { return kinds[k].name; }
const char *weft_mesh_kind_text(weft_mesh_kind k) { return kinds[k].text; }

/* A rank's coordinates outside of the group, mixed as in a rank. */
int weft_mesh_group(weft_mesh_shape n, weft_mesh_kind k, int rank)
{
    weft_mesh_shape at = weft_mesh_coords(n, rank);
    unsigned along = kinds[k].along;
    if (k == WEFT_MESH_ENDS) { /* the last stage counts as the first */
        if (at.pp == n.pp - 1) at.pp = 0;
        return weft_mesh_rank(n, at);
    }
    if (WEFT_PLANTED(groups_across) && along == CP) along = TP;
    if (along & TP) at.tp = 0, n.tp = 1;
    if (along & CP) at.cp = 0, n.cp = 1;
    if (along & DP) at.dp = 0, n.dp = 1;
    if (along & PP) at.pp = 0, n.pp = 1;
    return weft_mesh_rank(n, at); /* n keeps its order */
}

/* `group_of` has room for all ranks. */
static weft_status create_all(weft_mesh *m, int *group_of)
{
    weft_comm **const to[WEFT_MESH_KINDS] = {
        [WEFT_MESH_ALL] = &m->all, [WEFT_MESH_CP] = &m->cp, [WEFT_MESH_DP] = &m->dp, [WEFT_MESH_DP_CP] = &m->dp_cp,
        [WEFT_MESH_TP] = &m->tp,   [WEFT_MESH_PP] = &m->pp, [WEFT_MESH_TP_PP] = &m->tp_pp, [WEFT_MESH_ENDS] = &m->ends};
    const int world = weft_world_size(m->world);
    for (int k = 0; k < WEFT_MESH_KINDS; k++) {
        if (k == WEFT_MESH_ENDS && m->size.pp == 1) continue;
        for (int r = 0; r < world; r++) group_of[r] = weft_mesh_group(m->size, (weft_mesh_kind)k, r);
        WEFT_TRY(weft_comm_split(to[k], m->world, group_of, kinds[k].name));
    }
    if (m->ends && weft_comm_size(m->ends) == 1) { /* a stage between */
        weft_comm_destroy(m->ends);
        m->ends = NULL;
    }
    return WEFT_OK;
}

/* ---- the mesh ------------------------------------------------------------------------------------------------- */

weft_status weft_mesh_create(weft_mesh *mesh, weft_world *world, weft_mesh_shape size)
{
    WEFT_TRY(weft__mesh_same(world, size));
    WEFT_TRY(check_shape(size, weft_world_size(world)));
    weft_mesh m = {.size = size, .at = weft_mesh_coords(size, weft_world_rank(world)), .world = world};
    weft_arena *arena;
    int *group_of;
    weft_status st;
    WEFT_TRY(weft_arena_create(&arena, &weft_world_ctx(world)->mem, "mesh", NULL));
    WEFT_TRY_OR(st, WEFT_NEW(arena, weft_world_size(world), "group numbers", &group_of), free_arena);
    WEFT_TRY_OR(st, create_all(&m, group_of), destroy_groups);
    WEFT_TRY_OR(st, weft_mesh_check(&m), destroy_groups);
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
