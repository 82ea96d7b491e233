/* weft/attention.h — exact attention over a sequence that is cut over ranks, for programs with their own
 * trainer.
 *
 * The boundary: the caller owns q, k, v and their gradients and tells how a whole sequence looks (length,
 * documents, mask); the library decides which tokens a rank holds, moves keys and values between ranks, and
 * gives this rank's rows of the result. No tensor library, no trainer and no transport shows through.
 *
 *   weft_attention_params p;
 *   weft_attention_params_init(&p, sizeof p);
 *   p.T = 1001; p.H = 8; p.Hkv = 2; p.D = p.Dv = 64;
 *   weft_attention_create(&a, group, &p);           which rows are mine: weft_attention_tokens
 *   weft_attention_forward(a, &io); weft_attention_backward(a, &io);
 *
 * Letters: B sequences, T tokens of a whole sequence, S rows of this rank (of all B sequences), H query heads,
 * Hkv key/value heads, D head size of q and k, Dv of v. Two element types: C is that of the precision (double,
 * float, or bf16 as uint16_t), R is double for fp64 and float for the others; sums and statistics are R.
 * Arrays are row-major; heads of one row lie D (Dv) apart. All are host memory.
 *
 * The result does not depend on the number of ranks beyond rounding, and for a given number of ranks, layout
 * and strategy it is the same bits every time. Functions return a status; the text is weft_last_error(). */
#ifndef WEFT_ATTENTION_H
#define WEFT_ATTENTION_H

#include "weft/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_attention_precision {
    WEFT_ATTENTION_FP32, /* C = R = float                                                  */
    WEFT_ATTENTION_BF16, /* C = bf16, R = float: operands are rounded, sums are not         */
    WEFT_ATTENTION_FP64  /* C = R = double, reference kernels: slow; shows that a cut is exact */
} weft_attention_precision;

/* Element types on the wire. */
typedef enum weft_attention_wire {
    WEFT_ATTENTION_WIRE_SAME,
    WEFT_ATTENTION_WIRE_FP32,
    WEFT_ATTENTION_WIRE_BF16,
    WEFT_ATTENTION_WIRE_FP16,
    WEFT_ATTENTION_WIRE_FP8  /* e4m3 with one scale per block of rows and head */
} weft_attention_wire;

typedef struct weft_attention_params {
    size_t size;              /* set by weft_attention_params_init */
    weft_attention_precision precision; /* fp32 */
    int64_t B;                /* 1 */
    int64_t T;                /* must be set; any length, divisible by nothing */
    int64_t max_docs;         /* documents of all B sequences together, at most; 0 (default): one each */
    int H, Hkv;               /* must be set; H is a multiple of Hkv */
    int D, Dv;                /* must be set; 1 .. 256 */
    double scale;             /* factor of q.k; 0 (default): 1/sqrt(D) */
    double softcap;           /* scores become cap * tanh(score / cap); 0 (default): no cap */
    bool causal;              /* default true: a query sees no key after its own position */
    int64_t window_left;      /* a query sees itself and this many keys before it; -1 (default): all */
    int64_t window_right;     /* and this many after it (never past `causal`); -1 (default): all */
    int64_t prefix;           /* with causal: the first `prefix` positions are visible to all; default 0 */
    const void *alibi;        /* [H] (R) slopes, adds -slope * |qpos - kpos| to the score; copied; default NULL */
    bool sinks;               /* one more logit per head in every row's sum; default false */
    bool backward;            /* default true; false saves the buffers of backward */
    const char *strategy;     /* "auto" (default), "none" (1 rank), "pcp", "ring", "pairwise"; with head groups: "dcp",
                                 "dcp-ring", "dcp-pairwise", "ulysses" (one group of all ranks) */
    const char *layout;       /* "zigzag" (default): two chunks of a row, an early and a late one; "contiguous";
                                 "striped:k": every P-th stripe of k tokens ("striped": k = 1); "balanced": whole
                                 documents where they fit, cut so that token counts and causal work are even */
    bool overlap;             /* default true: exchange and compute at once; no bit changes */
    int threads;              /* of this rank; 0 (default): cores / ranks, at least 1 */
    int head_size;            /* ranks per head group, a divisor of the ranks that is at most H; 0 (default): the
                                 largest that is at most Hkv */
    bool keep_heads;          /* with head groups: the state also holds q, k, v of the own heads, and backward does not
                                 exchange them again; default false; no bit changes */
    bool fp8;                 /* K,V travel and are kept as fp8, travelling dO too; default false */
    weft_attention_wire comm_dtype; /* of travelling K,V; default WEFT_ATTENTION_WIRE_SAME: C */
    weft_attention_wire grad_dtype; /* of travelling sums of dK,dV: SAME (default: R), FP32 or BF16 */
    size_t buffer_bytes;      /* messages are cut into pieces of so many bytes, at least 64, and compute begins with the
                                 first; 0 (default): whole messages. No bit changes */
    double dropout;           /* of probabilities, in [0, 1); default 0. The mask depends on seed, io.step, io.layer,
                                 sequence, head and positions only: the same on any number of ranks */
    uint64_t seed;            /* of dropout; default 0 */
} weft_attention_params;

