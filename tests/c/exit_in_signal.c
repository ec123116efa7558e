/* A signal handler that ends the process by exit, as many programs have it, may interrupt the allocator anywhere; with "threads", beside
 * one that is in the allocator, too. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

static void end(int signal) {
    (void)signal;
    exit(0);
}

static void *take_and_give(void *seed) {
    void *block[64] = {0};
    uint64_t random = (uintptr_t)seed;
    for (;;) {
        void **place = &block[next_random(&random) % COUNT_OF(block)];
        free(*place);
        *place = malloc(40000 + next_random(&random) % 500000);
    }
}

int main(int argc, char **argv) {
    int has_threads = argc == 2 && strcmp(argv[1], "threads") == 0;
    for (int run = 0; run < (has_threads ? 8 : 60); run++) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGVTALRM, end);
            alarm(20);
            struct itimerval after = {{0, 0}, {0, 3000 + run * 37}};
            setitimer(ITIMER_VIRTUAL, &after, NULL);
            pthread_t thread;
            if (has_threads) pthread_create(&thread, NULL, take_and_give, (void *)(uintptr_t)(run + 1000));
            take_and_give((void *)(uintptr_t)(run + 1));
        }
        expect_success(child, "exit in a signal handler");
    }
    return 0;
}
