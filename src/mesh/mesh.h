/* mesh.h — the door of the room `mesh`: where a rank stands in tp x cp x dp x pp, and its groups.
 *
 * rank = tp + TP * (cp + CP * (dp + DP * pp)) in the order tp-cp-dp-pp, in which tp runs fastest; any other order of
 * the four can be asked for (--rank-order). */
#ifndef WEFT_MESH_H
#define WEFT_MESH_H

#include "mesh/profile.h"

typedef struct weft_mesh_shape {
    int tp, cp, dp, pp;
    int order; /* number of the order of ranks (weft_mesh_order_parse); 0: tp-cp-dp-pp. Nothing in coordinates */
} weft_mesh_shape;

enum { WEFT_MESH_ORDERS = 24 };
/* "tp-cp-dp-pp": the four in any order, the fastest first. LOCAL */
weft_status weft_mesh_order_parse(const char *text, int *order);
/* Into buf (12 bytes), which it returns. LOCAL, pure */
const char *weft_mesh_order_text(int order, char *buf);

/* The kinds of groups, in the order in which every rank makes them. */
typedef enum { WEFT_MESH_ALL, WEFT_MESH_CP, WEFT_MESH_DP, WEFT_MESH_DP_CP, WEFT_MESH_TP, WEFT_MESH_PP, WEFT_MESH_TP_PP,
               WEFT_MESH_ENDS, WEFT_MESH_KINDS } weft_mesh_kind;

typedef struct weft_mesh {
    weft_mesh_shape size, at;
    weft_world *world;
    weft_comm *all;   /* every rank                                          */
    weft_comm *cp;    /* same tp, dp, pp                                     */
    weft_comm *dp;    /* same tp, cp, pp                                     */
    weft_comm *dp_cp; /* same tp, pp: ranks that hold copies of the weights  */
    weft_comm *tp;    /* same cp, dp, pp: parts of the same layers            */
    weft_comm *pp;    /* same tp, cp, dp: the stages of a pipeline, in order  */
    weft_comm *tp_pp; /* same cp, dp: parts of one copy of the model          */
    weft_comm *ends;  /* first and last stage of a pipeline, which share a tied embedding; NULL on stages between, and
                         with one stage */
} weft_mesh;

/* "tp 2 x cp 4 x dp 1 x pp 1", and the order where it is not the first. LOCAL */
void weft_mesh_describe(weft_mesh_shape size, weft_text *out);
int weft_mesh_ranks(weft_mesh_shape size);                        /* LOCAL, pure */
weft_mesh_shape weft_mesh_coords(weft_mesh_shape size, int rank); /* LOCAL, pure */
int weft_mesh_rank(weft_mesh_shape size, weft_mesh_shape at);     /* LOCAL, pure */
/* "cp", "dp_cp"; and what the ranks of such a group have to do with each other. LOCAL, pure */
const char *weft_mesh_kind_name(weft_mesh_kind kind);
const char *weft_mesh_kind_text(weft_mesh_kind kind);
/* The number of a rank's group, from 0; two ranks are in one group of a kind when they have the same. Stages between
 * the first and the last are groups of WEFT_MESH_ENDS with other stages nowhere. LOCAL, pure */
int weft_mesh_group(weft_mesh_shape size, weft_mesh_kind kind, int rank);

/* Refuses, on all ranks alike: sizes or orders that differ between the ranks, sizes < 1, a product other than the
 * world's size, groups that do not pass weft_mesh_check. COLLECTIVE */
weft_status weft_mesh_create(weft_mesh *mesh, weft_world *world, weft_mesh_shape size);
/* Of the member lists, whoever made them: groups have the sizes that were asked for, and groups along different
 * dimensions (tp and cp, ...; dp_cp and tp_pp) meet in exactly one rank, the one that has them; ranks of a group have
 * the same numbers in their other groups. COLLECTIVE */
weft_status weft_mesh_check(const weft_mesh *mesh);
void weft_mesh_destroy(weft_mesh *mesh);

#endif
