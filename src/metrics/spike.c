/* spike.c — jumps of the loss, by its z-score against an exponentially weighted mean and variance.
 *
 * x enters with weight a = 2 / (window + 1), as in a moving average of that many steps; the first steps with 1 / n,
 * which makes plain mean and variance of them. With d = x - mean:
 *   mean += a d,   variance = (1 - a) (variance + a d^2) */
#include "metrics/metrics.h"

#include <math.h>

/* Steps of a nearly constant loss differ by rounding and by the luck of the batch; a thousandth of it is never news. */
static const double least_deviation = 1e-3;

static void take_in(weft_spike *s, double x)
{
    double a = fmax(1 / (double)++s->seen, 2 / ((double)s->window + 1)), d = x - s->mean;
    s->mean += a * d;
    s->variance = (1 - a) * (s->variance + a * d * d);
}

bool weft_spike_step(weft_spike *s, double loss, double *z)
{
    *z = 0;
    if (s->zscore <= 0) return false;
    if (!isfinite(loss)) {
        *z = INFINITY;
        return true;
    }
    double deviation = fmax(sqrt(s->variance), least_deviation * fabs(s->mean));
    if (s->seen >= s->warmup && s->seen > 0) *z = deviation > 0 ? (loss - s->mean) / deviation : 0;
    bool spike = *z > s->zscore;
    take_in(s, spike ? s->mean + s->zscore * deviation : loss);
    return spike;
}
