/* pairs MODE SIZE COUNT: COUNT times one malloc and one free of SIZE bytes.
 * MODE "empty" calls two functions of one instruction (ret) instead, so that the loop's own cost is known.
 * MODE "aligned" asks for multiples of 64; "two" has two blocks at a time.
 * MODE "batch" makes 1000 blocks, then frees them in the order they were made; "empty-batch" is its loop.
 * MODE "drawn" has 32 blocks and replaces one by one of another size, SIZE to 7 times that; "empty-drawn" is its loop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *empty_malloc(size_t size);
void empty_free(void *block);
__asm__(".text\n.globl empty_malloc\nempty_malloc: ret\n.globl empty_free\nempty_free: ret\n");

static void *(*volatile allocate)(size_t) = malloc;
static void (*volatile release)(void *) = free;

enum { BATCH = 1000 };
static void *blocks[BATCH];

static void *aligned(size_t size) {
    return aligned_alloc(64, size);
}

static void batches(size_t size, unsigned long pairs) {
    for (unsigned long left = pairs / BATCH; left > 0; left--) {
        for (int i = 0; i < BATCH; i++) blocks[i] = allocate(size);
        for (int i = 0; i < BATCH; i++) release(blocks[i]);
    }
}

static void drawn(size_t size, unsigned long pairs) {
    enum { LIVE = 32 };
    unsigned long long random = 1;
    for (; pairs > 0; pairs--) {
        random = random * 6364136223846793005 + 1442695040888963407;
        void **block = &blocks[random >> 59 & (LIVE - 1)];
        release(*block);
        *block = allocate(size + (random >> 33 & 0xfffff) * 6 * size / 0x100000);
    }
    for (int i = 0; i < LIVE; i++) release(blocks[i]);
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: pairs malloc|empty|aligned|two|batch|empty-batch|drawn|empty-drawn SIZE COUNT\n");
        return 2;
    }
    if (strncmp(words[1], "empty", 5) == 0) {
        allocate = empty_malloc;
        release = empty_free;
    }
    if (strcmp(words[1], "aligned") == 0) {
        allocate = aligned;
    }
    size_t size = strtoul(words[2], NULL, 10);
    unsigned long pairs = strtoul(words[3], NULL, 10);
    if (strstr(words[1], "batch") != NULL) {
        batches(size, pairs);
        return 0;
    }
    if (strstr(words[1], "drawn") != NULL) {
        drawn(size, pairs);
        return 0;
    }
    if (strcmp(words[1], "two") == 0) {
        for (; pairs > 1; pairs -= 2) {
            void *first = allocate(size);
            release(allocate(size));
            release(first);
        }
        return 0;
    }
    for (; pairs > 0; pairs--) {
        release(allocate(size));
    }
    return 0;
}
