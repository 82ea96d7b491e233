/* doctor_variables.c — environment variables that change how a run behaves, and what they do. */
#include "cli/doctor.h"

#include <stdlib.h>
#include <string.h>

extern char **environ;

typedef struct variable {
    const char *name;  /* ends with '*': every name that begins so */
    const char *value; /* only when it is this; NULL: whenever it is set */
    weft_doctor_verdict verdict;
    const char *what;
} variable;

/* The first row that fits a variable counts. */
static const variable variables[] = {
    {"OMP_PROC_BIND", "false", WEFT_DOCTOR_NOTE, "threads are not bound to processors, as without it"},
    {"OMP_PLACES", NULL, WEFT_DOCTOR_NOTE, "threads are bound to these places; Weft gives each rank processors itself"},
    {"GOMP_CPU_AFFINITY", NULL, WEFT_DOCTOR_LOOK, "the threads of every rank are bound to the same processors"},
    {"OMP_WAIT_POLICY", "active", WEFT_DOCTOR_LOOK, "idle threads spin and take the processors of other ranks"},
    {"OMP_WAIT_POLICY", "ACTIVE", WEFT_DOCTOR_LOOK, "idle threads spin and take the processors of other ranks"},
    {"GOMP_SPINCOUNT", NULL, WEFT_DOCTOR_NOTE, "how long idle threads spin; Weft would set 2000 for its ranks"},
    {"OMP_DYNAMIC", "true", WEFT_DOCTOR_NOTE, "does not act: Weft turns it off"},
    {"OMP_STACKSIZE", NULL, WEFT_DOCTOR_NOTE, "the stack of each thread"},
    {"OMP_THREAD_LIMIT", NULL, WEFT_DOCTOR_LOOK, "OpenMP starts no more threads than this, in every rank"},
    {"KMP_AFFINITY", NULL, WEFT_DOCTOR_NOTE, "does not act: it is of Intel's OpenMP library"},
    {"ONEDNN_VERBOSE", NULL, WEFT_DOCTOR_LOOK, "oneDNN prints a line for every product"},
    {"DNNL_VERBOSE", NULL, WEFT_DOCTOR_LOOK, "oneDNN prints a line for every product"},
    {"LD_PRELOAD", NULL, WEFT_DOCTOR_NOTE, "libraries that are put before Weft's own"},
    {"MALLOC_ARENA_MAX", NULL, WEFT_DOCTOR_NOTE, "fewer heaps of the C library"},
    {"WEFT_FAULT", NULL, WEFT_DOCTOR_LOOK, "a rank of every run is made to fail; for tests"},
    {"WEFT_MPI", NULL, WEFT_DOCTOR_NOTE, "which MPI's plugin is loaded under a launcher"},
    {"WEFT_PLUGIN_PATH", NULL, WEFT_DOCTOR_NOTE, "where plugins are looked for first"},

    {"OMPI_MCA_btl", NULL, WEFT_DOCTOR_NOTE, "Open MPI uses these transports only; without vader ranks of one machine "
     "are slow, without tcp those of several may not meet"},
    {"OMPI_MCA_pml", NULL, WEFT_DOCTOR_NOTE, "the layer that Open MPI sends through (ucx: InfiniBand; ob1: its own)"},
    {"OMPI_MCA_mtl", NULL, WEFT_DOCTOR_NOTE, "the matching layer of Open MPI"},
    {"OMPI_MCA_btl_tcp_if_include", NULL, WEFT_DOCTOR_NOTE, "network interfaces that Open MPI's tcp uses"},
    {"OMPI_MCA_btl_vader_single_copy_mechanism", "none", WEFT_DOCTOR_LOOK,
     "Open MPI copies messages inside a machine twice (needed in containers without ptrace)"},
    {"OMPI_MCA_hwloc_base_binding_policy", NULL, WEFT_DOCTOR_NOTE, "what Open MPI binds ranks to; to one core each, "
     "threads share it"},
    {"OMPI_MCA_rmaps_base_oversubscribe", NULL, WEFT_DOCTOR_NOTE, "Open MPI starts more ranks than slots"},
    {"OMPI_MCA_mpi_yield_when_idle", "1", WEFT_DOCTOR_NOTE, "Open MPI's waits give the processor away"},
    {"OMPI_MCA_*", NULL, WEFT_DOCTOR_NOTE, "a parameter of Open MPI"},
    {"MPICH_ASYNC_PROGRESS", "1", WEFT_DOCTOR_LOOK, "MPICH starts a thread that spins beside every rank; Weft has "
     "--mpi-progress"},
    {"MPICH_MAX_THREAD_SAFETY", NULL, WEFT_DOCTOR_NOTE, "threads that MPICH allows; Weft asks for multiple"},
    {"MPICH_*", NULL, WEFT_DOCTOR_NOTE, "a parameter of MPICH"},
    {"MPIR_CVAR_ASYNC_PROGRESS", "1", WEFT_DOCTOR_LOOK, "MPICH starts a thread that spins beside every rank; Weft has "
     "--mpi-progress"},
    {"MPIR_CVAR_*", NULL, WEFT_DOCTOR_NOTE, "a parameter of MPICH"},
    {"FI_PROVIDER", NULL, WEFT_DOCTOR_NOTE, "the transport that MPICH's libfabric uses (tcp: works everywhere)"},
    {"UCX_TLS", NULL, WEFT_DOCTOR_NOTE, "UCX uses these transports only; for one machine self and sm must be among "
     "them"},
    {"UCX_NET_DEVICES", NULL, WEFT_DOCTOR_NOTE, "adapters that UCX uses"},
    {"UCX_LOG_LEVEL", NULL, WEFT_DOCTOR_NOTE, "how much UCX prints"},
    {"UCX_*", NULL, WEFT_DOCTOR_NOTE, "a parameter of UCX"},
    {"NCCL_DEBUG", NULL, WEFT_DOCTOR_NOTE, "how much NCCL prints; does not act, this build has no NCCL"},
    {"NCCL_P2P_DISABLE", "1", WEFT_DOCTOR_NOTE, "GPUs of one machine do not reach each other directly; does not act, "
     "this build has no NCCL"},
    {"NCCL_IB_DISABLE", "1", WEFT_DOCTOR_NOTE, "NCCL leaves InfiniBand alone; does not act, this build has no NCCL"},
    {"NCCL_*", NULL, WEFT_DOCTOR_NOTE, "a parameter of NCCL; does not act, this build has no NCCL"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", NULL, WEFT_DOCTOR_NOTE, "does not act: this build has no CUDA"},
    {"CUDA_VISIBLE_DEVICES", NULL, WEFT_DOCTOR_NOTE, "does not act: this build has no CUDA"},
};
enum { VARIABLES = sizeof variables / sizeof *variables };

static bool is_family(const variable *v) { return v->name[strlen(v->name) - 1] == '*'; }

static bool fits(const variable *v, const char *name, size_t length, const char *value)
{
    const size_t n = strlen(v->name);
    const bool named = (is_family(v) || n == length) && !strncmp(name, v->name, is_family(v) ? n - 1 : n);
    return named && (!v->value || !strcmp(value, v->value));
}

static void tell(weft_doctor *d, weft_doctor_verdict verdict, const char *name, const char *value, const char *what)
{
    char mend[128];
    snprintf(mend, sizeof mend, "unset %s", name);
    weft_doctor_add(d, verdict, "variables", mend, "%s=%.120s: %s", name, value, what);
}

static int tell_table(weft_doctor *d)
{
    int told = 0;
    for (char **e = environ; *e; e++) {
        const size_t length = strcspn(*e, "=");
        if (length == 0 || length >= 100 || !(*e)[length]) continue;
        const char *value = *e + length + 1;
        int i = 0;
        while (i < VARIABLES && !fits(&variables[i], *e, length, value)) i++;
        if (i == VARIABLES || (d->launched && is_family(&variables[i]))) continue; /* launchers set many of them */
        char name[100];
        snprintf(name, sizeof name, "%.*s", (int)length, *e);
        tell(d, variables[i].verdict, name, value, variables[i].what);
        told++;
    }
    return told;
}

bool weft_doctor_binds(void)
{
    const char *bind = getenv("OMP_PROC_BIND");
    return bind && strcmp(bind, "false") && strcmp(bind, "FALSE");
}

/* The two that the ranks and threads asked for decide about. */
static int tell_openmp(weft_doctor *d)
{
    const char *threads = getenv("OMP_NUM_THREADS"), *bind = getenv("OMP_PROC_BIND");
    const weft_local_share *s = &d->share;
    int64_t n = 0;
    int told = 0;
    if (threads && (weft_parse_i64(threads, &n) != WEFT_OK || n < 1)) {
        tell(d, WEFT_DOCTOR_LOOK, "OMP_NUM_THREADS", threads, "is no number of threads; Weft takes its own");
        told++;
    } else if (threads && d->cli->options.threads == 0) {
        const bool fits_here = n * s->ranks <= s->cores;
        tell(d, fits_here ? WEFT_DOCTOR_NOTE : WEFT_DOCTOR_LOOK, "OMP_NUM_THREADS", threads,
             fits_here ? "so many threads for each rank" : "so many threads for each rank are more than processors");
        told++;
    }
    if (!weft_doctor_binds()) return told;
    const bool harmless = s->pinned || s->ranks == 1;
    tell(d, harmless ? WEFT_DOCTOR_NOTE : WEFT_DOCTOR_LOOK, "OMP_PROC_BIND", bind,
         harmless ? "threads are bound inside their rank's processors"
                  : "ranks share all processors here, and the threads of each are bound to the first");
    return told + 1;
}

void weft_doctor_variables(weft_doctor *d)
{
    const int told = tell_openmp(d) + tell_table(d);
    if (!told) weft_doctor_add(d, WEFT_DOCTOR_OK, "variables", NULL, "none is set that changes how a run behaves");
}
