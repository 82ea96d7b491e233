/* profile.c — the default rates. Only their ratios choose a strategy. */
#include "mesh/profile.h"

weft_profile weft_profile_default(void)
{
    return (weft_profile){.latency_seconds = 10e-6,
                          .link_bytes_per_second = 10e9,
                          .rank_bytes_per_second = 10e9,
                          .memory_bytes_per_second = 20e9,
                          .flops_per_second = {1e9, 100e9, 100e9, 100e9},
                          .backward_factor = 2.5,
                          .node_latency_seconds = 10e-6,
                          .node_bytes_per_second = 10e9};
}
