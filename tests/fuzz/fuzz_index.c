/* fuzz_index.c — model.safetensors.index.json beside two shards: refused, or every tensor that it names is found in the
 * file that it names. */
#include "fuzz/fuzz_folder.h"

#include "ckpt/ckpt_impl.h"

static void write_shards(void)
{
    char path[128];
    const float x[2] = {1, 2};
    const weft_view v = {.data = (void *)(uintptr_t)x, .dtype = WEFT_F32, .nd = 1, .shape = {2}};
    const weft_st_entry a[] = {{"model.a", v}, {"model.b", v}}, b[] = {{"lm_head.weight", v}};
    fuzz_path(path, "1.safetensors");
    FUZZ_CHECK(weft_st_write(path, a, 2, NULL) == WEFT_OK);
    fuzz_path(path, "2.safetensors");
    FUZZ_CHECK(weft_st_write(path, b, 1, NULL) == WEFT_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft__hf hf;
    if (fuzz_folder_take(WEFT__HF_INDEX, data, size)) write_shards();
    if (fuzz_taken(weft__hf_open(&hf, fuzz_the_folder.dir))) {
        FUZZ_CHECK(hf.n >= 1 && hf.n <= 3);
        for (int i = 0; i < hf.n; i++) FUZZ_CHECK(weft__hf_find(&hf, hf.tensor[i].name) == &hf.tensor[i]);
    }
    weft__hf_close(&hf);
    return 0;
}
