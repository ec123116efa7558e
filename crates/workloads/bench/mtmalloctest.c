/*
 * mtmalloctest: blocks of varying size, in rounds; the second program of the Sun article.
 *
 * Source: mtmalloctest by Greg Nakhimovsky, as described in "A Comparison of Memory Allocators in Multiprocessors"
 * (Attardi, Nadgir, 2003): it "allocates and frees blocks of memory, of varying size, then repeats the process". Here a
 * round allocates a thread's share of the blocks, then frees every other one, then the rest, each thread for itself.
 * Of 64 blocks 63 have 16 bytes to 4 KiB, each power of two as likely as the next, and one has 8 to 64 KiB.
 *
 * Work: the total is divided among the threads. Live peak: the sum of the threads' largest rounds, exact when the
 * threads reach them together, else a bound.
 */
#include "workload.h"

static void **blocks;
static size_t block_count, rounds;

static size_t varying_size(struct worker *self)
{
    return random_below(&self->random, 64) == 0 ? random_size(&self->random, 13, 16)
                                                : random_size(&self->random, 4, 12);
}

static void body(struct worker *self)
{
    size_t begin = part_begin(block_count, self->index), end = part_end(block_count, self->index);
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = begin; i < end; i++)
            blocks[i] = make_block(self, varying_size(self));
        for (size_t i = begin; i < end; i += 2)
            drop_block(self, blocks[i]);
        for (size_t i = begin + 1; i < end; i += 2)
            drop_block(self, blocks[i]);
    }
}

int main(int argc, char **argv)
{
    begin("mtmalloctest", argc, argv);
    block_count = pick(10000, 80000);
    rounds = pick(700, 140);
    blocks = map_array(block_count, sizeof *blocks);
    run_threads(body);
    return finish(sum_of_peaks());
}
