/* A library that allocates is loaded and unloaded again and again; argv[1] is its path. Its blocks outlive it. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>

static const char *path;

static void *once(void *argument) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    unsigned char *(*block)(size_t) = (unsigned char *(*)(size_t))dlsym(library, "plugin_block");
    size_t n = (uintptr_t)argument * 37 % 90000;
    unsigned char *p = block(n);
    CHECK(dlclose(library) == 0, "dlclose: %s", dlerror());
    CHECK_PATTERN(p, n, n, 8);
    free(p);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: plugin_loop LIBRARY");
    path = argv[1];
    size_t start = 0;
    for (uintptr_t i = 0; i < 600; i++) {
        if (i % 3) once((void *)i);
        else {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, once, (void *)i) == 0, "no thread");
            pthread_join(thread, NULL);
        }
        if (i == 100) start = kept_bytes();
    }
    CHECK(kept_bytes() < start + MIB, "500 loads grew resident memory by %zu KiB", (kept_bytes() - start) / KIB);
    return 0;
}
