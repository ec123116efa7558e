/* A signal handler that ends the process by exit, as many programs have it, may interrupt the allocator anywhere. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

static void end(int signal) {
    (void)signal;
    exit(0);
}

int main(void) {
    for (int run = 0; run < 60; run++) {
        pid_t child = fork();
        if (child == 0) {
            static void *block[64];
            uint64_t random = run + 1;
            signal(SIGVTALRM, end);
            alarm(20);
            struct itimerval after = {{0, 0}, {0, 3000 + run * 37}};
            setitimer(ITIMER_VIRTUAL, &after, NULL);
            for (;;) {
                void **place = &block[next_random(&random) % COUNT_OF(block)];
                free(*place);
                *place = malloc(40000 + next_random(&random) % 500000);
            }
        }
        expect_success(child, "exit in a signal handler");
    }
    return 0;
}
