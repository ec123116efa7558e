/* Beside nearly as many mappings as a process may have, a block that lies in several of them grows and keeps its contents: since Linux
 * 6.17 the kernel moves such a block mapping by mapping, and stops where their number is reached. */
#include "mappings.h"

enum { LAST = 16 };

int main(void) {
    enum { BYTES = 1 << 20 };
    unsigned char *block = malloc(BYTES);
    CHECK(block != NULL && malloc(70 * KIB) != NULL, "no memory: errno %d", errno);
    fill(block, BYTES, 1);
    unsigned char *middle = (unsigned char *)((uintptr_t)(block + BYTES / 2) & -(uintptr_t)PAGE);
    CHECK(mprotect(middle, PAGE, PROT_READ) == 0, "mprotect: errno %d", errno);
    struct mappings used = use_up_mappings();
    for (size_t room = 0; room < LAST; room++) {
        pid_t child = fork();
        if (child == 0) {
            leave_room(used, room);
            unsigned char *grown = realloc(block, BYTES + 60 * KIB);
            if (grown != NULL) CHECK_PATTERN(grown, BYTES, BYTES, 1);
            _exit(0);
        }
        expect_success(child, "a block that grows");
    }
    return 0;
}
