/* act.ref.c — the specification of the activations swiglu and gelu, for every precision. */
#include "kern/kern_impl.h"

#include <math.h>

#define REF_TEMPLATE "kern/act/act.ref.inl"
#include "kern/ref_each.inl"
