/* A program in C opens two libraries in C++ (argv[1], argv[2]), of which one or both bring a C++ library of their own, and goes on with
 * the second when the first is gone. */
#include "check.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    CHECK(argc == 3, "usage: two_runtimes LIBRARY LIBRARY");
    void *libraries[2];
    void (*allocates[2])(void);
    for (int i = 0; i < 2; i++) {
        libraries[i] = dlopen(argv[i + 1], RTLD_NOW | RTLD_LOCAL);
        CHECK(libraries[i] != NULL, "dlopen: %s", dlerror());
        allocates[i] = (void (*)(void))dlsym(libraries[i], "allocates");
        allocates[i]();
    }
    allocates[0]();
    dlclose(libraries[0]);
    allocates[1]();
    return 0;
}
