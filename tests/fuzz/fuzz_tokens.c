/* fuzz_tokens.c — data files: a token file ("WEFTTOK1") or a text cut at a separator. Refused, or tokens and documents
 * that batches can be drawn from. The first byte chooses separator, vocabulary and sequence length. */
#include "fuzz/fuzz.h"
#include "fuzz/fuzz_memory.h"

#include "data/data.h"

enum { T_MAX = 16 };

static void draw(const weft_tokens *t, weft_arena *arena, int64_t T, bool document_mask, int64_t vocab)
{
    const weft_batch_options o = {.T = T,
                                  .seed = 3,
                                  .valid_fraction = T % 2 ? 0 : 0.25,
                                  .document_mask = document_mask};
    weft_batches *b = NULL;
    int32_t token[T_MAX], target[T_MAX];
    if (!fuzz_taken(weft_batches_create(&b, arena, t, &o))) return;
    const int64_t docs = weft_batches_max_docs(b);
    weft_sequence s = {.token = token, .target = target};
    FUZZ_CHECK(docs >= 1 && docs <= T);
    FUZZ_CHECK(WEFT_NEW(arena, docs + 1, "offsets", &s.cu) == WEFT_OK);
    for (int valid = 0; valid < 2; valid++)
        for (int64_t i = 0; i < weft_batches_windows(b, valid) && i < 100; i++) {
            FUZZ_CHECK(weft_batches_sequence(b, valid, i, &s) == WEFT_OK);
            FUZZ_CHECK(s.docs >= 1 && s.docs <= docs && s.cu[0] == 0 && s.cu[s.docs] == T);
            for (int64_t d = 0; d < s.docs; d++) FUZZ_CHECK(s.cu[d] <= s.cu[d + 1]);
            for (int64_t k = 0; k < T; k++)
                FUZZ_CHECK(token[k] >= 0 && token[k] < vocab && target[k] < vocab &&
                           (target[k] >= 0 || target[k] == -100));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const separators[] = {NULL, "\n", "ab", "aab"};
    static const int64_t vocabs[] = {259, 70000, INT32_MAX, 100};
    static weft_mem mem;
    const uint8_t how = size ? data[0] : 0;
    const int64_t vocab = vocabs[how >> 2 & 3], T = 1 + (how >> 4);
    fuzz_file f = fuzz_file_open(size ? data + 1 : data, size ? size - 1 : 0);
    weft_arena *arena = fuzz_arena(&mem);
    weft_tokens *t = NULL;
    if (fuzz_taken_or_full(weft_tokens_open(&t, arena, f.path, separators[how & 3], vocab))) {
        int32_t last;
        FUZZ_CHECK(weft_tokens_docs(t) >= 1);
        FUZZ_CHECK(weft_tokens_read(t, weft_tokens_count(t) - 1, 1, &last) == WEFT_OK && last >= 0 && last < vocab);
        FUZZ_CHECK(weft_tokens_read(t, weft_tokens_count(t), 1, &last) == WEFT_ERR_REFUSED);
        draw(t, arena, T, false, vocab);
        draw(t, arena, T, true, vocab);
        weft_tokens_close(t);
    }
    weft_arena_destroy(arena);
    fuzz_file_close(&f);
    return 0;
}
