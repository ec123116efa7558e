/* Where memory is exhausted, what another thread frees then is had at once, and a block that is to shrink is never refused. */
#include "check.h"
#include <pthread.h>

enum { BLOCKS = 4000 };
static int stage, ready;

static int now(void) { return __atomic_load_n(&stage, __ATOMIC_ACQUIRE); }
static void set(int value) { __atomic_store_n(&stage, value, __ATOMIC_RELEASE); }

/* So that the threads that matter are far apart in the order of threads. */
static void *wait_for_the_end(void *unused) {
    CHECK(opaque(malloc(32)) != NULL, "no memory");
    __atomic_add_fetch(&ready, 1, __ATOMIC_RELEASE);
    while (now() < 4) usleep(1000);
    return unused;
}
static void *free_some(void *unused) {
    static void *block[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) block[i] = malloc(64);
    set(1);
    while (now() < 2) usleep(1000);
    for (size_t i = 0; i < 160; i += 2) free(block[i]);
    set(3);
    while (now() < 4) usleep(1000);
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: exhaust_rest OTHERS");
    pthread_t thread;
    for (int i = 0; i < atoi(argv[1]); i++) {
        CHECK(pthread_create(&thread, NULL, wait_for_the_end, NULL) == 0, "no thread");
        while (__atomic_load_n(&ready, __ATOMIC_ACQUIRE) <= i) usleep(100);
    }
    CHECK(pthread_create(&thread, NULL, free_some, NULL) == 0, "no thread");
    while (now() < 1) usleep(1000);
    void *longer = malloc(5000), *longest = malloc(30000);
    for (size_t bytes = 16 * MIB; bytes >= 40000; bytes /= 2)
        while (opaque(malloc(bytes)) != NULL) {}
    for (size_t bytes = 1500; bytes >= 64; bytes /= 2)
        while (opaque(malloc(bytes)) != NULL) {}
    CHECK(realloc(longer, 1500) != NULL, "a block of 5000 bytes cannot shrink to 1500");
    CHECK(realloc(longest, 100) != NULL, "a block of 30000 bytes cannot shrink to 100");
    while (opaque(malloc(64)) != NULL) {}
    set(2);
    while (now() < 3) usleep(1000);
    size_t had = 0;
    while (opaque(malloc(64)) != NULL) had++;
    CHECK(had >= 40 || !preloaded(), "of 80 blocks that another thread freed %zu were had", had);
    set(4);
    return 0;
}
