/* products.c — the matrix products of a training step as a list, for who measures them: the calls that linear.c and
 * loss.c make of a whole model on one rank, without its memory. A test holds the list against what a step calls. */
#include "model/model_impl.h"

#include <stdio.h>

/* y = x W + b: forward, its input's gradient, its weight's. `into` is the type of y, `add` whether y is added to. */
static void add_linear(weft_model_product *out, const char *name, const weft__linear *lin, weft_prec prec,
                       int64_t rows, weft_dtype into, bool add)
{
    static const char *const passes[] = {"forward", "data", "weights"};
    const weft_dtype C = weft_prec_compute(prec), R = weft_prec_real(prec);
    out[0].args = (weft_gemm_args){.ab = C, .c = into, .trans_b = !lin->in_out, .M = rows, .N = lin->out, .K = lin->in,
                                   .beta = add};
    out[1].args = (weft_gemm_args){.ab = C, .c = C, .trans_b = lin->in_out, .M = rows, .N = lin->in, .K = lin->out};
    out[2].args = (weft_gemm_args){.ab = C, .c = R, .trans_a = true, .M = lin->in_out ? lin->in : lin->out,
                                   .N = lin->in_out ? lin->out : lin->in, .K = rows, .beta = 1};
    for (int i = 0; i < 3; i++) {
        weft_gemm_args *a = &out[i].args;
        a->lda = a->trans_a ? a->M : a->K;
        a->ldb = a->trans_b ? a->K : a->N;
        a->ldc = a->N;
        snprintf(out[i].name, sizeof out[i].name, "%s %s", name, passes[i]);
    }
}

weft_status weft_model_products(const weft_model_config *config, weft_prec prec, int64_t rows,
                                weft_model_product out[WEFT_MODEL_PRODUCTS])
{
    const weft_dtype C = weft_prec_compute(prec), R = weft_prec_real(prec);
    weft_model_config one = *config; /* all layers are alike */
    weft__params par;
    weft__layer y;
    one.L = 1;
    WEFT_TRY(weft__params_walk(&one, &weft_model_all, NULL, NULL, &y, &par));
    const int64_t chunk = weft__loss_chunk(par.head.out, weft_dtype_size(R), rows);
    add_linear(out, "qkv", &y.qkv, prec, rows, C, false);
    add_linear(out + 3, "o", &y.o, prec, rows, R, true);
    add_linear(out + 6, "up", &y.up, prec, rows, C, false);
    add_linear(out + 9, "down", &y.down, prec, rows, R, true);
    add_linear(out + 12, "head", &par.head, prec, chunk, R, false);
    for (int i = 0; i < WEFT_MODEL_PRODUCTS; i++)
        out[i].calls = i < 12 ? config->L : rows > 0 ? weft_ceil_div(rows, chunk) : 0;
    return WEFT_OK;
}
