/* open.c — a complete checkpoint, read by any layout: what its manifest says, its checksums, and the parts of its
 * tensors that a rank needs. */
#include "ckpt/ckpt_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_TEXT = 1 << 28, READ_BYTES = 1 << 20 };

struct weft_ckpt {
    char *dir;
    weft__manifest manifest;
    weft_st **st; /* [files] opened when first asked for; NULL: not yet, or no file of tensors */
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static weft_status check_sizes(const weft_ckpt *c)
{
    for (int i = 0; i < c->manifest.about.files; i++) {
        const weft_ckpt_file *f = &c->manifest.file[i];
        struct stat s;
        char *path = weft__join(c->dir, f->name);
        if (!path) return weft_fail(WEFT_ERR_MEMORY, "%s: no memory for a path", c->dir);
        int missing = stat(path, &s) ? errno : 0;
        free(path);
        if (missing) return weft_fail(WEFT_ERR_REFUSED, "%s/%s: %s", c->dir, f->name, strerror(missing));
        if (!S_ISREG(s.st_mode)) return weft_fail(WEFT_ERR_REFUSED, "%s/%s is not a plain file", c->dir, f->name);
        if (s.st_size != f->bytes)
            return weft_fail(WEFT_ERR_REFUSED, "%s/%s has %lld bytes; %lld were written", c->dir, f->name,
                             (long long)s.st_size, (long long)f->bytes);
    }
    return WEFT_OK;
}

static weft_status read_manifest(weft_ckpt *c)
{
    char *path = weft__join(c->dir, WEFT__CKPT_MANIFEST), *text = NULL;
    size_t bytes = 0;
    struct stat s;
    if (!path) return weft_fail(WEFT_ERR_MEMORY, "%s: no memory for a path", c->dir);
    weft_status st = WEFT_OK;
    if (stat(path, &s) && errno == ENOENT)
        st = weft_fail(WEFT_ERR_REFUSED, "%s has no " WEFT__CKPT_MANIFEST ": it is no complete checkpoint", c->dir);
    if (st >= 0) st = weft_read_file(path, MAX_TEXT, &text, &bytes);
    if (st >= 0) st = weft__manifest_parse(&c->manifest, path, text, bytes);
    free(text);
    free(path);
    return st;
}

weft_status weft_ckpt_open(weft_ckpt **out, const char *dir)
{
    weft_ckpt *c = calloc(1, sizeof *c);
    if (c) c->dir = strdup(dir);
    weft_status st = c && c->dir ? read_manifest(c) : weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", dir);
    if (st >= 0) st = check_sizes(c);
    if (st >= 0) {
        c->st = calloc((size_t)c->manifest.about.files, sizeof *c->st);
        if (!c->st) st = weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", dir);
    }
    if (st < 0) weft_ckpt_close(c);
    else *out = c;
    return st;
}

void weft_ckpt_close(weft_ckpt *c)
{
    if (!c) return;
    for (int i = 0; c->st && i < c->manifest.about.files; i++) weft_st_close(c->st[i]);
    free(c->st);
    free(c->manifest.file);
    free(c->dir);
    free(c);
}

void weft_ckpt_tell(const weft_ckpt *c, weft_ckpt_about *out) { *out = c->manifest.about; }

weft_status weft_ckpt_text(const weft_ckpt *c, const char *name, char **text, size_t *bytes)
{
    char *path = weft__join(c->dir, name);
    if (!path) return weft_fail(WEFT_ERR_MEMORY, "%s: no memory for a path", c->dir);
    weft_status st = weft_read_file(path, MAX_TEXT, text, bytes);
    free(path);
    return st;
}

/* ---- checksums -------------------------------------------------------------------------------------- */

/* Read, not mapped: a file that another process cuts short meanwhile is a message and not the end of this one. */
static weft_status hash_file(FILE *f, const char *path, weft_hasher *h, void *buffer, int64_t *total)
{
    *total = 0;
    for (;;) {
        size_t n = fread(buffer, 1, READ_BYTES, f);
        weft_hasher_add(h, buffer, n);
        *total += (int64_t)n;
        if (n == READ_BYTES) continue;
        return ferror(f) ? weft_fail(WEFT_ERR_IO, "cannot read %s: %s", path, strerror(errno)) : WEFT_OK;
    }
}

static weft_status verify_file(const char *dir, const weft_ckpt_file *want, weft_hasher *h, void *buffer)
{
    char *path = weft__join(dir, want->name), a[WEFT_HASH_TEXT], b[WEFT_HASH_TEXT];
    if (!path) return weft_fail(WEFT_ERR_MEMORY, "%s: no memory for a path", dir);
    FILE *f = fopen(path, "re");
    int64_t bytes = 0;
    weft_status st = f ? hash_file(f, path, h, buffer, &bytes)
                       : weft_fail(WEFT_ERR_REFUSED, "cannot read %s: %s", path, strerror(errno));
    weft_hash have = weft_hasher_end(h);
    if (f) fclose(f);
    if (st >= 0 && bytes != want->bytes)
        st = weft_fail(WEFT_ERR_REFUSED, "%s has %lld bytes; %lld were written", path, (long long)bytes,
                       (long long)want->bytes);
    if (st >= 0 && !weft_hash_same(have, want->hash) && !WEFT_PLANTED(checksums_ignored))
        st = weft_fail(WEFT_ERR_REFUSED, "%s is damaged: its checksum is %s, the manifest has %s", path,
                       weft_hash_text(have, a), weft_hash_text(want->hash, b));
    free(path);
    return st;
}

weft_status weft_ckpt_verify(const weft_ckpt *c, int part, int parts)
{
    weft_hasher *h = weft_hasher_create();
    void *buffer = malloc(READ_BYTES);
    weft_status st = h && buffer ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "%s: no memory to read it", c->dir);
    for (int i = part; i < c->manifest.about.files && st >= 0; i += parts)
        st = verify_file(c->dir, &c->manifest.file[i], h, buffer);
    free(buffer);
    weft_hasher_destroy(h);
    return st;
}

