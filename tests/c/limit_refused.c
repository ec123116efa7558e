/* Limits that the kernel refuses: errors are libc's, also of an address that cannot be read. */
#include "check.h"
#include <sys/resource.h>

int main(void) {
    free(opaque(malloc(100)));
    errno = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, opaque((void *)1)) == -1 && errno == EFAULT, "no address: errno %d", errno);
    return 0;
}
