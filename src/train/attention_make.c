/* attention_make.c — an attention case from a line of text, every value by its address: a rank makes its own rows and
 * nobody holds a whole tensor, so a million tokens fit. */
#include "train/attention_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the text --------------------------------------------------------------------------------------- */

enum { MAX_HEADS = 1 << 20 };

typedef struct spec { /* what is not in the problem yet */
    const char *docs;
    bool sinks, alibi;
} spec;

static const char *const keys[] = {"T",      "Tq",    "B",       "H",    "D",     "causal", "window",
                                   "prefix", "scale", "softcap", "docs", "sinks", "alibi"};
enum { KEYS = sizeof keys / sizeof *keys };

static int key_index(const char *key)
{
    int i = 0;
    while (i < KEYS && strcmp(key, keys[i])) i++;
    return i;
}

static weft_status number(const char *key, const char *text, int64_t min, int64_t *out)
{
    weft_status st = text ? weft_parse_size(text, out) : weft_fail(WEFT_ERR_REFUSED, "a number is missing");
    if (st >= 0 && *out < min) st = weft_fail(WEFT_ERR_REFUSED, "%lld; at least %lld", (long long)*out, (long long)min);
    return st < 0 ? weft_fail_at(st, "%s: ", key) : WEFT_OK;
}

/* "4/2" into two numbers, "4" into twice the same. */
static weft_status pair_of(const char *key, char *text, int64_t min, int64_t *a, int64_t *b, char separator)
{
    char *second = text ? strchr(text, separator) : NULL;
    if (second) *second++ = 0;
    WEFT_TRY(number(key, text, min, a));
    *b = *a;
    return second ? number(key, second, min, b) : WEFT_OK;
}

static weft_status real(const char *key, const char *text, double *out)
{
    weft_status st = text ? weft_parse_f64(text, out) : weft_fail(WEFT_ERR_REFUSED, "a number is missing");
    return st < 0 ? weft_fail_at(st, "%s: ", key) : WEFT_OK;
}

static weft_status flag(const char *key, const char *text, bool *out)
{
    if (text) return weft_fail(WEFT_ERR_REFUSED, "%s takes no value; leave out \"=%s\"", key, text);
    *out = true;
    return WEFT_OK;
}

static weft_status heads(weft_cp_problem *p, char *text)
{
    int64_t a = 0, b = 0;
    WEFT_TRY(pair_of("H", text, 1, &a, &b, '/'));
    if (a > MAX_HEADS) return weft_fail(WEFT_ERR_REFUSED, "H=%lld; at most %d query heads", (long long)a, MAX_HEADS);
    if (b > a || a % b)
        return weft_fail(WEFT_ERR_REFUSED, "H=%lld/%lld; query heads must be a multiple of key/value heads",
                         (long long)a, (long long)b);
    p->H = (int)a, p->Hkv = (int)b;
    return WEFT_OK;
}

static weft_status head_sizes(weft_cp_problem *p, char *text)
{
    int64_t a = 0, b = 0;
    WEFT_TRY(pair_of("D", text, 1, &a, &b, '/'));
    if (a > WEFT_ATTN_MAX_D || b > WEFT_ATTN_MAX_D)
        return weft_fail(WEFT_ERR_REFUSED, "D=%lld/%lld; at most %d", (long long)a, (long long)b, WEFT_ATTN_MAX_D);
    p->D = (int)a, p->Dv = (int)b;
    return WEFT_OK;
}

/* window=255: itself and 255 keys before; window=255,16: and 16 after. */
static weft_status window(weft_cp_problem *p, char *text)
{
    bool both = text && strchr(text, ',');
    WEFT_TRY(pair_of("window", text, 0, &p->mask.left, &p->mask.right, ','));
    if (!both) p->mask.right = -1;
    return WEFT_OK;
}

