/* What gdb's gcore writes: every mapping that is not excluded from dumps. Address space that is only reserved is, blocks are not. */
#include "check.h"

/* Bytes of all mappings that a dump includes; `*has` tells whether that of `wanted` is one of them. */
static size_t dumped_bytes(const void *wanted, bool *has) {
    static char text[1 << 20];
    read_text("/proc/self/smaps", text, sizeof text);
    size_t sum = 0;
    unsigned long start = 0, end = 0;
    *has = false;
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) start = from, end = to;
        if (strncmp(line, "VmFlags:", 8) != 0) continue;
        if (line_has(line, " dd")) continue;
        sum += end - start;
        *has |= start <= (uintptr_t)wanted && (uintptr_t)wanted < end;
    }
    return sum;
}

int main(void) {
    bool has;
    for (size_t bytes = 16; bytes <= 64 * MIB; bytes *= 4) {
        char *block = opaque(malloc(bytes));
        CHECK(block != NULL, "block of %zu: errno %d", bytes, errno);
        memset(block, 1, bytes);
        dumped_bytes(block, &has);
        CHECK(has, "a block of %zu bytes would miss in a dump", bytes);
        dumped_bytes(block + bytes - 1, &has);
        CHECK(has, "the end of a block of %zu bytes would miss in a dump", bytes);
    }
    size_t dumped = dumped_bytes(&has, &has);
    CHECK(dumped < GIB, "a dump would have %zu MiB", dumped / MIB);
    return 0;
}
