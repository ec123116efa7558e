/* realloc keeps what was written, from every kind of size to every other, beside neighbours that keep theirs. */
#include "check.h"

static const size_t sizes[] = {1,     8,     15,    16,    17,    24,        32,        33,        48,        64,
                               100,   128,   129,   200,   256,   400,       512,       777,       1024,      1025,
                               2000,  4000,  4096,  4097,  8192,  10000,     16384,     20000,     32767,     32768,
                               32769, 40000, 65535, 65536, 65537, 131072,    200000,    262145,    MIB - 1,   MIB,
                               MIB + 1, 2 * MIB + 5, 5 * MIB, 9 * MIB, 33 * MIB};

static void pairs(void) {
    for (size_t f = 0; f < COUNT_OF(sizes); f++)
        for (size_t t = 0; t < COUNT_OF(sizes); t++) {
            size_t from = sizes[f], to = sizes[t], kept = from < to ? from : to;
            unsigned char *before = malloc(from), *p = malloc(from), *after = malloc(from);
            CHECK(before && p && after, "malloc(%zu) returned NULL", from);
            bool watched = from < 100000;
            if (watched) fill(before, from, 1), fill(after, from, 3);
            fill(p, from, 2);
            p = realloc(p, to);
            CHECK(p != NULL, "realloc from %zu to %zu returned NULL", from, to);
            CHECK((uintptr_t)p % 16 == 0, "realloc from %zu to %zu gave %p", from, to, p);
            CHECK(malloc_usable_size(p) >= to, "realloc from %zu to %zu: %zu usable", from, to, malloc_usable_size(p));
            CHECK_PATTERN(p, from, kept, 2);
            fill(p, to, 4);
            if (watched) {
                CHECK_PATTERN(before, from, from, 1);
                CHECK_PATTERN(after, from, from, 3);
            }
            CHECK_PATTERN(p, to, to, 4);
            free(before), free(p), free(after);
        }
}

/* Many blocks at once, each wandering through the sizes. */
static void random_walk(void) {
    enum { BLOCKS = 300 };
    static unsigned char *block[BLOCKS];
    static size_t size[BLOCKS];
    uint64_t random = 42;
    for (int step = 0; step < 60000; step++) {
        size_t i = next_random(&random) % BLOCKS;
        size_t to = random_size(&random, 1, step % 50 == 0 ? 4 * MIB : 48 * KIB);
        unsigned char *p = realloc(block[i], to);
        CHECK(p != NULL, "realloc to %zu returned NULL", to);
        if (block[i]) CHECK_PATTERN(p, size[i], size[i] < to ? size[i] : to, i);
        block[i] = p, size[i] = to;
        fill(p, to, i);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (block[i]) CHECK_PATTERN(block[i], size[i], size[i], i);
        free(block[i]);
    }
}

/* A buffer that grows by little steps to 3 MiB, then by doubling to 256 MiB, and shrinks again. */
static void growth(void) {
    size_t n = 1;
    unsigned char *p = malloc(n);
    p[0] = pattern_byte(9, 0);
    while (n < 3 * MIB) {
        size_t more = n < 100000 ? 61 : 4093;
        p = realloc(p, n + more);
        CHECK(p != NULL, "realloc to %zu returned NULL", n + more);
        fill_range(p, n, n + more, 9);
        n += more;
    }
    CHECK(first_bad_in(p, 0, n, 9) == SIZE_MAX, "growing by steps changed byte %zu", first_bad_in(p, 0, n, 9));
    for (size_t to = n; to < 256 * MIB;) {
        to *= 2;
        p = realloc(p, to);
        CHECK(p != NULL, "realloc to %zu returned NULL", to);
        p[to - 1] = 5;
    }
    CHECK(first_bad_in(p, 0, n, 9) == SIZE_MAX, "doubling changed byte %zu", first_bad_in(p, 0, n, 9));
    for (size_t to = n; to > 1; to = to * 2 / 3) {
        p = realloc(p, to);
        CHECK(p != NULL, "realloc down to %zu returned NULL", to);
        CHECK(first_bad_in(p, 0, to, 9) == SIZE_MAX, "shrinking to %zu changed byte %zu", to, first_bad_in(p, 0, to, 9));
    }
    free(p);
}

int main(void) {
    pairs();
    random_walk();
    growth();
    return 0;
}
