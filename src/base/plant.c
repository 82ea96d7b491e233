/* plant.c — which planted fault acts; empty in a normal build. */
#include "base/plant.h"

#ifdef WEFT_PLANTS
#include <stdlib.h>
#include <string.h>

bool weft_planted(weft_plant which)
{
    static const char *const names[] = {
#define PLANT(name, what) #name,
#include "base/plant_list.inc"
#undef PLANT
    };
    const char *chosen = getenv("WEFT_PLANT");
    return chosen && !strcmp(chosen, names[which]);
}
#else
typedef int weft_no_plants; /* an empty file is not C */
#endif
