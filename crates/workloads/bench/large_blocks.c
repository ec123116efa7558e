/*
 * large_blocks: blocks of 64 KiB to 8 MiB, a few live at a time, every page touched, replaced at random.
 *
 * Source: own, after the matrix buffers of "A Study in Malloc: A Case of Excessive Minor Faults" (Ezolt, ALS 2001): is
 * a large block mapped and faulted in anew every time, and what stays resident when it is freed?
 *
 * Work: the live blocks (at least one a thread) and the replacements are totals, divided among the threads. Live peak:
 * the sum of the threads' own peaks, a bound.
 */
#include "workload.h"

enum { PAGE = 4096, LOW_POWER = 16, HIGH_POWER = 23 };

static void **blocks;
static size_t block_count, replacements;

static void *make_touched(struct worker *self)
{
    size_t bytes = random_size(&self->random, LOW_POWER, HIGH_POWER);
    char *block = allocate(bytes);
    for (size_t offset = 0; offset < bytes; offset += PAGE)
        block[offset] = (char)(offset / PAGE);
    stamp(self, block, bytes);
    return block;
}

static void drop_touched(struct worker *self, char *block)
{
    size_t bytes = stamped_bytes(block);
    for (size_t offset = PAGE; offset + sizeof(uint64_t) < bytes; offset += PAGE)
        if (block[offset] != (char)(offset / PAGE))
            fail_check("first byte of a page", (uint8_t)(offset / PAGE), (uint8_t)block[offset]);
    drop_block(self, block);
}

static void body(struct worker *self)
{
    void **own = blocks + part_begin(block_count, self->index);
    size_t own_count = part_of(block_count, self), own_replacements = part_of(replacements, self);
    for (size_t i = 0; i < own_count; i++)
        own[i] = make_touched(self);
    for (size_t i = 0; i < own_replacements; i++) {
        size_t slot = random_below(&self->random, own_count);
        drop_touched(self, own[slot]);
        own[slot] = make_touched(self);
    }
    for (size_t i = 0; i < own_count; i++)
        drop_touched(self, own[i]);
}

int main(int argc, char **argv)
{
    begin("large_blocks", argc, argv);
    block_count = pick(16, 128);
    if (block_count < (size_t)run.threads)
        block_count = (size_t)run.threads;
    replacements = pick(4000, 20000);
    blocks = map_array(block_count, sizeof *blocks);
    run_threads(body);
    return finish(sum_of_peaks());
}
