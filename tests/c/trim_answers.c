/* malloc_trim says 1 when it gave memory back and 0 when there was none to give. */
#include "check.h"

int main(void) {
    enum { COUNT = 200000 };
    static void *block[COUNT];
    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < COUNT; i++) memset(block[i] = malloc(100), 1, 100);
        /* A block in a thousand survives. */
        for (size_t i = 0; i < COUNT; i++)
            if (i % 1000) free(block[i]);
        size_t before = rss_bytes();
        int answer = malloc_trim(round % 2 ? 64 * KIB : 0);
        size_t after = rss_bytes();
        CHECK(answer == 0 || answer == 1, "malloc_trim returned %d", answer);
        if (before > after + MIB) CHECK(answer == 1, "malloc_trim gave back %zu KiB and returned 0", (before - after) / KIB);
        if (preloaded()) {
            if (answer == 1) CHECK(before > after, "malloc_trim returned 1 and resident memory did not fall");
            malloc_trim(0);
            answer = malloc_trim(0);
            CHECK(answer == 0, "malloc_trim twice in a row, nothing between, and the second returned %d", answer);
        }
        for (size_t i = 0; i < COUNT; i += 1000) {
            CHECK(first_nonzero(block[i], 100) == 0 && ((char *)block[i])[99] == 1, "malloc_trim changed a live block");
            free(block[i]);
        }
    }
    return 0;
}
