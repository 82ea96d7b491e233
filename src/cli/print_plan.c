/* print_plan.c — the plan of a run beside what one of its steps came to: memory, bytes, time, with their ratio; and
 * what differs, when it does. */
#include "cli/cli.h"

#include <math.h>

static const double memory_limit = 0.03; /* further off is said */

static const char *bytes_text(double bytes, char buf[32]) { return weft_format_bytes(bytes, buf, 32); }

/* Of a checkpoint nothing is held before the first is written. */
static double planned_memory(const weft_plan_check *c)
{
    const weft_memory *p = &c->memory.planned, *held = &c->memory.counted;
    const bool saved = held->bytes[WEFT_MEMORY_CHECKPOINT] > 0;
    return (double)(weft_memory_total(p) - (saved ? 0 : p->bytes[WEFT_MEMORY_CHECKPOINT]));
}

static double held_memory(const weft_plan_check *c) { return (double)weft_memory_total(&c->memory.counted); }

static void add_memory(const weft_plan_check *c, weft_text *t)
{
    char a[32], b[32];
    double planned = planned_memory(c), held = held_memory(c), most = -1;
    int kind = 0;
    weft_text_add(t, "             memory of rank %d: %s planned, %s held (%.3f)\n", c->memory.rank,
                  bytes_text(planned, a), bytes_text(held, b), held / planned);
    if (fabs(held / planned - 1) <= memory_limit) return;
    for (int k = 0; k < WEFT_MEMORY_KINDS; k++) {
        double off = fabs((double)(c->memory.counted.bytes[k] - c->memory.planned.bytes[k]));
        if (k != WEFT_MEMORY_CHECKPOINT && off > most) most = off, kind = k;
    }
    weft_text_add(t, "             memory differs, most of it in %s: %s planned, %s held\n",
                  weft_memory_name((weft_memory_kind)kind), bytes_text((double)c->memory.planned.bytes[kind], a),
                  bytes_text((double)c->memory.counted.bytes[kind], b));
}

static void add_bytes(const weft_plan_check *c, weft_text *t)
{
    char a[32], b[32];
    int64_t planned = weft_bytes_total(&c->planned), sent = weft_bytes_total(&c->sent);
    if (c->memory.ranks == 1) return;
    weft_text_add(t, "             bytes of rank %d: %s planned, %s sent (%.3f)", c->rank,
                  bytes_text((double)planned, a), bytes_text((double)sent, b),
                  planned ? (double)sent / (double)planned : 1);
    const char *before = ": ";
    for (int k = 0; k < WEFT_BYTES_KINDS; k++) {
        if (c->sent.of[k] == 0) continue;
        weft_text_add(t, "%s%s %s", before, weft_bytes_name((weft_bytes_kind)k), bytes_text((double)c->sent.of[k], a));
        before = ", ";
    }
    weft_text_add(t, c->differ ? "\n" : "; exact on every rank\n");
    for (int k = 0; k < WEFT_BYTES_KINDS && c->differ; k++)
        if (c->planned.of[k] != c->sent.of[k])
            weft_text_add(t, "             bytes differ on %d of %d ranks; of rank %d over %s: %lld planned, %lld "
                          "sent\n", c->differ, c->memory.ranks, c->rank, weft_bytes_name((weft_bytes_kind)k),
                          (long long)c->planned.of[k], (long long)c->sent.of[k]);
}

void weft_add_plan_check(const weft_plan_check *c, int64_t step, weft_text *t)
{
    weft_text_add(t, "plan         beside step %lld:\n", (long long)step);
    add_memory(c, t);
    if (!c->taken) weft_text_add(t, "             the step was left out: its bytes and its time say nothing\n");
    else add_bytes(c, t);
    if (c->taken && c->planned_seconds > 0)
        weft_text_add(t, "             time: %.4g s by the profile, %.4g s taken (%.3f)\n", c->planned_seconds,
                      c->seconds, c->seconds / c->planned_seconds);
}

static void add_sides(weft_text *t, const char *key, double planned, double measured, int digits)
{
    char a[40], b[40];
    weft_text_add(t, ",\"%s\":{\"planned\":%s,\"measured\":%s}", key, weft_format_json(a, sizeof a, planned, digits),
                  weft_format_json(b, sizeof b, measured, digits));
}

void weft_add_plan_json(const weft_plan_check *c, weft_text *t)
{
    weft_text_add(t, "{\"exact_bytes\":%s", c->taken && c->differ == 0 ? "true" : "false");
    add_sides(t, "memory", planned_memory(c), held_memory(c), 15);
    for (int k = 0; k < WEFT_BYTES_KINDS && c->taken; k++) {
        char key[32];
        weft_format(key, sizeof key, "bytes_%s", weft_bytes_name((weft_bytes_kind)k));
        add_sides(t, key, (double)c->planned.of[k], (double)c->sent.of[k], 15);
    }
    if (c->taken && c->planned_seconds > 0) add_sides(t, "seconds", c->planned_seconds, c->seconds, 9);
    weft_text_add(t, "}");
}
