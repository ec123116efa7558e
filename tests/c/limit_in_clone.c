/* A child of a raw `clone`, of which no handler of forks is told and which has a copy of its parent's memory (a session of vsftpd), limits
 * its addresses, and can map memory afterwards. */
#include "check.h"
#include <linux/kcmp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

int main(void) {
    if (syscall(SYS_kcmp, getpid(), getpid(), KCMP_VM, 0, 0) != 0) return say_skipped("kcmp is refused"), 0;
    free(opaque(malloc(100)));
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = 200 * MIB, .rlim_max = 200 * MIB};
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "no limit: errno %d", errno);
        void *mapped = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(mapped != MAP_FAILED, "a MiB cannot be mapped under a limit of 200: errno %d", errno);
        fill(malloc(100000), 100000, 1);
        _exit(0);
    }
    expect_success(child, "the child");
    return 0;
}
