/* attention_kernels.c — how fast attention is on one rank, as a share of what its arithmetic units do. */
#include "train/attention_case.h"
#include "train/figures.h"

#include <string.h>

typedef struct bench {
    weft_attention_case c;
    weft_cp_plan *plan;
    weft_cp_io io;
    weft_kern kern;
    weft__roof roof;
    bool wanted[WEFT_BENCH_DIRECTIONS];
    int64_t inner[2]; /* runs in one measurement */
    weft__sample x[WEFT_BENCH_DIRECTIONS][WEFT__REPEATS_MAX];
    int repeats;
} bench;

/* ---- the words ------------------------------------------------------------------------------------------- */

static const char own_words[] = "fp64 fp32 bf16 fp16 fwd bwd fwd+bwd";

static int direction_of(const char *word)
{
    static const char *const names[WEFT_BENCH_DIRECTIONS] = {"fwd", "bwd", "fwd+bwd"};
    int i = 0;
    while (i < WEFT_BENCH_DIRECTIONS && strcmp(word, names[i])) i++;
    return i;
}

/* Takes out what --make has no word for; all directions unless some are named. */
static weft_status read_text(bench *b, weft_prec *prec, const char *text, char **rest)
{
    char *copy = NULL, *next = NULL;
    size_t size = strlen(text) + 2; /* a space behind every word */
    bool has_prec = false;
    WEFT_TRY(weft_arena_zalloc(b->c.arena, (int64_t)size, 1, "bench text", (void **)rest));
    WEFT_TRY(weft_arena_alloc(b->c.arena, (int64_t)size, 1, "bench text", (void **)&copy));
    memcpy(copy, text, size - 1);
    for (char *word = strtok_r(copy, " \t", &next); word; word = strtok_r(NULL, " \t", &next)) {
        int direction = direction_of(word);
        bool is_direction = direction < WEFT_BENCH_DIRECTIONS, is_prec = weft_prec_parse(word, prec);
        if ((is_prec && has_prec) || (is_direction && b->wanted[direction]))
            return weft_fail(WEFT_ERR_REFUSED, "%s: \"%s\" is one %s too many; leave one out", text, word,
                             is_prec ? "precision" : "direction");
        has_prec |= is_prec;
        if (is_direction) b->wanted[direction] = true;
        if (!is_direction && !is_prec) strcat(*rest, word), strcat(*rest, " ");
    }
    bool any = b->wanted[0] || b->wanted[1] || b->wanted[2];
    for (int i = 0; i < WEFT_BENCH_DIRECTIONS; i++) b->wanted[i] |= !any;
    return WEFT_OK;
}

/* ---- measuring ------------------------------------------------------------------------------------------- */

static double roof(const bench *b) { return weft__roof_now(&b->roof, b->c.ctx); }

static weft_status run_one(bench *b, int direction)
{
    return direction == WEFT_BENCH_FORWARD ? weft_cp_forward(b->plan, 0, &b->io) : weft_cp_backward(b->plan, 0, &b->io);
}

static weft_status timed(bench *b, int direction, double *seconds)
{
    const weft_clock *clock = &b->c.ctx->clock;
    double begin = weft_now(clock);
    for (int64_t i = 0; i < b->inner[direction]; i++) WEFT_TRY(run_one(b, direction));
    *seconds = (weft_now(clock) - begin) / (double)b->inner[direction];
    return WEFT_OK;
}

static bool needs_backward(const bench *b) { return b->wanted[WEFT_BENCH_BACKWARD] || b->wanted[WEFT_BENCH_BOTH]; }

/* The first runs touch all memory; where they were short, second ones say how many make a measurement. */
static weft_status warm_up(bench *b)
{
    for (int direction = 0; direction < 2; direction++) {
        double seconds;
        if (direction == WEFT_BENCH_BACKWARD && !needs_backward(b)) continue;
        b->inner[direction] = 1;
        WEFT_TRY(timed(b, direction, &seconds));
        if (seconds < 10 * weft__run_seconds) WEFT_TRY(timed(b, direction, &seconds));
        b->inner[direction] = 1 + (int64_t)(weft__run_seconds / (seconds > 1e-9 ? seconds : 1e-9));
    }
    return WEFT_OK;
}

static weft_status repeat(bench *b)
{
    weft__sample *f = &b->x[WEFT_BENCH_FORWARD][b->repeats], *r = &b->x[WEFT_BENCH_BACKWARD][b->repeats];
    double before = roof(b);
    WEFT_TRY(timed(b, WEFT_BENCH_FORWARD, &f->seconds));
    double between = roof(b);
    f->roof = (before + between) / 2;
    b->x[WEFT_BENCH_BOTH][b->repeats] = *f;
    if (needs_backward(b)) {
        WEFT_TRY(timed(b, WEFT_BENCH_BACKWARD, &r->seconds));
        double after = roof(b);
        r->roof = (between + after) / 2;
        b->x[WEFT_BENCH_BOTH][b->repeats] = (weft__sample){f->seconds + r->seconds, (before + between + after) / 3};
    }
    b->repeats++;
    return WEFT_OK;
}

