/* self.c — one rank alone: the transport of every run without context or data parallelism. It has no
 * peers, so a post never reaches it and every collective is a copy. */
#include "comm/transport.h"

static const weft_transport self = {
    .name = "self",
    .desc = "one rank",
    .mem_kinds = 1u << WEFT_MEM_HOST | 1u << WEFT_MEM_SHARED | 1u << WEFT_MEM_PINNED,
};

weft_status weft_world_self(weft_world **out, weft_ctx *ctx) { return weft_world_open(out, ctx, &self, NULL, 0, 1); }
