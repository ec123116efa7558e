/* libc has no memory for the handlers of forks when they are to be registered first. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

static int calls, refusals;

/* Stands before libc's. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object) {
    calls++;
    if (calls == 1) return refusals++, 12;
    int (*real)(void (*)(void), void (*)(void), void (*)(void), void *) = dlsym(RTLD_NEXT, "__register_atfork");
    return real(prepare, parent, child, object);
}

static void *allocate(void *unused) {
    for (int i = 0; i < 100000; i++) free(opaque(malloc(1000)));
    return unused;
}

int main(void) {
    CHECK(calls == 1 && refusals == 1, "%d calls at the start", calls);
    pthread_t thread;
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&thread, NULL, allocate, NULL) == 0, "no thread");
        pid_t child = fork();
        CHECK(child >= 0, "no child");
        if (child == 0) {
            allocate(NULL);
            _exit(0);
        }
        expect_success(child, "a child");
        pthread_join(thread, NULL);
    }
    CHECK(calls == 2, "%d calls after threads came", calls);
    return 0;
}
