/* tokens.c — a file as a sequence of tokens with document bounds: a text (each byte a token) or a token
 * file. Nothing is copied but a text's document offsets; every id and every offset is checked once, when
 * the file is opened, so that reading needs no checks and a damaged file cannot train a model wrongly. */
#include "data/data_impl.h"

#include <string.h>

/* ---- text ----------------------------------------------------------------------------------------------- */

/* Counts the documents and, unless `offset` is NULL, notes where each ends. A separator belongs to the document before
 * it, so one at the very end begins no document. */
static int64_t find_documents(const weft_map *map, const char *separator, int64_t *offset)
{
    const size_t len = strlen(separator);
    int64_t docs = 0;
    const unsigned char *at = map->data, *end = map->data + map->bytes;
    while (at < end) {
        const unsigned char *hit = memmem(at, (size_t)(end - at), separator, len);
        at = hit ? hit + len : end;
        docs++;
        if (offset) offset[docs] = at - map->data;
    }
    return docs;
}

static weft_status open_text(weft_tokens *t, weft_arena *arena, const char *separator)
{
    t->token = t->map.data;
    t->width = 1;
    t->count = (int64_t)t->map.bytes;
    t->docs = separator ? find_documents(&t->map, separator, NULL) : 1;
    int64_t *offset;
    WEFT_TRY(WEFT_NEW(arena, t->docs + 1, "document offsets", &offset));
    offset[0] = 0;
    if (separator) find_documents(&t->map, separator, offset);
    else offset[1] = t->count;
    t->offset = offset;
    return WEFT_OK;
}

/* ---- token file ----------------------------------------------------------------------------------------- */

static weft_status check_header(const weft_tokens *t, const weft__token_header *h)
{
    if (h->version != WEFT__TOKEN_VERSION)
        return weft_fail(WEFT_ERR_REFUSED, "%s: token file of version %u; this program reads version %d", t->path,
                         h->version, WEFT__TOKEN_VERSION);
    if ((h->width != 2 && h->width != 4) || h->width < weft__token_width(h->vocab))
        return weft_fail(WEFT_ERR_REFUSED, "%s: ids of %u bytes cannot hold a vocabulary of %llu; expected %u", t->path,
                         h->width, (unsigned long long)h->vocab, weft__token_width(h->vocab));
    if (h->vocab < 1 || h->vocab > INT32_MAX || h->tokens < 1 || h->docs < 1)
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s: a vocabulary of %llu, %llu tokens and %llu documents make no token file", t->path,
                         (unsigned long long)h->vocab, (unsigned long long)h->tokens, (unsigned long long)h->docs);
    size_t offsets, ids, size;
    if (h->tokens > INT64_MAX || h->docs >= INT64_MAX || !weft_mul_size((size_t)h->docs + 1, 8, &offsets) ||
        !weft_mul_size((size_t)h->tokens, h->width, &ids) || !weft_add_size(offsets, ids, &size) ||
        !weft_add_size(size, sizeof *h, &size) || size != t->map.bytes)
        return weft_fail(
            WEFT_ERR_REFUSED,
            "%s: truncated or damaged: %llu tokens of %u bytes in %llu documents do not make its %zu bytes", t->path,
            (unsigned long long)h->tokens, h->width, (unsigned long long)h->docs, t->map.bytes);
    return WEFT_OK;
}

static weft_status check_offsets(const weft_tokens *t)
{
    if (t->offset[0] != 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the first document begins at token %lld, expected 0", t->path,
                         (long long)t->offset[0]);
    for (int64_t d = 0; d < t->docs; d++)
        if (t->offset[d + 1] < t->offset[d])
            return weft_fail(WEFT_ERR_REFUSED, "%s: document %lld ends at token %lld, before its begin at %lld",
                             t->path, (long long)d, (long long)t->offset[d + 1], (long long)t->offset[d]);
    if (t->offset[t->docs] != t->count)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the documents end at token %lld, the file has %lld tokens", t->path,
                         (long long)t->offset[t->docs], (long long)t->count);
    return WEFT_OK;
}

static weft_status open_token_file(weft_tokens *t, int64_t *vocab)
{
    if (t->map.bytes < sizeof(weft__token_header))
        return weft_fail(WEFT_ERR_REFUSED, "%s: truncated: %zu bytes, the header of a token file takes %zu", t->path,
                         t->map.bytes, sizeof(weft__token_header));
    const weft__token_header *h = (const void *)t->map.data;
    WEFT_TRY(check_header(t, h));
    t->width = (int)h->width;
    t->count = (int64_t)h->tokens;
    t->docs = (int64_t)h->docs;
    t->offset = (const void *)(h + 1);
    t->token = (const void *)(t->offset + t->docs + 1);
    /* An id that the file's own vocabulary lacks is damage, also when the model's happens to be larger. */
    *vocab = weft_min_i64(*vocab, (int64_t)h->vocab);
    return check_offsets(t);
}

