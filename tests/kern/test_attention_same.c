/* test_attention_same.c — what must not change a bit of any attention kernel: the number of threads, doing it once
 * more, and where the operands lie. They lie against unreadable pages, behind their last byte or before their first,
 * and so at any alignment that their elements allow.
 * labels: small */
/* timeout: 300 */
#include "attention_kernels.h"

#include <unistd.h>

static void same_bits(attention_case *c, const kernel *k, const char *what)
{
    static const struct { const char *how; int threads; place_side side; } ways[] = {
        {"once more, elsewhere", 1, PLACE_FIRST}, {"two threads", 2, PLACE_LAST}, {"three threads", 3, PLACE_FIRST}};
    weft_attn_ops ops = ops_of(k);
    attention_result first = result_new(c), other = result_new(c);
    c->side = PLACE_LAST;
    case_run(c, &ops, k->prec, 1, &first);
    for (int i = 0; i < 3; i++) {
        char text[128];
        snprintf(text, sizeof text, "%s, %s, %s", k->name, what, ways[i].how);
        c->side = ways[i].side;
        case_run(c, &ops, k->prec, ways[i].threads, &other);
        case_check_same(c, &first, &other, text);
    }
    for (int64_t i = 0; i < c->q_rows * c->d.H * c->d.Dv; i++)
        if (!isfinite(first.o[i])) fail_msg("%s, %s: output %lld is %g", k->name, what, (long long)i, first.o[i]);
    result_free(&first), result_free(&other);
}

static void all_kernels(attention_case *c, bool rules, const char *what)
{
    for (int half = 0; half < 2; half++) {
        case_operands(c, half, (uint64_t)(c->q_rows + 31 * c->d.D), 1, rules, rules);
        FOR_KERNELS(k)
            if (bits16(k) == half && speaks_for_its_source(k)) same_bits(c, k, what);
        case_clear(c);
    }
}

/* Every size of head with every number of rows that is no multiple of a vector, a tile or a block. */
static void awkward_sizes(void **state)
{
    (void)state;
    static const int heads[] = {1, 3, 64, 100, 256};
    static const int64_t rows[] = {1, 7, 65, 121};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 4; j++) {
            attention_case c;
            char text[64];
            if ((i + j) % test_every(4) != 0) continue;
            case_init(&c, 2, 1, heads[i], heads[(i + j) % 5]);
            case_simple(&c, rows[j], rows[(i + j) % 4]);
            c.d.mask.causal = j % 2;
            snprintf(text, sizeof text, "D %d Dv %d, %d x %d", c.d.D, c.d.Dv, (int)c.q_rows, (int)c.k_rows);
            all_kernels(&c, i % 2, text);
        }
}

/* Long enough for several blocks of queries and keys, so that threads meet at the sums of dq. */
static void shapes(attention_case *c, int which)
{
    static const int64_t documents[] = {260, 1, 0, 33, 130, 90};
    case_init(c, which == 4 ? 6 : 1, which == 4 ? 2 : 1, 20, 12);
    c->d.mask.causal = which != 1;
    if (which == 2) case_documents(c, documents, sizeof documents / sizeof *documents);
    else if (which == 3) case_ring(c, 400, 3, 16);
    else if (which == 4) case_simple(c, 150, 150);
    else case_simple(c, 520, 700);
    if (which == 1) c->d.mask.left = 150, c->d.mask.right = 40;
}

static void masks_and_pairs(void **state)
{
    (void)state;
    static const char *const names[] = {"causal", "window", "documents", "ring", "groups"};
    for (int i = 0; i < 5; i++)
        for (int dropout = 0; dropout < 2; dropout++) {
            attention_case c;
            char text[64];
            if ((i + 3 * dropout) % test_every(4) != 0) continue;
            shapes(&c, i);
            if (dropout) c.d.dropout = 0.2, c.d.seed = 9, c.word3 = weft_philox_word3(3, 1, WEFT_SITE_DROP_ATTENTION);
            snprintf(text, sizeof text, "%s%s", names[i], dropout ? " with dropout" : "");
            all_kernels(&c, i == 4, text);
        }
}

/* The pages do what they are for. */
static void what_lies_beyond_cannot_be_read(void **state)
{
    (void)state;
    static const size_t bytes[] = {1, 4095, 4096, 4097, 12};
    for (int i = 0; i < 5; i++)
        for (int side = 0; side < 2; side++) {
            int fd[2];
            assert_int_equal(pipe(fd), 0);
            char *p = place_new(bytes[i], 1, (place_side)side), *end = p + bytes[i];
            assert_int_equal(write(fd[1], p, bytes[i]), bytes[i]);
            assert_int_equal(write(fd[1], side == PLACE_FIRST ? p - 1 : end, 1), -1);
            place_free(p);
            close(fd[0]), close(fd[1]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(awkward_sizes),
        cmocka_unit_test(masks_and_pairs),
        cmocka_unit_test(what_lies_beyond_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