/* `word` as it was written, `key` its part before a number: what is near the whole word is the better guess. */
static weft_status unknown_word(const char *own_words, const char *word, const char *key)
{
    char copy[64] = "", *rest = NULL;
    const char *own[sizeof copy / 2], *near;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", own_words ? own_words : "");
    for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) own[n++] = w;
    near = weft_suggest(word, own, n);
    if (!near) near = weft_suggest(key, keys, KEYS);
    return weft_fail(WEFT_ERR_REFUSED,
                     "\"%s\" is not known%s%s%s; write %s%sT=1001 Tq=7 B=2 H=4/2 D=64/32 causal window=255,0 "
                     "prefix=16 scale=0.1 softcap=30 docs=100,0,* (or docs=random:8, docs=each:1K) sinks alibi",
                     word, near ? "; did you mean " : "", near ? near : "", near ? "?" : "",
                     own_words ? own_words : "", own_words ? " " : "");
}

static weft_status take_word(weft_cp_problem *p, spec *x, const char *key, char *value)
{
    if (!strcmp(key, "T")) return number(key, value, 1, &p->T);
    if (!strcmp(key, "Tq")) return number(key, value, 1, &p->Tq);
    if (!strcmp(key, "B")) return number(key, value, 1, &p->B);
    if (!strcmp(key, "H")) return heads(p, value);
    if (!strcmp(key, "D")) return head_sizes(p, value);
    if (!strcmp(key, "causal")) return flag(key, value, &p->mask.causal);
    if (!strcmp(key, "window")) return window(p, value);
    if (!strcmp(key, "prefix")) return number(key, value, 0, &p->mask.prefix);
    if (!strcmp(key, "scale")) return real(key, value, &p->scale);
    if (!strcmp(key, "softcap")) return real(key, value, &p->softcap);
    if (!strcmp(key, "sinks")) return flag(key, value, &x->sinks);
    if (!strcmp(key, "alibi")) return flag(key, value, &x->alibi);
    if (!value) return weft_fail(WEFT_ERR_REFUSED, "docs: lengths are missing, as in docs=100,0,*");
    x->docs = value;
    return WEFT_OK;
}

/* "H=4/2" and, as people write it, "H4/2": splits the word into its key, which goes to `key`, and its value. */
static char *split_word(char *word, char key[16])
{
    size_t name = strcspn(word, "="), short_name = strcspn(word, "0123456789");
    bool equals = word[name] == '=', number = !equals && word[short_name];
    size_t len = number ? short_name : name;
    snprintf(key, 16, "%.*s", (int)weft_min_i64((int64_t)len, 15), word);
    return equals ? word + name + 1 : number ? word + len : NULL;
}

