/* options_memory.c — what a run keeps between forward and backward passes, and where: what was asked for, as the model
 * takes it. */
#include "train/options_impl.h"

#include <stdlib.h>
#include <string.h>

static const char *const places[] = {"none", "host", "file"};

/* /tmp is memory on many machines. */
static const char *default_folder(void)
{
    const char *chosen = getenv("TMPDIR");
    return chosen && *chosen ? chosen : "/var/tmp";
}

static weft_status refuse_offload(const char *text)
{
    const char *near = weft_suggest(text, places, sizeof places / sizeof *places);
    return weft_fail(WEFT_ERR_REFUSED, "--offload %s is unknown%s%s%s; use none, host, file or file:FOLDER", text,
                     near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static weft_status resolve_offload(weft_run *run, const char *text)
{
    run->offload = WEFT_OFFLOAD_NONE;
    for (int i = 0; text && i < WEFT_OFFLOADS; i++)
        if (!strcmp(text, weft_offload_name((weft_offload)i))) {
            run->offload = (weft_offload)i;
            run->offload_folder = i == WEFT_OFFLOAD_FILE ? default_folder() : NULL;
            return WEFT_OK;
        }
    if (!text) return WEFT_OK;
    if (strncmp(text, "file:", 5)) return refuse_offload(text);
    if (!text[5]) return weft_fail(WEFT_ERR_REFUSED, "--offload file: names no folder after the colon; leave the colon "
                                   "out, or give one");
    run->offload = WEFT_OFFLOAD_FILE;
    run->offload_folder = text + 5;
    return WEFT_OK;
}

weft_status weft_run_resolve_memory(weft_run *run, const weft_run_options *o)
{
    run->recompute = WEFT_RECOMPUTE_NONE;
    if (o->recompute && !weft_recompute_parse(o->recompute, &run->recompute))
        return weft_fail(WEFT_ERR_REFUSED, "--recompute %s is unknown; use none, attention, block or full",
                         o->recompute);
    if (o->keep_attention && run->recompute == WEFT_RECOMPUTE_NONE)
        return weft_fail(WEFT_ERR_REFUSED, "--recompute-keep-attention could not act: without --recompute attention's "
                         "output is kept anyway; add --recompute attention, block or full");
    return resolve_offload(run, o->offload);
}
