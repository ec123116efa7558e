/* A child of vfork that limits its addresses limits its own: its parent, whose memory it has, goes on as before. */
#include "check.h"
#include <sys/resource.h>

int main(void) {
    free(opaque(malloc(100)));
    long before = addresses();
    for (int resource = 0; resource < 2; resource++) {
        pid_t child = vfork();
        if (child == 0) {
            struct rlimit limit = {8 * GIB, RLIM_INFINITY};
            if (setrlimit(resource == 0 ? RLIMIT_AS : RLIMIT_DATA, &limit) != 0) _exit(1);
            execl("/bin/true", "true", (char *)NULL);
            _exit(2);
        }
        expect_success(child, "a child of vfork that limits itself");
        CHECK(addresses() >= before, "of %ld pages of addresses %ld are left", before, addresses());
    }
    enum { COUNT = 1000 };
    static void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(100 * KIB);
        CHECK(blocks[i] != NULL, "block %d of %d", i, COUNT);
        fill(blocks[i], 100 * KIB, i);
    }
    for (int i = 0; i < COUNT; i++) CHECK_PATTERN(blocks[i], 100 * KIB, 100 * KIB, i);
    return 0;
}
