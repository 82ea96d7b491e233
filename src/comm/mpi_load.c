/* mpi_load.c — finding out that a launcher started this process, and the plugin for its MPI. */
#include "comm/mpi_impl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the launcher --------------------------------------------------------------------------------------------- */

/* What launchers leave in the environment of a process, the most telling first. */
static const struct launcher { const char *size, *rank, *mpi, *by; } launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "openmpi", "Open MPI's mpirun"},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "mpich", "MVAPICH2's mpirun"},
    {"PMI_SIZE", "PMI_RANK", "mpich", "MPICH's mpirun (PMI)"},
    {"SLURM_STEP_NUM_TASKS", "PMIX_RANK", "openmpi", "srun with PMIx"},
};

static weft_status env_number(const char *name, int *out)
{
    return weft_env_number(name, "MPI's launcher sets it, unset it for a run without a launcher", out);
}

static weft_status choose_mpi(weft_mpi_launch *out)
{
    const char *chosen = getenv("WEFT_MPI");
    if (!chosen || !*chosen) return WEFT_OK;
    if (!strcmp(chosen, "none")) out->size = 0;
    else if (!strcmp(chosen, "openmpi")) out->mpi = "openmpi";
    else if (!strcmp(chosen, "mpich")) out->mpi = "mpich";
    else
        return weft_fail(WEFT_ERR_REFUSED,
                         "WEFT_MPI=%s; possible are openmpi, mpich, none (start without the launcher's MPI)", chosen);
    return WEFT_OK;
}

weft_status weft_mpi_launched(weft_mpi_launch *out)
{
    *out = (weft_mpi_launch){0};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct launcher *l = &launchers[i];
        if (!getenv(l->size) || !getenv(l->rank)) continue;
        out->mpi = l->mpi;
        out->by = l->by;
        WEFT_TRY(env_number(l->size, &out->size));
        WEFT_TRY(env_number(l->rank, &out->rank));
        return choose_mpi(out);
    }
    /* Tasks of srun that know nothing of each other would be that many runs of one rank. */
    int tasks = 1;
    const char *mpi = getenv("WEFT_MPI");
    if (getenv("SLURM_STEP_ID") && getenv("SLURM_STEP_NUM_TASKS")) WEFT_TRY(env_number("SLURM_STEP_NUM_TASKS", &tasks));
    if (tasks > 1 && !(mpi && !strcmp(mpi, "none")))
        return weft_fail(WEFT_ERR_REFUSED,
                         "srun started %d tasks without an MPI that they could find each other by; add --mpi=pmix "
                         "(Open MPI) or --mpi=pmi2 (MPICH), or set WEFT_MPI=none",
                         tasks);
    return WEFT_OK;
}

/* ---- the plugin ------------------------------------------------------------------------------------------------- */

#ifndef WEFT_PLUGIN_SUBDIR
#define WEFT_PLUGIN_SUBDIR "lib/weft" /* below the prefix of an installation */
#endif

enum { FOLDERS_MAX = 16, PATH_ROOM = 1024 };
typedef struct folders { int n; char path[FOLDERS_MAX][PATH_ROOM]; } folders;

static void add_folder(folders *f, const char *path, size_t length, const char *below)
{
    if (f->n == FOLDERS_MAX || length == 0 || length + strlen(below) >= PATH_ROOM) return;
    snprintf(f->path[f->n++], PATH_ROOM, "%.*s%s", (int)length, path, below);
}

/* Beside a file, and where an installation keeps plugins: below a library's folder, or from the prefix of bin/. */
static void add_beside(folders *f, const char *file)
{
    const char *slash = strrchr(file, '/');
    if (!slash) return;
    add_folder(f, file, (size_t)(slash - file), "");
    add_folder(f, file, (size_t)(slash - file), "/weft");
    add_folder(f, file, (size_t)(slash - file), "/../" WEFT_PLUGIN_SUBDIR);
}

static void collect_folders(folders *f)
{
    char exe[PATH_ROOM];
    Dl_info here;
    for (const char *p = getenv("WEFT_PLUGIN_PATH"); p && *p;) {
        size_t n = strcspn(p, ":");
        add_folder(f, p, n, "");
        p += n + (p[n] == ':');
    }
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n > 0) {
        exe[n] = 0;
        add_beside(f, exe);
    }
    if (dladdr(__extension__(const void *)collect_folders, &here) && here.dli_fname) {
        char *real = realpath(here.dli_fname, NULL);
        if (real && (n <= 0 || strcmp(real, exe) != 0)) add_beside(f, real);
        free(real);
    }
}

