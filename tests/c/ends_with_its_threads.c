/* A process whose threads have all ended by pthread_exit ends, whatever threads of ours are there. */
#include "check.h"
#include <pthread.h>
#include <signal.h>

static void *work(void *unused) {
    for (int i = 0; i < 4; i++) free(memset(malloc(3 * MIB), 1, 3 * MIB));
    return unused;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, work, NULL) == 0, "no thread");
        pthread_detach(thread);
        pthread_exit(NULL);
    }
    pid_t child = fork();
    if (child == 0) {
        char *arguments[] = {argv[0], "child", NULL};
        execv("/proc/self/exe", arguments);
        _exit(2);
    }
    for (int i = 0; i < 3000; i++) {
        int status;
        pid_t ended = waitpid(child, &status, WNOHANG);
        CHECK(ended >= 0, "waitpid: errno %d", errno);
        if (ended == child) {
            CHECK(status == 0, "status %#x", status);
            return 0;
        }
        usleep(10000);
    }
    kill(child, SIGKILL);
    CHECK(0, "the process lives 30 s after its threads ended");
}
