/* attention_case.h — one attention problem, read from a file or made from an address, and one rank's part of it. */
#ifndef WEFT_ATTENTION_CASE_H
#define WEFT_ATTENTION_CASE_H

#include "train/verify_impl.h"

enum { WEFT_CASE_Q, WEFT_CASE_K, WEFT_CASE_V, WEFT_CASE_DO, WEFT_CASE_O, WEFT_CASE_DQ, WEFT_CASE_DK, WEFT_CASE_DV,
       WEFT_CASE_TENSORS };
extern const char *const weft__case_names[WEFT_CASE_TENSORS]; /* "q" "k" "v" "do" "o" "dq" "dk" "dv" */

typedef struct weft_attention_case {
    const char *name;           /* for messages: the path, or "--make" */
    const weft_st *file;        /* NULL: the case is made, every value by its address */
    weft_cp_problem problem;
    const weft_view *in[4];     /* of a file: q k v do */
    const weft_view *file_sinks, *file_alibi;
    const char *own_words;      /* that the caller takes out of the text before it is made: "fp64 fp32 ...", or NULL */
    uint64_t seed;              /* of a made case's values */
    double file_dropout;        /* with which the file's expected values were computed */
    int64_t file_seed;          /* of that dropout; -1: not known */
    int64_t spots, *spot;       /* made: the query tokens in [0, B*Tq) that have an output gradient, ascending; 0:
                                   all */
    weft_docs docs, q_docs;     /* documents of keys, of queries */
    const weft_run *run;
    weft_ctx *ctx;
    weft_comm *comm;
    weft_arena *arena;
    weft_shard shard_q, shard_kv;
    weft_dtype C, R;
    void *mine[WEFT_CASE_TENSORS]; /* this rank's rows, dense */
    void *m, *l, *lse, *kept, *sinks, *alibi, *dsinks; /* sinks, alibi [H] (R) or NULL */
} weft_attention_case;

/* Elements of one row of a tensor. */
int64_t weft__case_width(const weft_attention_case *c, int tensor);
static inline bool weft__case_of_keys(int tensor)
{
    return tensor == WEFT_CASE_K || tensor == WEFT_CASE_V || tensor == WEFT_CASE_DK || tensor == WEFT_CASE_DV;
}
static inline const weft_shard *weft__case_shard(const weft_attention_case *c, int tensor)
{
    return weft__case_of_keys(tensor) ? &c->shard_kv : &c->shard_q;
}

/* verify_attention.c: the case's file or text and this rank's documents (path NULL: made); this rank's rows; what
 * forward and backward are given. LOCAL */
weft_status weft__case_open(weft_attention_case *c, weft_st **file, const char *path);
weft_status weft__case_open_made(weft_attention_case *c, const char *text); /* whatever run->o->make says */
weft_status weft__case_prepare(weft_attention_case *c);
/* The two parts of preparing that others need alone: shards for c->comm; the rows of one tensor of `rank`. */
weft_status weft__case_cut(weft_attention_case *c);
weft_status weft__case_take(weft_attention_case *c, int tensor, int rank);
weft_cp_io weft__case_io(const weft_attention_case *c);
static inline const weft_shard *weft__case_queries(const weft_attention_case *c)
{
    return c->problem.Tq == c->problem.T ? &c->shard_kv : &c->shard_q;
}

/* attention_read.c: problem, documents, sinks and slopes from c->file; refuses what means nothing. LOCAL */
weft_status weft__case_read(weft_attention_case *c);
weft_status weft__case_expect_shape(const weft_attention_case *c, const char *name, const weft_view *v, int nd,
                                    const int64_t *shape);

/* attention_write.c: results (and inputs of a made case) with the case's metadata to --out. LOCAL */
weft_status weft__case_write(const weft_attention_case *c, const weft_st_entry *entries, int n);

/* attention_make.c: the same from a text such as "T=1001 H=4/2 D=64 causal docs=100,0,* window=255 sinks". LOCAL */
weft_status weft__case_make(weft_attention_case *c, const char *text);
/* Row `token` in [0, B*T) of q, k, v or do, rounded to C. */
void weft__case_value(const weft_attention_case *c, int tensor, int64_t token, void *row);

/* attention_spot.c: adds one finding per tensor of a made case with spots, against double precision. COLLECTIVE */
weft_status weft__case_check_spots(weft_attention_case *c, weft_report *report);

#endif