/* ---- tensors ---------------------------------------------------------------------------------------- */

static bool has_tensors(const char *name)
{
    size_t n = strlen(name), end = strlen(".safetensors");
    return n > end && !strcmp(name + n - end, ".safetensors");
}

/* The tensor wherever it is; *out NULL when it is nowhere. */
static weft_status find(weft_ckpt *c, const char *name, const weft_view **out, const char **where)
{
    *out = NULL;
    for (int i = 0; i < c->manifest.about.files && !*out; i++) {
        if (!has_tensors(c->manifest.file[i].name)) continue;
        if (!c->st[i]) {
            char *path = weft__join(c->dir, c->manifest.file[i].name);
            if (!path) return weft_fail(WEFT_ERR_MEMORY, "%s: no memory for a path", c->dir);
            weft_status st = weft_st_open(&c->st[i], path);
            free(path);
            WEFT_TRY(st);
        }
        *out = weft_st_find(c->st[i], name);
        *where = weft_st_path(c->st[i]);
    }
    return WEFT_OK;
}

weft_status weft_ckpt_has(weft_ckpt *c, const char *prefix, bool *there, weft_dtype *type)
{
    const weft_view *none;
    const char *where;
    *there = false;
    WEFT_TRY(find(c, "", &none, &where)); /* opens all files */
    for (int i = 0; i < c->manifest.about.files && !*there; i++)
        for (int k = 0; c->st[i] && k < weft_st_count(c->st[i]) && !*there; k++) {
            const weft_st_entry *e = weft_st_at(c->st[i], k);
            *there = !strncmp(e->name, prefix, strlen(prefix));
            if (*there) *type = e->view.dtype;
        }
    return WEFT_OK;
}

static weft_status read_one(weft_ckpt *c, const char *name, const weft_spec *s, const weft_piece *p, weft_dtype dtype)
{
    const weft_view *v = NULL;
    const char *where = c->dir;
    char have[128], need[128];
    WEFT_TRY(find(c, name, &v, &where));
    if (!v) return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s is missing", c->dir, name);
    if (v->nd != s->nd || memcmp(v->shape, s->whole, (size_t)s->nd * sizeof *s->whole))
        return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s has shape %s, the model needs %s", where, name,
                         weft_shape_text(v->shape, v->nd, have, sizeof have),
                         weft_shape_text(s->whole, s->nd, need, sizeof need));
    if (!weft__is_weight_type(v->dtype))
        return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s is %s; weights and moments are floating-point numbers", where,
                         name, weft_dtype_safetensors(v->dtype));
    weft__read_piece(v, s, p, dtype);
    return WEFT_OK;
}

weft_status weft_ckpt_read(weft_ckpt *c, const char *prefix, const weft_held *into)
{
    weft_text name = {0};
    weft_status st = WEFT_OK;
    for (int i = 0; i < into->pieces && st >= 0; i++) {
        const weft_spec *s = &into->spec[into->piece[i].spec];
        name.len = 0;
        weft_text_add(&name, "%s%s", prefix, s->name);
        st = name.failed ? weft_fail(WEFT_ERR_MEMORY, "%s: no memory for a name", c->dir)
                         : read_one(c, name.data, s, &into->piece[i], into->dtype);
    }
    weft_text_free(&name);
    return st;
}
