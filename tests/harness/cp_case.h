/* cp_case.h — one attention problem, run on P ranks and by a plain double-precision loop.
 *
 * A case is whole-sequence arrays; a job is a case with strategy, layout and overlap. Ranks pick their rows
 * by weft_shard_tokens and scatter their results back, so results of any layout compare element by element.
 * Everything is kept as double: fp32 and 16-bit values are exact there, and memcmp compares bits. */
#ifndef WEFT_TEST_CP_CASE_H
#define WEFT_TEST_CP_CASE_H

#include "cp/cp.h"
#include "harness/traffic.h"

typedef struct cp_case {
    const char *name;
    weft_prec prec;
    int64_t B, Tq, T;
    int H, Hkv, D, Dv;
    weft_mask mask;
    double scale;               /* 0: 1/sqrt(D) */
    double softcap;
    double dropout;             /* the specification knows none: compare with one rank */
    bool no_dropout;            /* calls that evaluate: none is dropped */
    bool sinks, alibi;
    const int64_t *cu, *first;  /* documents, or NULL: one per row */
    int64_t k_pos0;             /* position of the first key; queries end with the keys unless own_q_pos0 */
    bool own_q_pos0;
    int64_t q_pos0;
    uint64_t seed;
    int64_t block;              /* of layout striped */
    int group, head0;           /* of the problem: a part of a model's heads; group 0: all */
    bool poison;                /* the plan is first run on NaN alone */
    /* what: 'q' 'k' 'v' 'o' (dout); NULL: normal(0, 1) */
    double (*value)(const struct cp_case *c, char what, int64_t b, int64_t t, int h, int d);
} cp_case;

typedef struct cp_data { double *q, *k, *v, *dout, *sinks, *alibi; } cp_data; /* rounded to the case's types */

typedef struct cp_result {
    double *o, *lse, *dq, *dk, *dv; /* whole */
    double *dsinks;                 /* [H] sum over ranks, in rank order */
    int ranks;
    double *dsinks_part;            /* [ranks, H] */
    int64_t *forward_bytes, *backward_bytes, *planned_forward, *planned_backward; /* [ranks] */
    int64_t *forward_messages, *backward_messages, *planned_forward_messages, *planned_backward_messages; /* [ranks] */
    size_t *kv_buffer_bytes, *pool_bytes, *kept_bytes; /* [ranks] */
} cp_result;

/* Layouts of jobs: the kinds (striped with the case's block), and one more, since runs of several tokens are another
 * matter than runs of one. */
enum { CP_STRIPED_3 = WEFT_LAYOUT_COUNT, CP_LAYOUTS };

typedef struct cp_job {
    const cp_case *c;
    const cp_data *data;
    const char *strategy;
    weft_layout_kind layout;
    bool overlap;
    int repeat;                             /* times that forward and backward run; 0 means once */
    void (*tamper)(weft_cp_plan *plan);     /* breaks the plan on purpose, or NULL */
    cp_result *out;
    weft_cp_options more;                   /* what else is asked for, besides strategy and overlap */
} cp_job;

/* One document per row and documents that differ per row, with empty ones and ones of one token. */
typedef struct cp_docs { int64_t *cu, *first, total; } cp_docs;
cp_docs cp_docs_make(int64_t B, int64_t T, int pattern);
void cp_docs_free(cp_docs *d);

cp_data cp_data_make(const cp_case *c);
void cp_data_free(cp_data *d);
cp_result *cp_result_make(const cp_case *c, int ranks);
void cp_result_free(cp_result *r);

/* Runs all jobs on P thread ranks. */
weft_status cp_run(int P, cp_job *jobs, int n);
weft_status cp_run_copies(int P, cp_job *jobs, int n); /* nothing is read in place */
/* On simulated ranks, with kernels that compute. */
weft_status cp_run_sim(int P, const weft_sim_model *model, cp_job *jobs, int n);
/* One rank's part, on any communicator; index is the rank's row in the result's per-rank arrays. */
weft_status cp_run_rank(weft_ctx *ctx, weft_comm *comm, const cp_job *job);
void cp_result_sum_sinks(cp_result *r, int H);
/* The specification: loops over all pairs in double. */
void cp_reference(const cp_case *c, const cp_data *data, cp_result *out);

/* Largest of the relative errors of o, dq, dk, dv, dsinks (2-norm, floor |dout|/100); lse as
 * max |a - b| / max(1, |b|), weighed with lse_weight. */
double cp_distance(const cp_case *c, const cp_data *data, const cp_result *x, const cp_result *ref, double lse_weight);
bool cp_same_bits(const cp_case *c, const cp_result *a, const cp_result *b);

/* Unit roundoff u: a rounding moves a number by at most u of it, by 0.4 u in the root mean square. */
double cp_roundoff(weft_dtype type);
/* How far (relative 2-norm) two runs may lie apart that add the same terms in another order. Each partial sum of random
 * terms is rounded by 0.4 u: over n of them 0.3 sqrt(n) u of the result, and 0.4 sqrt(n) u between two orders, here
 * with room for other data. 16 u: what is not these sums, the exponentials of rescaling, division, delta and logarithm,
 * about 8 roundings in each of the runs. In fp32 not above 1e-6, half of what may lie between fp32 and float64. 16-bit
 * results are rounded from such sums: where x lies between those, a share x / 2u of the results falls on either side of
 * a bound and differs by 2u. */
double cp_reorder_limit(weft_prec prec, int64_t terms);

/* Of a job that ran: every rank sent what its plan said that it would. */
void cp_check_planned(const cp_job *job);
/* What a rank sent, and what its plan said, are these bytes and messages; with a full mask and the types of the
 * precision on the wire, on all ranks those of the formulas. */
traffic_case cp_traffic_case(const cp_job *job);
void cp_expect_traffic(const cp_job *job, int rank, const traffic *want);
void cp_check_traffic(const cp_job *job);

/* A job for every way to run the case on P ranks that cp_check_all takes: each strategy, with overlap and without.
 * Their results are the caller's to free. Returns how many. */
enum { CP_WAYS = 10 };
int cp_jobs(const cp_case *c, const cp_data *data, int P, weft_layout_kind layout, cp_job jobs[CP_WAYS]);

/* The whole claim for one case: the P = 1 run is within `exact` of the specification; every strategy and layout, on
 * each of the P in ranks[], is within `across` of P = 1; and for each layout the strategies of one family (those that
 * cut heads and rows alike), overlap on and off, in place and copied, and a second run give the same bits; bytes and
 * messages are those of the plan. Zigzag meets every P, the other layouts take turns: odd and even places of ranks[]
 * (under a sanitizer every fifth of these).
 * Fails the test with the case's name. */
void cp_check_all(const cp_case *c, const int *ranks, int n, double exact, double across, double lse_weight);

#endif
