/* xent.ref.c — the specification of softmax cross-entropy, for every precision. */
#include "kern/kern_impl.h"

#include <math.h>

#define REF_TEMPLATE "kern/xent/xent.ref.inl"
#include "kern/ref_each.inl"
