/* list.c — the operations around a pass, so that no schedule has to think of them. */
#include "sched/list.h"

const char *weft_op_name(weft_op_kind kind)
{
    static const char *const names[WEFT_OP_KINDS] = {
        [WEFT_OP_FORWARD] = "forward", [WEFT_OP_BACKWARD] = "backward",
        [WEFT_OP_POST_INPUT] = "post input", [WEFT_OP_WAIT_INPUT] = "wait for input",
        [WEFT_OP_SEND_OUTPUT] = "send output", [WEFT_OP_POST_GRADIENT] = "post gradient",
        [WEFT_OP_WAIT_GRADIENT] = "wait for gradient", [WEFT_OP_SEND_GRADIENT] = "send gradient",
        [WEFT_OP_WAIT_OUTPUT_SENT] = "wait until output is sent",
        [WEFT_OP_WAIT_GRADIENT_SENT] = "wait until gradient is sent",
    };
    return (unsigned)kind < WEFT_OP_KINDS ? names[kind] : "?";
}

/* Micro-batches before the first and after the last do not exist: asking for them adds nothing. */
static void add(weft__list *l, weft_op_kind kind, int64_t micro)
{
    if (micro < 0 || micro >= l->micros) return;
    l->op[l->n++] = (weft_sched_op){kind, micro, (int)(micro % l->slots)};
}

weft_status weft__list_begin(weft__list *l, int stages, int stage, int64_t micros, int slots, bool backward,
                             weft_sched_op *op)
{
    if (stages < 1 || stage < 0 || stage >= stages || micros < 0)
        return weft_fail(WEFT_ERR_REFUSED, "schedule: stage %d of %d with %lld micro-batches; stages count from 0",
                         stage, stages, (long long)micros);
    *l = (weft__list){.op = op, .micros = micros, .slots = slots, .before = stage > 0, .after = stage + 1 < stages,
                      .gradients = backward};
    return WEFT_OK;
}

/* The input of m + 1 takes the place of the input of m + 1 - (slots + 1) = m - slots, whose backward pass is over when
 * the forward pass of m begins: m takes its slot. Where inputs are copied it takes that of m - 1, whose forward pass is
 * over. */
void weft__list_forward(weft__list *l, int64_t m)
{
    if (l->before && m == 0) add(l, WEFT_OP_POST_INPUT, 0);
    if (l->before) {
        add(l, WEFT_OP_POST_INPUT, m + 1);
        add(l, WEFT_OP_WAIT_INPUT, m);
    }
    if (l->after) add(l, WEFT_OP_WAIT_OUTPUT_SENT, m - WEFT_SCHED_OUTPUTS);
    add(l, WEFT_OP_FORWARD, m);
    if (!l->after) return;
    add(l, WEFT_OP_SEND_OUTPUT, m);
    if (l->gradients && m == 0) add(l, WEFT_OP_POST_GRADIENT, 0);
}

/* The gradient of k + 1 comes into the buffer of k - 1, which is then on its way to the stage before. The last stage
 * receives none: it makes the gradient of k there itself. */
void weft__list_backward(weft__list *l, int64_t k)
{
    if (l->before) add(l, WEFT_OP_WAIT_GRADIENT_SENT, k + l->after - WEFT_SCHED_GRADIENTS);
    if (l->after) {
        add(l, WEFT_OP_POST_GRADIENT, k + 1);
        add(l, WEFT_OP_WAIT_GRADIENT, k);
    }
    add(l, WEFT_OP_BACKWARD, k);
    if (l->before) add(l, WEFT_OP_SEND_GRADIENT, k);
}

void weft__list_end(weft__list *l)
{
    int64_t m = l->micros;
    if (l->after)
        for (int64_t i = m - WEFT_SCHED_OUTPUTS; i < m; i++) add(l, WEFT_OP_WAIT_OUTPUT_SENT, i);
    if (!l->before || !l->gradients) return;
    /* With a stage after, the last backward pass waited for the one before it. */
    for (int64_t i = l->after ? m - 1 : m - WEFT_SCHED_GRADIENTS; i < m; i++) add(l, WEFT_OP_WAIT_GRADIENT_SENT, i);
}
