/* Where there is no purger, what is held for reuse goes back while the program makes small calls alone, whatever libc says of threads:
 * in the child of a process that has some, where the purger is switched off, and where another thread comes by first. */
#include "check.h"
#include <pthread.h>
#include <time.h>

enum { BLOCKS = 64 };

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* So many large blocks come and go until the heap expects them again. */
static void come_and_go(int count, size_t bytes) {
    for (int round = 0; round < 40; round++) {
        void *blocks[BLOCKS];
        for (int i = 0; i < count; i++) blocks[i] = memset(malloc(bytes + i * 200000), 1, bytes);
        for (int i = 0; i < count; i++) free(blocks[i]);
    }
}

/* Small blocks until no more is resident than `most` bytes, or 10 s. */
static void expect_gone(size_t most, const char *where) {
    double end_s = now_s() + 10;
    while (now_s() < end_s) {
        void *blocks[400];
        for (int i = 0; i < 400; i++) blocks[i] = opaque(malloc(64));
        for (int i = 0; i < 400; i++) free(blocks[i]);
        if (rss_bytes() <= most) return;
    }
    CHECK(0, "%s: %zu KiB are resident, %zu were to be left", where, rss_bytes() / KIB, most / KIB);
}

static void hold_and_expect_gone(const char *where) {
    size_t most = rss_bytes() + 8 * MIB;
    come_and_go(BLOCKS, MIB);
    expect_gone(most, where);
}

static void *sleeps(void *unused) {
    pause();
    return unused;
}

static void *takes_a_large_block(void *most) {
    free(memset(opaque(malloc(MIB)), 1, MIB));
    expect_gone(*(size_t *)most, "what the first thread kept");
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "child, threads, or another");
    free(opaque(malloc(100)));
    pthread_t thread;
    if (strcmp(argv[1], "another") == 0) {
        size_t most = rss_bytes() + 8 * MIB;
        come_and_go(4, 14 * MIB);
        CHECK(pthread_create(&thread, NULL, takes_a_large_block, &most) == 0, "no thread");
        pthread_join(thread, NULL);
        return 0;
    }
    CHECK(pthread_create(&thread, NULL, sleeps, NULL) == 0, "no thread");
    if (strcmp(argv[1], "threads") == 0) {
        hold_and_expect_gone("beside a thread");
        return 0;
    }
    pid_t child = fork();
    if (child == 0) {
        hold_and_expect_gone("in the child");
        _exit(0);
    }
    expect_success(child, "the child of a process with threads");
    return 0;
}
