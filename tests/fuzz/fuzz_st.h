/* fuzz_st.h — safetensors files as inputs: header and data are changed apart, and the length in front of them is made
 * to fit, or hardly any change would get past it. */
#ifndef WEFT_FUZZ_ST_H
#define WEFT_FUZZ_ST_H

#include "fuzz/fuzz.h"

#ifdef WEFT_FUZZER /* the replay of a corpus changes nothing */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    uint64_t header = 0;
    if (size >= 8) memcpy(&header, data, 8);
    if (size < 8 || header > size - 8 || seed % 8 == 0 || size == max_size)
        return LLVMFuzzerMutate(data, size, max_size);
    uint8_t *text = data + 8, *rest = text + header;
    const size_t left = size - 8 - header;
    if (seed % 8 == 1) return 8 + header + LLVMFuzzerMutate(rest, left, max_size - 8 - header);
    uint8_t *copy = malloc(left + 1);
    FUZZ_CHECK(copy);
    memcpy(copy, rest, left);
    header = LLVMFuzzerMutate(text, header, max_size - 8 - left);
    memcpy(text + header, copy, left);
    memcpy(data, &header, 8);
    free(copy);
    return 8 + header + left;
}
#endif

#endif
