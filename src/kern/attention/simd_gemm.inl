/* simd_gemm.inl — the one matrix kernel behind all seven products of attention:
 *   C[m x n] (+)= A[m x k] B[k x n],   n a whole number of vectors, everything fp32
 * A is read element by element and broadcast, so it may have any strides (a transpose costs nothing); B and C
 * are rows of vectors. A block of MR x NR vectors of C stays in registers while k runs.
 *
 * Every element of A B is one chain of fused multiply-adds over k in ascending order, whatever block it falls
 * into: so results do not depend on how m and n were cut. C is added last: its loads are not waited for, and a
 * long sum is a sum of short ones. */

#define MR 6
#if VLEN == 16
#define NR 4 /* 24 accumulators + 4 of B + 1 of A of 32 registers */
#else
#define NR 2 /* 12 + 2 + 1 of 16 */
#endif

typedef struct mat { /* a[i * rs + k * cs] */
    const float *a;
    int64_t rs, cs;
} mat;

static inline __attribute__((always_inline)) void block(float *c, int64_t ldc, mat a, const float *b, int64_t ldb,
                                                        int k, bool add, const int mr, const int nr)
{
    V acc[MR][NR];
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nr; j++) acc[i][j] = vzero();
    for (int x = 0; x < k; x++) {
        V bv[NR];
#pragma GCC unroll 4
        for (int j = 0; j < nr; j++) bv[j] = vload(b + j * VLEN);
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            V av = vset(a.a[i * a.rs]);
#pragma GCC unroll 4
            for (int j = 0; j < nr; j++) acc[i][j] = vfma(av, bv[j], acc[i][j]);
        }
        a.a += a.cs;
        b += ldb;
    }
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++, c += ldc)
#pragma GCC unroll 4
        for (int j = 0; j < nr; j++) vstore(c + j * VLEN, add ? vadd(vload(c + j * VLEN), acc[i][j]) : acc[i][j]);
}

typedef void (*block_fn)(float *c, int64_t ldc, mat a, const float *b, int64_t ldb, int k, bool add);
#define BLOCK(mr, nr) \
    static void block_##mr##x##nr(float *c, int64_t ldc, mat a, const float *b, int64_t ldb, int k, bool add) \
    { \
        block(c, ldc, a, b, ldb, k, add, mr, nr); \
    }
#define BLOCKS(nr) BLOCK(1, nr) BLOCK(2, nr) BLOCK(3, nr) BLOCK(4, nr) BLOCK(5, nr) BLOCK(6, nr)
#define BLOCK_ROW(nr) {block_1x##nr, block_2x##nr, block_3x##nr, block_4x##nr, block_5x##nr, block_6x##nr}
BLOCKS(1)
BLOCKS(2)
#if NR == 4
BLOCKS(3)
BLOCKS(4)
#endif

static void gemm(float *c, int64_t ldc, mat a, const float *b, int64_t ldb, int m, int vectors, int k, bool add)
{
    static const block_fn table[NR][MR] = {
        BLOCK_ROW(1), BLOCK_ROW(2),
#if NR == 4
        BLOCK_ROW(3), BLOCK_ROW(4),
#endif
    };
    for (int j = 0; j < vectors; j += NR) {
        const block_fn *row = table[(vectors - j < NR ? vectors - j : NR) - 1];
        for (int i = 0; i < m; i += MR) {
            int mr = m - i < MR ? m - i : MR;
            mat ai = {a.a + i * a.rs, a.rs, a.cs};
            row[mr - 1](c + i * ldc + j * VLEN, ldc, ai, b + j * VLEN, ldb, k, add);
        }
    }
}

#undef BLOCK
#undef BLOCKS
#undef BLOCK_ROW
