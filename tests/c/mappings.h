/* Nearly as many mappings as a process may have. */
#ifndef MAPPINGS_H
#define MAPPINGS_H
#include "check.h"
#include <sys/mman.h>

enum { PAGE = 4096 };

/* Pages of which every second is a mapping of its own, until no more may be made. */
struct mappings {
    char *pages;
    size_t bytes;
};

static inline struct mappings use_up_mappings(void) {
    char text[32];
    read_text("/proc/sys/vm/max_map_count", text, sizeof text);
    size_t most = strtoull(text, NULL, 10);
    struct mappings used = {mmap(NULL, most * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), most * PAGE};
    CHECK(used.pages != MAP_FAILED, "mmap of %zu pages: errno %d", most, errno);
    for (size_t i = 1; i < most && mprotect(used.pages + i * PAGE, PAGE, PROT_READ) == 0; i += 2) {}
    return used;
}

/* Makes room for so many. */
static inline void leave_room(struct mappings used, size_t room) {
    for (size_t i = 1; i <= room; i++) munmap(used.pages + i * PAGE, PAGE);
}
#endif
