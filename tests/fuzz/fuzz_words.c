/* fuzz_words.c — the words of a command line, one a line: flags of the table, and the small languages inside their
 * values (--make, --docs, layouts, rank orders, loss scales). */
#include "fuzz/fuzz.h"
#include "fuzz/fuzz_memory.h"

#include "train/attention_case.h"

enum { WORDS = 64 };

static void use_values(const weft_run *run, weft_arena *arena)
{
    const weft_run_options *o = run->o;
    weft_docs docs;
    if (o->sim_docs) fuzz_taken_or_full(weft_docs_from_text(&docs, arena, o->sim_docs, 2, 1000, 1));
    if (o->make) {
        weft_attention_case c =
            {.name = "--make", .run = run, .arena = arena, .C = WEFT_F32, .R = WEFT_F32, .spots = o->spot, .seed = 1};
        if (fuzz_taken_or_full(weft__case_make(&c, o->make))) FUZZ_CHECK(weft_docs_check(&c.docs) == WEFT_OK);
    }
    weft_model_config config;
    if (!o->model_dir && !o->model_config) fuzz_taken(weft_run_model_config(run, &config));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static weft_mem mem;
    static weft_run_options values;
    char *text = fuzz_string(data, size), *rest = NULL, *word[WORDS];
    const char *positional[2];
    int n = 0, n_table = 0, n_positional = 0;
    for (char *w = strtok_r(text, "\n", &rest); w && n < WORDS; w = strtok_r(NULL, "\n", &rest)) word[n++] = w;
    const weft_opt *table = weft_run_table(&n_table);
    weft_arena *arena = fuzz_arena(&mem);
    weft_opts opts;
    weft_run run;
    values = (weft_run_options){0};
    FUZZ_CHECK(weft_opts_init(&opts, table, n_table, UINT32_MAX, &values, arena) == WEFT_OK);
    if (fuzz_taken(weft_opts_argv(&opts, n, word, positional, 2, &n_positional))) {
        values.profile = NULL; /* a file of another kind, with a target of its own */
        if (fuzz_taken(weft_run_resolve(&run, &opts, &values))) use_values(&run, arena);
    }
    weft_arena_destroy(arena);
    free(text);
    return 0;
}
