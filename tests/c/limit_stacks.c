/* Under a limit of 128 MiB, which a second argument sets for the program itself, 34 MiB in small blocks leave room for so many stacks of
 * 8 MiB as the first argument says: what a heap takes in advance counts, too. */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>

static void *wait_for_ever(void *unused) {
    for (;;) pause();
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 2 || argc == 3, "usage: limit_stacks STACKS [as|data]");
    if (argc == 3) {
        struct rlimit limit = {.rlim_cur = 128 * MIB, .rlim_max = RLIM_INFINITY};
        int which = strcmp(argv[2], "as") == 0 ? RLIMIT_AS : RLIMIT_DATA;
        CHECK(setrlimit(which, &limit) == 0, "setrlimit: errno %d", errno);
    }
    void **last = NULL;
    for (size_t used = 0; used < 34 * MIB; used += 112) {
        void **block = malloc(100);
        CHECK(block != NULL, "%zu KiB had, and no more: errno %d", used / KIB, errno);
        *block = last, last = block;
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 8 * MIB);
    int stacks = 0;
    for (pthread_t thread; pthread_create(&thread, &attributes, wait_for_ever, NULL) == 0;) stacks++;
    CHECK(stacks >= atoi(argv[1]), "room for %d stacks of 8 MiB, not %s", stacks, argv[1]);
    _exit(0);
}
