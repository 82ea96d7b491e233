/* target_case.c — what rules ask of a case. */
#include "plan/target_impl.h"

#include <string.h>

bool weft__target_cut(const weft__target_case *c) { return c->choice.cp > 1; }
bool weft__target_split(const weft__target_case *c) { return c->choice.tp > 1; }
bool weft__target_sixteen_bits(const weft__target_case *c)
{
    return c->ask.options.prec == WEFT_PREC_BF16 || c->ask.options.prec == WEFT_PREC_F16;
}
bool weft__target_batch_said(const weft__target_case *c) { return c->ask.global_batch > 0; }

/* Two orders are the same for sizes under which every neighbour is as far away. */
bool weft__target_order_is(const weft__target_case *c, int order)
{
    const weft_layout_choice *x = &c->choice;
    const weft_mesh_shape one[] = {{.tp = x->tp > 1}, {.cp = x->cp > 1}, {.dp = x->dp > 1}, {.pp = x->pp > 1}};
    const weft_mesh_shape a = {x->tp, x->cp, x->dp, x->pp, x->order}, b = {x->tp, x->cp, x->dp, x->pp, order};
    for (int i = 0; i < 4; i++)
        if (weft_mesh_rank(a, one[i]) != weft_mesh_rank(b, one[i])) return false;
    return true;
}

bool weft__target_order_differs(const weft__target_case *c) { return !weft__target_order_is(c, 0); }

/* A window of W tokens or more hides nothing of a sequence of W. */
bool weft__target_window(const weft__target_case *c)
{
    return c->ask.config->window > 0 && c->ask.config->window < c->ask.options.T;
}

bool weft__target_docs(const weft__target_case *c)
{
    const weft_docs *d = c->ask.docs;
    for (int64_t b = 0; d && b < d->B; b++)
        if (d->first[b + 1] - d->first[b] > 2) return true; /* n documents have n + 1 bounds */
    return false;
}

bool weft__target_is(const weft__target_case *c, const char *strategy)
{
    return c->choice.strategy && !strcmp(c->choice.strategy, strategy);
}

int64_t weft__target_T(const weft__target_case *c) { return c->ask.options.T; }
int64_t weft__target_H(const weft__target_case *c) { return c->ask.config->H; }
int64_t weft__target_Hkv(const weft__target_case *c) { return c->ask.config->Hkv; }
int64_t weft__target_layers(const weft__target_case *c) { return c->ask.config->L; }
int64_t weft__target_width(const weft__target_case *c) { return c->ask.config->F; }
int64_t weft__target_batch(const weft__target_case *c) { return c->ask.global_batch; }
int64_t weft__target_cp(const weft__target_case *c) { return c->choice.cp; }
int64_t weft__target_two_cp(const weft__target_case *c) { return 2 * (int64_t)c->choice.cp; }
int64_t weft__target_tp(const weft__target_case *c) { return c->choice.tp; }
int64_t weft__target_pp(const weft__target_case *c) { return c->choice.pp; }
int64_t weft__target_micro_dp(const weft__target_case *c) { return c->choice.micro_batch * c->choice.dp; }

int64_t weft__target_bad_doc(const weft__target_case *c, int64_t divisor)
{
    const weft_docs *d = c->ask.docs;
    for (int64_t b = 0; d && b < d->B; b++)
        for (int64_t i = d->first[b]; i + 1 < d->first[b + 1]; i++)
            if ((d->cu[i + 1] - d->cu[i]) % divisor) return d->cu[i + 1] - d->cu[i];
    return 0;
}

int64_t weft__target_accumulation(const weft__target_case *c)
{
    return c->ask.global_batch / weft__target_micro_dp(c);
}

void weft__target_end(weft_text *out)
{
    if (out->len > 0 && out->data[out->len - 1] == '\n') out->data[--out->len] = 0;
}
