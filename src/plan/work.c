/* work.c — what a step computes and moves on its busiest rank, in operations, bytes and calls: no rates, no time.
 *
 * It follows the code of a layer (model/block.c) line by line: which products run on which rows, what is read and
 * written between them, what travels inside a tensor-parallel group, and what recomputation repeats. */
#include "plan/plan_impl.h"

#include <math.h>

typedef struct sizes { /* what all amounts are made of */
    const weft_plan_ask *ask;
    const weft_layout_choice *choice;
    weft_model_widths w;
    double c, r;          /* bytes of an element: operands, sums */
    double S, s, C;       /* tokens, rows of the residual stream, width */
    double chunks;        /* in which rows travel over tp: of one exchange of all rows */
    double tiles;         /* in which the feed-forward runs */
    bool gathers;         /* rows of the stream lie on the ranks of tp: sequence parallelism */
} sizes;

static double size_of(weft_dtype type) { return (double)weft_dtype_size(type); }

static weft_plan_system system_of(const weft_plan_ask *ask)
{
    return ask->system ? *ask->system : weft_plan_system_weft(ask->options.prec);
}

/* As model/tp.c cuts them: a piece of sums at a time, 128 rows at least. */
static double chunks_of(const sizes *z)
{
    const weft_plan_system system = system_of(z->ask);
    const double most = fmax(128, system.tp_piece / (z->C * z->r));
    return system.tp_piece > 0 ? fmax(1, ceil(z->S / most)) : 1;
}

static sizes sizes_of(const weft_plan_ask *ask, const weft_layout_choice *choice)
{
    const weft_model_share share = {choice->tp - 1, choice->tp, 0, choice->pp, choice->sequence_parallel};
    const weft_model_options *o = &ask->options;
    sizes z = {.ask = ask, .choice = choice, .w = weft_model_share_widths(ask->config, &share),
               .c = size_of(weft_prec_compute(o->prec)), .r = size_of(weft_prec_real(o->prec)),
               .C = (double)ask->config->C, .gathers = choice->tp > 1 && choice->sequence_parallel};
    z.S = (double)weft_shard_max_rows(choice->cp_layout, choice->micro_batch, o->T, choice->cp);
    z.s = z.gathers ? ceil(z.S / choice->tp) : z.S;
    z.chunks = choice->tp > 1 ? chunks_of(&z) : 1;
    z.tiles = o->mlp_rows > 0 ? fmax(1, ceil(z.S / (double)o->mlp_rows)) : 1;
    return z;
}

/* ---- products ------------------------------------------------------------------------------------------------ */

static void add_product(weft__amount *a, double M, double N, double K, double bytes, double calls)
{
    a->product[a->products++] = (weft__product){M, N, K, bytes, calls};
}

/* y [S,out] = x [S,in] W */
static void forward(const sizes *z, weft__amount *a, weft_model_matrix w, double y, double calls)
{
    const double in = (double)w.in, out = (double)w.out;
    add_product(a, z->S, out, in, z->c * (z->S * in + calls * in * out) + y * z->S * out, calls);
}

/* dx = dy W^T, dW += x^T dy: sums of gradients are read and written. */
static void backward(const sizes *z, weft__amount *a, weft_model_matrix w, double calls)
{
    const double in = (double)w.in, out = (double)w.out;
    add_product(a, z->S, in, out, z->c * (z->S * (in + out) + calls * in * out), calls);
    add_product(a, in, out, z->S, z->c * z->S * (in + out) + calls * 2 * z->r * in * out, calls);
}

/* ---- a layer ------------------------------------------------------------------------------------------------- */

static double up_width(const sizes *z) { return (double)z->w.up.out; }
static double F(const sizes *z) { return (double)z->w.down.in; }

