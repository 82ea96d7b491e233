/* batches.c — windows of T tokens in a shuffled order. A sequence is a function of (seed, its number in
 * the run) and of nothing else: no rank, no layout and no worker enters, so every rank of a context group
 * sees the same text, any number of data-parallel ranks trains in the same order, and a resumed run goes
 * on where it stopped by knowing one number.
 *
 * The tokens are two parts: [0, split) for training, [split, count) for evaluation. Window w of a part
 * covers T tokens from begin + w T; the label of a token is the next token of the same part, so that no
 * evaluation token is ever trained on. What is left over at a part's end is not used. */
#include "data/data_impl.h"

#include <stdio.h>
#include <string.h>

typedef struct part { int64_t begin, end, windows; } part;

struct weft_batches {
    const weft_tokens *tokens;
    weft_batch_options o;
    part train, valid;
    int64_t max_docs;
};

/* ---- windows -------------------------------------------------------------------------------------------- */

/* One window needs a label after its last token; later ones may end with the part, without that label. */
static part cut(int64_t begin, int64_t end, int64_t T)
{
    return (part){begin, end, end - begin > T ? (end - begin) / T : 0};
}

/* The document that token g is in: the last one that begins at or before g (empty ones share a begin). */
static int64_t document_of(const weft_tokens *t, int64_t g)
{
    int64_t low = 0, high = t->docs; /* offset[low] <= g < offset[high] */
    while (high - low > 1) {
        const int64_t mid = low + (high - low) / 2;
        if (t->offset[mid] <= g) low = mid;
        else high = mid;
    }
    return low;
}

/* The most documents that begin inside one window of the part, plus the one that was open before. One
 * pass over the document offsets: they are sorted, so the windows come in order. */
static int64_t max_docs_of(const weft_tokens *t, const part *p, int64_t T)
{
    int64_t best = 1, window = -1, docs = 0;
    if (p->windows == 0) return best;
    const int64_t end = p->begin + p->windows * T;
    for (int64_t d = document_of(t, p->begin) + 1; d < t->docs && t->offset[d] < end; d++) {
        const int64_t begin = t->offset[d] - p->begin;
        if (t->offset[d] == t->offset[d + 1] || begin % T == 0) continue; /* empty, or it opens its window */
        if (begin / T != window) {
            window = begin / T;
            docs = 1;
        }
        best = weft_max_i64(best, ++docs);
    }
    return best;
}

/* ---- set-up --------------------------------------------------------------------------------------------- */

static weft_status check_options(const weft_tokens *t, const weft_batch_options *o)
{
    if (o->T < 1 || o->T == INT64_MAX)
        return weft_fail(WEFT_ERR_REFUSED, "%s: a sequence length of %lld; expected at least 1", t->path,
                         (long long)o->T);
    if (!(o->valid_fraction >= 0 && o->valid_fraction < 1))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %g of the tokens for evaluation; expected 0 <= x < 1", t->path,
                         o->valid_fraction);
    return WEFT_OK;
}

/* A part of the tokens, in thousandths, that leaves one window on both sides; 0 when there is none. */
static double fraction_that_works(int64_t count, int64_t T)
{
    for (int k = 1; k < 1000; k++) {
        const int64_t kept = (int64_t)((double)count * k / 1000);
        if (kept > T && count - kept > T) return k / 1000.0;
    }
    return 0;
}

