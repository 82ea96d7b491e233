/* part.c — names of the parts; starting and stopping. */
#include "base/part.h"

static const char *const names[WEFT_PARTS] = {"other",      "data",      "embedding", "norm",     "rotation",
                                              "activation", "residual",  "bias",      "products", "attention",
                                              "loss",       "optimizer", "guard", "exchange", "offload"};

const char *weft_part_name(weft_part part) { return part >= 0 && part < WEFT_PARTS ? names[part] : "unknown"; }

void weft_parts_start(weft_parts *p, const weft_clock *clock)
{
    *p = (weft_parts){.clock = clock, .at = WEFT_PART_OTHER, .since = weft_now(clock)};
}

void weft_parts_stop(weft_parts *p)
{
    weft_part_begin(p, WEFT_PART_OTHER);
    p->clock = 0;
}
