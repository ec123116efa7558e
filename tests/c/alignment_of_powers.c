/* Every power of two up to 64 MiB is honoured by posix_memalign, aligned_alloc and memalign; blocks do not overlap. */
#include "check.h"

#include <pthread.h>

#define HELD 24

/* What comes back was freed by who did not ask for an alignment. */
static void *by_turns(void *unused) {
    for (size_t n = 33 * KIB; n < MIB; n += 60 * KIB + 100)
        for (size_t alignment = 16; alignment <= 128 * KIB; alignment *= 2)
            for (int turn = 0; turn < 6; turn++) {
                unsigned char *plain = opaque(malloc(n)), *other = opaque(malloc(n));
                CHECK(plain && other, "malloc(%zu) returned NULL", n);
                free(plain), free(other);
                unsigned char *aligned = turn % 2 ? aligned_alloc(alignment, n) : memalign(alignment, n);
                CHECK(aligned && (uintptr_t)aligned % alignment == 0, "alignment %zu, size %zu: got %p", alignment, n, aligned);
                memset(aligned, 1, n);
                free(aligned);
            }
    return unused;
}

int main(void) {
    unsigned char *held[HELD] = {0};
    size_t sizes[HELD] = {0}, turn = 0;
    for (size_t alignment = 1; alignment <= 64 * MIB; alignment *= 2) {
        size_t wanted[] = {0, 1, 8, 16, 100, 4096, 5000, alignment / 2, alignment - 1, alignment, alignment + 1,
                           3 * alignment, 32 * KIB, 40000, MIB + 1};
        for (size_t w = 0; w < COUNT_OF(wanted); w++) {
            size_t n = wanted[w];
            for (int how = 0; how < 3; how++) {
                void *p = NULL;
                if (how == 0) {
                    if (alignment < sizeof(void *)) continue;
                    int error = posix_memalign(&p, alignment, n);
                    CHECK(error == 0, "posix_memalign(%zu, %zu) returned %d", alignment, n, error);
                } else
                    p = how == 1 ? aligned_alloc(alignment, n) : memalign(alignment, n);
                CHECK(p != NULL, "%s(%zu, %zu) returned NULL", how == 1 ? "aligned_alloc" : "memalign", alignment, n);
                CHECK((uintptr_t)p % alignment == 0, "alignment %zu, size %zu: got %p", alignment, n, p);
                CHECK(malloc_usable_size(p) >= n, "alignment %zu, size %zu: only %zu usable", alignment, n,
                      malloc_usable_size(p));
                size_t slot = turn++ % HELD;
                if (held[slot]) {
                    CHECK_PATTERN(held[slot], sizes[slot], sizes[slot], slot);
                    if (turn % 5 == 0) {
                        size_t grown = sizes[slot] + 1 + turn % 3000;
                        held[slot] = realloc(held[slot], grown);
                        CHECK(held[slot] != NULL, "realloc of an aligned block to %zu returned NULL", grown);
                        CHECK_PATTERN(held[slot], sizes[slot], sizes[slot], slot);
                    }
                }
                free(held[slot]);
                held[slot] = p;
                sizes[slot] = n > 2 * MIB ? 2 * MIB : n;
                fill(p, sizes[slot], slot);
                if (n > sizes[slot]) ((unsigned char *)p)[n - 1] = 1;
            }
        }
    }
    for (size_t slot = 0; slot < HELD; slot++) free(held[slot]);
    by_turns(NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, by_turns, NULL) == 0, "no thread");
    pthread_join(thread, NULL);

    for (size_t n = 0; n < 20000; n = n * 3 / 2 + 1) {
        void *v = valloc(n), *pv = pvalloc(n);
        size_t page = getpagesize();
        CHECK(v != NULL && (uintptr_t)v % page == 0 && malloc_usable_size(v) >= n, "valloc(%zu) returned %p", n, v);
        CHECK(pv != NULL && (uintptr_t)pv % page == 0, "pvalloc(%zu) returned %p", n, pv);
        size_t rounded = (n + page - 1) / page * page;
        CHECK(malloc_usable_size(pv) >= rounded, "pvalloc(%zu): %zu usable, not whole pages", n, malloc_usable_size(pv));
        memset(v, 1, n), memset(pv, 2, rounded);
        free(v), free(pv);
    }
    return 0;
}
