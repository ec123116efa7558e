/* A program whose malloc is a wrapper asks libc, which it opens by its name, for the one behind it: not for itself. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>

extern void *__libc_malloc(size_t n);
void *malloc(size_t n) { return __libc_malloc(n); }

int main(void) {
    void *library = dlopen("libc.so.6", RTLD_NOW);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    CHECK(dlsym(library, "malloc") != (void *)malloc, "libc's malloc is the program's");
    return 0;
}
