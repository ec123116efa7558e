/* A program opens libc itself and asks it for the functions, as Python's ctypes.CDLL("libc.so.6") does and .NET's DllImport("libc"):
 * they are those that everybody has, or its free would meet our blocks. With "path" it opens libc by the whole path. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <gnu/libc-version.h>

static const char *const names[] = {"malloc",        "free",     "calloc",  "realloc", "memalign",    "posix_memalign",
                                    "aligned_alloc", "mallinfo", "mallopt", "valloc",  "malloc_trim", "malloc_usable_size"};

int main(int argc, char **argv) {
    CHECK(argc == 1 || (argc == 2 && strcmp(argv[1], "path") == 0), "usage: libc_by_name [path]");
    Dl_info libc;
    CHECK(dladdr((void *)gnu_get_libc_version, &libc) != 0, "libc is nowhere");
    void *library = dlopen(argc == 2 ? libc.dli_fname : "libc.so.6", RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        void *theirs = dlsym(library, names[i]), *everybodys = dlsym(RTLD_DEFAULT, names[i]);
        CHECK(theirs == everybodys, "libc's %s is %p, everybody's is %p", names[i], theirs, everybodys);
    }
    void (*release)(void *) = (void (*)(void *))dlsym(library, "free");
    for (size_t n = 10; n < 1 * MIB; n *= 10) release(malloc(n));
    return 0;
}
