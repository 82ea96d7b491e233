/* attention.h — exact attention of a run of query rows over a run of key rows, with a running state.
 *
 * For query row i of head h and key j:
 *   s_ij = softcap(scale * q_i.k_j) - alibi_h |qpos_i - kpos_j|,   softcap(x) = cap * tanh(x / cap)
 *   visible when  -left <= kpos - qpos <= right  and, if causal,  kpos <= qpos or kpos < prefix
 * Forward keeps, per (row, head), a running maximum m, sum l = sum exp(s - m) and accumulator
 * acc = sum exp(s - m) v, all in R (float, or double for fp64), over any number of calls; `finish` divides
 * once. An empty row has m = -inf, l = 0, acc = 0. Backward takes the final (m, l) of all keys (and sink):
 *   p_ij = exp(s_ij - m_i) / l_i
 *   dv_j += p_ij do_i          ds_ij = p_ij (do_i.v_j - delta_i) (1 - (s/cap)^2 if softcap)
 *   dq_i += scale ds_ij k_j    dk_j += scale ds_ij q_i          delta_i = do_i.o_i
 * (m, l) stay a pair because one rounded fp32 lse is too coarse for large scores.
 * Sources: Milakov & Gimelshein 2018 (online softmax); Dao et al. 2022, 2023 (flash attention).
 *
 * Positions come in runs: the i-th row of a range stands at pos + (i / run) * step + i % run, with
 * 1 <= run <= step. So contiguous (run = step), striped (run = 1) and striped tiles (run = 128, say) need no
 * copy, and positions always grow. Tiles are classified by their extreme positions: empty (skipped), full (no
 * mask code), partial.
 *
 * Dropout of p_ij keeps a pair when the Philox word of its address (philox.h; weft_attn_kept below) is at
 * least dropout * 2^32, and scales what is kept by 1 / (1 - dropout):
 *   acc = sum kept exp(s - m) v / (1 - dropout)      l, m, lse: of all keys, as without dropout
 *   dv_j += kept p_ij do_i / (1 - dropout)           dp_ij = kept do_i.v_j / (1 - dropout)
 *   ds_ij = p_ij (dp_ij - delta_i) ...               delta_i = do_i.o_i, unchanged
 *
 * One call gets a list of pairs (query rows x key rows). CONTRACT: pairs of a backward call have disjoint query
 * rows and disjoint key rows. In a forward call, pairs that follow one another may have the same queries (the
 * same q_row, nq, q_pos, q_run, q_step, base and sample): such a run of pairs is walked in the order of the list, its
 * queries and their state are loaded and its state is stored once. Different runs have disjoint query rows; keys may
 * be shared, they are only read. So every run, or pair of a backward, may run on its own thread. Results are
 * the same bits for any number of threads. */
#ifndef WEFT_KERN_ATTENTION_H
#define WEFT_KERN_ATTENTION_H

#include "tensor/tensor.h"

enum { WEFT_ATTN_MAX_D = 256 };

typedef struct weft_mask {
    bool causal;
    int64_t left, right; /* window: keys before and after a query's own position; -1 = no limit */
    int64_t prefix;      /* keys at positions < prefix are visible to all (with causal); 0 = none */
} weft_mask;

/* How a tile of queries [q0,q1] sees a tile of keys [k0,k1] (extreme positions, inclusive). */
typedef enum { WEFT_TILE_EMPTY, WEFT_TILE_PARTIAL, WEFT_TILE_FULL } weft_tile;

static inline bool weft_visible(const weft_mask *m, int64_t q, int64_t k)
{
    return (m->left < 0 || k >= q - m->left) && (m->right < 0 || k <= q + m->right) &&
           (!m->causal || k <= q || k < m->prefix);
}
static inline weft_tile weft_classify(const weft_mask *m, int64_t q0, int64_t q1, int64_t k0, int64_t k1)
{
    if ((m->left >= 0 && k1 < q0 - m->left) || (m->right >= 0 && k0 > q1 + m->right) ||
        (m->causal && k0 > q1 && k0 >= m->prefix))
        return WEFT_TILE_EMPTY;
    if ((m->left < 0 || k0 >= q1 - m->left) && (m->right < 0 || k1 <= q0 + m->right) &&
        (!m->causal || k1 <= q0 || k1 < m->prefix))
        return WEFT_TILE_FULL;
    return WEFT_TILE_PARTIAL;
}

typedef struct weft_attn_desc { /* what is fixed for a plan */
    int H, Hkv;            /* query and key/value heads in the given rows */
    int D, Dv;             /* 1..WEFT_ATTN_MAX_D */
    int group;             /* query heads per K,V head in the whole model */
    int head0, kv_head0;   /* whole-model numbers of the first heads here: local query head h reads local
                              K,V head (head0 + h) / group - kv_head0 */
    double scale;
    double softcap;        /* 0: none */
    weft_mask mask;
    const void *alibi;     /* [H] slopes (R) of the heads here, or NULL */
    double dropout;        /* probability in [0, 1); 0: none */
    uint64_t seed;         /* of dropout */
} weft_attn_desc;

