/* A process may exit while its threads allocate. */
#include "check.h"
#include <pthread.h>
#include <time.h>

static void *busy(void *argument) {
    uint64_t random = (uintptr_t)argument + 1;
    void *held[50] = {0};
    for (;;) {
        size_t i = next_random(&random) % 50;
        free(held[i]);
        held[i] = malloc(random_size(&random, 16, 100000));
        if (held[i]) *(char *)held[i] = 1;
    }
    return NULL;
}
static void handler(void) {
    for (int i = 0; i < 1000; i++) free(malloc(i * 50));
}

int main(void) {
    for (int run = 0; run < 40; run++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            pthread_t thread;
            for (uintptr_t i = 0; i < 4; i++)
                CHECK(pthread_create(&thread, NULL, busy, (void *)i) == 0, "no thread");
            struct timespec moment = {0, run * 200000L};
            nanosleep(&moment, NULL);
            atexit(handler);
            if (run % 4 == 3) _exit(0);
            if (run % 4 == 2) at_quick_exit(handler), quick_exit(0);
            exit(0);
        }
        expect_success(child, "exit while threads allocate");
    }
    return 0;
}
