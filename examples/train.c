/* train.c — a small model trained on a text by two ranks and by one, through weft/train.h: the same losses.
 *
 *   example_train TEXT.txt
 *
 * The whole run is described by options as text, those of `weft train`. Exit code 0 when the losses agree, 1
 * when not, and Weft's codes for a failure. */
#include <weft/train.h>

#include <math.h>
#include <stdio.h>

enum { STEPS = 12 };

typedef struct run {
    const weft_train_options *options;
    double loss[STEPS], held_out;
    long long parameters, bytes;
    char plan[160];
} run;

/* Every rank drives its own trainer; the reports are the same on all of them but for times and bytes. */
static weft_status rank_main(weft_group *group, void *ud)
{
    run *r = ud;
    weft_train *t = NULL;
    double held_out = 0;
    weft_status st = weft_train_create(&t, group, r->options);
    if (st < 0) return st;
    int root = weft_group_rank(group) == 0;
    weft_train_report report;
    weft_train_report_init(&report, sizeof report);
    for (int step = 0; step < STEPS && st == WEFT_OK; step++) {
        st = weft_train_step(t, &report);
        if (root) r->loss[step] = report.loss;
    }
    if (st == WEFT_OK) st = weft_train_eval(t, 2, &held_out);
    if (root && st == WEFT_OK) {
        r->held_out = held_out;
        r->parameters = (long long)weft_train_parameters(t);
        r->bytes = (long long)report.bytes_logical;
        weft_train_describe(t, r->plan, sizeof r->plan);
    }
    weft_train_destroy(t);
    return st;
}

static weft_status train(int ranks, const char *text, run *r)
{
    static const char *const settings[][2] = {
        {"model.hidden_size", "48"}, {"model.layers", "2"}, {"model.heads", "4"}, {"model.kv_heads", "2"},
        {"train.seq_length", "129"}, {"train.steps", "12"}, {"optim.lr", "5e-3"}, {"optim.warmup_steps", "2"},
        {"data.valid_fraction", "0.3"},
    };
    char size[16];
    weft_train_options *o = NULL;
    weft_status st = weft_train_options_create(&o);
    for (size_t i = 0; i < sizeof settings / sizeof *settings && st == WEFT_OK; i++)
        st = weft_train_options_set(o, settings[i][0], settings[i][1]);
    snprintf(size, sizeof size, "%d", ranks);
    if (st == WEFT_OK) st = weft_train_options_set(o, "data.path", text);
    if (st == WEFT_OK) st = weft_train_options_set(o, "parallel.cp", size);
    r->options = o;
    if (st == WEFT_OK) st = weft_group_threads(ranks, rank_main, r);
    weft_train_options_destroy(o);
    return st;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: example_train TEXT.txt\n");
        return 2;
    }
    run two = {0}, one = {0};
    weft_status st = train(2, argv[1], &two);
    if (st == WEFT_OK) st = train(1, argv[1], &one);
    if (st < 0) {
        fprintf(stderr, "train: %s: %s\n", weft_status_text(st), weft_last_error());
        return weft_exit_code(st);
    }
    /* fp32 sums in another order; over twelve steps training amplifies a rounding of 6e-8 by less than a hundred. */
    const double limit = 5e-6;
    double worst = fabs(two.held_out - one.held_out);
    printf("%lld parameters; attention %s\n\nstep  loss on 2 ranks  loss on 1 rank\n", two.parameters, two.plan);
    for (int step = 0; step < STEPS; step++) {
        printf("%4d  %15.6f  %14.6f\n", step + 1, two.loss[step], one.loss[step]);
        if (!(fabs(two.loss[step] - one.loss[step]) <= worst)) worst = fabs(two.loss[step] - one.loss[step]);
    }
    printf("held  %15.6f  %14.6f\n\nbytes sent per step by rank 0: %lld\n", two.held_out, one.held_out, two.bytes);
    printf("largest difference %.1e, limit %.0e: %s\n", worst, limit,
           worst <= limit ? "the same training, whatever the cut" : "DIFFERENT");
    return worst <= limit ? 0 : 1;
}
