/* How blocks travel: in pieces of any size, computed in portions while they arrive; in other types on the wire; in
 * place or copied. What must not change a bit does not, and what rounds does so within bounds. */
/* labels: small */
/* mpi-thread: 8 */
/* mpi-long: 8 */
/* timeout: 240 */
#include "harness/test.h"
#include "harness/cp_case.h"
#include "harness/mpi_ranks.h"
#include "cp/cp_impl.h"

#include <stdatomic.h>
#include <time.h>

static cp_case base(weft_prec prec, int64_t T)
{
    return (cp_case){.name = "exchange", .prec = prec, .B = 1, .Tq = T, .T = T, .H = 2, .Hkv = 1, .D = 5, .Dv = 3,
                     .mask = {true, -1, -1, 0}, .seed = 6, .poison = true};
}

/* Gradients and o relative to P = 1, computed with the same options (what rounds at the owner rounds there too). */
typedef struct limits { double o, dq, dk, dv; } limits;
static limits all(double x) { return (limits){x, x, x, x}; }

static double off(const double *x, const double *ref, int64_t n)
{
    return weft_rel_l2(x, WEFT_F64, ref, WEFT_F64, n, 0);
}

static limits error_of(const cp_case *c, const cp_result *x, const cp_result *ref)
{
    int64_t q = c->B * c->Tq * c->H, k = c->B * c->T * c->Hkv;
    return (limits){off(x->o, ref->o, q * c->Dv), off(x->dq, ref->dq, q * c->D), off(x->dk, ref->dk, k * c->D),
                    off(x->dv, ref->dv, k * c->Dv)};
}

static void within(const limits e, const limits most, const char *what, int P)
{
    if (!(e.o <= most.o && e.dq <= most.dq && e.dk <= most.dk && e.dv <= most.dv))
        fail_msg("%s, P=%d: o %.2e (limit %.2e) dq %.2e (%.2e) dk %.2e (%.2e) dv %.2e (%.2e)", what, P, e.o, most.o,
                 e.dq, most.dq, e.dk, most.dk, e.dv, most.dv);
}

static cp_result *run(const cp_case *c, const cp_data *data, const char *strategy, int P, weft_layout_kind layout,
                      bool overlap, bool copies, weft_cp_options more)
{
    cp_result *out = cp_result_make(c, P);
    cp_job job = {c, data, strategy, layout, overlap, 2, NULL, out, more};
    assert_ok((copies ? cp_run_copies : cp_run)(P, &job, 1));
    cp_check_planned(&job);
    return out;
}

/* Both strategies, overlap on and off, in place and copied: the same bits. Returns them. */
static cp_result *run_alike(const cp_case *c, const cp_data *data, int P, weft_layout_kind layout, weft_cp_options more)
{
    cp_result *first = run(c, data, "pcp", P, layout, true, false, more);
    for (int i = 1; i < 6; i++) {
        cp_result *x = run(c, data, i % 2 ? "ring" : "pcp", P, layout, i < 3, i == 2 || i == 5, more);
        if (!cp_same_bits(c, x, first))
            fail_msg("%s: P=%d layout %d pieces of %zu, wire %d: way %d differs", c->name, P, (int)layout,
                     more.buffer_bytes, (int)more.comm_dtype, i);
        cp_result_free(x);
    }
    return first;
}

/* ---- pieces -------------------------------------------------------------------------------------------------- */

/* Whole rows, parts of rows, parts of elements; runs of 1, 48 and 200 rows, which portions must not cut. */
static void pieces_of_any_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {64, 257, 1000, 1 << 20};
    static const struct { weft_layout_kind kind; int64_t block; } layouts[] = {
        {WEFT_LAYOUT_CONTIGUOUS, 0}, {WEFT_LAYOUT_ZIGZAG, 0}, {WEFT_LAYOUT_STRIPED, 1}, {WEFT_LAYOUT_STRIPED, 48},
        {WEFT_LAYOUT_STRIPED, 200}};
    int64_t cu[] = {0, 350, 350, 351, 800};
    int64_t first[] = {0, 5};
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < 5; l++) {
            if ((i + l) % test_every(5) != 0) continue;
            cp_case c = base(WEFT_PREC_F32, 800);
            c.block = layouts[l].block;
            if (i % 2) c.cu = cu, c.first = first;
            cp_data data = cp_data_make(&c);
            weft_cp_options more = {.buffer_bytes = sizes[i]};
            int P = 2 + (i + l) % 2;
            cp_result *one = run(&c, &data, "none", 1, layouts[l].kind, true, false, more);
            cp_result *x = run_alike(&c, &data, P, layouts[l].kind, more);
            within(error_of(&c, x, one), all(cp_reorder_limit(c.prec, c.T)), "pieces", P);
            cp_result_free(x);
            cp_result_free(one);
            cp_data_free(&data);
        }
}

