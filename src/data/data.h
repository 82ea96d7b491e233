/* data.h — the door of the room `data`: text to tokens, token files, and batch = f(seed, step). */
#ifndef WEFT_DATA_H
#define WEFT_DATA_H

#include "mesh/mesh.h"

/* ---- tokenizer ------------------------------------------------------------------------------------ */

/* The byte tokenizer: ids 0..255 are bytes, 256 begin, 257 end of document, 258 padding; V = 259. */
enum { WEFT_BYTE_BOS = 256, WEFT_BYTE_EOD = 257, WEFT_BYTE_PAD = 258, WEFT_BYTE_VOCAB = 259 };
int64_t weft_byte_encode(const char *text, int64_t n, int32_t *ids); /* returns n */
/* Appends ids as text; ids that are no bytes are left out. */
weft_status weft_byte_decode(const int32_t *ids, int64_t n, weft_text *out);

/* ---- token store ---------------------------------------------------------------------------------- */

/* A read-only sequence of tokens with document bounds, mapped from a file. Either a text file (byte
 * tokenizer; one document, or split at `separator`), or a token file of ours ("WEFTTOK1": header with width 2 or 4,
 * vocabulary size, counts; tokens; document offsets). */
typedef struct weft_tokens weft_tokens;
/* vocab: ids >= vocab are refused with file and offset; all ids are read once for that. separator: NULL, or
 * the bytes that end a document of a text (they belong to it). Close before the arena goes. */
weft_status weft_tokens_open(weft_tokens **out, weft_arena *arena, const char *path, const char *separator,
                             int64_t vocab);
void weft_tokens_close(weft_tokens *t);
int64_t weft_tokens_count(const weft_tokens *t);
int64_t weft_tokens_docs(const weft_tokens *t);
/* Of all bytes of the file: whether a run goes on with the data that it began with. Reads the file. */
weft_hash weft_tokens_hash(const weft_tokens *t);
/* Whether ranks read the same file, without reading all of a large one. */
weft_glance weft_tokens_glance(const weft_tokens *t);
weft_status weft_tokens_read(const weft_tokens *t, int64_t first, int64_t n, int32_t *ids);
/* Writes a token file (temporary name, sync, rename). offsets: [docs+1]. */
weft_status weft_tokens_write(const char *path, const int32_t *ids, int64_t n, const int64_t *offsets, int64_t docs,
                              int64_t vocab);

/* ---- batches -------------------------------------------------------------------------------------- */

typedef struct weft_batch_options {
    int64_t T;               /* tokens per sequence */
    uint64_t seed;
    double valid_fraction;   /* the last part of the tokens is kept for evaluation; 0 <= x < 1 */
    bool document_mask;      /* documents inside a sequence do not see each other, positions restart */
} weft_batch_options;

typedef struct weft_batches weft_batches; /* windows of T tokens (and the label after each), in a shuffled order */
weft_status weft_batches_create(weft_batches **out, weft_arena *arena, const weft_tokens *tokens,
                                const weft_batch_options *o);
int64_t weft_batches_windows(const weft_batches *b, bool valid); /* distinct sequences */
int64_t weft_batches_max_docs(const weft_batches *b);            /* documents in one sequence, at most */

typedef struct weft_sequence { /* one sequence of the batch, whole: labels are shifted before any sharding */
    int64_t window;            /* which one; evaluation windows count on after the training ones */
    int32_t *token, *target;   /* [T]; target -100 where there is no label */
    int64_t *cu;               /* [docs+1] offsets of its documents */
    int64_t docs;
} weft_sequence;
/* The i-th sequence of the run (training: step * global batch + row) as a function of (seed, i) only; the
 * same on every rank and for every dp. Buffers are the caller's (cu: max_docs + 1). LOCAL */
weft_status weft_batches_sequence(const weft_batches *b, bool valid, int64_t i, weft_sequence *out);

#endif
