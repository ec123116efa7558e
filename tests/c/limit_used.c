/* Under a limit a program has what the limit leaves room for: one block at a time up to nearly all of it, a vector that grows up to what
 * its copies leave. New memory must continue what is free at the heap's end, not be beside it. */
#include "check.h"
#include <sys/resource.h>

/* The largest of 50, 100, 150, … MiB that can be had, each freed before the next. */
static size_t one_at_a_time(void) {
    for (size_t mib = 50;; mib += 50) {
        volatile char *p = malloc(opaque_size(mib * MIB));
        if (p == NULL) return mib - 50;
        p[0] = p[mib * MIB - 1] = 1;
        free((void *)p);
    }
}

/* A vector that a half more replaces, or that grows by a half; its size in the end in MiB. */
static size_t vector(bool resizes) {
    size_t bytes = MIB, longer;
    char *p = malloc(bytes), *q;
    for (;; p = q, bytes = longer) {
        longer = bytes + bytes / 2;
        q = resizes ? realloc(p, longer) : malloc(longer);
        if (q == NULL) break;
        q[longer - 1] = 1;
        if (!resizes) free(p);
        // What others take meanwhile ends up behind the vector as long as it is short.
        if (resizes && bytes < 64 * MIB) CHECK(opaque(malloc(200000)) != NULL, "no memory beside %zu bytes", bytes);
    }
    free(p);
    return bytes / MIB;
}

int main(int argc, char **argv) {
    CHECK(argc == 3, "usage: limit_used single|copied|resized LEAST_MIB");
    size_t least = strtoul(argv[2], NULL, 10);
    size_t mib = argv[1][0] == 's' ? one_at_a_time() : vector(argv[1][0] == 'r');
    CHECK(mib >= least, "%s: at most %zu MiB, expected at least %zu", argv[1], mib, least);
    return 0;
}
