/* fuzz_profile.c — a machine's profile (JSON): refused, or rates that costs can be computed from. */
#include "fuzz/fuzz.h"

#include <math.h>

#include "mesh/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_file f = fuzz_file_open(data, size);
    weft_profile p;
    if (fuzz_taken(weft_profile_read(&p, f.path))) {
        const double rate[] = {p.link_bytes_per_second, p.rank_bytes_per_second, p.memory_bytes_per_second,
                               p.node_bytes_per_second, p.backward_factor};
        for (size_t i = 0; i < sizeof rate / sizeof *rate; i++) FUZZ_CHECK(isfinite(rate[i]) && rate[i] > 0);
        for (int i = 0; i < WEFT_PREC_COUNT; i++)
            FUZZ_CHECK(isfinite(p.flops_per_second[i]) && p.flops_per_second[i] > 0);
        FUZZ_CHECK(isfinite(p.latency_seconds) && isfinite(p.node_latency_seconds) && p.node_ranks >= 0);
    }
    fuzz_file_close(&f);
    return 0;
}
