/* tp.c — what travels inside a tensor-parallel group, and which rows travel together.
 *
 * Ranks of tp have the same rows and parts of every matrix. A product over columns that are here needs whole rows; one
 * over inputs that are here gives partial sums of whole rows. So rows are gathered (in C), and partial sums are added
 * (in R, never in 16 bits: rounding each part would be rounding TP times where one rank rounds once).
 *
 * With sequence parallelism each rank keeps a share of the rows of the residual stream only: gathering and adding up
 * move between shares and whole rows. Without it all rows are on all ranks, nothing is gathered, and sums go to all.
 *
 * Rows travel in chunks of so many rows of every share, so that the one buffer is bounded whatever the length of the
 * sequence; the buffer has them in the order of ranks. */
#include <string.h>

#include "model/model_impl.h"

/* One chunk in R: with 4096 elements a row these are 1024 rows, enough for products and messages to be efficient. */
static const int64_t chunk_bytes = 16 << 20;
static const int64_t chunk_rows_min = 128;

weft_status weft__tp_alloc(weft_model *m, int64_t rows)
{
    weft__tp *t = &m->tp;
    int64_t C = m->config.C;
    t->shares = 1;
    if (m->share.tps == 1) return WEFT_OK;
    if (m->share.sequence_parallel) t->shares = m->share.tps;
    int64_t most = weft_max_i64(chunk_rows_min, chunk_bytes / (C * (int64_t)m->rs));
    t->chunk = weft_max_i64(1, weft_min_i64(weft_ceil_div(most, t->shares), weft_ceil_div(rows, t->shares)));
    WEFT_TRY(weft_arena_alloc(m->buffers, t->shares * t->chunk * C, m->rs, "tensor parallel", &t->buffer));
    WEFT_TRY(WEFT_NEW(m->buffers, t->shares * t->chunk, "tensor parallel", &t->id));
    WEFT_TRY(WEFT_NEW(m->arena, m->share.tps, "tensor parallel", &t->bytes));
    return WEFT_NEW(m->arena, m->share.tps, "tensor parallel", &t->counts);
}

/* ---- chunks ------------------------------------------------------------------------------------------ */

weft_span weft__stream_rows(const weft__pass *p)
{
    return p->shares > 1 ? weft_model_cut(p->rows, p->shares, p->m->share.tp) : (weft_span){0, p->rows};
}

int64_t weft__stream_rows_max(const weft_model *m, int64_t rows)
{
    return m->tp.shares > 1 ? weft_ceil_div(rows, m->share.tps) : rows;
}

/* Rows of share i in the chunk, as rows of the pass. */
static weft_span part_of(const weft__chunk *c, int i)
{
    weft_span s = weft_model_cut(c->S, c->shares, i);
    return (weft_span){weft_min_i64(s.begin + c->first, s.end), weft_min_i64(s.begin + c->end, s.end)};
}

static weft__chunk chunk_at(const weft__pass *p, int64_t first, int64_t most)
{
    weft__chunk c = {.S = p->rows, .shares = p->shares, .first = first, .end = first + most};
    int me = c.shares > 1 ? p->m->share.tp : 0;
    for (int i = 0; i < c.shares; i++) {
        weft_span s = part_of(&c, i);
        if (i == me) {
            c.own = s.end - s.begin;
            c.own_at = c.rows;
        }
        c.rows += s.end - s.begin;
    }
    c.whole = c.rows == c.S || c.shares == 1;
    return c;
}

weft__chunk weft__chunk_first(const weft__pass *p, int64_t most) { return chunk_at(p, 0, most); }

weft__chunk weft__chunk_next(const weft__pass *p, const weft__chunk *c)
{
    return chunk_at(p, c->end, c->end - c->first);
}

bool weft__block_next(const weft__chunk *c, weft__block *b)
{
    if (c->whole) {
        bool more = b->rows == 0 && c->rows > 0;
        *b = (weft__block){.row = c->first, .rows = c->rows};
        return more;
    }
    for (b->at += b->rows, b->rows = 0; b->next < c->shares && b->rows == 0; b->next++) {
        weft_span s = part_of(c, b->next);
        b->row = s.begin;
        b->rows = s.end - s.begin;
        b->share = b->next;
    }
    return b->rows > 0;
}

