/* A program, or a library preloaded beside ours as libfaketime is, may replace the clock by one that allocates. */
#include "check.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    static __thread bool is_inside;
    if (!is_inside) {
        is_inside = true;
        for (size_t bytes = 16; bytes < 8 * MIB; bytes *= 4) free(opaque(malloc(bytes)));
        is_inside = false;
    }
    return (int)syscall(SYS_clock_gettime, clock, time);
}

static void *work(void *argument) {
    uint64_t random = (uintptr_t)argument + 1;
    static __thread void *block[100];
    for (size_t i = 0; i < 20000; i++) {
        void **place = &block[next_random(&random) % COUNT_OF(block)];
        free(*place);
        *place = malloc(random_size(&random, 1, 200 * KIB));
    }
    for (size_t i = 0; i < COUNT_OF(block); i++) free(block[i]);
    return NULL;
}

int main(void) {
    alarm(30);
    pthread_t thread[3];
    work(NULL);
    for (size_t i = 0; i < COUNT_OF(thread); i++) CHECK(pthread_create(&thread[i], NULL, work, (void *)i) == 0, "no thread");
    for (size_t i = 0; i < COUNT_OF(thread); i++) pthread_join(thread[i], NULL);
    return 0;
}
