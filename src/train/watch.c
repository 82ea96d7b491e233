/* watch.c — tells who asked where this rank is within a step: the passes' operations as the schedule orders them, then
 * the sums of gradients and the optimizer.
 *
 * A share is of this rank's work, not of time: a stage of a pipeline waits where others work, and the tokens of a
 * context group are not all equally far. */
#include "train/trainer_impl.h"

#include <math.h>

/* AdamW moves some 28 bytes a weight (gradient, weight and two moments read, three of them written), and memory gives a
 * byte in the time of some eight operations of a product. Only at short sequences does it matter. */
enum { OPERATIONS_PER_WEIGHT = 28 * 8 };

void weft_trainer_watch(weft_trainer *t, weft_step_watch call, void *ud)
{
    const weft_model *m = t->engine.model;
    weft__watch *w = &t->watch;
    const double weights = OPERATIONS_PER_WEIGHT * (double)weft_model_weight_count(m);
    *w = (weft__watch){.call = call, .ud = ud};
    w->passes = (double)t->accumulation * (weft_model_pass_work(m, false) + weft_model_pass_work(m, true));
    w->all = w->passes + weights / (double)weft_max_i64(t->engine.rows, 1);
}

static void tell(const weft_trainer *t, weft_step_at at, double done, double next)
{
    const weft__watch *w = &t->watch;
    at.step = t->step + 1;
    at.steps = t->run->o->steps;
    at.done = fmin(done / w->all, 1);
    at.next = fmin(next / w->all, 1);
    w->call(w->ud, &at);
}

void weft__watch_at(const weft_trainer *t, weft_step_phase phase)
{
    const weft__watch *w = &t->watch;
    const double done = phase == WEFT_STEP_DATA ? 0 : w->passes;
    if (w->call) tell(t, (weft_step_at){.phase = phase}, done, phase == WEFT_STEP_OPTIMIZER ? w->all : done);
}

void weft__watch_pass(void *ud, const weft_sched_op *op, int64_t layer, double done, double ahead)
{
    const weft_trainer *t = ud;
    weft_step_at at = {.phase = WEFT_STEP_WAIT, .micro = op->micro + 1, .micros = t->accumulation};
    if (op->kind == WEFT_OP_FORWARD) at.phase = WEFT_STEP_FORWARD;
    if (op->kind == WEFT_OP_BACKWARD) at.phase = WEFT_STEP_BACKWARD;
    at.layer = layer + 1;
    at.layers = t->config.L;
    tell(t, at, done, done + ahead);
}

/* A step that was left out is over, too. */
void weft__watch_end(const weft_trainer *t)
{
    const weft__watch *w = &t->watch;
    if (w->call) tell(t, (weft_step_at){.phase = WEFT_STEP_OPTIMIZER}, w->all, w->all);
}