static int64_t visible_area(const bench *b)
{
    const weft_attention_case *c = &b->c;
    const weft_cp_problem *p = &c->problem;
    int64_t area = 0;
    for (int64_t row = 0; row < p->B; row++)
        for (int64_t d = c->docs.first[row]; d + 1 < c->docs.first[row + 1]; d++) {
            int64_t begin = c->docs.cu[d], end = c->docs.cu[d + 1], first = weft_max_i64(begin, p->T - p->Tq);
            weft_attn_pair pair = {.nq = end - first,
                                   .q_pos = first - begin,
                                   .q_run = 1,
                                   .q_step = 1,
                                   .nk = end - begin,
                                   .k_run = 1,
                                   .k_step = 1};
            area += weft_attn_area(&p->mask, &pair);
        }
    return area;
}

static void settle(const bench *b, weft_kernel_bench *out)
{
    const weft_cp_problem *p = &b->c.problem;
    out->area = visible_area(b);
    double pairs = (double)out->area * p->H, forward = 2.0 * (p->D + p->Dv), backward = 2.0 * (3 * p->D + 2 * p->Dv);
    const double each[WEFT_BENCH_DIRECTIONS] = {forward, backward, forward + backward};
    for (int i = 0; i < WEFT_BENCH_DIRECTIONS; i++) {
        out->measured[i] = b->wanted[i];
        if (b->wanted[i]) out->of[i] = weft__figures(b->x[i], b->repeats, pairs * each[i]);
    }
    out->prec = p->prec;
    out->repeats = b->repeats;
    out->threads = b->c.ctx->threads;
    out->roof_name = weft__roof_name(&b->roof);
    weft_cp_describe(b->plan, &out->plan);
}

static weft_status measure(bench *b)
{
    weft_attention_case *c = &b->c;
    const weft_clock *clock = &c->ctx->clock;
    WEFT_TRY(weft_arena_alloc(c->arena, (int64_t)weft_cp_kept_bytes(b->plan), 1, "kept by heads", &c->kept));
    b->io = weft__case_io(c);
    WEFT_TRY(weft_cp_bind(b->plan, 0, weft__case_queries(c), &c->shard_kv));
    WEFT_TRY(warm_up(b));
    int64_t given = c->run->o->bench_repeats, least = given ? given : WEFT__REPEATS_MIN,
            most = given ? given : WEFT__REPEATS_MAX;
    double begin = weft_now(clock);
    while (b->repeats < least || (b->repeats < most && weft_now(clock) - begin < weft__enough_seconds))
        WEFT_TRY(repeat(b));
    return WEFT_OK;
}

/* ---- the bench ------------------------------------------------------------------------------------------- */

static weft_status open_case(bench *b, weft_run *r, const char *text)
{
    weft_attention_case *c = &b->c;
    char *rest = NULL;
    WEFT_TRY(read_text(b, &r->prec, text, &rest));
    c->problem.prec = r->prec;
    c->C = weft_prec_compute(r->prec), c->R = weft_prec_real(r->prec);
    return weft__case_open_made(c, rest);
}

static weft_status run(bench *b, weft_run *r, const char *text, weft_kernel_bench *out)
{
    weft_attention_case *c = &b->c;
    WEFT_TRY(open_case(b, r, text));
    WEFT_TRY(weft__case_prepare(c));
    WEFT_TRY(weft_kern_init(&b->kern, r->isa));
    b->roof = weft__roof_of(b->kern.isa, r->prec);
    WEFT_TRY(weft_cp_plan_create(&b->plan, c->arena, &b->kern, c->comm, &c->problem, &r->cp));
    weft_status st = measure(b);
    if (st >= 0) settle(b, out);
    weft_cp_plan_destroy(b->plan);
    return st;
}

static bench bench_of(const weft_run *r, weft_ctx *ctx, const char *text)
{
    const uint64_t seed = (uint64_t)r->o->seed;
    return (bench){.c = {.name = text,
                         .own_words = own_words,
                         .run = r,
                         .ctx = ctx,
                         .seed = seed,
                         .problem = {.layout = r->layout, .need_backward = true, .slots = 1, .seed = seed}}};
}

weft_status weft_bench_kernels_check(weft_ctx *ctx, const weft_run *given, const char *text)
{
    weft_run r = *given;
    bench b = bench_of(&r, ctx, text);
    WEFT_TRY(weft_arena_create(&b.c.arena, &ctx->mem, "attention case", NULL));
    weft_status st = open_case(&b, &r, text);
    weft_arena_destroy(b.c.arena);
    return st;
}

weft_status weft_bench_kernels(weft_world *world, const weft_run *given, const char *text, weft_kernel_bench *out)
{
    weft_run r = *given;
    weft_mesh mesh = {0};
    weft_status st;
    bench b = bench_of(&r, weft_world_ctx(world), text);
    *out = (weft_kernel_bench){0};
    WEFT_TRY(weft_mesh_create(&mesh, world, r.mesh));
    b.c.comm = mesh.cp;
    WEFT_TRY_OR(st, weft_arena_create(&b.c.arena, &b.c.ctx->mem, "attention case", NULL), close_mesh);
    st = run(&b, &r, text, out);
    weft_arena_destroy(b.c.arena);
close_mesh:
    weft_mesh_destroy(&mesh);
    return st;
}
