/* Two thousand short-lived threads do not make memory grow. */
#include "check.h"
#include <pthread.h>

enum { TOGETHER = 4, THREADS = 2000 };
static pthread_barrier_t all_hold_theirs;

static void *brief(void *argument) {
    uint64_t random = (uintptr_t)argument + 1;
    void *block[400];
    for (int i = 0; i < 400; i++) {
        size_t n = random_size(&random, 1, 16000);
        block[i] = malloc(n);
        memset(block[i], 1, n);
    }
    /* So that the same is held at once on any machine, from the first threads on. */
    pthread_barrier_wait(&all_hold_theirs);
    for (int i = 0; i < 400; i++) free(block[i]);
    return NULL;
}

int main(void) {
    pthread_barrier_init(&all_hold_theirs, NULL, TOGETHER);
    size_t start = 0;
    for (uintptr_t i = 0; i < THREADS; i += TOGETHER) {
        pthread_t thread[TOGETHER];
        for (uintptr_t k = 0; k < TOGETHER; k++) CHECK(pthread_create(&thread[k], NULL, brief, (void *)(i + k)) == 0, "no thread");
        for (uintptr_t k = 0; k < TOGETHER; k++) pthread_join(thread[k], NULL);
        if (i == 200) start = rss_bytes();
    }
    size_t end = rss_bytes();
    CHECK(end < start + 4 * MIB, "1,800 threads that freed everything left %zu KiB", (end - start) / KIB);
    return 0;
}
