/* attention_write.c — what `weft attention --out` writes: the results of a case; of a made case everything that another
 * program needs to compute it too. */
#include "train/attention_case.h"

enum { KEYS = 8, TEXT = 40 };

typedef struct metadata {
    char text[KEYS][TEXT];
    const char *list[2 * KEYS + 1]; /* key, value, ..., NULL */
    int n;
} metadata;

static void put(metadata *m, const char *key, const char *format, double value)
{
    weft_format(m->text[m->n], TEXT, format, value);
    m->list[2 * m->n] = key;
    m->list[2 * m->n + 1] = m->text[m->n];
    m->n++;
}

weft_status weft__case_write(const weft_attention_case *c, const weft_st_entry *entries, int n)
{
    const weft_cp_problem *p = &c->problem;
    weft_st_entry all[32];
    metadata m = {.n = 0};
    if (p->dropout > 0) {
        put(&m, "dropout", "%.17g", p->dropout);
        put(&m, "dropout_seed", "%.0f", (double)p->seed);
    }
    if (c->file) return weft_st_write(c->run->o->out, entries, n, m.n ? m.list : NULL);
    if (n >= (int)(sizeof all / sizeof *all)) return weft_fail(WEFT_ERR_INTERNAL, "%d tensors to write", n);
    for (int i = 0; i < n; i++) all[i] = entries[i];
    /* the same documents in every row: those of row 0 */
    all[n] = (weft_st_entry){"cu_seqlens", {.data = (void *)(uintptr_t)c->docs.cu, .dtype = WEFT_I64, .nd = 1,
                                            .shape = {c->docs.first[1]}}};
    put(&m, "causal", "%.0f", p->mask.causal);
    put(&m, "window_left", "%.0f", (double)p->mask.left);
    put(&m, "window_right", "%.0f", (double)p->mask.right);
    put(&m, "prefix", "%.0f", (double)p->mask.prefix);
    put(&m, "scale", "%.17g", p->scale);
    put(&m, "softcap", "%.17g", p->softcap);
    return weft_st_write(c->run->o->out, all, n + 1, m.list);
}
