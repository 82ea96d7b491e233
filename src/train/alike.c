/* alike.c — whether all ranks were given the same. A launcher starts processes that know nothing of each other: words
 * that differ, or a node with another copy of the data, would make a run whose numbers mean nothing. */
#include "train/train.h"

#include <stdlib.h>
#include <string.h>

/* ---- options ------------------------------------------------------------------------------------------ */

/* What a rank may have of its own: how many threads, and where its node keeps a file that is compared by what it holds.
 * Of a profile it is the plan that comes of it. */
static bool is_own(const char *line)
{
    static const char *const own[] = {"run.threads: ", "data.path: ", "parallel.profile: "};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strncmp(line, own[i], strlen(own[i]))) return true;
    return false;
}

static weft_status compare_lines(const char *mine, const char *root)
{
    while (*mine || *root) {
        int n = (int)strcspn(mine, "\n"), m = (int)strcspn(root, "\n");
        if ((n != m || strncmp(mine, root, (size_t)n)) && !(is_own(mine) && is_own(root)))
            return weft_fail(WEFT_ERR_REFUSED, "%.*s, and rank 0 has %.*s; give all ranks the same options", n, mine, m,
                             root);
        mine += n + (mine[n] == '\n');
        root += m + (root[m] == '\n');
    }
    return WEFT_OK;
}

/* Rank 0's text on every rank; the caller frees it. */
static weft_status text_of_root(weft_comm *all, const weft_text *mine, char **out)
{
    int64_t bytes = (int64_t)mine->len;
    WEFT_TRY(weft_broadcast(all, &bytes, sizeof bytes, 0));
    char *text = malloc((size_t)bytes + 1);
    weft_status st = text ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory for the options of rank 0");
    st = weft_agree(all, st);
    if (st >= 0 && weft_comm_rank(all) == 0) memcpy(text, mine->data, mine->len);
    if (st >= 0) st = weft_broadcast(all, text, (size_t)bytes, 0);
    if (st < 0) {
        free(text);
        return st;
    }
    text[bytes] = '\0';
    *out = text;
    return WEFT_OK;
}

weft_status weft_run_same_options(weft_comm *all, const char *command, const weft_opts *opts)
{
    weft_text mine = {0};
    char *root = NULL;
    if (weft_comm_size(all) == 1) return WEFT_OK;
    weft_text_add(&mine, "command: %s\n", command);
    weft_opts_lines(opts, &mine);
    weft_status st = mine.failed ? weft_fail(WEFT_ERR_MEMORY, "no memory for the options as text") : WEFT_OK;
    st = weft_agree(all, st);
    if (st >= 0) st = text_of_root(all, &mine, &root);
    if (st >= 0) st = weft_agree(all, compare_lines(mine.data, root));
    free(root);
    weft_text_free(&mine);
    return st;
}

/* ---- data ---------------------------------------------------------------------------------------------- */

typedef struct sight { /* of one rank, as it travels */
    weft_hash hash;
    int64_t tokens, docs;
} sight;

static weft_status compare_sights(const sight *all, int n, const char *path)
{
    for (int r = 1; r < n; r++) {
        const sight *a = &all[0], *b = &all[r];
        if (a->tokens == b->tokens && a->docs == b->docs && weft_hash_same(a->hash, b->hash)) continue;
        return weft_fail(WEFT_ERR_REFUSED,
                         "rank %d reads other data than rank 0 from %s: %lld tokens in %lld documents, not %lld in "
                         "%lld%s; give all ranks the same file",
                         r, path, (long long)b->tokens, (long long)b->docs, (long long)a->tokens, (long long)a->docs,
                         a->tokens == b->tokens && a->docs == b->docs ? ", and other bytes" : "");
    }
    return WEFT_OK;
}

weft_status weft_run_same_data(weft_comm *all, const weft_tokens *tokens, const char *path)
{
    int n = weft_comm_size(all);
    sight mine = {.tokens = weft_tokens_count(tokens), .docs = weft_tokens_docs(tokens)};
    if (n == 1) return WEFT_OK;
    mine.hash = weft_tokens_glance(tokens);
    sight *of = malloc((size_t)n * sizeof *of);
    size_t *bytes = malloc((size_t)n * sizeof *bytes);
    weft_status st = of && bytes ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory to compare what %d ranks read", n);
    st = weft_agree(all, st);
    for (int r = 0; st >= 0 && r < n; r++) bytes[r] = sizeof *of;
    if (st >= 0) st = weft_all_gather(all, &mine, of, bytes);
    if (st >= 0) st = weft_agree(all, compare_sights(of, n, path));
    free(of);
    free(bytes);
    return st;
}
