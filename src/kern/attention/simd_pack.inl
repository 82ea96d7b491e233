/* simd_pack.inl — rows of fp32, bf16 or fp16 to rows of fp32 and back; transposes; panels. */

/* The vector at src[at]; lanes from n on (n may exceed VLEN) are 0. */
static inline V vector_in(const void *src, int64_t at, weft_prec c, int n)
{
#define LOAD(T, load) return n >= VLEN ? load((const T *)src + at) : load##n((const T *)src + at, n)
    if (c == WEFT_PREC_F32) LOAD(float, vload);
    if (c == WEFT_PREC_BF16) LOAD(weft_bf16, vload_bf16);
    LOAD(weft_f16, vload_f16);
#undef LOAD
}

/* dst[at .. at + n) = f * src, rounded. */
static inline void row_out(void *dst, int64_t at, weft_prec c, const float *src, int n, V f)
{
    int x = 0;
#define LOOP(T, store) \
    for (T *d = (T *)dst + at; x < n; x += VLEN) { \
        if (x + VLEN <= n) store(d + x, vmul(f, vload(src + x))); \
        else store##n(d + x, vmul(f, vloadn(src + x, n - x)), n - x); \
    }
    if (c == WEFT_PREC_F32) LOOP(float, vstore)
    else if (c == WEFT_PREC_BF16) LOOP(weft_bf16, vstore_bf16)
    else LOOP(weft_f16, vstore_f16)
#undef LOOP
}

/* dst += f * src, one vector, of which the first n elements (n may exceed VLEN) */
static inline void vector_add(float *dst, const float *src, int n, V f)
{
    if (n >= VLEN) vstore(dst, vfma(f, vload(src), vload(dst)));
    else vstoren(dst, vfma(f, vloadn(src, n), vloadn(dst, n)), n);
}

/* dst[c][r] = src[r][c] for c < cols and r < padded(rows); rows past `rows` count as 0. src's rows are readable
 * up to padded(cols). */
static void transpose(float *dst, int64_t ldd, const float *src, int64_t lds, int rows, int cols)
{
    for (int r = 0; r < rows; r += VLEN)
        for (int c = 0; c < cols; c += VLEN) {
            V t[VLEN];
            int nr = rows - r < VLEN ? rows - r : VLEN, nc = cols - c < VLEN ? cols - c : VLEN;
            if (nr == VLEN) {
#pragma GCC unroll 16
                for (int i = 0; i < VLEN; i++) t[i] = vload(src + (r + i) * lds + c);
            } else {
                for (int i = 0; i < VLEN; i++) t[i] = i < nr ? vload(src + (r + i) * lds + c) : vzero();
            }
            vtranspose(t);
            if (nc == VLEN) {
#pragma GCC unroll 16
                for (int i = 0; i < VLEN; i++) vstore(dst + (c + i) * ldd + r, t[i]);
            } else {
                for (int i = 0; i < nc; i++) vstore(dst + (c + i) * ldd + r, t[i]);
            }
        }
}

/* ---- panels: [panels(n)][rows][PANEL] ------------------------------------------------------------- */

/* Floats of `rows` rows of n elements, or of n columns of `rows` elements. */
static inline int64_t panel_floats(int rows, int n) { return (int64_t)panels(n) * PANEL * rows; }

/* Element y of row x in panels of LANES rows. */
static inline int64_t lane_vector(int x, int y)
{
    return (int64_t)(y / PANEL) * (LANES * PANEL) + x * PANEL + y % PANEL;
}

/* Rows of the lanes, n elements per head, to panels of LANES rows; padding up to a vector is 0. */
static void lanes_in(float *dst, const lanes *t, const void *src, int64_t ld, weft_prec c, int n)
{
    for (int x = 0; x < t->n; x++) {
        int64_t at = t->row[x] * ld + (int64_t)t->head[x] * n;
        for (int y = 0; y < n; y += VLEN)
            vstore(dst + lane_vector(x, y), vector_in(src, at + y, c, n - y));
    }
}

/* Panels of `lds` rows (n of them used, `cols` columns) to the panels of the transpose, of `ldd` rows. Lanes that fill
 * the last vector are 0. */
static void turn(float *dst, int ldd, const float *src, int lds, int n, int cols)
{
    for (int x = 0; x < n; x += PANEL)
        for (int y = 0; y < cols; y += PANEL)
            transpose(dst + x * (int64_t)ldd + y * PANEL, PANEL, src + y * (int64_t)lds + x * PANEL, PANEL,
                      n - x < PANEL ? n - x : PANEL, cols - y < PANEL ? cols - y : PANEL);
}

/* ---- panels of MR rows, for the matrix that is broadcast ------------------------------------------- */

/* A store of 8 lanes that ends past its MR elements is followed by the next MR; the last one needs room. (Stores of 16
 * lanes would cross a cache line nearly every time.) A whole vector, because that keeps more panels at cache lines. */
enum { SLACK = VLEN };
_Static_assert(MR <= 8, "vstore8 stores them");

static inline int64_t packed_floats(int rows, int cols)
{
    return ((int64_t)cols * MR + SLACK) * ((rows + MR - 1) / MR);
}

/* Key rows [row, row + rows) of head g to [panels of MR keys][n][MR]. */
static void pack_keys(float *dst, const void *src, int64_t ld, weft_prec c, int64_t row, int rows, int g, int n)
{
    for (int i = 0; i < rows; i += MR, dst += n * MR + SLACK)
        for (int y = 0; y < n; y += VLEN) {
            V t[VLEN];
            int64_t at = (row + i) * ld + (int64_t)g * n + y;
            for (int x = 0; x < MR; x++) t[x] = i + x < rows ? vector_in(src, at + x * ld, c, n - y) : vzero();
            for (int x = MR; x < VLEN; x++) t[x] = vzero();
            vtranspose(t);
            for (int x = 0; x < VLEN && y + x < n; x++) vstore8(dst + (y + x) * MR, t[x]);
        }
}

/* The same rows turned: [panels of MR elements][`ldk` keys][MR]. */
static void pack_turned(float *dst, int ldk, const void *src, int64_t ld, weft_prec c, int64_t row, int rows, int g,
                        int n)
{
    for (int y = 0; y < n; y += MR, dst += ldk * MR + SLACK)
        for (int x = 0; x < rows; x++)
            vstore8(dst + x * MR, vector_in(src, (row + x) * ld + (int64_t)g * n + y, c, n - y));
}

/* The keys [*lo, *hi), counted from j0, outside of which lanes [x, x + count) see none of the block's n keys: both ends
 * of what a lane sees grow with the lane. */
static void rules_span(const rules *r, const lanes *t, int x, int count, int n, int *lo, int *hi)
{
    int last = x + count < t->n ? x + count : t->n;
    *lo = r->masked ? r->lo[x] : 0;
    *hi = r->masked ? r->hi[last - 1] : n;
}

/* The keys [*a, *b) of [lo, hi) that every lane of vector v sees: [lo, *a) and [*b, hi) are where masks matter. */
static void rules_common(const rules *r, const lanes *t, int v, int lo, int hi, int *a, int *b)
{
    int first = v * VLEN, last = (first + VLEN < t->n ? first + VLEN : t->n) - 1;
    *a = lo, *b = hi;
    if (!r->masked) return;
    if (*a < r->lo[last]) *a = r->lo[last] < hi ? r->lo[last] : hi;
    if (*b > r->hi[first]) *b = r->hi[first];
    if (*b < *a) *b = *a;
}
