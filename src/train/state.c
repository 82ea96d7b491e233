/* state.c — state.json of a checkpoint: where a run stands, and what its record of options says.
 *
 * Randomness needs no state of its own: every draw is a function of the seed and of the step and sequence that it is
 * for. Data needs one number, the next sequence: it counts sequences and not steps, so that a run goes on with its data
 * under any number of ranks and any batch. */
#include "train/trainer_impl.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options as JSON -------------------------------------------------------------------------------------------- */

static json_t *option_value(const weft_opt *row, const weft_run_options *o)
{
    const void *at = (const char *)o + row->offset;
    const char *text;
    switch (row->type) {
    case WEFT_OPT_BOOL: return json_boolean(*(const bool *)at);
    case WEFT_OPT_INT:
    case WEFT_OPT_SIZE: return json_integer(*(const int64_t *)at);
    case WEFT_OPT_REAL: return json_real(*(const double *)at);
    case WEFT_OPT_TEXT:
    case WEFT_OPT_ENUM: memcpy(&text, at, sizeof text); return text ? json_string(text) : json_null();
    }
    return NULL;
}

static json_t *options_json(const weft_run_options *o)
{
    int n = 0;
    const weft_opt *table = weft_run_table(&n);
    json_t *all = json_object();
    for (int i = 0; all && i < n; i++)
        if ((table[i].commands & WEFT_CMD_TRAIN) &&
            json_object_set_new(all, table[i].key, option_value(&table[i], o))) {
            json_decref(all);
            return NULL;
        }
    return all;
}

/* ---- writing ---------------------------------------------------------------------------------------- */

weft_status weft_train_state_text(const weft_train_state *s, const weft_run_options *o, weft_text *out)
{
    char hash[WEFT_HASH_TEXT];
    json_t *data = json_pack("{s:s, s:I, s:I, s:s}", "path", o->data_path ? o->data_path : "", "tokens",
                             (json_int_t)s->data_tokens, "documents", (json_int_t)s->data_docs, "xxh3_128",
                             weft_hash_text(s->data_hash, hash));
    json_t *scaler = json_pack("{s:b, s:f, s:I, s:I}", "dynamic", s->scale_dynamic, "scale", s->scaler.scale,
                               "good_steps", (json_int_t)s->scaler.good, "skipped", (json_int_t)s->scaler.skipped);
    json_t *spike = json_pack("{s:I, s:f, s:f}", "seen", (json_int_t)s->spike.seen, "mean", s->spike.mean, "variance",
                              s->spike.variance);
    json_t *root = json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o}", "format",
                             "weft training state", "version", 1, "step", (json_int_t)s->step, "updates",
                             (json_int_t)s->updates, "left_out", (json_int_t)s->skips, "next_sequence",
                             (json_int_t)s->sequence, "tokens", (json_int_t)s->tokens, "loss", s->loss, "data", data,
                             "loss_scaler", scaler, "loss_spikes", spike, "options", options_json(o));
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    if (text) weft_text_add(out, "%s\n", text);
    bool good = text && !out->failed;
    free(text);
    return good ? WEFT_OK
                : weft_fail(WEFT_ERR_MEMORY, "no memory for the state of training, or a text in it is not "
                                             "UTF-8");
}

