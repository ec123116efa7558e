/* Limits that the kernel refuses cost nothing: what the heap has reserved stays, and errors are libc's, also of an address that cannot be
 * read. A limit that leaves room for all that is reserved costs nothing either. */
#include "check.h"
#include <sys/resource.h>

int main(void) {
    free(opaque(malloc(100)));
    long before = addresses();
    errno = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, opaque((void *)1)) == -1 && errno == EFAULT, "no address: errno %d", errno);
    struct rlimit upside_down = {.rlim_cur = GIB, .rlim_max = GIB / 2};
    CHECK(setrlimit(RLIMIT_AS, &upside_down) == -1 && errno == EINVAL, "soft above hard: errno %d", errno);
    CHECK(addresses() >= before, "of %ld pages of addresses %ld are left: soft above hard", before, addresses());

    const rlim_t pebibyte = (rlim_t)1 << 50;
    struct rlimit limit = {.rlim_cur = pebibyte, .rlim_max = pebibyte};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "1 PiB: errno %d", errno);
    CHECK(addresses() >= before, "of %ld pages of addresses %ld are left: 1 PiB", before, addresses());

    // Who may raise a hard limit is refused nothing.
    const uid_t nobody = 65534;
    if (geteuid() != 0 || setresuid(nobody, nobody, nobody) == 0) {
        limit = (struct rlimit){.rlim_cur = GIB, .rlim_max = RLIM_INFINITY};
        CHECK(setrlimit(RLIMIT_AS, &limit) == -1 && errno == EPERM, "a hard limit is raised: errno %d", errno);
        CHECK(addresses() >= before, "of %ld pages of addresses %ld are left: not permitted", before, addresses());
    } else say_skipped("root cannot become another user");
    limit = (struct rlimit){.rlim_cur = GIB, .rlim_max = GIB};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "1 GiB: errno %d", errno);
    CHECK(addresses() <= (long)(GIB / 4096), "%ld pages of addresses under a limit of 1 GiB", addresses());
    return 0;
}
