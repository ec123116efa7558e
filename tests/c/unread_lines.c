/* Standard error is a pipe that nobody reads: an option that is not understood does not end the program, and a double free does as ever,
 * by SIGABRT. */
#include "check.h"
#include <signal.h>

int main(int argc, char **argv) {
    if (argc > 1) {
        void *block = malloc(100000);
        free(opaque(block));
        free(opaque(block));
        return 0;
    }
    pid_t child = fork();
    if (child == 0) {
        int ends[2];
        CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR && setenv("FAULTLESS", "no such option", 1) == 0, "signal or variable");
        CHECK(pipe(ends) == 0 && dup2(ends[1], 2) == 2 && close(ends[0]) == 0, "pipe");
        execl(argv[0], argv[0], "again", NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child, "waitpid: errno %d", errno);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %#x, not SIGABRT", status);
    return 0;
}
