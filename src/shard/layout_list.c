/* layout_list.c — the table of layouts: the only place where they are listed. */
#include "shard/shard_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const weft__layout_ops *const table[WEFT_LAYOUT_COUNT] = {
    [WEFT_LAYOUT_CONTIGUOUS] = &weft__layout_contiguous,
    [WEFT_LAYOUT_ZIGZAG] = &weft__layout_zigzag,
    [WEFT_LAYOUT_STRIPED] = &weft__layout_striped,
    [WEFT_LAYOUT_BALANCED] = &weft__layout_balanced,
};

const weft__layout_ops *weft__layout_get(weft_layout l) { return table[l.kind]; }

const char *weft_layout_name(weft_layout l) { return table[l.kind]->name; }

int64_t weft_layout_pieces(weft_layout l, int U) { return table[l.kind]->pieces * (table[l.kind]->joins ? 1 : U); }

weft_layout weft__layout_group(weft_layout l, int U)
{
    if (table[l.kind]->has_block && !weft_mul_i64(weft_max_i64(l.block, 1), U, &l.block)) l.block = INT64_MAX;
    return l;
}

const char *weft_layout_text(weft_layout l, char *buf, size_t n)
{
    if (table[l.kind]->has_block) snprintf(buf, n, "%s:%lld", weft_layout_name(l), (long long)weft_max_i64(l.block, 1));
    else snprintf(buf, n, "%s", weft_layout_name(l));
    return buf;
}

/* What stands behind the name: NULL or ":k". */
static weft_status parse_block(const char *s, const weft__layout_ops *ops, const char *colon, int64_t *block)
{
    *block = ops->has_block ? 1 : 0;
    if (!colon) return WEFT_OK;
    if (!ops->has_block)
        return weft_fail(WEFT_ERR_REFUSED, "layout \"%s\": %s has no block size; use %s, or striped%s", s, ops->name,
                         ops->name, colon);
    char *end;
    errno = 0;
    long long k = strtoll(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end || errno || k < 1)
        return weft_fail(WEFT_ERR_REFUSED, "layout \"%s\": the block must be a whole number of tokens, at least 1; "
                         "use %s:128, or %s for blocks of 1", s, ops->name, ops->name);
    *block = k;
    return WEFT_OK;
}

weft_status weft_layout_parse(const char *s, weft_layout *out)
{
    const char *names[WEFT_LAYOUT_COUNT];
    const char *colon = s ? strchr(s, ':') : NULL;
    size_t n = !s ? 0 : colon ? (size_t)(colon - s) : strlen(s);
    for (int i = 0; i < WEFT_LAYOUT_COUNT; i++) {
        names[i] = table[i]->name;
        if (s && strlen(names[i]) == n && strncmp(s, names[i], n) == 0) {
            weft_layout l = {(weft_layout_kind)i, 0};
            WEFT_TRY(parse_block(s, table[i], colon, &l.block));
            *out = l;
            return WEFT_OK;
        }
    }
    const char *near = s ? weft_suggest(s, names, WEFT_LAYOUT_COUNT) : NULL;
    return weft_fail(WEFT_ERR_REFUSED, "layout \"%s\" is unknown; use %s", s ? s : "",
                     near ? near : "contiguous, zigzag, striped:k or balanced");
}
