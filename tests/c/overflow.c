/* Sizes that cannot be: NULL with ENOMEM, and nothing is harmed. */
#include "check.h"

#define REFUSED(call)                                                                        \
    do {                                                                                     \
        errno = 0;                                                                           \
        void *p_ = call;                                                                     \
        CHECK(p_ == NULL && errno == ENOMEM, #call " returned %p with errno %d", p_, errno); \
    } while (0)

int main(void) {
    size_t most = opaque_size(SIZE_MAX), half = opaque_size((size_t)PTRDIFF_MAX + 1);
    REFUSED(malloc(half));
    for (size_t less = 0; less < 70000; less += less < 64 ? 1 : 1021) REFUSED(malloc(most - less));
    REFUSED(malloc(half + 4096));
    REFUSED(malloc(half - 1));
    REFUSED(malloc(half - 4096));
    REFUSED(malloc(opaque_size((size_t)1 << 47)));
    REFUSED(calloc(most, 2));
    REFUSED(calloc(2, most));
    REFUSED(calloc(most, most));
    REFUSED(calloc(opaque_size((size_t)1 << 32), (size_t)1 << 32));
    REFUSED(calloc(opaque_size(((size_t)1 << 32) + 1), (size_t)1 << 32));
    REFUSED(calloc(half / 4 + 1, 8));
    REFUSED(calloc(half, 1));
    REFUSED(reallocarray(NULL, most, 2));
    REFUSED(reallocarray(NULL, half, 2));
    REFUSED(reallocarray(NULL, opaque_size((size_t)1 << 32), (size_t)1 << 32));
    REFUSED(aligned_alloc(64, most - 10));
    REFUSED(aligned_alloc(64 * MIB, most - 10));
    REFUSED(aligned_alloc(opaque_size((size_t)1 << 62), half - 1));
    REFUSED(memalign(4096, most - 10));
    REFUSED(memalign(4096, half));
    REFUSED(valloc(most));
    REFUSED(valloc(most - 4096));
    REFUSED(pvalloc(most));
    REFUSED(pvalloc(most - 4094));

    /* A refused realloc leaves the block as it was. */
    size_t sizes[] = {0, 1, 24, 1000, 30000, 40000, 200000, 5 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        unsigned char *p = malloc(sizes[i]);
        CHECK(p != NULL, "malloc(%zu) returned NULL", sizes[i]);
        fill(p, sizes[i], i);
        REFUSED(realloc(p, most));
        REFUSED(realloc(p, half));
        REFUSED(realloc(p, half - 1));
        REFUSED(realloc(p, opaque_size((size_t)1 << 47)));
        REFUSED(reallocarray(p, most / 2, 3));
        CHECK_PATTERN(p, sizes[i], sizes[i], i);
        p = realloc(p, sizes[i] + 10);
        CHECK(p != NULL, "realloc to %zu after refusals returned NULL", sizes[i] + 10);
        CHECK_PATTERN(p, sizes[i], sizes[i], i);
        free(p);
    }
    /* More than the machine can promise: refused, or usable at both ends. */
    for (int bit = 36; bit < 47; bit++) {
        size_t n = opaque_size((size_t)1 << bit);
        errno = 0;
        volatile char *p = malloc(n);
        if (p == NULL) CHECK(errno == ENOMEM, "malloc(2^%d) failed with errno %d", bit, errno);
        else p[0] = 1, p[n - 1] = 1;
        free((void *)p);
    }
    return 0;
}
