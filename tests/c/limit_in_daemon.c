/* A process that libc's `daemon` made, with no call of `fork` that others see, limits its addresses, and can map memory afterwards. */
#include "check.h"
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { ANSWER = 9 };

static void become_daemon(void) {
    free(opaque(malloc(100)));
    CHECK(daemon(1, 1) == 0, "no daemon: errno %d", errno);
    struct rlimit limit = {.rlim_cur = GIB, .rlim_max = RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "no limit: errno %d", errno);
    void *mapped = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED, "64 MiB cannot be mapped under a limit of a GiB: errno %d", errno);
    CHECK(write(ANSWER, "y", 1) == 1, "nobody hears: errno %d", errno);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        become_daemon();
        return 0;
    }
    /* Its own program, in which nothing was forked yet. */
    int ends[2];
    CHECK(pipe(ends) == 0 && dup2(ends[1], ANSWER) == ANSWER, "no pipe");
    pid_t starter;
    char *arguments[] = {argv[0], "daemon", NULL};
    CHECK(posix_spawn(&starter, argv[0], NULL, NULL, arguments, environ) == 0, "no process");
    close(ends[1]), close(ANSWER);
    expect_success(starter, "who starts the daemon");
    char answer;
    CHECK(read(ends[0], &answer, 1) == 1, "the daemon ended too soon");
    return 0;
}
