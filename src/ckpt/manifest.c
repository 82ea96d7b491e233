/* manifest.c — the file that makes a checkpoint complete: every other file with its size and checksum.
 *
 * It is written without a blank and carries a checksum of itself, so that no byte of it can change unnoticed either:
 * {"xxh3_128":"<of what follows, without the last brace>","manifest":{...}} */
#include "ckpt/ckpt_impl.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char head[] = "{\"xxh3_128\":\"", middle[] = "\",\"manifest\":", tail[] = "}\n";
enum { HEAD = sizeof head - 1, MIDDLE = sizeof middle - 1, TAIL = sizeof tail - 1, DIGITS = WEFT_HASH_TEXT - 1 };

/* ---- writing ------------------------------------------------------------------------------------------------ */

static json_t *files_json(const weft_ckpt_about *about)
{
    json_t *files = json_array();
    char hash[WEFT_HASH_TEXT];
    for (int i = 0; files && i < about->files; i++) {
        const weft_ckpt_file *f = &about->file[i];
        json_t *row = json_pack("{s:s, s:I, s:s}", "name", f->name, "bytes", (json_int_t)f->bytes, "xxh3_128",
                                weft_hash_text(f->hash, hash));
        if (json_array_append_new(files, row)) {
            json_decref(files);
            return NULL;
        }
    }
    return files;
}

weft_status weft__manifest_text(const weft_ckpt_about *about, weft_text *out)
{
    char hash[WEFT_HASH_TEXT], order[12];
    weft_mesh_shape l = about->layout;
    json_t *root =
        json_pack("{s:s, s:i, s:I, s:{s:i, s:i, s:i, s:i, s:s}, s:o}", "format", "weft checkpoint", "version", 1,
                  "step", (json_int_t)about->step, "layout", "tp", l.tp, "cp", l.cp, "dp", l.dp, "pp", l.pp, "order",
                  weft_mesh_order_text(l.order, order), "files", files_json(about));
    char *body = root ? json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    if (body)
        weft_text_add(out, "%s%s%s%s%s", head, weft_hash_text(weft_hash_of(body, strlen(body)), hash), middle, body,
                      tail);
    bool good = body && !out->failed;
    free(body);
    return good ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory for a manifest");
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

/* The body of the text, when frame and checksum are right. */
static const char *body_of(const char *text, size_t bytes, size_t *length, weft_hash *hash)
{
    const size_t frame = HEAD + DIGITS + MIDDLE;
    char digits[WEFT_HASH_TEXT];
    if (bytes < frame + TAIL || memcmp(text, head, HEAD) || memcmp(text + HEAD + DIGITS, middle, MIDDLE) ||
        memcmp(text + bytes - TAIL, tail, TAIL))
        return NULL;
    memcpy(digits, text + HEAD, DIGITS);
    digits[DIGITS] = '\0';
    *length = bytes - frame - TAIL;
    if (!weft_hash_parse(digits, hash) || !weft_hash_same(*hash, weft_hash_of(text + frame, *length))) return NULL;
    return text + frame;
}

/* A name in this folder, of a kind that checkpoints have: a manifest may come from anywhere. */
static bool read_file(json_t *row, weft_ckpt_file *out)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    const char *hash = json_string_value(json_object_get(row, "xxh3_128"));
    json_t *bytes = json_object_get(row, "bytes");
    if (!name || strlen(name) >= sizeof out->name || !weft__is_checkpoint_file(name) || !hash ||
        !weft_hash_parse(hash, &out->hash) || !json_is_integer(bytes) || json_integer_value(bytes) < 0)
        return false;
    memcpy(out->name, name, strlen(name) + 1);
    out->bytes = json_integer_value(bytes);
    return true;
}

static bool read_int(const json_t *o, const char *key, int *out)
{
    json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 1 << 20) return false;
    *out = (int)json_integer_value(v);
    return true;
}

static bool read_layout(const json_t *o, weft_mesh_shape *out)
{
    const char *order = json_string_value(json_object_get(o, "order"));
    return read_int(o, "tp", &out->tp) && read_int(o, "cp", &out->cp) && read_int(o, "dp", &out->dp) &&
           read_int(o, "pp", &out->pp) && order && weft_mesh_order_parse(order, &out->order) >= 0;
}

static weft_status read_body(weft__manifest *m, const char *path, json_t *root)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    json_t *version = json_object_get(root, "version"), *step = json_object_get(root, "step");
    json_t *files = json_object_get(root, "files");
    size_t n = json_array_size(files);
    if (!format || strcmp(format, "weft checkpoint") || !json_is_integer(version) || !json_is_integer(step))
        return weft_fail(WEFT_ERR_REFUSED, "%s is no manifest of a checkpoint", path);
    if (json_integer_value(version) != 1)
        return weft_fail(WEFT_ERR_REFUSED, "%s: version %lld; this program reads version 1", path,
                         (long long)json_integer_value(version));
    if (json_integer_value(step) < 0 || n < 1 || n > 1 << 20 ||
        !read_layout(json_object_get(root, "layout"), &m->about.layout))
        return weft_fail(WEFT_ERR_REFUSED, "%s: step, layout or list of files is not as it must be", path);
    m->file = calloc(n, sizeof *m->file);
    if (!m->file) return weft_fail(WEFT_ERR_MEMORY, "%s: no memory for %zu files", path, n);
    for (size_t i = 0; i < n; i++)
        if (!read_file(json_array_get(files, i), &m->file[i]))
            return weft_fail(WEFT_ERR_REFUSED, "%s: row %zu of its files is not as it must be", path, i + 1);
    m->about.step = json_integer_value(step);
    m->about.file = m->file;
    m->about.files = (int)n;
    return WEFT_OK;
}

weft_status weft__manifest_parse(weft__manifest *m, const char *path, const char *text, size_t bytes)
{
    size_t length = 0;
    *m = (weft__manifest){0};
    const char *body = body_of(text, bytes, &length, &m->about.hash);
    if (!body) return weft_fail(WEFT_ERR_REFUSED, "%s is damaged: it does not fit the checksum that it carries", path);
    json_error_t e;
    json_t *root = json_loadb(body, length, JSON_REJECT_DUPLICATES, &e);
    if (!root) return weft_fail(WEFT_ERR_REFUSED, "%s:%d:%d: %s", path, e.line, e.column, e.text);
    weft_status st = read_body(m, path, root);
    json_decref(root);
    if (st < 0) {
        free(m->file);
        *m = (weft__manifest){0};
    }
    return st;
}
