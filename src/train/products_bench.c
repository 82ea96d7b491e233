/* products_bench.c — how fast one matrix product is on one rank, as a share of what its arithmetic units do. Its
 * operands are the same in every run: in a model they come from memory where they are not the last things that were
 * written. */
#include "train/figures.h"

#include <string.h>

typedef struct bench {
    weft_ctx *ctx;
    weft_arena *arena;
    weft_gemm *gemm;
    weft_gemm_args args;
    weft__roof roof;
    int64_t inner; /* runs in one measurement */
    weft__sample x[WEFT__REPEATS_MAX];
    int repeats;
} bench;

/* ---- words -------------------------------------------------------------------------------------------------- */

static const int64_t size_max = (int64_t)1 << 40;

typedef struct words { /* what was said so far */
    weft_product_case *out;
    bool prec, layout, sum, size[3];
} words;

static weft_status take_twice(const char *text, const char *word)
{
    return weft_fail(WEFT_ERR_REFUSED, "%s: \"%s\" is said twice, or against another word; leave one out", text, word);
}

/* "M4096", "M=4K" */
static weft_status take_size(words *w, const char *text, const char *word, bool *taken)
{
    weft_gemm_args *a = &w->out->args;
    static const char letters[] = "MNK";
    int64_t *const sizes[] = {&a->M, &a->N, &a->K};
    const char *letter = strchr(letters, word[0]), *digits = word + (word[1] == '=' ? 2 : 1);
    *taken = letter && word[1];
    if (!*taken) return WEFT_OK;
    const size_t i = (size_t)(letter - letters);
    if (w->size[i]) return take_twice(text, word);
    if (weft_parse_size(digits, sizes[i]) < 0 || *sizes[i] < 1 || *sizes[i] > size_max)
        return weft_fail(WEFT_ERR_REFUSED, "%s: \"%s\" is no size; write M4096 or M=4K, from 1 to 2^40", text, word);
    w->size[i] = true;
    return WEFT_OK;
}

static weft_status take_word(words *w, const char *text, const char *word)
{
    static const char *const known[] = {"fp64", "fp32", "bf16", "fp16", "nn", "nt", "tn", "tt", "sum", "M4096", "N4096",
                                        "K4096"};
    weft_gemm_args *a = &w->out->args;
    bool taken, layout = strlen(word) == 2 && strspn(word, "nt") == 2;
    if (weft_prec_parse(word, &w->out->prec)) return w->prec ? take_twice(text, word) : (w->prec = true, WEFT_OK);
    if (layout) {
        a->trans_a = word[0] == 't', a->trans_b = word[1] == 't';
        return w->layout ? take_twice(text, word) : (w->layout = true, WEFT_OK);
    }
    if (!strcmp(word, "sum")) return w->sum ? take_twice(text, word) : (w->sum = true, WEFT_OK);
    WEFT_TRY(take_size(w, text, word, &taken));
    if (taken) return WEFT_OK;
    const char *near = weft_suggest(word, known, sizeof known / sizeof *known);
    return weft_fail(WEFT_ERR_REFUSED, "%s: \"%s\" is not known%s%s; write fp64 fp32 bf16 fp16, M4096 N4096 K4096, "
                     "nn nt tn tt, sum", text, word, near ? "; did you mean " : "", near ? near : "");
}

weft_status weft_product_of_text(weft_product_case *out, weft_prec prec, const char *text)
{
    char copy[256], *next = NULL;
    weft_product_case c = {.prec = prec, .args.trans_b = true};
    words w = {.out = &c};
    if (strlen(text) >= sizeof copy) return weft_fail(WEFT_ERR_REFUSED, "%.40s...: that is too long", text);
    strcpy(copy, text);
    for (char *word = strtok_r(copy, " \t", &next); word; word = strtok_r(NULL, " \t", &next))
        WEFT_TRY(take_word(&w, text, word));
    if (!w.size[0] || !w.size[1] || !w.size[2])
        return weft_fail(WEFT_ERR_REFUSED, "%s: M, N and K are needed, as in \"bf16 M4096 N4096 K1024\"", text);
    weft_gemm_args *a = &c.args;
    a->ab = weft_prec_compute(c.prec);
    a->c = w.sum ? weft_prec_real(c.prec) : a->ab;
    a->beta = w.sum;
    a->lda = a->trans_a ? a->M : a->K;
    a->ldb = a->trans_b ? a->K : a->N;
    a->ldc = a->N;
    *out = c;
    return WEFT_OK;
}

/* ---- measuring --------------------------------------------------------------------------------------------- */

