/* test_attention_jumps.c — long even rows in which one key stands out: kernels that keep a reference, or take a quick
 * exponential while rows are even, must notice. And a NaN must arrive, whatever its sign.
 * labels: small */
#include "attention_kernels.h"

enum { QUERIES = 40, KEYS_OF_ROW = 1100, HEAD = 8, JUMP_AT = 700 };

/* Scores of some tenths, but for key JUMP_AT, which has `jump` more for every query. */
static void jump_case(attention_case *c, double jump)
{
    case_init(c, 1, 1, HEAD, HEAD);
    case_simple(c, QUERIES, KEYS_OF_ROW);
    c->d.mask.causal = true;
    c->d.scale = 1;
    case_operands(c, true, 5, 0.25, false, false);
    for (int i = 0; i < QUERIES; i++) c->q[i * HEAD] = 1;
    for (int j = 0; j < KEYS_OF_ROW; j++) c->k[j * HEAD] = j == JUMP_AT ? jump : 0;
}

static void check_output(const attention_case *c, const attention_result *r, double limit, double lse_limit,
                         const char *what)
{
    double o = weft_rel_l2(r->o, WEFT_F64, c->want.o, WEFT_F64, QUERIES * HEAD, 0);
    double lse = weft_max_scaled(r->lse, WEFT_F64, c->want.lse, WEFT_F64, QUERIES);
    if (!(o <= limit && lse <= lse_limit)) fail_msg("%s: error of o %.2e > %.2e or of lse %.2e > %.2e", what,
                                                    o, limit, lse, lse_limit);
}

static void one_key_stands_out(void **state)
{
    (void)state;
    /* e^3: noticed in the row's sum. e^40: beyond what a kept reference allows. 320: beyond all of float's range.
     * 49152: a distance that 16 bits of steps cannot hold. Then the same below all others. */
    static const double jumps[] = {3, 8, 40, 320, 49152, -40, -320, -49152};
    for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        attention_case c;
        char text[96];
        jump_case(&c, jumps[i]);
        case_answer(&c);
        FOR_KERNELS(k) {
            if (!bits16(k)) continue;
            attention_result one = kernel_result(&c, k, 1);
            snprintf(text, sizeof text, "%s, a key %g above", k->name, jumps[i]);
            /* gradients are differences of sums that nearly cancel where one key has all the weight, times that key */
            if (fabs(jumps[i]) < 100) case_check(&c, &one, k->limit * 3, k->lse_limit, text);
            else check_output(&c, &one, k->limit, k->lse_limit, text);
            result_free(&one);
        }
        case_clear(&c);
    }
}

static void a_nan_arrives(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        attention_case c;
        jump_case(&c, 0);
        c.k[JUMP_AT * HEAD + 3] = copysign(NAN, sign);
        FOR_KERNELS(k) {
            if (!bits16(k)) continue;
            attention_result one = kernel_result(&c, k, 1);
            for (int i = 0; i < QUERIES * HEAD; i++)
                if (!isnan(one.o[i]) || !isnan(one.lse[i / HEAD]) || !isnan(one.dq[i]))
                    fail_msg("%s: a NaN among the keys, but query %d has o %g, lse %g, dq %g", k->name, i / HEAD,
                             one.o[i], one.lse[i / HEAD], one.dq[i]);
            result_free(&one);
        }
        case_clear(&c);
    }
}

/* Even rows so long that quick exponentials carry nearly all of the sum keep the limit of lse. */
static void even_rows(void **state)
{
    (void)state;
    attention_case c;
    case_init(&c, 2, 1, 32, 32);
    case_simple(&c, 70, 2000);
    c.d.mask.causal = true;
    case_fill(&c, true, 11, 1, false, false);
    FOR_KERNELS(k) {
        if (!bits16(k)) continue;
        attention_result one = kernel_result(&c, k, 1);
        case_check(&c, &one, k->limit, k->lse_limit, k->name);
        result_free(&one);
    }
    case_clear(&c);
}

/* Keys that are all alike but for the first: their weights have one and the same error, which no sum averages out. */
static void keys_alike(void **state)
{
    (void)state;
    for (int ahead = 1; ahead <= 21; ahead += 4) {
        attention_case c;
        case_init(&c, 1, 1, HEAD, HEAD);
        case_simple(&c, QUERIES, 1000);
        c.d.scale = 1;
        c.d.mask.left = ahead % 8 == 1 ? -1 : 500;
        case_operands(&c, true, 12, 1, false, false);
        for (int64_t i = 0; i < QUERIES * HEAD; i++) c.q[i] = i % HEAD == 0;
        for (int64_t j = 0; j < 1000; j++) c.k[j * HEAD] = -6 - (j > 0 ? ahead / 32.0 : 0); /* so that lse is below 1 */
        case_answer(&c);
        FOR_KERNELS(k) {
            if (!bits16(k)) continue;
            attention_result one = kernel_result(&c, k, 1);
            double e = weft_max_scaled(one.lse, WEFT_F64, c.want.lse, WEFT_F64, QUERIES);
            if (!(e <= k->lse_limit)) fail_msg("%s, %d/32 ahead: error of lse is %.3e", k->name, ahead, e);
            result_free(&one);
        }
        case_clear(&c);
    }
}

/* Keys that no query sees may not have arrived: whatever lies in their rows, NaN here, reaches nothing. Windows that
 * begin and end inside a block. */
static void keys_that_are_not_there(void **state)
{
    (void)state;
    enum { FIRST = 203, NK = 420, D = 16 };
    static const struct { int64_t left; int queries; } rows[] = {{20, 40}, {130, 150}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int half = 0; half < 2; half++) {
            attention_case c;
            bool seen[NK] = {false};
            case_init(&c, 2, 1, D, D);
            case_add_pair(&c, 0, rows[i].queries, FIRST, 1, 0, NK, 0, 1);
            case_end_call(&c);
            c.d.mask = (weft_mask){true, rows[i].left, -1, 0};
            case_fill(&c, half, 3, 1, false, false);
            for (int q = 0; q < rows[i].queries; q++)
                for (int64_t j = FIRST + q - rows[i].left; j <= FIRST + q; j++) seen[j] = true;
            for (int j = 0; j < NK; j++)
                for (int x = 0; x < D && !seen[j]; x++) c.k[j * D + x] = c.v[j * D + x] = NAN;
            FOR_KERNELS(k) {
                if (bits16(k) != half) continue;
                attention_result one = kernel_result(&c, k, 1);
                case_check(&c, &one, k->limit, k->lse_limit, k->name);
                result_free(&one);
            }
            case_clear(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_key_stands_out),
        cmocka_unit_test(a_nan_arrives),
        cmocka_unit_test(even_rows),
        cmocka_unit_test(keys_that_are_not_there),
        cmocka_unit_test(keys_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