static inline int weft_attn_kv_head(const weft_attn_desc *d, int h) { return (d->head0 + h) / d->group - d->kv_head0; }

/* Rows [q_row, q_row + nq) of the query arrays against rows [k_row, k_row + nk) of the key arrays. */
typedef struct weft_attn_pair {
    int64_t q_row, nq, q_pos, q_run, q_step; /* i-th query row: q_pos + (i / q_run) * q_step + i % q_run */
    int64_t k_row, nk, k_pos, k_run, k_step;
    int64_t base;                     /* dropout's address counts tokens of the whole row: position + base */
    uint32_t sample;                  /* the same, which row of the batch */
} weft_attn_pair;

/* Element strides: `ld` between rows; heads lie D (Dv) apart. */
typedef struct weft_attn_fwd_io {
    const void *q, *k, *v; /* (C) */
    int64_t q_ld, k_ld, v_ld;
    void *acc;             /* (R) [rows, H, Dv] dense */
    void *m, *l;           /* (R) [rows, H] dense     */
    uint32_t drop_word3;   /* step, layer and site: weft_philox_word3; read only with desc.dropout */
} weft_attn_fwd_io;

typedef struct weft_attn_bwd_io {
    const void *q, *k, *v, *dout; /* (C) */
    int64_t q_ld, k_ld, v_ld, dout_ld;
    const void *m, *l, *delta;    /* (R) [rows, H] dense, final */
    void *dq;                     /* (R) [q rows, H, D] dense, +=    */
    void *dk, *dv;                /* (R) [k rows, Hkv, D or Dv] dense, += */
    uint32_t drop_word3;          /* as in forward */
} weft_attn_bwd_io;

typedef struct weft_attn_run { /* how to run: everything that does not change results */
    void *work;            /* weft_attn_work_bytes(...) bytes, 64-byte aligned */
    int threads;
    void (*poll)(void *ud); /* called now and then by the calling thread, so that messages move; or NULL */
    void *poll_ud;
    weft_queue *queue;
    const struct weft_charge *charge; /* kern.h; read only by kernels that charge time, NULL for the others */
} weft_attn_run;

typedef struct weft_attn_ops {
    const char *name; /* "avx512 64x120" for plans that print themselves */
    /* state: acc = 0, m = -inf, l = 0 for `rows` rows */
    void (*start)(const weft_attn_desc *d, void *acc, void *m, void *l, int64_t rows);
    void (*forward)(const weft_attn_desc *d, const weft_attn_fwd_io *io, const weft_attn_pair *pairs, int64_t n,
                    const weft_attn_run *run);
    /* Adds the sink (sinks[H] (R) or NULL) to m, l; o (C) [rows, H, Dv] with o_ld = acc / l; lse[rows,H] (R)
     * when not NULL. Empty rows: o = 0, lse = -inf (the sink, if there is one). */
    void (*finish)(const weft_attn_desc *d, void *o, int64_t o_ld, void *lse, const void *acc, void *m, void *l,
                   const void *sinks, int64_t rows, int threads);
    /* delta[rows,H] (R) = sum_d dout * o (both C); dsinks[H] (R, may be NULL) += -sum_rows p_sink * delta. */
    void (*delta)(const weft_attn_desc *d, void *delta, void *dsinks, const void *sinks, const void *dout,
                  int64_t dout_ld, const void *o, int64_t o_ld, const void *m, const void *l, int64_t rows,
                  int threads);
    void (*backward)(const weft_attn_desc *d, const weft_attn_bwd_io *io, const weft_attn_pair *pairs, int64_t n,
                     const weft_attn_run *run);
    size_t (*work_bytes)(const weft_attn_desc *d, int threads);
    /* lse[n] (R) = m + log l, -inf where l = 0: what finish reports, from the final m, l. */
    void (*lse)(void *lse, const void *m, const void *l, int64_t n);
} weft_attn_ops;

/* Whether dropout keeps the pair (query, key) of head `head` of the whole model: one Philox call serves the
 * four keys 4n .. 4n + 3 (tokens of the row), word k % 4 decides. The specification of the mask, and what
 * `weft attention --out` writes. LOCAL, pure */
bool weft_attn_kept(double dropout, uint64_t seed, uint32_t word3, uint32_t sample, uint32_t head, int64_t q_token,
                    int64_t k_token);

/* Visible (query, key) pairs of one head: what a kernel that only charges time charges for. O(1) for
 * contiguous ranges; O(step) or less when the step of the keys divides that of the queries or the queries are
 * contiguous; O(nq) otherwise. LOCAL, pure */
int64_t weft_attn_area(const weft_mask *mask, const weft_attn_pair *pair);

/* Refuses what the kernels of this precision do not take (D or Dv outside 1..256, heads that do not divide, a window
 * below -1, a dropout of 1, a scale or softcap that R cannot hold, ...), with the rule and a value that works. */
weft_status weft_attn_check(const weft_attn_desc *d, weft_prec prec);

#endif
