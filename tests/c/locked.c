/* In a program that locks its memory every page stays locked, also where blocks grew: none may fault later. */
#include "check.h"
#include <sys/mman.h>
#include <sys/resource.h>

enum { COUNT = 64 };

/* Writable mappings that are not locked. */
static size_t unlocked_mappings(void) {
    static char text[1 << 20];
    read_text("/proc/self/smaps", text, sizeof text);
    size_t found = 0;
    bool is_writable = false;
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        unsigned long from, to;
        char access[8];
        if (sscanf(line, "%lx-%lx %7s ", &from, &to, access) == 3) is_writable = access[1] == 'w';
        if (strncmp(line, "VmFlags:", 8) != 0) continue;
        found += is_writable && !line_has(line, " lo");
    }
    return found;
}

int main(void) {
    static unsigned char *block[COUNT], *small[2000];
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        // Not privileged, and a limit.
        CHECK(errno == EPERM || errno == ENOMEM, "mlockall: errno %d", errno);
        return say_skipped("memory may not be locked"), 0;
    }
    // Nor is more brought in than is asked for, and a little.
    size_t resident = rss_bytes();
    for (size_t i = 0; i < COUNT; i++) CHECK((block[i] = malloc(MIB)) != NULL, "no memory");
    CHECK(!preloaded() || rss_bytes() < resident + (COUNT + 8) * MIB, "%zu MiB resident", (rss_bytes() - resident) / MIB);
    for (size_t i = 0; i < COUNT; i++) free(block[i]), block[i] = NULL;
    for (size_t turn = 0; turn < 6; turn++)
        for (size_t i = 0; i < COUNT; i++) {
            size_t bytes = ((size_t)300000 << turn % 4) + i * 5000;
            block[i] = realloc(block[i], bytes);
            CHECK(block[i] != NULL, "realloc to %zu: errno %d", bytes, errno);
            if (turn > 0) CHECK_PATTERN(block[i], 200000, 200000, i);
            fill(block[i], 200000, i);
        }
    for (size_t i = 0; i < COUNT; i++) free(block[i]);
    // The pauses are longer than free memory is held otherwise.
    long faults = 0;
    for (int round = 0; round < 4; round++, usleep(400000)) {
        for (size_t i = 0; i < COUNT_OF(small); i++) small[i] = malloc(2000), memset(opaque(small[i]), 1, 2000);
        for (size_t i = 0; i < COUNT_OF(small); i++) free(small[i]);
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        CHECK(!preloaded() || round == 0 || usage.ru_minflt < faults + 20, "%ld faults in round %d", usage.ru_minflt - faults, round);
        faults = usage.ru_minflt;
    }
    size_t unlocked = unlocked_mappings();
    CHECK(unlocked == 0, "%zu writable mappings are no longer locked", unlocked);
    return 0;
}
