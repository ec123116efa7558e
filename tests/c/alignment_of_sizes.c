/* Every size from 0 to 70,000 gives memory aligned to 16, big enough, and nobody else's. */
#include "check.h"

#define RING 32

static void check(unsigned char *p, size_t n, const char *what) {
    CHECK(p != NULL, "%s(%zu) returned NULL", what, n);
    CHECK((uintptr_t)p % 16 == 0, "%s(%zu) returned %p, not aligned to 16", what, n, p);
    CHECK(malloc_usable_size(p) >= n, "%s(%zu): only %zu bytes usable", what, n, malloc_usable_size(p));
}

int main(void) {
    unsigned char *ring[RING] = {0};
    size_t sizes[RING] = {0};
    for (size_t n = 0; n <= 70000; n++) {
        size_t slot = n % RING;
        if (ring[slot])
            for (size_t at = 0; at < sizes[slot]; at += at < 64 || at + 64 > sizes[slot] ? 1 : 61)
                CHECK(ring[slot][at] == (unsigned char)sizes[slot], "byte %zu of a block of %zu changed", at, sizes[slot]);
        free(ring[slot]);
        ring[slot] = malloc(n);
        sizes[slot] = n;
        check(ring[slot], n, "malloc");
        memset(ring[slot], (unsigned char)n, n);
        if (n % 7 == 0) {
            unsigned char *c = calloc(1, n);
            check(c, n, "calloc");
            CHECK(first_nonzero(c, n) == SIZE_MAX, "calloc(1, %zu): byte %zu is not zero", n, first_nonzero(c, n));
            c = realloc(c, n + 33);
            check(c, n + 33, "realloc");
            CHECK(first_nonzero(c, n) == SIZE_MAX, "realloc of a zeroed block of %zu: byte %zu changed", n, first_nonzero(c, n));
            free(c);
        }
    }
    for (size_t slot = 0; slot < RING; slot++) free(ring[slot]);
    return 0;
}
