/* Resident memory after work, counted in bytes, never in time. The argument names the case. */
#include "check.h"
#include <sys/mman.h>
#include <sys/resource.h>

static void expect_within(size_t start, size_t allowed, const char *what) {
    size_t now = rss_bytes();
    CHECK(now <= start + allowed, "%s: %zu KiB resident more than at the start, allowed are %zu", what, (now - start) / KIB,
          allowed / KIB);
}

static void large_block_freed(void) {
    size_t start = rss_bytes();
    unsigned char *p = malloc(128 * MIB);
    CHECK(p != NULL, "no memory");
    memset(p, 1, 128 * MIB);
    CHECK(rss_bytes() >= start + 127 * MIB, "128 MiB were touched but are not resident");
    free(p);
    expect_within(start, 2 * MIB, "128 MiB touched and freed, no call since");
}
static void sparse_calloc(void) {
    size_t start = rss_bytes(), pages = GIB / 4096, touched = 0;
    unsigned char *p = calloc(1, GIB);
    CHECK(p != NULL, "no memory");
    for (size_t i = 0; i < pages; i += 100, touched++) p[i * 4096] = 1;
    size_t now = rss_bytes() - start;
    CHECK(now <= touched * 4096 / 4 * 5 + 128 * KIB, "%zu KiB touched of 1 GiB, %zu KiB resident", touched * 4, now / KIB);
    free(p);
    expect_within(start, 2 * MIB, "1 GiB freed");
}
static void small_blocks_at_random(void) {
    enum { COUNT = 2000000 };
    size_t start = rss_bytes();
    unsigned char **block = mmap(NULL, COUNT * sizeof *block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t random = 17;
    for (size_t i = 0; i < COUNT; i++) memset(block[i] = malloc(64), 1, 64);
    for (size_t i = COUNT - 1; i > 0; i--) {
        size_t other = next_random(&random) % (i + 1);
        unsigned char *p = block[i];
        block[i] = block[other], block[other] = p;
    }
    for (size_t i = 0; i < COUNT; i++) free(block[i]);
    munmap(block, COUNT * sizeof *block);
    malloc_trim(0);
    expect_within(start, 2 * MIB, "2,000,000 blocks of 64 bytes freed at random, then malloc_trim");
}
/* A great block that comes and goes: its memory serves others when it does not come again, and is given back when asked for. */
static void comes_and_goes(void) {
    enum { SMALL = 6 * 1024 };
    size_t start = rss_bytes();
    for (int turn = 0; turn < 200; turn++) {
        unsigned char *p = opaque(turn % 2 ? malloc(8 * MIB) : calloc(8, MIB));
        for (size_t i = 0; i < 8 * MIB; i += 4096) {
            CHECK(turn % 2 || p[i] == 0, "calloc gives byte %zu as %d in turn %d", i, p[i], turn);
            p[i] = 1;
        }
        free(p);
    }
    expect_within(start, 10 * MIB, "8 MiB that came and went");
    static unsigned char *block[SMALL];
    for (size_t i = 0; i < SMALL; i++) memset(block[i] = malloc(1024), 1, 1024);
    expect_within(start, 10 * MIB, "6 MiB of small blocks after 8 MiB that came and went");
    for (size_t i = 0; i < SMALL; i++) free(block[i]);
    for (int turn = 0; turn < 1000; turn++) free(opaque(malloc(8 * MIB)));
    struct mallinfo2 known = mallinfo2();
    CHECK(known.hblkhd < 8 * MIB, "what was freed last counts as %zu bytes in use", known.hblkhd);
    malloc_trim(0);
    expect_within(start, 2 * MIB, "8 MiB that came and went, then malloc_trim");
}
/* It goes back, too, when the program does something else for long that takes no span and gives none. */
static void comes_and_goes_no_more(void) {
    enum { SMALL = 64 * 1024, TURNS = 2000 };
    static unsigned char *block[SMALL];
    for (int i = 0; i < SMALL; i++) memset(block[i] = malloc(64), 1, 64);
    size_t start = rss_bytes();
    for (int turn = 0; turn < 200; turn++) {
        unsigned char *p = malloc(8 * MIB);
        memset(p, 1, 8 * MIB);
        free(opaque(p));
    }
    CHECK(rss_bytes() >= start + 7 * MIB, "8 MiB that came and went 200 times are not at hand");
    for (int turn = 0; turn < TURNS && rss_bytes() > start + 2 * MIB; turn++) {
        for (int i = 0; i < SMALL; i += 2) free(block[i]);
        for (int i = 0; i < SMALL; i += 2) block[i] = malloc(64);
    }
    expect_within(start, 2 * MIB, "8 MiB that came and went, then small blocks for long");
}
static size_t spanned(size_t size) {
    return (size + 64 * KIB - 1) / (64 * KIB) * (64 * KIB);
}
static size_t drawn_size(uint64_t *random) {
    return 33 * KIB + next_random(random) % (200 * KIB);
}
/* Blocks of 33 to 233 KiB that replace each other in no order: what is at hand of each length is no more than would be held. */
static void comes_and_goes_in_all_sizes(void) {
    enum { COUNT = 64, TURNS = 20000, SMALL = 3 * 1024 };
    static unsigned char *block[COUNT], *small[SMALL];
    static size_t size[COUNT];
    size_t start = rss_bytes(), live = 0, most = 0;
    uint64_t random = 11;
    for (int turn = 0; turn < TURNS; turn++) {
        size_t i = next_random(&random) % COUNT;
        CHECK(block[i] == NULL || (block[i][0] == i && block[i][size[i] - 1] == i), "block %zu was overwritten", i);
        free(block[i]);
        live -= spanned(size[i]);
        size[i] = drawn_size(&random);
        live += spanned(size[i]);
        most = live > most ? live : most;
        block[i] = malloc(size[i]);
        memset(block[i], (int)i, size[i]);
    }
    expect_within(start, most / 8 * 11 + 2 * MIB, "64 blocks of drawn sizes");
    for (int i = 0; i < COUNT; i += 2) free(block[i]), block[i] = NULL;
    for (int i = 0; i < SMALL; i++) memset(small[i] = malloc(1024), 1, 1024);
    expect_within(start, most / 8 * 11 + 2 * MIB, "half of them freed, then 3 MiB of small blocks");
    for (int i = 0; i < SMALL; i++) free(small[i]);
    for (int i = 0; i < COUNT; i++) free(block[i]);
    CHECK(mallinfo2().hblkhd == 0, "what is at hand counts as %zu bytes in use", mallinfo2().hblkhd);
    malloc_trim(0);
    expect_within(start, 2 * MIB, "64 blocks of drawn sizes, freed, then malloc_trim");
}
/* Buffers of 64 and 128 KiB in memory that blocks of other sizes filled and left, for the third time, so that it is held. What their place
 * in it leaves over does not stay for as long as they live. */
static void buffers_where_others_were(void) {
    enum { OTHERS = 3200, OTHER = 20000, BUFFERS = 480 };
    static unsigned char *other[OTHERS], *buffer[BUFFERS];
    size_t start = rss_bytes(), live = 0;
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < OTHERS; i++) memset(other[i] = malloc(OTHER), 1, OTHER);
        for (int i = 0; i < OTHERS; i++) free(other[i]);
    }
    for (int i = 0; i < BUFFERS; i++) {
        size_t bytes = (i % 4 == 0 ? 128 : 64) * KIB;
        memset(buffer[i] = malloc(bytes), 1, bytes);
        live += bytes;
    }
    expect_within(start, live + live / 4 + 2 * MIB, "buffers where other blocks were");
}
static size_t locked_bytes(void) { return stated_bytes("/proc/self/status", "VmLck:"); }
static void locked_page(void) {
    size_t start = rss_bytes();
    unsigned char *p = malloc(64 * MIB);
    memset(p, 1, 64 * MIB);
    if (mlock(p + 32 * MIB, 4096) != 0) {
        say_skipped("no page may be locked");
        return;
    }
    free(p);
    malloc_trim(0);
    expect_within(start, 2 * MIB, "64 MiB with one locked page, freed");
    CHECK(!preloaded() || locked_bytes() == 0, "%zu KiB count as locked", locked_bytes() / KIB);
    p = calloc(1, 64 * MIB);
    for (size_t i = 0; i < 64 * MIB; i += 4096) CHECK(p[i] == 0, "calloc gives byte %zu as %d", i, p[i]);
    free(p);
}
/* What was freed while all memory was locked stays; when it is locked no more malloc_trim gives it back. */
static void locked_for_a_while(void) {
    enum { COUNT = 64 };
    static unsigned char *block[COUNT];
    size_t start = rss_bytes();
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        say_skipped("memory may not be locked");
        return;
    }
    for (int i = 0; i < COUNT; i++) memset(block[i] = malloc(MIB), 1, MIB);
    for (int i = 0; i < COUNT; i++) free(block[i]);
    malloc_trim(0);
    CHECK(rss_bytes() >= start + 60 * MIB, "locked memory was given back");
    munlockall();
    CHECK(malloc_trim(0) == 1, "malloc_trim says that there was nothing");
    /* What libraries have was brought in, too. */
    expect_within(start, 8 * MIB, "64 MiB freed while they were locked, then malloc_trim");
}
/* realloc of a great block moves pages, not bytes: no second copy is ever resident. */
static void realloc_grows_in_place_of_pages(void) {
    size_t start = rss_bytes(), n = 64 * MIB;
    unsigned char *p = malloc(n);
    memset(p, 1, n);
    void *blocker = malloc(MIB);
    for (; n < 512 * MIB; n += 64 * MIB) {
        p = realloc(p, n + 64 * MIB);
        CHECK(p != NULL && p[64 * MIB - 1] == 1, "realloc to %zu", n);
        expect_within(start, 67 * MIB, "a block of which 64 MiB were touched grows");
    }
    p = realloc(p, MIB);
    expect_within(start, 3 * MIB, "512 MiB shrunk to 1 MiB");
    free(p), free(blocker);
}
/* Purged memory is zero again and costs its faults again, but never shows old bytes. */
static void freed_and_used_again(void) {
    size_t start = rss_bytes();
    for (int round = 0; round < 50; round++) {
        unsigned char *p = malloc(40 * MIB), *q = calloc(1, 30 * MIB);
        memset(p, round + 1, 40 * MIB);
        CHECK(first_nonzero(q, 30 * MIB) == SIZE_MAX, "calloc after rounds of purging is not zero");
        memset(q, 7, 30 * MIB);
        free(p), free(q);
    }
    malloc_trim(0);
    expect_within(start, 2 * MIB, "50 rounds of 70 MiB, then malloc_trim");
}
/* Many great spans apart from each other, kept because they were used again and again: one malloc_trim takes them all. */
static void many_kept_spans(void) {
    enum { COUNT = 12 };
    unsigned char *block[COUNT], *wall[COUNT];
    for (int i = 0; i < COUNT; i++) block[i] = malloc(20 * MIB), wall[i] = malloc(100 * KIB);
    size_t start = rss_bytes();
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < COUNT; i++)
            for (size_t at = 0; at < 20 * MIB; at += 200 * KIB) block[i][at] = 1;
        for (int i = 0; i < COUNT; i++) free(block[i]);
        for (int i = 0; i < COUNT && round < 29; i++) block[i] = malloc(20 * MIB);
    }
    malloc_trim(0);
    expect_within(start, MIB, "12 blocks of 20 MiB used again and again, freed, then one malloc_trim");
    for (int i = 0; i < COUNT; i++) free(wall[i]);
}

