/* A library that has the allocator inside is opened and closed: threads and handlers of the process still lead into it. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>

static void (*work)(void);
static void *work_once(void *library) {
    work();
    /* The thread's end runs what its first allocation left behind. */
    dlclose(library);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: closed_plugin NAME");
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    *(void **)&work = dlsym(library, "allocate_and_free");
    CHECK(work != NULL && dlsym(library, "malloc") != (void *)malloc, "the plugin has no malloc of its own");
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work_once, library) == 0, "no thread");
    pthread_join(thread, NULL);
    pid_t child = fork();
    if (child == 0) _exit(0);
    expect_success(child, "fork after the library was closed");
    return 0;
}