/* ---- travelling ---------------------------------------------------------------------------------------- */

static weft_status begin(const weft__pass *p, const char *op, const char *site)
{
    weft_comm *comm = p->m->tp.comm;
    weft_place(weft_comm_world(comm), op, p->layer, (int)p->step);
    return weft_comm_fault(comm, site, NULL);
}

/* Bytes and elements of each rank's part of a chunk of rows. */
static void count(const weft_model *m, const weft__chunk *c, size_t size)
{
    for (int i = 0; i < m->share.tps; i++) {
        weft_span s = part_of(c, i);
        m->tp.counts[i] = (s.end - s.begin) * m->config.C;
        m->tp.bytes[i] = (size_t)m->tp.counts[i] * size;
    }
}

weft_status weft__tp_gather(const weft__pass *p, const weft__chunk *c, const void *x, weft_dtype type, const void **out)
{
    const weft_model *m = p->m;
    size_t size = weft_dtype_size(type);
    const char *own = (const char *)x + c->first * m->config.C * (int64_t)size;
    *out = own;
    if (c->shares == 1) return WEFT_OK;
    WEFT_TRY(begin(p, "gather rows over tp", "tp.gather"));
    count(m, c, size);
    *out = m->tp.buffer;
    weft_part outer = weft__part(p, WEFT_PART_EXCHANGE);
    weft_status st = weft_all_gather(m->tp.comm, c->own ? own : m->tp.buffer, m->tp.buffer, m->tp.bytes);
    weft__part_end(p, outer);
    return st;
}

static void round_to_16_bits(const weft_model *m, void *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) weft_store(x, m->rt, i, weft_bf16_to_f32(weft_f32_to_bf16(
                                                                (float)weft_load(x, m->rt, i))));
}

weft_status weft__tp_sum(weft__pass *p, const weft__chunk *c, void *partial, void *to, bool gradient)
{
    const weft_model *m = p->m;
    WEFT_TRY(weft__guard_partial(p, c, partial, gradient));
    WEFT_TRY(begin(p, "add partial sums over tp", "tp.sum"));
    if (WEFT_PLANTED(tp_sum_in_16_bits)) round_to_16_bits(m, partial, c->rows * m->config.C);
    weft_part outer = weft__part(p, WEFT_PART_EXCHANGE);
    weft_status st;
    if (c->shares == 1) st = weft_all_reduce(m->tp.comm, partial, c->rows * m->config.C, m->rt, WEFT_SUM);
    else {
        count(m, c, m->rs);
        st = weft_reduce_scatter(m->tp.comm, partial, to, m->tp.counts, m->rt);
    }
    weft__part_end(p, outer);
    return st;
}

weft_status weft__tp_stats(const weft__pass *p, const double *own, double *all, int64_t rows)
{
    const weft_model *m = p->m;
    WEFT_TRY(begin(p, "statistics of logits over tp", "tp.loss"));
    for (int i = 0; i < m->share.tps; i++) m->tp.bytes[i] = (size_t)rows * 3 * sizeof(double);
    weft_part outer = weft__part(p, WEFT_PART_EXCHANGE);
    weft_status st = weft_all_gather(m->tp.comm, own, all, m->tp.bytes);
    weft__part_end(p, outer);
    return st;
}

weft_status weft__tp_logits(const weft__pass *p, void *logits)
{
    const weft_model *m = p->m;
    WEFT_TRY(begin(p, "gather logits over tp", "tp.logits"));
    for (int i = 0; i < m->share.tps; i++) {
        weft_span V = weft_model_cut(m->config.V, m->share.tps, i);
        m->tp.bytes[i] = (size_t)(V.end - V.begin) * m->rs;
    }
    return weft_all_gather(m->tp.comm, weft__at(logits, m->par.cut.V.begin, m->rs), logits, m->tp.bytes);
}
