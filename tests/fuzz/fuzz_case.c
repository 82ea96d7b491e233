/* fuzz_case.c — cases for `weft attention` and `weft verify`: shapes, metadata, ids and cu_seqlens of a safetensors
 * file. Refused, or a problem whose documents are in order. */
#include "fuzz/fuzz.h"
#include "fuzz/fuzz_memory.h"
#include "fuzz/fuzz_st.h"

#include "train/attention_case.h"

static void read_attention(const weft_st *st, weft_arena *arena)
{
    static const weft_run run;
    weft_attention_case c = {.name = "case", .file = st, .run = &run, .arena = arena, .C = WEFT_BF16, .R = WEFT_F32};
    if (!fuzz_taken_or_full(weft__case_read(&c))) return;
    const weft_cp_problem *p = &c.problem;
    FUZZ_CHECK(p->B > 0 && p->T > 0 && p->Tq > 0 && p->Tq <= p->T && p->H > 0 && p->Hkv > 0 && p->D > 0 && p->Dv > 0);
    FUZZ_CHECK(weft_docs_check(&c.docs) == WEFT_OK);
}

static void read_model_case(const weft_st *st, weft_arena *arena)
{
    weft_case c;
    if (!fuzz_taken_or_full(weft_case_read(&c, st, 1000, arena))) return;
    FUZZ_CHECK(c.B > 0 && c.T > 0 && c.valid > 0 && c.valid <= c.B * c.T && weft_docs_check(&c.docs) == WEFT_OK);
    for (int64_t i = 0; i < c.B * c.T; i++)
        FUZZ_CHECK(c.token[i] >= 0 && c.token[i] < 1000 && c.target[i] < 1000 && c.target[i] >= -100);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static weft_mem mem;
    fuzz_file f = fuzz_file_open(data, size);
    weft_st *st = NULL;
    if (fuzz_taken(weft_st_open(&st, f.path))) {
        weft_arena *arena = fuzz_arena(&mem);
        read_attention(st, arena);
        read_model_case(st, arena);
        weft_arena_destroy(arena);
    }
    weft_st_close(st);
    fuzz_file_close(&f);
    return 0;
}
