/* cmd_checkpoint.c — `weft checkpoint inspect|verify|reshard`: what a checkpoint is, whether it is whole, and its model
 * in other files. */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct verb {
    const char *name;
    int words; /* after it */
    weft_status (*run)(weft_cli *cli, const char *from, const char *to);
} verb;

/* ---- inspect ----------------------------------------------------------------------------------------------------- */

static void print_layout(const weft_ckpt_about *about)
{
    weft_mesh_shape l = about->layout;
    char order[12];
    weft_say("layout       tp %d x cp %d x dp %d x pp %d, rank order %s (any other reads it)\n", l.tp, l.cp, l.dp, l.pp,
             weft_mesh_order_text(l.order, order));
}

static weft_status print_state(const weft_ckpt *c, const weft_ckpt_about *about, const char *dir)
{
    weft_train_state s;
    char where[4096], *text = NULL;
    size_t bytes = 0;
    bool there = false;
    for (int i = 0; i < about->files; i++) there = there || !strcmp(about->file[i].name, "state.json");
    if (!there) {
        weft_say("state        none: a model without a run\n");
        return WEFT_OK;
    }
    snprintf(where, sizeof where, "%s/state.json", dir);
    WEFT_TRY(weft_ckpt_text(c, "state.json", &text, &bytes));
    weft_status st = weft_train_state_read(&s, NULL, where, text, bytes);
    free(text);
    WEFT_TRY(st);
    weft_say("data         next sequence %lld, %lld tokens trained on, of a file of %lld tokens\n",
             (long long)s.sequence, (long long)s.tokens, (long long)s.data_tokens);
    weft_say("loss         %.4f in the last step; %lld steps left out for their numbers\n", s.loss, (long long)s.skips);
    if (s.scale_dynamic) weft_say("loss scale   %g\n", s.scaler.scale);
    return WEFT_OK;
}

/* Columns that a row may have: on a terminal too narrow for it what is behind the name goes on a line of its own, or
 * the fold would cut sizes and checksums. */
static int room(void) { return weft_on_terminal(stdout) ? weft_columns(stdout) : INT_MAX; }

static const char *shape_of(const weft_view *v, char *buf, size_t n)
{
    return weft_shape_text(v->shape, v->nd, buf, n);
}

static weft_status print_tensors(const char *dir, const char *name)
{
    weft_st *st = NULL;
    char path[4096], shape[128], size[32];
    int names = 0, shapes = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    WEFT_TRY(weft_st_open(&st, path));
    for (int i = 0; i < weft_st_count(st); i++) {
        const weft_st_entry *e = weft_st_at(st, i);
        names = (int)weft_max_i64(names, (int64_t)strlen(e->name));
        shapes = (int)weft_max_i64(shapes, (int64_t)strlen(shape_of(&e->view, shape, sizeof shape)));
    }
    const bool narrow = 2 + names + 2 + 5 + 1 + shapes + 1 + 10 > room();
    for (int i = 0; i < weft_st_count(st); i++) {
        const weft_st_entry *e = weft_st_at(st, i);
        double bytes = (double)weft_view_count(&e->view) * (double)weft_dtype_size(e->view.dtype);
        weft_say(narrow ? "  %-*s\n    %-5s %-*s %s\n" : "  %-*s  %-5s %-*s %s\n", narrow ? 0 : names, e->name,
                 weft_dtype_name(e->view.dtype), shapes, shape_of(&e->view, shape, sizeof shape),
                 weft_format_bytes(bytes, size, sizeof size));
    }
    weft_st_close(st);
    return WEFT_OK;
}

static weft_status print_files(const weft_ckpt_about *about, const char *dir)
{
    enum { WIDTH = 38 + 2 + 10 + 2 + 5 + WEFT_HASH_TEXT - 1 };
    char size[32], hash[WEFT_HASH_TEXT];
    for (int i = 0; i < about->files; i++) {
        const weft_ckpt_file *f = &about->file[i];
        size_t n = strlen(f->name);
        weft_say(WIDTH > room() ? "%-*s  %s\n  xxh3 %s\n" : "%-*s  %10s  xxh3 %s\n", WIDTH > room() ? 0 : 38, f->name,
                 weft_format_bytes((double)f->bytes, size, sizeof size), weft_hash_text(f->hash, hash));
        if (n > 12 && !strcmp(f->name + n - 12, ".safetensors")) WEFT_TRY(print_tensors(dir, f->name));
    }
    return WEFT_OK;
}

static weft_status inspect(weft_cli *cli, const char *from, const char *to)
{
    weft_ckpt *c = NULL;
    weft_ckpt_about about;
    double total = 0;
    char size[32];
    (void)cli, (void)to;
    WEFT_TRY(weft_ckpt_open(&c, from));
    weft_ckpt_tell(c, &about);
    for (int i = 0; i < about.files; i++) total += (double)about.file[i].bytes;
    weft_say("checkpoint   %s: step %lld, %d files, %s\n", from, (long long)about.step, about.files,
             weft_format_bytes(total, size, sizeof size));
    print_layout(&about);
    weft_status st = print_state(c, &about, from);
    if (st >= 0) st = print_files(&about, from);
    weft_ckpt_close(c);
    return st;
}

