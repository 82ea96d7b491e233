/* rope.ref.c — the specification of the rotary position embedding, for every precision. */
#include "kern/kern_impl.h"

#define REF_TEMPLATE "kern/rope/rope.ref.inl"
#include "kern/ref_each.inl"
