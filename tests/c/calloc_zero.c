/* calloc gives zeros, whatever was written there before. */
#include "check.h"

static void check_zero(unsigned char *p, size_t n) {
    CHECK(p != NULL, "calloc(%zu) returned NULL", n);
    size_t bad = first_nonzero(p, n);
    CHECK(bad == SIZE_MAX, "calloc(%zu): byte %zu is not zero", n, bad);
}

/* `count` blocks of `n` made dirty and freed, then taken zeroed, `rounds` times. */
static void dirty_then_zero(size_t n, size_t count, int rounds) {
    static unsigned char *block[256];
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < count; i++) {
            block[i] = malloc(n);
            CHECK(block[i] != NULL, "malloc(%zu) returned NULL", n);
            memset(block[i], 0xff, malloc_usable_size(block[i]));
        }
        for (size_t i = 0; i < count; i++) free(block[round % 2 ? i : count - 1 - i]);
        if (round == 2) malloc_trim(0);
        for (size_t i = 0; i < count; i++) {
            block[i] = calloc(n % 8 ? 1 : 8, n % 8 ? n : n / 8);
            check_zero(block[i], n);
            memset(block[i], 0xee, n);
        }
        for (size_t i = 0; i < count; i++) free(block[i]);
    }
}

int main(void) {
    for (size_t n = 1; n <= 2048; n += n < 300 ? 1 : 7) dirty_then_zero(n, 40, 3);
    for (size_t n = 2048; n < 80000; n = n * 21 / 20) dirty_then_zero(n, 12, 4);
    for (size_t n = 80000; n < 9 * MIB; n = n * 3 / 2) dirty_then_zero(n, 4, 4);
    dirty_then_zero(64 * MIB + 3, 1, 3);
    dirty_then_zero(64, 256, 20);

    /* The tail of a block that shrank, and the place a block moved away from. */
    for (size_t n = 1000; n < 20 * MIB; n = n * 7 / 4) {
        unsigned char *p = malloc(n);
        memset(p, 0xff, n);
        p = realloc(p, n / 5);
        unsigned char *z = calloc(1, n * 3 / 5), *y = calloc(1, n / 10);
        check_zero(z, n * 3 / 5), check_zero(y, n / 10);
        p = realloc(p, n * 2);
        memset(p, 0xff, n * 2);
        unsigned char *x = calloc(1, n / 5);
        check_zero(x, n / 5);
        free(p), free(z), free(y), free(x);
        z = calloc(3, n);
        check_zero(z, 3 * n);
        free(z);
    }

    /* Mixed sizes at random, so that spans split and join. */
    static unsigned char *held[200];
    static size_t size[200];
    uint64_t random = 7;
    for (int step = 0; step < 8000; step++) {
        size_t i = next_random(&random) % 200;
        if (held[i]) memset(held[i], 0xaa, size[i]);
        free(held[i]);
        size[i] = random_size(&random, 16, step % 20 ? 64 * KIB : 2 * MIB);
        held[i] = step % 3 ? malloc(size[i]) : calloc(1, size[i]);
        CHECK(held[i] != NULL, "no memory for %zu bytes", size[i]);
        if (step % 3 == 0) check_zero(held[i], size[i]);
    }
    return 0;
}
