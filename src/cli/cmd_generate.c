/* cmd_generate.c — `weft generate`: continues a prompt on one rank, with cached keys and values. */
#include "cli/cli.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct printer {
    const char *prompt; /* printed before the first token, when a long one has been read; NULL: none */
    /* watched: by a person, on the standard error; open: a line of progress stands there */
    bool text, first, terminal, watched, open;
} printer;

static void fed(void *ud, int64_t done, int64_t n)
{
    printer *p = ud;
    p->open = p->watched && done < n;
    if (p->open) fprintf(stderr, "\rprompt       %lld of %lld tokens\x1b[K", (long long)done, (long long)n);
    else if (p->watched) fprintf(stderr, "\r\x1b[K");
    fflush(stderr);
}

/* A model may write escape sequences; a terminal must not get them. A file or a pipe gets every byte. */
static int shown(const printer *p, int byte)
{
    const bool control = (byte < 32 && byte != '\n' && byte != '\t') || byte == 127;
    return p->terminal && control ? '?' : byte;
}

static void emit(void *ud, int32_t token)
{
    printer *p = ud;
    if (p->first && p->prompt) fputs(p->prompt, stdout);
    if (!p->text) printf(p->first ? "%d" : " %d", token);
    else if (token < 256) putchar(shown(p, token));
    p->first = false;
    fflush(stdout);
}

static weft_status parse_ids(const char *text, weft_arena *arena, int32_t **ids, int64_t *n)
{
    WEFT_TRY(WEFT_NEW(arena, (int64_t)strlen(text) + 1, "prompt", ids));
    *n = 0;
    for (const char *p = text; *p;) {
        while (*p == ',' || isspace((unsigned char)*p)) p++;
        if (!*p) break;
        char *end = NULL;
        long long id = strtoll(p, &end, 10);
        if (end == p || (*end && *end != ',' && !isspace((unsigned char)*end)) || id < 0 || id > INT32_MAX)
            return weft_fail(WEFT_ERR_REFUSED, "--prompt-ids: \"%s\" is no list of token ids; example: 1,72,105", text);
        (*ids)[(*n)++] = (int32_t)id;
        p = end;
    }
    return WEFT_OK;
}

static weft_status read_prompt(weft_cli *cli, const weft_model_config *c, int32_t **ids, int64_t *n)
{
    const weft_run_options *o = &cli->options;
    if (o->prompt && o->prompt_ids)
        return weft_fail(WEFT_ERR_REFUSED, "--prompt and --prompt-ids are both given; give one of them");
    if (o->prompt_ids) return parse_ids(o->prompt_ids, cli->arena, ids, n);
    if (!o->prompt) return weft_fail(WEFT_ERR_REFUSED, "no prompt: give --prompt TEXT or --prompt-ids 1,2,3");
    if (c->V != WEFT_BYTE_VOCAB)
        return weft_fail(WEFT_ERR_REFUSED,
                         "--prompt needs the byte vocabulary of %d, and this model has %lld; use --prompt-ids",
                         WEFT_BYTE_VOCAB, (long long)c->V);
    int64_t length = (int64_t)strlen(o->prompt);
    WEFT_TRY(WEFT_NEW(cli->arena, length + 1, "prompt", ids));
    *n = weft_byte_encode(o->prompt, length, *ids);
    return WEFT_OK;
}

static weft_status wants_text(const weft_run_options *o, const weft_model_config *c, bool *text)
{
    bool bytes = c->V == WEFT_BYTE_VOCAB;
    *text = !strcmp(o->output, "text") || (!strcmp(o->output, "auto") && bytes);
    if (*text && !bytes)
        return weft_fail(WEFT_ERR_REFUSED,
                         "--output text needs the byte vocabulary of %d, and this model has %lld; use --output ids",
                         WEFT_BYTE_VOCAB, (long long)c->V);
    return WEFT_OK;
}

/* Positions that the model was made for; a scaled rotation stretches those that it was trained on. */
static int64_t positions_of(const weft_model_config *c)
{
    const weft_rope_config *r = &c->rope;
    int64_t trained = r->original_max_position ? r->original_max_position : c->max_position;
    double stretched = r->factor > 1 ? r->factor * (double)trained : 0;
    return stretched > (double)c->max_position && stretched < 1e15 ? (int64_t)stretched : c->max_position;
}

/* Beyond its positions a model writes nonsense without a word. A number of tokens that nobody gave gives way. */
static weft_status check_positions(const weft_cli *cli, const weft_model_config *c, int64_t n, int64_t *max_new)
{
    int64_t most = positions_of(c), left = most - n;
    *max_new = cli->options.max_new_tokens;
    if (left >= 1 && !weft_opts_given(&cli->opts, "generate.max_new_tokens")) *max_new = weft_min_i64(*max_new, left);
    if (*max_new <= left) return WEFT_OK;
    if (left < 1)
        return weft_fail(WEFT_ERR_REFUSED, "the prompt has %lld tokens; with those to add the model has %lld positions "
                         "(max_position_embeddings or n_positions of its config.json): give at most %lld", (long long)n,
                         (long long)most, (long long)most - 1);
    return weft_fail(WEFT_ERR_REFUSED, "a prompt of %lld tokens and %lld more; the model has %lld positions "
                     "(max_position_embeddings or n_positions of its config.json): --max-new-tokens %lld fits",
                     (long long)n, (long long)*max_new, (long long)most,
                     (long long)left);
}

static weft_status generate_body(weft_cli *cli, weft_world *world)
{
    const weft_run_options *o = &cli->options;
    weft_engine e;
    weft_model_config config;
    int32_t *ids = NULL;
    int64_t n = 0, max_new = 0;
    printer p = {.first = true, .terminal = isatty(STDOUT_FILENO), .watched = isatty(STDERR_FILENO)};
    WEFT_TRY(weft_run_model_config(&cli->run, &config));
    WEFT_TRY(read_prompt(cli, &config, &ids, &n));
    WEFT_TRY(wants_text(o, &config, &p.text));
    WEFT_TRY(check_positions(cli, &config, n, &max_new));
    if (p.text) p.prompt = o->prompt;
    WEFT_TRY(weft_engine_open(&e, world, &cli->run, &config, &(weft_engine_options){.B = 1, .T = 1, .max_docs = 1}));
    weft_status st = weft_engine_load(&e, o->model_dir);
    weft_sampling s = {.temperature = o->temperature,
                       .top_p = o->top_p,
                       .seed = (uint64_t)o->seed,
                       .max_new = max_new,
                       .eos = config.eos,
                       .fed = fed};
    if (st >= 0) st = weft_generate(e.model, &config, cli->run.prec, ids, n, &s, emit, &p);
    if (p.open) fputc('\n', stderr);
    if (st >= 0) putchar('\n');
    weft_engine_close(&e);
    return st;
}

static weft_status generate_check(weft_cli *cli)
{
    weft_model_config config;
    cli->options.model_dir = cli->positional[0];
    return weft_run_model_config(&cli->run, &config);
}

const weft_command weft_cmd_generate = {"generate",
                                        "generate MODEL_DIR --prompt TEXT | --prompt-ids 1,2,3 [options]",
                                        "continue a prompt (greedy, temperature, top-p; text or token ids)",
                                        WEFT_CMD_GENERATE,
                                        1,
                                        1,
                                        false,
                                        false,
                                        generate_check,
                                        generate_body};
