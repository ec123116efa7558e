/* Blocks allocated by some threads and freed by others, through a ring each: every byte stays, memory stays bounded. */
#include "check.h"
#include <pthread.h>
#include <sched.h>

enum { PAIRS = 3, SLOTS = 4096, BLOCKS = 300000 };
struct item { unsigned char *block; size_t size; };
static struct ring {
    struct item item[SLOTS];
    size_t written, read;
} rings[PAIRS];

static void *produce(void *argument) {
    struct ring *ring = argument;
    uint64_t random = (uintptr_t)argument | 1;
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t n = random_size(&random, 8, i % 200 ? 2 * KIB : 200 * KIB);
        unsigned char *p = i % 5 ? malloc(n) : calloc(1, n);
        CHECK(p != NULL, "no memory for %zu", n);
        if (i % 5 == 0) CHECK(first_nonzero(p, n < 300 ? n : 300) == SIZE_MAX, "calloc(%zu) is not zero", n);
        fill(p, n, i);
        while (i - __atomic_load_n(&ring->read, __ATOMIC_ACQUIRE) >= SLOTS) sched_yield();
        ring->item[i % SLOTS] = (struct item){p, n};
        __atomic_store_n(&ring->written, i + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void *consume(void *argument) {
    struct ring *ring = argument;
    for (size_t i = 0; i < BLOCKS; i++) {
        while (__atomic_load_n(&ring->written, __ATOMIC_ACQUIRE) <= i) sched_yield();
        struct item item = ring->item[i % SLOTS];
        CHECK_PATTERN(item.block, item.size, item.size, i);
        if (i % 3 == 0) {
            item.block = realloc(item.block, item.size + item.size / 2 + 1);
            CHECK_PATTERN(item.block, item.size, item.size, i);
        }
        free(item.block);
        __atomic_store_n(&ring->read, i + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

int main(void) {
    pthread_t thread[2 * PAIRS];
    size_t start = rss_bytes();
    for (int i = 0; i < PAIRS; i++) {
        pthread_create(&thread[2 * i], NULL, produce, &rings[i]);
        pthread_create(&thread[2 * i + 1], NULL, consume, &rings[i]);
    }
    for (int i = 0; i < 2 * PAIRS; i++) pthread_join(thread[i], NULL);
    /* At most 3 x 4,096 blocks of about 800 bytes were live at a time; 300,000 each went through. */
    size_t grown = rss_bytes() - start;
    CHECK(grown < 64 * MIB, "resident memory grew by %zu MiB", grown / MIB);
    return 0;
}
