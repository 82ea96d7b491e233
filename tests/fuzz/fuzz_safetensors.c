/* fuzz_safetensors.c — libFuzzer on the safetensors reader: any bytes are refused or make views that can
 * be read to their ends. Build with clang:
 *   cmake -S . -B build-fuzz -DCMAKE_C_COMPILER=clang -DWEFT_FUZZ=ON -DWEFT_SANITIZE=address,undefined
 *   build-fuzz/tests/fuzz_safetensors -max_total_time=60 tests/golden/attention */
#include "ckpt/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned read_all(const weft_st *st)
{
    unsigned sum = 0;
    for (int i = 0; i < weft_st_count(st); i++) {
        const weft_st_entry *e = weft_st_at(st, i);
        const unsigned char *b = e->view.data;
        const size_t n = (size_t)weft_view_count(&e->view) * weft_dtype_size(e->view.dtype);
        for (size_t k = 0; k < n; k++) sum += b[k];
        if (weft_st_find(st, e->name) != &e->view) abort();
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    weft_st *st = NULL;
    const weft_status s = weft_st_open(&st, path);
    volatile unsigned sum = 0; /* the reads must stay */
    if (s == WEFT_OK) sum = read_all(st);
    else if (s != WEFT_ERR_REFUSED) abort();
    (void)sum;
    weft_st_close(st);
    close(fd);
    return 0;
}
