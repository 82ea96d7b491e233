/* guard.ref.c — the specification of the largest magnitude in rows of numbers, for every precision. */
#include "kern/kern_impl.h"

#include <math.h>

#define REF_TEMPLATE "kern/guard/guard.ref.inl"
#include "kern/ref_each.inl"
