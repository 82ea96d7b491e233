/* doctor_kernels.c — the library of products, and every kernel of this machine against the specification. */
#include "cli/doctor.h"

/* Limited as in a run, before its first use. */
void weft_doctor_library(weft_doctor *d)
{
    weft_ctx ctx;
    weft_gemm *gemm;
    const weft_isa isa = d->cli->run.isa;
    weft_ctx_init(&ctx);
    if (isa == WEFT_ISA_REF) {
        weft_doctor_add(d, WEFT_DOCTOR_OK, "oneDNN", NULL, "not used with the instruction set ref");
        return;
    }
    if (weft_gemm_create(&gemm, &ctx, (int)isa) < 0) {
        weft_doctor_add(d, WEFT_DOCTOR_BAD, "oneDNN", "weft doctor --isa ref", "%s", weft_last_error());
        return;
    }
    const weft_gemm_library l = weft_gemm_library_now();
    weft_gemm_destroy(gemm);
    weft_doctor_add(d, WEFT_DOCTOR_OK, "oneDNN", NULL, "%d.%d.%d, up to %s", l.version[0], l.version[1], l.version[2],
                    l.isa);
    if (l.variable)
        weft_doctor_add(d, WEFT_DOCTOR_NOTE, "oneDNN", "unset ONEDNN_MAX_CPU_ISA DNNL_MAX_CPU_ISA",
                        "%s=%s does not act: Weft sets oneDNN's limit itself (--isa, WEFT_ISA)", l.variable, l.value);
}

/* Threads where they can be had, since results must not depend on them. */
static int threads_here(weft_doctor *d)
{
    enum { ENOUGH = 3 };
    int threads = (int)weft_min_i64(ENOUGH, weft_launch_cpus() + 1);
    if (weft_launch_threads(threads, 1) >= 0) return threads;
    weft_doctor_add(d, WEFT_DOCTOR_BAD, "threads", "ulimit -u unlimited; ulimit -v unlimited", "%s", weft_last_error());
    return 1;
}

static void tell_fault(void *doctor, const char *kernel, const char *fault)
{
    weft_doctor_add(doctor, WEFT_DOCTOR_BAD, "kernels", "WEFT_ISA=ref weft train ... (the reference kernels)", "%s: %s",
                    kernel, fault);
}

void weft_doctor_kernels(weft_doctor *d)
{
    weft_ctx ctx;
    weft_ctx_init(&ctx);
    weft_kern_check c = {.threads = threads_here(d), .found = tell_fault, .ud = d};
    const double start = weft_now(&weft_clock_real);
    if (weft_kern_check_run(&c, &ctx, (int)d->cli->run.isa) < 0)
        weft_doctor_add(d, WEFT_DOCTOR_BAD, "kernels", "WEFT_ISA=ref weft doctor", "%s", weft_last_error());
    else if (c.faults == 0)
        weft_doctor_add(d, WEFT_DOCTOR_OK, "kernels", NULL,
                        "%d kernels up to %s agree with the specification, with 1 and %d threads (%.1f s)", c.kernels,
                        weft_isa_name(d->cli->run.isa), c.threads, weft_now(&weft_clock_real) - start);
}
