/* What is written for an observer when the process ends is refused, file and pipe; the process ends as it would. */
#include "check.h"
#include <signal.h>
#include <sys/resource.h>

int main(int argc, char **argv) {
    if (argc == 2) {
        /* With a pipe as standard error from the start: another would not be written to. */
        int ends[2];
        CHECK(pipe(ends) == 0 && dup2(ends[1], 2) == 2 && close(ends[0]) == 0, "pipe");
        execl("/proc/self/exe", argv[0], NULL);
        return 1;
    }
    struct rlimit none = {0, 0};
    if (signal(SIGPIPE, SIG_DFL) == SIG_ERR || signal(SIGXFSZ, SIG_DFL) == SIG_ERR) return 1;
    if (setrlimit(RLIMIT_FSIZE, &none) != 0) return 1;
    free(malloc(100000));
    return 0;
}
