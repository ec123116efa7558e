/* A handler leaves what its signal interrupted by longjmp, as programs do that bound a computation's time: also malloc and free. */
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

static sigjmp_buf again;

static void leave(int signal) {
    (void)signal;
    siglongjmp(again, 1);
}

int main(void) {
    static void *block[64];
    static uint64_t random = 1;
    signal(SIGVTALRM, leave);
    alarm(20);
    struct itimerval every = {{0, 997}, {0, 997}};
    setitimer(ITIMER_VIRTUAL, &every, NULL);
    sigsetjmp(again, 1);
    for (;;) {
        void **place = &block[next_random(&random) % COUNT_OF(block)];
        void *was = *place;
        *place = NULL;
        free(was);
        *place = malloc(40000 + next_random(&random) % 500000);
    }
}
