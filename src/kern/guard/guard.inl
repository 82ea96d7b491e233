/* guard.inl — template, see simd_each.inl: max |x| of rows. Without their sign the bits of numbers order them, with
 * infinity above all that is finite and NaN above infinity: an integer maximum of 2 or 4 bytes does for every type,
 * and catches what a maximum of floats would drop. */

static int64_t NAME(guard_bits)(const C *x)
{
    uint32_t bits = 0;
    memcpy(&bits, x, sizeof *x);
    return bits & (sizeof *x == 2 ? 0x7fffu : 0x7fffffffu);
}

static VI NAME(guard_max)(VI most, const C *x)
{
    VI bits = vi_load(x);
    return sizeof(C) == 2 ? vi_max16(most, vi_and(bits, vi_set(0x7fff7fffu)))
                          : vi_max32(most, vi_and(bits, vi_set(0x7fffffffu)));
}

static int64_t NAME(guard_range)(const C *x, int64_t n)
{
    enum { LANES = sizeof(VI) / sizeof(C) };
    int64_t most = 0;
    if (n < LANES) {
        for (int64_t i = 0; i < n; i++) most = weft_max_i64(most, NAME(guard_bits)(x + i));
        return most;
    }
    VI m[4] = {vi_set(0), vi_set(0), vi_set(0), vi_set(0)};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int j = 0; j < 4; j++) m[j] = NAME(guard_max)(m[j], x + i + j * LANES);
    /* the last vector may read elements again: a maximum does not mind */
    for (; i < n; i += LANES) m[0] = NAME(guard_max)(m[0], x + weft_min_i64(i, n - LANES));
    C lane[4 * LANES];
    memcpy(lane, m, sizeof lane);
    for (int j = 0; j < 4 * LANES; j++) most = weft_max_i64(most, NAME(guard_bits)(lane + j));
    return most;
}

double NAME(guard)(const void *x, int64_t ld, int64_t rows, int64_t n, int threads)
{
    (void)threads;
    const C *base = x;
    int64_t most = 0;
    if (ld == n || rows == 1) { /* one stretch: cut anywhere */
        const int64_t all = rows * n;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(max : most)
        for (int64_t i = 0; i < all; i += GUARD_CHUNK)
            most = weft_max_i64(most, NAME(guard_range)(base + i, weft_min_i64(GUARD_CHUNK, all - i)));
    } else {
#pragma omp parallel for num_threads(threads) schedule(static) reduction(max : most)
        for (int64_t r = 0; r < rows; r++) most = weft_max_i64(most, NAME(guard_range)(base + r * ld, n));
    }
    C largest;
    float value;
    memcpy(&largest, &most, sizeof largest); /* the low bytes */
    vst(&value, LD(&largest, 1), 1);
    return isnan(value) ? (double)NAN : (double)value;
}
