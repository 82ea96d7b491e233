/* fuzz_state.c — state.json of a checkpoint: refused, or a state that survives being written and read again, with a
 * record of options that can be compared. */
#include "fuzz/fuzz.h"

#include <jansson.h>

#include "train/train.h"

static void write_and_read(const weft_train_state *s, const weft_run_options *o)
{
    weft_text first = {0}, second = {0};
    weft_train_state again;
    FUZZ_CHECK(weft_train_state_text(s, o, &first) == WEFT_OK);
    FUZZ_CHECK(weft_train_state_read(&again, NULL, "again", first.data, first.len) == WEFT_OK);
    FUZZ_CHECK(weft_train_state_text(&again, o, &second) == WEFT_OK);
    fuzz_same_text(&first, &second);
    weft_text_free(&first);
    weft_text_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static weft_mem mem;
    static weft_run_options values;
    char *text = fuzz_string(data, size);
    weft_train_state s;
    json_t *record = NULL;
    if (fuzz_taken(weft_train_state_read(&s, &record, "state.json", text, size))) {
        int n = 0;
        const weft_opt *table = weft_run_table(&n);
        weft_arena *arena = NULL;
        weft_opts opts;
        weft_text differs = {0};
        mem = (weft_mem){0};
        values = (weft_run_options){0};
        FUZZ_CHECK(weft_arena_create(&arena, &mem, "options", NULL) == WEFT_OK);
        FUZZ_CHECK(weft_opts_init(&opts, table, n, WEFT_CMD_TRAIN, &values, arena) == WEFT_OK);
        fuzz_taken(weft_train_state_compare(record, &values, "state.json", &differs));
        write_and_read(&s, &values);
        weft_text_free(&differs);
        weft_arena_destroy(arena);
    }
    json_decref(record);
    free(text);
    return 0;
}