static weft_status read_words(weft_cp_problem *p, spec *x, const char *own_words, char *text)
{
    char *rest = NULL, key[16];
    bool seen[KEYS] = {false};
    for (char *word = strtok_r(text, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest)) {
        char *value = split_word(word, key);
        int i = key_index(key);
        if (i == KEYS) return unknown_word(own_words, word, key);
        if (seen[i])
            return weft_fail(WEFT_ERR_REFUSED, "%s is given twice, the second time as \"%s\"; leave one out", key,
                             word);
        seen[i] = true;
        WEFT_TRY(take_word(p, x, key, value));
    }
    if (!p->T || !p->H || !p->D)
        return weft_fail(WEFT_ERR_REFUSED, "T, H and D are needed, as in \"T=1001 H=4/2 D=64\"");
    if (!p->Tq) p->Tq = p->T;
    if (p->Tq > p->T)
        return weft_fail(WEFT_ERR_REFUSED, "%lld queries for %lld keys; queries are the last part of the keys",
                         (long long)p->Tq, (long long)p->T);
    if (p->scale == 0) p->scale = 1 / sqrt((double)p->D);
    int64_t most[] = {p->B, p->T, p->H, weft_max_i64(p->D, p->Dv)}, count;
    return weft_count_of(most, 4, "a tensor", &count);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static weft_status make_docs(weft_attention_case *c, const spec *x)
{
    return weft_docs_from_text(&c->docs, c->arena, x->docs ? x->docs : "*", c->problem.B, c->problem.T, c->seed);
}

/* ---- values ----------------------------------------------------------------------------------------- */

/* The sinks' number in the address, above those of the tensors. */
enum { SINKS = 100 };

static void normals(uint64_t seed, int tensor, int64_t address, int64_t n, double *x)
{
    int64_t calls = weft_ceil_div(n, 4);
    for (int64_t i = 0; i < calls; i++) {
        uint64_t at = (uint64_t)(address * calls + i);
        double four[4];
        weft_philox_out w = weft_philox(seed, (uint32_t)at, (uint32_t)(at >> 32), (uint32_t)tensor,
                                        weft_philox_word3(0, 0, WEFT_SITE_SAMPLE));
        weft_normal_pair(w.w[0], w.w[1], four);
        weft_normal_pair(w.w[2], w.w[3], four + 2);
        memcpy(x + 4 * i, four, (size_t)weft_min_i64(4, n - 4 * i) * sizeof *x);
    }
}

static bool has_gradient(const weft_attention_case *c, int64_t token)
{
    return !c->spots || bsearch(&token, c->spot, (size_t)c->spots, sizeof token, ascending);
}

/* One head at a time: a row may be wide. */
void weft__case_value(const weft_attention_case *c, int tensor, int64_t token, void *row)
{
    int64_t heads_here = weft__case_of_keys(tensor) ? c->problem.Hkv : c->problem.H;
    int64_t size = weft__case_width(c, tensor) / heads_here;
    double x[WEFT_ATTN_MAX_D];
    bool zero = tensor == WEFT_CASE_DO && !has_gradient(c, token);
    for (int64_t h = 0; h < heads_here; h++) {
        if (zero) memset(x, 0, sizeof x);
        else normals(c->seed, tensor, token * heads_here + h, size, x);
        weft_convert((char *)row + (size_t)(h * size) * weft_dtype_size(c->C), c->C, x, WEFT_F64, size);
    }
}

static weft_status make_heads(weft_attention_case *c, const spec *x)
{
    const weft_cp_problem *p = &c->problem;
    if (x->sinks) {
        WEFT_TRY(WEFT_NEW(c->arena, p->H, "sinks", (double **)&c->sinks));
        for (int h = 0; h < p->H; h++) {
            double value;
            normals(c->seed, SINKS, h, 1, &value);
            weft_store(c->sinks, c->R, h, value);
        }
    }
    if (!x->alibi) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(c->arena, p->H, "alibi", (double **)&c->alibi));
    /* the slopes that ALiBi's paper gives to H heads */
    for (int h = 0; h < p->H; h++) weft_store(c->alibi, c->R, h, exp2(-8.0 * (h + 1) / p->H));
    return WEFT_OK;
}

static weft_status choose_spots(weft_attention_case *c)
{
    enum { EPOCH = 0x5907 };
    int64_t rows = c->problem.B * c->problem.Tq;
    if (!c->spots) return WEFT_OK;
    c->spots = weft_min_i64(c->spots, rows);
    WEFT_TRY(WEFT_NEW(c->arena, c->spots, "spots", &c->spot));
    for (int64_t i = 0; i < c->spots; i++) c->spot[i] = weft_permute(c->seed, EPOCH, rows, i);
    qsort(c->spot, (size_t)c->spots, sizeof *c->spot, ascending);
    return WEFT_OK;
}

static weft_status make(weft_attention_case *c, const char *text)
{
    spec x = {0};
    size_t size = strlen(text) + 1;
    char *copy = NULL;
    WEFT_TRY(weft_arena_alloc(c->arena, (int64_t)size, 1, "made case", (void **)&copy));
    memcpy(copy, text, size);
    c->problem.B = 1;
    c->problem.mask.left = c->problem.mask.right = -1;
    WEFT_TRY(read_words(&c->problem, &x, c->own_words, copy));
    WEFT_TRY(make_docs(c, &x));
    WEFT_TRY(make_heads(c, &x));
    return choose_spots(c);
}

weft_status weft__case_make(weft_attention_case *c, const char *text)
{
    weft_status st = make(c, text);
    return st < 0 ? weft_fail_at(st, "%s: ", c->name) : WEFT_OK;
}
