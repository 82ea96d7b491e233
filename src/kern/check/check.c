/* check.c — walks the manifest: each kernel that this machine can run, against the specification. */
#include "kern/check/check_impl.h"
#include "kern/kern_impl.h"

#include <string.h>

/* Rows and lengths around the widths of vectors and blocks, and what is left over. */
static const int64_t shapes[][2] = {{1, 1}, {3, 33}, {34, 5}, {7, 16}, {2, 257}};
enum { SHAPES = sizeof shapes / sizeof *shapes, GAP = 5, TEXT = 200 };

typedef struct checker {
    weft_kern_check *c;
    weft_ctx *ctx;
    weft_kern fp64;               /* any table: fp64 is the specification in all of them */
    weft_check_memory memory[3];  /* of one run each */
    char fault[TEXT];
} checker;

/* What was announced is enough by construction (weft__check_bytes, WEFT_CHECK_*_BYTES). */
void *weft__check_take(void *memory, size_t bytes, size_t align)
{
    weft_check_memory *m = memory;
    const size_t at = (m->used + align - 1) / align * align;
    m->used = at + bytes;
    memset(m->data + at, 0xff, bytes);
    return m->data + at;
}

static void report(checker *k, bool good, const char *ops, weft_prec prec, const char *isa)
{
    char kernel[TEXT];
    weft_line line = {kernel, sizeof kernel, 0};
    k->c->kernels++;
    if (good) return;
    k->c->faults++;
    weft_line_add(&line, "%s, %s, %s", ops, weft_prec_name(prec), isa);
    if (k->c->found) k->c->found(k->c->ud, kernel, k->fault);
}

/* ---- operations of the table ---------------------------------------------------------------------------- */

static weft_check_run start(checker *k, int i, const weft_kern *kern, weft_prec prec, weft_prec from,
                            const int64_t shape[2], int threads)
{
    k->memory[i].used = 0;
    return (weft_check_run){.op = &kern->op[prec], .prec = prec, .from = from, .rows = shape[0], .n = shape[1],
                            .gap = (shape[0] + shape[1]) % 2 ? GAP : 0, .threads = threads, .take = weft__check_take,
                            .memory = &k->memory[i]};
}

static bool check_shape(checker *k, const weft_check_case *x, weft_prec prec, const weft_kern *kern,
                        const int64_t shape[2])
{
    char text[TEXT];
    weft_line line = {k->fault, sizeof k->fault, 0};
    weft_check_run want = start(k, 0, &k->fp64, WEFT_PREC_F64, prec, shape, 1);
    weft_check_run one = start(k, 1, kern, prec, prec, shape, 1);
    x->body(&want);
    x->body(&one);
    bool good = weft__check_compare(&one, &want, text, sizeof text);
    if (good && k->c->threads > 1) {
        weft_check_run more = start(k, 2, kern, prec, prec, shape, k->c->threads);
        x->body(&more);
        good = weft__check_same_bits(&one, &more, text, sizeof text);
    }
    if (!good)
        weft_line_add(&line, "%lld row%s of %lld: %s", (long long)shape[0], shape[0] == 1 ? "" : "s",
                      (long long)shape[1], text);
    return good;
}

/* Whether some kernel of the case is this instruction set's own in this precision: the others were checked with the set
 * that they come from. */
static bool has_own(int which, weft_prec prec, weft_isa isa)
{
    int n = 0;
    const weft_kern_entry *e = weft_kern_manifest(&n);
    for (int i = 0; i < n; i++)
        if (e[i].prec == prec && e[i].isa == isa && weft__check_case_of(e[i].op) == which) return true;
    return false;
}

static void check_cases(checker *k, const weft_kern *kern, weft_prec prec)
{
    int n = 0;
    const weft_check_case *cases = weft__check_cases(&n);
    for (int i = 0; i < n; i++) {
        if (!has_own(i, prec, kern->isa)) continue;
        bool good = true;
        for (int s = 0; s < SHAPES && good; s++) good = check_shape(k, &cases[i], prec, kern, shapes[s]);
        report(k, good, cases[i].ops, prec, weft_isa_name(kern->isa));
    }
}

/* ---- the tables of attention and moves, and products ------------------------------------------------------ */

