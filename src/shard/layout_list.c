/* layout_list.c — the table of layouts: the only place where they are listed. */
#include "shard/shard_impl.h"

#include <stdio.h>
#include <string.h>

static const weft__layout_ops *const table[WEFT_LAYOUT_COUNT] = {
    [WEFT_LAYOUT_CONTIGUOUS] = &weft__layout_contiguous,
    [WEFT_LAYOUT_ZIGZAG] = &weft__layout_zigzag,
};

const weft__layout_ops *weft__layout_get(weft_layout l) { return table[l.kind]; }

const char *weft_layout_name(weft_layout l) { return table[l.kind]->name; }

const char *weft_layout_text(weft_layout l, char *buf, size_t n)
{
    if (l.block) snprintf(buf, n, "%s:%lld", weft_layout_name(l), (long long)l.block);
    else snprintf(buf, n, "%s", weft_layout_name(l));
    return buf;
}

weft_status weft_layout_parse(const char *s, weft_layout *out)
{
    const char *names[WEFT_LAYOUT_COUNT];
    for (int i = 0; i < WEFT_LAYOUT_COUNT; i++) {
        names[i] = table[i]->name;
        if (s && strcmp(s, names[i]) == 0) {
            out->kind = (weft_layout_kind)i;
            return WEFT_OK;
        }
    }
    const char *near = s ? weft_suggest(s, names, WEFT_LAYOUT_COUNT) : NULL;
    return weft_fail(WEFT_ERR_REFUSED, "layout \"%s\" is unknown; use %s", s ? s : "",
                     near ? near : "contiguous or zigzag");
}
