/* plant.h — faults planted on purpose, to see that the tests find them. In a build with -DWEFT_PLANTS=ON the
 * environment variable WEFT_PLANT names the one that acts; in every other build WEFT_PLANTED is `false` and the fault
 * is not in the program. A name that is not in the list does not compile. */
#ifndef WEFT_BASE_PLANT_H
#define WEFT_BASE_PLANT_H

#include <stdbool.h>

typedef enum weft_plant {
#define PLANT(name, what) WEFT_PLANT_##name,
#include "base/plant_list.inc"
#undef PLANT
    WEFT_PLANT_COUNT
} weft_plant;

#ifdef WEFT_PLANTS
bool weft_planted(weft_plant which);
#define WEFT_PLANTED(name) weft_planted(WEFT_PLANT_##name)
#else
#define WEFT_PLANTED(name) ((void)WEFT_PLANT_##name, false)
#endif

#endif
