/* simd_gemm.inl — the one matrix kernel behind all seven products of attention:
 *   C[m x n] (+)= A[m x k] B[k x n],   n a whole number of vectors, everything fp32
 * A is read element by element and broadcast, in panels of MR rows: packed ones (k runs over columns of MR
 * elements), or rows of a block of scores as they lie. B and C are rows of vectors in panels of PANEL
 * columns. A block of MR rows and one panel of C stays in registers while k runs.
 *
 * A panel of B (k rows, 30 KB for 120, AVX2 8 KB) is read again for every MR rows and should stay in the
 * first-level cache, while A streams by once.
 *
 * Every element of A B is one chain of fused multiply-adds over k in ascending order, whatever block it falls
 * into: so results do not depend on how m and n were cut. C is added last: its loads are not waited for, and a
 * long sum is a sum of short ones. */

#if VLEN == 16
#define NR 4 /* 24 accumulators + 4 of B + 1 of A of 32 registers; 12 x 2 loads more for as many products */
#define EACH_NR(X) X(1) X(2) X(3) X(4)
#else
#define NR 2 /* 12 + 2 + 1 of 16 */
#define EACH_NR(X) X(1) X(2)
#endif
#define MR 6
#define EACH_MR(X, nr) X(1, nr) X(2, nr) X(3, nr) X(4, nr) X(5, nr) X(6, nr)
/* LANES query rows make one tile; with KEYS keys they make one block of scores, S^T[KEYS x LANES]. */
enum { PANEL = NR * VLEN, LANES = 64, KEYS = 120 };
_Static_assert(LANES % PANEL == 0 && KEYS % MR == 0, "whole panels");

static inline int panels(int n) { return (n + PANEL - 1) / PANEL; }

typedef struct mat { /* element (i, k) of a panel: a[k * MR + i], or a[i * LANES + k] of scores */
    const float *a;
    int64_t ps; /* from panel to panel */
    bool scores;
} mat;

typedef struct vmat { /* element (i, j): p[j / PANEL * ps + i * ld + j % PANEL] */
    float *p;
    int64_t ps, ld;
} vmat;

/* Rows that will be wanted soon, brought to the second-level cache one after each block of a product: they come from
 * the third level or from memory, and what packs them would wait for every one. */
typedef struct ahead {
    struct ahead_rows {
        uintptr_t at;              /* of the next row */
        int64_t ld, bytes, rows;   /* between rows, of a row, rows to go */
    } of[3];
    int n;                         /* arrays that are not done are the first n */
} ahead;

static void ahead_add(ahead *a, const void *first, int64_t ld, int64_t bytes, int64_t rows)
{
    a->of[a->n++] = (struct ahead_rows){(uintptr_t)first, ld, bytes, rows};
}

static inline void ahead_row(ahead *a)
{
    if (a->n == 0) return;
    struct ahead_rows *r = &a->of[a->n - 1];
    for (int64_t i = 0; i < r->bytes; i += 64) _mm_prefetch((const char *)(r->at + (uintptr_t)i), _MM_HINT_T1);
    r->at += (uintptr_t)r->ld;
    if (--r->rows <= 0) a->n--;
}

static inline __attribute__((always_inline)) void block(float *c, int64_t ldc, const float *a, int64_t rs, int64_t cs,
                                                        const float *b, int64_t ldb, int k, bool add, const int mr,
                                                        const int nr)
{
    V acc[MR][NR];
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nr; j++) acc[i][j] = vzero();
#pragma GCC unroll 4 /* few enough turns for the branch predictor to know the last one */
    for (int x = 0; x < k; x++) {
        V bv[NR];
#pragma GCC unroll 4
        for (int j = 0; j < nr; j++) bv[j] = vload(b + j * VLEN);
#pragma GCC unroll 6
        for (int i = 0; i < mr; i++) {
            V av = vset(a[i * rs]);
#pragma GCC unroll 4
            for (int j = 0; j < nr; j++) acc[i][j] = vfma(av, bv[j], acc[i][j]);
        }
        a += cs;
        b += ldb;
    }
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++, c += ldc)
#pragma GCC unroll 4
        for (int j = 0; j < nr; j++) vstore(c + j * VLEN, add ? vadd(vload(c + j * VLEN), acc[i][j]) : acc[i][j]);
}

/* Constant strides of A leave registers for its addresses. */
typedef void (*block_fn)(float *c, int64_t ldc, mat a, const float *b, int64_t ldb, int k, bool add);
#define BLOCK(mr, nr) \
    static void block_##mr##x##nr(float *c, int64_t ldc, mat a, const float *b, int64_t ldb, int k, bool add) \
    { \
        if (a.scores) block(c, ldc, a.a, LANES, 1, b, ldb, k, add, mr, nr); \
        else block(c, ldc, a.a, 1, MR, b, ldb, k, add, mr, nr); \
    }
#define BLOCKS(nr) EACH_MR(BLOCK, nr)
EACH_NR(BLOCKS)

/* `vectors` vectors of C's first columns. */
static void gemm(vmat c, mat a, vmat b, int m, int vectors, int k, bool add, ahead *next)
{
#define NAME(mr, nr) block_##mr##x##nr,
#define ROW(nr) {EACH_MR(NAME, nr)},
    static const block_fn table[NR][MR] = {EACH_NR(ROW)};
#undef NAME
#undef ROW
    for (; vectors > 0; vectors -= NR, c.p += c.ps, b.p += b.ps) {
        const block_fn *row = table[(vectors < NR ? vectors : NR) - 1];
        mat ai = a;
        for (int i = 0; i < m; i += MR, ai.a += a.ps) {
            row[(m - i < MR ? m - i : MR) - 1](c.p + i * c.ld, c.ld, ai, b.p, b.ld, k, add);
            ahead_row(next);
        }
    }
}

#undef BLOCK
#undef BLOCKS
#undef EACH_MR
#undef EACH_NR
