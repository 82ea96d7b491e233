/* doctor_gpu.c — GPUs, CUDA and NCCL of the machine. This build computes on the CPU: what is here is told, and nothing
 * of it is used. Libraries are asked by name, so none is linked. */
#include "cli/doctor.h"

#include <dlfcn.h>
#include <glob.h>
#include <string.h>
#include <unistd.h>

typedef int (*get_number)(int *out);
typedef int (*init_driver)(unsigned flags);

/* A function without its type: dlsym gives an object's address. */
static bool find(void *library, const char *name, void *function, size_t n)
{
    void *symbol = library ? dlsym(library, name) : NULL;
    if (symbol) memcpy(function, &symbol, n);
    return symbol != NULL;
}

static int count(const char *pattern)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0) return 0;
    const int n = (int)found.gl_pathc;
    globfree(&found);
    return n;
}

/* What the driver says of itself; false when there is no library or it does not start. */
static bool ask_driver(int *cuda, int *devices)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    get_number version, devices_of;
    init_driver init;
    *cuda = *devices = 0;
    return find(driver, "cuDriverGetVersion", &version, sizeof version) && version(cuda) == 0 &&
           find(driver, "cuInit", &init, sizeof init) && init(0) == 0 &&
           find(driver, "cuDeviceGetCount", &devices_of, sizeof devices_of) && devices_of(devices) == 0;
}

static void tell_driver(weft_doctor *d)
{
    const int nodes = count("/dev/nvidia[0-9]*");
    char version[256] = "";
    int cuda, devices;
    weft_machine_line("/proc/driver/nvidia/version", version, sizeof version);
    if (ask_driver(&cuda, &devices))
        weft_doctor_add(d, WEFT_DOCTOR_OK, "GPU", NULL, "%d NVIDIA device%s; the driver knows CUDA %d.%d", devices,
                        devices == 1 ? "" : "s", cuda / 1000, cuda % 1000 / 10);
    else if (nodes > 0 || *version)
        weft_doctor_add(d, WEFT_DOCTOR_NOTE, "GPU", "sudo apt install nvidia-driver libcuda1",
                        "there are %d NVIDIA device files%s%s, but the driver's library does not start", nodes,
                        *version ? ", " : "", version);
    if (access("/dev/kfd", F_OK) == 0)
        weft_doctor_add(d, WEFT_DOCTOR_OK, "GPU", NULL, "an AMD device (/dev/kfd)");
    if (!nodes && !*version && access("/dev/kfd", F_OK) != 0)
        weft_doctor_add(d, WEFT_DOCTOR_OK, "GPU", NULL, "none, and none is needed");
}

static void tell_libraries(weft_doctor *d)
{
    void *runtime = dlopen("libcudart.so", RTLD_NOW | RTLD_LOCAL), *nccl;
    get_number version;
    int number = 0;
    if (!runtime) runtime = dlopen("/usr/local/cuda/lib64/libcudart.so", RTLD_NOW | RTLD_LOCAL);
    if (find(runtime, "cudaRuntimeGetVersion", &version, sizeof version) && version(&number) == 0)
        weft_doctor_add(d, WEFT_DOCTOR_OK, "CUDA", NULL, "toolkit %d.%d", number / 1000, number % 1000 / 10);
    nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (find(nccl, "ncclGetVersion", &version, sizeof version) && version(&number) == 0)
        weft_doctor_add(d, WEFT_DOCTOR_OK, "NCCL", NULL, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
}

void weft_doctor_gpu(weft_doctor *d)
{
    tell_driver(d);
    tell_libraries(d);
    weft_doctor_add(d, WEFT_DOCTOR_NOTE, "CUDA", NULL, "this build of Weft has neither CUDA nor NCCL: it computes on "
                    "the CPU, and plans and simulates for others");
}
