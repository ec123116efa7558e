/* mallinfo2, malloc_info and malloc_stats tell what is there, to the byte, and the same. */
#include "check.h"

struct figures {
    size_t sizes_count, sizes_bytes; /* free blocks, added up by size */
    size_t fast_count, fast_bytes, rest_count, rest_bytes, mmap_count, mmap_bytes, current, most;
};

static char text[65536], room[65536];
static FILE *stream;

static void total(const char *kind, size_t *count, size_t *bytes) {
    char line[64];
    snprintf(line, sizeof line, "<total type=\"%s\" count=", kind);
    /* The sums of all heaps come last. */
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, line)); at++) last = at;
    CHECK(last && sscanf(last + strlen(line), "\"%zu\" size=\"%zu\"", count, bytes) == 2, "no total of %s", kind);
}

static struct figures of_xml(void) {
    struct figures seen = {0};
    rewind(stream);
    CHECK(malloc_info(0, stream) == 0 && fflush(stream) == 0, "malloc_info failed");
    size_t from, to, bytes, count;
    for (const char *at = text; (at = strstr(at, "<size ")); at++) {
        CHECK(sscanf(at, "<size from=\"%zu\" to=\"%zu\" total=\"%zu\" count=\"%zu\"", &from, &to, &bytes, &count) == 4, "a size is '%.60s'", at);
        CHECK(from <= to && bytes == count * to, "%zu free blocks of %zu to %zu are %zu bytes", count, from, to, bytes);
        seen.sizes_count += count, seen.sizes_bytes += bytes;
    }
    total("fast", &seen.fast_count, &seen.fast_bytes);
    total("rest", &seen.rest_count, &seen.rest_bytes);
    total("mmap", &seen.mmap_count, &seen.mmap_bytes);
    const char *system = strstr(text, "<system type=\"current\"");
    CHECK(system && sscanf(system, "<system type=\"current\" size=\"%zu\"/>\n<system type=\"max\" size=\"%zu\"/>", &seen.current, &seen.most) == 2, "no system");
    return seen;
}

#define SAME(one, other) CHECK((size_t)(one) == (size_t)(other), #one " is %zu, " #other " is %zu", (size_t)(one), (size_t)(other))

static size_t kib(size_t bytes) { return (bytes + 1023) / 1024; }

static size_t after(const char *name) {
    const char *at = strstr(text, name);
    size_t number;
    CHECK(at && sscanf(at + strlen(name), "%zu", &number) == 1, "malloc_stats has no '%s'", name);
    return number;
}

static void of_stats(struct mallinfo2 info) {
    int pipes[2], errors = dup(2);
    CHECK(pipe(pipes) == 0 && errors >= 0, "no pipe");
    dup2(pipes[1], 2);
    malloc_stats();
    dup2(errors, 2), close(errors), close(pipes[1]);
    size_t length = 0;
    for (ssize_t got; (got = read(pipes[0], text + length, sizeof text - 1 - length)) > 0;) length += got;
    close(pipes[0]);
    text[length] = 0;
    SAME(after("in use"), kib(info.uordblks + info.hblkhd));
    SAME(after("small"), kib(info.uordblks));
    SAME(after("large"), kib(info.hblkhd));
    SAME(after("free in slabs"), kib(info.fordblks - info.keepcost));
    SAME(after("cached      "), kib(info.fsmblks));
    SAME(after("free, dirty"), kib(info.keepcost));
    size_t blocks_of_large;
    CHECK(sscanf(strstr(text, "large"), "large %*u in %zu blocks", &blocks_of_large) == 1, "no number of large blocks");
    SAME(blocks_of_large, info.hblks);
    size_t used_bytes = 0, cached_bytes = 0, cached_blocks = 0, free_blocks = 0, row[6];
    const char *at = strstr(text, "transit\n");
    CHECK(at, "no table of size classes");
    while (at = strchr(at, '\n') + 1, sscanf(at, "%zu %zu %zu %zu %zu %zu", row, row + 1, row + 2, row + 3, row + 4, row + 5) == 6) {
        CHECK(row[3] + row[4] + row[5] <= row[2], "of %zu blocks of %zu bytes %zu are used, %zu cached", row[2], row[0], row[3], row[4]);
        used_bytes += row[0] * row[3], cached_bytes += row[0] * row[4];
        cached_blocks += row[4], free_blocks += row[2] - row[3];
    }
    SAME(used_bytes, info.uordblks);
    SAME(cached_bytes, info.fsmblks);
    SAME(cached_blocks, info.smblks);
    SAME(free_blocks, info.ordblks);
}

