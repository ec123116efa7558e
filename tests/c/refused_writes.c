/* What is written for an observer when the process ends is refused, file and pipe; the process ends as it would. */
#include "check.h"
#include <signal.h>
#include <sys/resource.h>

int main(void) {
    int ends[2];
    struct rlimit none = {0, 0};
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR && signal(SIGXFSZ, SIG_DFL) != SIG_ERR, "signals");
    CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0, "limit");
    CHECK(pipe(ends) == 0 && dup2(ends[1], 2) == 2 && close(ends[0]) == 0, "pipe");
    free(malloc(100000));
    return 0;
}
