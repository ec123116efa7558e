/* A program limits its own address space, which lies below what the heap has reserved: it can map memory and start threads as before,
 * malloc goes on to about the limit, and beyond it once the limit is lifted. The argument names the function that sets it. */
#include "check.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

static const char *function;

static void set_limit(size_t bytes) {
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    struct rlimit64 limit64 = {.rlim_cur = limit.rlim_cur, .rlim_max = limit.rlim_max};
    int answer = strcmp(function, "setrlimit") == 0     ? setrlimit(RLIMIT_AS, &limit)
                 : strcmp(function, "setrlimit64") == 0 ? setrlimit64(RLIMIT_AS, &limit64)
                 : strcmp(function, "prlimit") == 0     ? prlimit(getpid(), RLIMIT_AS, &limit, &limit)
                                                        : prlimit64(0, RLIMIT_AS, &limit64, NULL);
    CHECK(answer == 0, "%s to %zu MiB: errno %d", function, bytes / MIB, errno);
}
static void *allocate(void *unused) {
    free(opaque(malloc(100)));
    return unused;
}
/* Takes blocks of a MiB, linked, until there are no more or `most`; returns how many. */
static size_t take(void ***last, size_t most) {
    size_t count = 0;
    for (void **block; count < most && (block = malloc(MIB)) != NULL; count++) {
        memset(block, 1, MIB);
        *block = *last, *last = block;
    }
    return count;
}
static void free_all(void ***last) {
    for (void **block; (block = *last) != NULL; free(block)) *last = *block;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: limit_room setrlimit|setrlimit64|prlimit|prlimit64");
    function = argv[1];
    errno = 0;
    CHECK(setrlimit(12345, &(struct rlimit){0}) == -1 && errno == EINVAL, "no such limit: errno %d", errno);
    void **last = NULL;
    CHECK(take(&last, 100) == 100, "100 MiB without a limit");
    set_limit(1024 * MIB);

    void *mapped = mmap(NULL, 200 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED, "200 MiB cannot be mapped under a limit of 1,024: errno %d", errno);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, allocate, NULL) == 0, "no thread under a limit of 1,024 MiB");
    pthread_join(thread, NULL);
    size_t got = take(&last, 2000);
    CHECK(got > 500 && got < 824, "%zu MiB beside 300 under a limit of 1,024", got);
    free_all(&last);
    size_t again = take(&last, 2000);
    CHECK(again > 600 && again < 824, "all was freed, then %zu MiB beside 200", again);

    set_limit(RLIM_INFINITY);
    size_t more = take(&last, 2000);
    CHECK(more == 2000, "the limit is lifted, but there are only %zu MiB more of 2,000", more);
    free_all(&last);
    munmap(mapped, 200 * MIB);
    return 0;
}
