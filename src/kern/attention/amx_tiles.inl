/* amx_tiles.inl — tile registers, and the two loops over tile products that all products of attention use.
 *
 * A tile is 16 rows of 64 bytes; all operands lie in memory as whole tiles of 1 KB, one after the other:
 *   A   16 rows x 32 bf16 of the summed dimension
 *   B   16 rows x 16 columns of pairs: row i holds elements 2i and 2i + 1 of the summed dimension
 *   C   16 x 16 floats, C += A B
 * Registers: 0 and 1 take sums in turn, 2..5 hold what stays for a whole loop, 6 and 7 what streams by. A sum is stored
 * after the products of the next one: storing it at once would wait for them (a third of the speed).
 *
 * Inline assembly with memory clobbers instead of the compiler's intrinsics: gcc's loads name no memory, so it may move
 * the stores that fill a tile behind them. */

enum { TILE = 1024, TILE_ROWS = 16, PAIRS = 32 /* summed elements per product */, HELD = 4 /* tiles that stay */ };

#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::: "memory")
#define TILE_LOAD(t, p) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"((int64_t)(TILE / TILE_ROWS)) : "memory")
#define TILE_STORE(p, t) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"((int64_t)(TILE / TILE_ROWS)) : "memory")
#define TILE_DP(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

/* Every register as 16 rows of 64 bytes, for the calling thread. */
static void tiles_enter(void)
{
    struct {
        uint8_t palette, start_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.row_bytes[i] = TILE / TILE_ROWS, config.rows[i] = TILE_ROWS;
    __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
}
static void tiles_leave(void) { __asm__ volatile("tilerelease" ::: "memory"); }

static inline __attribute__((always_inline)) void hold(const char *p, int64_t step, const int n)
{
    if (n > 0) TILE_LOAD(2, p);
    if (n > 1) TILE_LOAD(3, p + step);
    if (n > 2) TILE_LOAD(4, p + 2 * step);
    if (n > 3) TILE_LOAD(5, p + 3 * step);
}

/* One product: the streamed tile against the held one, which is A or B. */
#define PRODUCT(sum, streamed, held, p) \
    do { \
        TILE_LOAD(streamed, p); \
        if (held_a) TILE_DP(sum, held, streamed); \
        else TILE_DP(sum, streamed, held); \
    } while (0)

/* Sum register 0 or 1: from memory or from zero, plus products first .. last - 1 of the held tiles. */
#define SUM(name, sum) \
    static inline __attribute__((always_inline)) void name##_start(const char *from) \
    { \
        if (from) TILE_LOAD(sum, from); \
        else TILE_ZERO(sum); \
    } \
    static inline __attribute__((always_inline)) void name##_add(const char *p, int64_t step, const bool held_a, \
                                                                 const int first, const int last) \
    { \
        if (first <= 0 && last > 0) PRODUCT(sum, 6, 2, p); \
        if (first <= 1 && last > 1) PRODUCT(sum, 7, 3, p + step); \
        if (first <= 2 && last > 2) PRODUCT(sum, 6, 4, p + 2 * step); \
        if (first <= 3 && last > 3) PRODUCT(sum, 7, 5, p + 3 * step); \
    } \
    static inline __attribute__((always_inline)) void name##_store(char *to) { TILE_STORE(to, sum); }
SUM(sum0, 0)
SUM(sum1, 1)
#undef SUM
#undef PRODUCT

typedef struct stream { /* `jobs` sums of n products each */
    const char *at;
    int64_t step, job; /* from one product's tile to the next, from one job's first tile to the next job's */
} stream;

/* to[x] (+)= sum over k < n of the held tiles and the stream's, for x < jobs; sums lie `ld` bytes apart. */
static inline __attribute__((always_inline)) void sums_of(char *to, int64_t ld, stream s, int jobs, const int n,
                                                          const bool held_a, const bool add)
{
    int x = 0;
    for (; x + 2 <= jobs; x += 2) {
        char *c = to + x * ld;
        const char *p = s.at + x * s.job;
        sum0_start(add ? c : NULL);
        sum0_add(p, s.step, held_a, 0, n);
        if (x > 0) sum1_store(c - ld);
        sum1_start(add ? c + ld : NULL);
        sum1_add(p + s.job, s.step, held_a, 0, n);
        sum0_store(c);
    }
    if (x < jobs) {
        sum0_start(add ? to + x * ld : NULL);
        sum0_add(s.at + x * s.job, s.step, held_a, 0, n);
    }
    if (x > 0) sum1_store(to + (x - 1) * ld);
    if (x < jobs) sum0_store(to + x * ld);
}

/* The same for any number n of products, HELD at a time; held tiles lie `held_step` apart. */
static void sums(char *to, int64_t ld, const char *held, int64_t held_step, stream s, int jobs, int n, bool held_a,
                 bool add)
{
    for (int k = 0; k < n; k += HELD, add = true) {
        const int part = n - k < HELD ? n - k : HELD;
        const stream t = {s.at + k * s.step, s.step, s.job};
#define CASE(m) \
    if (part == (m)) { \
        hold(held + k * held_step, held_step, m); \
        if (held_a && add) sums_of(to, ld, t, jobs, m, true, true); \
        else if (held_a) sums_of(to, ld, t, jobs, m, true, false); \
        else if (add) sums_of(to, ld, t, jobs, m, false, true); \
        else sums_of(to, ld, t, jobs, m, false, false); \
    }
        CASE(1) CASE(2) CASE(3) CASE(4)
#undef CASE
    }
}
