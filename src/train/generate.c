/* generate.c — continues a prompt, one token at a time, with cached keys and values. */
#include "train/train.h"

#include <math.h>
#include <stdlib.h>

typedef struct choice {
    double p;
    int32_t id;
} choice;

static int by_probability(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? 1 : -1;
    return x->id < y->id ? -1 : 1; /* ties by id: the same sample everywhere */
}

static int32_t greedy(const void *logits, weft_dtype t, int64_t V)
{
    int64_t best = 0;
    for (int64_t i = 1; i < V; i++)
        if (weft_load(logits, t, i) > weft_load(logits, t, best)) best = i;
    return (int32_t)best;
}

/* Softmax at a temperature, cut to the smallest set of likeliest tokens with total >= top_p. */
static int32_t sample(const void *logits, weft_dtype t, int64_t V, const weft_sampling *s, int64_t at, choice *list)
{
    double top = weft_load(logits, t, greedy(logits, t, V)), sum = 0, kept = 0;
    for (int64_t i = 0; i < V; i++) {
        list[i] = (choice){exp((weft_load(logits, t, i) - top) / s->temperature), (int32_t)i};
        sum += list[i].p;
    }
    qsort(list, (size_t)V, sizeof *list, by_probability);
    int64_t n = 0;
    while (n < V && (n == 0 || kept < s->top_p * sum)) kept += list[n++].p;
    uint32_t w3 = weft_philox_word3(0, 0, WEFT_SITE_SAMPLE);
    double u = (double)weft_philox(s->seed, (uint32_t)at, (uint32_t)((uint64_t)at >> 32), 0, w3).w[0] * 0x1p-32 * kept;
    for (int64_t i = 0; i < n; i++)
        if ((u -= list[i].p) < 0) return list[i].id;
    return list[n - 1].id;
}

/* In pieces, so that a long prompt can be watched; whole ones of the decoder's, so the bits are the same. */
static weft_status feed_prompt(weft_decoder *d, const int32_t *prompt, int64_t n, const weft_sampling *s, void *logits,
                               void *ud)
{
    enum { PIECE = 512 };
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t rows = weft_min_i64(PIECE, n - first);
        WEFT_TRY(weft_decoder_feed(d, prompt + first, rows, logits));
        if (s->fed) s->fed(ud, first + rows, n);
    }
    return WEFT_OK;
}

static weft_status generate_with(weft_decoder *d, weft_dtype t, int64_t V, const int32_t *prompt, int64_t n,
                                 const weft_sampling *s, void *logits, choice *list, void (*emit)(void *, int32_t),
                                 void *ud)
{
    WEFT_TRY(feed_prompt(d, prompt, n, s, logits, ud));
    for (int64_t i = 0; i < s->max_new; i++) {
        for (int64_t k = 0; k < V; k++)
            if (!isfinite(weft_load(logits, t, k)))
                return weft_fail(WEFT_ERR_NUMERIC, "logit %lld of position %lld is not finite; the weights are damaged",
                                 (long long)k, (long long)(n + i));
        int32_t next = s->temperature > 0 ? sample(logits, t, V, s, n + i, list) : greedy(logits, t, V);
        emit(ud, next);
        if (next == s->eos || i + 1 == s->max_new) break;
        WEFT_TRY(weft_decoder_feed(d, &next, 1, logits));
    }
    return WEFT_OK;
}

weft_status weft_generate(weft_model *model, const weft_model_config *config, weft_prec prec, const int32_t *prompt,
                          int64_t n, const weft_sampling *s, void (*emit)(void *ud, int32_t token), void *ud)
{
    if (n < 1) return weft_fail(WEFT_ERR_REFUSED, "the prompt is empty; give at least one token");
    for (int64_t i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= config->V)
            return weft_fail(WEFT_ERR_REFUSED, "token %lld of the prompt is %d; the vocabulary has ids 0 to %lld",
                             (long long)i, prompt[i], (long long)config->V - 1);
    weft_decoder *d = NULL;
    WEFT_TRY(weft_decoder_create(&d, model, n + s->max_new));
    void *logits = malloc((size_t)config->V * sizeof(double));
    choice *list = malloc((size_t)config->V * sizeof *list);
    weft_status st = logits && list
                         ? generate_with(d, weft_prec_real(prec), config->V, prompt, n, s, logits, list, emit, ud)
                         : weft_fail(WEFT_ERR_MEMORY, "no memory for %lld logits", (long long)config->V);
    free(logits);
    free(list);
    weft_decoder_destroy(d);
    return st;
}