static void pieces_are_exact_in_fp64(void **state)
{
    (void)state;
    cp_case c = base(WEFT_PREC_F64, 400);
    c.B = 2, c.block = 30, c.sinks = true, c.mask.left = 150;
    cp_data data = cp_data_make(&c);
    weft_cp_options more = {.buffer_bytes = 1000};
    cp_result *one = run(&c, &data, "none", 1, WEFT_LAYOUT_STRIPED, true, false, more);
    for (int P = 2; P <= 3; P++) {
        cp_result *x = run(&c, &data, P == 2 ? "ring" : "pcp", P, WEFT_LAYOUT_STRIPED, true, false, more);
        assert_at_most(cp_distance(&c, &data, x, one, 1), cp_reorder_limit(c.prec, c.T));
        cp_result_free(x);
    }
    cp_result_free(one);
    cp_data_free(&data);
}

/* ceil(bytes / size) per message, written down once more. */
static void messages_are_counted(void **state)
{
    (void)state;
    cp_case c = base(WEFT_PREC_BF16, 257);
    cp_data data = cp_data_make(&c);
    const weft_layout layout = {WEFT_LAYOUT_ZIGZAG, 0};
    for (int P = 2; P <= 5; P++) {
        weft_cp_options more = {.buffer_bytes = 300, .comm_dtype = P == 3 ? WEFT_CP_WIRE_FP8 : WEFT_CP_WIRE_SAME,
                                .grad_dtype = P == 4 ? WEFT_CP_WIRE_BF16 : WEFT_CP_WIRE_SAME};
        cp_result *x = run(&c, &data, "pcp", P, layout.kind, true, false, more);
        for (int r = 0; r < P; r++) {
            int64_t rows = weft_shard_rows(layout, 1, 257, P, r), kv = rows * 8 * 2, grad = P == 4 ? 8 * 2 : 8 * 4;
            if (P == 3) kv = rows * 8 + (rows + 15) / 16 * 2; /* a byte per element, two scales per 16 rows */
            int64_t back = (P - 1) * ((kv + 299) / 300);
            assert_int_equal(x->forward_bytes[r], (P - 1) * kv);
            assert_int_equal(x->forward_messages[r], back);
            assert_int_equal(x->backward_bytes[r], (P - 1) * kv + (257 - rows) * grad);
            for (int o = 0; o < P; o++)
                if (o != r) back += (weft_shard_rows(layout, 1, 257, P, o) * grad + 299) / 300;
            assert_int_equal(x->backward_messages[r], back);
        }
        cp_result_free(x);
    }
    cp_data_free(&data);
}

/* ---- portions -------------------------------------------------------------------------------------------------- */

enum { CALLS = 64 };
static struct { _Atomic int n; int64_t rows[CALLS]; } calls; /* of the attention kernel on keys of another rank */
static weft_kern_ops counting;
static void (*real_forward)(const weft_attn_desc *, const weft_attn_fwd_io *, const weft_attn_pair *, int64_t,
                            const weft_attn_run *);

static void count_forward(const weft_attn_desc *d, const weft_attn_fwd_io *io, const weft_attn_pair *pairs, int64_t n,
                          const weft_attn_run *r)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < n; i++) rows += pairs[i].nk;
    int at = atomic_fetch_add(&calls.n, 1);
    if (at < CALLS) calls.rows[at] = rows;
    real_forward(d, io, pairs, n, r);
}

static void count_calls(weft_cp_plan *plan)
{
    if (plan->rank != 0) return;
    real_forward = plan->ops->attn.forward;
    counting = *plan->ops;
    counting.attn.forward = count_forward;
    plan->ops = &counting;
}

/* A block of 500 rows of 8 x 4 bytes in pieces of 2000 (62.5 rows): complete rows are 62, 125, 187, ..., so portions
 * end at 187, 375, 500. */
