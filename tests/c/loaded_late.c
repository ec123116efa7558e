/* The library may be opened by dlopen in a running program, used beside libc's own malloc, also in children that are forked meanwhile, and
 * closed; argv[1] is its path. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

static void *(*their_malloc)(size_t);
static void (*their_free)(void *);

static void *work(void *seed) {
    uint64_t random = (uintptr_t)seed + 1;
    unsigned char *held[100] = {0};
    size_t size[100] = {0};
    for (int step = 0; step < 30000; step++) {
        size_t i = next_random(&random) % 100;
        if (held[i]) CHECK_PATTERN(held[i], size[i], size[i], i);
        their_free(held[i]);
        size[i] = random_size(&random, 1, 60000);
        held[i] = their_malloc(size[i]);
        CHECK(held[i] != NULL, "no memory for %zu", size[i]);
        fill(held[i], size[i], i);
    }
    for (size_t i = 0; i < 100; i++) their_free(held[i]);
    return NULL;
}

/* What other threads held of the heap at the fork must not be held for good in the child. */
static void fork_children(void) {
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        CHECK(child >= 0, "no child");
        if (child == 0) {
            alarm(20);
            for (size_t size = 16; size < 200 * KIB; size += size / 8) their_free(their_malloc(size));
            _exit(0);
        }
        expect_success(child, "a child");
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: loaded_late LIBRARY");
    pthread_t thread[3];
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL, "dlopen: %s", dlerror());
        their_malloc = (void *(*)(size_t))dlsym(library, "malloc");
        their_free = (void (*)(void *))dlsym(library, "free");
        CHECK(their_malloc && their_free && their_malloc != malloc, "the library has no malloc of its own");
        void *(*their_dlopen)(const char *, int) = (void *(*)(const char *, int))dlsym(library, "dlopen");
        for (int deep = 0; deep < 2; deep++) {
            void *other = their_dlopen("libm.so.6", RTLD_NOW | (deep ? RTLD_DEEPBIND : 0));
            CHECK(other != NULL, "the library's dlopen: %s", dlerror());
            dlclose(other);
        }
        for (uintptr_t i = 0; i < 3; i++) pthread_create(&thread[i], NULL, work, (void *)i);
        fork_children();
        work((void *)9);
        for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
        dlclose(library);
    }
    return 0;
}
