/* tokens_write.c — writing a token file. It refuses what the reader would refuse, so that a wrong id is
 * found where it was made. */
#include "data/data_impl.h"

#include <string.h>

enum { PIECE = 16384 };

static weft_status check_contents(const char *path, const int32_t *ids, int64_t n, const int64_t *offsets, int64_t docs,
                                  int64_t vocab)
{
    if (n < 1 || docs < 1 || vocab < 1 || vocab > INT32_MAX)
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s: %lld tokens in %lld documents with a vocabulary of %lld make no token file", path,
                         (long long)n, (long long)docs, (long long)vocab);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return weft_fail(WEFT_ERR_REFUSED, "%s: token %lld has id %d, the vocabulary ends at %lld", path,
                             (long long)i, ids[i], (long long)vocab - 1);
    for (int64_t d = 0; d < docs; d++)
        if (offsets[d + 1] < offsets[d])
            return weft_fail(WEFT_ERR_REFUSED, "%s: document %lld ends at token %lld, before its begin at %lld", path,
                             (long long)d, (long long)offsets[d + 1], (long long)offsets[d]);
    if (offsets[0] != 0 || offsets[docs] != n)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the documents cover tokens %lld to %lld of %lld", path,
                         (long long)offsets[0], (long long)offsets[docs], (long long)n);
    return WEFT_OK;
}

static weft_status put_ids(weft_writer *w, const int32_t *ids, int64_t n, uint32_t width)
{
    if (width == 4) return weft_writer_put(w, ids, (size_t)n * sizeof *ids);
    uint16_t piece[PIECE];
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t m = weft_min_i64(PIECE, n - i);
        for (int64_t k = 0; k < m; k++) piece[k] = (uint16_t)ids[i + k];
        WEFT_TRY(weft_writer_put(w, piece, (size_t)m * sizeof *piece));
    }
    return WEFT_OK;
}

weft_status weft_tokens_write(const char *path, const int32_t *ids, int64_t n, const int64_t *offsets, int64_t docs,
                              int64_t vocab)
{
    WEFT_TRY(check_contents(path, ids, n, offsets, docs, vocab));
    weft__token_header h = {.version = WEFT__TOKEN_VERSION, .width = weft__token_width((uint64_t)vocab),
                            .vocab = (uint64_t)vocab, .tokens = (uint64_t)n, .docs = (uint64_t)docs};
    memcpy(h.magic, WEFT__TOKEN_MAGIC, sizeof h.magic);
    weft_writer w;
    WEFT_TRY(weft_writer_open(&w, path));
    weft_status st = weft_writer_put(&w, &h, sizeof h);
    if (st == WEFT_OK) st = weft_writer_put(&w, offsets, (size_t)(docs + 1) * sizeof *offsets);
    if (st == WEFT_OK) st = put_ids(&w, ids, n, h.width);
    if (st == WEFT_OK) return weft_writer_commit(&w);
    weft_writer_abandon(&w);
    return st;
}