/* ---- reading ---------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *where;
    weft_status st;
} reader;

static void refuse(reader *r, const char *key, const char *what)
{
    if (r->st >= 0) r->st = weft_fail(WEFT_ERR_REFUSED, "%s: \"%s\" is not %s", r->where, key, what);
}

static int64_t count(reader *r, const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        refuse(r, key, "a whole number from 0 on");
        return 0;
    }
    return json_integer_value(v);
}

static double real(reader *r, const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (!isfinite(x)) refuse(r, key, "a number");
    return x;
}

static void read_data(reader *r, const json_t *o, weft_train_state *s)
{
    const char *hash = json_string_value(json_object_get(o, "xxh3_128"));
    s->data_tokens = count(r, o, "tokens");
    s->data_docs = count(r, o, "documents");
    if (!hash || !weft_hash_parse(hash, &s->data_hash)) refuse(r, "data.xxh3_128", "a checksum");
}

static void read_all(reader *r, const json_t *root, weft_train_state *s)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *scaler = json_object_get(root, "loss_scaler"), *spike = json_object_get(root, "loss_spikes");
    if (!format || strcmp(format, "weft training state")) refuse(r, "format", "that of a training state");
    if (json_integer_value(json_object_get(root, "version")) != 1) refuse(r, "version", "1, which this program reads");
    s->step = count(r, root, "step");
    s->sequence = count(r, root, "next_sequence");
    s->tokens = count(r, root, "tokens");
    s->updates = count(r, root, "updates");
    s->skips = count(r, root, "left_out");
    s->loss = real(r, root, "loss");
    s->scale_dynamic = json_is_true(json_object_get(scaler, "dynamic"));
    s->scaler = (weft_scaler){.scale = real(r, scaler, "scale"),
                              .good = count(r, scaler, "good_steps"),
                              .skipped = count(r, scaler, "skipped")};
    s->spike = (weft_spike){.seen = count(r, spike, "seen"),
                            .mean = real(r, spike, "mean"),
                            .variance = real(r, spike, "variance")};
    if (!(s->scaler.scale > 0)) refuse(r, "loss_scaler.scale", "above 0");
    if (s->spike.variance < 0) refuse(r, "loss_spikes.variance", "a variance");
    read_data(r, json_object_get(root, "data"), s);
    if (!json_is_object(json_object_get(root, "options"))) refuse(r, "options", "an object of options");
}

weft_status weft_train_state_read(weft_train_state *out, struct json_t **options, const char *where, const char *text,
                                  size_t bytes)
{
    json_error_t e;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e);
    if (!root) return weft_fail(WEFT_ERR_REFUSED, "%s:%d:%d: %s", where, e.line, e.column, e.text);
    reader r = {where, WEFT_OK};
    weft_train_state s = {0};
    read_all(&r, root, &s);
    if (r.st >= 0) {
        *out = s;
        if (options) *options = json_incref(json_object_get(root, "options"));
    }
    json_decref(root);
    return r.st;
}

/* ---- what may differ -------------------------------------------------------------------------------- */

/* The order and the content of samples follow from these: with another one, the data would start anew in silence. The
 * model's own are compared as a config, the data's by its checksum. */
static const char *const fixed[] = {"train.seq_length", "run.seed", "data.valid_fraction", "data.separator",
                                    "data.document_mask"};
/* These change nothing that is computed, or only how it is divided. */
static const char *const quiet[] = {"parallel.",          "run.", "save.", "eval.", "model.", "data.path",
                                    "train.compare_steps", "memory.offload"};

static bool begins_with_one_of(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strncmp(key, list[i], strlen(list[i]))) return true;
    return false;
}

static void add_value(weft_text *t, json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    weft_text_add(t, "%s", text ? text : "?");
    free(text);
}

weft_status weft_train_state_compare(const struct json_t *saved, const weft_run_options *o, const char *where,
                                     weft_text *differs)
{
    weft_status st = WEFT_OK;
    const char *key;
    json_t *now = options_json(o), *mine;
    if (!now) return weft_fail(WEFT_ERR_MEMORY, "%s: no memory to compare the options", where);
    json_object_foreach(now, key, mine)
    {
        json_t *then = json_object_get(saved, key);
        if (!then || json_equal(then, mine)) continue;
        weft_text row = {0};
        weft_text_add(&row, "%s is ", key);
        add_value(&row, mine);
        weft_text_add(&row, ", was ");
        add_value(&row, then);
        if (begins_with_one_of(key, fixed, sizeof fixed / sizeof *fixed))
            st = weft_fail(WEFT_ERR_REFUSED,
                           "%s: %s; samples would change: give it as it was, or begin a new run with "
                           "--model",
                           where, row.data ? row.data : key);
        else if (!begins_with_one_of(key, quiet, sizeof quiet / sizeof *quiet) || !strcmp(key, "run.precision"))
            weft_text_add(differs, "%s%s", differs->len ? "; " : "", row.data ? row.data : key);
        weft_text_free(&row);
        if (st < 0) break;
    }
    json_decref(now);
    return st;
}
