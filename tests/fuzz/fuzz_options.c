/* fuzz_options.c — a configuration file (YAML) against the whole option table: refused, or values that the record of
 * the run gives again. What contradicts is found when the options are resolved. */
#include "fuzz/fuzz.h"

#include "train/train.h"

typedef struct reading {
    weft_mem mem;
    weft_arena *arena;
    weft_run_options values;
    weft_opts opts;
} reading;

static bool read_yaml(reading *r, const void *text, size_t size)
{
    int n = 0;
    const weft_opt *table = weft_run_table(&n);
    *r = (reading){0};
    FUZZ_CHECK(weft_arena_create(&r->arena, &r->mem, "options", NULL) == WEFT_OK);
    FUZZ_CHECK(weft_opts_init(&r->opts, table, n, WEFT_CMD_TRAIN, &r->values, r->arena) == WEFT_OK);
    fuzz_file f = fuzz_file_open(text, size);
    bool taken = fuzz_taken(weft_opts_yaml(&r->opts, f.path));
    fuzz_file_close(&f);
    return taken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static reading first, second; /* not on the stack: an account of memory is large */
    if (read_yaml(&first, data, size)) {
        weft_text a = {0}, b = {0}, table = {0};
        weft_run run;
        weft_opts_yaml_text(&first.opts, &a);
        FUZZ_CHECK(read_yaml(&second, a.data, a.len));
        weft_opts_yaml_text(&second.opts, &b);
        fuzz_same_text(&a, &b);
        weft_opts_table(&first.opts, false, &table);
        first.values.profile = NULL; /* a file of another kind, with a target of its own */
        fuzz_taken(weft_run_resolve(&run, &first.opts, &first.values));
        weft_text_free(&a);
        weft_text_free(&b);
        weft_text_free(&table);
        weft_arena_destroy(second.arena);
    }
    weft_arena_destroy(first.arena);
    return 0;
}
