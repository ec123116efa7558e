/* A child of vfork that limits its addresses limits its own: its parent, whose memory it has, goes on as before. With "namespace" both are
 * number 1, each in a namespace of its own. */
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

static int limit_own(void *resource) {
    struct rlimit limit = {8 * GIB, RLIM_INFINITY};
    if (setrlimit(*(int *)resource, &limit) != 0) _exit(1);
    execl("/bin/true", "true", (char *)NULL);
    _exit(2);
}
static pid_t vfork_in_namespace(int *resource) {
    static char stack[64 * 1024] __attribute__((aligned(16)));
    return clone(limit_own, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_NEWPID | SIGCHLD, resource);
}
static void check_children(bool in_namespaces) {
    free(opaque(malloc(100)));
    long before = addresses();
    int resources[] = {RLIMIT_AS, RLIMIT_DATA};
    for (size_t i = 0; i < COUNT_OF(resources); i++) {
        pid_t child = in_namespaces ? vfork_in_namespace(&resources[i]) : vfork();
        if (child == 0) limit_own(&resources[i]);
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
}

int main(int argc, char **argv) {
    if (argc < 2) return check_children(false), 0;
    CHECK(strcmp(argv[1], "namespace") == 0, "no such case: %s", argv[1]);
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return say_skipped("no namespace of processes can be made"), 0;
    pid_t first = fork();
    if (first == 0) {
        CHECK(getpid() == 1, "number %d", getpid());
        check_children(true);
        exit(0);
    }
    expect_success(first, "the first process of a namespace");
    return 0;
}
