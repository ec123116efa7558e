/* A library in C++ whose constructor waits for a thread that calls new (nothrow), while the loader's lock is held. */
#include "check.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: nothrow_in_constructor LIBRARY");
    alarm(30);
    void *library = dlopen(argv[1], RTLD_NOW);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    int (*calls_handler)(void);
    *(void **)&calls_handler = dlsym(library, "calls_handler");
    dlerror();
    CHECK(calls_handler(), "the handler of new was not called");
    CHECK(dlerror() == NULL, "somebody's search failed");
    return 0;
}
