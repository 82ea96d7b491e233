/* fuzz_index.c — model.safetensors.index.json beside two shards: refused, or every tensor that it names is found in the
 * file that it names. */
#include "fuzz/fuzz.h"

#include <sys/stat.h>

#include "ckpt/ckpt_impl.h"

/* The folder lives as long as the process; its index is a link to the input at hand, which is never on a disk. */
static const char *folder(int *input)
{
    static char dir[64];
    static int file = -1;
    char path[96], link[64];
    *input = file;
    if (dir[0]) return dir;
    snprintf(dir, sizeof dir, "/tmp/weft-fuzz-%ld", (long)getpid());
    FUZZ_CHECK(mkdir(dir, 0700) == 0);
    const float x[2] = {1, 2};
    const weft_view v = {.data = (void *)(uintptr_t)x, .dtype = WEFT_F32, .nd = 1, .shape = {2}};
    const weft_st_entry a[] = {{"model.a", v}, {"model.b", v}}, b[] = {{"lm_head.weight", v}};
    snprintf(path, sizeof path, "%s/1.safetensors", dir);
    FUZZ_CHECK(weft_st_write(path, a, 2, NULL) == WEFT_OK);
    snprintf(path, sizeof path, "%s/2.safetensors", dir);
    FUZZ_CHECK(weft_st_write(path, b, 1, NULL) == WEFT_OK);
    *input = file = memfd_create("index", 0);
    snprintf(path, sizeof path, "%s/" WEFT__HF_INDEX, dir);
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    FUZZ_CHECK(file >= 0 && symlink(link, path) == 0);
    return dir;
}

__attribute__((destructor)) static void remove_folder(void)
{
    static const char *const names[] = {"1.safetensors", "2.safetensors", WEFT__HF_INDEX, ""};
    char path[96];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "/tmp/weft-fuzz-%ld/%s", (long)getpid(), names[i]);
        remove(path);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int input;
    const char *dir = folder(&input);
    FUZZ_CHECK(ftruncate(input, 0) == 0 && pwrite(input, data, size, 0) == (ssize_t)size);
    weft__hf hf;
    if (fuzz_taken(weft__hf_open(&hf, dir))) {
        FUZZ_CHECK(hf.n >= 1 && hf.n <= 3);
        for (int i = 0; i < hf.n; i++) FUZZ_CHECK(weft__hf_find(&hf, hf.tensor[i].name) == &hf.tensor[i]);
    }
    weft__hf_close(&hf);
    return 0;
}