static void blocks_are_computed_in_portions(void **state)
{
    (void)state;
    if (test_under_mpi()) return; /* calls are counted in memory that ranks share */
    cp_case c = base(WEFT_PREC_F32, 1000);
    c.mask.causal = false, c.poison = false;
    cp_data data = cp_data_make(&c);
    cp_result *out = cp_result_make(&c, 2);
    weft_cp_options more = {.buffer_bytes = 2000};
    cp_job job = {&c, &data, "ring", WEFT_LAYOUT_CONTIGUOUS, true, 1, count_calls, out, more};
    atomic_store(&calls.n, 0);
    assert_ok(cp_run(2, &job, 1));
    assert_int_equal(calls.n, 4);
    static const int64_t want[] = {500, 187, 188, 125};
    for (int i = 0; i < 4; i++) assert_int_equal(calls.rows[i], want[i]);
    cp_result_free(out);
    cp_data_free(&data);
}

/* One rank that is late by far more than a step: the others run ahead as far as they may, and what it reads must still
 * be there. */
static weft_kern_ops late;
static void late_forward(const weft_attn_desc *d, const weft_attn_fwd_io *io, const weft_attn_pair *pairs, int64_t n,
                         const weft_attn_run *r)
{
    const struct timespec pause = {0, 10 * 1000 * 1000};
    nanosleep(&pause, NULL);
    real_forward(d, io, pairs, n, r);
}

static void make_late(weft_cp_plan *plan)
{
    if (plan->rank != 2) return;
    real_forward = plan->ops->attn.forward;
    late = *plan->ops;
    late.attn.forward = late_forward;
    plan->ops = &late;
}

static void a_late_rank_reads_what_was_sent(void **state)
{
    (void)state;
    static const char *const names[] = {"pcp", "ring"};
    cp_case c = base(WEFT_PREC_F32, 100);
    c.mask.causal = c.poison = false;
    cp_data data = cp_data_make(&c);
    for (int i = 0; i < 4; i++) {
        cp_result *want = cp_result_make(&c, 5), *got = cp_result_make(&c, 5);
        cp_job job = {&c, &data, names[i % 2], WEFT_LAYOUT_ZIGZAG, true, 2, NULL, want, {.buffer_bytes = 64}},
               slow = job;
        slow.tamper = make_late, slow.out = got;
        assert_ok((i < 2 ? cp_run : cp_run_copies)(5, &job, 1));
        assert_ok((i < 2 ? cp_run : cp_run_copies)(5, &slow, 1));
        assert_true(cp_same_bits(&c, want, got));
        cp_result_free(want);
        cp_result_free(got);
    }
    cp_data_free(&data);
}

/* ---- types on the wire ------------------------------------------------------------------------------------------- */

/* Magnitudes 0.5 .. 1.875 in steps of 1/8: three bits behind the first, so every type of the wire holds them, fp8 too
 * under any scale of its block. */
static double coarse(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    int64_t i = ((b * 5000 + t) * 10 + h) * 300 + d;
    double x = test_normal(c->seed + (uint64_t)what, i);
    if (what != 'k' && what != 'v') return x;
    double m = ldexp(1 + floor(fmod(fabs(x) * 1000, 8)) / 8, x > 1 ? 0 : -1);
    return x < 0 ? -m : m;
}

/* What the type holds travels unchanged: the same bits as without it. */
static void types_keep_what_they_hold(void **state)
{
    (void)state;
    static const struct { weft_prec prec; weft_cp_wire wire; } ways[] = {
        {WEFT_PREC_BF16, WEFT_CP_WIRE_FP32}, {WEFT_PREC_F16, WEFT_CP_WIRE_FP32}, {WEFT_PREC_F64, WEFT_CP_WIRE_FP32},
        {WEFT_PREC_F32, WEFT_CP_WIRE_BF16}, {WEFT_PREC_F32, WEFT_CP_WIRE_FP16}, {WEFT_PREC_F64, WEFT_CP_WIRE_FP16},
        {WEFT_PREC_F32, WEFT_CP_WIRE_FP8}, {WEFT_PREC_BF16, WEFT_CP_WIRE_FP8}, {WEFT_PREC_F16, WEFT_CP_WIRE_FP8},
        {WEFT_PREC_F64, WEFT_CP_WIRE_FP8}};
    for (int i = 0; i < 10; i++) {
        cp_case c = base(ways[i].prec, i % 3 ? 101 : 601);
        c.value = coarse;
        cp_data data = cp_data_make(&c);
        weft_cp_options same = {.buffer_bytes = i % 3 ? 0 : 300}, other = same;
        other.comm_dtype = ways[i].wire;
        cp_result *a = run_alike(&c, &data, 3, WEFT_LAYOUT_ZIGZAG, same),
                  *b = run_alike(&c, &data, 3, WEFT_LAYOUT_ZIGZAG, other);
        /* portions follow from the bytes of rows, so cut messages may give other sums */
        if (same.buffer_bytes == 0) assert_true(cp_same_bits(&c, a, b));
        else within(error_of(&c, b, a), all(cp_reorder_limit(c.prec, c.T)), "exact type in pieces", 3);
        cp_result_free(a);
        cp_result_free(b);
        cp_data_free(&data);
    }
}

