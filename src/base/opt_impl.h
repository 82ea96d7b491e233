/* opt_impl.h — what the files of the option table share; seen by src/base/opt*.c only. */
#ifndef WEFT_BASE_OPT_IMPL_H
#define WEFT_BASE_OPT_IMPL_H

#include "base/opt.h"

/* Row i of the table belongs to the command at hand. */
static inline bool weft__opt_mine(const weft_opts *o, int i) { return (o->table[i].commands & o->command) != 0; }
static inline void *weft__opt_slot(const weft_opts *o, int i) { return (char *)o->values + o->table[i].offset; }

/* Index of the row with this key, or -1. Rows of other commands are not found. */
int weft__opt_by_key(const weft_opts *o, const char *key);
/* The same for a flag's or alias's name without dashes. */
int weft__opt_by_flag(const weft_opts *o, const char *name, size_t len);

/* Refuses `word`: "unknown key 'x' (where); did you mean 'y'?". `where`: "" or " (file:line:column)". */
weft_status weft__opt_unknown(const weft_opts *o, const char *word, bool is_flag, const char *where);
/* Parses, checks and stores. `name` is how the user wrote it: the key, or "--flag". */
weft_status weft__opt_store(weft_opts *o, int i, const char *name, const char *value, int source, const char *where);

enum { WEFT__OPT_QUOTE = 72 };
/* `s` cut and made printable, for messages: binary junk must not reach a terminal. */
const char *weft__opt_printable(const char *s, char buf[WEFT__OPT_QUOTE]);

/* The value as text, as it would be given; NULL for a text that was not given. buf: for numbers. */
const char *weft__opt_value_text(const weft_opts *o, int i, char *buf, size_t n);

/* Decodes one UTF-8 character at s; its length in bytes, or 0 when it is malformed or the text ends. */
int weft__utf8(const char *s, uint32_t *code);

#endif
