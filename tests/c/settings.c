/* What the options in FAULTLESS change: resident memory and huge pages. The argument names the case. */
#include "check.h"

enum { SMALL = 160 * 1024 };

static void expect(size_t start, size_t least, size_t most, const char *what) {
    size_t now = rss_bytes() - start;
    CHECK(now + MIB >= least && now <= most + MIB, "%s: %zu KiB resident more than at the start", what, now / KIB);
}
static void *touched(size_t bytes) { return memset(opaque(malloc(bytes)), 1, bytes); }

static void purge_never(void) {
    size_t start = rss_bytes();
    free(touched(64 * MIB));
    expect(start, 64 * MIB, 64 * MIB, "64 MiB freed, purge:never");
    CHECK(malloc_trim(0) == 1, "malloc_trim gave nothing back");
    expect(start, 0, 0, "64 MiB freed, then malloc_trim");
}
static void purge_now(void) {
    size_t start = rss_bytes();
    for (int turn = 0; turn < 20; turn++) {
        free(touched(8 * MIB));
        expect(start, 0, 0, "8 MiB that come and go, purge:now");
    }
}
/* Bytes of huge pages, and in *advised whether any mapping is to have them everywhere. */
static size_t huge_bytes(int *advised) {
    static char line[512];
    size_t kib = 0, one;
    FILE *file = fopen("/proc/self/smaps", "r");
    CHECK(file != NULL, "no smaps");
    *advised = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "AnonHugePages: %zu", &one) == 1) kib += one;
        if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg")) *advised = 1;
    }
    fclose(file);
    return kib * KIB;
}
static void huge_pages(int wanted) {
    static void *block[SMALL];
    int advised;
    for (size_t i = 0; i < SMALL; i++) block[i] = touched(1024);
    size_t bytes = huge_bytes(&advised);
    CHECK(advised == wanted && (wanted || bytes == 0), "%zu bytes of huge pages, %s", bytes,
          advised ? "and more are asked for" : "and no more are asked for");
    for (size_t i = 0; i < SMALL; i++) free(block[i]);
}

int main(int argc, char **argv) {
    const char *name = argc == 2 ? argv[1] : "";
    free(malloc(1));
    rss_bytes();
    if (strcmp(name, "purge_never") == 0) return purge_never(), 0;
    if (strcmp(name, "purge_now") == 0) return purge_now(), 0;
    if (strcmp(name, "no_huge_pages") == 0) return huge_pages(0), 0;
    if (strcmp(name, "huge_pages") == 0) {
        if (access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0) huge_pages(1);
        else say_skipped("this kernel has no huge pages");
        return 0;
    }
    fail(__FILE__, __LINE__, "no such case");
}
