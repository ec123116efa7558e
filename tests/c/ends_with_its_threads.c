/* A process whose threads have all ended by pthread_exit ends, whatever threads of ours are there. libc runs the handlers of exit in the
 * last one: they have a stack and signals as in a thread of the program's. */
#include "check.h"
#include <pthread.h>
#include <signal.h>

static void *work(void *unused) {
    for (int i = 0; i < 4; i++) free(memset(malloc(3 * MIB), 1, 3 * MIB));
    return unused;
}

__attribute__((noinline)) static void use_stack(int depth) {
    volatile char frame[64 * KIB];
    memset((void *)frame, depth, sizeof frame);
    if (depth > 0) use_stack(depth - 1);
    CHECK(frame[sizeof frame - 1] == (char)depth, "a frame changed");
}

static void at_exit(void) {
    sigset_t blocked;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0, "no signal mask");
    CHECK(!sigismember(&blocked, SIGTERM), "SIGTERM is blocked");
    CHECK(sigismember(&blocked, SIGUSR1), "SIGUSR1 is not blocked");
    use_stack(24);
    free(memset(malloc(MIB), 1, MIB));
    CHECK(write(1, "done", 4) == 4, "cannot write: errno %d", errno);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        atexit(at_exit);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, work, NULL) == 0, "no thread");
        pthread_detach(thread);
        pthread_exit(NULL);
    }
    int ends[2];
    CHECK(pipe(ends) == 0, "no pipe: errno %d", errno);
    pid_t child = fork();
    if (child == 0) {
        sigset_t blocked;
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGUSR1);
        pthread_sigmask(SIG_SETMASK, &blocked, NULL);
        dup2(ends[1], 1);
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
            char text[5] = "";
            CHECK(read(ends[0], text, 4) == 4 && strcmp(text, "done") == 0, "the handler of exit did not end");
            return 0;
        }
        usleep(10000);
    }
    kill(child, SIGKILL);
    CHECK(0, "the process lives 30 s after its threads ended");
}
