/* config_impl.h — typed access to a config.json, shared by the files that read it. */
#ifndef WEFT_MODEL_CONFIG_IMPL_H
#define WEFT_MODEL_CONFIG_IMPL_H

#include <jansson.h>

#include "model/model_impl.h"

typedef struct weft__cfg { /* one JSON object of the file */
    const char *path;      /* of the file, for messages */
    const char *prefix;    /* "", or "rope_parameters." inside that object */
    const json_t *object;
} weft__cfg;

/* The file as JSON; the caller releases it. */
weft_status weft__cfg_load(const char *path, json_t **out);

#define WEFT__REQUIRED INT64_MIN /* as a default: an absent key is refused */

/* All four: an absent key or null gives the default; another type is refused with key and value. For
 * numbers, a negative default means required. */
weft_status weft__cfg_i64(const weft__cfg *r, const char *key, int64_t def, int64_t *out);
weft_status weft__cfg_f64(const weft__cfg *r, const char *key, double def, double *out);
weft_status weft__cfg_bool(const weft__cfg *r, const char *key, bool def, bool *out);
weft_status weft__cfg_text(const weft__cfg *r, const char *key, const char *def, const char **out);
const json_t *weft__cfg_get(const weft__cfg *r, const char *key); /* NULL when absent or null */

weft_status weft__cfg_rope(const weft__cfg *r, weft_model_config *c);

/* The names of weft_rope_type in files, NULL for none. */
const char *weft__rope_type_name(weft_rope_type type);

#endif
