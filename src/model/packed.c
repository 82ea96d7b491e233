/* packed.c — what the largest product of a step packs its operands into: memory that grows at its first use, and so
 * has to be known before. The products are those of linear.c, loss.c and mlp_tiles.c, over as many rows as those take
 * at once. */
#include "model/model_impl.h"

typedef struct most { const weft_model *m; size_t bytes; } most;

static void look(most *x, weft_dtype result, int64_t M, int64_t N, int64_t K)
{
    const weft_gemm_args a = {.ab = x->m->ct, .c = result, .M = M, .N = N, .K = K};
    const size_t bytes = weft_gemm_work_bytes((int)x->m->kern->isa, &a);
    if (bytes > x->bytes) x->bytes = bytes;
}

/* y (forward) and dx in the types that they have there. */
static void look_at(most *x, const weft__linear *y, int64_t rows, int64_t rows_back, weft_dtype forward,
                    weft_dtype input)
{
    const weft_model *m = x->m;
    look(x, forward, rows, y->out, y->in);
    if (!m->train) return;
    look(x, m->rt, y->in_out ? y->in : y->out, y->in_out ? y->out : y->in, rows_back);
    look(x, input, rows_back, y->in, y->out);
}

/* Rows that go through a product over tp at once: one share's, or all of them where they are few. */
static int64_t chunk_of(const weft_model *m, int64_t rows)
{
    const int shares = m->tp.shares;
    if (m->tp.chunk * shares >= rows) return rows;
    return m->tp.chunk;
}

size_t weft__packed_bytes(const weft_model *m)
{
    most x = {m, 0};
    const weft__layer *y = &m->layer[m->layers.begin];
    const bool tp = m->share.tps > 1;
    const int64_t S = m->rows_max, chunk = tp ? chunk_of(m, S) : S, all = m->tp.shares > 1 ? chunk : S;
    const int64_t wide = m->tile ? m->tile : all, wide_back = m->tile ? m->tile : chunk;
    const weft_dtype dx = tp ? m->rt : m->ct; /* of columns: a partial sum */
    look_at(&x, &y->qkv, all, chunk, m->ct, dx);
    look_at(&x, &y->o, all, all, m->rt, m->ct);
    look_at(&x, &y->up, wide, wide_back, m->ct, dx);
    look_at(&x, &y->down, wide, wide, m->rt, m->ct);
    if (m->last_stage) look_at(&x, &m->par.head, m->chunk, m->chunk, m->rt, dx);
    return x.bytes;
}
