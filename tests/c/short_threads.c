/* Two thousand short-lived threads do not make memory grow. */
#include "check.h"
#include <pthread.h>

static void *brief(void *argument) {
    uint64_t random = (uintptr_t)argument + 1;
    void *block[400];
    for (int i = 0; i < 400; i++) {
        size_t n = random_size(&random, 1, 16000);
        block[i] = malloc(n);
        memset(block[i], 1, n);
    }
    for (int i = 0; i < 400; i++) free(block[i]);
    return NULL;
}

int main(void) {
    size_t start = 0;
    for (uintptr_t i = 0; i < 2000; i += 4) {
        pthread_t thread[4];
        for (uintptr_t k = 0; k < 4; k++) CHECK(pthread_create(&thread[k], NULL, brief, (void *)(i + k)) == 0, "no thread");
        for (uintptr_t k = 0; k < 4; k++) pthread_join(thread[k], NULL);
        if (i == 200) start = rss_bytes();
    }
    size_t end = rss_bytes();
    CHECK(end < start + 4 * MIB, "1,800 threads that freed everything left %zu KiB", (end - start) / KIB);
    return 0;
}
