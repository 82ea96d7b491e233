/* fuzz_safetensors.c — the safetensors reader: any bytes are refused or make views that can be read to their ends. */
#include "fuzz/fuzz.h"
#include "fuzz/fuzz_st.h"

#include "ckpt/ckpt.h"

static unsigned read_all(const weft_st *st)
{
    unsigned sum = 0;
    for (int i = 0; i < weft_st_count(st); i++) {
        const weft_st_entry *e = weft_st_at(st, i);
        const unsigned char *b = e->view.data;
        const size_t n = (size_t)weft_view_count(&e->view) * weft_dtype_size(e->view.dtype);
        FUZZ_CHECK((uintptr_t)b % weft_dtype_size(e->view.dtype) == 0);
        for (size_t k = 0; k < n; k++) sum += b[k];
        FUZZ_CHECK(weft_st_find(st, e->name) == &e->view);
    }
    const char *key;
    for (int i = 0; (key = weft_st_meta_key(st, i)); i++) sum += (unsigned)strlen(weft_st_meta(st, key));
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_file f = fuzz_file_open(data, size);
    weft_st *st = NULL;
    volatile unsigned sum = 0; /* the reads must stay */
    if (fuzz_taken(weft_st_open(&st, f.path))) {
        const weft_view *view;
        sum = read_all(st);
        fuzz_taken(weft_st_require(st, "model.embed_tokens.weight", &view));
    }
    (void)sum;
    weft_st_close(st);
    fuzz_file_close(&f);
    return 0;
}
