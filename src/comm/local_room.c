/* local_room.c — how much memory can still be taken before the kernel begins to kill processes. */
#include "comm/local_heap.h"

size_t weft_machine_room(void) { return weft_local_room(""); }

size_t weft_local_room(const char *root)
{
    weft_machine_memory m;
    weft_machine_memory_read(&m, root);
    size_t room = m.available > 0 ? weft_min_size(m.available, m.group_room) : m.group_room;
    return room - room / 16; /* other programs live here too */
}