/* ---- ids -------------------------------------------------------------------------------------------------- */

static uint32_t id_at(const weft_tokens *t, int64_t i)
{
    if (t->width == 2) return ((const uint16_t *)(const void *)t->token)[i];
    if (t->width == 4) return ((const uint32_t *)(const void *)t->token)[i];
    return t->token[i];
}

/* Blocks without a branch inside: the search for the culprit runs only when there is one. */
static bool any_above(const weft_tokens *t, int64_t first, int64_t end, uint32_t vocab)
{
    uint32_t largest = 0;
    for (int64_t i = first; i < end; i++) {
        const uint32_t id = id_at(t, i);
        largest = id > largest ? id : largest;
    }
    return largest >= vocab;
}

static weft_status check_ids(const weft_tokens *t, int64_t vocab)
{
    enum { BLOCK = 1 << 16 };
    if (t->width == 1 && vocab >= 256) return WEFT_OK;
    for (int64_t first = 0; first < t->count; first += BLOCK) {
        const int64_t end = weft_min_i64(first + BLOCK, t->count);
        if (!any_above(t, first, end, (uint32_t)vocab)) continue;
        for (int64_t i = first; i < end; i++)
            if (id_at(t, i) >= (uint32_t)vocab)
                return weft_fail(WEFT_ERR_REFUSED, "%s: token %lld (byte %lld) has id %u, the vocabulary ends at %lld",
                                 t->path, (long long)i, (long long)(t->token - t->map.data + i * t->width), id_at(t, i),
                                 (long long)vocab - 1);
    }
    return WEFT_OK;
}

/* ---- the door --------------------------------------------------------------------------------------------- */

static weft_status load(weft_tokens *t, weft_arena *arena, const char *separator, int64_t vocab)
{
    WEFT_TRY(weft_arena_strdup(arena, t->path, &t->path));
    WEFT_TRY(weft_map_open(&t->map, t->path));
    const bool token_file = t->map.bytes >= 8 && memcmp(t->map.data, WEFT__TOKEN_MAGIC, 8) == 0;
    if (token_file && separator)
        return weft_fail(WEFT_ERR_REFUSED, "%s: a token file has its own document bounds; leave the separator out",
                         t->path);
    if (token_file) WEFT_TRY(open_token_file(t, &vocab));
    else WEFT_TRY(open_text(t, arena, separator));
    return check_ids(t, vocab);
}

weft_status weft_tokens_open(weft_tokens **out, weft_arena *arena, const char *path, const char *separator,
                             int64_t vocab)
{
    if (vocab < 1 || vocab > INT32_MAX)
        return weft_fail(WEFT_ERR_REFUSED, "%s: a vocabulary of %lld; expected 1 to %d", path, (long long)vocab,
                         INT32_MAX);
    if (separator && separator[0] == '\0')
        return weft_fail(WEFT_ERR_REFUSED, "%s: the separator of documents is empty; leave it out for one document",
                         path);
    const weft_mark mark = weft_arena_mark(arena);
    weft_tokens *t;
    WEFT_TRY(WEFT_NEW0(arena, 1, "token file", &t));
    t->path = path;
    weft_status st = load(t, arena, separator, vocab);
    if (st < 0) {
        weft_tokens_close(t);
        weft_arena_release(arena, mark);
        return st;
    }
    *out = t;
    return WEFT_OK;
}

void weft_tokens_close(weft_tokens *t)
{
    if (t) weft_map_close(&t->map);
}

int64_t weft_tokens_count(const weft_tokens *t) { return t->count; }
int64_t weft_tokens_docs(const weft_tokens *t) { return t->docs; }
weft_hash weft_tokens_hash(const weft_tokens *t) { return weft_hash_of(t->map.data, t->map.bytes); }

weft_glance weft_tokens_glance(const weft_tokens *t) { return weft_glance_of(t->map.data, t->map.bytes); }

weft_status weft_tokens_read(const weft_tokens *t, int64_t first, int64_t n, int32_t *ids)
{
    if (first < 0 || n < 0 || n > t->count || first > t->count - n)
        return weft_fail(WEFT_ERR_REFUSED, "%s: tokens %lld and %lld more were asked for, the file has %lld", t->path,
                         (long long)first, (long long)n, (long long)t->count);
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)id_at(t, first + i);
    return WEFT_OK;
}
