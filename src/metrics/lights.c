/* lights.c — figures of a step as lights: what is fine, what to look at, what is bad. The limits are those that guides
 * to context parallelism give (docs/user/scaling.md says which are whose). */
#include "metrics/metrics.h"

#include <math.h>

typedef struct limits {
    const char *name;
    double fine, bad; /* up to `fine` is fine, beyond `bad` bad; where large is good, the other way round */
} limits;

static const limits of[WEFT_LIGHTS] = {
    [WEFT_LIGHT_COMMUNICATION] = {"communication", 0.15, 0.40},
    [WEFT_LIGHT_UTILISATION] = {"utilisation", 0.85, 0.60},
    [WEFT_LIGHT_MEMORY] = {"memory spread", 0.10, INFINITY},
};

const char *weft_light_name(weft_light_kind kind) { return of[kind].name; }

void weft_light_limits(weft_light_kind kind, double *fine, double *bad)
{
    *fine = of[kind].fine;
    *bad = of[kind].bad;
}

weft_light weft_light_of(weft_light_kind kind, double x)
{
    const limits *l = &of[kind];
    bool large = l->fine > l->bad; /* is good */
    if (large ? x >= l->fine : x <= l->fine) return WEFT_LIGHT_OK;
    return (large ? x >= l->bad : x <= l->bad) ? WEFT_LIGHT_LOOK : WEFT_LIGHT_BAD; /* NaN is neither */
}

const char *weft_light_word(weft_light light)
{
    static const char *const words[] = {"ok", "look", "bad"};
    return words[light];
}
