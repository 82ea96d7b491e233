/* reduce.ref.c — the specification of sums, scaling and conversions of whole arrays, for every precision. */
#include "kern/kern_impl.h"

#define REF_TEMPLATE "kern/reduce/reduce.ref.inl"
#include "kern/ref_each.inl"