/* Fills *params with the defaults named above. size: sizeof *params, as the caller was compiled. LOCAL */
WEFT_API void weft_attention_params_init(weft_attention_params *params, size_t size);

typedef struct weft_attention weft_attention;

/* Plans one attention shape: checks, buffers for the largest case, tags. Later calls allocate nothing.
 * Every rank gives the same parameters (threads may differ); what is not possible, or not the same, is
 * refused on every rank with the rule. Afterwards each sequence is one document. The group must outlive
 * the plan. COLLECTIVE */
WEFT_API weft_status weft_attention_create(weft_attention **out, weft_group *group,
                                           const weft_attention_params *params);
WEFT_API void weft_attention_destroy(weft_attention *attention); /* NULL is fine. LOCAL */

/* Documents of the micro-batch that follows: tokens of different documents do not see each other, and
 * positions count from the beginning of the document. Sequence b has counts[b] documents and counts[b] + 1
 * offsets in [0, T], the first 0, the last T, never decreasing (a document may be empty); the offsets of all
 * sequences follow one another in `offsets`. offsets NULL: one document per sequence. Every rank gives the
 * same values; a difference is refused on every rank. COLLECTIVE (two small sums) */
WEFT_API weft_status weft_attention_documents(weft_attention *attention, const int64_t *offsets, const int64_t *counts);

/* S: rows of this rank, fixed for the life of the plan; may be 0. LOCAL */
WEFT_API int64_t weft_attention_rows(const weft_attention *attention);
/* For every row of this rank, in the order of its rows: index[S] in [0, B*T) (sequence b starts at b*T), and
 * position[S] in its document (what rotary angles need). Either may be NULL. LOCAL */
WEFT_API void weft_attention_tokens(const weft_attention *attention, int64_t *index, int64_t *position);

typedef struct weft_attention_io {
    size_t size;              /* set by weft_attention_io_init */
    int layer;                /* for messages about a stuck rank; default -1 */
    const void *q, *k, *v;    /* (C) [S,H,D] [S,Hkv,D] [S,Hkv,Dv] */
    /* elements between rows; 0 (default): dense. So q, k, v may lie in one array */
    int64_t q_stride, k_stride, v_stride;
    const void *sinks;        /* (R) [H] with params.sinks, else NULL */
    void *o;                  /* (C) [S,H,Dv] forward writes, backward reads */
    int64_t o_stride;
    void *lse;                /* (R) [S,H] or NULL: forward writes log of the sum of exp of all scores, natural
                                 logarithm */
    void *state;              /* weft_attention_state_bytes(), 8-byte aligned (64-byte with keep_heads or fp8): forward
                                 writes, backward reads.
                                 NULL: kept in the plan until the next forward; enough for one layer */
    /* backward only */
    const void *dout;         /* (C) [S,H,Dv] gradient of o */
    int64_t dout_stride;
    void *dq, *dk, *dv;       /* (C) shapes of q, k, v; written, not added */
    int64_t dq_stride, dk_stride, dv_stride;
    void *dsinks;             /* (R) [H] += this rank's part, or NULL. Like every weight gradient it is to be
                                 summed over the ranks by the caller */
    /* both */
    uint32_t step, reserved;  /* of the optimizer: part of dropout's address; the same in forward and backward.
                                 reserved: 0 */
} weft_attention_io;

/* Everything NULL, 0 and layer -1. size: sizeof *io. LOCAL */
WEFT_API void weft_attention_io_init(weft_attention_io *io, size_t size);

/* A row that sees no key gives o = 0 and lse = -infinity (with sinks: the sink), and gradients 0. COLLECTIVE */
WEFT_API weft_status weft_attention_forward(weft_attention *attention, const weft_attention_io *io);
/* Takes q, k, v, sinks, o and state as forward left them. COLLECTIVE */
WEFT_API weft_status weft_attention_backward(weft_attention *attention, const weft_attention_io *io);

/* Bytes of the state that forward leaves for backward: a maximum and a sum, per row and head; with keep_heads also q,
 * k, v, maximum and sum of the head group's rows for the own heads; with fp8 the kept K,V. LOCAL */
WEFT_API size_t weft_attention_state_bytes(const weft_attention *attention);

typedef struct weft_attention_traffic {
    int64_t sent;             /* payload that peers got from this rank, in all calls so far */
    int64_t forward_formula;  /* what one forward, one backward sends, by the formula of the strategy */
    int64_t backward_formula;
} weft_attention_traffic;
WEFT_API weft_attention_traffic weft_attention_bytes(const weft_attention *attention); /* LOCAL */

/* Bytes of the buffers through which messages travel, allocated when the plan was made. LOCAL */
WEFT_API size_t weft_attention_pool_bytes(const weft_attention *attention);

/* The plan in words, "(ring P=4 zigzag (kernel avx512 64x120))", cut to `size` bytes with the closing NUL. LOCAL */
WEFT_API void weft_attention_describe(const weft_attention *attention, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
