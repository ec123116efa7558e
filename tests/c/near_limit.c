/* near_limit MIB: in a container that may have so many MiB (0: without a limit) large blocks of other sizes by turns take little more
 * than what is in use at most; without a limit they take more. The container is a mount namespace, the control group's file in it is
 * ours. */
#include "check.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { MOST_USED_MIB = 55, ENOUGH_MIB = 60 };

static bool write_file(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CREAT, 0644);
    bool done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    return close(file) == 0 && done;
}

/* False where that is not permitted. */
static bool enter_container(const char *mib) {
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("none", "/sys/fs/cgroup", "tmpfs", 0, NULL) != 0)
        return false;
    char text[32];
    snprintf(text, sizeof text, "%zu\n", (size_t)atoi(mib) * MIB);
    const char *limit = atoi(mib) == 0 ? "max\n" : text;
    return mkdir("/sys/fs/cgroup/memory", 0755) == 0 && write_file("/sys/fs/cgroup/memory.max", limit) &&
           write_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", limit);
}

static void take_and_give(size_t bytes, int blocks) {
    void *taken[8];
    for (int i = 0; i < blocks; i++) {
        taken[i] = malloc(bytes / blocks);
        CHECK(taken[i] != NULL, "no memory");
        memset(taken[i], 1, bytes / blocks);
    }
    for (int i = 0; i < blocks; i++) free(taken[i]);
}

static size_t peak_mib(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage: errno %d", errno);
    return usage.ru_maxrss / KIB;
}

int main(int count, char **arguments) {
    CHECK(count > 1, "near_limit MIB [inside]");
    if (count == 2) {
        if (!enter_container(arguments[1])) {
            say_skipped("a mount namespace with a file system at /sys/fs/cgroup");
            return 0;
        }
        execl("/proc/self/exe", arguments[0], arguments[1], "inside", NULL);
        fail(__FILE__, __LINE__, "exec: errno %d", errno);
    }
    uint64_t seed = 12345;
    bool is_limited = atoi(arguments[1]) != 0;
    /* Where others keep the CPUs busy most rounds take longer than memory is held: then they come again until it is seen to be. */
    for (int round = 0; round < 40 || (!is_limited && round < 2000 && peak_mib() <= ENOUGH_MIB); round++) {
        if (round % 40 == 0) seed = 12345;
        seed = seed * 6364136223846793005 + 1442695040888963407;
        take_and_give((5 + (seed >> 45) % (MOST_USED_MIB - 5)) * MIB, 1 + (seed >> 33) % 8);
    }
    if (is_limited)
        CHECK(peak_mib() <= ENOUGH_MIB, "%zu MiB", peak_mib());
    else
        CHECK(peak_mib() > ENOUGH_MIB, "%zu MiB: nothing was held, so the limit makes no difference", peak_mib());
    return 0;
}
