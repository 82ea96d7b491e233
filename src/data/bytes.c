/* bytes.c — the byte tokenizer: every file is text, no vocabulary file is needed, and nothing is lost. */
#include "data/data_impl.h"

int64_t weft_byte_encode(const char *text, int64_t n, int32_t *ids)
{
    for (int64_t i = 0; i < n; i++) ids[i] = (unsigned char)text[i];
    return n;
}

weft_status weft_byte_decode(const int32_t *ids, int64_t n, weft_text *out)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < WEFT_BYTE_BOS) weft_text_add(out, "%c", (char)ids[i]);
    if (out->failed) return weft_fail(WEFT_ERR_MEMORY, "out of memory for %lld bytes of text", (long long)n);
    return WEFT_OK;
}
