/* Programs that are linked with jemalloc's library and call its own functions have their blocks from the preloaded one, and may hand
 * them to all others: as Redis 8, which asks malloc_usable_size about blocks of mallocx. */
#include "check.h"
#include <dlfcn.h>

enum { ZERO = 0x40, TCACHE_NONE = 1 << 8, ARENA_1 = 2 << 20, ALL_ARENAS = 4096 };

static void *(*mallocx)(size_t, int), *(*rallocx)(void *, size_t, int);
static void (*dallocx)(void *, int), (*sdallocx)(void *, size_t, int);
static size_t (*xallocx)(void *, size_t, size_t, int), (*sallocx)(const void *, int), (*nallocx)(size_t, int);
static int (*ctl)(const char *, void *, size_t *, void *, size_t);
static int (*to_mib)(const char *, size_t *, size_t *);
static int (*by_mib)(const size_t *, size_t, void *, size_t *, void *, size_t);
static void (*print)(void (*)(void *, const char *), void *, const char *);

static void find(void *place, const char *name) {
    void *symbol = dlsym(RTLD_DEFAULT, name);
    CHECK(symbol != NULL, "%s is not defined", name);
    memcpy(place, &symbol, sizeof symbol);
}

static bool all_are(const unsigned char *bytes, size_t count, unsigned char value) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != value) return false;
    return true;
}

static void blocks(size_t bytes, int flags) {
    size_t align = flags & 63 ? (size_t)1 << (flags & 63) : 16;
    unsigned char *block = mallocx(bytes, flags | TCACHE_NONE | ARENA_1);
    CHECK(block && (uintptr_t)block % align == 0, "mallocx(%zu, %#x) gave %p", bytes, flags, (void *)block);
    size_t usable = sallocx(block, 0);
    CHECK(usable >= bytes && usable == malloc_usable_size(block) && usable == nallocx(bytes, flags),
          "%zu bytes (%#x): sallocx %zu, malloc_usable_size %zu, nallocx %zu", bytes, flags, usable,
          malloc_usable_size(block), nallocx(bytes, flags));
    CHECK(xallocx(block, bytes, 1 << 20, 0) == usable, "xallocx of %zu bytes", bytes);
    memset(block, 0xa5, usable);
    dallocx(block, flags);

    block = mallocx(bytes, flags | ZERO);
    CHECK(block && (uintptr_t)block % align == 0 && all_are(block, sallocx(block, 0), 0), "%zu zeroed bytes (%#x)", bytes, flags);
    memset(block, 0xa5, usable);
    block = rallocx(block, bytes * 3, flags | ZERO);
    CHECK(block && (uintptr_t)block % align == 0 && all_are(block, usable, 0xa5), "rallocx of %zu bytes (%#x)", bytes, flags);
    CHECK(all_are(block + usable, sallocx(block, 0) - usable, 0), "rallocx of %zu bytes (%#x): not zeroed", bytes, flags);
    block = rallocx(block, bytes, flags);
    CHECK(block && sallocx(block, 0) >= bytes && all_are(block, bytes, 0xa5), "shrunk to %zu bytes", bytes);
    sdallocx(block, bytes, flags);

    free(mallocx(bytes, flags));
    dallocx(malloc(bytes), 0);
    sdallocx(realloc(mallocx(bytes, flags), 2 * bytes), 2 * bytes, 0);
    dallocx(rallocx(aligned_alloc(64, bytes), 2 * bytes, flags), flags);
}

static size_t figure(const char *name) {
    size_t value = 0, length = sizeof value;
    int error = ctl(name, &value, &length, NULL, 0);
    CHECK(error == 0 && length == sizeof value, "%s: %d", name, error);
    return value;
}

