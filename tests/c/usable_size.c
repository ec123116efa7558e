/* All of malloc_usable_size may be written without harm to others. */
#include "check.h"

int main(void) {
    CHECK(malloc_usable_size(NULL) == 0, "malloc_usable_size(NULL) is %zu", malloc_usable_size(NULL));
    enum { COUNT = 700 };
    static unsigned char *block[COUNT];
    static size_t usable[COUNT];
    uint64_t random = 3;
    for (int round = 0; round < 6; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            size_t n = random_size(&random, 1, i % 40 ? 40 * KIB : MIB);
            block[i] = i % 5 == 0 ? aligned_alloc((size_t)16 << i % 9, n) : i % 5 == 1 ? calloc(1, n) : malloc(n);
            CHECK(block[i] != NULL, "no memory for %zu", n);
            if (i % 5 == 3) block[i] = realloc(block[i], n + n / 2), n += n / 2;
            usable[i] = malloc_usable_size(block[i]);
            CHECK(usable[i] >= n, "asked for %zu, only %zu usable", n, usable[i]);
            memset(block[i], (int)i, usable[i]);
        }
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(malloc_usable_size(block[i]) == usable[i], "the usable size of %p changed", block[i]);
            for (size_t at = 0; at < usable[i]; at++)
                CHECK(block[i][at] == (unsigned char)i, "byte %zu of %zu usable changed", at, usable[i]);
            /* What was written in the slack survives a realloc to exactly that. */
            block[i] = realloc(block[i], usable[i]);
            CHECK(block[i][usable[i] - 1] == (unsigned char)i, "realloc to the usable size lost the last byte");
            free(block[i]);
        }
    }
    return 0;
}
