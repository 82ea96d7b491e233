/* fuzz_manifest.c — manifest.json of a checkpoint. It carries a checksum of its body, which no fuzzer guesses: the
 * input is read as it is, and once more as the body under a checksum that fits. */
#include "fuzz/fuzz.h"

#include "ckpt/ckpt_impl.h"

static void parse(const char *text, size_t size)
{
    weft__manifest m, again;
    if (!fuzz_taken(weft__manifest_parse(&m, "manifest.json", text, size))) return;
    FUZZ_CHECK(m.about.files > 0 && m.about.file == m.file && m.about.step >= 0);
    for (int i = 0; i < m.about.files; i++)
        FUZZ_CHECK(m.file[i].bytes >= 0 && !strchr(m.file[i].name, '/') && weft__is_checkpoint_file(m.file[i].name));
    weft_text first = {0}, second = {0};
    FUZZ_CHECK(weft__manifest_text(&m.about, &first) == WEFT_OK);
    FUZZ_CHECK(weft__manifest_parse(&again, "again", first.data, first.len) == WEFT_OK);
    FUZZ_CHECK(weft__manifest_text(&again.about, &second) == WEFT_OK);
    fuzz_same_text(&first, &second);
    weft_text_free(&first);
    weft_text_free(&second);
    free(again.file);
    free(m.file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size), hash[WEFT_HASH_TEXT];
    weft_text framed = {0};
    parse(text, size);
    if (!memchr(text, 0, size)) {
        weft_text_add(&framed, "{\"xxh3_128\":\"%s\",\"manifest\":%s}\n",
                      weft_hash_text(weft_hash_of(text, size), hash), text);
        FUZZ_CHECK(!framed.failed);
        parse(framed.data, framed.len);
    }
    weft_text_free(&framed);
    free(text);
    return 0;
}
