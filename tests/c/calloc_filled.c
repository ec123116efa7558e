/* Blocks of 8 MiB that calloc gives again and again and that are filled, or mostly, are cleared, not given back and faulted in each time.
 * When the program writes little of them, what lies there from before goes back. The argument says with how many threads. */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>

enum { TURNS = 40 };
static const size_t bytes = 8 * MIB;

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}
static unsigned char *zeroed(void) {
    unsigned char *block = opaque(calloc(1, bytes));
    CHECK(block != NULL, "calloc of 8 MiB: errno %d", errno);
    return block;
}
static void *wait_for_ever(void *unused) {
    for (;;) pause();
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: calloc_filled 1|2");
    pthread_t thread;
    if (atoi(argv[1]) == 2) CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0, "no thread");
    size_t start = rss_bytes();
    for (int quarters = 4; quarters >= 3; quarters--) {
        long before = faults();
        for (int turn = 0; turn < TURNS; turn++) {
            unsigned char *block = zeroed();
            CHECK(first_nonzero(block, bytes) == SIZE_MAX, "turn %d: not zero", turn);
            memset(block, 1, bytes / 4 * quarters);
            free(block);
        }
        long pages = bytes / sysconf(_SC_PAGESIZE), taken = faults() - before;
        CHECK(taken < 8 * pages, "%d/4 filled: %ld faults in %d turns of %ld pages", quarters, taken, TURNS, pages);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        unsigned char *block = zeroed();
        block[bytes / 2] = 1;
        if (turn < TURNS - 1) free(block);
    }
    size_t left = rss_bytes() - start;
    CHECK(left < 2 * MIB, "%zu KiB for a page of a block", left / KIB);
    _exit(0);
}
