/* files.c — the small files around the tensors (config.json, state, index): folders, whole reads, whole
 * writes. */
#include "ckpt/ckpt_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static weft_status make_one(const char *path)
{
    struct stat s;
    if (mkdir(path, 0777) == 0) return WEFT_OK;
    int why = errno;
    /* EEXIST is also what a rank gets that came second; a read-only parent may say EROFS or EACCES for a
     * folder that is there. */
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode)) return WEFT_OK;
    if (why == EEXIST || why == ENOTDIR)
        return weft_fail(WEFT_ERR_REFUSED, "cannot make the folder %s: a file of that name exists", path);
    return weft_fail(WEFT_ERR_IO, "cannot make the folder %s: %s", path, strerror(why));
}

weft_status weft_make_dir(const char *path)
{
    if (path[0] == '\0') return weft_fail(WEFT_ERR_REFUSED, "a folder's path is empty");
    char *p = strdup(path);
    if (!p) return weft_fail(WEFT_ERR_MEMORY, "out of memory for the path %s", path);
    weft_status st = WEFT_OK;
    for (char *slash = strchr(p + 1, '/'); slash && st == WEFT_OK; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        st = make_one(p);
        *slash = '/';
    }
    if (st == WEFT_OK) st = make_one(p);
    free(p);
    return st;
}

weft_status weft_read_file(const char *path, size_t max, char **data, size_t *bytes)
{
    weft_map map = {0};
    WEFT_TRY(weft_map_open(&map, path));
    weft_status st = WEFT_OK;
    if (map.bytes > max) {
        st = weft_fail(WEFT_ERR_REFUSED, "%s: %zu bytes, at most %zu are expected here", path, map.bytes, max);
    } else {
        char *copy = malloc(map.bytes + 1); /* a NUL after it: callers may treat it as text */
        if (!copy) {
            st = weft_fail(WEFT_ERR_MEMORY, "%s: out of memory (%zu bytes)", path, map.bytes);
        } else {
            memcpy(copy, map.data, map.bytes);
            copy[map.bytes] = '\0';
            *data = copy;
            *bytes = map.bytes;
        }
    }
    weft_map_close(&map);
    return st;
}

weft_status weft_write_file(const char *path, const void *data, size_t bytes)
{
    weft_writer w;
    WEFT_TRY(weft_writer_open(&w, path));
    weft_status st = weft_writer_put(&w, data, bytes);
    if (st == WEFT_OK) return weft_writer_commit(&w);
    weft_writer_abandon(&w);
    return st;
}