static const char *package_of(const char *mpi)
{
    return strcmp(mpi, "openmpi") ? "libmpich-dev and mpich" : "libopenmpi-dev and openmpi-bin";
}

bool weft_mpi_find(const char *mpi, weft_text *path)
{
    folders *f = calloc(1, sizeof *f);
    bool found = false;
    if (f) collect_folders(f);
    for (int i = 0; f && i < f->n && !found; i++) {
        path->len = 0;
        weft_text_add(path, "%s/libweft_mpi_%s.so", f->path[i], mpi);
        found = !path->failed && access(path->data, R_OK) == 0;
    }
    path->len = found ? path->len : 0;
    for (int i = 0; f && i < f->n && !found; i++) weft_text_add(path, "%s%s", i ? ", " : "", f->path[i]);
    free(f);
    return found;
}

static weft_status not_found(const char *mpi, const char *looked)
{
    return weft_fail(WEFT_ERR_REFUSED,
                     "the plugin libweft_mpi_%s.so is not there: build Weft where %s are installed, or give its "
                     "folder in WEFT_PLUGIN_PATH (looked in %s)",
                     mpi, package_of(mpi), looked);
}

static weft_status bind_plugin(weft_mpi *m, const char *path, const char *mpi)
{
    /* Global: Open MPI's own components look for its symbols there. Never closed: MPI does not survive that. */
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return weft_fail(WEFT_ERR_REFUSED, "the plugin %s cannot be loaded (%s); install %s", path, dlerror(),
                         package_of(mpi));
    void *symbol = dlsym(library, WEFT_MPI_ENTRY);
    const weft_mpi_abi *(*entry)(void);
    if (symbol) {
        memcpy(&entry, &symbol, sizeof entry);
        m->abi = entry();
    }
    if (!m->abi || m->abi->version != WEFT_MPI_ABI || m->abi->bytes != sizeof *m->abi || strcmp(m->abi->mpi, mpi))
        return weft_fail(WEFT_ERR_REFUSED,
                         "the plugin %s belongs to another version of Weft; install both from one build", path);
    m->abi->library(m->library, sizeof m->library);
    return WEFT_OK;
}

weft_status weft_mpi_load(weft_mpi **out, const char *mpi)
{
    weft_mpi *m = calloc(1, sizeof *m);
    weft_text path = {0};
    weft_status st = m ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory to load the MPI plugin");
    if (st >= 0 && weft_mpi_find(mpi, &path)) st = bind_plugin(m, path.data, mpi);
    else if (st >= 0) st = not_found(mpi, path.data && path.len ? path.data : "no folder");
    weft_text_free(&path);
    if (st >= 0) *out = m;
    else free(m);
    return st;
}

void weft_mpi_unload(weft_mpi *m) { free(m); }
const char *weft_mpi_library(const weft_mpi *m) { return m->library; }

weft_status weft_mpi_start(weft_mpi *m)
{
    char text[200];
    int error = m->abi->start(&m->own);
    if (!error) return WEFT_OK;
    m->abi->error_text(error, text, sizeof text);
    return weft_fail(WEFT_ERR_LIBRARY, "starting %s: %s", m->library, text);
}

void weft_mpi_stop(weft_mpi *m)
{
    if (m->own && m->abi->running()) m->abi->stop();
}

void weft_mpi_abort_job(const weft_mpi *m, int code) { m->abi->abort_job(code); }

/* MPICH's mpirun waits for ever for the others when a process leaves before it has used MPI, whatever its exit code;
 * what MPI_Abort writes to its socket it obeys. Open MPI's and srun look at exit codes. */
void weft_mpi_leave_job(int code)
{
    int fd = -1;
    char line[48];
    if (!getenv("PMI_FD") || env_number("PMI_FD", &fd) < 0) return;
    int n = snprintf(line, sizeof line, "cmd=abort exitcode=%d\n", code);
    if (write(fd, line, (size_t)n) != n) return; /* a launcher that is gone needs no telling */
}
