/* A program limits its own address space after its start: malloc ends with ENOMEM at about that much, and what was freed serves
 * again. Without that a program that relies on the limit takes all memory of the machine. */
#include "check.h"
#include <sys/resource.h>

enum { COUNT = 1 << 16 };
static void *block[COUNT];

/* Takes blocks until there is no more; returns the bytes obtained. */
static size_t take_all(size_t limit, uint64_t *random) {
    size_t got = 0;
    for (size_t i = 0; i < COUNT; i++) {
        if (block[i] != NULL) continue;
        size_t n = random_size(random, 1 * KIB, 256 * KIB);
        errno = 0;
        block[i] = malloc(n);
        if (block[i] == NULL) {
            CHECK(errno == ENOMEM, "out of memory with errno %d", errno);
            return got;
        }
        got += n;
        CHECK(got < limit, "%zu MiB obtained under a limit of %zu", got / MIB, limit / MIB);
    }
    CHECK(false, "%zu MiB in %d blocks", got / MIB, COUNT);
    return got;
}

int main(void) {
    uint64_t random = 1;
    size_t limit = 256 * MIB;
    block[0] = malloc(100); // a heap that knows of no limit
    CHECK(block[0] != NULL, "malloc of 100 bytes: errno %d", errno);
    struct rlimit wanted = {.rlim_cur = limit, .rlim_max = RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &wanted) == 0, "setrlimit: errno %d", errno);
    size_t got = take_all(limit, &random);
    CHECK(got > limit / 2, "only %zu MiB obtained under a limit of %zu", got / MIB, limit / MIB);
    for (size_t i = 0; i < COUNT; i++) free(block[i]), block[i] = NULL;
    size_t again = take_all(limit, &random);
    CHECK(again > got / 4 * 3, "%zu MiB obtained, after all was freed only %zu", got / MIB, again / MIB);
    return 0;
}
