/* step_figures.c — what the steps of all ranks come to: a step lasts as long as on its slowest rank. */
#include "train/step_bench.h"


typedef struct share { /* of one rank: means over its steps */
    double seconds, part[WEFT_PARTS], flight, exposed, peak, file;
    weft_bytes sent;
} share;

static share mean_of(const weft_engine *e, const weft__step_samples *s)
{
    share m = {.sent = s->sent, .peak = (double)e->ctx->mem.peak + (double)weft_gemm_bytes(e->gemm),
               .file = (double)weft_model_file_bytes(e->model)};
    for (int i = 0; i < s->n; i++) {
        const weft__step_sample *x = &s->x[i];
        m.seconds += x->seconds / s->n;
        m.flight += x->flight / s->n;
        m.exposed += x->exposed / s->n;
        for (int k = 0; k < WEFT_PARTS; k++) m.part[k] += x->part[k] / s->n;
    }
    return m;
}

static weft_status time_steps(const weft_engine *e, const weft__step_samples *s, weft_step_bench *out)
{
    double seconds[WEFT__STEP_SAMPLES];
    for (int i = 0; i < s->n; i++) seconds[i] = s->x[i].seconds;
    WEFT_TRY(weft_all_reduce(e->mesh.all, seconds, s->n, WEFT_F64, WEFT_MAX));
    for (int i = 0; i < s->n; i++) out->seconds += seconds[i] / s->n;
    weft_sorted(seconds, s->n);
    out->spread = (seconds[3 * s->n / 4] - seconds[s->n / 4]) / out->seconds;
    return WEFT_OK;
}

static double work_of(const share *x)
{
    static const weft_part idle[] = {WEFT_PART_OTHER, WEFT_PART_DATA, WEFT_PART_EXCHANGE, WEFT_PART_OFFLOAD};
    double sum = 0;
    for (int k = 0; k < WEFT_PARTS; k++) sum += x->part[k];
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) sum -= x->part[idle[i]];
    return sum;
}

static double busy(const share *x) { return x->seconds - x->part[WEFT_PART_EXCHANGE]; }

static double larger(double a, double b) { return a > b ? a : b; }

static void merge(const share *of, int ranks, weft_step_bench *out)
{
    for (int r = 0; r < ranks; r++) {
        const share *x = &of[r];
        if (busy(x) > busy(&of[out->slowest])) out->slowest = r;
        out->flight += x->flight / x->seconds / ranks;
        out->flight_most = larger(out->flight_most, x->flight / x->seconds);
        out->exposed += x->exposed / x->seconds / ranks;
        out->exposed_most = larger(out->exposed_most, x->exposed / x->seconds);
        out->kernels += work_of(x) / x->seconds / ranks;
        for (int k = 0; k < WEFT_PARTS; k++) out->mean[k] += x->part[k] / ranks;
        if (weft_bytes_total(&x->sent) > weft_bytes_total(&out->sent)) out->sent = x->sent;
        out->peak_bytes = larger(out->peak_bytes, x->peak);
        out->file_bytes = larger(out->file_bytes, x->file);
    }
    for (int k = 0; k < WEFT_PARTS; k++) out->part[k] = of[out->slowest].part[k];
}

static weft_status merge_shares(const weft_engine *e, weft_arena *arena, const weft__step_samples *s,
                                weft_step_bench *out)
{
    int ranks = weft_comm_size(e->mesh.all), me = weft_comm_rank(e->mesh.all);
    share *of = NULL;
    size_t *bytes = NULL;
    WEFT_TRY(WEFT_NEW(arena, ranks, "figures", &of));
    WEFT_TRY(WEFT_NEW(arena, ranks, "figures", &bytes));
    for (int r = 0; r < ranks; r++) bytes[r] = sizeof *of;
    of[me] = mean_of(e, s);
    WEFT_TRY(weft_all_gather(e->mesh.all, &of[me], of, bytes));
    merge(of, ranks, out);
    return WEFT_OK;
}

weft_status weft__step_figures(const weft_engine *e, weft_arena *arena, const weft__step_samples *s,
                               weft_step_bench *out)
{
    double attention = 0;
    for (int i = 0; i < s->n; i++) attention += s->x[i].attention;
    WEFT_TRY(time_steps(e, s, out));
    WEFT_TRY(merge_shares(e, arena, s, out));
    double visible;
    return weft__imbalance(e, s->area, s->micros, attention, &out->imbalance, &out->imbalance_time, &visible);
}