/* K and V are rounded to the wire type, by 0.4 u of each number in the mean. Through V, o and dp move by as much;
 * through K the scores, which are about 1 here, and with them p; dq meets K once more. These are independent: at most
 * sqrt(3) times 0.4 u. */
static void types_round_within_bounds(void **state)
{
    (void)state;
    static const struct { weft_prec prec; weft_cp_wire wire; weft_dtype type; } ways[] = {
        {WEFT_PREC_F64, WEFT_CP_WIRE_FP32, WEFT_F32}, {WEFT_PREC_F32, WEFT_CP_WIRE_BF16, WEFT_BF16},
        {WEFT_PREC_F32, WEFT_CP_WIRE_FP16, WEFT_F16}, {WEFT_PREC_F32, WEFT_CP_WIRE_FP8, WEFT_F8_E4M3}};
    for (int i = 0; i < 4; i++) {
        cp_case c = base(ways[i].prec, 130);
        c.D = c.Dv = 32;
        cp_data data = cp_data_make(&c);
        weft_cp_options more = {.comm_dtype = ways[i].wire};
        cp_result *one = run(&c, &data, "none", 1, WEFT_LAYOUT_ZIGZAG, true, false, more);
        for (int P = 2; P <= 4; P++) {
            cp_result *x = run_alike(&c, &data, P, WEFT_LAYOUT_ZIGZAG, more);
            limits e = error_of(&c, x, one);
            double u = cp_roundoff(ways[i].type);
            within(e, all(0.7 * u), "rounded K,V", P);
            assert_true(e.o > u / 8); /* it did travel so */
            cp_result_free(x);
        }
        cp_result_free(one);
        cp_data_free(&data);
    }
}

/* Sums of parts in bf16: o and dq are not touched. Each part (pcp), or each of the P - 1 sums on the way (ring), is
 * rounded by 0.4 u in the mean: of all parts together that is 0.4 u again, of sums it adds up like a random walk. */
static void gradient_sums_round_within_bounds(void **state)
{
    (void)state;
    cp_case c = base(WEFT_PREC_F32, 130);
    c.D = c.Dv = 32;
    cp_data data = cp_data_make(&c);
    weft_cp_options more = {.grad_dtype = WEFT_CP_WIRE_BF16, .buffer_bytes = 1000}, wide = {.buffer_bytes = 1000};
    for (int s = 0; s < 2; s++)
        for (int P = 2; P <= 5; P++) {
            const char *name = s ? "ring" : "pcp";
            cp_result *ref = run(&c, &data, name, P, WEFT_LAYOUT_ZIGZAG, true, false, wide), *x[4];
            for (int i = 0; i < 4; i++) {
                x[i] = run(&c, &data, name, P, WEFT_LAYOUT_ZIGZAG, i % 2 == 0, i < 2, more);
                assert_true(cp_same_bits(&c, x[i], x[0]));
            }
            limits e = error_of(&c, x[0], ref);
            double u = cp_roundoff(WEFT_BF16), most = s ? u / 2 * sqrt(P - 1) : u / 2;
            within(e, (limits){0, 0, most, most}, name, P);
            assert_true(e.dk > u / 16);
            for (int i = 0; i < 4; i++) cp_result_free(x[i]);
            cp_result_free(ref);
        }
    cp_data_free(&data);
}

/* ---- fp8 --------------------------------------------------------------------------------------------------------- */

/* Every rank computes with the decoded numbers, its own block too; so P does not matter. (A scale is a power of two, so
 * which rows share one changes no number that is not far below the largest of its block; here none is.) */
static double spread(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    int64_t i = ((b * 5000 + t) * 10 + h) * 300 + d;
    double x = test_normal(c->seed + (uint64_t)what, i);
    return x < 0 ? x - 0.01 : x + 0.01;
}

