/* In a process with threads, blocks of fresh memory that the program reads and then writes at once are faulted in once, not as the page of
 * zeros and again as their own. When it uses no more than their beginning, no more than that stays resident. */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>

enum { BLOCKS = 340 };
static const size_t bytes = 80 * KIB;

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
}
static volatile unsigned char *zeroed(void) {
    volatile unsigned char *block = opaque(calloc(1, bytes));
    CHECK(block != NULL, "calloc of 80 KiB: errno %d", errno);
    return block;
}
static void *wait_for_ever(void *unused) {
    for (;;) pause();
    return unused;
}

int main(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0, "no thread");
    size_t page = sysconf(_SC_PAGESIZE);
    long before = faults();
    for (int i = 0; i < BLOCKS; i++) {
        volatile unsigned char *block = zeroed();
        for (size_t at = 0; at < bytes; at += page) CHECK(block[at] == 0, "block %d: not zero at %zu", i, at);
        for (size_t at = 0; at < bytes; at += page) block[at] = 1;
    }
    long pages = BLOCKS * (bytes / page), used = faults() - before;
    CHECK(used < pages + pages / 4, "%ld faults for %ld pages", used, pages);
    size_t start = rss_bytes();
    for (int i = 0; i < BLOCKS; i++) *zeroed() = 1;
    size_t left = rss_bytes() - start;
    CHECK(left < 6 * MIB, "%zu KiB for a page each of %d blocks", left / KIB, BLOCKS);
    _exit(0);
}
