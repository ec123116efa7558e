/* A hundred thousand large blocks with holes between them stay far from vm.max_map_count, and work; so do some that grow again and
 * again by a little, each of which has its pages moved. */
#include "check.h"

static size_t mappings(void) {
    static char text[65536];
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t lines = 0;
    for (ssize_t got; (got = read(file, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < got; i++) lines += text[i] == '\n';
    close(file);
    return lines;
}

static void grow_by_turns(void) {
    enum { COUNT = 24, TURNS = 60 };
    unsigned char *block[COUNT] = {NULL};
    size_t before = mappings();
    for (size_t turn = 0; turn < TURNS; turn++)
        for (size_t i = 0; i < COUNT; i++) {
            size_t size = (300 + 64 * turn) * KIB;
            block[i] = realloc(block[i], size);
            CHECK(block[i] != NULL, "realloc to %zu: errno %d", size, errno);
            if (turn > 0) CHECK_PATTERN(block[i], size - 64 * KIB, size - 64 * KIB, i);
            fill(block[i], size, i);
        }
    /* Where pages were moved to one mapping ends and another begins: 4 a block, and one for each 512 KiB of its at most 4 MiB;
     * some more where they were taken from free memory. */
    CHECK(mappings() <= before + 13 * COUNT, "%zu mappings, %zu before", mappings(), before);
    for (size_t i = 0; i < COUNT; i++) free(block[i]);
}

int main(void) {
    grow_by_turns();
    enum { COUNT = 100000 };
    static unsigned char *block[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        block[i] = malloc(132 * KIB);
        CHECK(block[i] != NULL, "block %zu of 132 KiB: errno %d", i, errno);
        block[i][0] = (unsigned char)i;
    }
    for (size_t i = 0; i < COUNT; i += 2) free(block[i]);
    for (size_t i = 1; i < COUNT; i += 20) {
        block[i] = realloc(block[i], 300 * KIB);
        CHECK(block[i] != NULL, "realloc of block %zu: errno %d", i, errno);
    }
    for (size_t i = 1; i < COUNT; i += 2) CHECK(block[i][0] == (unsigned char)i, "block %zu changed", i);
    CHECK(mappings() < 60000, "%zu mappings", mappings());
    if (preloaded()) CHECK(mappings() < 20000, "%zu mappings", mappings());
    for (size_t i = 1; i < COUNT; i += 2) free(block[i]);
    return 0;
}