/* What the heap knows of blocks takes memory, too: of 4 MiB a page, where that is all there is. */
static void untouched_blocks(void) {
    enum { COUNT = 2000 };
    static char *block[COUNT];
    uint64_t random = 5;
    size_t start = rss_bytes();
    for (int i = 0; i < COUNT; i++) CHECK((block[i] = malloc(4 * MIB)) != NULL, "no memory for block %d", i);
    for (int i = COUNT - 1; i > 0; i--) {
        int other = next_random(&random) % (i + 1);
        char *p = block[i];
        block[i] = block[other], block[other] = p;
    }
    for (int i = 0; i < COUNT; i++) free(block[i]);
    malloc_trim(0);
    expect_within(start, MIB, "2,000 blocks of 4 MiB freed that nobody touched");
}
/* A huge page that a small block gets reaches far into free memory beside it. */
static void beside_huge_pages(void) {
    enum { COUNT = 64 };
    static char *large[COUNT], *small[COUNT];
    size_t start = rss_bytes();
    for (int i = 0; i < COUNT; i++) {
        large[i] = malloc(2 * MIB - 128 * KIB);
        small[i] = malloc(100 * KIB);
    }
    for (int i = 0; i < COUNT; i++) free(opaque(large[i]));
    malloc_trim(0);
    for (int i = 0; i < COUNT; i++) memset(small[i], 1, 100 * KIB);
    for (int i = 0; i < COUNT; i++) free(small[i]);
    malloc_trim(0);
    expect_within(start, 2 * MIB, "small blocks on huge pages freed");
}
/* Buffers of a server of which most hold little: a huge page would be resident as a whole. */
static void begun_buffers(void) {
    enum { COUNT = 12000 };
    size_t start = rss_bytes(), page = sysconf(_SC_PAGESIZE);
    for (int i = 0; i < COUNT; i++) {
        char *buffer = opaque(malloc(16 * KIB));
        CHECK(buffer != NULL, "no memory for buffer %d", i);
        memset(buffer, 1, 100);
    }
    expect_within(start, COUNT * page * 5 / 4, "12,000 buffers of 16 KiB with 100 bytes each");
}
/* A few blocks that come and go, then many that go. */
static void few_then_many(void) {
    enum { FEW = 2000, MANY = 20000 };
    static void *block[MANY];
    size_t sizes[] = {16, 100, 500, 1000, 4000};
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
        for (int turn = 0; turn <= 50; turn++) {
            int count = turn < 50 ? FEW : MANY;
            for (int i = 0; i < count; i++) block[i] = malloc(sizes[s]);
            for (int i = 0; i < count; i++) free(block[i]);
        }
}
/* Buffers a little below or at 64 KiB, all made, filled, and freed, by turns: not each at the place of one before. */
static void buffers_in_bulk(void) {
    enum { COUNT = 100, TURNS = 20, LEARNING = 4, PAGES = COUNT * 16 };
    static char *block[COUNT];
    uint64_t random = 5;
    int with_faults = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        struct rusage before, after;
        getrusage(RUSAGE_SELF, &before);
        for (int i = 0; i < COUNT; i++) {
            size_t bytes = 60000 + next_random(&random) % 5536;
            CHECK((block[i] = malloc(bytes)) != NULL, "no memory for buffer %d", i);
            memset(block[i], 1, bytes);
        }
        for (int i = 0; i < COUNT; i++) free(block[i]);
        getrusage(RUSAGE_SELF, &after);
        with_faults += turn >= LEARNING && after.ru_minflt - before.ru_minflt > PAGES / 32;
    }
    CHECK(with_faults <= (TURNS - LEARNING) / 2, "in %d of %d turns pages were faulted in again", with_faults,
          TURNS - LEARNING);
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: resident CASE");
    free(malloc(1));
    rss_bytes();
    struct { const char *name; void (*run)(void); } cases[] = {
        {"large_block_freed", large_block_freed}, {"sparse_calloc", sparse_calloc},
        {"small_blocks_at_random", small_blocks_at_random},
        {"realloc_grows_in_place_of_pages", realloc_grows_in_place_of_pages},
        {"freed_and_used_again", freed_and_used_again},
        {"many_kept_spans", many_kept_spans},
        {"comes_and_goes", comes_and_goes},
        {"comes_and_goes_in_all_sizes", comes_and_goes_in_all_sizes},
        {"comes_and_goes_no_more", comes_and_goes_no_more},
        {"few_then_many", few_then_many},
        {"buffers_in_bulk", buffers_in_bulk},
        {"begun_buffers", begun_buffers},
        {"untouched_blocks", untouched_blocks},
        {"beside_huge_pages", beside_huge_pages},
        {"buffers_where_others_were", buffers_where_others_were},
        {"locked_page", locked_page},
        {"locked_for_a_while", locked_for_a_while}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    CHECK(false, "no case %s", argv[1]);
}