static void names(void) {
    uint64_t epoch = 1;
    size_t length = sizeof epoch;
    CHECK(ctl("epoch", &epoch, &length, &epoch, sizeof epoch) == 0, "epoch");
    size_t before = figure("stats.allocated");
    void *block = malloc(8 * MIB);
    size_t allocated = figure("stats.allocated") - before;
    CHECK(allocated >= 8 * MIB && allocated < 9 * MIB, "stats.allocated grew by %zu", allocated);
    CHECK(figure("stats.active") >= 8 * MIB && figure("stats.resident") >= figure("stats.active"), "stats.active");
    CHECK(figure("stats.arenas.0.large.allocated") >= 8 * MIB && figure("stats.arenas.1.large.allocated") == 0, "arenas");

    const char *version = NULL;
    length = sizeof version;
    CHECK(ctl("version", &version, &length, NULL, 0) == 0 && strchr(version, '.'), "version");
    unsigned arena = 0, next = 0, count = 0, bins = 1;
    length = sizeof arena;
    CHECK(ctl("arenas.create", &arena, &length, NULL, 0) == 0 && arena > 0, "arenas.create gave %u", arena);
    CHECK(ctl("arenas.create", &next, &length, NULL, 0) == 0 && next > arena, "arenas.create gave %u twice", next);
    CHECK(ctl("arenas.narenas", &count, &length, NULL, 0) == 0 && count > next, "%u arenas", count);
    CHECK(ctl("arenas.nbins", &bins, &length, NULL, 0) == 0 && bins == 0, "%u bins", bins);
    bool on = true;
    CHECK(ctl("background_thread", NULL, NULL, &on, sizeof on) == 0, "background_thread");
    CHECK(ctl("thread.tcache.flush", NULL, NULL, NULL, 0) == 0, "thread.tcache.flush");
    CHECK(ctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0, "arena.4096.purge");
    ssize_t never = -1;
    CHECK(ctl("arena.1.dirty_decay_ms", NULL, NULL, &never, sizeof never) == 0, "arena.1.dirty_decay_ms");

    size_t mib[8], depth = COUNT_OF(mib), value = 0;
    CHECK(to_mib("stats.arenas.7.pactive", mib, &depth) == 0 && depth == 4 && mib[2] == 7, "numbers of a name");
    mib[2] = 0, length = sizeof value;
    CHECK(by_mib(mib, depth, &value, &length, NULL, 0) == 0 && value >= 8 * MIB / sysconf(_SC_PAGESIZE),
          "stats.arenas.0.pactive: %zu", value);
    free(block);
    depth = COUNT_OF(mib);
    CHECK(to_mib("arena", mib, &depth) == 0 && depth == 1, "the beginning of a name");
    depth = 3, mib[3] = 99;
    CHECK(to_mib("stats.arenas.7.pactive", mib, &depth) == 0 && depth == 3 && mib[2] == 7 && mib[3] == 99, "no room for all");
    CHECK(by_mib(mib, 1, NULL, NULL, NULL, 0) == ENOENT && by_mib(mib, 8, NULL, NULL, NULL, 0) == ENOENT &&
          by_mib(NULL, 0, NULL, NULL, NULL, 0) == ENOENT, "no name");

    CHECK(ctl("stats.nothing", NULL, NULL, NULL, 0) == ENOENT && ctl("stats", NULL, NULL, NULL, 0) == ENOENT, "ENOENT");
    CHECK(ctl("arena.x.purge", NULL, NULL, NULL, 0) == ENOENT && ctl("", NULL, NULL, NULL, 0) == ENOENT, "ENOENT");
    CHECK(ctl("arenas.nbins", NULL, NULL, &bins, sizeof bins) == EPERM, "EPERM of what is only read");
    CHECK(ctl("arena.0.purge", &bins, &length, NULL, 0) == EPERM, "EPERM of what gives nothing");
    CHECK(ctl("background_thread", NULL, NULL, &bins, sizeof bins) == EINVAL, "EINVAL of a wrong length");
    uint32_t half = 0;
    length = sizeof half;
    CHECK(ctl("arenas.page", &half, &length, NULL, 0) == EINVAL && half == (uint32_t)sysconf(_SC_PAGESIZE), "EINVAL");
}

static void add(void *length, const char *text) { *(size_t *)length += strlen(text); }

int main(void) {
    find(&mallocx, "mallocx"), find(&rallocx, "rallocx"), find(&xallocx, "xallocx"), find(&sallocx, "sallocx");
    find(&dallocx, "dallocx"), find(&sdallocx, "sdallocx"), find(&nallocx, "nallocx"), find(&ctl, "mallctl");
    find(&to_mib, "mallctlnametomib"), find(&by_mib, "mallctlbymib"), find(&print, "malloc_stats_print");

    for (size_t bytes = 1; bytes < 6 * MIB; bytes = bytes * 9 / 7 + 1)
        for (int lg_align = 0; lg_align <= 21; lg_align += 3) blocks(bytes, lg_align);
    dallocx(NULL, 0);
    CHECK(nallocx(SIZE_MAX / 2 + 1, 0) == 0 && nallocx(1, 63) == 0, "nallocx of too much");
    CHECK(!mallocx(SIZE_MAX / 2 + 1, 0) && !mallocx(SIZE_MAX, ZERO) && !mallocx(1, 63), "mallocx of too much");
    unsigned char *kept = mallocx(100, ZERO);
    CHECK(!rallocx(kept, SIZE_MAX / 2, 0) && all_are(kept, 100, 0), "a block that cannot grow is as it was");
    size_t resident = rss_bytes();
    kept = rallocx(kept, 600 * MIB, ZERO);
    CHECK(kept && rss_bytes() < resident + 8 * MIB, "zeroed pages are there before anybody uses them");
    kept[300 * MIB] = 1, kept[600 * MIB - 1] = 2;
    kept = rallocx(kept, 700 * MIB, ZERO);
    CHECK(kept && rss_bytes() < resident + 8 * MIB && kept[300 * MIB] == 1 && kept[600 * MIB - 1] == 2, "a zeroed block grew");
    CHECK(all_are(kept + 600 * MIB, sallocx(kept, 0) - 600 * MIB, 0), "what it grew by is not zeroed");
    dallocx(kept, 0);

    names();
    size_t length = 0;
    print(add, &length, "a");
    CHECK(length > 200, "statistics of %zu characters", length);
    return 0;
}
