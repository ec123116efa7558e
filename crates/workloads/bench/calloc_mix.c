/*
 * calloc_mix: zeroed blocks of 32 bytes to 256 KiB, read all over and written in their first quarter.
 *
 * Source: own. Whoever knows that memory is fresh from the kernel need not zero it; whoever reuses a block must. The
 * program reads one word in every 256 bytes and finds it zero, or says so.
 *
 * Work: the live blocks and the replacements are totals, divided among the threads. Live peak: the sum of the threads'
 * own peaks, a bound.
 */
#include "workload.h"

enum { LOW_POWER = 5, HIGH_POWER = 18, STRIDE = 256 };

static void **blocks;
static size_t block_count, replacements;

static void *make_zeroed(struct worker *self)
{
    size_t bytes = random_size(&self->random, LOW_POWER, HIGH_POWER);
    size_t element = random_below(&self->random, 2) == 0 ? 1 : 8;
    bytes &= ~(size_t)7;
    char *block = opaque(calloc(bytes / element, element));
    if (block == NULL)
        fail_memory(bytes);
    for (size_t offset = 0; offset < bytes; offset += STRIDE) {
        uint64_t word;
        memcpy(&word, block + offset, sizeof word);
        if (word != 0)
            fail_check("word of a zeroed block", 0, word);
    }
    memset(block, 0xa5, bytes / 4);
    stamp(self, block, bytes);
    return block;
}

static void body(struct worker *self)
{
    void **own = blocks + part_begin(block_count, self->index);
    size_t own_count = part_of(block_count, self), own_replacements = part_of(replacements, self);
    for (size_t i = 0; i < own_count; i++)
        own[i] = make_zeroed(self);
    for (size_t i = 0; i < own_replacements; i++) {
        size_t slot = random_below(&self->random, own_count);
        drop_block(self, own[slot]);
        own[slot] = make_zeroed(self);
    }
    for (size_t i = 0; i < own_count; i++)
        drop_block(self, own[i]);
}

int main(int argc, char **argv)
{
    begin("calloc_mix", argc, argv);
    block_count = pick(300, 2400) + (size_t)run.threads;
    replacements = pick(400000, 700000);
    blocks = map_array(block_count, sizeof *blocks);
    run_threads(body);
    return finish(sum_of_peaks());
}
