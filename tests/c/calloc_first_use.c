/* In a process with threads, blocks of fresh memory that the program reads and then writes at once are faulted in once, not as the page of
 * zeros and again as their own. When it uses no more than their beginning, no more than that stays resident. */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>

enum { BLOCKS = 340 };

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
}
static volatile unsigned char *zeroed(size_t bytes) {
    volatile unsigned char *block = opaque(calloc(1, bytes));
    CHECK(block != NULL, "calloc of %zu bytes: errno %d", bytes, errno);
    return block;
}
static void *wait_for_ever(void *unused) {
    for (;;) pause();
    return unused;
}

static void check(size_t bytes) {
    size_t page = sysconf(_SC_PAGESIZE);
    long before = faults();
    for (int i = 0; i < BLOCKS; i++) {
        volatile unsigned char *block = zeroed(bytes);
        for (size_t at = 0; at < bytes; at += page) CHECK(block[at] == 0, "block %d: not zero at %zu", i, at);
        for (size_t at = 0; at < bytes; at += page) block[at] = 1;
    }
    long pages = BLOCKS * (bytes / page), used = faults() - before;
    CHECK(used < pages + pages / 4, "%zu bytes: %ld faults for %ld pages", bytes, used, pages);
    size_t start = rss_bytes();
    for (int i = 0; i < BLOCKS; i++) *zeroed(bytes) = 1;
    size_t left = rss_bytes() - start;
    CHECK(left < BLOCKS * page * 2 + 2 * MIB, "%zu bytes: %zu KiB for a page each of %d blocks", bytes, left / KIB, BLOCKS);
}

int main(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0, "no thread");
    check(80 * KIB);
    check(32000);
    _exit(0);
}
