/* ctx.c — the mute default. */
#include "base/ctx.h"

#include <string.h>

void weft_ctx_init(weft_ctx *ctx)
{
    memset(ctx, 0, sizeof *ctx);
    ctx->world = 1;
    ctx->threads = 1;
    ctx->clock = weft_clock_real;
    ctx->fault = (weft_fault){.rank = -1, .hit = 1};
}
