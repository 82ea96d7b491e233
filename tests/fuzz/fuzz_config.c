/* fuzz_config.c — config.json of a model directory: refused, or a config that passes its check and that survives being
 * written and read again. */
#include "fuzz/fuzz.h"

#include "model/model.h"

static void write_and_read(const weft_model_config *c)
{
    weft_text first = {0}, second = {0};
    weft_model_config again, kept = *c;
    FUZZ_CHECK(weft_model_config_text(c, "float32", &first) == WEFT_OK);
    fuzz_file f = fuzz_file_open(first.data, first.len);
    FUZZ_CHECK(weft_model_config_read(&again, f.path) == WEFT_OK);
    kept.dropout_asked = 0; /* not a model's */
    FUZZ_CHECK(memcmp(&kept, &again, sizeof kept) == 0);
    FUZZ_CHECK(weft_model_config_text(&again, "float32", &second) == WEFT_OK);
    fuzz_same_text(&first, &second);
    fuzz_file_close(&f);
    weft_text_free(&first);
    weft_text_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_file f = fuzz_file_open(data, size);
    weft_model_config c;
    if (fuzz_taken(weft_model_config_read(&c, f.path))) {
        weft_text unknown = {0};
        FUZZ_CHECK(weft_model_config_unknown(f.path, &unknown) == WEFT_OK);
        FUZZ_CHECK(weft_model_config_check(&c, "again") == WEFT_OK);
        FUZZ_CHECK(weft_model_params(&c) > 0);
        write_and_read(&c);
        weft_text_free(&unknown);
    }
    fuzz_file_close(&f);
    return 0;
}
