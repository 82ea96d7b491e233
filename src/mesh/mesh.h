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
/* "tp-cp-dp-pp": the four in any order, the fastest first. LOCAL, pure */
weft_status weft_mesh_order_parse(const char *text, int *order);
/* Into buf (12 bytes), which it returns. LOCAL, pure */
const char *weft_mesh_order_text(int order, char *buf);

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

weft_mesh_shape weft_mesh_coords(weft_mesh_shape size, int rank); /* LOCAL, pure */
int weft_mesh_rank(weft_mesh_shape size, weft_mesh_shape at);     /* LOCAL, pure */
/* Refuses sizes < 1 and a product other than the world's size. COLLECTIVE */
weft_status weft_mesh_create(weft_mesh *mesh, weft_world *world, weft_mesh_shape size);
void weft_mesh_destroy(weft_mesh *mesh);

#endif
