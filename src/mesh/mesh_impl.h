/* mesh_impl.h — what the files of this room share. */
#ifndef WEFT_MESH_IMPL_H
#define WEFT_MESH_IMPL_H

#include "mesh/mesh.h"

/* Refuses sizes or orders that differ between the ranks, on all of them. COLLECTIVE */
weft_status weft__mesh_same(weft_world *world, weft_mesh_shape size);

/* ---- profiles: the built-in files (cmake/WeftProfiles.cmake), and reading their text --------------------------- */

extern const char *const weft__mesh_profile_names[]; /* ascending */
extern const struct weft__mesh_profile_text { const unsigned char *json; size_t bytes; } weft__mesh_profile_texts[];
extern const int weft__mesh_profile_count;

/* `where`: for messages; `name`: what the profile is called when it does not say itself. LOCAL */
weft_status weft__mesh_profile_parse(weft_profile *out, const char *text, size_t bytes, const char *where,
                                     const char *name);
/* As weft_profile_source, of such a text. LOCAL */
weft_status weft__mesh_profile_sources(weft_text *out, const char *text, size_t bytes, const char *where,
                                       const char *key);

#endif