typedef struct filler { bool attention; weft_prec prec; weft_isa isa; } filler;
static const filler fillers[] = {
#define KERN(op, prec, isa, symbol)
#define KERN_ATTN(prec, isa, fill) {true, WEFT_PREC_##prec, WEFT_ISA_##isa},
#define KERN_MOVE(prec, isa, fill) {false, WEFT_PREC_##prec, WEFT_ISA_##isa},
#include "kern/kern_list.inc"
#undef KERN
#undef KERN_ATTN
#undef KERN_MOVE
};

static void check_filled(checker *k, const weft_kern *kern, weft_prec prec)
{
    const weft_kern_ops *op = &kern->op[prec], *fp64 = &k->fp64.op[WEFT_PREC_F64];
    const weft_kern_ops *ref = &k->fp64.op[prec];
    const int threads = k->c->threads > 1 ? k->c->threads : 1;
    for (size_t i = 0; i < sizeof fillers / sizeof *fillers; i++) {
        const filler *f = &fillers[i];
        if (f->prec != prec || f->isa != kern->isa) continue;
        const bool good = f->attention ? weft__check_attention(&op->attn, &fp64->attn, prec, kern->isa, threads,
                                                               &k->memory[0], k->fault, sizeof k->fault)
                                       : weft__check_move(&op->move, &ref->move, prec, threads, &k->memory[0], k->fault,
                                                          sizeof k->fault);
        report(k, good, f->attention ? "attention" : "move", prec, weft_isa_name(kern->isa));
    }
}

static weft_status check_products(checker *k, weft_isa most)
{
    weft_gemm *gemm;
    WEFT_TRY(weft_gemm_create(&gemm, k->ctx, (int)most));
    weft_status st = WEFT_OK;
    for (int p = 0; p < WEFT_PREC_COUNT && (st >= 0 || st == WEFT_ERR_COMPARE); p++) {
        st = weft__check_products(gemm, (weft_prec)p, &k->memory[0], k->fault, sizeof k->fault);
        if (st >= 0 || st == WEFT_ERR_COMPARE) report(k, st >= 0, "products", (weft_prec)p, weft_isa_name(most));
    }
    weft_gemm_destroy(gemm);
    return st == WEFT_ERR_COMPARE ? WEFT_OK : st;
}

/* ---- the door --------------------------------------------------------------------------------------------- */

/* For the largest of all checks. */
static weft_status take_memory(checker *k, weft_arena *arena, int most)
{
    const weft_attn_ops *fp64 = &k->fp64.op[WEFT_PREC_F64].attn;
    const int threads = k->c->threads > 1 ? k->c->threads : 1;
    size_t bytes = weft_max_size(WEFT_CHECK_MOVE_BYTES, WEFT_CHECK_PRODUCT_BYTES);
    for (int s = 0; s < SHAPES; s++) bytes = weft_max_size(bytes, weft__check_bytes(shapes[s][0], shapes[s][1]));
    for (int isa = 0; isa <= most; isa++) {
        weft_kern kern;
        if (!weft_isa_available((weft_isa)isa)) continue;
        WEFT_TRY(weft_kern_init(&kern, (weft_isa)isa));
        for (int p = 0; p < WEFT_PREC_COUNT; p++)
            bytes = weft_max_size(bytes, weft__check_attention_bytes(&kern.op[p].attn, fp64, threads));
    }
    for (int i = 0; i < 3; i++) {
        WEFT_TRY(WEFT_NEW(arena, (int64_t)bytes, "check", &k->memory[i].data));
        k->memory[i].size = bytes;
    }
    return WEFT_OK;
}

static weft_status check_all(checker *k, int most)
{
    for (int isa = 0; isa <= most; isa++) {
        weft_kern kern;
        if (!weft_isa_available((weft_isa)isa)) continue;
        WEFT_TRY(weft_kern_init(&kern, (weft_isa)isa));
        for (int p = 0; p < WEFT_PREC_COUNT; p++) {
            if (p == WEFT_PREC_F64) continue; /* the specification itself */
            check_cases(k, &kern, (weft_prec)p);
            check_filled(k, &kern, (weft_prec)p);
        }
    }
    return check_products(k, (weft_isa)most);
}

weft_status weft_kern_check_run(weft_kern_check *c, weft_ctx *ctx, int most)
{
    checker k = {.c = c, .ctx = ctx};
    weft_arena *arena;
    c->kernels = c->faults = 0;
    WEFT_TRY(weft_kern_init(&k.fp64, WEFT_ISA_REF));
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "check", NULL));
    weft_status st = take_memory(&k, arena, most);
    if (st >= 0) st = check_all(&k, most);
    weft_arena_destroy(arena);
    return st;
}
