/* attention_case.h — attention problems of any shape, their float64 answer by the plain formula (whole rows
 * of scores, no running state), and the run of one through a kernel table.
 *
 * Rows, pairs and calls are given the way a context-parallel plan gives them: every call is a list of pairs
 * with disjoint rows; in forward one call may get them all, so that pairs of the same queries make runs. Operands lie
 * in rows longer than needed, and every gap and all work memory is NaN. Behind the last byte of each array, or before
 * its first, is a page that cannot be read. */
#ifndef WEFT_TEST_ATTENTION_CASE_H
#define WEFT_TEST_ATTENTION_CASE_H

#include "harness/place.h"
#include "harness/test.h"
#include "kern/attention/attention.h"

enum { CASE_MAX_PAIRS = 64, CASE_MAX_CALLS = 16 };

typedef struct attention_result { /* dense, double; sizes as in attention_case */
    double *o, *lse, *dq, *dk, *dv, *dsinks;
} attention_result;

typedef struct attention_case {
    weft_attn_desc d;      /* alibi is set by the run from `alibi` */
    uint32_t word3;        /* step, layer and site of dropout */
    int64_t pitch;         /* elements between rows of q, k, v, dout, o; 0: a little more than their width */
    place_side side;       /* of the page that cannot be read; not for rows that are `pitch` apart */
    int64_t q_rows, k_rows;
    int calls, call_end[CASE_MAX_CALLS]; /* pairs of call c: [call_end[c-1], call_end[c]) */
    int n;
    weft_attn_pair pair[CASE_MAX_PAIRS];
    bool runs;             /* one call of the forward gets the pairs of all calls, sorted by query row */
    double *q, *k, *v, *dout;   /* [rows, heads, D or Dv] */
    double *sinks, *alibi;      /* [H] or NULL */
    attention_result want;
    /* With `conditioned`, the answer also finds the same sums over the moduli of their terms, and the largest sum of
     * moduli behind a score: how much the roundings of terms and scores can move a result. */
    bool conditioned;
    attention_result moduli; /* lse is not used */
    double score_moduli;
} attention_case;

/* Heads, sizes, scale 1/sqrt(D), full visibility; no rows and pairs yet. H must be a multiple of Hkv. */
void case_init(attention_case *c, int H, int Hkv, int D, int Dv);
void case_add(attention_case *c, weft_attn_pair pair);
/* Rows `step` positions apart. */
void case_add_pair(attention_case *c, int64_t q_row, int64_t nq, int64_t q_pos, int64_t q_step, int64_t k_row,
                   int64_t nk, int64_t k_pos, int64_t k_step);
void case_end_call(attention_case *c);

/* One pair; queries stand at the end of the keys. */
void case_simple(attention_case *c, int64_t nq, int64_t nk);
/* One call with a pair per document. */
void case_documents(attention_case *c, const int64_t *lengths, int n);
/* Tokens in `parts` shares, which lie one after the other in memory: contiguous (stripe 0), or dealt `stripe` tokens
 * at a time. Call i lets share a see share (a + i) mod parts, the way a ring does. */
void case_ring(attention_case *c, int64_t tokens, int parts, int64_t stripe);
/* Whether dropout keeps query row i of head h (of those here) and row x of pair p's keys. */
bool case_kept(const attention_case *c, const weft_attn_pair *p, int64_t i, int h, int64_t x);

/* Random operands (normal; q times `q_size`), then the answer. They are exact in fp32, or, with bits16, in both
 * bf16 and fp16. */
void case_fill(attention_case *c, bool bits16, uint64_t seed, double q_size, bool sinks, bool alibi);
/* The same without the answer: what case_run needs. */
void case_operands(attention_case *c, bool bits16, uint64_t seed, double q_size, bool sinks, bool alibi);
/* The answer for the operands that are there. */
void case_answer(attention_case *c);
/* Frees operands and answer; the shape stays and can be filled again. */
void case_clear(attention_case *c);

attention_result result_new(const attention_case *c);
void result_free(attention_result *r);

/* start, forward, finish, delta, backward. */
void case_run(const attention_case *c, const weft_attn_ops *ops, weft_prec prec, int threads, attention_result *out);

/* Fails the test when a result is farther from the answer than `limit` (relative L2, design.md section 6) or
 * its lse than lse_limit. */
void case_check(const attention_case *c, const attention_result *r, double limit, double lse_limit,
                const char *what);
/* Whether row i of the queries sees row x of pair p's keys, both counted in their arrays and in the pair. */
bool case_visible(const attention_case *c, const weft_attn_pair *p, int64_t i, int64_t x);
/* All results have the same bits. */
void case_check_same(const attention_case *c, const attention_result *a, const attention_result *b, const char *what);

#endif
