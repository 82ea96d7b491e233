/* fuzz.h — what the fuzz targets share: the input as a file, memory with a limit, and a check that is never compiled
 * out. A target is the function LLVMFuzzerTestOneInput in fuzz_X.c: any bytes are refused, or make something that can
 * be used to its ends. Its first inputs lie in corpus/X, its words for the fuzzer in X.dict (may be absent). */
#ifndef WEFT_FUZZ_H
#define WEFT_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken promise: the fuzzer keeps the input. */
#define FUZZ_CHECK(x) \
    do { \
        if (!(x)) { \
            fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", __FILE__, __LINE__, #x, weft_last_error()); \
            abort(); \
        } \
    } while (0)

/* How often something was taken: a corpus of which nothing is tests only the first lines of a reader. */
__attribute__((weak)) long fuzz_takes;

/* Whether it was taken; anything but that and a refusal is a fault, and a refusal says why. */
static inline bool fuzz_taken(weft_status st)
{
    FUZZ_CHECK(st == WEFT_OK || (st == WEFT_ERR_REFUSED && weft_last_error()[0]));
    fuzz_takes += st == WEFT_OK;
    return st == WEFT_OK;
}

/* The input as a file in memory; close with fuzz_file_close. */
typedef struct fuzz_file {
    int fd;
    char path[64];
} fuzz_file;
static inline fuzz_file fuzz_file_open(const void *data, size_t size)
{
    fuzz_file f = {.fd = memfd_create("fuzz", 0)};
    FUZZ_CHECK(f.fd >= 0 && write(f.fd, data, size) == (ssize_t)size);
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}
static inline void fuzz_file_close(fuzz_file *f) { close(f->fd); }

/* A text that what it was read from gave: reading it again must give it again. */
static inline void fuzz_same_text(const weft_text *a, const weft_text *b)
{
    FUZZ_CHECK(!a->failed && !b->failed && a->len == b->len && !memcmp(a->data, b->data, a->len));
}

/* The input with a NUL after it; free it. */
static inline char *fuzz_string(const uint8_t *data, size_t size)
{
    char *s = malloc(size + 1);
    FUZZ_CHECK(s);
    if (size) memcpy(s, data, size);
    s[size] = '\0';
    return s;
}

#endif
