/* record.c — one step's numbers as the line that people read. Parsers in the wild look for "loss", "step"
 * and "tok/s": these words stay as they are. */
#include "metrics/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *weft_skip_name(weft_skip skip)
{
    static const char *const names[WEFT_SKIPS] = {"not", "no labels", "overflow", "guard", "spike"};
    return skip >= 0 && skip < WEFT_SKIPS ? names[skip] : "unknown";
}

double weft_record_throughput(const weft_record *r)
{
    return r->seconds > 0 ? (double)r->tokens / r->seconds : 0;
}

/* "18,204" */
static const char *thousands(double x, char *buf, size_t n)
{
    char digits[32];
    if (!(x >= 0 && x < 1e18)) {
        snprintf(buf, n, "-");
        return buf;
    }
    const size_t len = (size_t)weft_format(digits, sizeof digits, "%.0f", x);
    size_t at = 0;
    for (size_t i = 0; i < len && at + 2 < n; i++) {
        if (i > 0 && (len - i) % 3 == 0) buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

/* One decimal: the line is read at a glance, and a jump of a tenth of a GiB is what matters. */
static const char *memory(double bytes, char *buf, size_t n)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    while (bytes >= 1024 && u < 4) bytes /= 1024, u++;
    weft_format(buf, n, u ? "%.1f %s" : "%.0f %s", bytes, unit[u]);
    return buf;
}

void weft_record_line(const weft_record *r, weft_text *out)
{
    char speed[40], mem[32], eta[32], skip[40] = "";
    if (r->skip) snprintf(skip, sizeof skip, " | skipped: %s", weft_skip_name(r->skip));
    /* A narrow terminal shows the first fields only: those that one waits for come first. */
    weft_text_add(out, "step %5lld/%lld | loss %.4f%s | gnorm %.2f | %s tok/s | eta %s", (long long)r->step,
                  (long long)r->steps, weft_unsigned_nan(r->loss), skip,
                  weft_unsigned_nan(r->grad_norm), thousands(weft_record_throughput(r), speed, sizeof speed),
                  weft_format_duration(r->eta_seconds, eta, sizeof eta));
    weft_text_add(out, " | lr %.2e | comm %.0f%% (%.0f%% exposed) | mem %s", r->lr,
                  weft_unsigned_nan(100 * r->comm_share), weft_unsigned_nan(100 * r->exposed_share),
                  memory(r->memory_bytes, mem, sizeof mem));
    if (r->loss_scale != 0 && r->loss_scale != 1) weft_text_add(out, " | scale %g", r->loss_scale);
    if (r->spike) weft_text_add(out, " | spike, z %.1f", weft_unsigned_nan(r->loss_zscore));
}

double weft_resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    long long size, resident;
    const int got = fscanf(f, "%lld %lld", &size, &resident);
    fclose(f);
    return got == 2 ? (double)resident * (double)sysconf(_SC_PAGESIZE) : 0;
}

/* Not getrusage: its maximum is inherited from the process that started this one. */
double weft_resident_peak_bytes(void)
{
    char line[256];
    long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) return 0;
    while (fgets(line, sizeof line, f) && sscanf(line, "VmHWM: %lld", &kib) != 1) continue;
    fclose(f);
    return (double)kib * 1024;
}
