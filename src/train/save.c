/* save.c — a Hugging Face directory: written under a temporary name, renamed when it is complete. */
#include "train/trainer_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static weft_status write_into(weft_trainer *t, const char *dir)
{
    static const struct {
        const char *name;
        weft_dtype dtype;
        const char *torch;
    } types[] = {{"fp32", WEFT_F32, "float32"}, {"bf16", WEFT_BF16, "bfloat16"}, {"fp16", WEFT_F16, "float16"}};
    int which = 0, n = 0;
    for (int i = 0; i < 3; i++)
        if (!strcmp(t->run->o->save_dtype, types[i].name)) which = i;
    const weft_spec *spec = weft_model_spec(t->engine.model, &n);
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/config.json", dir) >= sizeof path)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", dir);
    WEFT_TRY(weft_model_config_write(&t->config, path, types[which].torch));
    return weft_ckpt_save_weights(dir, spec, n, weft_model_weights(t->engine.model), weft_prec_real(t->run->prec),
                                  types[which].dtype, (int64_t)4 << 30);
}

/* Removes a checkpoint's files and its folder, if nothing else is in it. errno tells why not. */
static int remove_files(const char *dir)
{
    static const char *const files[] = {"config.json", "model.safetensors", "model.safetensors.index.json"};
    char path[4096 + 64];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        if (unlink(path) && errno != ENOENT) return -1;
    }
    return rmdir(dir);
}

weft_status weft_trainer_write(weft_trainer *t, const char *dir)
{
    char tmp[4096];
    struct stat there;
    if ((size_t)snprintf(tmp, sizeof tmp, "%s.tmp-%ld", dir, (long)getpid()) >= sizeof tmp)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", dir);
    if (!stat(dir, &there))
        return weft_fail(WEFT_ERR_REFUSED, "%s exists already; a checkpoint is never overwritten", dir);
    WEFT_TRY(weft_make_dir(tmp));
    weft_status st = write_into(t, tmp);
    if (st >= 0 && rename(tmp, dir))
        st = weft_fail(WEFT_ERR_IO, "cannot rename %s to %s: %s", tmp, dir, strerror(errno));
    if (st < 0) remove_files(tmp); /* the first failure is the one to tell */
    return st;
}

weft_status weft_remove_checkpoint(const char *dir)
{
    struct stat there;
    if (stat(dir, &there) || !remove_files(dir)) return WEFT_OK;
    return weft_fail(WEFT_ERR_IO, "cannot remove %s: %s (it may hold files that are not a checkpoint's)", dir,
                     strerror(errno));
}
