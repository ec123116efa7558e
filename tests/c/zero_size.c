/* Blocks of no bytes are blocks: not NULL, all different, to be freed like others. */
#include "check.h"

int main(void) {
    enum { COUNT = 3000 };
    static void *block[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        size_t zero = opaque_size(0);
        switch (i % 6) {
        case 0: block[i] = malloc(zero); break;
        case 1: block[i] = calloc(zero, 100); break;
        case 2: block[i] = calloc(100, zero); break;
        case 3: block[i] = aligned_alloc(64, zero); break;
        case 4: block[i] = realloc(NULL, zero); break;
        case 5: CHECK(posix_memalign(&block[i], 32, zero) == 0, "posix_memalign(32, 0) failed"); break;
        }
        CHECK(block[i] != NULL, "way %zu to ask for no bytes returned NULL", i % 6);
    }
    for (size_t i = 0; i < COUNT; i++)
        for (size_t k = 0; k < i; k += 1 + i % 7) CHECK(block[i] != block[k], "two blocks of no bytes at %p", block[i]);
    for (size_t i = 0; i < COUNT; i++) {
        if (i % 2) block[i] = realloc(block[i], 50), memset(block[i], 1, 50);
        free(block[i]);
    }
    return 0;
}
