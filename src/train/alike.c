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

/* A line without what makes it one of JSON. */
static int bare(const char **line)
{
    *line += strspn(*line, " ");
    int n = (int)strcspn(*line, "\n");
    return n - (n > 0 && (*line)[n - 1] == ',');
}

static weft_status compare_lines(const char *mine, const char *root, const char *what)
{
    while (*mine || *root) {
        int n = bare(&mine), m = bare(&root);
        if ((n != m || strncmp(mine, root, (size_t)n)) && !(is_own(mine) && is_own(root)))
            return weft_fail(WEFT_ERR_REFUSED, "%.*s, and rank 0 has %.*s; give all ranks the same %s", n, mine, m,
                             root, what);
        mine += strcspn(mine, "\n"), mine += *mine == '\n';
        root += strcspn(root, "\n"), root += *root == '\n';
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

/* The caller's text is freed. */
static weft_status same_lines(weft_comm *all, weft_text *mine, const char *what)
{
    char *root = NULL;
    weft_status st = mine->failed ? weft_fail(WEFT_ERR_MEMORY, "no memory for %s as text", what) : WEFT_OK;
    st = weft_agree(all, st);
    if (st >= 0) st = text_of_root(all, mine, &root);
    if (st >= 0) st = weft_agree(all, compare_lines(mine->data, root, what));
    free(root);
    weft_text_free(mine);
    return st;
}

weft_status weft_run_same_options(weft_comm *all, const char *command, const weft_opts *opts)
{
    weft_text mine = {0};
    if (weft_comm_size(all) == 1) return WEFT_OK;
    weft_text_add(&mine, "command: %s\n", command);
    weft_opts_lines(opts, &mine);
    return same_lines(all, &mine, "options");
}

weft_status weft_run_same_model(weft_comm *all, const weft_model_config *config)
{
    weft_text mine = {0};
    if (weft_comm_size(all) == 1) return WEFT_OK;
    weft_status st = weft_agree(all, weft_model_config_text(config, "float32", &mine));
    if (st >= 0) return same_lines(all, &mine, "config.json");
    weft_text_free(&mine);
    return st;
}

/* ---- files ----------------------------------------------------------------------------------------------- */

typedef struct sight { /* of one rank, as it travels */
    weft_glance file;
    int64_t tokens, docs; /* 0 where a file has none */
} sight;

static bool same_sight(const sight *a, const sight *b)
{
    return a->tokens == b->tokens && a->docs == b->docs && weft_glance_same(a->file, b->file);
}

/* The first rank that sees something else than rank 0, and what: pair[0] is rank 0's. All alike: 0. COLLECTIVE */
static weft_status first_other(weft_comm *all, const sight *mine, int *rank, sight pair[2])
{
    int n = weft_comm_size(all);
    *rank = 0;
    if (n == 1) return WEFT_OK;
    sight *of = malloc((size_t)n * sizeof *of);
    size_t *bytes = malloc((size_t)n * sizeof *bytes);
    weft_status st = of && bytes ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory to compare what %d ranks read", n);
    st = weft_agree(all, st);
    for (int r = 0; st >= 0 && r < n; r++) bytes[r] = sizeof *of;
    if (st >= 0) st = weft_all_gather(all, mine, of, bytes);
    for (int r = n - 1; st >= 0 && r > 0; r--)
        if (!same_sight(&of[0], &of[r])) *rank = r, pair[0] = of[0], pair[1] = of[r];
    free(of);
    free(bytes);
    return st;
}

weft_status weft_run_same_data(weft_comm *all, const weft_tokens *tokens, const char *path)
{
    const sight mine = {weft_comm_size(all) > 1 ? weft_tokens_glance(tokens) : (weft_glance){.bytes = 0},
                        weft_tokens_count(tokens), weft_tokens_docs(tokens)};
    sight x[2];
    int rank;
    WEFT_TRY(first_other(all, &mine, &rank, x));
    if (!rank) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED,
                     "rank %d reads other data than rank 0 from %s: %lld tokens in %lld documents, not %lld in "
                     "%lld%s; give all ranks the same file",
                     rank, path, (long long)x[1].tokens, (long long)x[1].docs, (long long)x[0].tokens,
                     (long long)x[0].docs,
                     x[0].tokens == x[1].tokens && x[0].docs == x[1].docs ? ", and other bytes" : "");
}

weft_status weft_run_same_file(weft_comm *all, const char *what, const char *path, weft_glance file)
{
    const sight mine = {.file = file};
    sight x[2];
    int rank;
    WEFT_TRY(first_other(all, &mine, &rank, x));
    if (!rank) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "rank %d reads other %s than rank 0 from %s: %lld bytes, not %lld%s; give all "
                     "ranks the same", rank, what, path, (long long)x[1].file.bytes, (long long)x[0].file.bytes,
                     x[0].file.bytes == x[1].file.bytes ? ", but other ones" : "");
}
