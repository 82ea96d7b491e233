/* fuzz_trajectory.c — trajectory.json beside a case of `weft verify`: refused, or as many losses as norms, under
 * settings that the optimizer takes. */
#include "fuzz/fuzz_folder.h"
#include "fuzz/fuzz_memory.h"

#include <math.h>

#include "train/verify_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static weft_mem mem;
    char path[128];
    weft_arena *arena = fuzz_arena(&mem);
    weft_trajectory t;
    fuzz_folder_take("trajectory.json", data, size);
    fuzz_path(path, "case.safetensors");
    if (fuzz_taken_or_full(weft_trajectory_read(&t, arena, path))) {
        FUZZ_CHECK(t.steps >= 1 && weft_optim_check(&t.options) == WEFT_OK);
        for (int64_t i = 0; i < t.steps; i++) FUZZ_CHECK(isfinite(t.loss[i]) && isfinite(t.norm[i]));
    }
    weft_arena_destroy(arena);
    return 0;
}