/* Bytes read and written by each kind of element-wise work, once. */
static double norm(const sizes *z) { return z->s * z->C * (z->r + z->c); }
static double norm_back(const sizes *z) { return z->s * z->C * (3 * z->r + z->c); } /* x, dx twice; dy */
static double residual(const sizes *z) { return z->s * z->C * 2 * z->r; }
static double rounded(const sizes *z) { return z->r == z->c ? 0 : z->s * z->C * (z->r + z->c); } /* dx, for products */
static double activation(const sizes *z) { return z->S * (up_width(z) + F(z)) * z->c; }
static double activation_back(const sizes *z) { return z->S * (2 * up_width(z) + F(z)) * z->c; }

/* Rotation of q and k, and their norms. */
static double turn(const sizes *z)
{
    const double width = (double)(z->w.H + z->w.Hkv) * z->ask->config->D * z->S * z->c;
    return (z->w.rotates ? 2 : 0) * width + (z->w.qk_norm ? 3 : 0) * width;
}

/* The numerics guard looks at q, k, v and at the gradient of attention's output. */
static double look_qkv(const sizes *z) { return z->S * (double)z->w.qkv.out * z->c; }
static double look_out(const sizes *z) { return z->S * (double)z->w.o.in * z->c; }

static void gather(const sizes *z, weft__amount *a, double times)
{
    if (!z->gathers) return;
    a->tp_rows += times * z->S * z->C;
    a->tp_calls += times * z->chunks;
}

/* Where all rows are on all ranks they get the whole sum: there and back. */
static void sum(const sizes *z, weft__amount *a, double times)
{
    const double ways = z->gathers ? 1 : 2;
    if (z->choice->tp == 1) return;
    a->tp_sums += times * ways * z->S * z->C;
    a->tp_calls += times * ways * z->chunks;
}

/* Products on columns here run chunk by chunk where rows are gathered, and so do those whose sums go to shares. */
static double calls(const sizes *z) { return z->gathers ? z->chunks : 1; }

static void layer_forward(const sizes *z, weft__amount *a)
{
    forward(z, a, z->w.qkv, z->c, calls(z));
    forward(z, a, z->w.o, 2 * z->r, calls(z));
    forward(z, a, z->w.up, z->c, fmax(calls(z), z->tiles));
    forward(z, a, z->w.down, 2 * z->r, fmax(calls(z), z->tiles));
    a->attention = z->w.H > 0;
    a->elements = 2 * norm(z) + 2 * residual(z) + turn(z) + activation(z) + look_qkv(z);
    gather(z, a, 2);
    sum(z, a, 2);
}

static void layer_backward(const sizes *z, weft__amount *a)
{
    const double n = z->choice->tp > 1 ? z->chunks : 1; /* sums of input gradients go chunk by chunk */
    backward(z, a, z->w.down, fmax(calls(z), z->tiles));
    backward(z, a, z->w.up, fmax(n, z->tiles));
    backward(z, a, z->w.o, calls(z));
    backward(z, a, z->w.qkv, n);
    a->attention = z->w.H > 0;
    a->elements = activation(z) + activation_back(z) + 2 * norm_back(z) + 2 * rounded(z) + turn(z) + look_out(z);
    gather(z, a, 4);
    sum(z, a, 2);
}

/* weft__block_bwd and docs/maths/memory.md */
static void layer_again(const sizes *z, weft__amount *a)
{
    const weft_recompute mode = z->choice->recompute;
    const bool tiled = z->tiles > 1;
    if (mode >= WEFT_RECOMPUTE_ATTENTION) {
        forward(z, a, z->w.qkv, z->c, calls(z));
        a->elements += norm(z) + turn(z) + look_qkv(z);
        a->attention = z->choice->keep_attention || z->w.H == 0 ? 0 : 1;
        gather(z, a, 1);
    }
    if (mode >= WEFT_RECOMPUTE_BLOCK) a->elements += norm(z);
    if (mode >= WEFT_RECOMPUTE_BLOCK || tiled) {
        forward(z, a, z->w.up, z->c, fmax(calls(z), z->tiles));
        gather(z, a, 1);
    }
    if (mode == WEFT_RECOMPUTE_FULL) {
        forward(z, a, z->w.o, 2 * z->r, calls(z));
        a->elements += residual(z);
        sum(z, a, 1);
    }
}

