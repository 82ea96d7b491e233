/* mesh_impl.h — what the files of this room share. */
#ifndef WEFT_MESH_IMPL_H
#define WEFT_MESH_IMPL_H

#include "mesh/mesh.h"

/* Refuses sizes or orders that differ between the ranks, on all of them. COLLECTIVE */
weft_status weft__mesh_same(weft_world *world, weft_mesh_shape size);

#endif
