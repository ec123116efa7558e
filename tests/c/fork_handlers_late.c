/* A process of one thread that never forks registers no handlers of forks. Who forks, starts a thread that allocates, has a thread of the
 * heap's, registers handlers of his own, or opens a library that looks into libc first, does, and those of the heap come first.
 * `registrations.c` counts. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

typedef void (*handler)(void);

static int *registrations, *refusals_left;
static handler *first_registered;

static void *allocate(void *unused) {
    for (int i = 0; i < 100000; i++) free(opaque(malloc(1000)));
    return unused;
}

static void begin_child(void) {
    pid_t child = fork();
    CHECK(child >= 0, "no child");
    if (child == 0) {
        allocate(NULL);
        _exit(0);
    }
    expect_success(child, "a child");
}

static void run_thread(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, allocate, NULL) == 0, "no thread");
    CHECK(pthread_join(thread, NULL) == 0, "no end of the thread");
}

static void *wait_for_ever(void *unused) {
    for (;;) pause();
    return unused;
}

/* Large blocks beside another thread: there is a purger then. */
static void bring_a_purger(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0, "no thread");
    for (int i = 0; i < 4; i++) {
        void *block = malloc(MIB);
        CHECK(block != NULL, "no memory");
        memset(opaque(block), 1, MIB);
    }
}

static void expect(int count, const char *when) {
    CHECK(*registrations == count, "%d registrations %s, expected %d", *registrations, when, count);
}

static void prepare(void) { free(opaque(malloc(1000))); }

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    registrations = dlsym(RTLD_DEFAULT, "registrations");
    refusals_left = dlsym(RTLD_DEFAULT, "refusals_left");
    first_registered = dlsym(RTLD_DEFAULT, "first_registered");
    CHECK(registrations != NULL, "nobody counts");
    if (dlsym(RTLD_DEFAULT, "__libc_single_threaded") == NULL) {
        puts("skipped: handlers of forks that are registered late (glibc 2.32 or later)");
        return 0;
    }
    allocate(NULL);
    expect(strcmp(mode, "options") == 0, "at the start");
    if (strcmp(mode, "fork") == 0) {
        for (int i = 0; i < 3; i++) begin_child();
        run_thread();
        expect(1, "after forks");
    } else if (strcmp(mode, "thread") == 0) {
        run_thread();
        expect(1, "after a thread");
        begin_child();
        expect(1, "after a thread and a fork");
    } else if (strcmp(mode, "purger") == 0) {
        bring_a_purger();
        expect(1, "beside a thread that does not allocate, when a fork inside libc would copy what the purger is at");
    } else if (strcmp(mode, "handlers") == 0) {
        CHECK(pthread_atfork(prepare, NULL, NULL) == 0, "refused");
        expect(2, "after one of the program");
        CHECK(*first_registered != prepare, "the program's is the first");
        run_thread();
        begin_child();
        expect(2, "in the end");
    } else if (strcmp(mode, "deep") == 0) {
        CHECK(dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND) != NULL, "%s", dlerror());
        expect(1, "before a library that does not come here");
    } else if (strcmp(mode, "refused") == 0) {
        *refusals_left = 1;
        begin_child();
        expect(1, "after a refused one");
        for (int i = 0; i < 3; i++) {
            run_thread();
            begin_child();
        }
        expect(2, "after threads came");
    }
    return 0;
}
