/* A program in C opens a library in C++ (argv[1]), whose C++ library is then in no order of search but its own. */
#include "check.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: throwing_main LIBRARY");
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    int (*throws)(void) = (int (*)(void))dlsym(library, "plugin_throws");
    CHECK(throws() == 1, "nothing was thrown");
    return 0;
}
