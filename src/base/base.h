/* base.h — the door of the room `base`: everything that knows nothing of tensors, ranks or models. */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H

#include "base/status.h"   /* failing with one message; WEFT_TRY                        */
#include "base/checked.h"  /* sizes that are checked before they are multiplied         */
#include "base/log.h"      /* the log hook                                              */
#include "base/machine.h"  /* memory and processor time that the system leaves          */
#include "base/mem.h"      /* memory kinds, providers, the account of every byte, arena */
#include "base/pool.h"     /* equal buffers, allocated once                             */
#include "base/clock.h"    /* time, the clock hook, deadlines                           */
#include "base/trace.h"    /* ring of events; emitted here, read by metrics             */
#include "base/fault.h"    /* fault injection for tests                                 */
#include "base/plant.h"    /* faults that a mutation build plants                      */
#include "base/guard.h"    /* numbers that are not finite or too large: found, acted on */
#include "base/philox.h"   /* randomness by address                                     */
#include "base/format.h"   /* numbers as text, whatever the locale                   */
#include "base/text.h"     /* growing strings, suggestions, sizes with suffixes          */
#include "base/hash.h"     /* checksums of files                                        */
#include "base/file.h"     /* mapped for reading, replaced whole for writing              */
#include "base/spill.h"    /* blocks outside of the working memory, moved by a thread  */
#include "base/opt.h"      /* the option table: flags, YAML, help, record               */
#include "base/ctx.h"      /* one rank's bundle of the above                            */

#endif
