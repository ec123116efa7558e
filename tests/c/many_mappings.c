/* Beside nearly as many mappings as a process may have, a block that lies in several of them grows and keeps its contents: since Linux
 * 6.17 the kernel moves such a block mapping by mapping, and stops where their number is reached. */
#include "check.h"
#include <sys/mman.h>

enum { LAST = 16 };

int main(void) {
    enum { BYTES = 1 << 20, PAGE = 4096 };
    unsigned char *block = malloc(BYTES);
    CHECK(block != NULL && malloc(70 * KIB) != NULL, "no memory: errno %d", errno);
    fill(block, BYTES, 1);
    unsigned char *middle = (unsigned char *)((uintptr_t)(block + BYTES / 2) & -(uintptr_t)PAGE);
    CHECK(mprotect(middle, PAGE, PROT_READ) == 0, "mprotect: errno %d", errno);
    char text[32];
    read_text("/proc/sys/vm/max_map_count", text, sizeof text);
    size_t most = strtoull(text, NULL, 10);
    char *pages = mmap(NULL, most * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(pages != MAP_FAILED, "mmap of %zu pages: errno %d", most, errno);
    for (size_t i = 1; i < most && mprotect(pages + i * PAGE, PAGE, PROT_READ) == 0; i += 2) {}
    for (size_t room = 0; room < LAST; room++) {
        pid_t child = fork();
        if (child == 0) {
            for (size_t i = 1; i <= room; i++) munmap(pages + i * PAGE, PAGE);
            unsigned char *grown = realloc(block, BYTES + 60 * KIB);
            if (grown != NULL) CHECK_PATTERN(grown, BYTES, BYTES, 1);
            _exit(0);
        }
        expect_success(child, "a block that grows");
    }
    return 0;
}
