/* A signal handler may fork while malloc or free is at work, and the child return there. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

enum { CHILDREN = 200 };
static volatile int children, is_child;
static pid_t pids[CHILDREN];

static void fork_here(int signal) {
    (void)signal;
    if (is_child || children == CHILDREN) return;
    pid_t child = fork();
    CHECK(child >= 0, "no child: errno %d", errno);
    if (child == 0) {
        is_child = 1;
    } else {
        pids[children++] = child;
    }
}

int main(void) {
    uint64_t random = 1;
    void *held[200] = {0};
    signal(SIGALRM, fork_here);
    struct itimerval often = {{0, 900}, {0, 900}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (int calls_of_child = 0; children < CHILDREN || is_child; calls_of_child += is_child) {
        void **place = &held[next_random(&random) % COUNT_OF(held)];
        free(*place);
        *place = malloc(next_random(&random) % 5000);
        if (calls_of_child == 200) _exit(0);
    }
    for (int i = 0; i < CHILDREN; i++) expect_success(pids[i], "a child that returned from the handler");
    return 0;
}
