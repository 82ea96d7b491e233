/* gemm_block.inl — the inner part of gemm_pack.inl on a SIMD vocabulary, which knows no element types: how packed
 * blocks lie, and the product of two of them. */

#if VLEN == 16
enum { MR = 14 }; /* 28 sums, 2 vectors of B and 1 of A: 31 of 32 registers */
#else
enum { MR = 6 }; /* 12 + 2 + 1 of 16 */
#endif
enum {
    NR = 2,
    NW = NR * VLEN,                 /* columns of a panel of B */
    ROW = GEMM_KC + 16,             /* floats between rows of A: a power of two would fill few sets of the cache */
    PANEL_A = GEMM_KC * VLEN,       /* floats of MR rows of A, whichever way they lie: MR ROW is less */
    PANEL_B = GEMM_KC * NW,
    GROUP = 8                       /* panels of A, or of B, in a piece of work for a thread */
};

/* Where the tile will go: rows of `ld` bytes. */
typedef struct target { const char *at, *last; int64_t ld; } target;

static inline __attribute__((always_inline)) void block_step(V acc[MR][NR], const float *a, const float *b,
                                                             const int rs)
{
    V bv[NR];
#pragma GCC unroll 2
    for (int j = 0; j < NR; j++) bv[j] = vload(b + j * VLEN);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        const V av = vset(a[i * rs]);
#pragma GCC unroll 2
        for (int j = 0; j < NR; j++) acc[i][j] = vfma(av, bv[j], acc[i][j]);
    }
}

/* tile[MR][NW] = A B over kc products, in ascending order. A's element (i, k) is a[i rs + k cs].
 * The target's lines come from far: waiting for them cost a tenth of the time, and asking for all of them at once
 * fills the buffers that the operands need. One row is asked for at a time. */
static inline __attribute__((always_inline)) void block_product(float *tile, const float *a, const float *b,
                                                                int64_t kc, target to, const int rs, const int cs)
{
    enum { STEPS = 8 };
    V acc[MR][NR];
    int64_t k = 0;
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
        for (int j = 0; j < NR; j++) acc[i][j] = vzero();
    for (; k + STEPS <= kc; k += STEPS, a += STEPS * cs, b += STEPS * NW) {
        __builtin_prefetch(to.at, 1);
        __builtin_prefetch(to.at + NW * sizeof(float) - 1, 1);
        if (to.at < to.last) to.at += to.ld;
#pragma GCC unroll 8
        for (int x = 0; x < STEPS; x++) block_step(acc, a + x * cs, b + x * NW, rs);
    }
    for (; k < kc; k++, a += cs, b += NW) block_step(acc, a, b, rs);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
        for (int j = 0; j < NR; j++) vstore(tile + i * NW + j * VLEN, acc[i][j]);
}

/* A's rows lie as rows, or element k of all rows side by side. */
static void block_rows(float *tile, const float *a, const float *b, int64_t kc, target to)
{
    block_product(tile, a, b, kc, to, ROW, 1);
}
static void block_columns(float *tile, const float *a, const float *b, int64_t kc, target to)
{
    block_product(tile, a, b, kc, to, 1, VLEN);
}

/* In the template C is a type. */
static inline void *result_of(const weft_gemm_args *g) { return g->C; }

/* How a product is cut. */
typedef struct cut {
    int64_t M, N, K;           /* rows, columns and products of a block */
    int64_t a, b, sum;         /* floats of a packed block of A, of B, and of sums that do not fit into C */
} cut;

static inline int64_t even_share(int64_t n, int64_t most) { return weft_ceil_div(n, weft_ceil_div(n, most)); }

static cut cut_of(const weft_gemm_args *g)
{
    cut c = {.M = even_share(g->M, GEMM_MC), .N = weft_min_i64(g->N, GEMM_NC), .K = even_share(g->K, GEMM_KC)};
    c.a = weft_ceil_div(c.M, MR) * PANEL_A;
    c.b = weft_ceil_div(c.N, NW) * PANEL_B;
    c.sum = g->c != WEFT_F32 && c.K < g->K ? c.M * c.N : 0;
    return c;
}

size_t SIMD_NAME(weft_gemm_packed_bytes)(const weft_gemm_args *g)
{
    const cut c = cut_of(g);
    return (size_t)(c.a + c.b + c.sum) * sizeof(float);
}

/* A block of the product, and where its operands are packed. */
typedef struct block {
    int64_t m, M, n, N, k, K;  /* first row and rows, columns and products likewise */
    bool first, last;          /* of the blocks of K */
    float *a, *b;
    float *sum; int64_t sum_ld; /* [M,N] of the earlier blocks of K, when C is too narrow to hold it */
} block;
