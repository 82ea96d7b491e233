/* norm.ref.c — the specification of rmsnorm, headnorm and layernorm, for every precision. */
#include "kern/kern_impl.h"

#include <math.h>

#define REF_TEMPLATE "kern/norm/norm.ref.inl"
#include "kern/ref_each.inl"
