/* mesh.h — the door of the room `mesh`: where a rank stands in tp x cp x dp x pp, and its groups.
 * rank = tp + TP * (cp + CP * (dp + DP * pp)). */
#ifndef WEFT_MESH_H
#define WEFT_MESH_H

#include "mesh/profile.h"

typedef struct weft_mesh_shape { int tp, cp, dp, pp; } weft_mesh_shape;

typedef struct weft_mesh {
    weft_mesh_shape size, at;
    weft_world *world;
    weft_comm *all;   /* every rank                                          */
    weft_comm *cp;    /* same tp, dp, pp                                     */
    weft_comm *dp;    /* same tp, cp, pp                                     */
    weft_comm *dp_cp; /* same tp, pp: ranks that hold copies of the weights  */
    weft_comm *tp, *pp;
} weft_mesh;

weft_mesh_shape weft_mesh_coords(weft_mesh_shape size, int rank); /* LOCAL, pure */
int weft_mesh_rank(weft_mesh_shape size, weft_mesh_shape at);     /* LOCAL, pure */
/* Refuses sizes < 1, a product other than the world's size, tp or pp > 1 (until they are built). COLLECTIVE */
weft_status weft_mesh_create(weft_mesh *mesh, weft_world *world, weft_mesh_shape size);
void weft_mesh_destroy(weft_mesh *mesh);

#endif
