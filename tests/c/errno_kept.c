/* free never changes errno; calls that succeed leave it alone; calls that fail say ENOMEM. */
#include "check.h"

int main(void) {
    size_t sizes[] = {0, 1, 16, 100, 1000, 10000, 32768, 40000, 130000, MIB, 20 * MIB, 200 * MIB};
    for (int round = 0; round < 20; round++)
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            size_t n = sizes[i];
            void *p[64];
            size_t count = n < 50000 ? 64 : n < 2 * MIB ? 8 : 1;
            errno = 4711;
            for (size_t k = 0; k < count; k++) {
                p[k] = k % 3 == 0 ? malloc(n) : k % 3 == 1 ? calloc(1, n) : aligned_alloc(64, n);
                CHECK(p[k] != NULL, "no memory for %zu", n);
                CHECK(errno == 4711, "a successful call for %zu bytes set errno to %d", n, errno);
                if (n) *(volatile char *)p[k] = 1;
                p[k] = realloc(p[k], n + 100);
                CHECK(errno == 4711, "realloc from %zu to %zu set errno to %d", n, n + 100, errno);
            }
            for (size_t k = 0; k < count; k++) {
                free(p[k]);
                CHECK(errno == 4711, "free of %zu bytes set errno to %d", n, errno);
            }
            malloc_usable_size(NULL), free(NULL);
            CHECK(errno == 4711, "free(NULL) set errno to %d", errno);
        }
    errno = 0;
    CHECK(malloc(opaque_size(SIZE_MAX)) == NULL && errno == ENOMEM, "malloc(SIZE_MAX): errno %d", errno);
    return 0;
}
