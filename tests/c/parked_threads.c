/* Many threads that each used every size a little and then sleep: what they keep is bounded by CPUs, not by threads. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 400 };
static pthread_barrier_t barrier;

static void *use_all_sizes(void *argument) {
    (void)argument;
    for (size_t size = 512; size <= 32 * KIB; size += 512) {
        unsigned char *block[3];
        for (int i = 0; i < 3; i++) memset(block[i] = malloc(size), 1, size);
        for (int i = 0; i < 3; i++) free(block[i]);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(void) {
    pthread_t thread[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 * KIB);
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    size_t start = rss_bytes();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], &attributes, use_all_sizes, NULL) == 0, "no thread %d", i);
    pthread_barrier_wait(&barrier);
    size_t kept = rss_bytes() - start;
    /* 8 KiB of each thread are its stack. */
    CHECK(kept <= 48 * MIB, "%d parked threads keep %zu KiB", THREADS, kept / KIB);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    return 0;
}
