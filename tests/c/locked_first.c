/* A program that locks what it will have before it has anything of the heap, with a limit: the heap's tables leave it most of that. */
#include "check.h"
#include <sys/mman.h>
#include <sys/resource.h>

/* Arguments: the limit in KiB, and how much of it blocks can have. */
int main(int count, char **arguments) {
    CHECK(count == 3, "usage: LIMIT BLOCKS");
    size_t limit = (size_t)atoi(arguments[1]) * 1024, wanted = (size_t)atoi(arguments[2]) * 1024;
    struct rlimit locked;
    getrlimit(RLIMIT_MEMLOCK, &locked);
    locked.rlim_cur = limit;
    // A privileged process has no limit.
    if (setrlimit(RLIMIT_MEMLOCK, &locked) != 0 || (getuid() == 0 && setuid(65534) != 0) || mlockall(MCL_FUTURE) != 0)
        return say_skipped("no lower limit on locked memory can be tried"), 0;
    enum { BYTES = 10000 };
    size_t had = 0;
    for (char *block; had < wanted && (block = malloc(BYTES)) != NULL; had += BYTES) memset(opaque(block), 1, BYTES);
    CHECK(had >= wanted, "%zu KiB of %zu", had / 1024, limit / 1024);
    return 0;
}
