/* A program lowers its own limits when it is far above them: blocks that grow keep their contents all the same, or stay as they
 * are. What is freed then is given back. The argument names the limit. */
#include "check.h"
#include <sys/resource.h>

enum { COUNT = 24 };

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: limit_lowered as|data");
    size_t start = rss_bytes();
    static unsigned char *block[COUNT];
    static size_t bytes[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        bytes[i] = MIB;
        block[i] = malloc(bytes[i]);
        CHECK(block[i] != NULL, "block %zu: errno %d", i, errno);
        memset(block[i], (int)i, bytes[i]);
    }
    // Some have moved before, so that there is something to give back that lies in mappings of its own.
    for (size_t turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < COUNT; i += 2) {
            block[i] = realloc(block[i], bytes[i] + bytes[i] / 10);
            CHECK(block[i] != NULL, "realloc of block %zu: errno %d", i, errno);
            memset(block[i] + bytes[i], (int)i, bytes[i] / 10);
            bytes[i] += bytes[i] / 10;
        }
    bool is_data = strcmp(argv[1], "data") == 0;
    struct rlimit limit = {.rlim_cur = is_data ? 2 * MIB : 8 * MIB, .rlim_max = RLIM_INFINITY};
    CHECK(setrlimit(is_data ? RLIMIT_DATA : RLIMIT_AS, &limit) == 0, "setrlimit: errno %d", errno);
    size_t grown = 0;
    for (size_t turn = 0; turn < 6; turn++)
        for (size_t i = 0; i < COUNT; i++) {
            size_t wanted = bytes[i] + bytes[i] / (turn % 2 ? 10 : 2);
            unsigned char *again = realloc(block[i], wanted);
            if (again == NULL) {
                CHECK(errno == ENOMEM, "realloc to %zu: errno %d", wanted, errno);
                continue;
            }
            memset(again + bytes[i], (int)i, wanted - bytes[i]);
            block[i] = again, bytes[i] = wanted, grown++;
        }
    for (size_t i = 0; i < COUNT; i++)
        for (size_t at = 0; at < bytes[i]; at += 512)
            CHECK(block[i][at] == i, "byte %zu of block %zu changed, after %zu grew", at, i, grown);
    for (size_t i = 0; i < COUNT; i++) free(block[i]);
    malloc_trim(0);
    if (preloaded()) CHECK(rss_bytes() < start + 4 * MIB, "%zu KiB stay resident", (rss_bytes() - start) / KIB);
    return 0;
}
