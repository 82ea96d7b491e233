/* scaler.c — the loss scale of fp16: halved when gradients overflow, doubled after many steps without. Only powers of
 * two, so that scaling and its undoing round nothing. */
#include "optim/optim.h"

#include <math.h>

weft_scaler weft_scaler_start(double scale, int64_t interval)
{
    /* 2^24 x a gradient of 1 / (a million tokens) is still within fp16; below 2^-24 nothing would be left of any. */
    return (weft_scaler){.scale = scale > 0 ? scale : 0x1p16, .least = 0x1p-24, .most = 0x1p24, .interval = interval};
}

bool weft_scaler_update(weft_scaler *s, bool finite)
{
    if (!finite) {
        s->scale = fmax(s->scale / 2, s->least);
        s->good = 0;
        s->skipped++;
    } else if (++s->good >= s->interval) {
        s->scale = fmin(s->scale * 2, s->most);
        s->good = 0;
    }
    return finite;
}
