/* save.c — a Hugging Face directory: written under a temporary name, renamed when it is complete. */
#include "train/trainer_impl.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

/* ---- removing what was written ------------------------------------------------------------------------------ */

static bool skip_digits(const char **p, int least)
{
    int n = 0;
    for (; isdigit((unsigned char)**p); (*p)++) n++;
    return n >= least;
}

bool weft__is_temporary_end(const char *p)
{
    if (strncmp(p, ".tmp-", 5)) return false;
    p += 5;
    if (!skip_digits(&p, 1)) return false;
    if (*p == '-' && (p++, !skip_digits(&p, 1))) return false;
    return !*p;
}

bool weft__is_checkpoint_name(const char *name)
{
    const char *p = name + 5;
    return !strncmp(name, "step-", 5) && skip_digits(&p, 8) && (!*p || weft__is_temporary_end(p));
}

static bool is_checkpoint_file(const char *name)
{
    static const char *const files[] = {"config.json", "model.safetensors.index.json", "model.safetensors"};
    const char *p = NULL;
    for (int i = 0; i < 3 && !p; i++)
        if (!strncmp(name, files[i], strlen(files[i]))) p = name + strlen(files[i]);
    if (!p && !strncmp(name, "model-", 6)) {
        p = name + 6;
        if (!skip_digits(&p, 5) || strncmp(p, "-of-", 4)) return false;
        p += 4;
        if (!skip_digits(&p, 5) || strncmp(p, ".safetensors", 12)) return false;
        p += 12;
    }
    return p && (!*p || weft__is_temporary_end(p));
}

/* For every file in `dir`: removed, or only looked at. The first one that is not a checkpoint's, or cannot be removed,
 * ends it: its name is in odd[n], empty for the folder itself, and errno tells why, 0 for a file of somebody else's.
 * Writes no message: a failure may have been told already. */
static bool each_file(const char *dir, bool remove, char *odd, size_t n)
{
    DIR *d = opendir(dir);
    int why = d ? 0 : errno;
    bool fine = d != NULL;
    snprintf(odd, n, "%s", "");
    for (struct dirent *e; fine && (e = readdir(d));) {
        struct stat s;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        fine = is_checkpoint_file(e->d_name) && !fstatat(dirfd(d), e->d_name, &s, AT_SYMLINK_NOFOLLOW) &&
               S_ISREG(s.st_mode);
        if (fine && remove && unlinkat(dirfd(d), e->d_name, 0)) fine = false, why = errno;
        if (!fine) snprintf(odd, n, "/%s", e->d_name);
    }
    if (d) closedir(d);
    errno = why;
    return fine;
}

weft_status weft__check_checkpoint(const char *dir)
{
    char odd[300];
    struct stat s;
    if (lstat(dir, &s) || !S_ISDIR(s.st_mode))
        return weft_fail(WEFT_ERR_REFUSED, "%s is no folder of a run; move it away, or choose another --name", dir);
    if (each_file(dir, false, odd, sizeof odd)) return WEFT_OK;
    if (errno) return weft_fail(WEFT_ERR_IO, "cannot read %s: %s", dir, strerror(errno));
    return weft_fail(WEFT_ERR_REFUSED,
                     "%s%s is no file of a checkpoint, so its folder is not removed; move it away, or choose "
                     "another --name",
                     dir, odd);
}

weft_status weft__remove_checkpoint(const char *dir)
{
    char odd[300];
    if (each_file(dir, true, odd, sizeof odd) && !rmdir(dir)) return WEFT_OK;
    return weft_fail(WEFT_ERR_IO, "cannot remove %s%s: %s", dir, odd, strerror(errno));
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

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
    char odd[300];
    if (st < 0 && each_file(tmp, true, odd, sizeof odd)) rmdir(tmp); /* the first failure is the one to tell */
    return st;
}
