/* realloc of nothing, to nothing, and errno. */
#include "check.h"

int main(void) {
    unsigned char *p = realloc(NULL, 100);
    CHECK(p != NULL && malloc_usable_size(p) >= 100, "realloc(NULL, 100) returned %p", p);
    errno = 55;
    void *none = realloc(p, opaque_size(0));
    CHECK(none == NULL, "realloc(p, 0) returned %p; glibc frees and returns NULL", none);
    CHECK(errno == 55, "realloc(p, 0) set errno to %d", errno);
    void *empty = realloc(NULL, opaque_size(0)), *empty2 = realloc(NULL, opaque_size(0));
    CHECK(empty != NULL && empty2 != NULL && empty != empty2, "realloc(NULL, 0) returned %p, then %p", empty, empty2);
    free(empty), free(empty2);
    p = malloc(10);
    CHECK(reallocarray(p, opaque_size(0), 8) == NULL, "reallocarray(p, 0, 8) did not return NULL");
    p = reallocarray(NULL, 10, 30);
    CHECK(p != NULL && malloc_usable_size(p) >= 300, "reallocarray(NULL, 10, 30) returned %p", p);
    fill(p, 300, 1);
    p = reallocarray(p, 1000, 300);
    CHECK(p != NULL, "reallocarray(p, 1000, 300) returned NULL");
    CHECK_PATTERN(p, 300, 300, 1);
    free(p);

    errno = 66;
    p = malloc(1);
    for (size_t n = 1; n < 40 * MIB; n = n * 5 / 3 + 1) {
        p = realloc(p, n);
        CHECK(p != NULL && errno == 66, "realloc to %zu: %p, errno %d", n, p, errno);
    }
    free(p);

    /* realloc(p, 0) frees: a million times leaves no trace. */
    size_t start = 0;
    for (int i = 0; i < 1000000; i++) {
        p = malloc(i % 10 ? 100 : 40000);
        p[0] = 1;
        CHECK(realloc(p, opaque_size(0)) == NULL, "realloc(p, 0) did not return NULL");
        if (i == 10000) start = kept_bytes();
    }
    CHECK(kept_bytes() < start + MIB, "realloc(p, 0) leaks: %zu KiB more than at first", (kept_bytes() - start) / KIB);
    return 0;
}
