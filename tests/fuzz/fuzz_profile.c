/* fuzz_profile.c — a machine's profile (JSON): refused, or rates that costs can be computed from. */
#include "fuzz/fuzz.h"

#include <math.h>
#include <string.h>

#include "mesh/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_file f = fuzz_file_open(data, size);
    weft_profile p;
    if (fuzz_taken(weft_profile_read(&p, f.path))) {
        const double rate[] = {p.link_bytes_per_second, p.rank_bytes_per_second, p.memory_bytes_per_second,
                               p.node_bytes_per_second, p.backward_factor,       p.element_bytes_per_second,
                               p.collective_factor};
        const double none[] = {p.latency_seconds,       p.node_latency_seconds, p.fp8_flops_per_second,
                               p.product_seconds,       p.attention_seconds,    p.fp8_attention_flops_per_second,
                               p.host_bytes_per_second, p.host_bytes,           p.memory_bytes,
                               p.attention_edge_keys,   p.attention_row_keys,   p.in_place_share,
                               p.unhidden_share,        p.product_bytes_per_second};
        for (size_t i = 0; i < sizeof rate / sizeof *rate; i++) FUZZ_CHECK(isfinite(rate[i]) && rate[i] > 0);
        for (size_t i = 0; i < sizeof none / sizeof *none; i++) FUZZ_CHECK(isfinite(none[i]) && none[i] >= 0);
        for (int i = 0; i < WEFT_PREC_COUNT; i++)
            FUZZ_CHECK(isfinite(p.attention_pair_seconds[i]) && p.attention_pair_seconds[i] >= 0 &&
                       isfinite(p.flops_per_second[i]) && p.flops_per_second[i] > 0 &&
                       isfinite(p.product_flops_per_second[i]) && p.product_flops_per_second[i] > 0);
        FUZZ_CHECK(p.node_ranks >= 0 && (p.buffer_bytes == 0 || p.buffer_bytes >= 64 << 10));
        FUZZ_CHECK(*p.name && memchr(p.name, '\0', sizeof p.name));
    }
    fuzz_file_close(&f);
    return 0;
}
