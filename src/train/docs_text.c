/* docs_text.c — the documents of a sequence as a line of text, for cases and simulations that are made from options. */
#include "train/train.h"

#include <string.h>

static weft_status number(const char *text, int64_t min, int64_t *out)
{
    weft_status st = weft_parse_size(text, out);
    if (st >= 0 && *out < min) st = weft_fail(WEFT_ERR_REFUSED, "%lld; at least %lld", (long long)*out, (long long)min);
    return st < 0 ? weft_fail_at(st, "docs: ") : WEFT_OK;
}

/* Copies the first length of a list. */
static weft_status first_length(const char *text, size_t len, char *word, size_t size)
{
    if (len == 0) return weft_fail(WEFT_ERR_REFUSED, "docs: a length is missing; write 0 for an empty document");
    if (len >= size)
        return weft_fail(WEFT_ERR_REFUSED, "docs: %.12s... is too long for a length; at most %zu letters", text,
                         size - 1);
    memcpy(word, text, len);
    word[len] = 0;
    return WEFT_OK;
}

/* "100,0,*,7": lengths in order, one of them * for what is left. */
static weft_status listed_lengths(const char *text, int64_t T, int64_t *cu, int64_t n)
{
    int64_t known = 0, star = -1, at = 0;
    for (int64_t i = 0; i < n; i++) {
        char word[24];
        size_t len = strcspn(text, ",");
        bool rest = len == 1 && *text == '*';
        if (rest && star >= 0)
            return weft_fail(WEFT_ERR_REFUSED,
                             "docs: documents %lld and %lld are both *; one takes all that is left, so the other "
                             "needs a length",
                             (long long)star + 1, (long long)i + 1);
        WEFT_TRY(first_length(text, len, word, sizeof word));
        if (rest) star = i, cu[i] = 0;
        else WEFT_TRY(number(word, 0, &cu[i]));
        if (cu[i] > T - known)
            return weft_fail(WEFT_ERR_REFUSED, "docs: the lengths add up to more than T = %lld", (long long)T);
        known += cu[i];
        text += len + (text[len] == ',');
    }
    if (star < 0 && known != T)
        return weft_fail(WEFT_ERR_REFUSED, "docs: the lengths add up to %lld, T is %lld; one of them may be *",
                         (long long)known, (long long)T);
    if (star >= 0) cu[star] = T - known;
    for (int64_t i = 0; i < n; i++) {
        int64_t len = cu[i];
        cu[i] = at;
        at += len;
    }
    cu[n] = T;
    return WEFT_OK;
}

/* Documents of `each` tokens, the last as long as is left. */
static void equal_lengths(int64_t each, int64_t T, int64_t *cu, int64_t n)
{
    for (int64_t i = 0; i < n; i++) cu[i] = i * each;
    cu[n] = T;
}

enum { DIGIT_BITS = 11 };

/* By the digit that begins at bit `shift`, keeping the order of what has the same one. */
static void sort_by_digit(const int64_t *from, int64_t *to, int64_t n, int shift)
{
    int64_t first[1 << DIGIT_BITS] = {0}, at = 0;
    const int64_t mask = (1 << DIGIT_BITS) - 1;
    for (int64_t i = 0; i < n; i++) first[from[i] >> shift & mask]++;
    for (int64_t d = 0; d <= mask; d++) {
        int64_t count = first[d];
        first[d] = at;
        at += count;
    }
    for (int64_t i = 0; i < n; i++) to[first[from[i] >> shift & mask]++] = from[i];
}

/* x[n], of numbers in [0, most], ascending. A hundred million cuts take seconds so, and most of a minute by
 * comparisons. */
static weft_status sort_cuts(weft_arena *arena, int64_t *x, int64_t n, int64_t most)
{
    int64_t *spare;
    weft_mark mark = weft_arena_mark(arena);
    WEFT_TRY(WEFT_NEW(arena, n, "cuts", &spare));
    int64_t *from = x, *to = spare;
    for (int shift = 0; shift < 63 && most >> shift; shift += DIGIT_BITS) {
        sort_by_digit(from, to, n, shift);
        int64_t *sorted = to;
        to = from, from = sorted;
    }
    if (from != x) memcpy(x, from, (size_t)n * sizeof *x);
    weft_arena_release(arena, mark);
    return WEFT_OK;
}

/* n documents cut at random tokens. */
static weft_status random_lengths(weft_arena *arena, uint64_t seed, int64_t T, int64_t *cu, int64_t n)
{
    cu[0] = 0;
    for (int64_t i = 1; i < n; i++) {
        weft_philox_out x = weft_philox(seed, (uint32_t)i, 0, 0xd0c, weft_philox_word3(0, 0, WEFT_SITE_SAMPLE));
        cu[i] = (int64_t)((x.w[0] | (uint64_t)x.w[1] << 32) % (uint64_t)(T + 1));
    }
    cu[n] = T;
    return sort_cuts(arena, cu, n, T);
}

weft_status weft_docs_from_text(weft_docs *out, weft_arena *arena, const char *text, int64_t B, int64_t T,
                                uint64_t seed)
{
    int64_t n = 1, each = 0, *cu, *first, total;
    bool random = !strncmp(text, "random:", 7), equal = !strncmp(text, "each:", 5);
    if (random) WEFT_TRY(number(text + 7, 1, &n));
    if (equal) {
        WEFT_TRY(number(text + 5, 1, &each));
        n = weft_ceil_div(T, each);
    }
    if (n > INT32_MAX)
        return weft_fail(WEFT_ERR_REFUSED, "docs: %lld documents; at most %d", (long long)n, INT32_MAX);
    for (const char *s = random || equal ? NULL : text; s && (s = strchr(s, ',')); s++) n++;
    if (!weft_mul_i64(B, n + 1, &total)) return weft_fail(WEFT_ERR_REFUSED, "docs: too many documents");
    WEFT_TRY(WEFT_NEW(arena, total, "documents", &cu));
    WEFT_TRY(WEFT_NEW(arena, B + 1, "documents", &first));
    for (int64_t b = 0; b <= B; b++) first[b] = b * (n + 1);
    if (random) WEFT_TRY(random_lengths(arena, seed, T, cu, n));
    else if (equal) equal_lengths(each, T, cu, n);
    else WEFT_TRY(listed_lengths(text, T, cu, n));
    for (int64_t b = 1; b < B; b++) memcpy(cu + first[b], cu, (size_t)(n + 1) * sizeof *cu);
    *out = (weft_docs){.B = B, .T = T, .cu = cu, .first = first};
    return WEFT_OK;
}
