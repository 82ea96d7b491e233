/* replay.c — a fuzz target without a fuzzer: runs it on every file of a folder, and on each cut short and with single
 * bytes changed, so that `make test` and every sanitizer see what the fuzzer found and what is close to it. */
#include "fuzz/fuzz.h"

#include <dirent.h>

enum {
    FILE_MAX = 1 << 20,
    NEAR = 60 /* places in a file: inputs are small, and a target runs some thousand times a second */
};

static void run(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1); /* its end is the end of an allocation: over-reads are seen */
    FUZZ_CHECK(exact);
    memcpy(exact, data, size);
    FUZZ_CHECK(LLVMFuzzerTestOneInput(exact, size) == 0);
    free(exact);
}

static void run_near(uint8_t *data, size_t size)
{
    const size_t stride = size / NEAR + 1;
    for (size_t i = 0; i < size; i += stride) {
        const uint8_t old = data[i];
        run(data, i);
        data[i] = old ^ 1;
        run(data, size);
        data[i] = old ^ 0x80;
        run(data, size);
        data[i] = old;
    }
}

static void run_file(const char *dir, const char *name)
{
    static uint8_t data[FILE_MAX];
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    FUZZ_CHECK(f);
    const size_t size = fread(data, 1, sizeof data, f);
    FUZZ_CHECK(!ferror(f) && size < sizeof data);
    fclose(f);
    run(data, size);
    run_near(data, size);
}

int main(int argc, char **argv)
{
    int files = 0;
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    if (!dir) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 1;
    }
    for (const struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.') run_file(argv[1], e->d_name), files++;
    closedir(dir);
    printf("%d inputs and what is near them; something was taken %ld times\n", files, fuzz_takes);
    return files && fuzz_takes ? 0 : 1;
}