static struct mallinfo2 look(void) {
    struct mallinfo2 info = mallinfo2();
    struct figures seen = of_xml();
    struct mallinfo2 again = mallinfo2();
    CHECK(memcmp(&info, &again, sizeof info) == 0, "malloc_info changed what it tells of");
    SAME(info.arena, info.uordblks + info.fordblks);
    SAME(info.fordblks, seen.sizes_bytes + info.keepcost);
    SAME(info.ordblks, seen.sizes_count);
    SAME(info.smblks, seen.fast_count);
    SAME(info.fsmblks, seen.fast_bytes);
    SAME(seen.sizes_count, seen.fast_count + seen.rest_count);
    SAME(seen.sizes_bytes, seen.fast_bytes + seen.rest_bytes);
    SAME(info.hblks, seen.mmap_count);
    SAME(info.hblkhd, seen.mmap_bytes);
    CHECK(seen.current >= info.uordblks + seen.sizes_bytes + info.hblkhd && seen.most >= seen.current, "%zu bytes now, at most %zu", seen.current, seen.most);
    struct mallinfo narrow = mallinfo();
    SAME(narrow.uordblks, info.uordblks);
    SAME(narrow.hblks, info.hblks);
    SAME(narrow.hblkhd, info.hblkhd);
    SAME(narrow.fordblks, info.fordblks);
    of_stats(info);
    again = mallinfo2();
    CHECK(memcmp(&info, &again, sizeof info) == 0, "malloc_stats changed what it tells of");
    return info;
}

int main(void) {
    static void *block[1000];
    stream = fmemopen(text, sizeof text, "w");
    CHECK(stream && setvbuf(stream, room, _IOFBF, sizeof room) == 0, "no stream");
    look(); /* what stdio takes once is taken */
    struct { size_t count, size; } loads[] = {{1, 1}, {1000, 16}, {999, 64}, {777, 1000}, {50, 32768}, {7, 100000}, {1, 200000}, {3, 5 * MIB}};
    for (size_t i = 0; i < COUNT_OF(loads); i++) {
        struct mallinfo2 before = look();
        size_t count = loads[i].count, bytes = 0, freed = 0;
        for (size_t b = 0; b < count; b++) bytes += malloc_usable_size(block[b] = malloc(loads[i].size));
        struct mallinfo2 full = look();
        int is_large = loads[i].size > 32 * KIB;
        SAME(full.uordblks, before.uordblks + (is_large ? 0 : bytes));
        SAME(full.hblkhd, before.hblkhd + (is_large ? bytes : 0));
        SAME(full.hblks, before.hblks + (is_large ? count : 0));
        for (size_t b = 0; b < count; b += 2) freed += malloc_usable_size(block[b]), free(block[b]);
        struct mallinfo2 half = look();
        SAME(half.uordblks + half.hblkhd, full.uordblks + full.hblkhd - freed);
        SAME(half.hblks, full.hblks - (is_large ? (count + 1) / 2 : 0));
        for (size_t b = 1; b < count; b += 2) free(block[b]);
        struct mallinfo2 after = look();
        SAME(after.uordblks, before.uordblks);
        SAME(after.hblkhd, before.hblkhd);
        SAME(after.hblks, before.hblks);
    }
    return 0;
}
