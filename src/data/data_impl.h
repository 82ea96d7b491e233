/* data_impl.h — what the files of the room `data` share; nobody else includes it. */
#ifndef WEFT_DATA_IMPL_H
#define WEFT_DATA_IMPL_H

#include "data/data.h"

/* Token files are used as they lie in the mapping. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are read in place");

struct weft_tokens {
    const char *path;
    weft_map map;
    const unsigned char *token; /* [count] ids of `width` bytes */
    int width;                  /* 1: text, 2 or 4: token file */
    int64_t count, docs;
    const int64_t *offset;      /* [docs+1] token at which each document begins; not decreasing */
};

/* "WEFTTOK1" — a token file is this header, int64 offsets[docs+1], then the ids; all little-endian. */
typedef struct weft__token_header {
    char magic[8];
    uint32_t version, width;
    uint64_t vocab, tokens, docs;
} weft__token_header;
_Static_assert(sizeof(weft__token_header) == 40, "the header has no holes: it is written as it lies");

#define WEFT__TOKEN_MAGIC "WEFTTOK1"
enum { WEFT__TOKEN_VERSION = 1 };

/* Ids up to 65535 fit into 16 bits: the width follows the vocabulary, never the ids that happen to occur. */
static inline uint32_t weft__token_width(uint64_t vocab) { return vocab > 65536 ? 4 : 2; }

#endif
