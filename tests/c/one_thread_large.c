/* One thread frees large blocks and allocates others from what it freed: each holds what was written into it, and the figures know them. */
#include "check.h"

enum { MOST = 24, TURNS = 40000 };

struct block {
    uint64_t *start;
    size_t bytes;
};

static uint64_t state = 88172645463325252ull;

static size_t draw(size_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 20) % below;
}

static uint64_t *last_of(struct block block) { return block.start + block.bytes / sizeof(uint64_t) - 1; }

static struct block make(size_t bytes) {
    struct block block = {malloc(bytes), 0};
    CHECK(block.start, "no memory");
    block.bytes = malloc_usable_size(block.start);
    CHECK(block.bytes >= bytes && (uintptr_t)block.start % 16 == 0, "%zu bytes at %p are %zu", bytes, (void *)block.start, block.bytes);
    *block.start = bytes, *last_of(block) = ~bytes;
    return block;
}

static void drop(struct block block) {
    CHECK(*block.start == ~*last_of(block), "a block of %zu bytes was overwritten", block.bytes);
    free(block.start);
}

static void check_figures(const struct block *blocks) {
    size_t count = 0, bytes = 0;
    for (int i = 0; i < MOST; i++)
        if (blocks[i].start) count++, bytes += blocks[i].bytes;
    struct mallinfo2 info = mallinfo2();
    CHECK(info.hblks == count && info.hblkhd == bytes, "%zu blocks of %zu bytes are %zu of %zu", count, bytes, info.hblks, info.hblkhd);
}

int main(void) {
    struct block blocks[MOST] = {{0}};
    for (int turn = 0; turn < TURNS; turn++) {
        /* By turns one of any size is replaced, and some of one size are taken and freed. */
        size_t size = turn / 1000 % 2 ? 40000 : 33000 + draw(turn % 7 ? 200000 : 2000000);
        for (size_t count = turn % 50 ? 1 : 1 + draw(MOST); count > 0; count--) {
            struct block *block = &blocks[draw(MOST)];
            if (block->start) drop(*block), block->start = NULL;
            else *block = make(size);
        }
        if (turn % 10 == 0) check_figures(blocks);
    }
    for (int i = 0; i < MOST; i++)
        if (blocks[i].start) drop(blocks[i]), blocks[i].start = NULL;
    check_figures(blocks);
    return 0;
}