/* ---- verify ----------------------------------------------------------------------------------------- */

/* Damage is a result, not a refusal: exit code 1. */
static weft_status verify(weft_cli *cli, const char *from, const char *to)
{
    weft_ckpt *c = NULL;
    weft_ckpt_about about = {0};
    double total = 0;
    char size[32];
    (void)cli, (void)to;
    weft_status st = weft_ckpt_open(&c, from);
    if (st >= 0) st = weft_ckpt_verify(c, 0, 1);
    if (st >= 0) weft_ckpt_tell(c, &about);
    for (int i = 0; i < about.files; i++) total += (double)about.file[i].bytes;
    if (st >= 0)
        weft_say("%s: step %lld, %d files, %s: all bytes are as they were written\n", from, (long long)about.step,
                 about.files, weft_format_bytes(total, size, sizeof size));
    weft_ckpt_close(c);
    if (st != WEFT_ERR_REFUSED) return st;
    weft_say("%s\n", weft_last_error());
    return WEFT_ERR_COMPARE;
}

/* ---- reshard ---------------------------------------------------------------------------------------- */

static weft_status reshard(weft_cli *cli, const char *from, const char *to)
{
    static const struct {
        const char *name, *torch;
        weft_dtype dtype;
    } types[] = {{"fp32", "float32", WEFT_F32},
                 {"bf16", "bfloat16", WEFT_BF16},
                 {"fp16", "float16", WEFT_F16},
                 {"fp64", "float64", WEFT_F64}};
    const weft_run_options *o = &cli->options;
    weft_model_config config;
    char path[4096];
    size_t k = 0;
    while (k + 1 < sizeof types / sizeof *types && strcmp(types[k].name, o->save_dtype)) k++;
    if ((size_t)snprintf(path, sizeof path, "%s/config.json", from) >= sizeof path)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", from);
    WEFT_TRY(weft_model_config_read(&config, path));
    weft_text text = {0};
    weft_status st = weft_model_config_text(&config, types[k].torch, &text);
    if (st >= 0) st = weft_ckpt_reshard(from, to, types[k].dtype, o->save_shard, text.data);
    weft_text_free(&text);
    if (st >= 0) weft_say("%s: the model of %s as %s\n", to, from, types[k].name);
    return st;
}

/* ---- the command ------------------------------------------------------------------------------------ */

static const verb verbs[] = {{"inspect", 1, inspect}, {"verify", 1, verify}, {"reshard", 2, reshard}};
enum { VERBS = sizeof verbs / sizeof *verbs };

static const verb *find_verb(const weft_cli *cli)
{
    for (int i = 0; i < VERBS; i++)
        if (!strcmp(cli->positional[0], verbs[i].name)) return &verbs[i];
    return NULL;
}

/* Damage is a finding; what was never there is a wrong word. */
static weft_status check_folder(const char *from)
{
    struct stat s;
    if (stat(from, &s)) return weft_fail(WEFT_ERR_REFUSED, "cannot look into %s: %s", from, strerror(errno));
    if (S_ISDIR(s.st_mode)) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s is no folder; one is needed, as runs/NAME/step-NUMBER", from);
}

static weft_status checkpoint_check(weft_cli *cli)
{
    const verb *v = find_verb(cli);
    if (!v)
        return weft_fail(WEFT_ERR_REFUSED, "weft checkpoint %s: use inspect, verify or reshard", cli->positional[0]);
    if (cli->n_positional != v->words + 1)
        return weft_fail(WEFT_ERR_REFUSED, "weft checkpoint %s takes %s", v->name,
                         v->words == 1 ? "one folder, as runs/NAME/step-NUMBER" : "two folders: from where, to where");
    WEFT_TRY(check_folder(cli->positional[1]));
    if (v->words == 2) return WEFT_OK;
    for (int i = 0; i < cli->opts.n; i++)
        if (weft_opts_given(&cli->opts, cli->opts.table[i].key))
            return weft_fail(WEFT_ERR_REFUSED, "--%s does nothing for weft checkpoint %s",
                             cli->opts.table[i].flag ? cli->opts.table[i].flag : cli->opts.table[i].key, v->name);
    return WEFT_OK;
}

static weft_status checkpoint_body(weft_cli *cli, weft_world *world)
{
    (void)world;
    return find_verb(cli)->run(cli, cli->positional[1], cli->positional[2]);
}

const weft_command weft_cmd_checkpoint = {"checkpoint",
                                          "checkpoint inspect|verify FOLDER; checkpoint reshard FROM TO [options]",
                                          "look into checkpoints, check them, write their models in other files",
                                          WEFT_CMD_CHECKPOINT,
                                          2,
                                          3,
                                          false,
                                          false,
                                          checkpoint_check,
                                          checkpoint_body};
