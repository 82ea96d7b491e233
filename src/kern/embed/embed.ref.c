/* embed.ref.c — the specification of embedding look-up and bias, for every precision. */
#include "kern/kern_impl.h"

#define REF_TEMPLATE "kern/embed/embed.ref.inl"
#include "kern/ref_each.inl"