static weft_status make_matrix(bench *b, weft_dtype t, int64_t rows, int64_t columns, void **out)
{
    int64_t n = 0;
    if (!weft_mul_i64(rows, columns, &n))
        return weft_fail(WEFT_ERR_REFUSED, "a matrix of %lld x %lld is too large to count", (long long)rows,
                         (long long)columns);
    return weft_bench_numbers(b->arena, t, n, "operands", out);
}

static weft_status make_operands(bench *b)
{
    weft_gemm_args *a = &b->args;
    void *A, *B, *C;
    WEFT_TRY(make_matrix(b, a->ab, a->M, a->K, &A));
    WEFT_TRY(make_matrix(b, a->ab, a->K, a->N, &B));
    WEFT_TRY(make_matrix(b, a->c, a->M, a->N, &C));
    a->A = A, a->B = B, a->C = C;
    return WEFT_OK;
}

static weft_status timed(bench *b, double *seconds)
{
    double begin = weft_now(&b->ctx->clock);
    for (int64_t i = 0; i < b->inner; i++) WEFT_TRY(weft_gemm_run(b->gemm, &b->args, NULL));
    *seconds = (weft_now(&b->ctx->clock) - begin) / (double)b->inner;
    return WEFT_OK;
}

/* The first run makes what is kept for the shape and touches all memory; the second says how long one takes. */
static weft_status warm_up(bench *b)
{
    double seconds;
    b->inner = 1;
    for (int i = 0; i < 2; i++) WEFT_TRY(timed(b, &seconds));
    b->inner = 1 + (int64_t)(weft__run_seconds / (seconds > 1e-9 ? seconds : 1e-9));
    return WEFT_OK;
}

static weft_status repeat(bench *b, int64_t given)
{
    const int64_t least = given ? given : WEFT__REPEATS_MIN, most = given ? given : WEFT__REPEATS_MAX;
    const double start = weft_now(&b->ctx->clock);
    while (b->repeats < least || (b->repeats < most && weft_now(&b->ctx->clock) - start < weft__enough_seconds)) {
        weft__sample *x = &b->x[b->repeats++];
        double before = weft__roof_now(&b->roof, b->ctx);
        WEFT_TRY(timed(b, &x->seconds));
        x->roof = (before + weft__roof_now(&b->roof, b->ctx)) / 2;
    }
    return WEFT_OK;
}

static weft_status measure(bench *b, const weft_run *run, weft_product_bench *out)
{
    const weft_gemm_args *a = &b->args;
    WEFT_TRY(make_operands(b));
    WEFT_TRY(weft_gemm_create(&b->gemm, b->ctx, (int)run->isa));
    WEFT_TRY(warm_up(b));
    WEFT_TRY(repeat(b, run->o->bench_repeats));
    out->repeats = b->repeats;
    out->threads = b->ctx->threads;
    out->roof_name = weft__roof_name(&b->roof);
    out->of = weft__figures(b->x, b->repeats, 2.0 * (double)a->M * (double)a->N * (double)a->K);
    return WEFT_OK;
}

/* Before memory is touched: the system would end the process in the middle of it. */
weft_status weft_bench_product_check(const weft_product_case *product)
{
    const weft_gemm_args *a = &product->args;
    const double bytes = (double)a->M * (double)a->K * (double)weft_dtype_size(a->ab) +
                         (double)a->K * (double)a->N * (double)weft_dtype_size(a->ab) +
                         (double)a->M * (double)a->N * (double)weft_dtype_size(a->c);
    const double room = (double)weft_machine_room();
    char need[32], has[32];
    if (bytes < 0.9 * room) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "M %lld N %lld K %lld: the matrices need %s, and %s are free; give smaller ones",
                     (long long)a->M, (long long)a->N, (long long)a->K, weft_format_bytes(bytes, need, sizeof need),
                     weft_format_bytes(room, has, sizeof has));
}

weft_status weft_bench_product(weft_world *world, const weft_run *run, const weft_product_case *product,
                               weft_product_bench *out)
{
    bench b = {.ctx = weft_world_ctx(world), .args = product->args, .roof = weft__roof_of(run->isa, product->prec)};
    *out = (weft_product_bench){0};
    WEFT_TRY(weft_bench_product_check(product));
    WEFT_TRY(weft_arena_create(&b.arena, &b.ctx->mem, "product", NULL));
    weft_status st = measure(&b, run, out);
    if (b.gemm) weft_gemm_destroy(b.gemm);
    weft_arena_destroy(b.arena);
    return st;
}