static void fp8_is_the_same_on_every_P(void **state)
{
    (void)state;
    cp_case c = base(WEFT_PREC_F64, 90);
    c.value = spread;
    cp_data data = cp_data_make(&c);
    weft_cp_options more = {.fp8 = true, .buffer_bytes = 400};
    cp_result *one = run(&c, &data, "none", 1, WEFT_LAYOUT_ZIGZAG, true, false, more);
    cp_result *exact = run(&c, &data, "none", 1, WEFT_LAYOUT_ZIGZAG, true, false, (weft_cp_options){0});
    /* at most u from V and as much from K, by its scores */
    assert_true(error_of(&c, one, exact).o > cp_roundoff(WEFT_F8_E4M3) / 8);
    within(error_of(&c, one, exact), all(2 * cp_roundoff(WEFT_F8_E4M3)), "fp8 on one rank", 1);
    for (int P = 2; P <= 5; P++) {
        cp_result *x = run_alike(&c, &data, P, WEFT_LAYOUT_ZIGZAG, more);
        assert_at_most(cp_distance(&c, &data, x, one, 1), cp_reorder_limit(c.prec, c.T));
        for (int r = 0; r < P; r++) { /* one byte per element, one scale per 16 rows and head, for K and for V */
            int64_t rows = weft_shard_max_rows((weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, 1, 90, P);
            assert_int_equal(x->kept_bytes[r], rows * 8 + (rows + 15) / 16 * 2);
        }
        cp_result_free(x);
    }
    cp_result_free(one);
    cp_result_free(exact);
    cp_data_free(&data);
}

/* Backward takes K and V from what forward kept. */
static weft_status backward_without_kv(weft_cp_plan *plan, const weft__cp_slot *slot, const weft_cp_io *io)
{
    weft_cp_io none = *io;
    none.k = none.v = NULL;
    return weft__cp_ring.backward(plan, slot, &none);
}
static weft_cp_strategy blind;
static void take_kv_away(weft_cp_plan *plan)
{
    if (plan->strategy == &weft__cp_ring) plan->strategy = &blind;
}

static void fp8_backward_reads_neither_k_nor_v(void **state)
{
    (void)state;
    cp_case c = base(WEFT_PREC_BF16, 90);
    cp_data data = cp_data_make(&c);
    weft_cp_options more = {.fp8 = true};
    blind = weft__cp_ring;
    blind.backward = backward_without_kv;
    c.poison = false; /* the exchange of strategies happens before it */
    cp_result *want = run(&c, &data, "ring", 3, WEFT_LAYOUT_ZIGZAG, true, false, more), *got = cp_result_make(&c, 3);
    cp_job job = {&c, &data, "ring", WEFT_LAYOUT_ZIGZAG, true, 2, take_kv_away, got, more};
    assert_ok(cp_run(3, &job, 1));
    assert_true(cp_same_bits(&c, want, got));
    cp_result_free(want);
    cp_result_free(got);
    cp_data_free(&data);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    cp_case c = base(WEFT_PREC_BF16, 20);
    c.poison = false;
    static const struct { weft_prec prec; weft_cp_options o; const char *part; } bad[] = {
        {WEFT_PREC_BF16, {.comm_dtype = WEFT_CP_WIRE_FP16}, "use bf16, fp8, or fp32"},
        {WEFT_PREC_F16, {.comm_dtype = WEFT_CP_WIRE_BF16}, "use fp16, fp8, or fp32"},
        {WEFT_PREC_F32, {.grad_dtype = WEFT_CP_WIRE_FP16}, "use fp32 or bf16"},
        {WEFT_PREC_F32, {.grad_dtype = WEFT_CP_WIRE_FP8}, "use fp32 or bf16"},
        {WEFT_PREC_F32, {.fp8 = true, .comm_dtype = WEFT_CP_WIRE_BF16}, "K,V travel as fp8"},
        {WEFT_PREC_F32, {.buffer_bytes = 63}, "at least 64"}};
    for (int i = 0; i < 6; i++) {
        c.prec = bad[i].prec;
        cp_data data = cp_data_make(&c);
        cp_result *out = cp_result_make(&c, 2);
        cp_job job = {&c, &data, "ring", WEFT_LAYOUT_ZIGZAG, true, 1, NULL, out, bad[i].o};
        assert_refused(cp_run(2, &job, 1), bad[i].part);
        cp_result_free(out);
        cp_data_free(&data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_any_size), cmocka_unit_test(pieces_are_exact_in_fp64),
        cmocka_unit_test(messages_are_counted),
        cmocka_unit_test(blocks_are_computed_in_portions),
        cmocka_unit_test(a_late_rank_reads_what_was_sent), cmocka_unit_test(types_keep_what_they_hold),
        cmocka_unit_test(types_round_within_bounds), cmocka_unit_test(gradient_sums_round_within_bounds),
        cmocka_unit_test(fp8_is_the_same_on_every_P), cmocka_unit_test(fp8_backward_reads_neither_k_nor_v),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