static weft_status check_windows(const weft_tokens *t, const weft_batches *b)
{
    const int64_t have = b->train.end - b->train.begin, eval = b->valid.end - b->valid.begin;
    if (b->train.windows == 0 && have < 2)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %lld tokens for training; even a sequence of 1 token needs 2", t->path,
                         (long long)have);
    if (b->train.windows == 0)
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s: %lld tokens for training, one sequence of T = %lld needs %lld; the largest T "
                         "that works is %lld",
                         t->path, (long long)have, (long long)b->o.T, (long long)b->o.T + 1, (long long)have - 1);
    if (b->o.valid_fraction == 0 || b->valid.windows > 0) return WEFT_OK;
    const double works = fraction_that_works(t->count, b->o.T);
    char advice[64] = "use 0 (none) or a shorter T";
    if (works > 0) weft_format(advice, sizeof advice, "use %g, or 0 (none)", works);
    return weft_fail(WEFT_ERR_REFUSED,
                     "%s: a valid-fraction of %g is %lld tokens for evaluation, one sequence of T = %lld needs "
                     "%lld; %s",
                     t->path, b->o.valid_fraction, (long long)eval, (long long)b->o.T, (long long)b->o.T + 1, advice);
}

weft_status weft_batches_create(weft_batches **out, weft_arena *arena, const weft_tokens *tokens,
                                const weft_batch_options *o)
{
    WEFT_TRY(check_options(tokens, o));
    const int64_t kept = (int64_t)((double)tokens->count * o->valid_fraction), split = tokens->count - kept;
    weft_batches made = {.tokens = tokens,
                         .o = *o,
                         .train = cut(0, split, o->T),
                         .valid = cut(split, tokens->count, o->T)};
    WEFT_TRY(check_windows(tokens, &made));
    made.max_docs = o->document_mask
                        ? weft_max_i64(max_docs_of(tokens, &made.train, o->T), max_docs_of(tokens, &made.valid, o->T))
                        : 1;
    weft_batches *b;
    WEFT_TRY(WEFT_NEW(arena, 1, "batches", &b));
    *b = made;
    *out = b;
    return WEFT_OK;
}

int64_t weft_batches_windows(const weft_batches *b, bool valid) { return valid ? b->valid.windows : b->train.windows; }
int64_t weft_batches_max_docs(const weft_batches *b) { return b->max_docs; }

/* ---- one sequence --------------------------------------------------------------------------------------- */

/* Cuts the window at document bounds and takes the label away that would cross one. */
static void mask_documents(const weft_tokens *t, int64_t first, int64_t T, weft_sequence *out)
{
    out->docs = 0;
    out->cu[0] = 0;
    for (int64_t d = document_of(t, first); out->cu[out->docs] < T; d++) {
        if (t->offset[d + 1] == t->offset[d]) continue;
        const int64_t end = t->offset[d + 1] - first; /* may be T or more: the document goes on */
        if (end <= T) out->target[end - 1] = -100;
        out->cu[++out->docs] = weft_min_i64(end, T);
    }
}

weft_status weft_batches_sequence(const weft_batches *b, bool valid, int64_t i, weft_sequence *out)
{
    const part *p = valid ? &b->valid : &b->train;
    const int64_t T = b->o.T;
    if (i < 0 || p->windows == 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s: sequence %lld of %lld %s windows", b->tokens->path, (long long)i,
                         (long long)p->windows, valid ? "evaluation" : "training");
    /* Evaluation reads in file order: its first k sequences are the same in every evaluation. */
    const int64_t epoch = i / p->windows, k = i % p->windows;
    const int64_t w = valid ? k : weft_permute(b->o.seed, (uint32_t)epoch, p->windows, k);
    const int64_t first = p->begin + w * T, labels = weft_min_i64(T, p->end - first - 1);
    WEFT_TRY(weft_tokens_read(b->tokens, first, T, out->token));
    memcpy(out->target, out->token + 1, (size_t)(T - 1) * sizeof *out->target);
    out->target[T - 1] = -100;
    if (labels == T) WEFT_TRY(weft_tokens_read(b->tokens, first + T, 1, out->target + T - 1));
    out->window = valid ? b->train.windows + w : w;
    out->docs = 1;
    out->cu[0] = 0;
    out->cu[1] = T;
    if (b->o.document_mask) mask_documents(b->tokens, first, T, out);
    return WEFT_OK;
}
