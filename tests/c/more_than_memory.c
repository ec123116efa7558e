/* More than the machine has is refused where the kernel promises no such amount (vm.overcommit_memory=0), and had where it promises all;
 * sparse blocks of what it has stay cheap. */
#include "check.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

/* More than any heap holds. */
#define TOO_MUCH ((size_t)900 * GIB)

static bool is_promised(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    munmap(p, bytes);
    return true;
}

static void expect(void *block, size_t bytes, bool is_promised, const char *call) {
    if (is_promised) CHECK(block != NULL, "%s of %zu GiB refused, errno %d", call, bytes / GIB, errno);
    else CHECK(block == NULL && errno == ENOMEM, "%s of %zu GiB: %p, errno %d", call, bytes / GIB, block, errno);
}

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

int main(void) {
    struct sysinfo info;
    CHECK(sysinfo(&info) == 0, "sysinfo: errno %d", errno);
    size_t memory = (info.totalram + info.totalswap) * info.mem_unit;
    size_t sizes[] = {GIB, memory / 2, memory + memory / 8 + GIB, 2 * memory + GIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        size_t bytes = opaque_size(sizes[i]);
        if (bytes > TOO_MUCH) break;
        bool promised = is_promised(bytes);
        errno = 0;
        void *p = malloc(bytes);
        expect(p, bytes, promised, "malloc");
        free(p);
        errno = 0;
        p = aligned_alloc(MIB, bytes);
        expect(p, bytes, promised, "aligned_alloc");
        free(p);
        for (size_t old = 1000; old < 4 * MIB; old *= 64) {
            p = malloc(old);
            fill(p, old, i);
            errno = 0;
            void *q = realloc(p, bytes);
            expect(q, bytes, promised, "realloc");
            CHECK_PATTERN(q ? q : p, old, old, i);
            free(q ? q : p);
        }
        long before = faults();
        errno = 0;
        char *z = calloc(1, bytes);
        expect(z, bytes, promised, "calloc");
        for (size_t at = 0; z != NULL && at < bytes; at += bytes / 64) CHECK(z[at]++ == 0, "%zu is not zero", at);
        free(z);
        CHECK(faults() - before < 1000, "%ld faults for 64 pages", faults() - before);
    }
    return 0;
}
