/* test_attention_runs.c — runs of pairs: a forward that gets keys in pieces, one after the other for the same queries,
 * computes what it computes for all of them in one pair. Where pieces end between the tiles of keys, not a bit differs,
 * because the state stays where it is: it would be rounded if it went to memory and back.
 * labels: small */
#include "attention_kernels.h"

/* Of the kernel's tiles; the reference has none, so any number does. */
static int64_t keys_of_a_tile(const kernel *k) { return k->isa == WEFT_ISA_AMX ? 128 : 120; }

/* Keys [begin, end) of a pair. */
static void add_piece(attention_case *c, weft_attn_pair p, int64_t begin, int64_t end)
{
    begin = weft_min_i64(begin, p.nk), end = weft_min_i64(end, p.nk);
    p.k_row += begin;
    p.k_pos += begin / p.k_run * p.k_step + begin % p.k_run;
    p.nk = end - begin;
    case_add(c, p);
    case_end_call(c);
}

/* The same case with pairs in pieces of 1, 0, 2 and all other tiles; among them one that no query sees. */
static attention_case in_pieces(const attention_case *c, int64_t tile)
{
    attention_case y = *c;
    y.n = y.calls = 0;
    y.runs = true;
    for (int i = 0; i < c->n; i++) {
        const weft_attn_pair *p = &c->pair[i];
        const int64_t last_pos = weft_max_i64(p->k_pos, p->q_pos) + 100000;
        add_piece(&y, *p, 0, tile);
        add_piece(&y, *p, tile, tile);
        if (c->d.mask.causal) {
            weft_attn_pair unseen = *p;
            unseen.k_pos = last_pos;
            add_piece(&y, unseen, 0, tile + 5);
        }
        add_piece(&y, *p, tile, 3 * tile);
        add_piece(&y, *p, 3 * tile, p->nk);
    }
    return y;
}

static void same_forward(const attention_case *c, const attention_result *a, const attention_result *b,
                         const char *text)
{
    const int64_t rows = c->q_rows * c->d.H;
    if (memcmp(a->o, b->o, (size_t)(rows * c->d.Dv) * sizeof *a->o) != 0) fail_msg("%s: o differs", text);
    if (memcmp(a->lse, b->lse, (size_t)rows * sizeof *a->lse) != 0) fail_msg("%s: lse differs", text);
}

static void check_pieces(attention_case *c, const kernel *k, const char *what)
{
    const weft_attn_ops ops = ops_of(k);
    attention_case pieces = in_pieces(c, keys_of_a_tile(k));
    attention_result whole = result_new(c), run = result_new(c);
    case_run(c, &ops, k->prec, 1, &whole);
    for (int threads = 1; threads <= 3; threads += 2) {
        char text[128];
        snprintf(text, sizeof text, "%s, %s, %d threads", k->name, what, threads);
        case_run(&pieces, &ops, k->prec, threads, &run);
        same_forward(c, &whole, &run, text);
    }
    result_free(&whole), result_free(&run);
}

/* Two pieces of queries, which stand at the end of the keys; positions in runs of 8 or contiguous. */
static void shape(attention_case *c, int64_t nq, int64_t nk, int64_t run, int64_t step)
{
    for (int i = 0; i < 2; i++)
        case_add(c, (weft_attn_pair){.q_row = i * nq, .nq = nq, .q_run = run, .q_step = step,
                                     .q_pos = weft_max_i64(0, nk - (2 - i) * nq) / run * step,
                                     .k_row = i * nk, .nk = nk, .k_run = run, .k_step = step, .base = 7, .sample = 1});
    case_end_call(c);
}

static void pieces_give_the_bits_of_one_pair(void **state)
{
    (void)state;
    static const struct { const char *what; int D, Dv; int64_t nq, nk, run, step; weft_mask mask; double drop, cap; }
    cases[] = {
        {"causal", 20, 12, 33, 401, 1, 1, {true, -1, -1, 0}, 0, 0},
        {"all keys", 7, 33, 1, 257, 1, 1, {false, -1, -1, 0}, 0, 0},
        {"window, softcap", 16, 16, 65, 500, 1, 1, {true, 90, -1, 0}, 0, 3},
        {"window to both sides, dropout", 5, 20, 40, 390, 1, 1, {false, 100, 30, 0}, 0.3, 0},
        {"stripes, prefix", 33, 3, 24, 375, 8, 24, {true, -1, -1, 500}, 0, 0},
        {"stripes, dropout", 16, 40, 50, 420, 8, 16, {true, -1, -1, 0}, 0.1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int half = 0; half < 2; half++) {
            attention_case c;
            if ((i + (size_t)half) % (size_t)test_every(3) != 0) continue;
            case_init(&c, i % 2 ? 3 : 4, i % 2 ? 3 : 2, cases[i].D, cases[i].Dv);
            shape(&c, cases[i].nq, cases[i].nk, cases[i].run, cases[i].step);
            c.d.mask = cases[i].mask;
            c.d.softcap = cases[i].cap;
            c.d.dropout = cases[i].drop, c.d.seed = 5, c.word3 = weft_philox_word3(2, 3, WEFT_SITE_DROP_ATTENTION);
            case_operands(&c, half, 91 + i, 2, false, i % 2);
            FOR_KERNELS(k)
                if (bits16(k) == half && speaks_for_its_source(k)) check_pieces(&c, k, cases[i].what);
            case_clear(&c);
        }
}

/* Shares of a ring, of which every one sees all others in one call, against the plain formula; other lengths, so that
 * pieces end anywhere. */
static void runs_give_the_answer(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        attention_case c;
        char text[64];
        if (i % test_every(2) != 0) continue;
        case_init(&c, 2, 1, 16 + i, 20);
        case_ring(&c, i == 3 ? 3 : 257, 2 + i, i % 2 ? 16 : 0);
        c.d.mask.causal = i != 2;
        c.d.mask.left = i == 1 ? 70 : -1;
        c.runs = true;
        snprintf(text, sizeof text, "%d shares in one call", 2 + i);
        check_all(&c, 1, i == 1, i == 2, 1, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_give_the_bits_of_one_pair),
        cmocka_unit_test(runs_give_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
