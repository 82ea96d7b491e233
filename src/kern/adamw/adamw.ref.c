/* adamw.ref.c — the specification of the AdamW update, for every precision. */
#include "kern/kern_impl.h"

#include <math.h>

#define REF_TEMPLATE "kern/adamw/adamw.ref.inl"
#include "kern/ref_each.inl"