/* ---- both ends ----------------------------------------------------------------------------------------------- */

static void embedding(const sizes *z, weft__layer_work *x)
{
    x->pass[WEFT__FORWARD].elements = z->S * z->C * 2 * z->r;
    x->pass[WEFT__BACKWARD].elements = z->S * z->C * 3 * z->r;
    sum(z, &x->pass[WEFT__FORWARD], 1);
    gather(z, &x->pass[WEFT__BACKWARD], z->r / z->c);
}

/* Final norm, head and loss, in chunks of 64 MiB of logits: both directions are in the forward pass. */
static void head(const sizes *z, weft__layer_work *x)
{
    weft__amount *a = &x->pass[WEFT__FORWARD];
    const double V = (double)z->w.head.out, most = fmax(16, (double)(64 << 20) / fmax(V * z->r, 1));
    const double n = fmax(1, ceil(z->S / most));
    if (V == 0) return;
    forward(z, a, z->w.head, z->r, n);
    backward(z, a, z->w.head, n);
    a->loss = z->S * V * (2 * z->r + z->c); /* logits for their sum and for their gradient, which is written */
    a->elements = norm(z);
    x->pass[WEFT__BACKWARD].elements = norm_back(z) + z->s * z->C * z->r;
    gather(z, a, 1);
    sum(z, a, 1);
}

/* ---- the step ------------------------------------------------------------------------------------------------ */

static void scale_elements(weft__layer_work *x, double by)
{
    for (int i = 0; i < WEFT__PASSES; i++) x->pass[i].elements *= by, x->pass[i].loss *= by;
}

weft__step_work weft__work_of(const weft_plan_ask *ask, const weft_layout_choice *choice)
{
    const sizes z = sizes_of(ask, choice);
    weft__step_work x = {.rows = z.S, .stream = z.s, .embedding_rows = (double)z.w.head.out};
    layer_forward(&z, &x.layer.pass[WEFT__FORWARD]);
    layer_backward(&z, &x.layer.pass[WEFT__BACKWARD]);
    layer_again(&z, &x.layer.pass[WEFT__AGAIN]);
    embedding(&z, &x.embedding);
    head(&z, &x.head);
    const double elements = system_of(ask).elements;
    scale_elements(&x.layer, elements);
    scale_elements(&x.embedding, elements);
    scale_elements(&x.head, elements);
    return x;
}

static weft_model_share share_of(const weft_layout_choice *c, int stage)
{
    return (weft_model_share){c->tp - 1, c->tp, stage, c->pp, c->sequence_parallel};
}

double weft__stage_params(const weft_plan_ask *ask, const weft_layout_choice *choice, int stage)
{
    const weft_model_share share = share_of(choice, stage);
    return (double)weft_model_share_params(ask->config, &share);
}

/* All gradients are zeroed and looked at by the guard; those of a slice are squared and added, and updated with two
 * moments: four arrays read, three written. Then the copies for products are made. */
double weft__optimizer_bytes(const weft_plan_ask *ask, const weft_layout_choice *choice, int stage)
{
    const weft_model_share share = share_of(choice, stage);
    const double r = size_of(weft_prec_real(ask->options.prec)), c = size_of(weft_prec_compute(ask->options.prec));
    const double n = weft__stage_params(ask, choice, stage), ranks = (double)choice->dp * choice->cp;
    const double slice = choice->zero > 0 ? ceil(n / ranks) : n;
    const double copies = r == c ? 0 : (r + c) * (double)weft_model_share_operand_params(ask->config, &share);
    return 2 * r * n + 8 * r * slice + copies;
}
