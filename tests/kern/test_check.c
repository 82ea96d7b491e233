/* labels: small */
/* weft_kern_check finds nothing on this machine, and names the kernel when one is off: the planted fault of a build
 * that has one, and results that are spoiled here. The cases' limits are tested by test_manifest.c. */
#include "harness/test.h"
#include "kern/check/check_impl.h"

typedef struct heard { int n; char kernel[200], fault[200]; } heard;

static void hear(void *ud, const char *kernel, const char *fault)
{
    heard *h = ud;
    if (h->n++ > 0) return;
    snprintf(h->kernel, sizeof h->kernel, "%s", kernel);
    snprintf(h->fault, sizeof h->fault, "%s", fault);
}

static void every_kernel_holds(void **state)
{
    (void)state;
    heard h = {0};
    weft_kern_check c = {.threads = 3, .found = hear, .ud = &h};
    weft_ctx ctx;
    weft_ctx_init(&ctx);
    assert_ok(weft_kern_check_run(&c, &ctx, (int)weft_isa_best()));
    if (h.n) fail_msg("%s: %s", h.kernel, h.fault);
    assert_int_equal(c.faults, 0);
    assert_true(c.kernels >= 3 * 16 * 1 + 4); /* of the specification alone: three precisions, and products */
    assert_int_equal(ctx.mem.bytes, 0);
}

/* ---- kernels that are off --------------------------------------------------------------------------------- */

static weft_kern right;

static void one_percent_more(void *y, int64_t y_ld, const void *x, int64_t x_ld, int64_t rows, int64_t n, int threads)
{
    right.op[WEFT_PREC_F32].gelu_fwd(y, y_ld, x, x_ld, rows, n, threads);
    if (rows > 0) ((float *)y)[n - 1] *= 1.01f;
}

static void into_the_gap(void *y, int64_t y_ld, const void *x, int64_t x_ld, int64_t rows, int64_t n, int threads)
{
    right.op[WEFT_PREC_F32].gelu_fwd(y, y_ld, x, x_ld, rows, n, threads);
    if (rows > 1 && y_ld > n) ((float *)y)[n] = 0;
}

static void by_threads(void *y, int64_t y_ld, const void *x, int64_t x_ld, int64_t rows, int64_t n, int threads)
{
    right.op[WEFT_PREC_F32].gelu_fwd(y, y_ld, x, x_ld, rows, n, threads);
    if (threads > 1) ((float *)y)[0] += 1e-6f;
}

/* What is said of gelu in a table with this function. */
static const char *said_of(void (*gelu)(void *, int64_t, const void *, int64_t, int64_t, int64_t, int))
{
    static char text[200];
    enum { ROWS = 3, N = 33 };
    int n;
    weft_kern wrong = right;
    weft_check_memory memory[3];
    const weft_check_case *x = &weft__check_cases(&n)[weft__check_case_of("gelu_fwd")];
    weft_check_run run[3];
    wrong.op[WEFT_PREC_F32].gelu_fwd = gelu;
    for (int i = 0; i < 3; i++) {
        memory[i] = (weft_check_memory){malloc(weft__check_bytes(ROWS, N)), weft__check_bytes(ROWS, N), 0};
        const weft_prec prec = i ? WEFT_PREC_F32 : WEFT_PREC_F64;
        run[i] = (weft_check_run){.op = &(i ? wrong : right).op[prec], .prec = prec, .from = WEFT_PREC_F32,
                                  .rows = ROWS, .n = N, .gap = 5, .threads = i == 2 ? 3 : 1, .take = weft__check_take,
                                  .memory = &memory[i]};
        x->body(&run[i]);
        assert_true(memory[i].used <= memory[i].size);
    }
    snprintf(text, sizeof text, "nothing");
    if (weft__check_compare(&run[1], &run[0], text, sizeof text))
        weft__check_same_bits(&run[1], &run[2], text, sizeof text);
    for (int i = 0; i < 3; i++) free(memory[i].data);
    return text;
}

static void what_is_off_is_named(void **state)
{
    (void)state;
    assert_ok(weft_kern_init(&right, WEFT_ISA_REF));
    assert_string_equal(said_of(right.op[WEFT_PREC_F32].gelu_fwd), "nothing");
    assert_non_null(strstr(said_of(one_percent_more), "y is off by "));
    assert_string_equal(said_of(into_the_gap), "writes between the rows of y");
    assert_string_equal(said_of(by_threads), "y depends on the number of threads");
}

/* Attention whose output is of the row before, and a move that rounds toward zero. */
static void shifted(const weft_attn_desc *d, void *o, int64_t o_ld, void *lse, const void *acc, void *m, void *l,
                    const void *sinks, int64_t rows, int threads)
{
    right.op[WEFT_PREC_BF16].attn.finish(d, o, o_ld, lse, acc, m, l, sinks, rows, threads);
    if (rows > 1) memcpy(o, (weft_bf16 *)o + o_ld, (size_t)o_ld * sizeof(weft_bf16));
}

static void cut_off(void *dst, const weft_rows *to, const void *src, const weft_rows *from, int64_t rows, int64_t n,
                    const weft_attn_run *run)
{
    right.op[WEFT_PREC_BF16].move.copy(dst, to, src, from, rows, n, run);
    if (to->type != WEFT_BF16) return;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            uint32_t bits;
            memcpy(&bits, (const float *)src + i * from->ld + j, sizeof bits);
            ((weft_bf16 *)dst)[i * to->ld + j] = (weft_bf16)(bits >> 16);
        }
}

static void attention_and_moves_are_named(void **state)
{
    (void)state;
    char text[200] = "";
    assert_ok(weft_kern_init(&right, WEFT_ISA_REF));
    weft_attn_ops attn = right.op[WEFT_PREC_BF16].attn, fp64 = right.op[WEFT_PREC_F64].attn;
    weft_move_ops move = right.op[WEFT_PREC_BF16].move;
    weft_check_memory m = {.size = weft__check_attention_bytes(&attn, &fp64, 2)};
    m.data = malloc(weft_max_size(m.size, WEFT_CHECK_MOVE_BYTES));
    assert_true(weft__check_attention(&attn, &fp64, WEFT_PREC_BF16, WEFT_ISA_REF, 2, &m, text, sizeof text));
    assert_true(m.used <= m.size);
    attn.finish = shifted;
    assert_false(weft__check_attention(&attn, &fp64, WEFT_PREC_BF16, WEFT_ISA_REF, 1, &m, text, sizeof text));
    assert_non_null(strstr(text, "causal, grouped heads: o is off by "));
    assert_true(weft__check_move(&move, &right.op[WEFT_PREC_BF16].move, WEFT_PREC_BF16, 1, &m, text, sizeof text));
    assert_true(m.used <= WEFT_CHECK_MOVE_BYTES);
    move.copy = cut_off;
    assert_false(weft__check_move(&move, &right.op[WEFT_PREC_BF16].move, WEFT_PREC_BF16, 1, &m, text, sizeof text));
    assert_string_equal(text, "a copy that rounds has other bits than the specification");
    free(m.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_holds),
        cmocka_unit_test(what_is_off_is_named),
        cmocka_unit_test(attention_and_moves_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
