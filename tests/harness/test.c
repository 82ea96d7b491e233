#include "harness/test.h"

double test_uniform(uint64_t seed, int64_t i)
{
    weft_philox_out r = weft_philox(seed, (uint32_t)i, (uint32_t)((uint64_t)i >> 32), 0, 7);
    return (double)r.w[0] * 0x1p-31 - 1.0;
}

double test_normal(uint64_t seed, int64_t i)
{
    weft_philox_out r = weft_philox(seed, (uint32_t)i, (uint32_t)((uint64_t)i >> 32), 1, 7);
    double z[2];
    weft_normal_pair(r.w[0], r.w[1], z);
    return z[0];
}

void test_fill_normal(void *x, int is_double, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        double z = test_normal(seed, i);
        if (is_double) ((double *)x)[i] = z;
        else ((float *)x)[i] = (float)z;
    }
}

uint64_t test_hash(const void *data, size_t bytes)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}
