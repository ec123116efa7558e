/* A signal handler forks while the only thread is inside malloc or free: nothing waits for itself. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

static volatile sig_atomic_t forks;

static void handler(int number) {
    (void)number;
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (child > 0) {
        waitpid(child, NULL, 0);
        forks++;
    }
}

int main(void) {
    alarm(60);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGVTALRM, &action, NULL);
    struct itimerval period = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_VIRTUAL, &period, NULL);
    while (forks < 300) free(opaque(malloc(opaque_size(100000))));
    return 0;
}
