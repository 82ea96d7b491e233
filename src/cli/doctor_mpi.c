/* doctor_mpi.c — the MPI libraries for which this build has a plugin, and their launchers. Each library is loaded in a
 * process of its own: two of them in one would take each other's functions. */
#include "cli/doctor.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, TEXT_BYTES = 512 };

typedef struct library {
    const char *mpi, *name, *launcher; /* launcher: its name where several are installed */
    const char *speaks;                /* in what its mpirun says of itself */
    const char *install;
} library;

static const library openmpi = {"openmpi", "Open MPI", "mpirun.openmpi", "Open MPI",
                                "sudo apt install openmpi-bin libopenmpi-dev && make"};
static const library mpich = {"mpich", "MPICH", "mpirun.mpich", "HYDRA", "sudo apt install mpich libmpich-dev && make"};

static bool in_path(const char *program, char *path, size_t n)
{
    for (const char *p = getenv("PATH"); p && *p;) {
        const size_t length = strcspn(p, ":");
        snprintf(path, n, "%.*s/%s", (int)length, p, program);
        if (access(path, X_OK) == 0) return true;
        p += length + (p[length] == ':');
    }
    return false;
}

/* The beginning of what `program --version` says; false when it cannot be run. */
static bool version_of(const char *program, char *text, size_t n)
{
    int ends[2], status = 0;
    size_t used = 0;
    text[0] = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        execl(program, program, "--version", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t got; pid > 0 && used + 1 < n && (got = read(ends[0], text + used, n - 1 - used)) > 0;)
        used += (size_t)got;
    close(ends[0]); /* who says more than fits is ended by that */
    text[used] = 0;
    const bool ran = pid > 0 && waitpid(pid, &status, 0) == pid && !(WIFEXITED(status) && WEXITSTATUS(status) == 127);
    return ran && used > 0;
}

/* The first "4.1.4" in a text; empty where there is none. */
static void number_in(const char *text, char *out, size_t n)
{
    out[0] = 0;
    for (; *text; text++) {
        const size_t length = strspn(text, "0123456789.");
        if (length >= 3 && *text != '.' && memchr(text, '.', length)) {
            snprintf(out, n, "%.*s", (int)length, text);
            return;
        }
        if (length) text += length - 1;
    }
}

/* Its launcher by its own name, else mpirun when that is this library's; *other: the mpirun in PATH is not. */
static bool find_launcher(const library *l, char *path, size_t n, char *said, size_t room, bool *other)
{
    char plain[PATH_BYTES], text[TEXT_BYTES];
    bool there = in_path("mpirun", plain, sizeof plain) && version_of(plain, text, sizeof text);
    const bool ours = there && strstr(text, l->speaks);
    *other = there && !ours;
    if (ours) {
        snprintf(path, n, "%s", plain);
        snprintf(said, room, "%s", text);
        return true;
    }
    return in_path(l->launcher, path, n) && version_of(path, said, room);
}

static void tell_launcher(weft_doctor *d, const library *l, const char *loaded)
{
    char path[PATH_BYTES], said[TEXT_BYTES], has[32], runs[32], mend[96];
    bool other = false;
    const char *package = strstr(l->install, "openmpi") ? "openmpi-bin" : "mpich";
    snprintf(mend, sizeof mend, "sudo apt install %s", package);
    if (!find_launcher(l, path, sizeof path, said, sizeof said, &other)) {
        weft_doctor_add(d, WEFT_DOCTOR_LOOK, l->name, mend, "its plugin works, but %s",
                        other ? "the mpirun in PATH is of another MPI" : "PATH has no mpirun");
        return;
    }
    number_in(loaded, has, sizeof has);
    number_in(said, runs, sizeof runs);
    if (*has && *runs && strcmp(has, runs))
        weft_doctor_add(d, WEFT_DOCTOR_LOOK, l->name, "PATH=/usr/bin:$PATH mpirun -n 2 weft ...",
                        "the plugin's library is %s, but %s is of version %s: ranks may not find each other", loaded,
                        path, runs);
    else
        weft_doctor_add(d, WEFT_DOCTOR_OK, l->name, NULL, "%s; start with %s -n N weft ...%s", loaded, path,
                        other ? " (the mpirun in PATH is of another MPI)" : "");
}

static void tell_root(weft_doctor *d, const library *l)
{
    static const char allow[] = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    const bool allowed = getenv("OMPI_ALLOW_RUN_AS_ROOT") && getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
    if (l != &openmpi || geteuid() != 0 || allowed) return;
    weft_doctor_add(d, WEFT_DOCTOR_NOTE, l->name, allow, "its mpirun refuses to start as root");
}

static void look_at(weft_doctor *d, const library *l)
{
    weft_text path = {0};
    weft_mpi *mpi = NULL;
    char launcher[PATH_BYTES];
    if (!weft_mpi_find(l->mpi, &path)) {
        const bool half = in_path(l->launcher, launcher, sizeof launcher);
        weft_doctor_add(d, WEFT_DOCTOR_NOTE, l->name, l->install, "this build has no plugin for it%s",
                        half ? ", though its launcher is there" : ": ranks of several machines need one");
    } else if (weft_mpi_load(&mpi, l->mpi) < 0) {
        weft_doctor_add(d, WEFT_DOCTOR_BAD, l->name, l->install, "%s", weft_last_error());
    } else {
        tell_launcher(d, l, weft_mpi_library(mpi));
        tell_root(d, l);
        weft_mpi_unload(mpi);
    }
    weft_text_free(&path);
}

void weft_doctor_openmpi(weft_doctor *d)
{
    weft_mpi_launch launch;
    if (weft_mpi_launched(&launch) < 0)
        weft_doctor_add(d, WEFT_DOCTOR_BAD, "launcher", "unset WEFT_MPI (or srun --mpi=pmix ...)", "%s",
                        weft_last_error());
    look_at(d, &openmpi);
}

void weft_doctor_mpich(weft_doctor *d) { look_at(d, &mpich); }
