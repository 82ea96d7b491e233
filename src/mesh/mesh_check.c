/* mesh_check.c — what all ranks must agree on before a mesh is used. A difference found here is one line; found later
 * it is a hang, or sums over ranks that hold something else. */
#include "mesh/mesh_impl.h"

#include <stdio.h>

/* ---- sizes ---------------------------------------------------------------------------------------------------- */

enum { TP, CP, DP, PP, ORDER, FIELDS };
static const char *const field_names[FIELDS] = {"tp", "cp", "dp", "pp", "the rank order"};

static void value_text(int field, int64_t value, char text[24])
{
    if (field == ORDER && value >= 0 && value < WEFT_MESH_ORDERS) weft_mesh_order_text((int)value, text);
    else snprintf(text, 24, "%lld", (long long)value);
}

/* Names a rank with each extreme of what differs. COLLECTIVE */
static weft_status refuse_difference(weft_world *w, int field, int64_t mine, int64_t low, int64_t high)
{
    char text[2][24];
    int64_t who[2] = {mine == low ? weft_world_rank(w) : INT64_MAX, mine == high ? weft_world_rank(w) : INT64_MAX};
    WEFT_TRY(weft_all_reduce(weft_world_all(w), who, 2, WEFT_I64, WEFT_MIN));
    value_text(field, low, text[0]);
    value_text(field, high, text[1]);
    return weft_fail(WEFT_ERR_REFUSED, "mesh: %s is %s on rank %lld and %s on rank %lld; give all ranks the same sizes "
                     "and rank order", field_names[field], text[0], (long long)who[0], text[1], (long long)who[1]);
}

/* Equal everywhere iff min(x) = -min(-x). */
weft_status weft__mesh_same(weft_world *w, weft_mesh_shape n)
{
    const int64_t mine[FIELDS] = {n.tp, n.cp, n.dp, n.pp, n.order};
    int64_t x[2 * FIELDS];
    for (int i = 0; i < FIELDS; i++) x[2 * i] = mine[i], x[2 * i + 1] = -mine[i];
    WEFT_TRY(weft_all_reduce(weft_world_all(w), x, 2 * FIELDS, WEFT_I64, WEFT_MIN));
    for (int i = 0; i < FIELDS; i++)
        if (x[2 * i] != -x[2 * i + 1]) return refuse_difference(w, i, mine[i], x[2 * i], -x[2 * i + 1]);
    return WEFT_OK;
}

/* ---- groups --------------------------------------------------------------------------------------------------- */

typedef struct group { const char *name; weft_comm *comm; int size, at; } group;

static weft_status check_place(const weft_mesh *m, const group *g)
{
    int size = weft_comm_size(g->comm), at = weft_comm_rank(g->comm), me = weft_world_rank(m->world);
    if (size == g->size && at == g->at) return WEFT_OK;
    return weft_fail(WEFT_ERR_INTERNAL, "mesh: rank %d is number %d of %d in its %s group; it must be number %d of %d",
                     me, at, size, g->name, g->at, g->size);
}

/* Two groups along different dimensions have this rank in common and no other. */
static weft_status check_meeting(const weft_mesh *m, const group *a, const group *b)
{
    int me = weft_world_rank(m->world), n = 0, other = -1;
    for (int i = 0; i < weft_comm_size(a->comm); i++)
        for (int j = 0; j < weft_comm_size(b->comm); j++) {
            int rank = weft_comm_world_rank(a->comm, i);
            if (rank != weft_comm_world_rank(b->comm, j)) continue;
            n++;
            if (rank != me) other = rank;
        }
    if (n == 1 && other < 0) return WEFT_OK;
    char also[40] = "";
    if (other >= 0) snprintf(also, sizeof also, ", rank %d among them", other);
    return weft_fail(WEFT_ERR_INTERNAL, "mesh: the %s group and the %s group of rank %d have %d ranks in common%s; it "
                     "must be this rank alone", a->name, b->name, me, n, also);
}

enum { DIMS = 4 };

static weft_status check_lists(const weft_mesh *m, const group one[DIMS])
{
    const weft_mesh_shape n = m->size;
    const group two[] = {{"dp_cp", m->dp_cp, n.dp * n.cp, weft_comm_rank(m->dp_cp)},
                         {"tp_pp", m->tp_pp, n.tp * n.pp, weft_comm_rank(m->tp_pp)}};
    for (int i = 0; i < DIMS; i++)
        for (int j = i + 1; j < DIMS; j++) WEFT_TRY(check_meeting(m, &one[i], &one[j]));
    WEFT_TRY(check_meeting(m, &two[0], &two[1]));
    for (int i = 0; i < DIMS; i++) WEFT_TRY(check_place(m, &one[i]));
    WEFT_TRY(check_place(m, &two[0]));
    return check_place(m, &two[1]);
}

/* The ranks of a group differ in their places in it and in nothing else: those of a tp group have the same rows, those
 * of a cp group the same heads. COLLECTIVE */
static weft_status check_others(const weft_mesh *m, const group one[DIMS], int i)
{
    int64_t x[2 * DIMS];
    for (int k = 0; k < DIMS; k++) x[2 * k] = k == i ? 0 : weft_comm_rank(one[k].comm), x[2 * k + 1] = -x[2 * k];
    WEFT_TRY(weft_all_reduce(one[i].comm, x, 2 * DIMS, WEFT_I64, WEFT_MIN));
    for (int k = 0; k < DIMS; k++)
        if (x[2 * k] != -x[2 * k + 1])
            return weft_fail(WEFT_ERR_INTERNAL, "mesh: ranks of the %s group of rank %d have numbers %lld and %lld in "
                             "their %s groups; they must have the same", one[i].name, weft_world_rank(m->world),
                             (long long)x[2 * k], (long long)-x[2 * k + 1], one[k].name);
    return WEFT_OK;
}

weft_status weft_mesh_check(const weft_mesh *m)
{
    const weft_mesh_shape n = m->size, at = m->at;
    const group one[DIMS] = {{"tp", m->tp, n.tp, at.tp}, {"cp", m->cp, n.cp, at.cp}, {"dp", m->dp, n.dp, at.dp},
                             {"pp", m->pp, n.pp, at.pp}};
    WEFT_TRY(weft_agree(weft_world_all(m->world), check_lists(m, one)));
    for (int i = 0; i < DIMS; i++) WEFT_TRY(weft_agree(weft_world_all(m->world), check_others(m, one, i)));
    return WEFT_OK;
}
